"""The methods that act on the output: ours, direct, fast solvers, EasyCache, MeanCache, VDE."""

from __future__ import annotations

import dataclasses
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from cases import calls_of, euler, joint_case, other_case, plain, sigmas_of, small_case
from geoshrink import sample
from geoshrink.grid import Grid
from geoshrink.rules import RULES
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods.direct import Direct
from geoshrink_bench.methods.easycache import EasyCache, LazyCache
from geoshrink_bench.methods.meancache import MeanCache, cell_costs, cheapest_path
from geoshrink_bench.methods.multistep import DEIS, UniPC
from geoshrink_bench.methods.ours import OURS, Learned, Ours, Planned
from geoshrink_bench.methods.registry import METHODS
from geoshrink_bench.methods.solvers import SOLVERS, Solver, integrate, through
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.methods.vde import VDE
from geoshrink_bench.metrics.base import Skipped

FOREVER = 1e9


@pytest.fixture
def case():
    return small_case()


EVERY_STAGE = [
    Ours("ours", rule="chordal"),
    Direct(),
    Solver("euler", "sigma"),
    EasyCache(0.0),
    LazyCache(0.0),
    MeanCache(),
    VDE(),
]
FEW = [
    *EVERY_STAGE[:2],
    *SOLVERS.values(),
    EasyCache(FOREVER, 3),
    LazyCache(FOREVER),
    LazyCache(FOREVER, space="output"),
    MeanCache(),
    VDE(warm_up=4),
]


@pytest.mark.parametrize("method", EVERY_STAGE, ids=lambda m: m.name)
def test_with_every_stage_each_is_the_plain_run(method, case):
    outcome = method.run(case, 12)
    assert torch.equal(outcome.x, plain(case)) and outcome.evaluated == tuple(range(12))


@pytest.mark.parametrize("method", FEW, ids=lambda m: m.name)
def test_skipped_stages_do_not_run_the_network(method, case):
    calls = calls_of(stack_of(case.network).blocks[1])
    outcome = method.run(case, 7)
    assert len(calls) == outcome.evaluations < 12
    assert torch.isfinite(outcome.x).all()
    assert "forward" not in vars(case.network)
    assert not torch.equal(outcome.x, plain(case))


@pytest.mark.parametrize("method", FEW, ids=lambda m: m.name)
def test_structured_samples(method):
    case = joint_case()
    outcome = method.run(case, 8)
    assert [part.shape for part in outcome.x] == [part.shape for part in case.noise]
    assert all(torch.isfinite(part).all() for part in outcome.x) and outcome.evaluations < 12


@pytest.mark.parametrize("method", FEW, ids=lambda m: m.name)
def test_a_switch_of_guidance_runs_in_full(method):
    case = small_case(interval=(0.4, 0.9))
    switches = {0, *case.grid().regimes}
    assert len(switches) == 3
    calls = calls_of(stack_of(case.network).blocks[1])
    outcome = method.run(case, 9)
    assert torch.isfinite(outcome.x).all() and len(calls) == outcome.evaluations
    if not isinstance(method, (Solver, Direct)):
        assert switches <= set(outcome.evaluated)


