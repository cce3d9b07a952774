"""The report: complete rows, true numbers, plain data, and a table one can read."""

import json
import math
import re
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oracle
from geoshrink import Plan, Report, Rule, Run, sample
from geoshrink.quality.estimate import MARGIN, Estimate
from geoshrink.report import ADVICE, Stage, size

F64 = torch.float64


def shifted(steps: int, shift: float = 3.0) -> list[float]:
    times = [1 - i / steps for i in range(steps + 1)]
    return [shift * t / (1 + (shift - 1) * t) for t in times]


SIGMAS, OTHER = shifted(24), shifted(24, 6.0)
ANCHORS = (0, 1, 2, 3, 5, 8, 11, 15, 19, 23)


def outputs(seed: int = 0, samples: int = 2, width: int = 5, steps: int = 24) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(steps, samples, width)))


def give(value: Any) -> Any:
    return value


def follow(run: Run, values: Any, stages=None, regime=None) -> Report:
    for n in range(run.steps) if stages is None else stages:
        run(n, partial(give, values[n]), regime=None if regime is None else regime(n))
    return run.report


def skipped(anchors=ANCHORS) -> tuple[int, ...]:
    return tuple(n for n in range(24) if n not in anchors)


# --- the rows -----------------------------------------------------------------------------------


def test_there_is_one_row_for_every_stage():
    report = follow(Run(SIGMAS, anchors=ANCHORS), outputs())
    assert [row.stage for row in report.stages] == list(range(24))
    for row in report.stages:
        assert row.slot == 0 and row.sigma == SIGMAS[row.stage]
        assert row.exact == (row.stage in ANCHORS)
        if row.exact:
            assert row.omega is None and row.horizon is None
            assert (row.turning is None) == (row.error is None) == (row.stage == 0)
            assert row.error is None or (row.worst_error or 0) >= row.error > 0
        else:
            assert row.turning is None and row.error is None and row.worst_error is None
            assert row.omega is not None and 0 <= row.omega <= 1
    assert report.steps == 24 and report.queried == ANCHORS and report.extra == ()
    assert report.predicted == skipped() and report.evaluations == 10


def test_the_horizons_are_the_oracles():
    report = follow(Run(SIGMAS, anchors=ANCHORS), outputs())
    for row in report.stages:
        if not row.exact:
            j, k = [a for a in ANCHORS if a < row.stage][-2:]
            assert row.horizon == pytest.approx(oracle.horizon(SIGMAS, row.stage, k, j), rel=1e-12)


# Not the plan's, where the run had to leave the plan.
def test_the_horizons_after_a_restart_are_those_that_were_used():
    values = outputs(1, samples=1)
    report = follow(Run(SIGMAS, anchors=ANCHORS, rule="chordal"), values, regime=lambda n: n >= 9)
    seen: list[int] = []
    spans: list[tuple[int, int]] = []  # (from, to) of every innovation; none reaches across stage 9
    for n in range(24):
        row = report.stages[n]
        if row.exact:
            spans += [(seen[-1], n)] if seen and n != 9 else []
            seen.append(n)
            continue
        j, k = spans[-1]
        middle = (SIGMAS[n] + SIGMAS[n + 1]) / 2
        rho = (middle - SIGMAS[seen[-1]]) / (SIGMAS[k] - SIGMAS[j])
        assert row.horizon == pytest.approx(rho, rel=1e-12), n
        steps = [values[k, 0] - values[j, 0] for j, k in spans]
        sin2 = oracle.sin2(steps[-1], steps[-2] if len(steps) > 1 else None)
        kept = 1 if k == seen[-1] else 0.5
        assert row.omega == pytest.approx(kept / (1 + rho**2 * sin2), rel=1e-9), n


