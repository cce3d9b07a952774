"""The solvers against closed forms: Gaussian data, whose probability flow is known exactly.

For x₀ ~ N(m, s²) the marginal of x = α·x₀ + σ·ε is N(αm, α²s² + σ²), the flow carries
(x − αm)/√(α²s² + σ²) along unchanged, and the best data prediction is linear in x.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

import geoshrink
from geoshrink import Plan, profile, sample
from geoshrink.grid import Grid, Track
from geoshrink.solvers import SOLVERS, DPMpp2M, Euler, Solver, register_solver

F64 = torch.float64
MEAN, SPREAD = 0.7, 0.4

ALPHA: dict[str, Callable[[float], float]] = {
    "flow": lambda s: 1 - s,
    "vp": lambda s: math.sqrt(1 - s * s),
    "ve": lambda s: 1.0,
}


class Gaussian:
    """The exact model for Gaussian data, in every parameterisation."""

    def __init__(self, prediction: str = "flow", alphas: str = "flow", ascending: bool = False):
        self.prediction, self.schedule, self.ascending = prediction, alphas, ascending
        self.calls: list[float] = []

    def levels(self, sigma: float) -> tuple[float, float]:
        noise = 1 - sigma if self.ascending else sigma
        return ALPHA[self.schedule](noise), noise

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        self.calls.append(sigma)
        alpha, noise = self.levels(sigma)
        variance = alpha**2 * SPREAD**2 + noise**2
        data = MEAN + alpha * SPREAD**2 / variance * (x - alpha * MEAN)
        eps = noise * (x - alpha * MEAN) / variance
        return {
            "flow": data - eps if self.ascending else eps - data,
            "epsilon": eps,
            "sample": data,
            "v": (alpha * eps - noise * data) / math.hypot(alpha, noise),
        }[self.prediction]

    def exact(self, x: Tensor, start: float, end: float) -> Tensor:
        (a, s), (a1, s1) = self.levels(start), self.levels(end)
        scale = math.hypot(a1 * SPREAD, s1) / math.hypot(a * SPREAD, s)
        return a1 * MEAN + scale * (x - a * MEAN)

    def options(self) -> dict:
        if self.prediction == "flow":
            return dict(data=1.0 if self.ascending else 0.0)
        return dict(prediction=self.prediction, alphas=self.schedule)


def noise(samples: int = 64) -> Tensor:
    return torch.randn(samples, 1, dtype=F64, generator=torch.Generator().manual_seed(1))


def smooth(start: float, end: float, steps: int) -> list[float]:
    """A grid with uneven steps, so that a solver that assumes equal ones is found out."""
    u = np.linspace(0, 1, steps + 1)
    u = u + 0.12 * np.sin(2 * np.pi * u)
    return (start + (end - start) * u).tolist()


def geometric(start: float, end: float, steps: int) -> list[float]:
    return [start * (end / start) ** u for u in smooth(0, 1, steps)]


MODELS = {
    "flow": (Gaussian(), smooth, 0.9, 0.1),
    "ascending flow": (Gaussian(ascending=True), smooth, 0.1, 0.9),
    "epsilon vp": (Gaussian("epsilon", "vp"), smooth, 0.95, 0.1),
    "epsilon ve": (Gaussian("epsilon", "ve"), geometric, 8.0, 0.1),
    "epsilon flow": (Gaussian("epsilon", "flow"), smooth, 0.9, 0.1),
    "sample vp": (Gaussian("sample", "vp"), smooth, 0.95, 0.1),
    "sample ve": (Gaussian("sample", "ve"), geometric, 8.0, 0.1),
    "sample flow": (Gaussian("sample", "flow"), smooth, 0.9, 0.1),
    "v vp": (Gaussian("v", "vp"), smooth, 0.95, 0.1),
    "v ve": (Gaussian("v", "ve"), geometric, 8.0, 0.1),
    "v flow": (Gaussian("v", "flow"), smooth, 0.9, 0.1),
}
ORDERS = {"euler": 1, "ab2": 2, "heun": 2, "dpm++2m": 2}


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("solver", list(ORDERS))
def test_order_of_convergence(solver, name):
    model, grid, start, end = MODELS[name]
    errors = []
    for steps in (64, 128, 256):
        sigmas = grid(start, end, steps)
        x = noise() * math.hypot(*model.levels(start))
        out = sample(model, x, sigmas, solver=solver, **model.options())
        errors.append(float((out - model.exact(x, start, end)).abs().max()))
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert orders[-1] == pytest.approx(ORDERS[solver], abs=0.15), (orders, errors)
    assert SOLVERS[solver].order == ORDERS[solver]


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("solver", list(ORDERS))
def test_the_way_to_the_data_itself(solver, name):
    """σ_T = 0 and, where the parameterisation allows it, α_0 = 0: close to the truth."""
    model, grid, start, end = MODELS[name]
    start = 1.0 if model.schedule == "flow" and model.prediction != "epsilon" else start
    sigmas = [*grid(start, end, 60), *(end * (1 - i / 8) for i in range(1, 9))]
    if model.ascending:
        sigmas = [1 - s for s in [*smooth(1.0, 0.1, 60), *(0.1 * (1 - i / 8) for i in range(1, 9))]]
    x = noise() * math.hypot(*model.levels(sigmas[0]))
    out = sample(model, x, sigmas, solver=solver, **model.options())
    exact = model.exact(x, sigmas[0], sigmas[-1])
    assert sigmas[-1] == pytest.approx(1.0 if model.ascending else 0.0, abs=0)
    tolerance = 0.08 if solver == "euler" else 0.02
    assert float((out - exact).abs().max()) < tolerance


@pytest.mark.parametrize("solver", list(ORDERS))
def test_the_parameterisations_are_one_model(solver):
    """Noise, data and v of one model on one grid are integrated alike; so is its flow by DPM++."""
    sigmas, x = smooth(0.9, 0.0, 12), noise()
    outs = {
        p: sample(Gaussian(p), x, sigmas, solver=solver, **Gaussian(p).options())
        for p in ("epsilon", "sample", "v", "flow")
    }
    torch.testing.assert_close(outs["sample"], outs["epsilon"], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(outs["v"], outs["epsilon"], rtol=1e-12, atol=1e-12)
    if solver in ("euler", "dpm++2m"):  # the others differ in the variable they are linear in
        torch.testing.assert_close(outs["flow"], outs["epsilon"], rtol=1e-12, atol=1e-12)


def test_up_and_down_are_one_flow():
    sigmas, x = smooth(1.0, 0.0, 12), noise()
    up = [1 - s for s in sigmas]
    for solver in ORDERS:
        one = sample(Gaussian(), x, sigmas, solver=solver)
        two = sample(Gaussian(ascending=True), x, up, solver=solver, data=1.0)
        torch.testing.assert_close(one, two, rtol=1e-11, atol=1e-11)


def split(prediction: str, x: Tensor, output: Tensor, a: float, s: float) -> tuple[Tensor, Tensor]:
    """(x̂₀, ε̂) of an output, for x = a·x₀ + s·ε."""
    if prediction == "epsilon":
        return (x - s * output) / a, output
    if prediction == "sample":
        return output, (x - a * output) / s
    r = math.hypot(a, s)
    return (a * x / r - s * output) / r, (s * x / r + a * output) / r


@pytest.mark.parametrize("alphas", ["vp", "ve", "flow"])
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v"])
def test_euler_is_ddim(prediction, alphas):
    """x' = α'·x̂₀ + σ'·ε̂, with both read off the output."""
    sigmas = smooth(0.9, 0.0, 10)
    track = Grid.of(sigmas, prediction=prediction, alphas=alphas).tracks[0]
    rng = np.random.default_rng(3)
    for n in range(10):
        x, output = torch.from_numpy(rng.normal(size=(2, 5)))
        (a, s), (a1, s1) = ((ALPHA[alphas](t), t) for t in sigmas[n : n + 2])
        data, eps = split(prediction, x, output, a, s)
        step = Euler(track).step(n, x, output)
        torch.testing.assert_close(step, a1 * data + s1 * eps, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v"])
def test_a_stage_in_which_only_alpha_moves(prediction):
    """σ repeats, α does not: such a stage has a length, and DDIM is what it always is."""
    sigmas, alphas = [0.8, 0.5, 0.5, 0.3, 0.0], [0.6, 0.7, 0.8, 0.9, 1.0]
    track = Grid.of(sigmas, prediction=prediction, alphas=alphas).tracks[0]
    assert track.steps == 4
    x, output = torch.from_numpy(np.random.default_rng(4).normal(size=(2, 5)))
    data, eps = split(prediction, x, output, 0.7, 0.5)
    step = Euler(track).step(1, x, output)
    torch.testing.assert_close(step, 0.8 * data + 0.5 * eps, rtol=1e-12, atol=1e-12)


def textbook_2m(model: Gaussian, x: Tensor, sigmas: list[float]) -> Tensor:
    """DPM-Solver++(2M), Algorithm 2 of Lu et al. 2022, spelled out: r, h, D and the update."""
    last, last_h = None, None
    for start, end in pairwise(sigmas):
        (a, s), (a1, s1) = model.levels(start), model.levels(end)
        output = model(x, start)
        if model.prediction == "flow":
            data = x + s * output if model.ascending else x - s * output
        else:
            data, _ = split(model.prediction, x, output, a, s)
        if s1 == 0:
            x = a1 * data
            break
        h = math.log(a1 / s1) - math.log(a / s)
        D = data
        if last is not None and last_h is not None:
            r = last_h / h
            D = (1 + 1 / (2 * r)) * data - 1 / (2 * r) * last
        x = s1 / s * x - a1 * math.expm1(-h) * D
        last, last_h = data, h
    return x


@pytest.mark.parametrize("end", [0.05, 0.0])
@pytest.mark.parametrize("name", list(MODELS))
def test_dpmpp_is_the_textbook_algorithm(name, end):
    model, grid, start, _ = MODELS[name]
    sigmas = [*grid(start, 0.08, 14), end] if not model.ascending else None
    if sigmas is None:
        sigmas = [1 - s for s in [*smooth(0.9, 0.08, 14), end]]
    x = noise()
    mine = sample(model, x, sigmas, solver="dpm++2m", **model.options())
    its = textbook_2m(model, x, sigmas)
    # two steps of order 1 are not the same as two of order 2: the comparison means something
    euler = sample(model, x, sigmas, solver="euler", **model.options())
    torch.testing.assert_close(mine, its, rtol=1e-10, atol=1e-10)
    assert float((mine - euler).abs().max()) > 1e-4


def test_ab2_and_heun_by_hand():
    """One variable, three uneven stages, every number written out."""
    sigmas, x = [1.0, 0.7, 0.5, 0.1], torch.tensor([[2.0]], dtype=F64)

    def v(x, s):
        return x * s + s**2

    y = x + (-0.3) * v(x, 1.0)
    z = y + (-0.2) * (v(y, 0.7) + (-0.2) / (2 * -0.3) * (v(y, 0.7) - v(x, 1.0)))
    w = z + (-0.4) * (v(z, 0.5) + (-0.4) / (2 * -0.2) * (v(z, 0.5) - v(y, 0.7)))
    torch.testing.assert_close(sample(v, x, sigmas, solver="ab2"), w, rtol=1e-13, atol=0)
    y = x - 0.15 * (v(x, 1.0) + v(x - 0.3 * v(x, 1.0), 0.7))
    z = y - 0.1 * (v(y, 0.7) + v(y - 0.2 * v(y, 0.7), 0.5))
    w = z - 0.4 * v(z, 0.5)
    torch.testing.assert_close(sample(v, x, sigmas, solver="heun"), w, rtol=1e-13, atol=0)


def textbook(solver: str, model: Gaussian, x: Tensor, sigmas: list[float]) -> Tensor:
    """Heun and AB2 of dy/ds = ε with y = x/α and s = σ/α, spelled out.

    Of order 1 where a slope is missing: AB2's first step, Heun's last one onto the data. From
    α = 0, where s is infinite, the step is DDIM, and AB2 begins after it.
    """

    def noise_at(x: Tensor, sigma: float) -> Tensor:
        return split(model.prediction, x, model(x, sigma), *model.levels(sigma))[1]

    last = None
    for start, end in pairwise(sigmas):
        (a, s), (a1, s1) = model.levels(start), model.levels(end)
        if a == 0:
            data, eps = split(model.prediction, x, model(x, start), a, s)
            x = a1 * data + s1 * eps
            continue
        h, slope = s1 / a1 - s / a, noise_at(x, start)
        mixed = slope
        if solver == "ab2" and last is not None:
            mixed = slope + h / (2 * last[1]) * (slope - last[0])
        elif solver == "heun" and s1 > 0:
            mixed = (slope + noise_at(a1 * (x / a + h * slope), end)) / 2
        x, last = a1 * (x / a + h * mixed), (slope, h)
    return x


@pytest.mark.parametrize("end", [0.05, 0.0])
@pytest.mark.parametrize("name", [name for name in MODELS if "flow" not in name] + ["from α = 0"])
@pytest.mark.parametrize("solver", ["ab2", "heun"])
def test_ab2_and_heun_off_flow_grids_are_the_textbook_s(solver, name, end):
    model, grid, start, _ = MODELS.get(name, (Gaussian("sample", "flow"), smooth, 1.0, 0.0))
    sigmas, x = [*grid(start, 0.08, 5), end], noise()
    if end == 0.05 and solver == "heun":
        sigmas.append(0.0)  # its last stage is Euler's wherever the grid ends
    mine = sample(model, x, sigmas, solver=solver, **model.options())
    torch.testing.assert_close(mine, textbook(solver, model, x, sigmas), rtol=1e-11, atol=1e-11)


def test_how_often_the_model_is_asked():
    """Once a stage; Heun twice, and once in the last, at the σ of both ends."""
    sigmas = smooth(1.0, 0.0, 12)
    for solver in ORDERS:
        model = Gaussian()
        sample(model, noise(), sigmas, solver=solver)
        assert SOLVERS[solver].evaluations == (2 if solver == "heun" else 1)
        if solver != "heun":
            assert model.calls == sigmas[:-1]
            continue
        assert len(model.calls) == 23
        assert model.calls[0::2] == sigmas[:-1] and model.calls[1::2] == sigmas[1:-1]


def test_heun_with_a_budget_asks_twice_at_an_anchor():
    sigmas, model = smooth(1.0, 0.0, 24), Gaussian()
    anchors = (0, 1, 2, 4, 8, 15, 23)
    _, report = sample(model, noise(), sigmas, anchors=anchors, solver="heun", with_report=True)
    asked = [s for a in anchors for s in (sigmas[a], sigmas[a + 1]) if s != 0.0]
    assert model.calls == asked and len(asked) == 13
    assert report.queried == anchors and report.forwards == 13


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("name", ["flow", "epsilon vp", "sample ve", "v vp"])
@pytest.mark.parametrize("solver", list(ORDERS))
def test_a_larger_budget_is_better(solver, name, space):
    """Against the same solver on the full grid."""
    model, grid, start, end = MODELS[name]
    sigmas, x = [*grid(start, end, 39), 0.0], noise()
    full = sample(model, x, sigmas, solver=solver, **model.options())
    errors = []
    for budget in (5, 9, 16, 28, 40):
        out = sample(
            model,
            x,
            sigmas,
            budget,
            solver=solver,
            space=space,
            anchors="sigma",
            rule="time",
            **model.options(),
        )
        errors.append(float((out - full).square().mean().sqrt()))
    assert errors[-1] == 0
    assert errors[3] < 0.25 * errors[0] and max(errors[1:3]) < errors[0], errors
    assert errors[0] < float((x - full).square().mean().sqrt())


@pytest.mark.parametrize("solver", list(ORDERS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, F64])
def test_the_state_keeps_its_dtype(dtype, solver):
    x = noise().to(dtype)
    for output in (torch.float32, torch.bfloat16, F64):
        out = sample(
            lambda x, s, to=output: (x * s).to(to), x, smooth(1.0, 0.0, 12), 6, solver=solver
        )
        assert out.dtype == dtype


# --- what does not work, says so ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("sigmas", "options"),
    [
        (smooth(0.0, 1.0, 10), {}),
        (smooth(1.0, 0.1, 10), {}),
        (smooth(8.0, 0.0, 10), {}),
        (smooth(8.0, 0.0, 10), dict(data=0.0)),
    ],
)
def test_dpmpp_is_refused_where_the_levels_are_unknown(sigmas, options):
    with pytest.raises(ValueError, match=r"dpm\+\+2m.* data=0\.0 or data=1\.0 .*alphas"):
        sample(Gaussian(), noise(), sigmas, 6, solver="dpm++2m", **options)
    with pytest.raises(ValueError, match=r"dpm\+\+2m"):
        DPMpp2M(Track(tuple(sigmas)))