@pytest.mark.parametrize("method", [EasyCache(FOREVER, 3), VDE(warm_up=4)], ids=lambda m: m.name)
def test_an_error_leaves_nothing_behind(method, case):
    before = plain(case)
    hook = stack_of(case.network).blocks[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        method.run(case, 7)
    hook.remove()
    assert "forward" not in vars(case.network) and torch.equal(plain(case), before)


@pytest.mark.parametrize("name", ["fruit-epsilon", "fruit-x0"])
def test_other_predictions(name):
    case = other_case(name)
    for method in FEW:
        if isinstance(method, MeanCache):
            with pytest.raises(ValueError, match="flow models"):
                method.run(case, 7)
        else:
            assert torch.isfinite(method.run(case, 7).x).all(), method.name


def test_the_stages_of_fifty():
    case = small_case(50, depth=1)
    published = (0, 1, 2, 3, 6, 9, 14, 21, 32, 49)
    expected = {
        OURS["GeoShrink (published)"]: published,
        OURS["ablation: Fixed-Shrink"]: (0, 5, 11, 16, 22, 27, 33, 38, 44, 49),
        Ours("explicit", anchors=(0, 4, 30)): (0, 4, 30),
        Solver("ab2", "geometric"): published,
        Solver("heun", "geometric"): (0, 1, 1, 2, 2, 8, 8, 49, 49),
        Solver("heun"): (0, 1, 1, 2, 2, 3, 3, 4, 4),
        EasyCache(FOREVER): (0, 1, 2, 3, 4, 49),
        EasyCache(FOREVER, 10): (*range(10), 49),
        LazyCache(FOREVER): (*range(8), 48, 49),
        MeanCache(): (0, 5, 11, 16, 22, 27, 33, 38, 44, 49),
        MeanCache((0, 1, 3, 7, 14, 21, 28, 35, 42, 49), [1, 2, 1, 1, 1, 1, 1, 1, 4]): (
            0, 1, 3, 7, 14, 21, 28, 35, 42, 49,
        ),
        VDE(5): (*range(7), 11, 16, 21, 26, 31, 36, 41, 46, 49),
        VDE(): (*range(7), 21, 36, 49),
    }  # fmt: skip
    for method, stages in expected.items():
        assert method.run(case, 10).evaluated == stages, method.name
    assert LazyCache(FOREVER).run(small_case(20, depth=1), 0).evaluated == (0, 1, 2, 19)
    switching = small_case(50, depth=1, interval=(0.4, 0.9))
    assert [VDE().run(switching, budget).evaluations for budget in (10, 12, 14)] == [10, 12, 14]
    with pytest.raises(ValueError, match="budget of 7"):
        VDE().run(case, 7)


def test_ours_is_in_every_form(case):
    rules = {str(m.options["rule"]) for m in OURS.values() if m.options.get("space") == "data"}
    names = {rule.removeprefix("signed ").split("(")[0] for rule in rules}
    assert names == set(RULES) and {f"signed {r}" for r in RULES if r != "hold"} <= {
        rule.split("(")[0] for rule in rules
    }
    finals = [method.run(case, 6) for method in OURS.values()]
    assert all(o.evaluations == 6 and torch.isfinite(o.x).all() for o in finals)
    assert all(o.held == 2 * case.noise.nbytes for o in finals)


def test_ours_by_hand(case):
    """The line in σ through the last two anchors."""
    anchors, velocity, sigmas = (0, 1, 4, 8), case.velocity(), sigmas_of(case)
    seen: list[Any] = []

    def output(n, x):
        if n in anchors:
            seen.append((sigmas[n], velocity(x, sigmas[n])))
            return seen[-1][1]
        (s0, v0), (s1, v1) = seen[-2:]
        return v1 + (sigmas[n] - s1) / (s1 - s0) * (v1 - v0)

    x = Ours("line", anchors=anchors, rule="linear").run(case, 99).x
    assert torch.allclose(x, euler(case, output), atol=1e-4)


def test_direct_is_euler_on_a_short_grid(case):
    short = dataclasses.replace(case, steps=5)
    velocity = short.velocity()
    x = euler(short, lambda n, x: velocity(x, sigmas_of(short)[n]))
    assert torch.allclose(Direct().run(case, 5).x, x, atol=1e-6)


def test_the_grid_through_the_anchors():
    grid = small_case(interval=(0.4, 0.9)).grid()
    points = sorted({0, 2, *grid.regimes, 11})
    short = through(grid, points)
    full = grid.tracks[0].sigmas
    assert short.tracks[0].sigmas == (*(full[p] for p in points), 0.0)
    assert [points[r] for r in short.regimes] == list(grid.regimes)


def smooth(x, sigma):
    """A velocity with x̂₀ = sin(x)/2 + σ."""
    return (x - (torch.sin(x) / 2 + sigma)) / max(sigma, 1e-3)


def run_diffusers(scheduler, x, sigmas):
    for n, t in enumerate(scheduler.timesteps):
        x = scheduler.step(smooth(x, sigmas[n]), t, x, return_dict=False)[0]
    return x


@pytest.mark.parametrize("sigmas", [(0.98, 0.9, 0.7, 0.6, 0.2, 0.0), (1.0, 0.8, 0.75, 0.3, 0.0)])
def test_unipc_agrees_with_diffusers(sigmas):
    from diffusers.schedulers.scheduling_unipc_multistep import UniPCMultistepScheduler

    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True)
    given: Any = np.array(sigmas[:-1])
    scheduler.set_timesteps(sigmas=given)
    x = torch.linspace(-2, 2, 24).reshape(2, 3, 4)
    expected = run_diffusers(scheduler, x, sigmas)
    ours = integrate(smooth, x, Grid.of(sigmas, data=0.0), UniPC)
    euler = sample(smooth, x, Grid.of(sigmas, data=0.0))
    assert torch.allclose(ours, expected, atol=2e-5) and not torch.allclose(euler, expected, 1e-2)