def test_means_are_over_the_samples():
    values = outputs(2, samples=4)
    report = follow(Run(SIGMAS, anchors=ANCHORS, rule="chordal"), values)
    alone = [
        follow(Run(SIGMAS, anchors=ANCHORS, rule="chordal"), values[:, i : i + 1]) for i in range(4)
    ]
    for n in range(2, 24):
        rows = [r.stages[n] for r in alone]
        mine = report.stages[n]
        for name in ("omega", "turning", "error"):
            numbers = [getattr(row, name) for row in rows]
            if numbers[0] is not None:
                assert getattr(mine, name) == pytest.approx(np.mean(numbers), rel=1e-9)
        if mine.exact:
            assert mine.worst_error == pytest.approx(max(r.error or 0 for r in rows), rel=1e-9)


def test_two_slots():
    a, b = outputs(3), outputs(4, width=9)
    pairs = list(zip(a, b))
    report = follow(Run((SIGMAS, OTHER), anchors=ANCHORS), pairs)
    assert [(row.stage, row.slot) for row in report.stages] == [
        (n, s) for n in range(24) for s in (0, 1)
    ]
    for slot, (values, sigmas) in enumerate(((a, SIGMAS), (b, OTHER))):
        alone = follow(Run(sigmas, anchors=ANCHORS), values)
        for mine, its in zip([r for r in report.stages if r.slot == slot], alone.stages):
            assert mine.sigma == its.sigma
            for name in ("omega", "horizon", "turning", "error", "worst_error"):
                wanted = getattr(its, name)
                assert (getattr(mine, name) is None) == (wanted is None)
                assert wanted is None or getattr(mine, name) == pytest.approx(wanted, rel=1e-9)
    assert report.predicted == skipped() and report.evaluations == 10
    assert report.summary() == "10 of 24 stages exact, 14 predicted"
    assert report.bytes_held == 2 * (a[0].nbytes + b[0].nbytes)
    text = str(report)
    assert text.count("  slot 1") == 1
    assert len(re.findall(r"^ +23 ", text, re.M)) == 2
    assert f"{OTHER[5]:7.4f}" in text and f"{SIGMAS[5]:7.4f}" in text


def test_two_slots_of_an_exact_run():
    report = follow(Run((SIGMAS, OTHER)), list(zip(outputs(3), outputs(4, width=9))))
    assert {row.slot for row in report.stages} == {0, 1}


# --- runs that are not finished, or not accelerated ---------------------------------------------


def test_before_the_first_stage():
    report = Run(SIGMAS, 8).report
    assert report.summary() == "0 of 24 stages exact, 0 predicted"
    assert report.stages == () and report.reasons == () and report.bytes_held == 0
    assert "signed time" in str(report)


@pytest.mark.parametrize("until", [1, 4, 5, 7])
def test_an_unfinished_run(until):
    run = Run(SIGMAS, anchors=ANCHORS)
    report = follow(run, outputs(), range(until))
    assert [row.stage for row in report.stages] == list(range(until))
    asked = tuple(a for a in ANCHORS if a < until)
    assert report.queried == asked and report.predicted == tuple(
        n for n in range(until) if n not in ANCHORS
    )
    summary = f"{len(asked)} of 24 stages exact, {until - len(asked)} predicted"
    assert report.summary() == summary and str(report).startswith(summary)
    whole = follow(run, outputs(), range(until, 24))
    assert whole == follow(Run(SIGMAS, anchors=ANCHORS), outputs())


def test_asking_for_the_report_in_between_changes_nothing():
    run, other = Run(SIGMAS, anchors=ANCHORS), Run(SIGMAS, anchors=ANCHORS)
    values, reports = outputs(5), []
    for n in range(24):
        assert torch.equal(run(n, partial(give, values[n])), other(n, partial(give, values[n])))
        reports.append(run.report)
    assert reports[-1] == other.report and len(set(map(str, reports))) > 20


