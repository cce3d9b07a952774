"""What the blocks of our pages take for granted: a model, its noise, a pipeline; all tiny."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import geoshrink
import readers

STEPS = 14
SIGMAS = [3 * u / (1 + 2 * u) for u in (1 - i / STEPS for i in range(STEPS + 1))]
#: Labels of the tiny model that stands for all of the zoo.
LABELS = ("Pear 1", "Kiwi 1", "Banana 1", "Strawberry 1", "Corn 1", "walk", "jump", "run")


def velocity(x: Any, sigma: Any) -> Any:
    """Curved, and good for odeint's velocity(t, y), too."""
    return torch.sin(3 * x) * (1 + sigma)


def draw(seed: int, count: int = 4) -> torch.Tensor:
    return torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))


def names() -> dict[str, Any]:
    """The names that a block may use without a word; `handle` has seen a run."""
    pipe = readers.small(readers.reader("FluxPipeline"))
    with geoshrink.accelerate(pipe, budget=5) as handle:
        pipe("a cat", num_inference_steps=12)
    noise, times = draw(0), torch.linspace(0, 1, STEPS + 1)
    return {
        "__name__": "page",
        "geoshrink": geoshrink,
        "torch": torch,
        "pipe": pipe,
        "host": pipe,
        "handle": handle,
        "prompts": ["a cat", "a dog", "the house", "a photo"],
        "velocity": velocity,
        "field": velocity,
        "noise": noise,
        "other_noise": draw(1),
        "x": noise,
        "sigmas": SIGMAS,
        "t": times,
        "times": times,
        "frames": torch.ones(4, 8, dtype=torch.bool),
    }


def pipelines(patch: pytest.MonkeyPatch) -> None:
    """Every from_pretrained() gives a tiny pipeline of the class, or FLUX; it stays where it is."""
    diffusers = readers.image.diffusers
    kind = diffusers.DiffusionPipeline

    def from_pretrained(cls: Any, name: str, **_: Any) -> Any:
        asked = "FluxPipeline" if cls is kind else str(cls.__name__)
        return readers.small(readers.reader("WanPipeline" if "wan" in name.lower() else asked))

    patch.setattr(kind, "from_pretrained", classmethod(from_pretrained))
    patch.setattr(kind, "to", lambda pipe, *_, **__: pipe)
    for name in ("enable_model_cpu_offload", "enable_sequential_cpu_offload"):
        patch.setattr(kind, name, lambda pipe, *_, **__: None)


def zoo(patch: pytest.MonkeyPatch) -> None:
    """Every model of the zoo is one with random weights, as good as any for the lines around it."""
    cases = pytest.importorskip("cases")
    from geoshrink_bench import zoo

    model = cases.small_case().model
    torch.manual_seed(0)
    network = model.recipe.build(len(LABELS))
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    network = network.eval().requires_grad_(False)
    model = replace(model, network=network, facts={"classes": [*LABELS], "data": {}})
    patch.setattr(zoo, "load", lambda name, *_, **__: model)


def place(folder: Path, patch: pytest.MonkeyPatch, text: str) -> None:
    """Files that these blocks read are in the folder; what they keep goes there, too."""
    (folder / "prompts.txt").write_text("a cat\na dog\nthe house\na photo\n", encoding="utf-8")
    plan = geoshrink.Plan.of(SIGMAS, 10)
    (folder / "flux10.json").write_text(plan.to_json(), encoding="utf-8")
    if "models/FLUX.1-dev" in text:
        readers.saved("FluxPipeline", folder / "models/FLUX.1-dev")
    patch.chdir(folder)
    patch.setenv("GEOSHRINK_LEARNED", str(folder / "learned"))
