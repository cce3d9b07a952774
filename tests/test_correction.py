"""Corrected cells: what a skipped cell was wrong by is put right at the anchor that ends it."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import oracle
from geoshrink import Blocks, Correction, Grid, Plan, Run, odeint, sample
from geoshrink.clock import Clock
from geoshrink.history import Corrector
from geoshrink.hosts import denoised
from geoshrink.solvers import SOLVERS
from geoshrink.solvers.response import response_of

STEPS, ANCHORS = 20, (0, 1, 2, 4, 7, 11, 16)
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]
GAINS = {"half": lambda s: 0.5, "linear": lambda s: 1 - s, 0.3: lambda s: 0.3}
GAUSSIAN = {"gaussian": lambda s: (1 - s) / ((1 - s) ** 2 + s**2)}
WEIGHT = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double() * 0.7


def field(x, sigma):
    return torch.tanh(x @ WEIGHT.to(x.dtype) * (1 + sigma)) + sigma * x


def noise(count: int = 3) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(1)).double()


def corrected(x, **options):
    """sample() in float64 on the anchors of these tests."""
    options = {"anchors": ANCHORS, "dtype": torch.float64, "correct": True} | options
    return sample(field, x, SIGMAS, **options)


def walked(run: Run, x: Tensor, velocity=field) -> Tensor:
    """A loop of one's own, whose outputs carry the corrections."""
    for n in range(run.steps):
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * run(n, lambda n=n, x=x: velocity(x, SIGMAS[n]), x)
    return x


def moved(run: Run, x: Tensor, velocity=field, steps=None) -> list[tuple[Tensor, Tensor, Tensor]]:
    """A loop of one's own that takes the corrected state: (x before, x after, output) of stages."""
    seen = []
    for n in range(run.steps if steps is None else steps):
        v, y = run.with_state(n, lambda n=n, x=x: velocity(x, SIGMAS[n]), x)
        seen.append((x, y, v))
        x = y + (SIGMAS[n + 1] - SIGMAS[n]) * v
    return [*seen, (x, x, x)]


# --- against the oracle ------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("caution", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("gain", [*GAINS, *GAUSSIAN])
def test_every_way_to_run_is_the_oracles(gain, caution, space):
    x, k = noise(), (GAINS | GAUSSIAN)[gain]
    expected, moves = oracle.corrected_run(
        lambda x, s: field(torch.as_tensor(x), s).numpy(),
        x.numpy(),
        SIGMAS,
        ANCHORS,
        k,
        space=space,
        caution=caution,
    )
    assert sorted(moves) == [4, 7, 11, 16]
    options = {"correct": Correction(gain, caution), "space": space}
    run = Run(SIGMAS, anchors=ANCHORS, dtype=torch.float64, solver="euler", **options)
    found = [
        corrected(x, **options),  # crosses a cell in one update
        corrected(x, callback=lambda n, x: None, **options),  # stage by stage
        walked(run, x),
        moved(run, x)[-1][0],
    ]
    for one in found:
        assert torch.allclose(one, torch.as_tensor(expected), rtol=0, atol=1e-13)
    assert (corrected(x, correct=None, space=space) - found[0]).abs().max() > 1e-3


@pytest.mark.parametrize("rule", ["chordal", "linear", "hold", "fixed(0.5)"])
def test_every_rule_can_be_corrected(rule):
    x, name = noise(), rule.split("(")[0]
    if name == "fixed":
        run = Run(SIGMAS, anchors=ANCHORS, rule=rule, correct=True, solver="euler")
        assert walked(run, x).isfinite().all() and run.report.stages[4].correction
        return
    values = lambda x, s: field(torch.as_tensor(x), s).numpy()  # noqa: E731
    expected, _ = oracle.corrected_run(
        values, x.numpy(), SIGMAS, ANCHORS, GAINS["half"], rule=name, signed=False
    )
    assert torch.allclose(corrected(x, rule=rule), torch.as_tensor(expected), atol=1e-13)


