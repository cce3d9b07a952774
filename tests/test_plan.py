"""Plan = grid + anchors + rule as plain data: how it is chosen, refused, stored and read back."""

import json
import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import geoshrink
import oracle
from geoshrink.blocks import Blocks
from geoshrink.grid import Grid
from geoshrink.meshes import geometric_anchors, sigma_anchors, uniform_anchors
from geoshrink.plan import METHODS, VERSION, Plan
from geoshrink.rules import RULES, Rule
from geoshrink.rules.retention import Statistics, retention

modest = settings(deadline=None, max_examples=60)
approx = pytest.approx
LINE = [1 - i / 50 for i in range(51)]


def shifted(T: int, shift: float) -> list[float]:
    return [shift * (1 - i / T) / (1 + (shift - 1) * (1 - i / T)) for i in range(T + 1)]


# --- there and back ---------------------------------------------------------------------------

PLANS = {
    "default": Plan.of(LINE, 10),
    "paper": Plan.of(LINE, 10, **METHODS["paper"]),
    "exact": Plan.of(LINE),
    "too much": Plan.of(LINE, 99),
    "one stage": Plan.of([1, 0]),
    "two anchors": Plan.of(LINE, anchors=(0, 7)),
    "hold": Plan.of(LINE, 2, rule="hold"),
    "several grids": Plan.of(([1, 0.6, 0.3, 0.1, 0], [0, 0.3, 0.5, 0.5, 1]), anchors=[0, 1, 3]),
    "dict of grids": Plan.of({"a": shifted(20, 3.0), "b": torch.linspace(0, 1, 21)}, 6),
    "zero-length stages": Plan.of([1, 1, 0.9, 0.5, 0.5, 0.2, 0.1, 0, 0], 4),
    "regimes": Plan.of(LINE, 12, regimes=[7, 30]),
    "no σ-mesh": Plan.of([1, 0.1, 0.08, 0.05, 0.02, 0.01, 0.005, 0.001, 0], 5),
    "rules per cell": Plan.of(
        LINE, 4, rule=["chordal", "hold", "fixed(0.1)", Rule("exp", clamp=True)]
    ),
    "odd numbers": Plan.of(
        LINE, 10, rule=Rule("beta-kappa", True, 1 / 3, 2 / 3, 1e-17, True, 1e-300)
    ),
    "coefficients": Plan.of(LINE, 10, coefficients=[None, 1 / 3, 2, -0.5, 0] * 10),
    "channels": Plan.of(LINE, 10, blocks=Blocks((0, 1), groups=(512, 4096))),
    "shared": Plan.of(LINE, 10, blocks=Blocks((0, 1), shared=True)),
    "whole tensor": Plan.of(LINE, 10, blocks=Blocks(())),
    "data space": Plan.of(LINE, 10, space="data"),
    "ascending data space": Plan.of(np.linspace(0, 1, 30), 10, space="data", data=1.0),
    "epsilon": Plan.of(shifted(20, 2.0)[1:], 6, prediction="epsilon", alphas="vp"),
    "v in data space": Plan.of([9, 5, 3, 2, 1, 0.1], 4, prediction="v", alphas="ve", space="data"),
    "own alphas": Plan.of([3, 2, 1, 0], prediction="sample", alphas=[0.1, 0.2, 0.5, 1 / 3]),
    "float32": Plan.of(torch.linspace(1, 0, 29), 10),
    "bfloat16": Plan.of(torch.linspace(1, 0, 300, dtype=torch.bfloat16), 10),
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_plans_survive_json(plan):
    text = plan.to_json()
    again = Plan.from_json(text)
    assert again == plan and hash(again) == hash(plan)
    assert again.to_json() == text and repr(again) == repr(plan) and str(again) == str(plan)
    assert {plan: 1}[again] == 1
    assert (again.history, again.horizons()) == (plan.history, plan.horizons())
    assert (again.floor, again.certificate, again.exact) == (
        plan.floor,
        plan.certificate,
        plan.exact,
    )


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_the_json_is_strict_and_pretty_printing_keeps_it(plan):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    body = json.loads(plan.to_json(), parse_constant=refuse)
    assert body["version"] == VERSION
    reordered = json.dumps(dict(reversed(body.items())), indent=2)
    assert Plan.from_json(reordered) == plan


def test_different_plans_are_different():
    texts = {plan.to_json() for plan in PLANS.values()}
    assert len(set(PLANS.values())) == len(texts) == len(PLANS)


@modest
@given(st.integers(0, 2**32))
def test_random_plans_survive_json(seed):
    rng = np.random.default_rng(seed)
    T, grids = int(rng.integers(4, 30)), int(rng.integers(1, 4))
    gaps = rng.uniform(0, 1, (grids, T)) * (rng.random((1, T)) < 0.9)
    gaps[:, 0] += 0.1
    columns = np.concatenate([np.zeros((grids, 1)), np.cumsum(gaps, 1)], 1)
    sigmas = [(c if rng.random() < 0.5 else c[-1] - c).tolist() for c in columns]
    regimes = rng.choice(T, int(rng.integers(0, 3)), replace=False).tolist()
    grid = Grid.of(sigmas, regimes=regimes)
    inner = [n for n in range(1, grid.steps) if n in grid.regimes or rng.random() < 0.4]
    anchors = (0, *inner) if inner or grid.steps == 1 else (0, grid.steps - 1)
    rules = [
        Rule(str(rng.choice(list(RULES))), signed=bool(rng.integers(2)), value=float(rng.normal()))
        for _ in anchors
    ]
    some = [None if rng.random() < 0.5 else float(rng.standard_normal()) for _ in grid.kept]
    plan = Plan.of(
        grid, anchors=anchors, rule=rules, coefficients=some, blocks=Blocks((0, 1), shared=False)
    )
    assert Plan.from_json(plan.to_json()) == plan
    assert hash(Plan.from_json(plan.to_json())) == hash(plan)


# --- files that are no plan, or no longer one -------------------------------------------------


def edited(**changes: Any) -> str:
    return json.dumps(json.loads(PLANS["default"].to_json()) | changes)


def edited_grid(**changes: Any) -> str:
    return edited(grid=json.loads(PLANS["default"].to_json())["grid"] | changes)


def edited_track(**changes: Any) -> str:
    track = json.loads(PLANS["default"].to_json())["grid"]["tracks"][0]
    return edited_grid(tracks=[track | changes])


def without(*path: str) -> str:
    body = json.loads(PLANS["default"].to_json())
    inner = body
    for key in path[:-1]:
        inner = inner[key] if key != "tracks" else inner[key][0]
    del inner[path[-1]]
    return json.dumps(body)


@pytest.mark.parametrize(
    "text", ["", "{", "not json", "[]", "null", "5", '"plan"', "{}", '{"a": 1}']
)
def test_what_is_no_plan_is_called_that(text):
    with pytest.raises(ValueError, match="not a geoshrink plan") as error:
        Plan.from_json(text)
    assert repr(text) in str(error.value)


def test_a_long_foreign_file_is_quoted_in_part():
    with pytest.raises(ValueError, match="not a geoshrink plan") as error:
        Plan.from_json("x" * 10_000)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("text", [None, 5, {"version": 1}])
def test_what_is_no_text_is_no_plan(text):
    # Was: "'NoneType' object is not subscriptable", "unhashable type: 'slice'".
    with pytest.raises((TypeError, ValueError), match="geoshrink plan"):
        Plan.from_json(text)


@pytest.mark.parametrize("version", [2, 99, "1.1", None])
def test_plans_of_another_version(version):
    with pytest.raises(ValueError, match=rf"version {version!r}, .* reads {VERSION}"):
        Plan.from_json(edited(version=version))


@pytest.mark.parametrize(
    "path",
    [
        ("grid",),
        ("anchors",),
        ("rules",),
        ("blocks",),
        ("coefficients",),
        ("grid", "tracks"),
        ("grid", "kept"),
        ("grid", "given"),
        ("grid", "regimes"),
        ("grid", "tracks", "sigmas"),
        ("grid", "tracks", "prediction"),
    ],
    ids=".".join,
)
def test_a_plan_with_a_part_missing_is_damaged(path):
    with pytest.raises(ValueError, match=f"damaged.*{path[-1]}"):
        Plan.from_json(without(*path))


DAMAGED = {
    "an unknown part": edited(colour="red"),
    "anchors are a number": edited(anchors=5),
    "anchors are text": edited(anchors="abc"),
    "anchors are fractions": edited(anchors=[0, 1.5]),
    "anchors leave the grid": edited(anchors=[0, 1000], rules=[{}, {}]),
    "too few rules": edited(rules=[{}]),
    "an unknown rule": edited(rules=[{"name": "foo"}] * 10),
    "rules are names": edited(rules=["chordal"] * 10),
    "a rule's number is text": edited(rules=[{"value": "x"}] * 10),
    "a rule has an unknown part": edited(rules=[{"gamma": 1}] * 10),
    "blocks are null": edited(blocks=None),
    "an unknown space": edited(space="latent"),
    "space is a number": edited(space=5),
    "coefficients are text": edited(coefficients="abc"),
    "coefficients are a list of text": edited(coefficients=["a"] * 50),
    "coefficients are nan": edited(coefficients=[math.nan] * 50),
    "grid is null": edited(grid=None),
    "grid is a list": edited(grid=[1, 0]),
    "a regime without an anchor": edited_grid(regimes=[5]),
    "a regime off the grid": edited_grid(regimes=[400]),
    "a kept list cut short": edited_grid(kept=[0, 1, 2]),
    "no track list": edited_grid(tracks=5),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=list(DAMAGED))
def test_damaged_plans_are_refused(text):
    with pytest.raises(ValueError):
        Plan.from_json(text)


UNNOTICED = {
    "no tracks": edited_grid(tracks=[]),
    "σ is nan": edited_track(sigmas=[math.nan] * 51),
    "σ is infinite": edited_track(sigmas=[math.inf, *LINE[1:]]),
    "σ is text": edited_track(sigmas=["a"] * 51),
    "σ turns": edited_track(sigmas=[1, 0] * 25 + [1]),
    "σ cut short": edited_track(sigmas=LINE[:20]),
    "σ too long": edited_track(sigmas=[*LINE, -1.0]),
    "an unknown prediction": edited_track(prediction="foo"),
    "noise without α": edited_track(prediction="epsilon"),
    "α cut short": edited_track(prediction="v", alphas=[1.0, 1.0]),
    "the data end is text": edited_track(data="x"),
    "the data end is nan": edited_track(data=math.nan),
    "fewer stages given than kept": edited_grid(given=3),
    "stages given are null": edited_grid(given=None),
    "kept stages are text": edited_grid(kept=[str(n) for n in range(50)]),
    "kept stages go back": edited_grid(kept=[*range(49), 0]),
    "mesh is a list": edited(mesh=[1]),
}


@pytest.mark.parametrize("text", UNNOTICED.values(), ids=list(UNNOTICED))
def test_a_damaged_grid_is_noticed(text):
    # Was: read_grid builds Track and Grid without any check: nan or too few σ, unknown predictions
    # and missing α are accepted and fail in mid-run, or give a silently wrong image.
    with pytest.raises(ValueError):
        Plan.from_json(text)


def test_damaged_blocks_are_called_damaged():
    # Was: "invalid literal for int() with base 10: 'x'" does not say that a plan is being read.
    with pytest.raises(ValueError, match=r"damaged|blocks|dims"):
        Plan.from_json(edited(blocks={"dims": "x"}))


# --- explicit anchors -------------------------------------------------------------------------

BAD_ANCHORS: list[tuple[Any, str]] = [
    ((1, 2, 3), r"first anchor must be stage 0.*\(1, 2, 3\)"),
    ((-1, 0, 4), r"first anchor must be stage 0.*\(-1, 0, 4\)"),
    ((0, 2, 1), r"must increase, got \(0, 2, 1\)"),
    ((0, 3, 3), r"must increase, got \(0, 3, 3\)"),
    ((0, 50), "anchor 50 is not one of the 50 stages 0 … 49"),
    ((0, 5, 1000), "anchor 1000 is not one of the 50 stages"),
    ((0,), r"at least 2 anchors, got \(0,\)"),
    ((), r"got \(\)"),
    ((0, True), r"stage numbers, got \(0, True\)"),
    ((False, 1), r"stage numbers, got \(False, 1\)"),
    ((0, 1.0, 2), r"stage numbers, got \(0, 1\.0, 2\)"),
    ((0, 1.5), r"stage numbers, got \(0, 1\.5\)"),
    ((0, "1"), r"stage numbers, got \(0, '1'\)"),
    ((0, None), r"stage numbers, got \(0, None\)"),
    ("index", "unknown anchors 'index'; choose one of auto, corrected, sigma, geometric, uniform"),
    ("", "unknown anchors ''"),
]


@pytest.mark.parametrize(("anchors", "message"), BAD_ANCHORS, ids=[repr(a) for a, _ in BAD_ANCHORS])
def test_bad_anchors_are_quoted(anchors, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Plan.of(LINE, None if not isinstance(anchors, str) else 10, anchors=anchors)


def test_an_unknown_mesh_is_refused_even_without_a_budget():
    with pytest.raises(ValueError, match="unknown anchors 'index'"):
        Plan.of(LINE, anchors="index")


@pytest.mark.parametrize("anchors", [5, 0.5])
def test_a_single_number_is_no_list_of_anchors(anchors):
    # Was: "'int' object is not iterable".
    with pytest.raises((TypeError, ValueError), match="anchors"):
        Plan.of(LINE, anchors=anchors)


@pytest.mark.parametrize("anchors", [[0, 5, 9, 49], (0, 1), range(0, 50, 7), iter([0, 4])])
def test_any_sequence_of_stages_is_a_mesh(anchors):
    plan = Plan.of(LINE, anchors=anchors)
    assert plan.mesh == "explicit" and plan.anchors[0] == 0 and not plan.exact
    assert plan.budget == len(plan.anchors) == len(plan.rules)


@pytest.mark.parametrize(
    "anchors",
    [np.array([0, 5, 10]), [np.int64(0), np.int32(5), 10], torch.tensor([0, 5, 10])],
    ids=["array", "list", "tensor"],
)
def test_numpy_and_torch_stage_numbers_are_anchors(anchors):
    # Was: "anchors are stage numbers, got (np.int64(0), …)": they are. Convert by operator.index.
    plan = Plan.of(LINE, anchors=anchors)
    assert plan == Plan.of(LINE, anchors=[0, 5, 10])
    assert all(type(a) is int for a in plan.anchors)
    assert Plan.from_json(plan.to_json()) == plan


def test_every_regime_begins_with_an_anchor():
    with pytest.raises(
        ValueError, match=r"stage 20 begins a regime and must be an anchor; got \(0, 5"
    ):
        Plan.of(LINE, anchors=(0, 5, 30), regimes=[20, 30])
    assert Plan.of(LINE, anchors=(0, 20, 30), regimes=[20, 30]).restarts == {20, 30}


def test_anchors_count_effective_stages():
    """Stage 3 of a grid of 5 with a zero-length one is the last; 4 does not exist."""
    sigmas = [1, 0.8, 0.8, 0.5, 0.2, 0]
    assert Plan.of(sigmas, anchors=(0, 3)).anchors == (0, 3)
    with pytest.raises(ValueError, match="anchor 4 is not one of the 4 stages 0 … 3"):
        Plan.of(sigmas, anchors=(0, 4))


# --- budgets and speed-ups --------------------------------------------------------------------


@modest
@given(st.integers(1, 200), st.one_of(st.floats(1, 12), st.integers(1, 300)))
def test_a_speedup_is_a_budget(T, speedup):
    plan = Plan.of([1 - i / T for i in range(T + 1)], speedup=speedup)
    wanted = max(4, round(Fraction(T) / Fraction(speedup)))
    assert plan.budget == min(T, wanted)
    assert plan.anchors == Plan.of([1 - i / T for i in range(T + 1)], min(T, wanted)).anchors


def test_speedups_by_hand():
    assert [Plan.of(LINE, speedup=s).budget for s in (1, 1.0, 2, 5, 10, 12.5, 50, 1e9)] == [
        50,
        50,
        25,
        10,
        5,
        4,
        4,
        4,
    ]
    assert Plan.of(LINE, speedup=4).budget == 12  # 12.5 to even, as Python's round
    assert Plan.of(LINE, speedup=3.4).budget == 15  # 14.7
    assert Plan.of(LINE, speedup=1).exact


@pytest.mark.parametrize("speedup", [0.99, 0.5, 0, -3, -math.inf])
def test_a_speedup_below_one(speedup):
    with pytest.raises((TypeError, ValueError), match=f"speedup must be .*{speedup}"):
        Plan.of(LINE, speedup=speedup)


@pytest.mark.parametrize("speedup", [math.nan, math.inf, True, "5", [5]])
def test_a_speedup_is_a_finite_number(speedup):
    with pytest.raises(TypeError, match="speedup must be a finite number") as error:
        Plan.of(LINE, speedup=speedup)
    assert repr(speedup) in str(error.value)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_numpy_speedups_are_numbers(kind):
    # Was: np.int64(5) and np.float32(5) are refused as "not a finite number"; np.float64 is not.
    assert Plan.of(LINE, speedup=kind(5)).budget == 10


def test_one_of_budget_speedup_and_anchors():
    with pytest.raises(ValueError, match=r"a budget \(10\) or a speedup \(5\), not both"):
        Plan.of(LINE, 10, speedup=5)
    with pytest.raises(ValueError, match="leave out budget and speedup"):
        Plan.of(LINE, 10, anchors=(0, 1, 2))
    with pytest.raises(ValueError, match="leave out budget and speedup"):
        Plan.of(LINE, speedup=5, anchors=(0, 1, 2))


def test_a_budget_beyond_the_grid_runs_exactly_and_says_so():
    plan = Plan.of(LINE, 51)
    assert plan.exact and plan.anchors == tuple(range(50))
    assert "budget 51 exceeds the 50 stages" in plan.mesh
    assert "budget 51 exceeds the 50 stages" in str(plan)
    exact = Plan.of(LINE, 50)
    assert exact.exact and exact.mesh == "every stage" and exact.anchors == plan.anchors


def test_a_budget_counts_effective_stages():
    sigmas = [1, 1, 0.8, 0.5, 0.5, 0.2, 0.1, 0, 0]  # five that move
    assert Plan.of(sigmas, 5).exact and "exceeds" not in Plan.of(sigmas, 5).mesh
    assert "budget 8 exceeds the 5 stages" in Plan.of(sigmas, 8).mesh
    assert not Plan.of(sigmas, 4).exact


@pytest.mark.parametrize("T", [1, 2, 3])
def test_short_grids_run_exactly_at_any_sufficient_budget(T):
    sigmas = list(range(T, -1, -1))
    for budget in (T, T + 1, 4, 10):
        assert Plan.of(sigmas, budget).exact
    assert Plan.of(sigmas, speedup=10).exact


def test_hold_plans_from_two():
    assert Plan.of(LINE, 2, rule="hold").anchors == (0, 49)
    assert Plan.of(LINE, 3, rule="hold").anchors == (0, 24, 49)
    assert Plan.of(LINE, 3, rule="hold", anchors="geometric").budget == 3
    assert Plan.of(LINE, 4, rule="hold").anchors == sigma_anchors(LINE, 4)
    assert Plan.of(LINE, 2, rule=["hold", "signed hold"]).budget == 2
    with pytest.raises(ValueError, match="at least 4"):
        Plan.of(LINE, 3, rule=["hold", "hold", "chordal"])
    for budget in (2, 3):
        assert Plan.of(LINE, budget, anchors="uniform").anchors == uniform_anchors(50, budget)


# --- regimes ----------------------------------------------------------------------------------


@modest
@given(st.integers(0, 2**32), st.sampled_from(["sigma", "geometric", "uniform"]))
def test_regimes_share_the_budget(seed, mesh):
    rng = np.random.default_rng(seed)
    T = int(rng.integers(8, 60))
    starts = np.sort(rng.choice(np.arange(1, T), int(rng.integers(1, 4)), replace=False)).tolist()
    budget = int(rng.integers(max(4, len(starts) + 1), T))
    plan = Plan.of(shifted(T, 3.0), budget, anchors=mesh, regimes=starts)
    assert plan.budget == budget and set(starts) <= set(plan.anchors)
    spans = list(zip([0, *starts], [*starts, T]))
    everywhere = Plan.of(shifted(T, 3.0), budget, anchors=mesh).anchors
    for first, last in spans:
        own = [a - first for a in plan.anchors if first <= a < last]
        length, count = last - first, len(own)
        there = sum(first <= a < last for a in everywhere)
        assert count <= max(1, there) and count >= min(there, 1)
        if count == length:
            assert own == list(range(length))
            continue
        if last < T:  # the mesh ends where the next regime begins
            own, length, count = [*own, length], length + 1, count + 1
        if mesh == "geometric" and count >= 4:
            assert own == list(geometric_anchors(length, count))
        elif mesh == "sigma" and count >= 4:
            part = shifted(T, 3.0)[first : first + length + 1]
            assert tuple(own) == (sigma_anchors(part, count) or geometric_anchors(length, count))
        else:
            assert own == list(uniform_anchors(length, count))


def test_more_regimes_than_queries():
    with pytest.raises(ValueError, match=r"budget 4 is smaller than the number of regimes, 6"):
        Plan.of(LINE, 4, regimes=[5, 10, 15, 20, 25])
    assert Plan.of(LINE, 6, regimes=[5, 10, 15, 20, 25]).anchors == (0, 5, 10, 15, 20, 25)


def test_the_mesh_of_every_regime_is_named():
    plan = Plan.of(LINE, 8, regimes=[40], anchors="sigma")
    assert plan.mesh == "sigma + uniform"
    assert Plan.of(LINE, 20, regimes=[25], anchors="geometric").mesh == "geometric"


# --- history and horizons ---------------------------------------------------------------------


@modest
@given(st.integers(0, 2**32))
def test_history_by_brute_force(seed):
    """Replays the run: a list of queried stages that a regime empties. Its first cell is measured
    in units of the last span of the regime before, if that has one.
    """
    rng = np.random.default_rng(seed)
    T = int(rng.integers(2, 40))
    starts = sorted(set(rng.integers(1, T, int(rng.integers(0, 4))).tolist()))
    anchors = [n for n in range(T) if n == 0 or n in starts or rng.random() < 0.4]
    if len(anchors) < 2:
        anchors.append(T - 1)
    sigmas = np.cumsum(rng.uniform(0.1, 1, T + 1))
    plan = Plan.of(sigmas, anchors=anchors, regimes=starts)
    for n in range(T):
        begin = max([0, *(s for s in starts if s <= n)])
        seen = [a for a in anchors if begin <= a < n][::-1][:3]
        assert plan.history[n] == tuple(seen)
        rho, lam = plan.horizons()[n]
        former = max([0, *(s for s in starts if s < begin)])
        before = [a for a in anchors if former <= a < begin][::-1][:2]
        if len(seen) < 2 and not (seen and len(before) > 1):
            assert (rho, lam) == (0.0, 0.0) and plan.sources[n] == ()
            continue
        k, late, early = (seen[0], *seen[:2]) if len(seen) > 1 else (seen[0], *before)
        scale = (sigmas[k] - sigmas[early]) / (sigmas[late] - sigmas[early])
        assert rho == approx(scale * oracle.horizon(sigmas, n, k, early), rel=1e-9)
        assert lam == approx(scale * oracle.reach(sigmas, n, k, early), rel=1e-9)


def test_every_slot_has_its_own_horizons():
    plan = Plan.of((LINE, shifted(50, 5.0)), 10, anchors="geometric")
    assert plan.horizons(0) == Plan.of(LINE, 10, anchors="geometric").horizons()
    assert plan.horizons(1) == Plan.of(shifted(50, 5.0), 10, anchors="geometric").horizons()
    single = Plan.of(LINE, 10)
    assert single.horizons(3) == single.horizons(0)  # one grid serves every slot


def test_horizons_are_the_caller_s_to_change():
    # Was: the cached list itself is handed out, so sorting or clearing it spoils the plan.
    plan = Plan.of(LINE, 10)
    before = list(plan.horizons())
    plan.horizons().clear()
    assert list(plan.horizons()) == before


def test_the_first_grid_places_the_anchors_of_all():
    grids = (shifted(50, 3.0), LINE)
    assert Plan.of(grids, 10).anchors == Plan.of(grids[0], 10).anchors
    assert Plan.of(grids[::-1], 10).anchors == Plan.of(LINE, 10).anchors


def test_the_first_given_grid_leads_whatever_its_name():
    first, second = shifted(50, 3.0), LINE
    for names in (("a", "b"), ("b", "a")):
        plan = Plan.of(dict(zip(names, (first, second))), 10)
        assert plan.anchors == Plan.of(first, 10).anchors
        assert Plan.from_json(plan.to_json()) == plan


def test_a_coordinate_that_turns_back_has_no_sigma_mesh():
    # Was: τ = σ/(α + σ) need not be monotone if α is not; np.interp then answers nonsense.
    sigmas = [0.9, 0.89, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.0]
    alphas = [0.1, 0.11, 0.5, 0.1, 0.6, 0.1, 0.7, 0.1, 0.8, 0.9, 1.0, 1.0]
    plan = Plan.of(sigmas, 5, prediction="sample", alphas=alphas)
    assert plan.anchors == geometric_anchors(11, 5) and "geometric" in plan.mesh


def test_a_first_grid_that_stands_still_places_valid_anchors():
    """Its σ-mesh may fail, but the plan has B increasing anchors from 0 to T − 1 all the same."""
    for first in (
        [1.0] * 21,
        [1.0] * 10 + [0.5] * 11,
        [1.0, 1.0, *np.linspace(0.9, 0, 19).tolist()],
    ):
        plan = Plan.of((first, shifted(20, 3.0)), 7, anchors="sigma")
        assert plan.budget == 7 and plan.anchors[0] == 0 and plan.anchors[-1] == 19
        assert all(b > a for a, b in pairwise(plan.anchors))


# --- the paper's rows -------------------------------------------------------------------------

ROWS: dict[str, tuple[Any, list[Any]]] = {
    "Fixed-Linear": (uniform_anchors, [lambda dv, prev, rho, lam: lam]),
    "Fixed-Linear (ω = 1)": (uniform_anchors, [lambda dv, prev, rho, lam: 1.0]),
    "Geo-Linear": (geometric_anchors, [lambda dv, prev, rho, lam: lam]),
    "Geo-Linear (ω = 1)": (geometric_anchors, [lambda dv, prev, rho, lam: 1.0]),
    "Fixed-Shrink": (uniform_anchors, [lambda *a: oracle.retention("chordal", *a)]),
    "GeoShrink": (geometric_anchors, [lambda *a: oracle.retention("chordal", *a)]),
    "paper": (geometric_anchors, [lambda *a: oracle.retention("chordal", *a)]),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(("T", "B"), [(50, 10), (28, 7)])
def test_the_ablation_s_rows_are_what_they_say(name, T, B):
    mesh, (coefficient,) = ROWS[name]
    sigmas = shifted(T, 3.0)
    plan = Plan.of(sigmas, B, **METHODS[name])
    assert plan.anchors == mesh(T, B) and plan.space == "output" and plan.blocks == Blocks()
    rng = np.random.default_rng(0)
    for n, (rho, lam) in enumerate(plan.horizons()):
        if n in plan.anchors or len(plan.history[n]) < 2:
            continue
        dv, prev = rng.standard_normal((2, 6))
        S, P, D = (torch.tensor(x) for x in (dv @ dv, prev @ prev, dv @ prev))
        rule = plan.rules[plan.anchors.index(plan.history[n][0])]
        found = retention(rule, Statistics(S, P, D), torch.tensor(rho), torch.tensor(lam))
        assert float(found) == approx(coefficient(dv, prev, rho, lam), rel=1e-5)


def test_every_method_builds_and_none_can_be_lost():
    assert {"geoshrink", "default", "uncorrected", "paper", *ROWS} == set(METHODS)
    plans = {name: Plan.of(shifted(50, 3.0), 10, **options) for name, options in METHODS.items()}
    assert plans["paper"] == plans["GeoShrink"]
    assert len(set(plans.values())) == len(METHODS) - 2
    assert plans["default"] == plans["geoshrink"] == Plan.of(shifted(50, 3.0), 10)
    assert plans["default"].rules[0] == Rule("time", signed=True)
    assert plans["default"].mesh == "corrected" and plans["uncorrected"].mesh == "auto"
    with pytest.raises(TypeError):
        METHODS["paper"] = {}  # type: ignore[index]


def test_a_method_cannot_be_edited_by_accident():
    # Was: only the outer mapping is read-only: METHODS["paper"]["rule"] = "hold" goes through.
    paper: Any = METHODS["paper"]
    before = dict(paper)
    try:
        with pytest.raises(TypeError):
            paper["rule"] = "hold"
    finally:
        if dict(paper) != before:
            paper.update(before)


# --- rules, coefficients, blocks, space -------------------------------------------------------


def test_rules_per_cell():
    names = ["chordal", "hold", "fixed(0.5)", Rule("exp")]
    plan = Plan.of(LINE, 4, rule=names)
    assert plan.rules == (Rule(), Rule("hold"), Rule("fixed", value=0.5), Rule("exp"))
    assert str(plan).count("hold") == 1
    for few in (names[:3], names * 2, []):
        with pytest.raises(ValueError, match=f"{len(few)} rules for 4 cells"):
            Plan.of(LINE, 4, rule=few)
    with pytest.raises(ValueError, match="unknown rule 'chordl'"):
        Plan.of(LINE, 4, rule=["chordal", "hold", "chordl", "exp"])


@pytest.mark.parametrize("rule", [5, 0.5])
def test_a_rule_of_the_wrong_kind_is_named(rule):
    with pytest.raises((TypeError, ValueError), match=f"rule.*{rule}"):
        Plan.of(LINE, 10, rule=rule)


def test_coefficients_are_one_per_stage_and_finite():
    plan = Plan.of(LINE, 10, coefficients=[None, 0.5] * 25)
    assert plan.coefficients == (None, 0.5) * 25
    for count in (0, 49, 51):
        with pytest.raises(ValueError, match=f"{count} coefficients for 50 stages"):
            Plan.of(LINE, 10, coefficients=[None] * count)
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=f"coefficients must be finite, got {bad}"):
            Plan.of(LINE, 10, coefficients=[None] * 49 + [bad])


@pytest.mark.parametrize(
    "ones",
    [np.ones(50), np.ones(50, dtype=np.float32), torch.ones(50), [np.float32(1)] * 50],
    ids=["float64", "float32", "tensor", "list"],
)
def test_coefficients_become_plain_floats(ones):
    # Was: they are kept as they come: to_json fails ("float32 is not JSON serializable"), and two
    # equal plans made from tensors have different hashes.
    plan = Plan.of(LINE, 10, coefficients=ones)
    plain = Plan.of(LINE, 10, coefficients=[1.0] * 50)
    assert plan == plain and hash(plan) == hash(plain)
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("bad", ["0.5", [0.5], {}])
def test_a_coefficient_that_is_no_number_is_quoted(bad):
    # Was: "must be real number, not str" quotes nothing.
    with pytest.raises((TypeError, ValueError), match="coefficient"):
        Plan.of(LINE, 10, coefficients=[bad] * 50)


@pytest.mark.parametrize("space", ["latent", "Data", "", None, 0])
def test_an_unknown_space_is_quoted(space):
    with pytest.raises(ValueError, match=f"unknown space {space!r}; choose one of output, data"):
        Plan.of(LINE, 10, space=space)


@pytest.mark.parametrize("blocks", ["sample", (0, 1), 0, ()], ids=repr)
def test_blocks_are_blocks(blocks):
    # Was: anything is accepted and fails in mid-run, or not at all: blocks=() and blocks=0 mean
    # "per sample" silently.
    with pytest.raises(TypeError, match="blocks"):
        Plan.of(LINE, 10, blocks=blocks)


@pytest.mark.parametrize("rule", ["log", "signed exp", ["chordal"] * 9 + ["log"]])
def test_a_rule_without_a_shared_form_is_refused_when_planned(rule):
    # Was: found out only after the third model call, in shared_retention.
    with pytest.raises(ValueError, match="no shared form"):
        Plan.of(LINE, 10, rule=rule, blocks=Blocks((0, 1), shared=True))


def test_a_grid_is_taken_as_it_is():
    grid = Grid.of(LINE, regimes=[20])
    assert Plan.of(grid, 10) == Plan.of(LINE, 10, regimes=[20])


@pytest.mark.parametrize(
    "options",
    [
        {"regimes": [20]},
        {"prediction": "epsilon"},
        {"alphas": "vp"},
        {"alphas": np.ones(51)},
        {"data": 1.0},
    ],
    ids=["regimes", "prediction", "alphas", "array of alphas", "data"],
)
def test_a_grid_leaves_nothing_to_say_about_the_grid(options):
    # Was: with an array of alphas "The truth value of an array … is ambiguous".
    with pytest.raises(ValueError, match=next(iter(options))):
        Plan.of(Grid.of(LINE), 10, **options)


def test_lists_handed_to_the_constructor_keep_a_plan_hashable():
    # Was: Plan(grid, [0, 5], [Rule(), Rule()]) is accepted, and hash(plan) fails.
    parts: Any = ([0, 5], [Rule(), Rule()])
    plan = Plan(Grid.of(LINE), *parts)
    assert hash(plan) == hash(Plan.of(LINE, anchors=(0, 5), rule="chordal"))


# --- what a plan says -------------------------------------------------------------------------


def test_a_plan_reads_like_a_sentence():
    assert str(Plan.of(LINE, 10)) == (
        "10 of 50 stages (corrected anchors, signed time, output space, corrected (half), "
        "clock: mesh, others if outputs move slowly)"
    )
    before = "10 of 50 stages (auto anchors, signed time, output space)"
    assert str(Plan.of(LINE, 10, correct=False)) == before
    text = str(Plan.of(LINE, 4, rule=["chordal", "hold", "hold", "chordal"], space="data"))
    assert text == "4 of 50 stages (auto anchors, chordal, hold, data space)"


def test_a_refined_plan_is_not_exact():
    assert Plan.of(LINE).exact and not Plan.of(LINE, refine=2).exact


def test_an_exact_plan_reads_like_one_too():
    # Was: "every stage: budget 60 exceeds the 50 stages anchors, signed chordal, output space".
    assert "stages anchors" not in str(Plan.of(LINE, 60))
    assert "stage anchors" not in str(Plan.of(LINE))


# --- what mutants taught -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("anchors", "certified"),
    [
        ((0, 1, 2, 4, 9), 5 / 2),
        ((0, 1, 2, 9), 7.0),
        ((0, 1, 9), None),
        ((0, 2, 4, 9), None),
        ((0, 1, 2, 4, 8), None),
    ],
)
def test_only_the_paper_s_meshes_are_certified(anchors, certified):
    plan = Plan.of([1 - i / 10 for i in range(11)], anchors=anchors)
    assert plan.certificate == certified


def test_the_floor_is_that_of_the_farthest_skipped_stage():
    """Stage 5 lies 3.5 gaps of one stage ahead; the anchor 6, which is farther, is not skipped."""
    plan = Plan.of([1 - i / 8 for i in range(9)], anchors=(0, 1, 2, 6))
    assert plan.floor == approx(1 / (1 + 3.5**2))


def test_the_horizons_are_those_of_the_first_grid_unless_another_is_named():
    plan = Plan.of(([1, 0.9, 0.6, 0.3, 0], [1, 0.5, 0.2, 0.1, 0]), anchors=(0, 1))
    assert plan.horizons() == plan.horizons(0) != plan.horizons(1)
    assert plan.horizons(1)[2] == approx((0.35 / 0.5, 0.3 / 0.5))


def test_a_plan_says_how_often_it_is_refined_and_whose_the_coefficients_are():
    for refine in (2, 3):
        assert str(Plan.of(LINE, 10, refine=refine)).endswith(f", refined {refine} times)")
    assert "refined" not in str(Plan.of(LINE, 10))
    for own, said in (([None] * 49 + [0.5], True), ([None] * 50, False)):
        plan = Plan.of(LINE, 10, coefficients=own)
        assert (", ω of its own, " in str(plan)) == said


def test_tables_made_in_inference_mode_are_fit_for_gradients():
    with torch.inference_mode():
        tables = Plan.of(LINE, 10).tables
    assert not any(table.is_inference() for table in tables)


def test_the_floor_of_a_plan_that_skips_nothing_is_one():
    assert Plan.of([1.0, 0.5, 0.0]).floor == 1.0


def test_coefficients_of_one_s_own_promise_no_floor():
    grid, anchors = [1 - i / 6 for i in range(7)], (0, 1, 2, 5)
    given: Any = dict(anchors=anchors, rule="chordal")
    assert Plan.of(grid, **given).keeps_floor
    own: Any = [None, None, None, 0.1, 0.1, None]
    assert not Plan.of(grid, coefficients=own, **given).keeps_floor
    assert Plan.of(grid, coefficients=[None] * 6, **given).keeps_floor


@pytest.mark.parametrize("space", ["output", "data"])
def test_tables_have_the_weights_of_every_cell(space):
    grid = Grid.of([1 - i / 8 for i in range(9)])
    plan = Plan.of(grid, anchors=(0, 1, 2, 5), space=space)
    weights = plan.tables[0][2]
    track = grid.tracks[0]
    for first, end in ((2, 5), (5, 8)):
        wanted = track.euler_weights(range(first + 1, end), space == "data")[1]
        assert weights[first + 1 : end].tolist() == list(wanted)
    assert weights[[0, 1, 2, 5]].tolist() == [0.0] * 4


def test_a_file_that_is_no_plan_is_named(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text('{"geoshrink profile": 2}')
    with pytest.raises(ValueError, match=r"mine\.json: this is a profile, from which plans are"):
        Plan.load(file)
    file.write_text("[1]")
    with pytest.raises(ValueError, match=r"mine\.json: this is not a geoshrink plan"):
        geoshrink.sample(lambda x, sigma: x, torch.zeros(1, 2), plan=file)


def test_a_subclass_is_loaded_as_itself(tmp_path):
    class Own(Plan):
        pass

    file = Plan.of([1 - i / 8 for i in range(9)], 5).save(tmp_path / "plan.json")
    assert type(Own.load(file)) is Own