@pytest.mark.parametrize(("end", "data"), [(0.0, 0.5), (-0.5, 0.0)])
def test_a_grid_with_its_data_elsewhere_is_refused_before_the_solver(end, data):
    with pytest.raises(ValueError, match=f"data={data} is not where the grid from 1 to {end:g}"):
        sample(Gaussian(), noise(), smooth(1.0, end, 10), 6, solver="dpm++2m", data=data)


# Two σ-grids, of which one stands still for a stage that the other needs, or arrives early.
@pytest.mark.parametrize("solver", list(ORDERS))
@pytest.mark.parametrize("prediction", ["flow", "sample", "v"])
@pytest.mark.parametrize("pause", ["middle", "end"])
@pytest.mark.parametrize("budget", [None, 6])
def test_a_slot_that_stands_still_for_a_stage(budget, pause, prediction, solver):
    model = Gaussian(prediction)
    moving = smooth(0.95, 0.0, 12)
    standing = smooth(0.9, 0.0, 11)
    where = 5 if pause == "middle" else 11
    paused = [*standing[: where + 1], *standing[where:]]
    out = sample(
        lambda x, s: tuple(model(part, t) for part, t in zip(x, s)),
        (noise(), noise()),
        (moving, paused),
        budget,
        anchors=None if budget is None else "geometric",
        solver=solver,
        **model.options(),
    )
    assert all(bool(part.isfinite().all()) for part in out)
    if budget is None and (solver, pause) != ("heun", "end"):  # whose last stage is another one
        want = sample(model, noise(), standing, solver=solver, **model.options())
        torch.testing.assert_close(out[1], want, rtol=1e-11, atol=1e-11)


