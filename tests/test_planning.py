"""Planning from Gram matrices: cells against real runs, searches against every set of anchors."""

import math
import time
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
import torch

from geoshrink import profile, sample
from geoshrink.grid import Grid
from geoshrink.plan import Plan
from geoshrink.planning.cells import CALIBRATED, Cells
from geoshrink.planning.gains import (
    falling,
    fitted_gains,
    gain_stages,
    hold_cell,
    perturbation,
)
from geoshrink.planning.planner import RULES, direct_plan
from geoshrink.planning.profiling import profile_batch
from geoshrink.planning.search import Regime, cheapest, coarse, shared
from geoshrink.planning.space import View, gram
from geoshrink.planning.tournament import default_budgets
from geoshrink.rules import Rule
from geoshrink.rules.retention import Statistics, retention
from toy import shifted

T, N, D = 12, 3, 5


pytestmark = pytest.mark.usefixtures("one_thread")


def grid_of(kind: str) -> Grid:
    if kind == "flow":
        return Grid.of(shifted(T))
    return Grid.of([0.99 * s for s in shifted(T)], prediction=kind, alphas="vp")


def smooth(samples: int, steps: int, size: int, seed: int = 0) -> torch.Tensor:
    """Outputs that turn slowly, one row per stage."""
    generator = torch.Generator().manual_seed(seed)
    a, b, c = torch.randn(3, samples, 1, size, generator=generator, dtype=torch.float64)
    t = torch.linspace(0, 1, steps, dtype=torch.float64)[None, :, None]
    return a + b * torch.sin(4 * t + c) + 0.3 * c * t**2


def by_stage(grid: Grid, z: torch.Tensor, space: str):
    """A velocity whose output, or data prediction, at stage n is z_n, whatever x is."""
    track = grid.tracks[0]

    def velocity(x: torch.Tensor, sigma: float) -> torch.Tensor:
        n = track.sigmas.index(sigma)
        if space == "output":
            return z[:, n]
        a, b = track.data_map(n)
        return (z[:, n] - a * x) / b

    return velocity


def states(velocity: Any, x: torch.Tensor, plan: Plan) -> list[torch.Tensor]:
    found = [x]
    sample(velocity, x, plan=plan, dtype=torch.float64, callback=lambda n, x: found.append(x))
    return found


def views_of(
    grid: Grid, x: torch.Tensor, velocity: Any, space: str, clock: str = "sigma"
) -> tuple[View, list]:
    outputs: list[torch.Tensor] = []

    def noting(x: torch.Tensor, sigma: float) -> torch.Tensor:
        outputs.append(velocity(x, sigma))
        return outputs[-1]

    full = states(noting, x, Plan.of(grid))
    products = gram([x, *outputs])
    return View.of(grid.tracks[0], products, space, 0, grid.steps, clock=clock), full


@pytest.mark.parametrize("kind", ["flow", "epsilon"])
@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != CALIBRATED])
def test_a_cell_costs_what_a_real_run_is_off(kind, space, rule):
    grid = grid_of(kind)
    z, x = smooth(N, T, D), torch.randn(N, D, dtype=torch.float64)
    velocity = by_stage(grid, z, space)
    view, full = views_of(grid, x, velocity, space)
    anchors = (0, 2, 5, 6, 9)
    made = states(velocity, x, Plan.of(grid, anchors=anchors, rule=rule, space=space))
    off = [a - b for a, b in zip(made, full)]
    ones = torch.ones(T + 1, dtype=torch.float64)
    for place, (k, end) in enumerate(pairwise((*anchors, T))):
        shrink = 1.0
        for n in range(k, end):
            p, g = grid.tracks[0].euler(n)
            if space == "data":
                a, b = grid.tracks[0].data_map(n)
                p -= g * a / b
            shrink *= p
        error = off[end] - shrink * off[k]  # what this cell added
        costs = Cells([view], [ones], anchors, place).costs(rule)
        cost = costs[max(place - 2, 0), max(place - 1, 0), 0]
        assert float(cost) == pytest.approx(
            float(error.square().sum(1).mean()), rel=1e-7, abs=1e-12
        )


