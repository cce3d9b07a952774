"""load("digits-vit"): a foreign model with the interface of a model of the zoo."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoshrink.grid import Grid

from ..zoo.model import check_interval, class_numbers, shifted_sigmas, within
from .files import found
from .recipe import Network, Recipe, recipe_of


@dataclass(frozen=True)
class Model:
    """A trained model of somebody else, sampled from noise at the highest σ to data at σ = 0.

    model = load("digits-vit")
    x0 = geoshrink.sample(model.velocity([3]), model.noise(1), model.grid(50))
    model.values(x0)
    """

    recipe: Recipe
    network: Network

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def classes(self) -> list[str]:
        return list(self.recipe.classes)

    @property
    def judged_at(self) -> dict[str, Any]:
        return dict(self.recipe.judged_at)

    @property
    def facts(self) -> dict[str, Any]:
        """One hash for all files, as cells name weights."""
        return dict(sha256=hashlib.sha256("".join(self.recipe.files.values()).encode()).hexdigest())

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def labels(self, labels: Sequence[int | str]) -> Tensor:
        """Class numbers from numbers or names."""
        numbers = class_numbers(labels, list(self.recipe.classes), self.name)
        return torch.tensor(numbers, device=self.device)

    def velocity(
        self,
        labels: Sequence[int | str],
        guidance: float | None = None,
        *,
        interval: tuple[float, float] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> Callable[[Tensor, Any], Tensor]:
        """p_∅ + g·(p_c − p_∅) of the network's own prediction p; g = 1 runs one branch only.

        interval    guidance acts for σ within it only; default: the recipe's own
        """
        g = self.judged_at["guidance"] if guidance is None else guidance
        if not math.isfinite(g) or (g != 1 and not self.recipe.guided):
            raise ValueError(f"{self.name} has no guidance {g!r}")
        if lengths is not None:
            raise ValueError(f"{self.name} has samples of one size; leave lengths out")
        check_interval(interval)
        acts = self.recipe.within if interval is None else interval
        label = self.labels(labels)
        both = torch.cat([label, torch.full_like(label, len(self.recipe.classes))])
        wanted = (len(label), *self.recipe.shape)

        @torch.no_grad()
        def velocity(x: Tensor, sigma: Any) -> Tensor:
            if tuple(x.shape) != wanted:
                raise ValueError(f"{self.name} needs x of shape {wanted}, got {tuple(x.shape)}")
            level = float(sigma)
            if g == 1 or not within(level, acts):
                return self.network(x, level, label)
            given, free = self.network(torch.cat([x, x]), level, both).chunk(2)
            return free + g * (given - free)

        return velocity

    def noise(self, n: int, seed: int = 0) -> Tensor:
        """Standard normal noise, the same on every device."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(n, *self.recipe.shape, generator=generator).to(self.device)

    def sigmas(self, steps: int | None = None, shift: float | None = None) -> list[float]:
        at = self.judged_at
        shares = shifted_sigmas(steps or at["steps"], at["shift"] if shift is None else shift)
        return [self.recipe.schedule.sigma(u) for u in shares]

    def grid(
        self,
        steps: int | None = None,
        shift: float | None = None,
        interval: tuple[float, float] | None = None,
    ) -> Grid:
        """The grid with what the output means on it; with an interval, regimes at its ends."""
        check_interval(interval)
        sigmas = self.sigmas(steps, shift)
        inside = [within(s, interval) for s in sigmas[:-1]]
        regimes = [i for i in range(1, len(inside)) if inside[i] != inside[i - 1]]
        if self.recipe.prediction == "flow":
            return Grid.of(sigmas, data=0.0, regimes=regimes)
        more = dict(prediction=self.recipe.prediction, alphas=self.recipe.alphas)
        return Grid.of(sigmas, regimes=regimes, **more)  # type: ignore[arg-type]

    @torch.no_grad()
    def values(self, x: Tensor, lengths: Sequence[int] | None = None) -> Tensor:
        """x in natural units."""
        return self.network.decode(x)

    def parts(self, x: Tensor, lengths: Sequence[int] | None = None) -> list[Tensor]:
        return [self.values(x)]


def load(name: str, device: str | torch.device = "cpu") -> Model:
    """A foreign model in float32, its files checked against their recorded hashes.

    Raises files.Missing, which says how to bring it, where it is not on this machine.
    """
    recipe = recipe_of(name)
    network = recipe.build(found(recipe))
    return Model(recipe, network.float().to(device).eval().requires_grad_(False))


def statistics(values: Tensor, labels: Sequence[int]) -> dict[str, float]:
    """What tells samples from noise.

    mean, std   of all numbers
    leading     the share of the variance along the first principal axis
    told        the share of the variance between the classes' means
    """
    rows, kinds = values.double().flatten(1), torch.tensor(labels)
    off = rows - rows.mean(0)
    power = torch.linalg.svdvals(off).square()
    between = torch.stack([off[kinds == kind].mean(0) for kind in kinds])
    return dict(
        mean=float(rows.mean()),
        std=float(rows.std()),
        leading=float(power[0] / power.sum()),
        told=float(between.square().sum() / off.square().sum()),
    )
