"""GeoShrink Compare: the full run, direct step reduction and geoshrink from the same noise."""

from __future__ import annotations

import time
from typing import Any

import comfy.utils
from torch import Tensor

from ..api import Input, Node, Result
from ..options import Options
from ..pictures import sheet_of, shown
from ..seam import Accelerated, accelerated, said, without
from ..telling import tell
from .sampling import INPUTS, sampled


def run(
    node_id: str, model: Any, vae: Any, latent_image: Any, steps: int, speedup: float, **words: Any
) -> Result:
    """Samples three times; the same seed, the same prompts."""
    plain, show = without(model), tell(node_id)
    given = accelerated(model)
    options = Options(speedup=speedup) if given is None else given.options
    ours = Accelerated(options, lambda text: None)
    bar = comfy.utils.ProgressBar(3 * steps)
    made: list[tuple[str, Tensor, float]] = []

    def sample(label: str, model: Any, count: int) -> None:
        show(f"{label} …")
        began = time.perf_counter()
        latent = sampled(model, words, latent_image, count, lambda: bar.update(1))
        seconds = time.perf_counter() - began
        made.append((label, vae.decode(latent).detach().float().cpu(), seconds))

    sample("full", plain, steps)
    sample("geoshrink", ours.attach(plain), steps)
    (_, full, seconds), (_, fast, spent) = made
    columns = [(f"full, {steps} steps", full)]
    lines = [f"full, {steps} steps: {seconds:.1f} s"]

    def add(label: str, picture: Tensor, spent: float) -> None:
        db = psnr(picture, full)
        columns.append((f"{label}: {db:.1f} dB", picture))
        lines.append(f"{label}: PSNR {db:.1f} dB to the full run, {spent:.1f} s")

    if ours.exact:
        lines.append(f"there is nothing to compare. {ours.text}")
    else:
        sample("direct", plain, ours.calls)
        add(f"direct, {ours.calls} calls", *made[-1][1:])
        add(f"geoshrink, {ours.calls} calls", fast, spent)
    bar.update_absolute(3 * steps)
    text = said(lines)
    show(text)
    sheet = sheet_of(columns)
    return Result((sheet, text), {"text": (text,), **shown(sheet)})


def psnr(made: Tensor, full: Tensor) -> float:
    """Of pictures in [0, 1]: the mean over a batch, in dB."""
    error = (made.clamp(0, 1) - full.clamp(0, 1)).square().flatten(1).mean(1)
    return float((-10 * error.clamp_min(1e-10).log10()).mean())


NODE = Node(
    "GeoShrinkCompare",
    "GeoShrink Compare",
    "Samples three times from one seed, the full run, direct step reduction and geoshrink with as "
    "many model calls, and shows them side by side with their distance to the full run in dB.",
    (
        INPUTS[0],
        Input("vae", "VAE", about="makes pictures of the latents"),
        *INPUTS[1:],
        Input(
            "speedup",
            "FLOAT",
            3.0,
            "steps over model calls; a GeoShrink node before this one decides instead",
            limits={"min": 1.0, "max": 20.0, "step": 0.1},
        ),
    ),
    (("IMAGE", "sheet"), ("STRING", "report")),
    run,
    aliases=("geoshrink", "compare", "psnr", "side by side", "ab test"),
    is_output=True,
)