def test_an_exact_run():
    report = follow(Run(SIGMAS), outputs())
    assert report.summary() == "24 of 24 stages exact, 0 predicted"
    assert len(report.stages) == 24 and all(row.exact for row in report.stages)
    assert report.predicted == () and report.reasons == () and report.bytes_held == 0
    assert report.floor == 1.0 and "every stage" in report.plan
    assert json.dumps(report.to_dict()) and "24 of 24" in str(report)


def test_a_budget_that_exceeds_the_steps_says_so():
    report = follow(Run(SIGMAS, 30), outputs())
    assert report.reasons == ((0, "budget 30 exceeds the 24 stages, so all are queried"),)
    assert "budget 30 exceeds the 24 stages" in str(report)


def test_the_report_outlives_the_run():
    run = Run(SIGMAS, anchors=ANCHORS)
    before = follow(run, outputs())
    run.reset()
    assert run.report == before
    _, report = sample(lambda x, s: x * s, torch.ones(1, 3), SIGMAS, 8, with_report=True)
    assert report.evaluations == 8 and report.bytes_held == 2 * 3 * 4


# --- plain data ---------------------------------------------------------------------------------


def test_to_dict_is_plain_data():
    run = Run((SIGMAS, OTHER), anchors=ANCHORS)
    report = follow(run, list(zip(outputs(), outputs(1))), regime=lambda n: n >= 9)
    body = report.to_dict()
    again = json.loads(json.dumps(body, allow_nan=False))
    assert again["queried"] == list(ANCHORS) and again["extra"] == [9]
    assert again["steps"] == 24 and len(again["stages"]) == 48
    assert set(again["stages"][0]) >= {"stage", "slot", "sigma", "exact", "omega", "error"}
    assert again["stages"][8]["omega"] == report.stages[8].omega
    assert again["reasons"][0][0] == 9 and again["bytes_held"] == report.bytes_held
    assert again["floor"] == pytest.approx(report.floor)


def numbers(value: Any):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from numbers(part)
    elif isinstance(value, float):
        yield value


def test_the_data_of_a_bad_run_is_json_all_the_same():
    values = outputs(6)
    values[5, 1] = math.nan
    report = follow(Run(SIGMAS, anchors=ANCHORS), values)
    assert all(math.isfinite(number) for number in numbers(report.to_dict()))
    assert json.dumps(report.to_dict(), allow_nan=False)


def test_the_self_check_of_the_good_samples_survives_a_bad_one():
    values = outputs(6)
    clean = follow(Run(SIGMAS, anchors=ANCHORS), values[:, :1])
    values[5, 1] = math.nan
    report = follow(Run(SIGMAS, anchors=ANCHORS), values)
    for n in (5, 8):
        assert report.stages[n].error == pytest.approx(clean.stages[n].error, rel=1e-9)


def test_the_self_check_of_outputs_that_are_zero():
    report = follow(Run(SIGMAS, anchors=ANCHORS), torch.zeros(24, 2, 5))
    assert "nan" not in str(report)
    assert [report.stages[a].error for a in ANCHORS[1:]] == [0.0] * 9


# --- how it prints ------------------------------------------------------------------------------


