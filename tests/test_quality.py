"""The estimate of a run's distance to the full run: its numbers against a replay with every output
kept, what it says, what it does not know, and whom it doubts.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from geoshrink import Blocks, Plan, Run, sample
from geoshrink.history import on_host
from geoshrink.quality import Estimate
from geoshrink.quality.cells import slots_of
from geoshrink.quality.estimate import CORRECTED, MARGIN, UNCORRECTED, Constants
from geoshrink.report import ADVICE
from watched import Watched, flow_levels, linear, norms, sphere_levels

STEPS, ANCHORS = 20, (0, 1, 2, 4, 7, 11, 16)
SIGMAS = linear(STEPS)
BENT = [s**1.5 for s in SIGMAS]
LOW = [0.98 * s for s in SIGMAS]
WEIGHT = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double() * 0.7
MASK = torch.tensor([[1, 1, 1, 0, 1, 0], [1, 0, 1, 1, 0, 1], [0, 1, 1, 1, 1, 1]]).bool()


def field(x: Tensor, sigma: float, rate: float = 1.0) -> Tensor:
    return rate * torch.tanh(x @ WEIGHT.to(x.dtype) * (1 + sigma)) + sigma * x


def other(x: Tensor, sigma: float) -> Tensor:
    return torch.sin(x @ WEIGHT) - sigma * x


def turning(x: Tensor, sigma: float) -> Tensor:
    """Turns many times on the way."""
    return torch.cos(60 * sigma + 5 * x) * 3


def noise(samples: int = 3, seed: int = 1, *more: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(samples, *more, 6, generator=generator).double()


CASES: dict[str, dict[str, Any]] = {
    "corrected": dict(correct=True),
    "as it is": dict(),
    "clock": dict(correct=True, clock="mesh"),
    "cautious": dict(correct={"gain": 0.3, "caution": 2.0}),
    "held": dict(rule="hold", correct=True),
    "coefficients": dict(coefficients=[0.25] * STEPS),
    "data": dict(space="data"),
    "data, corrected": dict(space="data", correct=True),
    "channels": dict(blocks=Blocks((0, 1)), correct=True),
    "channels as they are": dict(blocks=Blocks((0, 1))),
    "mask": dict(mask=MASK, correct=True),
    "mask as it is": dict(mask=MASK),
    "regimes": dict(regimes=(4, 11), correct=True),
    "regimes as they are": dict(regimes=(4, 11)),
    "epsilon": dict(prediction="epsilon", alphas="vp", correct=True),
    "epsilon as it is": dict(prediction="epsilon", alphas="vp"),
    "v": dict(prediction="v", alphas="vp", correct=True, space="data"),
    "x0": dict(prediction="sample", alphas="vp", correct=True),
    "slots": dict(correct=True),
    "slots as they are": dict(),
}


def watched(name: str, anchors: Any = ANCHORS) -> Watched:
    options, kind = CASES[name], CASES[name].get("prediction", "flow")
    slots = 2 if "slots" in name else 1
    sigmas = [SIGMAS, BENT][:slots] if kind == "flow" else [LOW]
    levels = [flow_levels(s) if kind == "flow" else sphere_levels(s) for s in sigmas]
    run = Run(
        sigmas[0] if slots == 1 else tuple(sigmas), anchors=anchors, solver="euler", **options
    )
    shape = (2,) if "channels" in name else ()
    start = [noise(3, seed, *shape) for seed in range(1, 1 + slots)]
    return Watched(run, [field, other][:slots], [kind] * slots, levels).go(*start)


def slots_seen(kept: Watched) -> list[Any]:
    return slots_of(on_host(kept.run._record))


# --- the cells ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_what_a_cell_missed_is_what_a_replay_finds(name):
    kept, mask = watched(name), CASES[name].get("mask")
    assert kept.run.corrects == ("correct" in CASES[name])
    starts = CASES[name].get("regimes", ())
    for i, slot in enumerate(slots_seen(kept)):
        assert [cell.k for cell in slot.cells] == list(ANCHORS)
        assert [cell.end for cell in slot.cells] == [*ANCHORS[1:], STEPS]
        for cell in slot.cells:
            k, end = cell.k, cell.end
            if end in (*starts, STEPS):
                assert cell.missed is cell.curvature is cell.slope is None
                continue
            before = [a for a in ANCHORS if a < k and k not in starts]
            assert cell.j == (before[-1] if before else None)
            for found, expected in (
                (cell.missed, kept.missed(i, k, end)),
                (cell.curvature, kept.bent(i, cell.j, k, end)),
                (cell.slope, kept.slope(i, k, end)),
            ):
                np.testing.assert_allclose(found, norms(expected, mask), rtol=1e-5, atol=1e-12)
            assert (cell.missed > 1e-6).all() == (cell.skipped > 0)
            assert cell.corrected == (kept.run.corrects and cell.skipped > 0)
        np.testing.assert_allclose(slot.size, norms(kept.size(i), mask) ** 2, rtol=1e-6)
        count = kept.size(i)[0].numel() if mask is None else mask.sum(1)
        assert (slot.count == np.asarray(count)).all()


# --- the formula ----------------------------------------------------------------------------------


def growth(tau: float, spread: float) -> float:
    return spread**2 / ((1 - tau) ** 2 * spread**2 + tau**2)


def expected(kept: Watched, p: Constants) -> tuple[np.ndarray, np.ndarray]:
    """dB of each sample to the full run, and of direct step reduction: the formulas as they are
    written down, on numbers of the replay.
    """
    errors, directs, anchors = [], [], kept.anchors
    for i in range(len(kept.seen)):
        y, tau = kept.y(i), kept.noise(i)
        size, total, direct = norms(kept.size(i)), 0.0, 0.0
        ends = [*anchors[1:], STEPS]
        for at, (k, end) in enumerate(zip(anchors, ends)):
            j, seen = (anchors[at - 1] if at else None), end < STEPS
            own: Any = (j, k, end) if seen else (anchors[at - 2], j, k)
            v, c = norms(kept.slope(i, *own[1:])), norms(kept.bent(i, *own))
            weights = np.array(kept.owed(i, k, end))
            H = abs(sum(w * (y[n] - y[k]) for n, w in enumerate(weights, k + 1)))
            within = sum(w * (y[n] - y[k]) * (y[end] - y[n]) for n, w in enumerate(weights, k + 1))
            G = growth(tau[end], p.spread)
            if not seen:
                total = total + G * (p.last * v * H) ** 2
            else:
                h = y[ends[at + 1]] - y[end]
                alone = norms(kept.missed(i, k, end))
                left = abs(within) * c if kept.run.corrects and end > k + 1 else alone
                total = total + G * ((p.moved * v * H * h**p.power) ** 2 + left**2)
            mean = np.mean(np.abs(kept.owed(i, k - 1, end)))
            direct = direct + growth(tau[end], p.direct_spread) ** 0.5 * v * (y[end] - y[k]) * mean
        errors.append(total / size**2)
        directs.append(direct / size)
    N = np.log10(kept.size(0)[0].numel())
    E, P = np.mean(errors, 0), len(anchors)
    F = np.mean(directs, 0) * (STEPS / P - 1)
    db = p.a + p.slope * 10 * np.log10(1 / E + p.floor) + p.count * N
    their = p.direct_slope * 10 * np.log10(1 / F**2 + p.direct_floor) + p.direct_count * N
    return db, p.direct_a + their + p.direct_budget * np.log10(P)


@pytest.mark.parametrize("name", ["corrected", "as it is", "data", "epsilon", "slots", "channels"])
def test_the_estimate_is_the_formula_on_the_replays_numbers(name):
    kept = watched(name)
    told, p = kept.run.report.estimate, CORRECTED if kept.run.corrects else UNCORRECTED
    db, direct = expected(kept, p)
    np.testing.assert_allclose(told.samples, db, atol=1e-3)
    assert told.db == pytest.approx(db.mean(), abs=1e-3)
    assert told.direct == pytest.approx(direct.mean(), abs=1e-3)
    half = math.hypot(p.between, p.within / math.sqrt(3))
    assert (told.low, told.high) == pytest.approx((db.mean() - half, db.mean() + half), abs=1e-3)
    sizes = [norms(kept.size(i)) ** 2 / kept.size(i)[0].numel() for i in range(len(kept.seen))]
    assert told.energy == pytest.approx(np.mean(10 * np.log10(sizes)), abs=1e-3)


def test_large_outputs_count_as_of_a_hundred_thousand_coordinates():
    def at(width: int) -> Any:
        ones = torch.linspace(0.5, 1.5, 6).double().repeat(1, width)
        run = lambda x, s: torch.cos(3 * s + x)  # noqa: E731
        return sample(run, ones, SIGMAS, 8, with_report=True)[1].estimate

    small, large, larger = at(2_000), at(20_000), at(40_000)
    assert large.db == pytest.approx(larger.db, abs=1e-3)
    assert small.db - large.db == pytest.approx(-CORRECTED.count * math.log10(1e5 / 12e3), abs=1e-3)
    assert small.direct - large.direct == pytest.approx(
        -CORRECTED.direct_count * math.log10(1e5 / 12e3), abs=1e-3
    )


def told(x: Tensor, velocity: Any = field, budget: Any = 7, **options: Any) -> Any:
    options = dict(sigmas=SIGMAS, budget=budget) | options
    return sample(velocity, x, with_report=True, **options)[1].estimate


@pytest.mark.parametrize("correct", [True, False])
def test_ten_times_the_data_has_the_same_estimate(correct):
    large = lambda x, s: 10 * field(x / 10, s)  # noqa: E731
    one, ten = told(noise(), correct=correct), told(10 * noise(), large, correct=correct)
    assert ten.samples == pytest.approx(one.samples, rel=1e-4)
    assert ten.direct == pytest.approx(one.direct, rel=1e-4)
    assert ten.energy - one.energy == pytest.approx(20, abs=1e-3)


@pytest.mark.parametrize("correct", [True, False])
def test_every_sample_has_the_estimate_that_it_has_alone(correct):
    x, options = noise(5), dict(correct=correct, dtype=torch.float64)
    batch = told(x, **options)
    alone = [told(x[i : i + 1], **options) for i in range(5)]
    assert batch.samples == pytest.approx([one.db for one in alone], rel=1e-9)
    assert batch.db == pytest.approx(np.mean(batch.samples), rel=1e-12)
    assert batch.direct == pytest.approx(np.mean([one.direct for one in alone]), rel=1e-9)
    assert np.std(batch.samples) > 0.05


def test_the_band_is_narrower_for_more_samples_and_never_vanishes():
    widths = [e.high - e.low for e in (told(noise(n)) for n in (1, 4, 64))]
    assert widths == sorted(widths, reverse=True) and len(set(widths)) == 3
    assert widths[-1] > 2 * CORRECTED.between and widths[0] < 2 * (
        CORRECTED.between + CORRECTED.within
    )


def test_stages_of_zero_length_change_nothing():
    plain = told(noise())
    for sigmas in ([1.0, *SIGMAS], [*SIGMAS, 0.0], [*SIGMAS[:9], SIGMAS[8], *SIGMAS[9:]]):
        assert told(noise(), sigmas=sigmas) == plain


def test_estimates_of_float32_are_those_of_float64():
    assert told(noise().float()).db == pytest.approx(told(noise()).db, abs=0.05)


def test_a_closed_and_an_open_loop_say_the_same():
    run = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler")
    x = noise()
    for n in range(STEPS):
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * run(n, partial(field, x, SIGMAS[n]), x)
    ours = told(noise(), budget=None, anchors=ANCHORS, correct=True)
    assert run.estimate.db == pytest.approx(ours.db, abs=1e-4)
    assert run.report.estimated_db == run.estimate.db == run.report.estimate.db


# --- words ----------------------------------------------------------------------------------------


def test_a_run_that_queries_every_stage_is_exact():
    for options in (dict(budget=STEPS), dict(budget=None), dict(anchors=range(STEPS), budget=None)):
        found = told(noise(), **options)
        assert found.db == found.low == found.high == math.inf and str(found) == "exact"
        assert found.doubt is None and found.of_pixels() == found


def test_the_second_line_of_a_report_is_the_estimate():
    report = sample(field, noise(), SIGMAS, 7, with_report=True)[1]
    line = str(report).splitlines()[1]
    assert re.fullmatch(r"about \d+ dB to the full run \(\d+ to \d+\)", line)
    assert line == str(report.estimate)
    e = report.estimate
    assert line == f"about {e.db:.0f} dB to the full run ({e.low:.0f} to {e.high:.0f})"
    told = report.to_dict()["estimate"]
    assert (told["db"], told["why"]) == (e.db, None) and told["samples"] == e.samples


def test_psnr_is_said_where_pixels_are_made():
    told = Estimate(30.0, 25.0, 35.0, (30.0,), 20.0, energy=-3.0)
    assert told.of_pixels().psnr == pytest.approx(30 + 20 * math.log10(2) + 3)
    assert str(told.of_pixels()) == f"{told}, PSNR of the pictures about 39"
    assert Estimate(why="because").of_pixels() == Estimate(why="because")


# --- close and far --------------------------------------------------------------------------------


@pytest.mark.parametrize("correct", [True, False])
def test_more_calls_of_a_smooth_toy_have_higher_estimates(correct):
    sigmas = linear(50)
    found = [told(noise(), sigmas=sigmas, budget=b, correct=correct).db for b in (5, 10, 20, 40)]
    assert all(after > before + 2 for before, after in itertools.pairwise(found))


@pytest.mark.parametrize(
    "name, samples, budgets", [("fruit", 1, (10,)), ("fruit-latent", 4, (10, 20))]
)
def test_a_trained_models_distance_is_within_the_band(name, samples, budgets):
    models = pytest.importorskip("geoshrink_bench.models")
    try:
        model = models.load(name)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    apart, grid = len(model.classes) // samples, model.grid(50)
    labels = [apart // 2 + i * apart for i in range(samples)]
    velocity, x = model.velocity(labels, guidance=1.5), model.noise(samples, seed=5)
    full = sample(velocity, x, grid)
    for budget in budgets:
        found, report = sample(velocity, x, grid, budget, with_report=True)
        ends = [t.flatten(1).square().sum(1) for t in (full, found - full)]
        true = 10 * torch.log10(ends[0] / ends[1])
        assert report.estimate.low < float(true.mean()) < report.estimate.high
        assert not report.doubtful


@pytest.mark.parametrize("solver", ["ab2", "dpm++2m", "heun"])
def test_other_solvers_are_estimated_within_the_band_or_not_at_all(solver):
    x, sigmas = noise(8), linear(50)
    full = sample(field, x, sigmas, solver=solver)
    for budget in (10, 20):
        plan = dataclasses.replace(Plan.of(sigmas, budget), slow=())
        found, report = sample(field, x, plan=plan, solver=solver, with_report=True)
        ends = [t.square().sum(1) for t in (full, found - full)]
        true = float((10 * torch.log10(ends[0] / ends[1])).mean())
        e = report.estimate
        assert e.db is None or e.low < true < e.high


# --- doubt ----------------------------------------------------------------------------------------


def test_few_calls_where_the_outputs_turn_are_doubtful():
    report = sample(turning, noise(), linear(50), 5, with_report=True)[1]
    e = report.estimate
    assert report.doubtful and e.db < e.direct + MARGIN
    assert report.doubt == (
        f"{e}, where direct step reduction is expected to have about {e.direct:.0f} dB: {ADVICE}"
    )
    assert report.doubt in str(report)


def test_many_calls_of_a_smooth_toy_are_not():
    report = sample(field, noise(), linear(50), 20, with_report=True)[1]
    assert not report.doubtful and ADVICE not in str(report)
    assert report.estimate.db > report.estimate.direct + MARGIN


def test_the_margin_is_what_doubt_begins_at():
    edge = 20.0 + MARGIN
    for db, doubtful in ((edge - 0.01, True), (edge, False), (math.inf, False), (None, False)):
        assert (Estimate(db, db, db, direct=20.0).doubt is not None) == doubtful
    assert 1 <= MARGIN <= 6
    assert Estimate(10.0, 5.0, 15.0).doubt is None


# --- what is not known ----------------------------------------------------------------------------


def walked(run: Run, x: Tensor, velocity: Any = field, state: bool = True, stages: Any = None):
    for n in range(STEPS) if stages is None else stages:
        v = run(n, partial(velocity, x, SIGMAS[n]), x if state else None)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
    return run.estimate


def spoilt(stage: int, value: float) -> Any:
    def velocity(x: Tensor, sigma: float) -> Tensor:
        out = field(x, sigma).clone()
        if abs(sigma - SIGMAS[stage]) < 1e-9:
            out[1, 2] = value
        return out

    return velocity


def unknown(found: Estimate, why: str) -> None:
    assert found.db is found.low is found.high is found.direct is found.psnr is None
    assert found.why is not None and why in found.why
    assert str(found) == f"distance to the full run unknown: {found.why}"
    assert found.doubt is None and found.samples == ()


def test_a_run_that_has_not_begun_or_ended_is_not_known():
    run = Run(SIGMAS, 7)
    unknown(run.estimate, "nothing was run")
    for until in (1, 3, 10, STEPS - 1):
        unknown(walked(Run(SIGMAS, 7), noise(), stages=range(until)), "not come to its end")
    assert walked(Run(SIGMAS, 7), noise()).db is not None


def test_a_run_that_was_not_given_its_state_is_not_known():
    unknown(walked(Run(SIGMAS, 7), noise(), state=False), "run(n, evaluate, x)")
    assert walked(Run(SIGMAS, STEPS), noise(), state=False).db == math.inf


@pytest.mark.parametrize("options", [dict(target="flow"), dict(refine=2)])
def test_a_run_to_the_exact_flow_is_not_known(options):
    unknown(told(noise(), **options), "aims at the exact flow, not at the full run")


def test_a_grid_of_unknown_levels_is_not_known():
    unknown(told(noise(), sigmas=[3 - s for s in SIGMAS]), "noise levels of the grid are not known")


def test_blocks_over_the_samples_are_not_known():
    unknown(told(noise(), blocks=Blocks((1,))), "blocks=Blocks(dims=(1,)")
    assert told(noise(), blocks=Blocks((0, 1))).db is not None


def test_an_empty_batch_is_not_known():
    unknown(told(noise(0)), "the batch is empty")


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("stage", [0, 7, 16])
def test_outputs_that_are_not_finite_are_not_known(stage, value):
    for correct in (True, False):
        options = dict(budget=None, anchors=ANCHORS, correct=correct)
        unknown(told(noise(), spoilt(stage, value), **options), "an output was not finite")


def test_tensors_without_values_are_not_known():
    unknown(told(noise().to("meta"), lambda x, s: x * s), "no numbers on the meta device")


def test_another_batch_on_the_way_is_not_known():
    run, x = Run(SIGMAS, anchors=ANCHORS), noise()
    for n in range(STEPS):
        x = x[:2] if n == 7 else x
        run(n, partial(field, x, SIGMAS[n]), x)
    unknown(run.estimate, "another one at some anchors")


def test_a_sample_behind_the_mask_is_not_known():
    mask = torch.tensor([[True], [True], [False]])
    unknown(told(noise(), mask=mask), "the mask hides some samples altogether")


def test_anchors_that_all_begin_a_regime_are_not_known():
    found = told(noise(), budget=None, anchors=(0, 8), regimes=(8,))
    unknown(found, "no anchor has another before it")


def test_a_state_of_another_shape_is_not_known():
    run = Run(SIGMAS, anchors=ANCHORS)
    for n in range(STEPS):
        run(n, partial(field, noise(), SIGMAS[n]), noise()[:, :3])
    unknown(run.estimate, "not given its state")


def test_constants_that_are_not_finite_make_nothing_known(monkeypatch):
    module = importlib.import_module("geoshrink.quality.estimate")
    monkeypatch.setattr(module, "CORRECTED", dataclasses.replace(CORRECTED, a=math.nan))
    unknown(told(noise()), "a statistic was not finite")


def test_outputs_that_do_not_change_are_close():
    found = told(noise(), lambda x, s: torch.ones_like(x))
    assert found.db is not None and math.isfinite(found.db) and found.db > 60


def test_data_that_is_zero_is_no_division_by_zero():
    found = told(torch.zeros(2, 6).double(), lambda x, s: torch.zeros_like(x))
    assert found.db is None or math.isfinite(found.db)