def test_a_held_first_cell_is_corrected_too():
    x, anchors = noise(), (0, 4, 9, 15)
    values = lambda x, s: field(torch.as_tensor(x), s).numpy()  # noqa: E731
    expected, moves = oracle.corrected_run(values, x.numpy(), SIGMAS, anchors, GAINS["half"])
    assert 4 in moves
    assert torch.allclose(corrected(x, anchors=anchors), torch.as_tensor(expected), atol=1e-13)


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("refine", [2, 3])
def test_a_refined_run_is_a_run_on_the_refined_grid(refine, space):
    x, fine = noise(), [1 - i / (STEPS * refine) for i in range(STEPS * refine + 1)]
    values = lambda x, s: field(torch.as_tensor(x), s).numpy()  # noqa: E731
    anchors = tuple(a * refine for a in ANCHORS)
    if space == "output":
        expected, _ = oracle.corrected_run(values, x.numpy(), fine, anchors, GAINS["half"])
        assert torch.allclose(corrected(x, refine=refine), torch.as_tensor(expected), atol=1e-12)
    run = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler", refine=refine, space=space)
    run.dtype = torch.float64
    ways = corrected(x, refine=refine, space=space, dtype=torch.float32), walked(run, x)
    assert torch.allclose(*ways, atol=1e-6)
    left = [why for _, why in run.report.reasons]
    assert all("held as it is" in why for why in left) and len(left) == (space == "data")


# --- what is moved, and by how much ------------------------------------------------------------

LEVELS = {
    "flow": ("flow", None),
    "epsilon": ("epsilon", "vp"),
    "v": ("v", "vp"),
    "sample": ("sample", "vp"),
    "epsilon, ve": ("epsilon", "ve"),
}


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("name", LEVELS)
def test_the_data_prediction_moves_by_k_times_what_the_state_moves_by(name, space):
    prediction, alphas = LEVELS[name]
    sigmas = [0.98 * s for s in SIGMAS]
    plan = Plan.of(
        sigmas, anchors=ANCHORS, prediction=prediction, alphas=alphas, space=space, correct=0.4
    )
    run, track, seen = Run(plan, solver="euler", dtype=torch.float64), plan.track(0), 0
    x = noise()
    for n in range(STEPS):
        exact = field(x, sigmas[n])
        v, y = run.with_state(n, lambda exact=exact: exact, x)
        if n in (4, 7, 11, 16):
            a, b = track.data_map(n)
            d, (alpha, sigma) = y - x, (track.levels or ())[n]
            change = (a * y + b * v) - (a * x + b * exact)
            assert d.abs().max() > 1e-6
            assert torch.allclose(change, 0.4 / (alpha + sigma) * d, atol=1e-12)
            seen += 1
        elif n in ANCHORS:
            assert y is x and torch.equal(v, exact)
        p, g = track.euler(n)
        x = p * y + g * v
    assert seen == 4 and not run.report.reasons


@pytest.mark.parametrize("name", ["ab2", "dpm++2m"])
@pytest.mark.parametrize("space", ["output", "data"])
def test_a_multistep_solver_ends_where_the_interpolated_cell_ends(name, space):
    """Its state at l and after the steps that use what it stored, by a replay of its own."""
    x, log, exact = noise(), [], {}

    def velocity(x, sigma):
        out = field(x, sigma)
        exact[round((1 - sigma) * STEPS)] = x, out
        return out

    class Spy(SOLVERS[name]):
        def step(self, n, x, output):
            log.append((x, output))
            return super().step(n, x, output)

    SOLVERS["spy"] = Spy
    Spy.name = "spy"
    try:
        options = {"space": space, "dtype": torch.float64, "correct": True}
        sample(velocity, x, SIGMAS, anchors=ANCHORS, solver="spy", **options)
    finally:
        del SOLVERS["spy"]
    assert len(log) >= STEPS  # the probe steps, too
    log = log[-STEPS:]
    solver, states = SOLVERS[name](Plan.of(SIGMAS).track(0)), []

    def value(n, x, v):
        return x - SIGMAS[n] * v if space == "data" else v

    for n in range(STEPS):
        states.append(x)
        v = log[n][1]
        if n not in ANCHORS and n < ANCHORS[-1]:
            k, end = (f(a for a in ANCHORS if (a < n) == b) for f, b in ((max, True), (min, False)))
            first, last = value(k, *log[k]), value(end, *exact[end])
            z = first + (n - k) / (end - k) * (last - first)
            v = (x - z) / SIGMAS[n] if space == "data" else z
        x = solver.step(n, x, v)
    for n in (*ANCHORS, 17, 18, 19):
        assert torch.allclose(log[n][0], states[n], atol=1e-12)


def test_a_full_budget_is_the_plain_run_to_the_bit():
    x = noise().float()
    plain = sample(field, x, SIGMAS)
    assert torch.equal(sample(field, x, SIGMAS, STEPS, correct=True), plain)
    run = Run(SIGMAS, STEPS, correct=True, solver="euler")
    assert torch.equal(walked(run, x), plain) and not run.report.reasons


