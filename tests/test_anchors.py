"""Where to query: the closure root, the meshes, their certificates, shared budgets, bad budgets.

The yardsticks are the oracle, exact decimal arithmetic, and a walk over every skipped stage.
"""

import math
from decimal import Decimal, localcontext
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from geoshrink.grid import Grid
from geoshrink.meshes import (
    certificate,
    closure_root,
    continuous_mesh,
    geometric_anchors,
    project,
    retention_floor,
    share_budget,
    sigma_anchors,
    uniform_anchors,
)
from geoshrink.plan import Plan

EPS = float(np.finfo(float).eps)
modest = settings(deadline=None, max_examples=60)


def uniform_grid(T: int) -> list[float]:
    return [1 - i / T for i in range(T + 1)]


def shifted_grid(T: int, shift: float) -> list[float]:
    return [shift * u / (1 + (shift - 1) * u) for u in uniform_grid(T)]


def karras_sigmas(T: int, high: float, low: float, power: float = 7.0) -> list[float]:
    a, b = high ** (1 / power), low ** (1 / power)
    return [(a + i / (T - 1) * (b - a)) ** power for i in range(T)] + [0.0]


def random_grid(T: int, seed: int, ascending: bool) -> list[float]:
    """Gaps over three decades: the first may be far too wide or far too narrow for the budget."""
    rng = np.random.default_rng(seed)
    ends = np.concatenate([[0.0], np.cumsum(10.0 ** rng.uniform(-3, 0, T))])
    grid = ends / ends[-1] * rng.uniform(0.5, 3.0)
    return (grid if ascending else grid[::-1]).tolist()


def fast_root(total: float, budget: int) -> float:
    """The oracle's root by bisection on d = r − 1 in doubles; good to a few ulp of d."""
    low, high = 0.0, max(total, 1.0)
    for _ in range(2000):
        d = (low + high) / 2
        if d in (low, high):
            break
        power = (budget - 2) * math.log1p(d)
        reached = 1 + (math.expm1(power) / d if power < 700 else math.inf)
        low, high = (d, high) if reached < total else (low, d)
    return 1 + (low + high) / 2


def is_mesh(anchors: tuple[int, ...], T: int, B: int) -> bool:
    rises = all(b > a for a, b in pairwise(anchors))
    whole = all(type(a) is int for a in anchors)
    return (
        rises and whole and len(anchors) == B and anchors[:3] == (0, 1, 2) and anchors[-1] == T - 1
    )


# --- the closure root -------------------------------------------------------------------------


def decimal_sum(r: Decimal, budget: int) -> Decimal:
    return 1 + (Decimal(budget - 2) if r == 1 else (r ** (budget - 2) - 1) / (r - 1))


def assert_root(total: float, budget: int, ulps: int = 2) -> None:
    """The exact left side crosses the total within a few ulp of the returned root."""
    r = closure_root(total, budget)
    assert r >= 1
    with localcontext() as context:
        context.prec = 120
        tiny = Decimal(ulps) * Decimal(EPS)
        assert decimal_sum(Decimal(r) * (1 + tiny), budget) >= Decimal(total)
        if r > 1:
            assert decimal_sum(max(Decimal(1), Decimal(r) * (1 - tiny)), budget) <= Decimal(total)
        else:
            assert decimal_sum(1 + tiny, budget) >= Decimal(total)


