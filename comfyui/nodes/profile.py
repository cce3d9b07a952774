"""GeoShrink Profile: learns a model from a few full runs, and writes a plan for GeoShrink."""

from __future__ import annotations

import os
import re
from typing import Any

import comfy.sample
import comfy.samplers
import comfy.utils
import folder_paths
import torch
from torch import Tensor

import geoshrink

from ..api import Input, Node, Result
from ..seam import levels_of, said, without
from ..telling import tell
from .sampling import INPUTS, latent_of

FOLDER = "geoshrink"  # in ComfyUI's folder of outputs
LEFT = ("sampler_name", "denoise")  # Euler, from noise


def run(
    node_id: str,
    model: Any,
    latent_image: Any,
    seed: int,
    steps: int,
    cfg: float,
    scheduler: str,
    positive: Any,
    negative: Any,
    speedup: float,
    pictures: int,
    name: str,
) -> Result:
    """The path of the plan, and what it promises."""
    path, show = path_of(name), tell(node_id)
    plain = without(model)
    one = latent_of(plain, latent_image)[:1]
    noise = torch.cat([comfy.sample.prepare_noise(one, seed + i) for i in range(pictures)])
    sampling = plain.get_model_object("model_sampling")
    sigmas = comfy.samplers.calculate_sigmas(sampling, scheduler, steps)
    bar = comfy.utils.ProgressBar(10 * pictures * steps)
    found: list[geoshrink.Profile] = []

    def profile(model: Any, x: Tensor, sigmas: Tensor, extra_args: Any = None, **_: Any) -> Tensor:
        """Takes the place of a sampler: ComfyUI has loaded the model and prepared the prompts."""
        levels = [float(s) for s in sigmas]

        def velocity(x: Tensor, sigma: Any) -> Tensor:
            bar.update(1)
            at = torch.full((len(x),), float(sigma), device=x.device)
            return (x - model(x, at, **(extra_args or {}))) / float(sigma)

        parts = list(x.split(1))
        asked = levels_of(sampling, levels)
        found.append(geoshrink.profile([velocity] * len(parts), parts, levels, quiet=True, **asked))
        return x

    empty = torch.zeros_like(noise)
    sampler = comfy.samplers.KSAMPLER(profile)
    show(f"profiling: at most ten full runs of {pictures} pictures …")
    comfy.sample.sample_custom(
        plain, noise, cfg, sampler, sigmas, positive, negative, empty, disable_pbar=True, seed=seed
    )
    bar.update_absolute(10 * pictures * steps)
    budget = max(4, round((len(sigmas) - 1) / speedup))
    plan = found[0].plan(budget)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(plan.to_json() + "\n")
    expected = found[0].predict(budget)
    text = said([f"{plan.budget} of {plan.steps} steps; expected: {expected}", f"plan: {path}"])
    show(text)
    return Result((path, text), {"text": (text,)})


def path_of(name: str) -> str:
    """Where the plan of this name is written."""
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
        raise ValueError(f"name={name!r}: letters, digits, dots, - and _ only, such as flux-30")
    return os.path.join(folder_paths.get_output_directory(), FOLDER, f"{name}.plan.json")


NODE = Node(
    "GeoShrinkProfile",
    "GeoShrink Profile",
    "Runs a model on a few latents, at most ten full runs, and writes a plan: the steps at which "
    "GeoShrink best queries this model, for these steps, this scheduler and this guidance.",
    (
        *(one for one in INPUTS if one.name not in LEFT),
        Input(
            "speedup",
            "FLOAT",
            3.0,
            "steps over model calls",
            limits={"min": 1.0, "max": 20.0, "step": 0.1},
        ),
        Input("pictures", "INT", 4, "latents to learn from", limits={"min": 4, "max": 64}),
        Input("name", "STRING", "my-model", "of the file: output/geoshrink/NAME.plan.json"),
    ),
    (("STRING", "plan"), ("STRING", "report")),
    run,
    aliases=("geoshrink", "profile", "calibrate", "plan"),
    is_output=True,
)
