"""What each model of the zoo is: its data, its network, the settings it is judged at.

The settings are those of the paper's counterpart: SD3.5 and FLUX (fruit), HunyuanVideo
(fruit-video), TangoFlux (digits-audio), MiniMax-H3 (digits-av), HY-Motion (motion), TRELLIS
(objects).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .modalities import Audiovisual, Clips, Modality, Motion, Objects, Pictures, Sound
from .network import DiT, JointDiT


@dataclass(frozen=True)
class Recipe:
    """prediction  what the network says: "flow" (ε − x₀), "epsilon" or "sample" (x₀).
    top         the τ = σ/(α + σ) at which sampling begins: below 1 where noise alone says nothing.
    latent      arguments of the autoencoder whose latents the network sees, or None.
    judged_at   steps, guidance, shift (one per σ-grid), interval of σ in which guidance acts.
    """

    name: str
    data: str  # the file it is trained on
    modality: Modality
    network: dict[str, Any]  # arguments of DiT or JointDiT, but for the number of classes
    judged_at: dict[str, Any]
    training: dict[str, Any] = field(default_factory=dict)
    prediction: str = "flow"
    top: float = 1.0
    latent: dict[str, Any] | None = None
    classifiers: tuple[str, ...] = ()  # of classifier.TASKS, one for each tensor of a sample

    def __post_init__(self) -> None:
        if not isinstance(self.modality, Modality):
            raise TypeError(
                f"the modality of {self.name} must be a Modality, got {self.modality!r}"
            )

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shape of each tensor of a sample."""
        network = self.network
        return list(network["shapes"]) if "shapes" in network else [network["shape"]]

    @property
    def joint(self) -> bool:
        return "shapes" in self.network

    def build(self, classes: int) -> DiT | JointDiT:
        return (JointDiT if self.joint else DiT)(classes=classes, **self.network)


LARGE = dict(width=256, depth=6, heads=4, condition=96)
SMALL = dict(width=192, depth=6, heads=3, condition=96)
TRAINING = dict(batch=512, rate=5e-4, label_drop=0.1, ema=0.9995, minutes=9.0, compiled=True)
FRUIT: dict[str, Any] = dict(data="fruits64.npz", modality=Pictures(), classifiers=("fruit",))
PIXELS = dict(shape=(3, 64, 64), patch=(4, 4))
SPEECH = (1, 8192)

RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="fruit",
            **FRUIT,
            network=dict(**PIXELS, **LARGE),
            training=TRAINING,
            judged_at=dict(steps=50, guidance=3.0, shift=3.0),
        ),
        Recipe(
            name="fruit-epsilon",
            **FRUIT,
            network=dict(**PIXELS, **SMALL),
            training=TRAINING,
            judged_at=dict(steps=50, guidance=3.0, shift=1.0),
            prediction="epsilon",
            top=0.94,
        ),
        Recipe(
            name="fruit-x0",
            **FRUIT,
            network=dict(**PIXELS, **SMALL),
            training=TRAINING,
            judged_at=dict(steps=50, guidance=3.0, shift=3.0),
            prediction="sample",
        ),
        Recipe(
            name="fruit-latent",
            **FRUIT,
            training=TRAINING | dict(batch=1024, rate=7e-4),
            network=dict(shape=(4, 16, 16), patch=(2, 2), **SMALL),
            judged_at=dict(steps=28, guidance=4.5, shift=3.0),
            latent=dict(width=64, latent=4),
        ),
        Recipe(
            name="fruit-video",
            data="fruits_turning_48.npz",
            modality=Clips(),
            classifiers=("fruit-video",),
            network=dict(shape=(3, 16, 48, 48), patch=(2, 6, 6), **LARGE | dict(condition=88)),
            judged_at=dict(steps=50, guidance=5.0, shift=7.0),
            # torch 2.11 compiles the whole loss wrongly: it rises; compiled by blocks it falls
            training=TRAINING | dict(batch=128, ema=0.999, shift=2.0, compiled="blocks"),
        ),
        Recipe(
            name="digits-audio",
            data="fsdd_8k.npz",
            modality=Sound(),
            classifiers=("digits-audio",),
            network=dict(shape=SPEECH, patch=(32,), **SMALL),
            judged_at=dict(steps=40, guidance=4.5, shift=1.0),
            training=TRAINING | dict(batch=256),
        ),
        Recipe(
            name="digits-av",
            data="fsdd_8k.npz",
            modality=Audiovisual(),
            classifiers=("digits-picture", "digits-audio"),
            network=dict(shapes=((1, 8, 8), SPEECH), patches=((2, 2), (32,)), **SMALL),
            judged_at=dict(steps=30, guidance=3.0, shift=(12.0, 3.0)),
            training=TRAINING | dict(batch=256),
        ),
        Recipe(
            name="motion",
            data="cmu_mocap_20fps.npz",
            modality=Motion(),
            network=dict(shape=(63, 64), patch=(1,), **SMALL),
            judged_at=dict(steps=50, guidance=5.0, shift=1.0),
            training=TRAINING | dict(batch=512, ema=0.999),
        ),
        Recipe(
            name="objects",
            data="gso_sdf32.npz",
            modality=Objects(),
            network=dict(shape=(1, 32, 32, 32), patch=(4, 4, 4), **SMALL),
            judged_at=dict(steps=25, guidance=7.5, shift=3.0, interval=(0.5, 0.95)),
            training=TRAINING | dict(batch=128, ema=0.999),
        ),
    )
}


def recipe_of(name: str) -> Recipe:
    if name not in RECIPES:
        raise ValueError(f"the zoo has no {name!r}; it has {', '.join(sorted(RECIPES))}")
    return RECIPES[name]


def register(recipe: Recipe) -> None:
    """Add a model to the zoo: it can be trained, loaded, judged, measured and shown like ours."""
    if recipe.name in RECIPES:
        raise ValueError(f"the zoo has a model {recipe.name!r} already: choose another name")
    RECIPES[recipe.name] = recipe