def test_how_it_prints():
    sigmas = [1 - i / 50 for i in range(51)]
    run = Run(sigmas, 10, anchors="geometric", rule="chordal")
    report = follow(run, outputs(steps=50))
    text = str(report)
    lines = text.splitlines()
    assert lines[0] == report.summary() == "10 of 50 stages exact, 40 predicted"
    assert lines[1] == str(report.estimate) and "unknown: the run was not given its" in lines[1]
    assert lines[2] == "plan: 10 of 50 stages (geometric anchors, chordal, output space)"
    anchors = (0, 1, 2, 3, 6, 9, 14, 21, 32, 49)
    assert f"Γ̂ in stage index {oracle.certificate(anchors):.2f}" in lines[3]
    rho = max(
        abs(oracle.horizon(sigmas, n, *[a for a in anchors if a < n][-2:][::-1]))
        for n in range(2, 50)
        if n not in anchors
    )
    assert f"retention floor on this grid {1 / (1 + rho**2):.3f}" in lines[3]
    assert "160 bytes held" in lines[3]  # 2 × (2 × 5) float64
    header = lines[4]
    assert all(word in header for word in ("anchor", "σ", "sin²θ", "self-check", "ω"))
    table = [line.split() for line in lines[5:15]]
    assert [int(row[0]) for row in table] == list(anchors)
    assert [float(row[1]) for row in table] == pytest.approx([sigmas[a] for a in anchors], abs=1e-4)
    assert table[0][2:] == ["–", "–", "–"] and table[3][4] == "2" and table[8][4] == "16"
    assert len(lines) == 15 + report.doubtful and max(map(len, lines)) <= 100
    for row, anchor in zip(table[1:], anchors[1:]):
        exact = report.stages[anchor]
        assert float(row[2]) == pytest.approx(exact.turning, abs=6e-4)
        assert float(row[3].rstrip("%")) == pytest.approx(100 * (exact.error or 0), abs=6e-3)


def test_a_floor_is_printed_where_the_rule_keeps_it():
    # Was: the floor of the chordal rule, whatever the rule: 0.308 above a column of ω = 0.00.
    def report_of(**options):
        return follow(Run(SIGMAS, anchors=ANCHORS, **options), outputs())

    for rule in ("chordal", Rule(eps_p=0.1), Rule(clamp=True)):
        report = report_of(rule=rule)
        assert report.floor == Run(SIGMAS, anchors=ANCHORS, rule=rule).plan.floor
        assert f"retention floor on this grid {report.floor:.3f}" in str(report)
        held = [s.omega for s in report.stages if s.horizon is not None]
        assert min(w for w in held if w is not None) >= (report.floor or 1)
    broken = ["signed chordal", "signed time", "time", "log", "exp", "hold", "fixed(1)", "linear"]
    for rule in (*broken, "beta-kappa(0.5)", Rule(eps_s=1.0), ["chordal"] * 9 + ["hold"]):
        report = report_of(rule=rule)
        assert report.floor is None and "floor" not in str(report)
    assert report_of(rule="chordal", coefficients=[0.0] * 24).floor is None


def test_the_range_of_the_coefficients_is_printed():
    run = Run(
        SIGMAS, anchors=(0, 1, 2, 8), rule="fixed(0.5)", coefficients=[None] * 12 + [0.125] * 12
    )
    text = str(follow(run, outputs()))
    assert "0.50" in text and "0.12–0.50" in text and "fixed(0.5)" in text


@pytest.mark.parametrize(
    ("shape", "words"),
    [((1, 5), "40 bytes"), ((10, 50), "4.0 kB"), ((1000, 500), "4.0 MB")],
)
def test_sizes(shape, words):
    run = Run(SIGMAS, anchors=ANCHORS)
    report = follow(run, torch.zeros(24, 1, 1).expand(24, *shape), range(2))
    assert f"{words} held" in str(report)


def test_every_reason_is_printed_with_its_stage():
    run = Run(SIGMAS, anchors=ANCHORS)
    values = outputs(7)
    for n in (*range(10), 9, *range(10, 24)):
        run(n, partial(give, values[n]), regime="b" if n >= 16 else "a")
    run(99, partial(give, values[0]))
    report = run.report
    text = str(report)
    assert [n for n, _ in report.reasons] == [9, 16, 99]
    for n, reason in report.reasons:
        assert f"  stage {n}: {reason}" in text
    assert report.summary() == "10 + 3 of 24 stages exact, 12 predicted"
    assert text.startswith(report.summary())


