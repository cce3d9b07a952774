"""Corrected runs against solvers whose state is moved in the open, in float64.

The oracles share Run with the pack, but not the way in: no sampler is tried out, no tensor is
written to; the solver is an object whose attributes are replaced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import fakes
from support.fakes import Flow, Model, Variance, distance, noise_like, pack, sampled
from torch import Tensor

import geoshrink
from geoshrink.solvers.response import probe

seam = pack("seam")
FLOW: dict[str, Any] = {"prediction": "flow", "data": 0.0}
LEVELS: dict[str, Any] = {"prediction": "epsilon", "alphas": "ve"}
KINDS = {"flow": (Flow, FLOW), "variance": (Variance, LEVELS)}
SAME = 1e-9  # both in float64, with statistics of their own rounding
BUDGET = 8


def velocity_of(model: Model, cfg: float = 2.0) -> Callable[[Tensor, Any], Tensor]:
    def velocity(x: Tensor, sigma: Any) -> Tensor:
        level = torch.full((len(x),), float(sigma), dtype=x.dtype)
        return (x - model(x, level, [1.0], cfg)) / float(sigma)

    return velocity


def start(kind: str, steps: int = 20) -> tuple[Any, dict[str, Any], Tensor, Tensor]:
    """(levels of the model, options of a plan, σ, x at the first of them)."""
    sampling, levels = KINDS[kind][0](), KINDS[kind][1]
    sigmas = sampling.levels(steps)
    noise = noise_like(dtype=torch.float64)
    return sampling, levels, sigmas, sampling.noise_scaling(sigmas[0], noise, 0 * noise)


def by_hand(
    make: Callable[[], Any], x: Tensor, sigmas: list[float], model: Model, plan: Any
) -> Tensor:
    """Samples by a solver with attributes, moving them all where a cell is corrected."""
    solver, velocity = make(), velocity_of(model)
    track = plan.grid.tracks[0]
    maps = [track.data_map(n) for n in range(plan.steps)] if plan.space == "data" else None
    response = probe(lambda: ((fresh := make()), fresh.step), plan.steps, maps)
    run = geoshrink.Run(plan=plan)
    run.know([response])
    assert run.corrects
    for n in range(plan.steps):
        if not run.queries(n, x):
            d = run.predict(n, x)
        else:
            names = [str(path[0]) for path in run.stored(0)]
            state = [x, *(getattr(solver, name) for name in names)]
            d, (moved,) = run.observe_state(n, velocity(x, sigmas[n]), x, [state])
            assert moved[0] is not None
            x = moved[0]
            for name, tensor in zip(names, moved[1:]):
                setattr(solver, name, tensor)
        x = solver.step(n, x, d)
    return x


class Remembering:
    """fakes.remembering, or DPM-Solver++(2M), as an object: results in first, second, third."""

    names = ("first", "second", "third")

    def __init__(self, sigmas: list[float], weights: Callable[[int], list[float]], kept: int):
        self.sigmas, self.weights, self.kept = sigmas, weights, kept
        self.first = self.second = self.third = None

    def step(self, n: int, x: Tensor, d: Tensor) -> Tensor:
        sigma, after = self.sigmas[n], self.sigmas[n + 1]
        denoised = x - sigma * d
        older = [t for t in (getattr(self, name) for name in self.names) if t is not None]
        data = denoised
        for weight, old in zip(self.weights(n), older):
            data = data + weight * (denoised - old)
        kept = [denoised, *older][: self.kept]
        for name, tensor in zip(self.names, [*kept, None, None, None]):
            setattr(self, name, tensor)
        return data + (x - data) * after / sigma


def test_euler_is_ours() -> None:
    """The pack moves no state of Euler's: the outputs carry the corrections."""
    for kind in KINDS:
        sampling, levels, sigmas, x = start(kind)
        expected = geoshrink.sample(
            velocity_of(Model(sampling)),
            x,
            sigmas.tolist(),
            BUDGET,
            callback=lambda *_: None,
            **levels,
        )
        noise = noise_like(dtype=torch.float64)
        for function in (fakes.euler, fakes.euler_in_place):
            fast = sampled(function, model=Model(sampling), noise=noise, budget=BUDGET)
            assert fast.calls == BUDGET
            assert distance(fast.latent, expected) < SAME, kind
        plain = sampled(model=Model(sampling), noise=noise, budget=BUDGET, correct="off")
        assert distance(plain.latent, expected) > 1e3 * SAME  # it is corrected at all