# Its second outputs lack the last stage, and so have one anchor only.
@pytest.mark.parametrize("options", [dict(anchors=(0, 11)), dict(budget=2, rule="hold")])
def test_heun_with_two_anchors(options):
    model = Gaussian()
    out = sample(model, noise(), smooth(1.0, 0.0, 12), solver="heun", **options)
    assert bool(out.isfinite().all()) and len(model.calls) == 3


def test_a_plan_for_one_stage():
    for solver in ORDERS:
        x = noise()
        out = sample(Gaussian(), x, [1.0, 0.0], solver=solver)
        torch.testing.assert_close(out, x - Gaussian()(x, 1.0), rtol=1e-12, atol=1e-12)
        assert Plan.of([1.0, 0.0]).exact


# --- a solver from outside --------------------------------------------------------------------


@pytest.fixture
def midway():
    """AB2 as if all steps were equal."""

    class Midway(Solver):
        name, order = "midway-2", 1

        def __init__(self, track: Track):
            super().__init__(track)
            self.last: Tensor | None = None

        def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
            slope = output if self.last is None else output + (output - self.last) / 2
            self.last = output
            return x + (self.track.sigmas[n + 1] - self.track.sigmas[n]) * slope

    register_solver(Midway)
    yield "midway-2"
    del SOLVERS["midway-2"]