# On a grid with stages of zero length there are the caller's numbers and the effective ones.
def test_a_stage_has_one_number():
    sigmas = [SIGMAS[0], *SIGMAS]  # the caller's stage n is the effective n − 1
    good, bad = outputs(8), outputs(8)
    bad[8] = math.nan
    named = []
    for values, regime in ((good, lambda n: n >= 9), (bad, lambda n: 0)):
        run = Run(sigmas, anchors=ANCHORS)
        for n in range(25):
            run(n, partial(give, values[max(0, n - 1)]), regime=regime(n))
        words = ("regime", "not finite")
        named.append(next(n for n, r in run.report.reasons if any(w in r for w in words)))
    assert named[0] == named[1], named


def test_plans_are_described():
    described: list[tuple[dict[str, Any], str]] = [
        (dict(budget=8, correct=False), "auto anchors, signed time, output space"),
        (dict(budget=8), "auto (cells are not corrected: the solver is not known; pass solver="),
        (dict(budget=8, anchors="uniform", rule="hold"), "uniform anchors, hold, output space"),
        (dict(budget=8, space="data", rule="fixed(0.5)"), "fixed(0.5), data space"),
        (dict(anchors=(0, 1, 4), rule=["hold", "time", "time"]), "explicit anchors, hold, time,"),
        (dict(budget=8, regimes=(20,)), "8 of 24 stages"),
    ]
    for options, words in described:
        assert words in str(Run(SIGMAS, **options).report)


# --- speed --------------------------------------------------------------------------------------


def test_a_long_run_is_reported_in_linear_time():
    calls = 0

    class Counting(Plan):
        def horizons(self, slot: int = 0):
            nonlocal calls
            calls += 1
            return super().horizons(slot)

    plan = Plan.of(shifted(200), 10)
    plan = Counting(plan.grid, plan.anchors, plan.rules, mesh=plan.mesh)
    run = Run(plan)
    follow(run, outputs(steps=200))
    assert calls <= 12


def test_an_empty_batch():
    x, report = sample(lambda x, s: x, torch.ones(0, 3), SIGMAS, 8, with_report=True)
    assert x.shape == (0, 3) and report.evaluations == 8 and str(report)


# --- doubt --------------------------------------------------------------------------------------


def checked(*errors: list[float]) -> Report:
    """A report whose anchors have these self-checks, a list per slot."""
    rows = [
        Stage(n, slot, 0.5, True, error=error)
        for slot, own in enumerate(errors)
        for n, error in enumerate(own)
    ]
    return Report("", 24, ANCHORS, (), tuple(rows), (), 0, None, None)


def test_a_run_is_doubtful_if_it_is_not_ahead_of_direct_by_a_margin():
    edge = 20 + MARGIN
    for db, doubtful in ((edge + 0.1, False), (edge, False), (edge - 0.1, True), (12.0, True)):
        report = replace(checked([]), estimate=Estimate(db, db - 5, db + 5, direct=20.0))
        assert report.doubtful == doubtful and (ADVICE in str(report)) == doubtful
    assert (
        "about 12 dB to the full run (7 to 17), where direct step reduction is expected to have "
        f"about 20 dB: {ADVICE}" in str(report)
    )


def test_a_run_of_which_nothing_is_estimated_is_not_doubtful():
    assert not checked([0.9, 0.9, 0.9]).doubtful
    assert not replace(checked([]), estimate=Estimate(math.inf, math.inf, math.inf)).doubtful


def test_the_first_two_self_checks_of_each_slot_do_not_count():
    assert checked([9.0, 9.0, 0.1, 0.3]).self_check == pytest.approx(0.2)
    assert checked([9.0, 9.0, 0.1], [9.0, 9.0, 0.3, 0.5]).self_check == pytest.approx(0.3)
    assert checked([9.0, 9.0]).self_check is None


@pytest.mark.parametrize(
    ("count", "words"), [(999, "999 bytes"), (1000, "1.0 kB"), (2_500_000, "2.5 MB")]
)
def test_sizes_are_in_units_of_a_thousand(count, words):
    assert size(count) == words