def test_a_cell_without_skipped_stages_is_left_alone():
    run = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler")
    seen = moved(run, noise())
    assert all(before is after for n, (before, after, _) in enumerate(seen[:3]))
    rows = {row.stage: row.correction for row in run.report.stages if row.exact}
    assert [n for n in ANCHORS if rows[n] is not None] == [4, 7, 11, 16]


def test_each_sample_block_slot_and_masked_coordinate_has_its_own():
    x = noise(4)
    whole = corrected(x)
    for i in range(4):  # what a sample becomes does not depend on the others
        assert torch.allclose(corrected(x[i : i + 1]), whole[i : i + 1], atol=1e-13)
    parts = corrected(x, blocks=Blocks((0, 1)))
    assert not torch.allclose(parts, whole) and parts.isfinite().all()
    groups = corrected(x, blocks=Blocks((0, 1), groups=(3, 3)))
    assert not torch.allclose(groups, whole) and groups.isfinite().all()
    mask = torch.tensor([True, True, True, False, True, False])
    assert corrected(x, mask=mask).isfinite().all()
    one = sample(
        lambda x, s: (field(x[0], s[0]), field(x[1], s[1])),
        (x, 2 * x),
        (SIGMAS, [s**2 for s in SIGMAS]),
        anchors=ANCHORS,
        correct=True,
        dtype=torch.float64,
    )
    assert torch.allclose(one[0], whole, atol=1e-13)
    assert not torch.allclose(one[1], whole)
    shared, told = sample(
        lambda x, s: (field(x[0], s), field(x[1], s)),
        (x, 2 * x),
        SIGMAS,
        anchors=ANCHORS,
        correct=True,
        blocks=Blocks(shared=True),
        rule="chordal",
        with_report=True,
    )
    assert shared[0].isfinite().all() and not told.reasons


def test_no_correction_reaches_across_a_regime():
    run = Run(SIGMAS, anchors=ANCHORS, regimes=[7], correct=True, solver="euler")
    seen = moved(run, noise())
    assert seen[7][0] is seen[7][1] and seen[4][0] is not seen[4][1]
    rows = {row.stage: row.correction for row in run.report.stages if row.exact}
    assert rows[7] is None and rows[4] and rows[11] and not run.report.reasons
    again = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler")
    x = noise()
    for n in range(STEPS):  # a regime that nobody planned
        v = again(n, lambda n=n, x=x: field(x, SIGMAS[n]), x, regime=n >= 9)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
    rows = {row.stage: row.correction for row in again.report.stages if row.exact}
    assert rows[7] and rows[9] is None and rows[11]


def test_a_query_from_the_reserve_closes_a_cell():
    x, told = sample(
        field, noise(), SIGMAS, 8, reserve=2, correct=True, with_report=True, dtype=torch.float64
    )
    extra = [row for row in told.stages if row.stage in told.extra]
    assert len(extra) == 2 and any(row.correction for row in extra) and x.isfinite().all()