def test_a_solver_from_outside_samples_and_is_planned_for(midway):
    grid, x = [1 - i / 16 for i in range(17)], torch.randn(4, 3, dtype=F64)
    model = Gaussian()
    full = sample(model, x, grid, solver=midway)
    assert torch.allclose(full, sample(model, x, grid, solver="ab2"))  # equal steps
    assert torch.equal(sample(model, x, grid, 16, solver=midway), full)
    found = profile(model, x, grid, solver=midway, budgets=(5,), quiet=True)
    assert found.planner.solver == midway and midway in str(found)
    made = sample(model, x, plan=found.plan(5), solver=midway)
    assert torch.allclose(made, full, atol=0.1)
    with pytest.raises(ValueError, match=r"one of euler, ab2, heun, dpm\+\+2m, midway-2"):
        sample(model, x, grid, solver="midway")


@pytest.mark.parametrize(
    ("given", "quoted"),
    [
        (Euler, "solver 'euler' is already registered"),
        (Track, r"takes a geoshrink\.solvers\.Solver, got"),
        ("euler", "'euler'"),
        (Solver, "None"),
    ],
)
def test_solvers_that_cannot_be(given, quoted):
    with pytest.raises((TypeError, ValueError), match=quoted):
        register_solver(given)
    assert geoshrink.register_solver is register_solver


def test_a_solver_without_a_step_says_so():
    class Nothing(Solver):
        name, order = "nothing", 1

    with pytest.raises(NotImplementedError, match="'nothing' has no step"):
        Nothing(Grid.of([1.0, 0.0]).tracks[0]).step(0, torch.zeros(1), torch.zeros(1))