def test_dpmpp_2m_is_ours() -> None:
    """Where x is x₀ + σ·ε, ComfyUI's dpmpp_2m is DPM-Solver++(2M)."""
    sampling, levels, sigmas, x = start("variance")
    expected = geoshrink.sample(
        velocity_of(Model(sampling)), x, sigmas.tolist(), BUDGET, solver="dpm++2m", **levels
    )
    noise = noise_like(dtype=torch.float64)
    fast = sampled(fakes.dpmpp_2m, model=Model(sampling), noise=noise, budget=BUDGET)
    assert fast.calls == BUDGET and distance(fast.latent, expected) < 1e-6


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_kept_results_are_moved(kept: int, kind: str) -> None:
    """A sampler that keeps its latest results ends where one does whose state is replaced."""
    sampling, levels, sigmas, x = start(kind)
    numbers = sigmas.double().tolist()

    def make() -> Remembering:
        return Remembering(numbers, lambda n: [0.1 / (j + 1) for j in range(kept)], kept)

    plan = geoshrink.Plan.of(numbers, BUDGET, **levels)
    expected = by_hand(make, x, numbers, Model(sampling), plan)
    noise = noise_like(dtype=torch.float64)
    fast = sampled(fakes.remembering(kept), model=Model(sampling), noise=noise, budget=BUDGET)
    assert fast.calls == BUDGET and "not corrected" not in fast.text
    assert distance(fast.latent, expected) < 1e-6
    without = sampled(
        fakes.remembering(kept), model=Model(sampling), noise=noise, budget=BUDGET, correct="off"
    )
    assert distance(without.latent, expected) > 1e-4


def two_steps(numbers: list[float]) -> Callable[[int], list[float]]:
    """The weights of DPM-Solver++(2M), in log σ."""

    def weights(n: int) -> list[float]:
        if n == 0 or numbers[n + 1] == 0:
            return [0.0]
        now, before = (math.log(numbers[j] / numbers[j + 1]) for j in (n, n - 1))
        return [now / (2 * before)]

    return weights


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", ["output", "data"])
def test_dpmpp_2m_in_both_spaces(kind: str, space: str) -> None:
    sampling, levels, sigmas, x = start(kind)
    numbers = sigmas.double().tolist()
    plan = geoshrink.Plan.of(numbers, BUDGET, space=space, correct=True, **levels)
    weights = two_steps(numbers)
    expected = by_hand(lambda: Remembering(numbers, weights, 1), x, numbers, Model(sampling), plan)
    noise, model = noise_like(dtype=torch.float64), Model(sampling)
    fast = sampled(
        fakes.dpmpp_2m, model=model, noise=noise, budget=BUDGET, space=space, correct="on"
    )
    assert distance(fast.latent, expected) < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_noise_between_the_steps(kind: str) -> None:
    """As without, for the noise is the same: predicted in data space, and corrected there."""
    sampling, levels, sigmas, x = start(kind)
    numbers = sigmas.double().tolist()
    plan = geoshrink.Plan.of(numbers, BUDGET, space="data", correct=True, **levels)
    made = torch.Generator().manual_seed(0)
    drawn = [torch.randn(x.shape, generator=made, dtype=x.dtype) for _ in numbers[2:]]

    class Noisy(Remembering):
        def step(self, n: int, x: Tensor, d: Tensor) -> Tensor:
            sigma, after = self.sigmas[n], self.sigmas[n + 1]
            up = 0.5 * after * (1 - (after / sigma) ** 2) ** 0.5
            self.sigmas = [*numbers[: n + 1], (after**2 - up**2) ** 0.5, *numbers[n + 2 :]]
            x = super().step(n, x, d)
            self.sigmas = numbers
            return x + up * drawn[n] if after and x.shape == drawn[n].shape else x

    weights = two_steps(numbers)
    expected = by_hand(lambda: Noisy(numbers, weights, 1), x, numbers, Model(sampling), plan)
    noise = noise_like(dtype=torch.float64)
    asked: dict[str, Any] = dict(budget=BUDGET, correct="on")
    fast = sampled(fakes.dpmpp_2m_sde, model=Model(sampling), noise=noise, **asked)
    assert "predicted in data space" in fast.text
    assert distance(fast.latent, expected) < 5e-6  # σ is of float32, and the noise has its root


@pytest.mark.parametrize("function", [fakes.ipndm, fakes.keeps_x, fakes.clipped])
def test_a_past_out_of_reach_is_not_corrected(function: Any) -> None:
    """The run is the uncorrected one, which an oracle makes by Run alone."""
    sampling, levels, sigmas, _ = start("flow")
    run = geoshrink.Run(
        plan=geoshrink.Plan.of(sigmas.double().tolist(), BUDGET, correct=False, **levels)
    )
    model, guider = Model(sampling), object()

    class Predicting:
        inner_model = guider
        n = -1

        def __call__(self, x: Tensor, sigma: Tensor, **_: Any) -> Tensor:
            self.n += 1
            wide = sigma.reshape(-1, 1, 1, 1)
            return x - wide * run(self.n, lambda: (x - model(x, sigma, [1.0], 2.0)) / wide, x)

    noise = noise_like(dtype=torch.float64)
    expected = function(Predicting(), sigmas[0] * noise, sigmas)
    fast = sampled(function, model=Model(sampling), noise=noise, budget=BUDGET)
    assert distance(fast.latent, expected) < SAME


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_state_in_inference_mode(dtype: torch.dtype) -> None:
    """ComfyUI samples in inference mode."""
    noise = noise_like(dtype=dtype)
    expected = sampled(fakes.dpmpp_2m, noise=noise, budget=BUDGET)
    with torch.inference_mode():
        made = sampled(fakes.dpmpp_2m, noise=noise, budget=BUDGET)
        assert made.calls == BUDGET and torch.equal(made.latent, expected.latent)