# --- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("space", ["output", "data"])
def test_lower_precision_is_rounding_away_from_float64(dtype, space):
    """The same rounded outputs, in both: what differs is the arithmetic of the correction."""
    generator = torch.Generator().manual_seed(0)
    a, b, c, x = (torch.randn(2, 500, generator=generator).to(dtype).double() for _ in range(4))
    path = [(a + s * b + s**3 * c).to(dtype).double() for s in SIGMAS]
    anchors = [0, 1, 3, 8]

    def state(dtype):
        run = Run(SIGMAS, anchors=anchors, space=space, correct=True, solver="euler")
        pairs = [run.with_state(n, lambda n=n: path[n].to(dtype), x.to(dtype)) for n in range(9)]
        return [t.double() for t in pairs[-1]]

    for low, high in zip(state(dtype), state(torch.float64)):
        assert (low - high).abs().max() <= 8 * torch.finfo(dtype).eps * high.abs().max()


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e6])
def test_a_correction_that_is_not_finite_or_outlying_is_dropped_for_its_sample(value):
    def velocity(x, sigma):
        out = field(x, sigma)
        if abs(sigma - SIGMAS[7]) < 1e-9:
            out = out.clone()
            out[1, 2] = value
        return out

    run = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler")
    before, after, v = moved(run, noise(), velocity, steps=8)[7]
    assert torch.equal(before[1], after[1])
    assert all(not torch.equal(before[i], after[i]) and v[i].isfinite().all() for i in (0, 2))
    clean = moved(Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler"), noise(), steps=8)[7]
    assert torch.equal(clean[1][[0, 2]], after[[0, 2]])


def test_caution_keeps_less_where_the_prediction_was_worse():
    def row(caution):
        run = Run(SIGMAS, anchors=ANCHORS, correct=Correction(caution=caution), solver="euler")
        run_to = moved(run, noise(1), steps=5)[4]
        return (run_to[1] - run_to[0]).norm(), run.report.stages[4]

    (whole, told), (less, _), (least, _) = row(0.0), row(1.0), row(2.0)
    assert 0 < least < less < whole
    assert torch.isclose(less / whole, least / less)  # (1 + r²)^−1 each time
    assert told.correction is not None and told.error is not None


def test_the_self_check_is_that_of_the_output_as_evaluated():
    """The first corrected anchor's does not depend on the correction."""
    checks = []
    for correct in (None, True):
        run = Run(SIGMAS, anchors=ANCHORS, correct=correct, solver="euler")
        walked(run, noise())
        checks.append({row.stage: row.error for row in run.report.stages})
    assert checks[0][4] == checks[1][4] and checks[0][7] != checks[1][7]


def test_two_tensors_are_held_and_no_more():
    x = noise(2)
    run = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler")
    for n in range(9):
        run(n, lambda n=n: field(x, SIGMAS[n]), x)
    slot = run._history.slots[0]
    held = [t for t in vars(slot).values() if isinstance(t, Tensor) and t.shape == x.shape]
    assert len(held) == 2 and slot.moved is None
    assert run.report.bytes_held == 2 * x.nbytes


# --- theory ------------------------------------------------------------------------------------


def error_of(steps: int, every: int, correct, velocity=None, space="output") -> float:
    """Relative error to the full run, with an anchor at every few stages after the first two."""
    x = torch.linspace(0.5, 1.5, 8, dtype=torch.float64)[None]
    sigmas = [1 - 0.9 * i / steps for i in range(steps + 1)]
    velocity = velocity or (lambda x, s: torch.sin(2 * s + x) * x)
    options = {"anchors": [0, *range(1, steps, every)], "rule": "linear", "space": space}
    options |= {"data": 0.0, "dtype": torch.float64}
    full = sample(velocity, x, sigmas, data=0.0)
    made = sample(velocity, x, sigmas, correct=correct, **options)
    return float((made - full).norm() / full.norm())


def test_the_corrected_scheme_is_of_order_two_with_a_smaller_constant():
    """Linear prediction from two anchors and interpolation between two are both of order two in the
    gap between anchors.
    """
    errors = {c: [error_of(12 * k, 6, c) for k in (4, 8, 16, 32)] for c in (None, True)}
    for found in errors.values():
        orders = [math.log2(a / b) for a, b in pairwise(found)]
        assert 1.8 < orders[-1] < 2.3
    assert all(b < a / 2 for a, b in zip(errors[None], errors[True]))


@pytest.mark.slow
def test_where_the_output_is_a_function_of_time_the_error_is_about_a_fifth():
    """5/12 of h³f″ by prediction and −1/12 by interpolation; here in sums over a cell's stages."""

    def velocity(x, s):
        return torch.full_like(x, (s - 0.55) ** 2)

    for gap, cells in ((8, 400), (40, 200)):
        plain, better = (error_of(cells * gap, gap, c, velocity) for c in (None, 1.0))  # v is held
        ahead, between = (sum(n * (gap + sign * n) for n in range(1, gap)) for sign in (1, -1))
        last = ahead  # which nothing corrects
        expected = ahead * cells / (between * (cells - 1) - last)
        assert plain / better == pytest.approx(expected, rel=0.03)


def test_with_k_the_slope_of_the_data_prediction_the_moved_output_is_exact():
    """Where x̂₀ = κ·x + f(σ), K = κ gives the output that the model has at the moved state."""

    def velocity(x, s):
        return (x - (0.6 * x + math.cos(3 * s))) / s

    for space in ("output", "data"):
        run = Run(SIGMAS, anchors=ANCHORS, correct=0.6, solver="euler", space=space)
        for n, (before, after, v) in enumerate(moved(run, noise(), velocity)[:-1]):
            if n in (4, 7, 11, 16):
                assert before is not after
                assert torch.allclose(v, velocity(after, SIGMAS[n]), atol=1e-6)


# --- where it keeps its hands off --------------------------------------------------------------


def reasons(run: Run) -> list[str]:
    return [why for _, why in run.report.reasons]


def test_a_run_that_does_not_know_the_solver_says_so():
    run = Run(SIGMAS, anchors=ANCHORS, correct=True)
    plain = Run(SIGMAS, anchors=ANCHORS)
    assert torch.equal(walked(run, noise()), walked(plain, noise()))
    assert reasons(run) == [
        "cells are not corrected: the solver is not known; pass solver='euler' if it is Euler's"
    ]
    assert not reasons(plain)


def test_an_unknown_solver_is_an_error():
    with pytest.raises(ValueError, match="unknown solver 'rk4'; choose one of"):
        Run(SIGMAS, 8, correct=True, solver="rk4")


def test_outputs_of_a_multistep_solver_cannot_carry_a_correction():
    run = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="ab2")
    x = noise()
    for n in range(STEPS):
        run(n, lambda n=n: field(x, SIGMAS[n]), x)
    assert reasons(run)[0].endswith("this solver's x must be moved, and it is out of reach")
    assert len(reasons(run)) == 4
    moved(run, x)
    assert reasons(run)[0].endswith("the solver stores outputs that are out of reach")