@pytest.mark.filterwarnings("ignore:__array:DeprecationWarning")
@pytest.mark.parametrize("end", [0.05, 0.0])
def test_deis_agrees_with_diffusers(end):
    """On the σ that diffusers can be given from outside; it has no last step onto the data."""
    from diffusers.schedulers.scheduling_deis_multistep import DEISMultistepScheduler

    sigmas = (0.98, 0.9, 0.7, 0.6, 0.2, end)
    scheduler = DEISMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True)
    scheduler.set_timesteps(5)
    scheduler.sigmas = torch.tensor([*sigmas[:-1], max(end, 1e-7)])
    x = torch.linspace(-2, 2, 24, dtype=torch.float64).reshape(2, 3, 4)
    expected = run_diffusers(scheduler, x, sigmas)
    ours = integrate(smooth, x, Grid.of(sigmas, data=0.0), DEIS)
    euler = sample(smooth, x, Grid.of(sigmas, data=0.0))
    assert torch.allclose(ours, expected, atol=2e-5) and not torch.allclose(euler, expected, 1e-2)


@pytest.mark.parametrize("make", [UniPC, DEIS])
def test_multistep_solvers_are_of_order_two(make):
    """x' = −x·σ-ish in float64: halving the steps divides the error by four or more."""
    x = torch.ones(1, 1, dtype=torch.float64)

    def final(steps):
        sigmas = [0.8 - 0.6 * i / steps for i in range(steps + 1)]
        return float(integrate(lambda x, s: -x * s, x, Grid.of(sigmas, data=0.0), make))

    exact = np.exp((0.8**2 - 0.2**2) / 2)
    errors = [abs(final(n) - exact) for n in (40, 80)]
    assert errors[0] / errors[1] > 3.5 and errors[1] < 1e-3


def branches(case: ZooCase, n: int, x):
    """The network's conditional and free outputs, one after the other."""
    tau = torch.full((2,), sigmas_of(case)[n])
    nothing = torch.full((2,), 5)
    with torch.no_grad():
        return [case.network(x, tau, label) for label in (torch.tensor([0, 3]), nothing)]


@pytest.mark.parametrize("threshold", [0.5, 0.8, 1.2, 1.6, 2.0, 3.0])
def test_easycache_by_hand(case, threshold):
    """Branch by branch; the conditional one decides, on the distance x moved stage by stage."""
    full: list[int] = []
    state: dict[str, Any] = dict(total=0.0)

    def output(n, x):
        skip = False
        if 3 <= n < 11:
            state["total"] += float(
                state["rate"] * (x - state["x"]).abs().mean() / state["v"].abs().mean()
            )
            skip = state["total"] < threshold
        state["x"] = x
        if skip:
            given, free = (x + gap for gap in state["gap"])
            return free + 2.0 * (given - free)
        state["total"] = 0.0
        full.append(n)
        given, free = branches(case, n, x)
        if n:
            state["rate"] = (given - state["v"]).abs().mean() / (x - state["at"]).abs().mean()
        state.update(at=x, v=given, gap=(given - x, free - x))
        return free + 2.0 * (given - free)

    expected = euler(case, output)
    outcome = EasyCache(threshold, 3).run(case, 0)
    assert outcome.evaluated == tuple(full) and len(full) >= 5
    assert torch.allclose(outcome.x, expected, atol=1e-4)
    if len(full) < 12:  # x and v of the last full stage, x of the stage before
        assert outcome.held == 3 * 2 * case.noise.nbytes


