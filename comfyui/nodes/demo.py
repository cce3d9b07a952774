"""The demo: our own fruit model in ComfyUI, with no download. It comes with geoshrink-bench."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

import torch

from ..api import Input, Node, Result

GROUP, NAME = "geoshrink.models", "fruit"
MISSING = (
    "the demo model comes with geoshrink-bench: pip install geoshrink-bench (from a clone of "
    "geoshrink: pip install ./bench), into the Python that runs ComfyUI"
)
NONE = "none"
FRUITS = (
    "Kiwi 1", "Banana 1", "Strawberry 1", "Pineapple 1", "Pepper Orange 1", "Cauliflower 1",
    "Corn 1", "Pear Abate 1", "Apple Red 1", "Tomato 1",
)  # fmt: skip


@lru_cache(maxsize=1)
def fruit() -> Any:
    """The trained model, from the entry point; an error says what to install."""
    for entry in entry_points(group=GROUP):
        if entry.name == NAME:
            return entry.load()(NAME, "cpu").model
    raise RuntimeError(MISSING)


def load_model(node_id: str) -> Result:
    from ..demo_model import Pixels, model_of  # knows ComfyUI's model classes

    model = fruit()
    return Result((model_of(model), Pixels(model)))


def choose_class(node_id: str, fruit_name: str) -> Result:
    model = fruit()
    numbers = model.classes.index(fruit_name), len(model.classes)
    given, none = ([[torch.full((1, 1, 1), float(k)), {}]] for k in numbers)
    return Result((given, none))


def empty_latent(node_id: str, batch_size: int) -> Result:
    shape = fruit().recipe.shapes[0]
    return Result(({"samples": torch.zeros(batch_size, *shape)},))


ALIASES = ("geoshrink", "demo", "fruit", "example")
NODES = (
    Node(
        "GeoShrinkDemoModel",
        "GeoShrink Demo Model",
        "A small trained flow model that draws fruit: no download. For cfg 3 and the scheduler "
        "sgm_uniform.",
        (),
        (("MODEL", "model"), ("VAE", "vae")),
        load_model,
        ALIASES,
    ),
    Node(
        "GeoShrinkDemoClass",
        "GeoShrink Demo Class",
        "Which fruit the demo model draws, as conditioning.",
        (Input("fruit_name", list(FRUITS), FRUITS[0], "ten of its 258 classes"),),
        (("CONDITIONING", "positive"), ("CONDITIONING", "negative")),
        choose_class,
        ALIASES,
    ),
    Node(
        "GeoShrinkDemoLatent",
        "GeoShrink Demo Latent",
        "An empty latent of the demo model's size.",
        (Input("batch_size", "INT", 4, "pictures at once", limits={"min": 1, "max": 64}),),
        (("LATENT", "latent"),),
        empty_latent,
        ALIASES,
    ),
)