def test_heun_and_a_solver_that_is_not_linear_are_left_and_said():
    x, told = corrected(noise(), solver="heun", with_report=True)
    assert [why for _, why in told.reasons] == [
        "cells are not corrected: 'heun' has more than one output a stage"
    ]
    assert torch.equal(x, corrected(noise(), solver="heun", correct=None))

    class Clipped(SOLVERS["euler"]):
        name = "clipped"

        def step(self, n, x, output):
            return super().step(n, x, output).clamp(-1, 1)

    SOLVERS["clipped"] = Clipped
    try:
        x, told = corrected(noise(), solver="clipped", with_report=True)
    finally:
        del SOLVERS["clipped"]
    assert [why for _, why in told.reasons] == [
        "cells are not corrected: its state is not linear in the outputs"
    ]


def test_a_grid_that_does_not_say_where_the_data_is():
    sigmas = [2 - i / STEPS for i in range(STEPS + 1)]
    x, told = sample(field, noise(), sigmas, anchors=ANCHORS, correct=True, with_report=True)
    assert "it is not known where the data is" in told.reasons[0][1] and x.isfinite().all()


def test_a_cell_whose_stages_were_not_all_predicted():
    run, x = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler"), noise()
    for n in range(8):
        if n != 5:
            run(n, lambda n=n: field(x, SIGMAS[n]), x)
    said = "the cell before is not corrected: not all of its stages were predicted"
    assert (7, said) in run.report.reasons


def test_a_cell_that_the_caller_leaves():
    run, x = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler"), noise()
    for n in range(12):
        if n == 6:
            run.leave_cell("somebody painted over it")
        run(n, lambda n=n: field(x, SIGMAS[n]), x)
    rows = {row.stage: row.correction for row in run.report.stages if row.exact}
    assert rows[7] is None and rows[4] and rows[11]
    assert run.report.reasons == (
        (7, "the cell before is not corrected: somebody painted over it"),
    )


# --- options, files, reports -------------------------------------------------------------------