@pytest.mark.parametrize("space", ["data", "output"])
def test_lazycache_by_hand(case, space):
    """After guidance, on how far x is from the last full stage."""
    velocity, sigmas, full = case.velocity(), sigmas_of(case), []
    state: dict[str, Any] = dict(total=0.0, rate=None)
    threshold = 2.0 if space == "output" else 1.5

    def seen(n, x, v):
        return x - sigmas[n] * v if space == "data" else v

    def output(n, x):
        if 2 <= n < 12 * 0.95:
            rate, moved = state["rate"], (x - state["x"]).abs().mean()
            state["total"] += float(rate * moved / state["v"].abs().mean())
            if state["total"] < threshold:
                reused = x + (state["v"] - state["x"])
                return (x - reused) / sigmas[n] if space == "data" else reused
        state["total"] = 0.0
        full.append(n)
        v = velocity(x, sigmas[n])
        now = seen(n, x, v)
        if n:
            state["rate"] = (now - state["v"]).abs().mean() / (x - state["x"]).abs().mean()
        state.update(x=x, v=now)
        return v

    expected = euler(case, output)
    outcome = LazyCache(threshold, space=space).run(case, 0)
    assert outcome.evaluated == tuple(full) and 2 < len(full) < 11
    assert torch.allclose(outcome.x, expected, atol=1e-4)
    assert outcome.held == 2 * case.noise.nbytes


def test_thresholds_are_tuned_on_other_cases(case):
    others = [small_case(seed=1, depth=1), small_case(seed=2, depth=1)]
    for kind in (EasyCache, LazyCache):
        method = kind.tune(others, 8)
        counts = [method.run(other, 8).evaluations for other in others]
        assert abs(sum(counts) / 2 - 8) <= 1
        assert kind.adaptive and method.run(case, 8).evaluations < 12


def test_meancache_by_hand(case):
    """x and v are read off the run; K = 2, and 3 in the last cell."""
    orders, velocity, sigmas = {0: 2, 4: 2, 7: 3, 11: 1}, case.velocity(), sigmas_of(case)
    xs: list[Any] = []
    vs: list[Any] = []

    def output(n, x):
        xs.append(x.double())
        if n in orders:
            vs.append(velocity(x, sigmas[n]).double())
        else:
            k = min(n, orders[max(s for s in orders if s < n)])
            width = sigmas[n] - sigmas[n - k]
            mean = (xs[n] - xs[n - k]) / width
            jvp = (vs[n - k] - mean) / width
            vs.append(vs[n - 1] - jvp * (sigmas[n + 1] - sigmas[n]))
        return vs[-1].float()

    expected = euler(case, output)
    outcome = MeanCache(list(orders), [2, 2, 3]).run(case, 4)
    assert torch.allclose(outcome.x, expected, atol=1e-4) and outcome.evaluated == (0, 4, 7, 11)
    assert outcome.held == 3 * 2 * case.noise.nbytes
    hold = Ours("hold", anchors=list(orders), rule="hold").run(case, 4).x
    assert torch.allclose(MeanCache(list(orders), 1).run(case, 4).x, hold, atol=1e-5)
    assert not torch.allclose(outcome.x, hold, atol=1e-3)


def test_meancache_plans_from_full_runs():
    cases = [small_case(8, seed=s) for s in (1, 2)]
    costs = cell_costs(cases[0], 3)
    assert (costs[:, range(7), range(1, 8)] == 0).all() and costs.shape == (3, 8, 8)
    # from stage 2 on to 5 with K = 2, against a run whose other stages are exact
    xs: list[Any] = []
    case = cases[0]
    inner, sigmas = case.velocity(), sigmas_of(case)
    sample(lambda x, s: xs.append(x) or inner(x, s), case.noise, case.grid())
    seen: list[Any] = []
    session = MeanCache([0, 1, 2, 5, 6, 7], [1, 1, 2, 1, 1])
    case_seen = dataclasses.replace(case)
    object.__setattr__(
        case_seen, "velocity", lambda: lambda x, s: seen.append((s, x)) or inner(x, s)
    )
    session.run(case_seen, 6)
    x5 = next(x for s, x in seen if s == sigmas[5])
    error = (x5 - xs[5]).abs().mean()
    assert costs[1, 2, 5] == pytest.approx(float(error), rel=1e-3)
    method = MeanCache.fit(cases, 4)
    assert method.calibrated and not MeanCache().calibrated
    stages = method.run(small_case(8), 4).evaluated
    assert stages == method.stages and len(stages) == 4 and (stages[0], stages[-1]) == (0, 7)


def test_the_cheapest_path_is_the_cheapest():
    generator = torch.Generator().manual_seed(0)
    cost = torch.rand(9, 9, generator=generator).tolist()
    for budget in (2, 4, 6):
        paths = [(0, *inner, 8) for inner in combinations(range(1, 8), budget - 2)]
        total = {path: sum(cost[a][b] for a, b in pairwise(path)) for path in paths}
        assert cheapest_path(cost, budget, Grid.of(range(9, -1, -1))) == min(
            total, key=lambda path: total[path]
        )