@pytest.mark.parametrize(
    ("kind", "space", "gain"),
    [("flow", "output", 1.0), ("flow", "data", 0.0), ("epsilon", "data", 0.0)],
)
@pytest.mark.parametrize("clock", ["sigma", "mesh"])
def test_a_corrected_cell_costs_what_a_corrected_run_is_off(kind, space, gain, clock):
    """With the gain that leaves the outputs as they are, so that each cell stands for itself."""
    grid = grid_of(kind)
    z, x = smooth(N, T, D), torch.randn(N, D, dtype=torch.float64)
    velocity = by_stage(grid, z, space)
    view, full = views_of(grid, x, velocity, space, clock)
    anchors, rule, share = (0, 2, 5, 6, 9), "signed time", 0.3
    options: dict[str, Any] = dict(rule=rule, space=space, clock=clock, correct=gain)
    made = states(velocity, x, Plan.of(grid, anchors=anchors, **options))
    off = [a - b for a, b in zip(made, full)]
    factors = []
    for n in range(T):
        p, g = grid.tracks[0].euler(n)
        a, b = grid.tracks[0].data_map(n)
        factors.append(p - g * a / b if space == "data" else p)
    at = {k: off[k + 1] / factors[k] for k in anchors}  # an anchor's own step adds no error
    ones = torch.ones(T + 1, dtype=torch.float64)
    for place, (k, end) in enumerate(pairwise((*anchors, T))):
        error = at.get(end, off[-1]) - math.prod(factors[k:end]) * at[k]
        cell = max(place - 2, 0), max(place - 1, 0), 0
        plain, exact, shared_ = (
            float(Cells([view], [ones], anchors, place, share=s).costs(rule)[cell])
            for s in (None, 0.0, share)
        )
        assert exact == pytest.approx(float(error.square().sum(1).mean()), rel=1e-6, abs=1e-12)
        last = end == T
        assert shared_ == pytest.approx(plain if last else exact + share**2 * plain, abs=1e-12)
        assert not last or exact == plain


def corrected_cost(grid, z, anchors, price, share):
    """What the search minimises, written out with the outputs themselves (a flow, output space)."""
    sigmas, total = grid.tracks[0].sigmas, 0.0
    for place, (k, end) in enumerate(pairwise((*anchors, T))):
        i, j = anchors[max(place - 2, 0)], anchors[max(place - 1, 0)]
        new, old = z[:, k] - z[:, j], z[:, j] - z[:, i]
        stats = Statistics(new.square().sum(1), old.square().sum(1), (new * old).sum(1))
        ahead, between = torch.zeros(2, N, D, dtype=torch.float64)
        for n in range(k + 1, end):
            omega = torch.zeros(N, dtype=torch.float64)
            if j < k:
                span = sigmas[k] - sigmas[j]
                rho = ((sigmas[n] + sigmas[n + 1]) / 2 - sigmas[k]) / span
                lam = (sigmas[n] - sigmas[k]) / span
                omega = retention(Rule.of("signed time"), stats, *torch.tensor([rho, lam]).double())
            way = (sigmas[n] - sigmas[k]) / (sigmas[end] - sigmas[k])
            step = sigmas[n + 1] - sigmas[n]
            ahead = ahead + step * (z[:, k] + omega[:, None] * new - z[:, n])
            if end < T:
                between = between + step * (z[:, k] + way * (z[:, end] - z[:, k]) - z[:, n])
        e, inner = (float(v.square().sum(1).mean()) for v in (ahead, between))
        total += float(price[end]) * (e if end == T else inner + share**2 * e)
    return total


