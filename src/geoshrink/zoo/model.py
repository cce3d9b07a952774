"""load("fruit"): a trained model with its velocity, its noise, its grid and its pictures."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor

from .network import DiT
from .recipes import RECIPES, Recipe


@dataclass(frozen=True)
class Model:
    """A class-conditional flow from noise at σ = 1 to data at σ = 0.

    model = load("fruit")
    x0 = geoshrink.sample(model.velocity(["Kiwi 1"], guidance=2), model.noise(1), model.sigmas(50))
    model.decode(x0)[0].save("kiwi.png")
    """

    recipe: Recipe
    network: DiT
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def classes(self) -> list[str]:
        return self.facts["classes"]

    @property
    def judged_at(self) -> dict[str, Any]:
        """steps, guidance and shift at which this model is judged."""
        return dict(self.recipe.judged_at)

    @property
    def card(self) -> str:
        return (files("geoshrink.zoo") / "weights" / f"{self.name}.md").read_text(encoding="utf-8")

    @property
    def device(self) -> torch.device:
        return self.network.position.device

    def labels(self, labels: Sequence[int | str]) -> Tensor:
        """Class numbers from numbers or names."""
        numbers = []
        for label in labels:
            if label in self.classes:
                label = self.classes.index(label)  # type: ignore[arg-type]
            if not isinstance(label, int) or not 0 <= label < len(self.classes):
                raise ValueError(
                    f"{self.name} knows no class {label!r}; it has {len(self.classes)}, such as "
                    f"{', '.join(map(repr, self.classes[:3]))} (see model.classes)"
                )
            numbers.append(label)
        return torch.tensor(numbers, device=self.device)

    def velocity(
        self, labels: Sequence[int | str], guidance: float | None = None
    ) -> Callable[[Tensor, float], Tensor]:
        """v(x, σ) = v_∅ + g·(v_c − v_∅), both branches in one batch; g = 1 runs only one."""
        g = self.judged_at["guidance"] if guidance is None else guidance
        label = self.labels(labels)
        nothing = torch.full_like(label, len(self.classes))

        @torch.no_grad()
        def velocity(x: Tensor, sigma: float) -> Tensor:
            time = torch.full((len(x),), float(sigma), device=x.device)
            if g == 1:
                return self.network(x, time, label)
            both = self.network(x.repeat(2, 1, 1, 1), time.repeat(2), torch.cat([label, nothing]))
            given, free = both.chunk(2)
            return free + g * (given - free)

        return velocity

    def noise(self, n: int, seed: int = 0) -> Tensor:
        """Standard normal noise, the same on every device."""
        generator = torch.Generator().manual_seed(seed)
        shape = self.recipe.network["shape"]
        return torch.randn(n, *shape, generator=generator).to(self.device)

    def sigmas(self, steps: int | None = None, shift: float | None = None) -> list[float]:
        at = self.judged_at
        return shifted_sigmas(
            at["steps"] if steps is None else steps, at["shift"] if shift is None else shift
        )

    def pixels(self, x: Tensor) -> Tensor:
        """x as float pictures in [0, 1]."""
        return (x.float().clamp(-1, 1) + 1) / 2

    def decode(self, x: Tensor) -> list[Any]:
        """x as PIL images."""
        from PIL import Image

        pictures = (255 * self.pixels(x)).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        return [Image.fromarray(picture) for picture in pictures]


def load(name: str, device: str | torch.device = "cpu") -> Model:
    """A model of the zoo in float32, its weights checked against their recorded hash."""
    if name not in RECIPES:
        raise ValueError(f"the zoo has no {name!r}; it has {', '.join(sorted(RECIPES))}")
    try:
        from safetensors.torch import load as load_tensors
    except ImportError:
        raise ImportError("the zoo needs safetensors: pip install 'geoshrink[demo]'") from None
    folder = files("geoshrink.zoo") / "weights"
    facts = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    blob = (folder / f"{name}.safetensors").read_bytes()
    if hashlib.sha256(blob).hexdigest() != facts["sha256"]:
        raise ValueError(f"the weights of {name} are damaged (sha256 differs); reinstall geoshrink")
    recipe = RECIPES[name]
    network = DiT(classes=len(facts["classes"]), **recipe.network)
    network.load_state_dict({key: value.float() for key, value in load_tensors(blob).items()})
    return Model(recipe, network.to(device).eval().requires_grad_(False), facts)


def shifted_sigmas(steps: int, shift: float = 1.0) -> list[float]:
    """σ_i = s·u/(1 + (s − 1)·u), u = 1 − i/T: uniform for s = 1, more steps in noise for s > 1."""
    if steps < 1 or not shift > 0:
        raise ValueError(f"a grid needs steps >= 1 and shift > 0, got {steps} and {shift}")
    u = [1 - i / steps for i in range(steps + 1)]
    return [shift * v / (1 + (shift - 1) * v) for v in u]