def test_vde_by_hand(case):
    """Each branch of each sample apart, in float64."""
    full, sigmas, known = (0, 1, 2, 3, 7, 11), sigmas_of(case), []

    def split(x, v):
        x, v = x.double().flatten(1), v.double().flatten(1)
        unit = x / x.norm(dim=1, keepdim=True)
        along = (v * unit).sum(1, keepdim=True)
        rest = v - along * unit
        size = rest.norm(dim=1, keepdim=True)
        return along / x.norm(dim=1, keepdim=True), size / x.norm(dim=1, keepdim=True), rest / size

    def output(n, x):
        if n in full:
            given, free = branches(case, n, x)
            known.append((sigmas[n], split(x, given), split(x, free)))
            return free + 2.0 * (given - free)
        (s0, *before), (s1, *last) = known[-2:]
        w = (sigmas[n] - s0) / (s1 - s0)
        flat = x.double().flatten(1)
        outputs = []
        for (a0, b0, _), (a1, b1, u) in zip(before, last):
            a, b = (1 - w) * a0 + w * a1, (1 - w) * b0 + w * b1
            v = a * flat + b * flat.norm(dim=1, keepdim=True) * u
            outputs.append(v.reshape(x.shape).float())
        given, free = outputs
        return free + 2.0 * (given - free)

    expected = euler(case, output)
    outcome = VDE(4, warm_up=4).run(case, 0)
    assert outcome.evaluated == full and torch.allclose(outcome.x, expected, atol=1e-3)
    assert outcome.held == 2 * case.noise.nbytes + 2 * 2 * 4 * 4  # u; a and b of two full stages


def test_planned_anchors_come_from_other_cases_and_keep_the_budget():
    case, others = small_case(), [small_case(), small_case()]
    others[1] = dataclasses.replace(others[1], labels=[1, 2], noise=case.model.noise(2, seed=5))
    method = METHODS["GeoShrink (planned)"]({}, lambda: others, 5)
    assert isinstance(method, Planned) and method.calibrated
    outcome = method.run(case, 5)
    assert outcome.evaluated == method.plan.anchors and len(outcome.evaluated) == 5
    assert torch.equal(outcome.x, sample(case.velocity(), case.noise, plan=method.plan))
    whole = Planned.fit(others, case.grid().steps).run(case, case.grid().steps)
    assert torch.equal(whole.x, plain(case))


def test_one_sample_of_another_case_teaches(monkeypatch):
    """Learned anchors come from the first sample alone, whatever the case has of them."""
    case, taught = small_case(), []
    accelerated = ZooCase.accelerated

    def watched(self: ZooCase, budget: int | None, **options: Any) -> Any:
        taught.append(self)
        return accelerated(self, budget, **options)

    monkeypatch.setattr(ZooCase, "accelerated", watched)
    METHODS["GeoShrink (learned)"]({}, lambda: [case], 5)
    [teacher] = taught
    assert len(case.labels) > 1 and list(teacher.labels) == list(case.labels[:1])
    assert torch.equal(teacher.noise, case.noise[:1])
    both = joint_case()
    assert [len(part) for part in both.one().noise] == [1, 1]


def test_what_was_learned_is_what_runs(monkeypatch):
    case, given = small_case(), []
    method = Learned.fit([dataclasses.replace(case, noise=case.noise.flip(0))], 5)
    accelerated = ZooCase.accelerated

    def watched(self: ZooCase, budget: int | None, **options: Any) -> Any:
        given.append(options)
        return accelerated(self, budget, **options)

    monkeypatch.setattr(ZooCase, "accelerated", watched)
    outcome = method.run(case, 5)
    assert given == [{"learn": method.learning}] and len(outcome.evaluated) == 5
    assert method.calibrated


def test_a_run_that_taught_nothing_is_skipped_with_the_reason(monkeypatch):
    def silent(self: ZooCase, budget: int | None, learn: Any) -> None:
        learn.told |= {"the outputs are not finite"}

    monkeypatch.setattr(ZooCase, "accelerated", silent)
    with pytest.raises(Skipped, match="taught nothing: the outputs are not finite"):
        Learned.fit([small_case()], 5)