def test_the_search_for_corrected_cells_is_as_good_as_trying_every_set():
    grid, z, share = grid_of("flow"), smooth(N, T, D, seed=2), 0.4
    view = View.of(grid.tracks[0], gram([torch.zeros(N, D), *z.unbind(1)]), "output", 0, T)
    price = torch.linspace(9, 1, T + 1, dtype=torch.float64)
    found = Regime([view], [price], share=share).search(["signed time"])
    plain = Regime([view], [price]).search(["signed time"])
    for budget in (3, 5, 7):
        every = ((0, *rest) for rest in combinations(range(1, T), budget - 1))
        cost, anchors = min((corrected_cost(grid, z, a, price, share), a) for a in every)
        assert found[budget - 1].anchors == anchors
        assert found[budget - 1].cost == pytest.approx(cost, rel=1e-4)
        assert cost < corrected_cost(grid, z, plain[budget - 1].anchors, price, share)


def test_the_calibrated_coefficient_is_the_clipped_least_squares_one():
    z = smooth(N, T, D, seed=3)
    grid = grid_of("flow")
    view, _ = views_of(
        grid, torch.zeros(N, D, dtype=torch.float64), by_stage(grid, z, "output"), "output"
    )
    allowed = list(range(T))
    for k in range(1, T - 1):
        found = Cells([view], [torch.ones(T + 1)], allowed, k).calibrated()
        for j, n in product(range(k), range(k + 1, T)):
            delta, wanted = (z[:, k] - z[:, j]).flatten(), (z[:, n] - z[:, k]).flatten()
            best = np.linalg.lstsq(delta[:, None].numpy(), wanted.numpy(), rcond=None)[0][0]
            reach = grid.tracks[0].reach(n, k, j)
            assert float(found[n - k - 1, j]) == pytest.approx(min(max(best, 0), max(1, reach)))


def test_several_slots_add_up_and_each_has_its_own_grid():
    grid = Grid.of((shifted(T), shifted(T, 1.0)))
    views, prices = [], []
    for i, track in enumerate(grid.tracks):
        z = smooth(N, T, D, seed=i)
        products = gram([torch.zeros(N, D), *z.unbind(1)])
        views.append(View.of(track, products, "output", 0, T))
        prices.append(torch.full((T + 1,), 1.0 + i, dtype=torch.float64))
    both = Cells(views, prices, range(T), 4).costs("time")
    alone = [Cells([v], [p], range(T), 4).costs("time") for v, p in zip(views, prices)]
    torch.testing.assert_close(both, alone[0] + alone[1])
    assert not torch.allclose(alone[0], alone[1])


def test_the_gram_matrix_is_of_all_coordinates(monkeypatch):
    monkeypatch.setattr("geoshrink.planning.space.BLOCK", 4)
    rows = [torch.randn(N, 3, 5) for _ in range(4)]
    stacked = torch.stack(rows, 1).flatten(2).double()
    torch.testing.assert_close(gram(rows), stacked @ stacked.transpose(1, 2))


def every_set(costs: list[torch.Tensor], budget: int):
    L = len(costs)
    for rest in combinations(range(1, L), budget - 1):
        anchors = (0, *rest)
        total = 0.0
        for place, (k, end) in enumerate(pairwise((*anchors, L))):
            i, j = anchors[max(place - 2, 0)], anchors[max(place - 1, 0)]
            total += float(costs[k][i, j, end - k - 1])
        yield total, anchors


def test_the_search_is_as_good_as_trying_every_set():
    L, generator = 8, torch.Generator().manual_seed(5)
    costs = [
        torch.rand(max(k, 1), max(k, 1), L - k, generator=generator, dtype=torch.float64)
        for k in range(L)
    ]
    found = cheapest(costs, L)
    for budget in range(1, L + 1):
        cost, anchors = min(every_set(costs, budget))
        assert found[budget - 1][1] == anchors
        assert found[budget - 1][0] == pytest.approx(cost)


def test_shares_are_as_good_as_trying_every_split():
    parts = np.random.default_rng(0).random((3, 5)).tolist()
    for budget in range(3, 16):
        splits = [s for s in product(range(1, 6), repeat=3) if sum(s) == budget]
        best = min(splits, key=lambda s: sum(part[b - 1] for part, b in zip(parts, s)))
        assert shared(parts, budget) == best
    with pytest.raises(ValueError, match=r"budget 16 is out of reach: .* 3 to 15"):
        shared(parts, 16)


