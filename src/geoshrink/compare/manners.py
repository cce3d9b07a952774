"""How hosts are called: which method, what a prompt and the steps are to it, what it returns."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..hosts.hooks import Hooks
from .inputs import OURS_TO_SET
from .kinds import kind_of
from .showing import HEARD, RATES, SEEN

Run = Callable[[Any, dict[str, Any], int, int], Any]  # (host, arguments, steps, seed)


@dataclass(frozen=True)
class Manner:
    """How a class of hosts is called.

    run        makes one call
    method     whose arguments people may give
    prompt     the argument that a prompt is
    beyond     steps beyond B that direct step reduction needs to step B times
    idle       model calls of a plain run that change nothing
    sets       arguments that compare sets itself
    arguments  those that may be given, where it is no method that takes them
    """

    run: Run
    method: str = "__call__"
    prompt: str = "prompt"
    beyond: int = 0
    idle: int = 0
    sets: tuple[str, ...] = OURS_TO_SET
    arguments: frozenset[str] | None = None

    def takes(self, host: Any) -> set[str]:
        """The arguments of the call."""
        if self.arguments is not None:
            return {*self.arguments}
        blocks: Any = getattr(host, "blocks", None)
        if self.method == "__call__" and hasattr(blocks, "input_names"):  # diffusers' modular ones
            return {*blocks.input_names}
        return {*inspect.signature(getattr(host, self.method)).parameters}


def pipeline(host: Any, call: dict[str, Any], steps: int, seed: int) -> Any:
    """A pipeline of diffusers', or like one."""
    noise = torch.Generator().manual_seed(seed)
    takes = PIPELINE.takes(host)
    own = {"num_inference_steps": steps, "generator": noise, "output_type": "np"}
    own = {name: value for name, value in own.items() if name in takes}
    blocks: Any = getattr(host, "blocks", None)
    if hasattr(blocks, "outputs"):
        names = [found.name for found in blocks.outputs]
        own["output"] = [name for name in names if name in (*SEEN, *HEARD, *RATES)] or names
    return host(**call, **own)


def hunyuan3d(host: Any, call: dict[str, Any], steps: int, seed: int) -> Any:
    noise = torch.Generator().manual_seed(seed)
    call = {"enable_pbar": False, **call}
    return kind_of("Meshes")(
        host(num_inference_steps=steps, generator=noise, output_type="trimesh", **call)
    )


def tangoflux(host: Any, call: dict[str, Any], steps: int, seed: int) -> Any:
    return kind_of("Sounds")(
        host.generate(steps=steps, **call)[None], host.vae.config.sampling_rate
    )


def hymotion(host: Any, call: dict[str, Any], steps: int, seed: int) -> Any:
    """Its steps are an attribute; the skeleton is its body model's."""
    before, host.validation_steps = host.validation_steps, steps
    try:
        made = host.generate(seed_input=[seed], **{"duration_slider": 5, **call})
    finally:
        host.validation_steps = before
    if getattr(host, "body_model", None) is None:
        raise ValueError(f"{type(host).__name__} has no body_model: its joints are not known")
    return kind_of("Motions")(made["keypoints3d"], host.body_model.parents.tolist())


def trellis(host: Any, call: dict[str, Any], steps: int, seed: int) -> Any:
    """The steps are those of the structured latents, which is the stage that is accelerated."""
    takes = [*inspect.signature(host.run).parameters]
    stages = [name for name in takes if name.endswith("slat_sampler_params")]
    call = {**call, **{name: {**call.get(name, {}), "steps": steps} for name in stages}}
    if "formats" in takes:
        call["formats"] = ["mesh"]
    if isinstance(call.get("image"), str):
        from PIL import Image

        call["image"] = Image.open(call["image"])
    made = host.run(seed=seed, **call)
    return kind_of("Meshes")(made["mesh"] if isinstance(made, Mapping) else made, up=2)


def acestep(host: Any, call: dict[str, Any], steps: int, seed: int) -> Any:
    """It writes files: the waves are taken where it would, and its notes go to a folder for now."""
    waves, rates, hooks = [], [], Hooks()
    with tempfile.TemporaryDirectory() as folder:

        def keep(
            target_wav: Any, idx: int, *args: Any, sample_rate: int = 48000, **more: Any
        ) -> str:
            waves.append(target_wav)
            rates.append(sample_rate)
            return f"{folder}/{idx}.wav"

        try:
            hooks.place(host, "save_wav_file", lambda host, save, args, more: keep(*args, **more))
            host(infer_step=steps, manual_seeds=[seed], **{"lyrics": "", **call})
        finally:
            hooks.lift()
    return kind_of("Sounds")(torch.stack(waves), rates[0])


PIPELINE = Manner(pipeline)
#: Of classes, and those derived from them.
MANNERS = {
    "ZooPipeline": Manner(pipeline, prompt="labels"),
    "Hunyuan3DDiTFlowMatchingPipeline": Manner(hunyuan3d, prompt="image", beyond=1, idle=1),
    "MiniMaxH3ModularPipeline": Manner(pipeline, beyond=1, sets=(*OURS_TO_SET, "output")),
    "TangoFluxInference": Manner(tangoflux, "generate", sets=("steps",)),
    "MotionFlowMatching": Manner(hymotion, "generate", "text", sets=("seed_input",)),
    "TrellisTextTo3DPipeline": Manner(trellis, "run", sets=("seed", "formats")),
    "TrellisImageTo3DPipeline": Manner(trellis, "run", "image", sets=("seed", "formats")),
    "Trellis2ImageTo3DPipeline": Manner(trellis, "run", "image", sets=("seed", "return_latent")),
    "ACEStepPipeline": Manner(acestep, sets=("infer_step", "manual_seeds", "save_path", "format")),
}


def manner_of(host: Any) -> Manner:
    """As its class is known, or as a pipeline of diffusers'."""
    names = (kind.__name__ for kind in type(host).__mro__)
    return next((MANNERS[name] for name in names if name in MANNERS), PIPELINE)


def by_function(function: Callable[..., Any], host: Any) -> Manner:
    """As a function of yours calls it: of prompt, steps and seed it gets those that it takes."""
    known, takes = manner_of(host), {*inspect.signature(function).parameters}
    if "steps" not in takes:
        raise TypeError(
            f"the function that calls {type(host).__name__} takes ({', '.join(sorted(takes))}): it "
            "must take steps, and may take prompt and seed"
        )

    def run(host: Any, call: dict[str, Any], steps: int, seed: int) -> Any:
        own = {"steps": steps, "seed": seed}
        return function(**call, **{name: own[name] for name in own if name in takes})

    sets, takes = ("steps", "seed"), frozenset(takes)
    return Manner(run, "", "prompt", known.beyond, known.idle, sets, takes)
