"""load("fruit"): a trained model with its velocity, its noise, its grid and what it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoshrink.compare.kinds import Made
from geoshrink.grid import Grid
from geoshrink.sampling import sample

from .autoencoder import Autoencoder
from .files import find as find
from .files import read
from .network import DiT, JointDiT, asked
from .recipes import Recipe, recipe_of


@dataclass(frozen=True)
class Model:
    """A class-conditional flow from noise at σ = 1 to data at σ = 0.

    model = load("fruit")
    x0 = geoshrink.sample(model.velocity(["Kiwi 1"], guidance=2), model.noise(1), model.grid(50))
    model.decode(x0)[0].save("kiwi.png")
    """

    recipe: Recipe
    network: DiT | JointDiT
    facts: dict[str, Any]
    card: str
    autoencoder: Autoencoder | None = None

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def classes(self) -> list[str]:
        return self.facts["classes"]

    @property
    def judged_at(self) -> dict[str, Any]:
        """steps, guidance, shift and, for objects, interval at which this model is judged."""
        return dict(self.recipe.judged_at)

    @property
    def device(self) -> torch.device:
        return self.network.device

    def labels(self, labels: Sequence[int | str]) -> Tensor:
        """Class numbers from numbers or names."""
        return torch.tensor(class_numbers(labels, self.classes, self.name), device=self.device)

    def velocity(
        self,
        labels: Sequence[int | str],
        guidance: float | None = None,
        *,
        interval: tuple[float, float] | None = None,
        lengths: Sequence[int] | None = None,
    ) -> Callable[[Any, Any], Any]:
        """v(x, σ) = v_∅ + g·(v_c − v_∅), both branches in one batch; g = 1 runs only one.

        It is what the network was trained to say: noise for fruit-epsilon, data for fruit-x0.
        interval    guidance acts for σ (of the first part) within it only; give it to grid(), too
        lengths     frames of each sample, where the model knows padding (motion)
        """
        g = self.judged_at["guidance"] if guidance is None else guidance
        if not math.isfinite(g):
            raise ValueError(f"guidance must be a finite number, got {g!r}")
        check_interval(interval)
        label = self.labels(labels)
        nothing = torch.full_like(label, len(self.classes))
        length = self.check_lengths(lengths, len(label))

        @torch.no_grad()
        def velocity(x: Any, sigma: Any) -> Any:
            joint = self.recipe.joint
            parts = tuple(x) if joint else (x,)
            wanted = [(len(label), *shape) for shape in self.recipe.shapes]
            if [tuple(part.shape) for part in parts] != wanted:
                raise ValueError(
                    f"{self.name} with {len(label)} labels needs x of shape {wanted}, got "
                    f"{[tuple(part.shape) for part in parts]}"
                )
            tau = self.time(sigma, len(label), len(parts))
            if g == 1 or not within(sigma, interval):
                out = asked(self.network, parts, tau, label, length)
            else:
                twice = [torch.cat([part, part]) for part in parts]
                lengths = None if length is None else length.repeat(2)
                labels = torch.cat([label, nothing])
                both = asked(self.network, twice, tau.repeat(2, 1), labels, lengths)
                halves = (part.chunk(2) for part in both)
                out = tuple(free + g * (given - free) for given, free in halves)
            return out if joint else out[0]

        return velocity

    def sample(
        self,
        labels: Sequence[int | str],
        noise: Any,
        guidance: float | None = None,
        steps: int | None = None,
        lengths: Sequence[int] | None = None,
        callback: Callable[..., Any] | None = None,
    ) -> Any:
        """x₀ by the plain solver, every step of it, on the grid at which this model is judged."""
        interval = self.judged_at.get("interval")
        velocity = self.velocity(labels, guidance, interval=interval, lengths=lengths)
        return sample(velocity, noise, self.grid(steps, interval=interval), callback=callback)

    def time(self, sigma: Any, n: int, parts: int) -> Tensor:
        """τ for the network, (n, parts): σ itself, or σ/(α + σ) on the sphere."""
        levels = sigma if isinstance(sigma, (tuple, list)) else [sigma] * parts
        if self.recipe.prediction == "epsilon":
            levels = [s / (s + (1 - s * s) ** 0.5) for s in map(float, levels)]
        return torch.tensor([[float(s) for s in levels]], device=self.device).repeat(n, 1)

    def check_lengths(self, lengths: Sequence[int] | None, n: int) -> Tensor | None:
        if lengths is None:
            return None
        most = self.recipe.shapes[0][-1]
        if not self.recipe.modality.varies:
            raise ValueError(f"{self.name} has samples of one size; leave lengths out")
        if len(lengths) != n or not all(0 < length <= most for length in lengths):
            raise ValueError(f"lengths must be {n} numbers from 1 to {most}, got {list(lengths)}")
        return torch.tensor(list(lengths), device=self.device)

    def noise(self, n: int, seed: int = 0) -> Any:
        """Standard normal noise, the same on every device; a tuple where a sample has parts."""
        generator = torch.Generator().manual_seed(seed)
        parts = [
            torch.randn(n, *shape, generator=generator).to(self.device)
            for shape in self.recipe.shapes
        ]
        return tuple(parts) if self.recipe.joint else parts[0]

    def sigmas(self, steps: int | None = None, shift: Any = None) -> Any:
        """σ_0 … σ_T; a tuple of such lists where each part has its own."""
        at = self.judged_at
        count: Any = at["steps"] if steps is None else steps
        shift = at["shift"] if shift is None else shift
        if self.recipe.joint:
            count_of = len(self.recipe.shapes)
            shifts = shift if isinstance(shift, (tuple, list)) else [shift] * count_of
            if len(shifts) != count_of:
                raise ValueError(f"{self.name} has {count_of} σ-grids, got the shifts {shift!r}")
            return tuple(shifted_sigmas(count, s) for s in shifts)
        sigmas = [self.recipe.top * s for s in shifted_sigmas(count, shift)]
        if self.recipe.prediction == "epsilon":
            return [t / (t * t + (1 - t) ** 2) ** 0.5 for t in sigmas]
        return sigmas

    def grid(
        self,
        steps: int | None = None,
        shift: Any = None,
        interval: tuple[float, float] | None = None,
    ) -> Grid:
        """The grid with what the output means on it, and a new regime where guidance switches."""
        check_interval(interval)
        sigmas = self.sigmas(steps, shift)
        alphas = {"flow": None, "epsilon": "vp", "sample": "flow"}[self.recipe.prediction]
        regimes: list[int] = []
        if interval is not None:
            lead = list(zip(*sigmas)) if self.recipe.joint else sigmas
            inside = [within(s, interval) for s in lead[:-1]]
            regimes = [i for i in range(1, len(inside)) if inside[i] != inside[i - 1]]
        options: dict[str, Any] = {} if alphas else {"data": 0.0}
        return Grid.of(
            sigmas, prediction=self.recipe.prediction, alphas=alphas, regimes=regimes, **options
        )

    @torch.no_grad()
    def values(self, x: Any, lengths: Sequence[int] | None = None) -> Any:
        """x in natural units: pixels in [0, 1], waveforms, joints in metres, signed distances."""
        return self.recipe.modality.values(*self.decoded(x, lengths))

    def decoded(self, x: Any, lengths: Sequence[int] | None) -> tuple[Any, dict[str, Any], Any]:
        """(x without the autoencoder, the facts of the data, the lengths), as a modality takes."""
        self.check_lengths(lengths, len(x))
        x = x if self.autoencoder is None else self.autoencoder.decode(x)
        return x, self.facts.get("data", {}), lengths

    def parts(self, x: Any, lengths: Sequence[int] | None = None) -> list[Tensor]:
        """values() as a list, with one tensor for each part of a sample."""
        values = self.values(x, lengths)
        return list(values) if isinstance(values, tuple) else [values]

    @torch.no_grad()
    def decode(self, x: Any, lengths: Sequence[int] | None = None) -> list[Any]:
        """One thing per sample: a PIL image, a list of them, a waveform, a pair of the two, joints
        (frames, joints, 3) in metres, a trimesh.
        """
        return self.recipe.modality.decode(*self.decoded(x, lengths))

    @torch.no_grad()
    def made(self, x: Any, lengths: Sequence[int] | None = None) -> Made:
        """The samples as geoshrink.compare scores and shows them: Pictures, Sounds, Films, Motions
        or Meshes.
        """
        return self.recipe.modality.made(*self.decoded(x, lengths))


def load(name: str, device: str | torch.device = "cpu", folder: str | Path | None = None) -> Model:
    """A model of the zoo in float32, its weights checked against their recorded hash.

    `fruit` comes with the package. The others are looked for in the repository's zoo/ folder, then
    in a cache (GEOSHRINK_ZOO_CACHE), then downloaded once (GEOSHRINK_ZOO_URL). A folder that has
    NAME.safetensors, given here or in GEOSHRINK_ZOO, is the only place then.
    """
    recipe = recipe_of(name)
    tensors, facts, place = read(name, folder)
    weights = {key: value.float() for key, value in tensors.items()}
    inner = {k[12:]: weights.pop(k) for k in list(weights) if k.startswith("autoencoder.")}
    network = recipe.build(len(facts["classes"]))
    network.load_state_dict(weights)
    autoencoder = None
    if recipe.latent is not None:
        autoencoder = Autoencoder(**recipe.latent)
        autoencoder.load_state_dict(inner)
        autoencoder = autoencoder.to(device).eval().requires_grad_(False)
    card = place / f"{name}.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    network = network.to(device).eval().requires_grad_(False)
    return Model(recipe, network, facts, text, autoencoder)


def class_numbers(
    labels: Sequence[int | str], classes: list[str], whose: str, count: int | None = None
) -> list[int]:
    """From numbers or names; `whose` classes they are is said where one is unknown.

    count   of the classes, where not all have names
    """
    numbers, count = [], len(classes) if count is None else count
    for label in labels:
        number = classes.index(label) if label in classes else label  # type: ignore[arg-type]
        if not isinstance(number, int) or not 0 <= number < count:
            raise ValueError(
                f"{whose} knows no class {label!r}; it has {count}, such as "
                f"{', '.join(map(repr, classes[:3]))} (see its classes)"
            )
        numbers.append(number)
    return numbers


def joined(parts: Sequence[Any]) -> Any:
    """Batches of samples as one, also where a sample has parts."""
    if isinstance(parts[0], tuple):
        return tuple(torch.cat(part) for part in zip(*parts))
    return torch.cat(list(parts))


def check_interval(interval: tuple[float, float] | None) -> None:
    if interval is not None and not (len(interval) == 2 and interval[0] <= interval[1]):
        raise ValueError(f"interval is (lowest σ, highest σ) with guidance, got {interval!r}")


def within(sigma: Any, interval: tuple[float, float] | None) -> bool:
    """Whether guidance acts at σ; of several, the first decides."""
    first = sigma[0] if isinstance(sigma, (tuple, list)) else sigma
    return interval is None or interval[0] <= float(first) <= interval[1]


def shifted_sigmas(steps: int, shift: float = 1.0) -> list[float]:
    """σ_i = s·u/(1 + (s − 1)·u), u = 1 − i/T: uniform for s = 1, more steps in noise for s > 1."""
    if steps < 1 or not shift > 0:
        raise ValueError(f"a grid needs steps >= 1 and shift > 0, got {steps} and {shift}")
    u = [1 - i / steps for i in range(steps + 1)]
    return [shift * v / (1 + (shift - 1) * v) for v in u]
