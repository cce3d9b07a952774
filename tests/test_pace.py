"""Where outputs move slowly at first the default goes on with other anchors, and where not, not."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from geoshrink import Correction, Grid, Learning, Plan, Run, pace, sample
from geoshrink.history import correction
from geoshrink.meshes.slow import LAST, slow_anchors
from geoshrink.pace import SLOW, Pace, movement
from geoshrink.planning import planner
from toy import shifted

STEPS, BUDGET = 50, 10
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]
PLAN = Plan.of(SIGMAS, BUDGET)
FIXED = replace(PLAN, slow=())
OTHER = replace(FIXED, anchors=PLAN.slow)


class Line:
    """v = unit + rate·(distance in y from the first stage)·other: so far has it moved, and no
    further than that. Counts its calls.
    """

    zeros = 0

    def __init__(self, rate: float, plan: Plan = PLAN):
        times = plan.clock_of(0).times
        self.times, self.rate, self.calls = times, rate, 0
        self.sigmas = plan.grid.tracks[0].sigmas

    def __call__(self, x: Tensor, sigma: Any) -> Tensor:
        self.calls += 1
        done = abs(self.times[self.sigmas.index(float(sigma))] - self.times[0])
        v = torch.zeros_like(x)
        v[..., 0], v[..., 1] = 1.0, self.rate * done
        return v + 0.05 * math.sin(9 * done) * self.rate * torch.tanh(x)


def still(x: Tensor, sigma: Any) -> Tensor:
    """Moves, but hardly."""
    return torch.ones_like(x) + 1e-3 * torch.sin(x)


def noise(samples: int = 3, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(samples, 8, generator=draw, dtype=torch.float64)


def looped(run: Run, velocity: Any, x: Tensor, stages: range = range(STEPS)) -> Tensor:
    for n in stages:
        v = run(n, partial(velocity, x, SIGMAS[n]), x)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
    return x


# --- the anchors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [1.0, 3.0, 7.0])
@pytest.mark.parametrize("steps", [12, 28, 50, 200])
def test_the_slow_anchors_are_as_many_and_begin_alike(steps, shift):
    for budget in (b for b in (4, 5, 7, 10, 20, 49) if b < steps):
        plan = Plan.of(shifted(steps, shift), budget)
        slow = plan.slow or plan.anchors
        assert len({*slow}) == budget and sorted(slow) == [*slow] and slow[-1] < steps
        assert slow[:2] == plan.anchors[:2]


def test_they_are_more_even_and_the_last_is_later():
    for budget in (5, 7, 10):
        plan = Plan.of(SIGMAS, budget)
        gaps = [max(b - a for a, b in pairwise(own[1:])) for own in (plan.anchors, plan.slow)]
        assert gaps[1] < gaps[0] and plan.slow[-1] > plan.anchors[-1]


def test_the_last_cell_is_what_counts_more(monkeypatch):
    from geoshrink.meshes import slow

    slow.mesh.cache_clear()
    monkeypatch.setattr(slow, "LAST", 1.0)
    light = slow_anchors(PLAN.grid, PLAN.anchors)
    slow.mesh.cache_clear()
    assert LAST > 1 and light[-1] < PLAN.slow[-1]


def test_regimes_are_anchors_of_both():
    plan = Plan.of([1 - i / 25 for i in range(26)], 10, regimes=(4, 19))
    assert plan.slow and {4, 19} <= {*plan.slow} and plan.slow != plan.anchors
    begins = Plan.of([1 - i / 25 for i in range(26)], 6, regimes=(1, 3))
    assert begins.slow == ()  # what is seen at stage 1 is another model's


@pytest.mark.parametrize(
    "options",
    [
        {"anchors": "corrected"},
        {"anchors": "corrected", "correct": True, "clock": "mesh"},
        {"correct": False},
        {"correct": 0.3},
        {"clock": "sigma"},
        {"clock": "sigma", "correct": True},
        {"space": "data", "correct": True},
        {"target": "flow"},
        {"rule": ["time"] * 5 + ["signed time"] * 5, "correct": True},
        {"coefficients": [0.5] * 50, "correct": True},
    ],
    ids=str,
)
def test_whoever_chooses_keeps_what_was_chosen(options):
    assert Plan.of(SIGMAS, BUDGET, **options).slow == ()


def test_nor_a_plan_that_holds_a_quality_or_queries_all():
    assert Plan.of(SIGMAS, target_db=30).slow == () == Plan.of(SIGMAS).slow
    many = [1 - i / 1000 for i in range(1001)]
    assert Plan.of(many, 500).slow == ()  # at once: there is nothing to search
    assert Plan.of(SIGMAS, STEPS - 1).slow == () and Plan.of(SIGMAS, speedup=5).slow == PLAN.slow


@pytest.mark.parametrize(
    "slow", [(0, 1), PLAN.slow[:-1], (0, 2, *PLAN.slow[2:]), (0, 1, 4, 4, *PLAN.slow[4:])]
)
def test_anchors_that_cannot_take_over_are_refused(slow):
    with pytest.raises(ValueError, match="anchors"):
        replace(PLAN, slow=slow)
    for odd in (None, 0, False):
        with pytest.raises(ValueError, match="anchors are stage numbers"):
            replace(PLAN, slow=odd)
    with pytest.raises(ValueError, match=r"slow=.*without an aim"):
        replace(Plan.of(SIGMAS, target_db=30), slow=(0, 1, 2))


def test_a_plan_keeps_them_in_its_file(tmp_path):
    PLAN.save(tmp_path / "a.json")
    assert Plan.load(tmp_path / "a.json") == PLAN == pickle.loads(pickle.dumps(PLAN))
    assert "slow" not in FIXED.to_json() and Plan.from_json(FIXED.to_json()) == FIXED
    refined = replace(PLAN, refine=4)
    assert sample(still, noise(), plan=refined).isfinite().all()
    assert "others if outputs move slowly" in str(PLAN) and "slowly" not in str(FIXED)


# --- the decision ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rate, slow", [(0.05, True), (0.17, True), (0.22, False), (1.0, False)])
def test_the_threshold(rate, slow):
    """|b| is σ = 0.98 at the second anchor, and ‖v‖ about 1 there."""
    velocity = Line(rate)
    x, report = sample(velocity, noise(), SIGMAS, BUDGET, with_report=True)
    taken, left = (OTHER, FIXED) if slow else (FIXED, OTHER)
    assert velocity.calls == BUDGET == report.evaluations and report.queried == taken.anchors
    assert torch.equal(x, sample(velocity, noise(), plan=taken))
    assert not torch.equal(x, sample(velocity, noise(), plan=left))
    assert ("hardly move at first" in report.plan) == slow and not report.reasons


def test_movement_by_hand():
    times = PLAN.clock_of(0).times
    assert movement(PLAN, [0.1, 0.3], 0.5) == pytest.approx(0.1 / (times[1] - times[0]))
    assert math.isnan(movement(PLAN, [math.nan], 1.0)) and 0.1 < SLOW < 0.25


@pytest.mark.parametrize("rate", [0.05, 1.0])
def test_a_loop_of_ones_own_is_the_same_again_and_again(rate):
    run, velocity = Run(SIGMAS, BUDGET, solver="euler"), Line(rate)
    wanted = sample(velocity, noise(), SIGMAS, BUDGET)
    for _ in range(3):
        assert torch.allclose(looped(run, velocity, noise()), wanted, atol=1e-12)
        assert run.report.queried == (OTHER if rate < SLOW else FIXED).anchors
    looped(run, Line(0.5), noise())
    assert run.report.queried == FIXED.anchors  # what the run before has seen is forgotten
    looped(copy.deepcopy(run), velocity, noise())


def test_the_number_is_read_once_and_late(monkeypatch):
    run, velocity, read, x = Run(SIGMAS, BUDGET, solver="euler"), Line(0.05), [], noise()
    for name in ("tolist", "item", "__bool__"):
        plain = getattr(Tensor, name)
        spy = lambda t, plain=plain: (read.append(stage), plain(t))[1]  # noqa: E731
        monkeypatch.setattr(Tensor, name, spy)
    for stage in range(STEPS):
        v = run(stage, partial(velocity, x, SIGMAS[stage]), x)
        x = x + (SIGMAS[stage + 1] - SIGMAS[stage]) * v
    assert read == [min(PLAN.anchors[2], PLAN.slow[2])]


def test_it_is_decided_for_the_batch():
    class Both(Line):
        def __call__(self, x: Tensor, sigma: Any) -> Tensor:
            slow, fast = Line(0.02)(x[:1], sigma), Line(1.0)(x[1:], sigma)
            return torch.cat([slow, fast])

    alone = sample(Line(0.02), noise()[:1], SIGMAS, BUDGET, with_report=True)[1]
    beside = sample(Both(0.0), noise(), SIGMAS, BUDGET, with_report=True)[1]
    assert alone.queried == OTHER.anchors and beside.queried == FIXED.anchors


# --- where nothing is decided ---------------------------------------------------------------------


def queried(velocity: Any = None, **options: Any) -> tuple[int, ...]:
    velocity = Line(0.02) if velocity is None else velocity
    return sample(velocity, noise(), SIGMAS, BUDGET, with_report=True, **options)[1].queried


def test_several_grids_keep_their_anchors():
    grids = (SIGMAS, shifted(STEPS, 3.0))
    plan = Plan.of(grids, BUDGET)
    assert not plan.slow
    lines = [Line(0.02, Plan.of(grid, BUDGET)) for grid in grids]
    _, report = sample(
        lambda x, s: tuple(line(part, t) for line, part, t in zip(lines, x, s)),
        (noise(), noise()),
        plan=plan,
        with_report=True,
    )
    assert report.queried == plan.anchors
    with pytest.raises(ValueError, match="of one σ-grid"):
        replace(plan, slow=(*plan.anchors[:-1], plan.anchors[-1] + 1))


def test_models_that_predict_noise_keep_their_anchors():
    grid = Grid.of([math.sin(1.5 * s) for s in SIGMAS], prediction="epsilon", alphas="vp")
    plan = Plan.of(grid, BUDGET)
    assert plan.slow
    assert sample(still, noise(), plan=plan, with_report=True)[1].queried == plan.anchors
    data = Plan.of(replace_prediction(grid, "sample"), BUDGET)
    assert sample(still, noise(), plan=data, with_report=True)[1].queried == data.slow


def replace_prediction(grid: Grid, prediction: str) -> Grid:
    return replace(grid, tracks=tuple(replace(t, prediction=prediction) for t in grid.tracks))


def test_outputs_that_are_not_finite_keep_their_anchors():
    class Broken(Line):
        def __call__(self, x: Tensor, sigma: Any) -> Tensor:
            v = super().__call__(x, sigma)
            if self.calls == 2:
                v[0, 0] = math.nan
            return v

    assert queried(Broken(0.02)) == FIXED.anchors


def test_two_outputs_a_stage_keep_their_anchors():
    _, report = sample(
        still,
        noise(),
        SIGMAS,
        BUDGET,
        solver="heun",
        with_report=True,
    )
    assert report.queried == Plan.of(SIGMAS, BUDGET, correct=False).anchors


def test_a_transform_keeps_the_anchors():
    plan = replace(PLAN, correct=Correction())
    one = torch.func.vmap(lambda x: sample(still, x, plan=plan))(noise())
    alone = [sample(still, x, plan=replace(plan, slow=())) for x in noise()]
    assert torch.allclose(one, torch.stack(alone), atol=1e-12)


@pytest.mark.parametrize("ranks, slow", [(1, True), (2, False)])
def test_several_processes_keep_their_anchors(monkeypatch, ranks, slow):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: ranks)
    assert queried() == (OTHER if slow else FIXED).anchors


def test_a_history_that_restarts_keeps_the_anchors():
    run, velocity, x = Run(SIGMAS, BUDGET, solver="euler"), Line(0.02), noise()
    for n in range(3):
        regime = int(n > 0)  # the second anchor is another model's
        run(n, partial(velocity, x, SIGMAS[n]), x, regime=regime)
    assert run.plan.anchors == FIXED.anchors


def test_a_query_in_between_keeps_the_anchors():
    """What is seen at the second anchor is then the way from that one."""
    few = Plan.of(SIGMAS, 4)
    assert few.anchors[1] > 1
    for extra in (False, True):
        run, velocity, x = Run(few, solver="euler"), Line(0.02, few), noise()
        for n in range(few.anchors[1] + 1):
            v = run(n, partial(velocity, x, SIGMAS[n]), x, regime=int(extra and n > 0))
            x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
        looped(run, velocity, x, range(few.anchors[1] + 1, STEPS))
        assert run.report.queried == (few.anchors if extra else few.slow)


def test_a_regime_that_begins_before_the_third_anchor_keeps_the_anchors():
    run, velocity, x = Run(SIGMAS, BUDGET, solver="euler"), Line(0.02), noise()
    for n in range(4):
        run(n, partial(velocity, x, SIGMAS[n]), x, regime=int(n > 1))
    assert run.plan.anchors == FIXED.anchors


def test_outputs_of_zeros_say_nothing():
    """As hosts have them that skip the first steps; a sample of zeros beside others, too."""

    class Late(Line):
        def __call__(self, x: Tensor, sigma: Any) -> Tensor:
            v = super().__call__(x, sigma)
            v[: self.zeros] = v[: self.zeros] * (float(sigma) < 0.97)
            return v

    for count in (3, 2, 0):
        velocity = Late(0.02)
        velocity.zeros = count
        assert queried(velocity) == (FIXED if count else OTHER).anchors


def test_fake_tensors_and_traced_runs_keep_the_anchors():
    with FakeTensorMode():
        assert sample(still, torch.randn(3, 8), SIGMAS, BUDGET).shape == (3, 8)
    x = noise().float()
    traced = make_fx(lambda x: sample(still, x, SIGMAS, BUDGET))(x)
    assert torch.allclose(traced(x), sample(still, x, plan=FIXED), atol=1e-6)


def test_without_a_correction_the_anchors_stay():
    """A loop that does not say what solver it is."""
    run, velocity = Run(PLAN), Line(0.02)
    looped(run, velocity, noise())
    assert not run.corrects and run.report.queried == FIXED.anchors


def test_empty_batches_and_meta_tensors_keep_the_anchors():
    guide, run = Pace(PLAN), Run(SIGMAS, BUDGET, solver="euler")
    assert sample(still, noise()[:0], SIGMAS, BUDGET).shape == (0, 8)
    assert looped(run, still, noise().to("meta")).is_meta
    assert guide.decided() is None


# --- what mutants and an attacker showed --------------------------------------------------------


def test_other_anchors_that_begin_sooner_are_taken():
    few = Plan.of(SIGMAS, 5)
    sooner = replace(few, slow=(*few.anchors[:2], few.anchors[2] - 2, *few.anchors[3:]))
    run = Run(sooner, solver="euler")
    looped(run, Line(0.02, few), noise())
    assert run.report.queried == sooner.slow and run.report.evaluations == 5


def test_an_output_that_nobody_asked_for_keeps_the_anchors():
    few, x = Plan.of(SIGMAS, 4), noise()
    run, velocity = Run(few, solver="euler"), Line(0.02, few)
    for n in range(STEPS):
        given = run.queries(n, x) or n == 5
        out = run.observe(n, velocity(x, SIGMAS[n]), x) if given else run.predict(n, x)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * out
    assert run.report.queried == few.anchors and run.report.extra == (5,)


def test_the_gain_is_that_of_the_second_anchor():
    few = Plan.of(SIGMAS, 4)
    run = Run(few, solver="euler")
    looped(run, Line(0.02, few), noise(), range(few.anchors[1] + 1))
    assert isinstance(run._guide, Pace)
    assert run._guide.gain == pytest.approx(SIGMAS[few.anchors[1]])


def test_the_mean_of_the_batch_decides():
    class Apart(Line):
        def __call__(self, x: Tensor, sigma: Any) -> Tensor:
            rates = zip((0.01, 0.01, 0.4), x.split(1))
            return torch.cat([Line(rate)(part, sigma) for rate, part in rates])

    assert queried(Apart(0.0)) == OTHER.anchors


def test_the_threshold_is_sharp():
    assert [queried(Line(r)) for r in (0.185, 0.205)] == [OTHER.anchors, FIXED.anchors]


def test_levels_that_cannot_be_told_apart_say_nothing():
    grid = Grid.of([10.0**i for i in range(40, -11, -1)], prediction="sample", alphas="ve")
    made = replace(Plan.of(grid, BUDGET), slow=(), anchors=(0, 1, *range(10, 18)))
    assert math.isnan(movement(made, [0.1], 1.0))


@pytest.mark.parametrize("start", [333, 517, 801])
def test_regimes_of_long_grids(start):
    plan = Plan.of([1 - i / 1000 for i in range(1001)], 10, regimes=(start,))
    assert plan.slow and start in plan.slow


def test_a_run_that_is_told_to_stays():
    run, x = Run(SIGMAS, BUDGET, solver="euler"), noise()
    run(0, partial(still, x, 1.0), x)
    run.stay()
    assert run.plan.slow == () and "slowly" not in run.report.plan
    looped(run, still, x, range(1, STEPS))
    assert run.report.queried == FIXED.anchors
    looped(run, still, x)
    assert run.report.queried == FIXED.anchors


def test_heun_takes_a_plan_whose_other_anchors_end_at_the_last_stage():
    plan = Plan.of([1 - i / 20 for i in range(21)], 8)
    plan = replace(plan, slow=(*plan.slow[:-1], 19))
    assert sample(still, noise(), plan=plan, solver="heun").isfinite().all()


def test_what_was_sent_is_let_go():
    run = Run(SIGMAS, BUDGET, solver="euler")
    looped(run, still, noise(), range(2))
    assert run._guide is not None and run._guide.sent is not None
    run.reset()
    assert run._guide.sent is None


def test_other_anchors_need_three_and_no_aim():
    with pytest.raises(ValueError, match="more than two"):
        replace(Plan.of(SIGMAS, anchors=[0, 25]), slow=(0, 25))
    aimed = Plan.of(SIGMAS, target_db=30)
    with pytest.raises(ValueError, match="without an aim"):
        replace(aimed, slow=(*aimed.anchors[:-1], aimed.anchors[-1] + 1))


def test_another_mesh_has_no_others():
    assert Plan.of(SIGMAS, BUDGET, rule="hold", correct=True).slow == ()
    assert len(slow_anchors(PLAN.grid, (0, 1, 5))) == 3


def test_recipes_have_the_first_anchors_alone():
    for name in planner.MESHES:
        plan = planner.baseline(name, PLAN.grid, BUDGET)
        assert plan is None or plan.slow == ()


@pytest.mark.parametrize("captured", [True, False])
def test_a_stream_that_is_captured_has_no_numbers(monkeypatch, captured):
    class Far:
        is_meta, is_cuda = False, True
        numel = staticmethod(lambda: 3)

    there: Any = [Far()]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: captured)
    assert pace.readable(there) is not captured


def test_a_shape_that_changes_where_it_is_decided_keeps_the_anchors():
    run, x = Run(SIGMAS, BUDGET, solver="euler"), noise()
    assert PLAN.anchors[2] == 2
    for n in range(STEPS):
        x = x[:2] if n == 2 else x
        v = run(n, partial(still, x, SIGMAS[n]), x)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
    assert run.report.queried == FIXED.anchors and run.report.evaluations == BUDGET


def test_a_reserve_counts_the_cells_of_the_plan():
    run = Run(PLAN, solver="euler", reserve=3)
    looped(run, still, noise())
    assert run.plan.slow == () and run.report.queried == FIXED.anchors


def test_a_traced_graph_keeps_the_anchors():
    x = noise().float()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain: Any = lambda x: sample(still, x, SIGMAS, BUDGET)  # noqa: E731
        traced: Any = torch.jit.trace(plain, x, check_trace=False)
    assert torch.allclose(traced(x), sample(still, x, plan=FIXED), atol=1e-6)


def test_the_tables_of_the_first_anchors_are_there_for_a_capture(monkeypatch):
    """A run that is captured keeps the first anchors, and must not upload anything."""
    kept = []
    monkeypatch.setattr(
        correction.Corrector, "keep_table", lambda self, *of: kept.append(self.plan)
    )
    queried()
    queried(Line(1.0))
    assert [plan.anchors for plan in kept] == [PLAN.anchors]


def test_another_shape_off_the_grid_says_nothing():
    run, velocity, x = Run(SIGMAS, BUDGET, solver="euler"), Line(0.02), noise()
    for n in range(PLAN.anchors[1] + 1):
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * run(n, partial(velocity, x, SIGMAS[n]), x)
    assert run._guide is not None and run._guide.sent is not None
    run.queries(99, x[:1])
    assert run._guide.sent is not None


def test_a_run_that_learns_stays_in_its_next_loop_too():
    run, x = Run(SIGMAS, BUDGET, solver="euler", learn=Learning()), noise()
    run.stay()
    run(0, lambda: still(x, 1.0), x)
    run.reset()
    assert run.queries(0, x) and run.plan.slow == ()
