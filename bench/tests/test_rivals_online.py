"""ZEUS, PrediT, TACache, FastFlow and FlowCast, against their formulas written out once more."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from cases import calls_of, euler, joint_case, other_case, plain, sigmas_of, small_case
from geoshrink import sample
from geoshrink.grid import Grid
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods import tuning
from geoshrink_bench.methods.fastflow import Bandits, FastFlow, Line, outputs_of, tried
from geoshrink_bench.methods.flowcast import FlowCast
from geoshrink_bench.methods.predit import PrediT, bashforth
from geoshrink_bench.methods.registry import METHODS, check_options
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.methods.tacache import TACache, calibrate
from geoshrink_bench.methods.tuning import CHOICES, TUNED, distance
from geoshrink_bench.methods.zeus import Zeus, grouped

NAMES = ("ZEUS", "PrediT", "TACache", "FastFlow", "FlowCast")
FOREVER = 1e9


def recorded(case: ZooCase) -> tuple[list[Any], list[Any]]:
    """x and v at every stage of the full run."""
    xs: list[Any] = []
    vs: list[Any] = []
    inner = case.velocity()

    def velocity(x, sigma):
        xs.append(x)
        vs.append(inner(x, sigma))
        return vs[-1]

    sample(velocity, case.noise, case.grid())
    return xs, vs


def with_velocity(case: ZooCase, velocity: Any) -> ZooCase:
    """The case with a velocity that is written down."""
    other = dataclasses.replace(case)
    object.__setattr__(other, "velocity", lambda: velocity)
    return other


def made(name: str, case: ZooCase, budget: int, **options: Any) -> Any:
    return METHODS[name](options, lambda: [case], budget)


@pytest.fixture
def case():
    return small_case()


# What all share


@pytest.mark.parametrize("name", NAMES)
def test_skipped_stages_do_not_run_the_network(name, case):
    method = made(name, case, 8)
    calls = calls_of(stack_of(case.network).blocks[1])
    outcome = method.run(case, 8)
    assert len(calls) == outcome.evaluations <= 8 + method.adaptive and outcome.held > 0
    assert torch.isfinite(outcome.x).all() and not torch.equal(outcome.x, plain(case))
    assert torch.equal(method.run(case, 8).x, outcome.x)


@pytest.mark.parametrize("name", NAMES)
def test_with_every_stage_each_is_the_plain_run(name, case):
    method = FlowCast(0.0) if name == "FlowCast" else made(name, case, 12)
    outcome = method.run(case, 12)
    assert outcome.evaluated == tuple(range(12)) and torch.equal(outcome.x, plain(case))


@pytest.mark.parametrize("name", NAMES)
def test_structured_samples(name):
    case = joint_case()
    method = made(name, case, 8)
    outcome = method.run(case, 8)
    assert [part.shape for part in outcome.x] == [part.shape for part in case.noise]
    assert all(torch.isfinite(part).all() for part in outcome.x)
    assert outcome.evaluations <= 8 + method.adaptive


@pytest.mark.parametrize("name, kind", [*product(NAMES, ("fruit-epsilon", "fruit-x0"))])
def test_other_predictions(name, kind):
    case = other_case(kind)
    method = made(name, case, 8)
    outcome = method.run(case, 8)
    assert torch.isfinite(outcome.x).all() and outcome.evaluations <= 8 + method.adaptive


@pytest.mark.parametrize("name", NAMES)
def test_a_switch_of_guidance_is_full_and_forgets(name):
    """A velocity that jumps by 100 at the switches, and is else constant, is predicted exactly."""
    case = small_case(interval=(0.4, 0.9))
    switches, sigmas = case.grid().regimes, sigmas_of(case)
    assert len(switches) == 2

    def stepped(x, sigma):
        regime = sum(sigma <= sigmas[n] + 1e-9 for n in switches)
        return torch.full_like(x, 100.0 * regime + 1)

    flat = with_velocity(case, stepped)
    known = {"FlowCast": FlowCast(1e-3), "PrediT": PrediT(1.0)}
    outcome = (known.get(name) or made(name, flat, 9)).run(flat, 9)
    assert {0, *switches} <= set(outcome.evaluated) and outcome.evaluations < 12
    assert torch.allclose(outcome.x, euler(case, lambda n, x: stepped(x, sigmas[n])), rtol=1e-5)


@pytest.mark.parametrize("name, least", [("ZEUS", 3), ("TACache", 2), ("FastFlow", 1)])
def test_a_budget_that_is_too_small_is_refused(name, least, case):
    with pytest.raises(ValueError, match=f"a budget of {least} is less than"):
        made(name, case, least).run(case, least)
    for budget in (6, 7, 9):
        assert len(made(name, case, budget).run(case, budget).evaluated) <= budget


@pytest.mark.parametrize("name", ["PrediT", "FlowCast"])
def test_thresholds_are_tuned_to_the_budget(name, case):
    for budget in (7, 9):
        method = made(name, case, budget)
        assert method.adaptive and not method.calibrated
        assert abs(method.run(case, budget).evaluations - budget) <= 1
    with pytest.raises(ValueError, match="they make"):
        made(name, case, 2)


def test_who_is_calibrated(case):
    found = {name: made(name, case, 7).calibrated for name in NAMES}
    assert [name for name in NAMES if found[name]] == ["TACache", "FastFlow"]


# ZEUS


def test_zeus_by_hand(case):
    full, velocity, sigmas = (0, 1, 3, 9), case.velocity(), sigmas_of(case)
    known: list[Any] = []

    def output(n, x):
        if n in full:
            known.append(velocity(x, sigmas[n]))
            return known[-1]
        k = n - max(s for s in full if s < n)
        return 2 * known[-1] - known[-2] if k % 2 else known[-1]

    outcome = Zeus(stages=full).run(case, 4)
    assert outcome.evaluated == full and outcome.held == 2 * case.noise.nbytes
    assert torch.allclose(outcome.x, euler(case, output), atol=1e-4)


def test_zeus_spaces_its_stages_evenly():
    grid = Grid.of([1 - i / 50 for i in range(51)])
    for budget, warm_up, fresh, tail in product(range(8, 30), (1, 4, 5), (1, 2), (0, 1, 2)):
        stages = grouped(grid, budget, warm_up, fresh, tail)
        assert budget - fresh < len(stages) <= budget
        assert {*range(warm_up), *range(50 - tail, 50)} <= set(stages)
        missing = [n for n in range(50) if n not in stages]
        runs = np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1)
        lengths = [len(run) for run in runs]
        assert max(lengths) - min(lengths) <= 1
    switching = Grid.of([1 - i / 50 for i in range(51)], regimes=[11, 33])
    for budget in range(8, 20):
        stages = grouped(switching, budget, 4)
        assert {0, 1, 2, 3, 11, 33} <= set(stages) and budget - 2 <= len(stages) <= budget
    # the authors' script for COCO: stage n + 1 is skipped if n % 4 is 0, 1 or 2 and 7 ≤ n < 47
    theirs = [0, *(n + 1 for n in range(49) if not (n % 4 < 3 and 7 <= n < 47))]
    assert grouped(grid, 20, 9, 1, 2) == theirs


# PrediT


def test_adams_bashforth_weights():
    """Against the classical coefficients, and exact where the slopes are a polynomial."""
    slopes = np.convolve([5 / 12, -16 / 12, 23 / 12], [-1, 1])
    classical = slopes + np.array([0, 0, 0, 1])
    assert bashforth([0.0, 1.0, 2.0, 3.0], 4.0) == pytest.approx(classical)
    assert bashforth([5.0, 4.0], 2.5) == pytest.approx([-1.5, 2.5])
    assert bashforth([1.0, 1.0, 2.0], 3.0) == pytest.approx([0.0, -1.0, 2.0])
    times = [0.0, 0.7, 1.0, 1.8]
    for t in (2.0, 3.1):
        assert sum(bashforth(times, t)) == pytest.approx(1.0)
        line = [3 - 2 * s for s in times]
        assert np.dot(bashforth(times, t), line) == pytest.approx(3 - 2 * t)


@pytest.mark.parametrize("order, corrector", [(1, 0.0), (2, 0.0), (1, 1.0), (2, 0.5)])
def test_predit_by_hand(case, order, corrector):
    velocity, sigmas, threshold = case.velocity(), sigmas_of(case), 3.0
    known: list[tuple[int, Any]] = []  # full stages
    said: dict[int, Any] = {}  # predictions since the last
    state: dict[str, Any] = dict(until=0)

    def predicted(n):
        last, t = known[-1][1], sigmas[n]
        if len(known) == 1:
            return last
        slopes = [
            ((b - a) / (sigmas[j] - sigmas[i]), sigmas[j]) for (i, a), (j, b) in pairwise(known)
        ]
        (f, at), (f1, at1) = slopes[-1], slopes[-2] if len(slopes) > 1 else slopes[-1]
        value = last + (t - at) * f
        if order == 2 and len(slopes) > 1:
            value = value + (t - at) ** 2 / 2 * (f - f1) / (at - at1)
        return value

    def output(n, x):
        if 2 < n < 11 and n < state["until"]:
            said[n] = predicted(n)
            return said[n].float()
        v, extra = velocity(x, sigmas[n]).double(), 0.0
        if said:
            k, last = known[-1]
            for m, guess in said.items():
                share = (sigmas[m] - sigmas[k]) / (sigmas[n] - sigmas[k])
                line = (1 - share) * last + share * v
                extra = extra + (sigmas[m + 1] - sigmas[m]) * (line - guess)
        said.clear()
        known.append((n, v))
        state["until"] = n + 1
        if len(known) > 1:
            (m, old), (_, new) = known[-2:]
            gap, size = (new - old).flatten(1).norm(dim=1), old.flatten(1).norm(dim=1)
            rate = float((gap / size).mean()) / (n - m)
            state["until"] += math.floor(threshold / rate ** (1 / (order + 1)))
        return (v + corrector * extra / (sigmas[n + 1] - sigmas[n])).float()

    expected = euler(case, output)
    outcome = PrediT(threshold, order, corrector).run(case, 0)
    assert outcome.evaluated == tuple(n for n, _ in known) and 4 < len(known) < 11
    assert torch.allclose(outcome.x, expected, atol=2e-3 * float(expected.abs().max()))
    assert outcome.held == (order + 1) * case.noise.nbytes


def test_predit_skips_further_where_the_output_changes_less(case):
    """δ of 1/4 per stage with order 1: J = ⌊3.1·√4⌋ = 6."""

    def slow(x, sigma):
        return torch.full_like(x, 1.0 if sigma == sigmas_of(case)[0] else 1.25)

    flat = with_velocity(case, slow)
    method = PrediT(3.1, order=1, corrector=0.0, warm_up=2, tail=0)
    assert method.run(flat, 0).evaluated == (0, 1, 8)


def test_predit_refuses_what_it_has_not():
    with pytest.raises(ValueError, match="unknown clock 'hours'; choose sigma or stage"):
        PrediT(clock="hours")
    with pytest.raises(ValueError, match="order is at least 1, got 0"):
        PrediT(order=0)


# TACache


def test_tacache_measures_full_runs(case):
    _, vs = recorded(case)
    ((*pairs, end),) = calibrate([case])
    assert len(pairs) == 11 and end == (0.0, 0.0)
    for n, (alpha, beta) in enumerate(pairs):
        v, change = vs[n].double().flatten(1), (vs[n + 1] - vs[n]).double().flatten(1)
        along = (v * change).sum(1) / v.norm(dim=1) ** 2
        cosine = (v * change).sum(1) / v.norm(dim=1) / change.norm(dim=1)
        across = change.norm(dim=1) * (1 - cosine**2).sqrt() / v.norm(dim=1)
        assert alpha == pytest.approx(float(along.mean()), abs=1e-5)
        assert beta == pytest.approx(float(across.mean()), rel=1e-4)


@pytest.mark.parametrize("gain", [1.0, 0.5])
def test_tacache_by_hand(case, gain):
    (pairs,) = statistics = calibrate([small_case(seed=1)])
    velocity, sigmas = case.velocity(), sigmas_of(case)
    full = TACache(statistics).stages(case.grid(), 6)
    state: dict[str, Any] = {}

    def output(n, x):
        if n in full:
            v = velocity(x, sigmas[n]).double()
            if "full" in state:
                change = v - state["full"]
                side = (change * v).flatten(1).sum(1) / (v * v).flatten(1).sum(1)
                rest = change - side[:, None, None, None] * v
                state["u"] = rest / rest.flatten(1).norm(dim=1)[:, None, None, None]
            state.update(full=v, now=v)
            return v.float()
        alpha, beta = pairs[n - 1]
        size = state["now"].flatten(1).norm(dim=1)[:, None, None, None]
        state["now"] = (1 + alpha) * state["now"] + gain * beta * size * state["u"]
        return state["now"].float()

    expected = euler(case, output)
    outcome = TACache(statistics, gain=gain).run(case, 6)
    assert outcome.evaluated == tuple(full) and len(full) == 6
    assert torch.allclose(outcome.x, expected, atol=1e-3 * float(expected.abs().max()))
    assert outcome.held == 2 * case.noise.nbytes


def test_tacache_stays_within_both_thresholds():
    along = [0.1, -0.1, 0.1, 0.1, 0.5, 0.1, 0.0, 0.0]
    across = [0.3, 0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.0]
    method = TACache([list(zip(along, across))], 0.25, warm_up=1, tail=0)
    grid = Grid.of([1 - i / 8 for i in range(9)])
    # shares of |α|: .1 .1 .1 .1 .5 .1 0, of β: .3 .1 .1 .1 .1 .1 .2; never more than .25
    assert method.stages(grid, 0) == [0, 1, 4, 5, 7]
    method.balance = 10.0
    assert method.stages(grid, 0) == [0, 1, 4, 7]
    assert len(TACache([list(zip(along, across))]).stages(grid, 5)) == 5
    with pytest.raises(ValueError, match="statistics of 8 stages for a run of 12"):
        method.run(small_case(), 5)


# FastFlow


def test_fastflow_by_hand(case):
    full, velocity, sigmas = (0, 1, 4, 9, 11), case.velocity(), sigmas_of(case)
    known: list[tuple[float, Any]] = []
    losses = []

    def line(s):
        (s0, old), (s1, new) = known[-2:]
        return (new * (s - s0) - old * (s - s1)) / (s1 - s0)

    def output(n, x):
        if n not in full:
            return line(sigmas[n]).float()
        v = velocity(x, sigmas[n]).double()
        if known:
            guess = line(sigmas[n]) if len(known) > 1 else known[0][1]
            losses.append(float(((guess - v) ** 2).mean()))
        known.append((sigmas[n], v))
        return v.float()

    expected = euler(case, output)
    outcome = FastFlow(full).run(case, 5)
    assert outcome.evaluated == full and torch.allclose(outcome.x, expected, atol=1e-3)
    assert outcome.held == 2 * case.noise.nbytes
    session = Line(case, full)
    session.run()
    assert [(k, arm) for k, arm, _ in session.losses] == [(0, 0), (1, 2), (4, 4), (9, 1)]
    assert [loss for *_, loss in session.losses] == pytest.approx(losses, rel=1e-3)


def test_fastflow_tries_every_arm_on_a_full_run(case):
    _, vs = recorded(case)
    sigmas, found = sigmas_of(case), tried(case, 3)
    assert {(k, arm) for k, arm, _ in found} == {
        (k, arm) for k in range(11) for arm in range(4) if k + arm + 1 < 12
    }
    losses = {(k, arm): loss for k, arm, loss in found}
    slope = (vs[5] - vs[4]) / (sigmas[5] - sigmas[4])
    off = vs[5] + (sigmas[8] - sigmas[5]) * slope - vs[8]
    assert losses[5, 2] == pytest.approx(float((off**2).mean()), rel=1e-3)
    assert losses[0, 1] == pytest.approx(float(((vs[0] - vs[2]) ** 2).mean()), rel=1e-3)


def test_fastflow_makes_one_full_run_of_a_case(case, monkeypatch):
    """Whatever its options and budget; what it finds then is what it finds anew."""
    asked: list[Any] = []
    monkeypatch.setattr(
        "geoshrink_bench.methods.fastflow.outputs_of",
        lambda case: asked.append(case) or outputs_of(case),
    )
    case, options = dataclasses.replace(case), [(5, 3, 1), (7, 2, 2), (7, 4, 1)]
    found = [FastFlow.fit([case], b, most=m, warm_up=w).stages for b, m, w in options]
    assert [id(each) for each in asked] == [id(case)]
    anew = [dataclasses.replace(case) for _ in options]
    assert found == [
        FastFlow.fit([c], b, most=m, warm_up=w).stages for c, (b, m, w) in zip(anew, options)
    ]
    assert len(asked) == 4


def test_bandits_take_the_best_arm():
    grid = Grid.of([1 - i / 10 for i in range(11)])
    bandits = Bandits(grid, 3, warm_up=1)
    # skipping is free from stage 4 on, and dear before
    for k in range(9):
        for arm in range(min(4, 9 - k)):
            bandits.learn([(k, arm, 0.0 if k >= 4 else float(arm))])
    assert bandits.stages(7) == [0, 1, 2, 3, 4, 8, 9]
    assert bandits.stages(4) == [0, 4, 8, 9]
    # an arm that lost is still tried by UCB where the others have been often enough
    for _ in range(50):
        bandits.learn([(4, 3, 0.0)])
    assert bandits.stages(7, gamma=5.0) != bandits.stages(7)
    bandits.learn([(4, 3, 1e6)])
    assert bandits.stages(7)[5] != 8


def test_bandits_do_not_leap_over_a_switch():
    grid = Grid.of([1 - i / 10 for i in range(11)], regimes=[4])
    bandits = Bandits(grid, 8, warm_up=2)
    bandits.learn((k, arm, 0.0) for k in range(9) for arm in range(9) if k + arm + 1 < 10)
    assert bandits.stages(4) == [0, 1, 4, 9]
    with pytest.raises(ValueError, match="a budget of 3 is less than the 4 stages"):
        bandits.stages(3)


# FlowCast


@pytest.mark.parametrize("rollback", [True, False])
@pytest.mark.parametrize("threshold", [0.3, 1.0, 3.0])
def test_flowcast_by_hand(case, threshold, rollback):
    velocity, sigmas, asked = case.velocity(), sigmas_of(case), []

    def ask(n, x):
        asked.append(n)
        return velocity(x, sigmas[n]).double()

    def near(a, b):
        return float(((a - b) ** 2).mean()) < threshold

    n, x, horizon, back = 0, case.noise.double(), 1, False
    v = ask(0, x.float())
    while n < 11:
        k = min(n + horizon, 11)
        there = x + (sigmas[k] - sigmas[n]) * v
        w = ask(k, there.float())
        if near(v, w):
            horizon *= 1 if back else 2
        else:
            back, horizon = rollback and k > n + 1, max(1, (k - n) // 2)
            if back:
                continue
        n, x, v, back = k, there, w, False
    expected = x + (sigmas[12] - sigmas[11]) * v
    outcome = FlowCast(threshold, rollback).run(case, 0)
    assert outcome.evaluated == tuple(sorted(asked)) and len(asked) > 4
    assert torch.allclose(outcome.x.double(), expected, atol=1e-3 * float(expected.abs().max()))
    assert outcome.held <= 2 * case.noise.nbytes


def test_flowcast_doubles_its_horizon_and_halves_what_it_tried():
    """A velocity that changes once, at stage 20 of 32."""
    case = small_case(32, depth=1)
    sigmas = sigmas_of(case)
    late = with_velocity(case, lambda x, s: torch.full_like(x, float(s <= sigmas[20])))
    asked = [0, 1, 3, 7, 15, 31, 23, 19, 23, 21, 20, 21, 23, 27, 31]
    assert FlowCast(0.5).run(late, 0).evaluated == tuple(sorted(asked))
    asked = [0, 1, 3, 7, 15, 31]
    assert FlowCast(0.5, rollback=False).run(late, 0).evaluated == tuple(asked)


def test_flowcast_begins_anew_where_guidance_switches():
    case = small_case(32, depth=1, interval=(0.3, 0.9))
    starts = (0, *case.grid().regimes)
    assert len(starts) == 3
    expected = {31}
    for first, last in zip(starts, (*starts[1:], 32)):
        expected |= {first + n for n in (0, 1, 3, 7, 15) if first + n < last}
    constant = with_velocity(case, lambda x, s: torch.ones_like(x))
    assert set(FlowCast(0.5).run(constant, 0).evaluated) == expected


def test_flowcast_as_its_authors_saves_no_run(case):
    """All drafts are asked for in every round; what stands is kept."""
    velocity, sigmas, asked = case.velocity(), sigmas_of(case), []
    threshold, n, x = 1.0, 0, case.noise.double()
    asked.append(0)
    v = velocity(x.float(), sigmas[0]).double()
    while n < 11:
        drafts = {k: x + (sigmas[k] - sigmas[n]) * v for k in range(n + 1, 12)}
        there = {k: velocity(d.float(), sigmas[k]).double() for k, d in drafts.items()}
        asked += there
        right = [float(((v - there[k]) ** 2).mean()) < threshold for k in there]
        standing = right.index(False) if False in right else len(right)
        n += max(1, standing)
        x, v = drafts[n], there[n]
    expected = x + (sigmas[12] - sigmas[11]) * v
    outcome = FlowCast(threshold, parallel=True).run(case, 0)
    assert outcome.evaluated == tuple(sorted(asked)) and outcome.evaluations > 12
    assert torch.allclose(outcome.x.double(), expected, atol=1e-3 * float(expected.abs().max()))


# Tuning: every option that has choices


@pytest.mark.parametrize("name, names", [("ZEUS", ("fresh", "tail")), ("TACache", ("gain",))])
def test_tuned_options_are_the_best_on_the_training_cases(name, names):
    case = small_case(seed=1)
    off = {}
    for values in product(*(CHOICES[option] for option in names)):
        options = dict(zip(names, values))
        outcome = made(name, case, 7, **options).run(case, 7)
        off[values] = distance(outcome.x, plain(case))
    best = min(off, key=off.__getitem__)
    method = made(name, case, 7, **dict.fromkeys(names, TUNED))
    assert tuple(vars(method)[option] for option in names) == best
    assert len(set(off.values())) == len(off) > 1


def test_tuned_options_work_for_the_methods_that_were_there(case):
    method = made("TaylorSeer-Lite", case, 6, order=TUNED, warm_up=TUNED)
    assert method.order in CHOICES["order"] and method.warm_up in CHOICES["warm_up"]


def test_what_cannot_be_tuned_is_said(monkeypatch, case):
    check_options("ZEUS", {"fresh": "tuned", "warm_up": "tuned", "tail": 2})
    with pytest.raises(ValueError, match=r"FORA: there are no choices to tune 'interval' by"):
        check_options("FORA", {"interval": "tuned"})
    with pytest.raises(ValueError, match="'threshold' by; leave it out, and it is tuned"):
        check_options("FlowCast", {"threshold": "tuned"})
    monkeypatch.setitem(tuning.CHOICES, "fresh", (1, 2))
    expected = (
        "no fresh of 1, 2 stages with a tail of 0, 1, 2 stages fits a budget of 3: with 1, 0, a "
        "budget of 3 is less than"
    )
    with pytest.raises(ValueError, match=expected):
        made("ZEUS", case, 3, fresh=TUNED, tail=TUNED)