def test_coarse_to_fine_comes_close_to_the_exact_search(monkeypatch):
    steps = 40
    grid = Grid.of(shifted(steps))
    products = gram([torch.zeros(N, D), *smooth(N, steps, D, seed=2).unbind(1)])
    view = View.of(grid.tracks[0], products, "output", 0, steps)
    price = torch.linspace(9, 1, steps + 1, dtype=torch.float64)
    exact = Regime([view], [price]).search(["time"])
    monkeypatch.setattr("geoshrink.planning.search.EXACT", 20)
    monkeypatch.setattr("geoshrink.planning.search.COARSE", 14)
    regime = Regime([view], [price])
    for budget in (4, 6, 9):
        start = regime.search(["time"])[budget - 1]
        found = regime.refined(["time"], start)
        assert exact[budget - 1].cost <= found.cost * (1 + 1e-5)
        assert found.cost <= start.cost and found.cost <= 1.3 * exact[budget - 1].cost
    assert len(coarse(1000)) <= 14 and coarse(1000)[0] == 0


@pytest.mark.parametrize("kind", ["flow", "epsilon"])
@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("parts", [0, 1])
def test_long_grids_are_searched_exactly_for_rules_of_two_anchors(kind, space, parts, monkeypatch):
    grid = grid_of(kind)
    products = gram([torch.randn(N, D, dtype=torch.float64), *smooth(N, T, D, seed=2).unbind(1)])
    view = View.of(grid.tracks[0], products, space, 0, T, parts)
    price = torch.linspace(9, 1, T + 1, dtype=torch.float64)
    exact = {rule: Regime([view], [price]).search([rule]) for rule in ("hold", "linear")}
    monkeypatch.setattr("geoshrink.planning.search.EXACT", 5)
    regime = Regime([view], [price])
    assert not regime.exact and not regime.exact_for(["time"])
    for rule, wanted in exact.items():
        assert regime.exact_for([rule])
        for found, best in zip(regime.search([rule], 7), wanted):
            assert found.anchors == best.anchors and found.rules == best.rules
            assert found.cost == pytest.approx(best.cost, rel=1e-4, abs=1e-9)


def test_a_closer_look_needs_near_cells_only():
    """The window of a cell changes nothing inside it, and puts what is beyond out of reach."""
    grid = grid_of("flow")
    products = gram([torch.zeros(N, D), *smooth(N, T, D, seed=2).unbind(1)])
    for parts in (0, 1):
        view = View.of(grid.tracks[0], products, "output", 0, T, parts)
        regime = Regime([view], [torch.linspace(9, 1, T + 1, dtype=torch.float64)])
        rules = ["time", "chordal", CALIBRATED]
        wide, narrow = regime.costs(rules, range(T)), regime.costs(rules, range(T), 3)
        for rule, k in product(rules, range(T)):
            few, every = narrow[rule][k], wide[rule][k]
            inside = few.isfinite()
            torch.testing.assert_close(few[inside], every[inside])
            assert inside[-3:, -3:, :3].all() and int(inside.sum()) == inside[-3:, -3:, :3].numel()


@pytest.mark.slow
def test_a_thousand_stages_are_planned_in_less_than_a_minute():
    """Of one core, with all recipes."""
    rng = torch.Generator().manual_seed(0)
    weights = torch.randn(8, 8, generator=rng)

    def velocity(x: torch.Tensor, sigma: float) -> torch.Tensor:
        return torch.tanh(x @ weights) * (1 + 0.3 * math.sin(5 * sigma))

    line = [1 - i / 1000 for i in range(1001)]
    found = profile(velocity, torch.randn(4, 8, generator=rng), line, budgets=(), quiet=True)
    began = time.process_time()
    plan = found.plan(20)
    assert time.process_time() - began < 60
    assert plan.budget == 20 and "searched coarse to fine" in plan.mesh