def test_what_people_pass_as_correct():
    assert Correction.of(False) is Correction.of(None) is None
    assert Correction.of(True) == Correction() == Correction("half", 0.0)
    assert Correction.of("linear") == Correction("linear")
    assert Correction.of(0.25) == Correction(0.25, 0.0)
    assert Correction.of({"gain": 1, "caution": 2}) == Correction(1.0, 2.0)
    for wrong, text in (("third", "unknown gain 'third'"), (math.nan, "gain is a finite number")):
        with pytest.raises(ValueError, match=text):
            Plan.of(SIGMAS, 8, correct=wrong)
    with pytest.raises(ValueError, match=r"caution is 0 or more, got -1\.0"):
        Correction(caution=-1)
    with pytest.raises(ValueError, match="caution is a finite number, got True"):
        Correction(caution=True)
    with pytest.raises(TypeError, match=r"correct=\[1\] is not a correction"):
        Plan.of(SIGMAS, 8, correct=[1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a correction"):
        Plan.of(SIGMAS, 8, correct={"gains": 1})  # type: ignore[arg-type]


def test_a_plan_keeps_its_correction_and_clock_in_json():
    plan = Plan.of(SIGMAS, 8, correct=Correction("gaussian", 1.5), clock="mesh")
    assert Plan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["correct"] == {"gain": "gaussian", "caution": 1.5}
    assert "corrected (gaussian, caution 1.5), clock: mesh" in str(plan)
    plain = json.loads(Plan.of(SIGMAS, 8, correct=False).to_json())
    assert not {"correct", "clock"} & set(plain)  # as versions before wrote it, and read it
    assert Plan.from_body(plain).correct is None


def test_the_meshs_clock():
    with pytest.raises(ValueError, match="unknown clock 'wall'; choose one of sigma, mesh"):
        Plan.of(SIGMAS, 8, clock="wall")
    with pytest.raises(ValueError, match="clock='mesh' needs the noise levels"):
        Plan.of([2.0, 1.5, 1.0, 0.5], clock="mesh")
    plan = Plan.of(SIGMAS, anchors=ANCHORS, clock="mesh")
    a, b, c = 0.0272, 0.0125, 0.2725
    y = [math.log(1 - s + a) - c * math.log(s + b) for s in SIGMAS]
    for n, (rho, lam) in enumerate(plan.horizons()):
        if len(plan.history[n]) > 1:
            k, j = plan.history[n][:2]
            assert rho == pytest.approx(oracle.horizon(y, n, k, j))
            assert lam == pytest.approx(oracle.reach(y, n, k, j))
    run = Run(plan)
    walked(run, noise())
    rows = [row.horizon for row in run.report.stages if not row.exact]
    assert rows == pytest.approx([plan.horizons()[n][0] for n in run.report.predicted])


def test_the_report_shows_what_was_corrected():
    told = corrected(noise(), with_report=True)[1]
    text = str(told).splitlines()
    assert "self-check  corrected   then skipped" in text[4]
    rows = {row.stage: row.correction for row in told.stages if row.exact}
    assert f"{100 * rows[7]:.2f}%" in next(line for line in text if line.startswith("       7"))
    assert "corrected" not in str(corrected(noise(), correct=None, with_report=True)[1])


# --- hosts without a scheduler -----------------------------------------------------------------


def test_odeint_and_a_denoiser_carry_the_correction_in_their_outputs():
    x, options = noise(), {"anchors": ANCHORS, "correct": True, "dtype": torch.float64}
    expected = corrected(x)
    pytest.importorskip("torchdiffeq")
    grid = torch.tensor(SIGMAS, dtype=torch.float64)
    found, told = odeint(lambda t, y: field(y, float(t)), x, grid, with_report=True, **options)
    assert torch.allclose(found[-1], expected, atol=1e-12) and not told.reasons

    model = denoised.wrap(
        lambda x, s: x - s * field(x, float(s)), SIGMAS, solver="euler", **options
    )
    for n in range(STEPS):
        d = (x - model(x, torch.tensor(SIGMAS[n], dtype=torch.float64))) / SIGMAS[n]
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * d
    assert torch.allclose(x, expected, atol=1e-12) and not model.report.reasons


# --- transforms --------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("caution", [0.0, 1.0])
def test_gradients_are_exact(caution, space):
    x = noise(2).requires_grad_()
    options = {"correct": Correction(caution=caution), "space": space, "rule": "time"}
    assert torch.autograd.gradcheck(lambda x: corrected(x, **options), (x,), atol=1e-6)


def test_a_batch_by_vmap_is_the_batch():
    x = noise(4)
    one = torch.vmap(lambda x: corrected(x[None])[0])(x)
    assert torch.allclose(one, corrected(x), atol=1e-12)


def sample_plain(x, weight):
    return sample(lambda x, s: torch.tanh(x @ weight) * (1 + s), x, SIGMAS, anchors=ANCHORS)


def test_a_compiled_run_is_the_run():
    x, weight = noise().float(), WEIGHT.float()
    plan = Plan.of(SIGMAS, anchors=ANCHORS, correct=True)

    def go(x):
        return sample(lambda x, s: torch.tanh(x @ weight) * (1 + s), x, plan=plan)

    plain = go(x)
    torch._dynamo.reset()
    assert not torch.allclose(plain, sample_plain(x, weight), atol=1e-3)
    assert torch.allclose(torch.compile(go, fullgraph=True, backend="eager")(x), plain, atol=1e-5)


# --- numbers that a slip would change ------------------------------------------------------------


def test_every_slot_has_its_own_solver_levels_and_clock():
    """Two outputs on grids of their own are two runs; their solvers' memories are not mixed up."""
    x, grids = noise(2), (SIGMAS, [s**2 for s in SIGMAS])

    def velocity(x, s):
        return tuple(field(part, level) for part, level in zip(x, s))

    ways: list[dict[str, Any]] = [{}, {"space": "data", "clock": "mesh"}, {"solver": "ab2"}]
    for options in ways:
        options |= {"anchors": ANCHORS, "correct": "linear", "dtype": torch.float64}
        both = sample(velocity, (x, 2 * x), grids, **options)
        for found, start, grid in zip(both, (x, 2 * x), grids):
            assert torch.allclose(found, sample(field, start, grid, **options), atol=1e-13)


@pytest.mark.parametrize("refine", [1, 2])
@pytest.mark.parametrize("prediction", ["flow", "epsilon"])
def test_an_uneven_grid_is_the_same_by_output_and_by_state(prediction, refine):
    """Where steps differ in length, and x shrinks, the output must carry just as much."""
    sigmas = [0.97 * s**1.4 for s in SIGMAS]
    alphas = "vp" if prediction == "epsilon" else None
    how = {"anchors": ANCHORS, "correct": True, "refine": refine}
    plan = Plan.of(Grid.of(sigmas, prediction=prediction, alphas=alphas), **how)
    expected = sample(field, noise(), plan=plan, dtype=torch.float64)
    run, x = Run(plan, solver="euler", dtype=torch.float64), noise()
    for n in range(STEPS):
        v = run(n, lambda n=n, x=x: field(x, sigmas[n]), x)
        p, g = plan.track(0).euler(n)
        x = p * x + g * v
    assert torch.allclose(x, expected, atol=1e-12) and not run.report.reasons


@pytest.mark.parametrize("caution", [0.0, 1.0])
def test_the_report_says_how_far_the_state_was_moved(caution):
    """The mean over samples of ‖d‖/‖z_k‖, z_k as it was kept."""
    run = Run(SIGMAS, anchors=ANCHORS, correct=Correction(caution=caution), solver="euler")
    seen = moved(run, noise())
    rows = {row.stage: row.correction for row in run.report.stages}
    for k, end in pairwise(ANCHORS[2:]):
        before, after, _ = seen[end]
        ratio = (after - before).norm(dim=1) / seen[k][2].norm(dim=1)
        assert rows[end] == pytest.approx(float(ratio.mean()), rel=1e-4)


@pytest.mark.parametrize(("times", "kept"), [(1.9, True), (2.1, False)])
def test_a_correction_longer_than_twice_the_cells_way_is_dropped(times, kept):
    """Held outputs of length 1 for 4 stages, then one whose interpolation moves x so much."""
    base = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    shares = sum(i / 5 for i in range(1, 5)) / 4  # a/Σc
    last = base + torch.tensor([[0.0, times / shares]], dtype=torch.float64)
    run = Run(SIGMAS, anchors=(0, 5), correct=True, solver="euler")
    x = torch.zeros(1, 2, dtype=torch.float64)
    for n in range(5):
        run.with_state(n, lambda: base, x)
    _, y = run.with_state(5, lambda: last, x)
    assert torch.equal(x, y) != kept


def test_the_way_of_a_cell_adds_up_whatever_the_sign_of_its_weights():
    """AB2's weights at a cell's end have both signs: the limit is Σ|c|, of x."""
    plan = Plan.of(SIGMAS, anchors=ANCHORS, correct=True)
    response = response_of("ab2", plan.track(0), False)
    cell, device = range(8, 11), torch.device("cpu")
    closing = Corrector(plan, [response]).closing(0, cell, None, device, False)
    weights = response.weights(cell)
    assert closing.limit == pytest.approx(sum(map(abs, weights[0])))
    assert closing.limit != pytest.approx(sum(map(abs, weights[1])))
    shares = (1 / 4, 2 / 4, 3 / 4)
    assert closing.a == pytest.approx([sum(c * s for c, s in zip(w, shares)) for w in weights])


def test_with_caution_an_output_that_did_not_change_moves_nothing():
    """z_l = z_k, so r is infinite; without caution the state goes back by what was extrapolated."""
    outputs = {0: 1.0, 1: 2.0, 2: 3.0, 7: 3.0}
    states = []
    for caution in (0.0, 1.0):
        run = Run(SIGMAS, anchors=(0, 1, 2, 7), correct=Correction(caution=caution), solver="euler")
        x = torch.ones(1, 2, dtype=torch.float64)
        pairs = [
            run.with_state(n, lambda n=n: torch.full((1, 2), outputs.get(n, 0.0)).double(), x)
            for n in range(8)
        ]
        states.append(torch.equal(x, pairs[-1][1]))
    assert states == [False, True]


@pytest.mark.parametrize("gain", ["half", "linear", "gaussian"])
def test_k_off_flow_grids_is_the_flows_over_the_sum_of_levels(gain):
    """x/(α + σ) is a flow's state at τ = σ/(α + σ)."""
    for alpha, sigma in ((0.8, 0.6), (0.3, 0.2), (1.0, 3.0)):
        tau = sigma / (alpha + sigma)
        kappa = (GAINS | GAUSSIAN)[gain](tau)
        assert Correction(gain).data_gain(alpha, sigma) == pytest.approx(kappa / (alpha + sigma))


def test_a_state_of_another_shape_than_the_output_is_left_and_said():
    run, x = Run(SIGMAS, anchors=ANCHORS, correct=True, solver="euler"), noise()
    for n in range(5):
        if run.queries(n):
            _, memory = run.observe_state(n, field((n + 1) * x, SIGMAS[n]), None, [[x[:, :3]]])
            assert memory[0][0] is not None and torch.equal(memory[0][0], x[:, :3])
        else:
            run.predict(n)
    assert run.report.reasons[0][1].endswith("the state is not of the output's shape")


def test_a_share_of_no_way_is_none():
    assert Clock((1.0, 1.0, 0.5)).share(1, 0, 1) == 0.0
    assert Clock((1.0, 0.75, 0.5)).share(1, 0, 2) == 0.5


def test_a_solver_that_keeps_its_past_out_of_reach_is_left_and_said():
    class Hidden(SOLVERS["ab2"]):
        name = "hidden"

        def __init__(self, track):
            super().__init__(track)
            self.box = [self]  # its past is in an object that is not looked into

        @property
        def last(self):
            return self.__dict__.get("box", [None])[-1] if "past" in self.__dict__ else None

        @last.setter
        def last(self, value):
            if value is not None:
                self.__dict__["past"] = True
                self.box = [self, {"deep": value}["deep"]]

    SOLVERS["hidden"] = Hidden
    try:
        told = corrected(noise(), solver="hidden", with_report=True)[1]
    finally:
        del SOLVERS["hidden"]
    assert [why for _, why in told.reasons] == [
        "cells are not corrected: it keeps its past where it cannot be reached"
    ]


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("solver", ["euler", "ab2", "dpm++2m"])
def test_the_dot_products_after_a_correction_are_those_of_what_is_kept(solver, space):
    """They are not taken again, but follow from those of the output as evaluated."""
    run = Run(
        SIGMAS, anchors=ANCHORS, correct=True, solver=solver, space=space, dtype=torch.float64
    )
    x, older, kept = noise(), None, noise()
    for n in range(12):
        if not run.queries(n, x):
            run.predict(n, x)
        else:
            state = [x * (1 + i) for i in range(1 + len(run.stored(0)))]
            _, memory = run.observe_state(n, field((1 + n) * x, SIGMAS[n]), x, [state])
            slot = run._history.slots[0]
            if n in (4, 7, 11):
                assert slot.dz is not None and slot.stats is not None and older is not None
                assert memory[0][0] is not None
                d = memory[0][0] - x
                assert d.norm() > 0 and slot.correction is not None
                assert torch.allclose(slot.correction, d.norm(dim=1) / kept.norm(dim=1))
                assert torch.allclose(slot.stats.S, slot.dz.square().sum(1))
                assert torch.allclose(slot.stats.P, older.square().sum(1))
                assert torch.allclose(slot.stats.D, (slot.dz * older).sum(1))
            older, kept = slot.dz, kept if slot.z is None else slot.z


def test_two_outputs_on_one_grid_are_two_runs():
    x = noise(2)
    both = sample(
        lambda x, s: (field(x[0], s), field(x[1], s)),
        (x, 2 * x),
        SIGMAS,
        anchors=ANCHORS,
        correct=True,
        dtype=torch.float64,
    )
    for found, start in zip(both, (x, 2 * x)):
        assert torch.allclose(found, corrected(start), atol=1e-13)


@pytest.mark.parametrize("space", ["output", "data"])
def test_a_cell_that_nobody_planned_is_corrected_by_its_own_weights(space):
    """Stage 9 is observed though the plan has no anchor there."""
    x, anchors = noise(), (0, 1, 2, 4, 7, 9, 11, 16)
    values = lambda x, s: field(torch.as_tensor(x), s).numpy()  # noqa: E731
    expected, moves = oracle.corrected_run(
        values, x.numpy(), SIGMAS, anchors, GAINS["half"], space=space
    )
    assert 9 in moves
    how = {"anchors": ANCHORS, "correct": True, "solver": "euler", "space": space}
    run = Run(SIGMAS, dtype=torch.float64, **how)
    for n in range(STEPS):
        if n == 9:
            run.queries(n, x)
            v, memory = run.observe_state(n, field(x, SIGMAS[n]), x, [[x]])
            x = memory[0][0]
        else:
            v, x = run.with_state(n, lambda n=n, x=x: field(x, SIGMAS[n]), x)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
    assert torch.allclose(x, torch.as_tensor(expected), atol=1e-13)