@pytest.mark.parametrize("T", [4, 5, 6, 7, 13, 28, 50, 80, 100, 333, 1000, 4096, 10000])
def test_closure_root_is_exact_to_two_ulp(T):
    budgets = {4, 5, 6, 7, 10, 25, T // 10, T // 3, T // 2, T - 3, T - 2, T - 1, T}
    for B in sorted(b for b in budgets if 4 <= b <= T):
        assert_root(T - 1, B)


@pytest.mark.parametrize(
    ("T", "B"),
    [(4, 4), (5, 4), (50, 10), (28, 10), (50, 49), (50, 50), (1000, 4), (1000, 17), (10000, 9)],
)
def test_closure_root_equals_the_oracle(T, B):
    assert closure_root(T - 1, B) == pytest.approx(
        oracle.closure_root(T - 1, B), rel=2 * EPS, abs=0
    )


@modest
@given(st.integers(4, 60), st.floats(0, 1e7))
def test_closure_root_of_a_fractional_total(budget, more):
    """The σ-mesh asks for totals that are not whole, and for totals a hair above B − 1."""
    assert_root(budget - 1 + more, budget)


def test_closure_root_at_the_edge_of_existence():
    assert closure_root(9, 10) == 1
    assert 1 < closure_root(9 + 1e-9, 10) < 1 + 1e-10
    assert closure_root(10**4 - 1, 10**4) == 1
    with pytest.raises(ValueError, match=r"10 anchors do not fit into 8\.5 first gaps"):
        closure_root(8.5, 10)
    with pytest.raises(ValueError, match="at least 4, got 3"):
        closure_root(49, 3)
    with pytest.raises(ValueError, match="nan"):
        closure_root(math.nan, 10)


def test_an_infinite_total_has_no_root():
    # Was: closure_root(inf, 10) returns 1.0: Newton's step is nan and taken for convergence.
    with pytest.raises(ValueError, match="inf"):
        closure_root(math.inf, 10)


@pytest.mark.parametrize(
    ("total", "budget"), [(49, 10), (27.5, 6), (9, 10), (1e4, 4), (312.25, 40)]
)
def test_continuous_mesh_grows_by_the_root_and_closes(total, budget):
    mesh, r = continuous_mesh(total, budget), oracle.closure_root(total, budget)
    gaps = np.diff(mesh)
    assert len(mesh) == budget and mesh[:3] == [0, 1, 2]
    assert mesh[-1] == pytest.approx(total, rel=1e-12)
    assert gaps[2:] / gaps[1:-1] == pytest.approx(np.full(budget - 3, r), rel=1e-9)


# --- the index mesh ---------------------------------------------------------------------------


def test_the_issue_s_own_meshes():
    assert geometric_anchors(50, 10) == (0, 1, 2, 3, 6, 9, 14, 21, 32, 49)
    assert geometric_anchors(28, 10) == (0, 1, 2, 3, 5, 7, 10, 15, 20, 27)


def test_every_mesh_up_to_32_stages_equals_the_oracle():
    for T in range(4, 33):
        for B in range(4, T + 1):
            assert geometric_anchors(T, B) == oracle.geometric_anchors(T, B), (T, B)


def test_every_mesh_up_to_80_stages_equals_the_oracle(monkeypatch):
    """All 3,003 pairs; the oracle's 60-digit root is replaced by a fast one to save a minute."""
    for total, budget in ((49, 10), (79, 4), (79, 77), (63, 40)):
        assert fast_root(total, budget) == pytest.approx(
            oracle.closure_root(total, budget), rel=1e-14
        )
    monkeypatch.setattr(oracle, "closure_root", fast_root)
    for T in range(4, 81):
        for B in range(4, T + 1):
            mesh = geometric_anchors(T, B)
            assert mesh == oracle.geometric_anchors(T, B), (T, B)
            assert is_mesh(mesh, T, B), (T, B)


@pytest.mark.parametrize("T", [81, 250, 1000, 10000])
def test_long_meshes_are_feasible(T):
    for B in (4, 5, 9, 30, T // 2, T - 2, T - 1, T):
        assert is_mesh(geometric_anchors(T, B), T, B), (T, B)


def test_a_full_budget_takes_every_stage():
    for T in (1, 2, 3, 4, 5, 50, 10000):
        assert geometric_anchors(T, T) == geometric_anchors(T, T + 7) == tuple(range(T))


def test_rounding_is_half_even_and_guarded():
    assert project([0, 1, 2, 4.5, 5.5, 9], 10) == (0, 1, 2, 4, 6, 9)
    assert project([0, 1, 2, 2.1, 2.2, 2.3, 20], 21) == (0, 1, 2, 3, 4, 5, 20)  # lower guard
    assert project([0, 1, 2, 18, 19, 19.5, 20], 21) == (0, 1, 2, 17, 18, 19, 20)  # upper guard


# --- the σ-mesh -------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", range(1, 13))
def test_sigma_mesh_on_shifted_grids(shift):
    for T, budgets in ((9, (4, 7)), (28, (4, 10, 27)), (50, (5, 7, 10, 15, 40)), (100, (10, 25))):
        grid = shifted_grid(T, shift)
        for B in budgets:
            found = sigma_anchors(grid, B)
            assert (found or geometric_anchors(T, B)) == oracle.sigma_anchors(grid, B), (T, B)
            assert found is None or is_mesh(found, T, B)
            plan = Plan.of(torch.tensor(grid, dtype=torch.float64), B, anchors="sigma")
            assert plan.anchors == oracle.sigma_anchors(grid, B)


def test_the_sigma_mesh_is_another_mesh_on_a_shifted_grid():
    grid = shifted_grid(50, 3.0)
    found = sigma_anchors(grid, 10)
    assert found is not None and found != geometric_anchors(50, 10)
    gaps = np.abs(np.diff(np.array(grid)[list(found)]))
    assert gaps[0] < gaps[3] < gaps[-1]


@pytest.mark.parametrize(("shift", "T", "B"), [(1.001, 50, 12), (1.003, 50, 10), (1.01, 80, 20)])
def test_a_slightly_shifted_grid_is_not_taken_for_a_uniform_one(shift, T, B):
    grid = shifted_grid(T, shift)
    assert sigma_anchors(grid, B) == oracle.sigma_anchors(grid, B) != geometric_anchors(T, B)


@pytest.mark.parametrize("high", [1.0, 14.6, 80.0])
@pytest.mark.parametrize("T", [12, 40])
def test_sigma_mesh_on_karras_grids(high, T):
    sigmas = karras_sigmas(T, high, 0.002)
    tau = [oracle.tau(s, 1.0) for s in sigmas]
    for B in (4, 6, 10):
        plan = Plan.of(sigmas, B, anchors="sigma", prediction="epsilon", alphas="ve")
        assert plan.anchors == oracle.sigma_anchors(tau, B)
        assert is_mesh(plan.anchors, T, B)


@modest
@given(st.integers(5, 70), st.integers(0, 2**32), st.booleans(), st.data())
def test_sigma_mesh_on_random_grids(T, seed, ascending, data):
    grid = random_grid(T, seed, ascending)
    B = data.draw(st.integers(4, min(T, 25)))
    found = sigma_anchors(grid, B)
    assert (found or geometric_anchors(T, B)) == oracle.sigma_anchors(grid, B)
    way = [abs(s - grid[0]) for s in grid]
    if B < T and not math.isclose(way[T - 1], way[1] * (B - 1), rel_tol=1e-12):
        assert (found is None) == (way[T - 1] < way[1] * (B - 1))


@modest
@given(st.integers(5, 40), st.integers(0, 2**32), st.floats(-5, 5), st.floats(0.01, 100))
def test_sigma_mesh_ignores_an_affine_change_of_time(T, seed, offset, scale):
    grid = np.array(random_grid(T, seed, ascending=False))
    B = 4 + seed % (T - 3)
    moved = [(offset - scale * grid).tolist(), (offset + scale * grid).tolist()]
    assert {sigma_anchors(grid.tolist(), B)} == {sigma_anchors(g, B) for g in moved}


def test_sigma_mesh_rounds_ties_to_even():
    """Positions 6 and 8 of a mesh with equal gaps fall at indices 4.5 and 6: 4.5 goes to 4."""
    grid = [0.0, 2, 3, 4, 5, 7, 8, 9, 10, 11]
    assert sigma_anchors(grid, 6) == oracle.sigma_anchors(grid, 6) == (0, 1, 2, 4, 6, 8)


def test_sigma_mesh_equals_geometric_on_uniform_grids():
    for T in range(4, 61):
        for B in range(4, T + 1):
            expected = geometric_anchors(T, B)
            assert sigma_anchors(uniform_grid(T), B) == expected, (T, B)
            for low, high in ((0, 1), (1, 0), (0.25, -3)):
                rounded = np.linspace(low, high, T + 1, dtype=np.float32).tolist()
                assert sigma_anchors(rounded, B) == expected, (T, B, low, high)


@pytest.mark.parametrize(
    ("T", "B", "start"), [(94, 89, 1), (104, 89, 1), (109, 80, 1), (63, 56, 1000), (101, 27, 1000)]
)
def test_sigma_mesh_equals_geometric_on_long_float32_grids(T, B, start):
    # Was: float32 rounding of a uniform grid moves an anchor whose s̃_q lies near a half.
    grid = torch.linspace(start, 0, T + 1, dtype=torch.float32)
    assert Plan.of(grid, B, anchors="sigma").anchors == geometric_anchors(T, B)


def test_sigma_mesh_falls_back_where_the_root_is_below_one():
    grid = [1, 0.1, 0.08, 0.05, 0.02, 0.01, 0.005, 0.001, 0]
    for B in (4, 5, 7):
        assert sigma_anchors(grid, B) is None
        plan = Plan.of(grid, B, anchors="sigma")
        assert plan.anchors == geometric_anchors(8, B)
        assert "geometric" in plan.mesh and "below 1" in plan.mesh
    assert sigma_anchors(grid, 8) == tuple(range(8))
    assert sigma_anchors([0.0, 2, 3, 4, 5.9, 7], 4) is None  # 5.9 < 3·2
    assert sigma_anchors([0.0, 2, 3, 4, 6, 7], 4) == (0, 1, 2, 4)  # root exactly 1


@pytest.mark.parametrize("first", [0.189, 0.191, 0.203])
def test_sigma_mesh_where_the_root_is_one_up_to_rounding(first):
    # Was: total ≥ first·(B − 1) holds but total/first rounds below B − 1: closure_root raises.
    end = round(3 * first, 3)
    grid = [0.0, first, *np.linspace(first, end, 6)[1:-1].tolist(), end, end + first]
    assert Plan.of(grid, 4).anchors == oracle.sigma_anchors(grid, 4)


def test_a_vanishing_first_gap_still_gives_a_mesh():
    for first in (1e-9, 1e-300, 5e-324):
        grid = [0.0, first, *np.linspace(0.1, 1, 20).tolist()]
        found = sigma_anchors(grid, 8) or geometric_anchors(21, 8)
        assert is_mesh(found, 21, 8)


# --- uniform anchors --------------------------------------------------------------------------


@modest
@given(st.integers(2, 300), st.data())
def test_uniform_anchors_are_the_nearest_stages_to_equal_gaps(T, data):
    B = data.draw(st.integers(2, T))
    anchors, gap = uniform_anchors(T, B), (T - 1) / (B - 1)
    assert len(anchors) == B and anchors[0] == 0 and anchors[-1] == T - 1
    assert all(abs(a - i * gap) <= 0.5 + 1e-9 for i, a in enumerate(anchors))
    assert {b - a for a, b in pairwise(anchors)} <= {math.floor(gap), math.ceil(gap)}


def test_uniform_anchors_of_small_budgets():
    assert uniform_anchors(50, 1) == (0,)
    assert uniform_anchors(50, 2) == (0, 49)
    assert uniform_anchors(50, 3) == (0, 24, 49)  # 24.5 to even
    assert uniform_anchors(3, 5) == (0, 1, 2)


# --- certificates -----------------------------------------------------------------------------


def walk(anchors, grid):
    """(ρ, λ) of every skipped stage that has two observations before it, from the definition."""
    out = []
    for n in range(len(grid) - 1):
        past = [a for a in anchors if a < n]
        if n not in anchors and len(past) > 1:
            k, j = past[-1], past[-2]
            out.append((oracle.horizon(grid, n, k, j), oracle.reach(grid, n, k, j)))
    return out


@modest
@given(st.integers(5, 90), st.integers(0, 2**32), st.booleans(), st.data())
def test_certificate_bounds_every_horizon_of_a_uniform_grid(T, seed, geometric, data):
    """Also for meshes that no rule made: 0, 1, 2, anything, T − 1."""
    B = data.draw(st.integers(4, T - 1))
    mesh = geometric_anchors(T, B)
    if not geometric:
        inner = np.random.default_rng(seed).choice(np.arange(3, T - 1), B - 4, replace=False)
        mesh = (0, 1, 2, *sorted(int(i) for i in inner), T - 1)
    rho = [abs(r) for r, _ in walk(mesh, uniform_grid(T))]
    gamma = certificate(mesh)
    assert gamma == pytest.approx(oracle.certificate(mesh), rel=1e-15)
    assert max(rho) <= gamma * (1 + 1e-9)
    gaps = np.diff(mesh)
    attained = max((h - 0.5) / before for before, h in pairwise(gaps[1:]) if h > 1)
    assert max(rho) == pytest.approx(attained, rel=1e-9)
    plan = Plan.of(uniform_grid(T), anchors=mesh, rule="chordal")
    assert plan.certificate == gamma
    assert plan.floor == pytest.approx(1 / (1 + attained**2), rel=1e-9)
    assert plan.floor >= retention_floor(gamma) - 1e-12


def test_the_certificate_of_the_issue_s_mesh():
    assert certificate((0, 1, 2, 3, 6, 9, 14, 21, 32, 49)) == 3
    assert certificate(range(5)) == 1
    assert retention_floor(3.0) == pytest.approx(0.1)
    assert retention_floor(-3.0) == retention_floor(3.0)


@pytest.mark.parametrize("mesh", [(0, 1, 2), (0, 1, 3, 5, 9), (0, 2, 4, 6), (1, 2, 3, 4), ()])
def test_only_canonical_meshes_are_certified(mesh):
    with pytest.raises(ValueError, match="at least 4 anchors, got"):
        certificate(mesh)


@pytest.mark.parametrize(
    ("anchors", "regimes"), [((0, 5, 9, 49), ()), ((0, 1, 2, 30), ()), ((0, 1, 2, 20, 49), (20,))]
)
def test_a_plan_claims_no_certificate_it_does_not_have(anchors, regimes):
    assert Plan.of(uniform_grid(50), anchors=anchors, regimes=regimes).certificate is None


@modest
@given(st.integers(6, 40), st.integers(0, 2**32), st.booleans())
def test_plan_floor_is_a_floor_of_the_chordal_rule(T, seed, ascending):
    """On any grid, for any innovations; the orthogonal pair attains it."""
    rng = np.random.default_rng(seed)
    grid, B = random_grid(T, seed, ascending), int(rng.integers(4, T))
    for mesh in ("sigma", "geometric"):
        plan = Plan.of(grid, B, anchors=mesh, rule="chordal")
        horizons = walk(plan.anchors, grid)
        dv, dv_prev = rng.standard_normal((2, 5)) * 10.0 ** rng.uniform(-3, 3, (2, 1))
        omegas = [oracle.retention("chordal", dv, dv_prev, r, lam) for r, lam in horizons]
        assert min(omegas) >= plan.floor * (1 - 1e-9)
        square = [oracle.retention("chordal", [1, 0], [0, 1], rho, lam) for rho, lam in horizons]
        assert min(square) == pytest.approx(plan.floor, rel=1e-9)


def test_the_floor_of_several_grids_is_that_of_the_worst():
    grids = (uniform_grid(20), shifted_grid(20, 9.0))
    plan = Plan.of(grids, 6, anchors="geometric")
    floors = [Plan.of(g, 6, anchors="geometric").floor for g in grids]
    assert plan.floor == min(floors) < max(floors)


def test_an_exact_plan_keeps_everything():
    assert Plan.of(uniform_grid(9)).floor == 1


# --- sharing a budget -------------------------------------------------------------------------


@modest
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.data())
def test_share_budget_counts_the_anchors_of_each_regime(lengths, data):
    ends = list(accumulate(lengths))
    spans = list(zip([0, *ends], ends))
    count = data.draw(st.integers(len(lengths), ends[-1]))
    anchors = sorted(data.draw(st.permutations(range(ends[-1])))[:count])
    shares = share_budget(anchors, spans)
    counts = [sum(first <= a < last for a in anchors) for first, last in spans]
    assert sum(shares) == count
    assert all(1 <= share <= length for share, length in zip(shares, lengths))
    if min(counts) >= 1:
        assert shares == counts
    assert all(s == 1 or s <= c for s, c in zip(shares, counts))  # none grows beyond its own one


def test_share_budget_by_hand():
    assert share_budget((0, 1, 2, 3, 9, 24), [(0, 4), (4, 19), (19, 25)]) == [4, 1, 1]
    assert share_budget((0, 1, 2, 3), [(0, 4), (4, 19), (19, 25)]) == [2, 1, 1]
    assert share_budget((0, 3, 6), [(0, 7)]) == [3]


def test_share_budget_refuses_regimes_without_a_query():
    with pytest.raises(ValueError, match=r"budget 2 .* number of regimes, 3"):
        share_budget((0, 14), [(0, 5), (5, 10), (10, 15)])


@pytest.mark.parametrize("mesh", ["sigma", "geometric", "uniform"])
@pytest.mark.parametrize("budget", range(4, 25))
def test_regimes_are_queried_at_their_start_and_within_the_budget(mesh, budget):
    grid = Grid.of(shifted_grid(25, 3.0), regimes=(4, 19))
    anchors = Plan.of(grid, budget, anchors=mesh).anchors
    assert len(anchors) == budget and {0, 4, 19} <= set(anchors)


def test_a_regime_is_meshed_up_to_the_next_one():
    """As TRELLIS at its own setting: early stages densely, none spent on the end of a regime."""
    grid = Grid.of(shifted_grid(25, 3.0), regimes=(4, 19))
    assert Plan.of(grid, 10, anchors="sigma").anchors == (0, 1, 2, 3, 4, 5, 6, 10, 19, 24)


# --- bad budgets ------------------------------------------------------------------------------

MESHES: list[Any] = [
    lambda b: geometric_anchors(50, b),
    lambda b: sigma_anchors(uniform_grid(50), b),
    lambda b: uniform_anchors(50, b),
    lambda b: Plan.of(uniform_grid(50), b).anchors,
    lambda b: Plan.of(uniform_grid(50), b, anchors="geometric").anchors,
    lambda b: Plan.of(uniform_grid(50), b, anchors="uniform").anchors,
    lambda b: Plan.of(uniform_grid(50), b, rule="hold").anchors,
]


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("budget", [True, False, 10.0, 10.5, "10", np.True_, np.float64(10), [10]])
def test_a_budget_is_a_whole_number(mesh, budget):
    with pytest.raises(TypeError, match="budget must be an integer") as error:
        mesh(budget)
    assert repr(budget) in str(error.value)


@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8])
def test_numpy_budgets_are_welcome(mesh, kind):
    # Was: np.uint8(10) overflows in share_budget (length·budget stays uint8): convert it to int.
    assert mesh(kind(10)) == mesh(10)
    assert all(type(a) is int for a in mesh(kind(10)))
    assert mesh(kind(60)) == tuple(range(50))