def test_long_grids_are_tried_at_budgets_that_their_plans_can_have():
    line = [1 - i / 1000 for i in range(1001)]
    assert default_budgets(Grid.of(line)) == (14, 20, 40)
    assert default_budgets(Grid.of(line[:101])) == (14, 20, 40)
    with pytest.raises(ValueError, match=r"budget 143 cannot be tried: .* have 45 anchors at most"):
        profile(lambda x, sigma: 1 / 0, torch.zeros(4, 8), line, budgets=[143])


def test_the_gain_of_a_linear_flow_is_known():
    grid, rate = Grid.of(shifted(20)), -1.7
    stages = gain_stages(grid)
    noise = torch.randn(4, 6, dtype=torch.float64)
    sigmas = grid.tracks[0].sigmas
    batch, _ = profile_batch(lambda x, sigma: rate * x, noise, grid, stages)
    for n, gains in zip(stages, batch.gains[0]):
        expected = np.prod([1 + rate * (b - a) for a, b in pairwise(sigmas[n:])])
        torch.testing.assert_close(gains, torch.full_like(gains, float(expected)))


def test_the_perturbation_is_what_holding_does():
    grid, z = Grid.of(shifted(T)), smooth(N, T, D)
    for n in (3, 8, 11):
        cell = hold_cell(grid, n)
        x = torch.randn(N, D, dtype=torch.float64)
        kept = [a for a in range(T) if a not in cell[1:]]
        made = states(by_stage(grid, z, "output"), x, Plan.of(grid, anchors=kept, rule="hold"))
        full = states(by_stage(grid, z, "output"), x, Plan.of(grid))
        (found,) = perturbation(grid, n, lambda m: [z[:, m]])
        torch.testing.assert_close(found, made[n] - full[n])


def test_gains_are_fitted_by_a_curve_that_falls():
    grid = Grid.of(shifted(T))
    measured = np.array([[8.0, 2.0], [1.0, 1.0], [2.0, 2.0]])
    a = fitted_gains(grid, (2, 5, 11), measured, 0)
    assert a[2] == pytest.approx(4.0)
    assert a[5] == a[11] == pytest.approx(2**0.5)
    assert (np.diff(a) <= 1e-12).all() and a[0] == pytest.approx(4.0)
    steep = fitted_gains(grid, (2, 5, 11), measured, 0, early=True)
    assert steep[2] == pytest.approx(34**0.5) and steep[11] == a[11]
    nothing = fitted_gains(grid, (2, 5), np.full((2, 3), np.nan), 0)
    assert (nothing == 1).all()
    rng = np.random.default_rng(1)
    for _ in range(20):
        values = rng.normal(size=9)
        fit = np.array(falling(values.tolist()))
        assert (np.diff(fit) <= 1e-12).all() and fit.sum() == pytest.approx(values.sum())
        for other in (np.sort(values)[::-1], np.full(9, values.mean())):
            assert ((values - fit) ** 2).sum() <= ((values - other) ** 2).sum() + 1e-12


def test_gains_are_measured_inside_regimes():
    grid = Grid.of(shifted(T), regimes=(5,))
    stages = gain_stages(grid)
    assert all(n >= 2 and n not in (5, 6) for n in stages)
    assert all(hold_cell(grid, n).start >= (5 if n >= 5 else 0) for n in stages)
    assert gain_stages(Grid.of([1.0, 0.5, 0.0])) == ()


def test_direct_is_the_solver_on_fewer_stages():
    grid, z = Grid.of(shifted(T)), smooth(N, T, D)
    x = torch.randn(N, D, dtype=torch.float64)
    plan = direct_plan(grid, 4)
    assert plan.anchors == (0, 3, 6, 9)
    found = sample(by_stage(grid, z, "output"), x, plan=plan)
    sigmas = [grid.tracks[0].sigmas[n] for n in (0, 3, 6, 9, 12)]
    torch.testing.assert_close(found, sample(by_stage(grid, z, "output"), x, sigmas))
    assert direct_plan(Grid.of(shifted(T), regimes=(5,)), 4).anchors == (0, 3, 5, 9)