@pytest.mark.parametrize("budget", [3, 2, 1, 0, -1, -50])
@pytest.mark.parametrize("mesh", [0, 1, 3, 4])
def test_geometric_meshes_need_four(mesh, budget):
    with pytest.raises(ValueError, match=f"budget {budget} is too small.* at least 4"):
        MESHES[mesh](budget)


@pytest.mark.parametrize("budget", [1, 0, -1])
@pytest.mark.parametrize("mesh", [5, 6])
def test_uniform_and_hold_plans_need_two(mesh, budget):
    with pytest.raises(ValueError, match=f"budget {budget} is too small.* at least 2"):
        MESHES[mesh](budget)


@pytest.mark.parametrize("steps", [2, 3])
def test_a_too_small_budget_of_a_short_grid_is_told_what_is_possible(steps):
    # Was: "this mesh needs at least 4 of the 3 stages": there are no 4; say "all 3 stages".
    with pytest.raises(ValueError, match=f"budget {steps - 1}") as error:
        geometric_anchors(steps, steps - 1)
    assert f"4 of the {steps}" not in str(error.value)


@pytest.mark.parametrize("steps", [50.0, 50.5, "50"])
def test_stages_are_counted_in_whole_numbers(steps):
    # Was: geometric_anchors(50.5, 10) returns (…, 33, 49.5).
    with pytest.raises(TypeError, match="50"):
        geometric_anchors(steps, 10)


def test_numpy_stage_counts_give_plain_integers():
    # Was: geometric_anchors(np.int64(50), 10)[-1] is an np.int64, which no Plan accepts.
    for mesh in (geometric_anchors, uniform_anchors):
        stages: Any = np.int64(50)
        assert all(type(a) is int for a in mesh(stages, 10))


def test_no_stages_at_all():
    for mesh in (geometric_anchors, uniform_anchors):
        with pytest.raises(ValueError, match="at least 1"):
            mesh(0, 4)
