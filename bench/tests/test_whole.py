"""BudCache and DPCache with the whole network in the place of its blocks: beside loops by hand."""

from __future__ import annotations

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from cases import joint_case, other_case, plain, small_case
from geoshrink.grid import Grid
from geoshrink_bench import foreign
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.foreign.models import digits_vit
from geoshrink_bench.methods import budcache_whole, dpcache_whole
from geoshrink_bench.methods.budcache import off
from geoshrink_bench.methods.budcache_whole import BudCacheWhole
from geoshrink_bench.methods.dpcache import cheapest, path_costs
from geoshrink_bench.methods.dpcache_whole import DPCacheWhole, costs_of, noted
from geoshrink_bench.methods.registry import METHODS, check_options
from geoshrink_bench.methods.switching import fitting, switching
from geoshrink_bench.methods.whole import REUSES

STEPS, STAGES = 12, (0, 1, 4, 8)
NAMES = ("BudCache (whole network)", "DPCache (whole network)")
QUICK: dict[str, Any] = {"heats": 5, "climbs": 1}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(name, case, budget, **options):
    quick = QUICK if name == NAMES[0] and "stages" not in options else {}
    return METHODS[name]({**quick, **options}, lambda: [case], budget)


def by_hand(case, monkeypatch, reuse, order, first):
    """Between the full stages the network says a Taylor sum of what it said; first as in Series."""
    network, now, kept = case.network, [-1], []
    forward = network.forward

    def said(x, *args, **kwargs):
        n, rest = now[0], x if reuse == "input" else 0
        if n in STAGES:
            output = forward(x, *args, **kwargs)
            kept.append((n, output - rest))
            return output
        (last, value), *before = [pair for pair in reversed(kept) if pair[0] >= first - 1]
        if order and before:
            earlier, other = before[0]
            slope = (value - other) / (last - earlier)
            value = value + (n - last) * slope
            if order > 1 and len(before) > 1:
                third, oldest = before[1]
                bend = (slope - (other - oldest) / (earlier - third)) / (last - earlier)
                value = value + (n - last) ** 2 / 2 * (bend)
        return value + rest

    monkeypatch.setattr(network, "forward", said)
    sigmas, x, velocity = case.grid().tracks[0].sigmas, case.noise, case.velocity()
    for n in range(STEPS):
        now[0] = n
        x = x + (sigmas[n + 1] - sigmas[n]) * velocity(x, sigmas[n])
    monkeypatch.undo()
    return x


@pytest.mark.parametrize("reuse", REUSES)
@pytest.mark.parametrize(
    ("order", "first"), [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]
)
@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_by_hand(monkeypatch, reuse, order, first, guidance):
    case = small_case(STEPS, guidance)
    x = by_hand(case, monkeypatch, reuse, order, first)
    runs = [DPCacheWhole(STAGES, order, first + 1, reuse)]
    runs += [BudCacheWhole(STAGES, order, reuse)] if first == 0 else []
    for method in runs:
        outcome = method.run(case, 4)
        assert outcome.evaluated == STAGES and outcome.partial == 0
        assert torch.allclose(outcome.x, x, atol=1e-5)
        branches = 1 if guidance == 1 else 2
        assert outcome.held == (order + 1) * branches * case.noise.nbytes
        assert not torch.allclose(x, plain(case), atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reuse", REUSES)
def test_with_every_stage_each_is_the_plain_run(name, reuse):
    case = small_case(STEPS)
    outcome = made(name, case, STEPS, stages=tuple(range(STEPS)), reuse=reuse).run(case, STEPS)
    assert torch.equal(outcome.x, plain(case)) and outcome.evaluations == STEPS
    assert "forward" not in vars(case.network)


@pytest.mark.parametrize("name", NAMES)
def test_parts_other_predictions_and_switches(name):
    for case in (
        joint_case(),
        other_case("fruit-epsilon"),
        other_case("fruit-x0"),
        small_case(STEPS, interval=(0.4, 0.9)),
    ):
        method = made(name, case, 6)
        assert method.calibrated and method.name == name
        outcome = method.run(case, 6)
        assert len(outcome.evaluated) == 6 and {0, *case.grid().regimes} <= {*outcome.evaluated}
        parts = outcome.x if isinstance(outcome.x, (tuple, list)) else [outcome.x]
        assert all(torch.isfinite(part).all() for part in parts)


class Switching(ZooCase):
    """A regime that begins at stage 6, where the batch stays as it was."""

    def grid(self, steps: int | None = None) -> Grid:
        return dataclasses.replace(super().grid(steps), regimes=(6,))


@pytest.mark.parametrize("kind", [BudCacheWhole, DPCacheWhole])
def test_nothing_from_before_a_switch_is_used(kind):
    """After it the output is held until there are two full stages, whatever came before."""
    case, seen = small_case(STEPS), list[torch.Tensor]()
    case = Switching(**{f.name: getattr(case, f.name) for f in dataclasses.fields(case)})
    solve, velocity = case.solve, case.velocity()

    def watched(velocity):
        return solve(lambda x, sigma: seen.append(velocity(x, sigma)) or seen[-1])

    monkey = pytest.MonkeyPatch()
    monkey.setattr(Switching, "solve", lambda self, velocity: watched(velocity))
    more = {"warm_up": 1} if kind is DPCacheWhole else {}
    outcome = kind((0, 2, 6), 1, reuse="output", **more).run(case, 3)
    monkey.undo()
    assert outcome.evaluated == (0, 2, 6) and len(seen) == STEPS
    assert all(torch.equal(seen[6], later) for later in seen[7:])
    assert not torch.allclose(seen[3], seen[2]) and torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], velocity(case.noise, case.grid().tracks[0].sigmas[0]))


def test_budcache_takes_the_better_of_orders_and_reuses(monkeypatch):
    case = small_case(8, depth=1)
    found = BudCacheWhole.fit([case], 4, heats=60)
    every = [
        BudCacheWhole((0, *rest), order, reuse)
        for rest in combinations(range(1, 8), 3)
        for order in (0, 1)
        for reuse in REUSES
    ]
    ranked = sorted(off(method, [case], 4) for method in every)
    assert off(found, [case], 4) <= ranked[3]
    for wanted in (("input", 1), ("output", 0)):

        def loss(method, cases, budget, wanted=wanted):
            return float((method.reuse, method.order) != wanted)

        monkeypatch.setattr("geoshrink_bench.methods.budcache.off", loss)
        found = BudCacheWhole.fit([case], 4, heats=2, climbs=0)
        assert (found.reuse, found.order) == wanted and len(found.stages) == 4


@pytest.mark.parametrize("reuse", REUSES)
def test_dpcache_measures_what_it_extrapolates(monkeypatch, reuse):
    case, seen = small_case(STEPS), []
    handle = case.network.register_forward_hook(
        lambda module, args, output: seen.append(output - (args[0] if reuse == "input" else 0))
    )
    _ = plain(case)
    handle.remove()
    found = noted(case, reuse)
    assert len(found) == STEPS == len(seen)
    assert all(torch.allclose(a, b.flatten(), atol=1e-5) for a, b in zip(found, seen))
    monkeypatch.setattr(dpcache_whole, "ENTRIES", 64)
    some = noted(case, reuse)[3]
    assert torch.equal(some, found[3][:: len(found[3]) // 64 | 1]) and len(some) < len(found[3])


def test_dpcache_takes_the_cheapest_stages_and_the_better_reuse(monkeypatch):
    case, other = small_case(9), small_case(9, seed=1)
    for wanted in REUSES:
        monkeypatch.setattr(dpcache_whole, "off", lambda m, c, b, w=wanted: float(m.reuse != w))
        found = DPCacheWhole.fit([case, other], 5, 1, 2)
        costs = sum(path_costs(noted(c, wanted), 1, c.grid()) for c in (case, other))
        assert isinstance(costs, np.ndarray)
        assert found.stages == cheapest(costs, 5, 2, case.grid())
        assert (found.reuse, found.order, found.warm_up) == (wanted, 1, 2)


def test_of_the_two_reuses_the_nearer_one_is_taken():
    case = small_case(STEPS)
    found = DPCacheWhole.fit([case], 6)
    others = [DPCacheWhole(found.stages, reuse=reuse) for reuse in REUSES]
    assert off(found, [case], 6) == min(off(method, [case], 6) for method in others)


@pytest.mark.parametrize("kind", [BudCacheWhole, DPCacheWhole])
def test_what_it_cannot_reuse_is_said(kind):
    with pytest.raises(ValueError, match="reuse is one of input, output; got 'all'"):
        kind(STAGES, reuse="all")
    with pytest.raises(ValueError, match=r"budget of 2|no 2 stages"):
        kind.fit([small_case(STEPS, interval=(0.4, 0.9))], 2)


def test_options_are_those_of_the_search():
    case = small_case(STEPS)
    found = made(NAMES[1], case, 6, order="tuned", warm_up="tuned")
    assert isinstance(found, DPCacheWhole) and len(found.stages) == 6
    with pytest.raises(ValueError, match="has no option 'rows'"):
        check_options(NAMES[0], {"rows": 1})


def told_by_nobody(guidance: float | None = None, **more: Any) -> ZooCase:
    """digits-vit, whose guidance acts for σ in (0.3, 0.7): its plain grid does not say so."""
    torch.manual_seed(0)
    model = foreign.Model(foreign.RECIPES["digits-vit"], digits_vit.Digits())
    return ZooCase(model, [1, 2], model.noise(2), guidance, STEPS, **more)


FITTED = [(name, {}) for name in NAMES]
FITTED += [("TaylorSeer-Lite", {}), ("TaylorSeer-Lite", {"warm_up": 1}), ("VDE", {"warm_up": 2})]


@pytest.mark.parametrize(("name", "options"), FITTED)
def test_a_switch_of_which_the_grid_says_nothing_counts(name, options):
    case, switches = told_by_nobody(), {4, 9}
    assert not case.grid().regimes and {*switching(case).regimes} == switches
    method, calls = made(name, case, 6, **options), []
    part: Any = case.network.get_submodule("patch_embed")
    handle = part.register_forward_hook(lambda *given: calls.append(1))
    outcome = method.run(case, 6)
    handle.remove()
    assert switches <= {*outcome.evaluated} and len(calls) == len(outcome.evaluated) <= 6


@pytest.mark.parametrize(
    "case", [told_by_nobody(1.0), told_by_nobody(interval=(0.4, 0.9)), small_case(STEPS)]
)
def test_where_nothing_switches_unsaid_the_grid_is_the_cases_own(case):
    assert switching(case) == case.grid()


def test_the_shortest_interval_that_leaves_room_for_the_switches():
    grid = Grid.of([1 - n / 20 for n in range(21)], regimes=(7, 13))
    assert fitting(6, grid, 1) == [0, 5, 10, 15] and fitting(7, grid, 1) == [0, 4, 8, 12, 16]
    assert fitting(4, grid, 3) == []


def test_with_an_interval_of_its_own_nothing_is_fitted():
    told = small_case(STEPS, interval=(0.4, 0.9))
    outcome = made("TaylorSeer-Lite", told, 6, interval=3).run(told, 6)
    assert {0, 1, 2, 5, 8, 11} <= {*outcome.evaluated} and len(outcome.evaluated) > 6


def test_what_is_found_once_is_of_its_order_and_reuse():
    case = small_case(9)
    for order in (1, 2):
        for reuse in REUSES:
            fresh = path_costs(noted(small_case(9), reuse), order, case.grid())
            assert np.allclose(costs_of(case, order, reuse), fresh)


def test_dpcache_asks_all_cases(monkeypatch):
    cases, measured, judged = [small_case(9), small_case(9, seed=1)], [], []
    find = dpcache_whole.costs_of

    def costs(case, *more):
        measured.append(case)
        return find(case, *more)

    monkeypatch.setattr(dpcache_whole, "costs_of", costs)
    monkeypatch.setattr(dpcache_whole, "off", lambda m, c, b: judged.append(len(c)) or 0.0)
    DPCacheWhole.fit(cases, 5)
    assert [id(case) for case in measured] == [id(case) for case in cases] * 2
    assert judged == [2, 2]


def test_all_parts_are_measured():
    case = joint_case()
    rows = 2  # of each sample, with guidance
    assert len(noted(case, "output")[0]) == rows * sum(part.numel() for part in case.noise)


def test_the_stride_is_odd(monkeypatch):
    case = small_case(9)
    whole = noted(case, "output")[3]
    for third, stride in ((3, 3), (4, 5)):
        monkeypatch.setattr(dpcache_whole, "ENTRIES", len(whole) // third)
        assert torch.equal(noted(case, "output")[3], whole[::stride])


def test_budcache_passes_on_how_it_searches(monkeypatch):
    seen = []
    monkeypatch.setattr(budcache_whole, "best_of", lambda *given: seen.append(given))
    cases = [small_case(8), small_case(8, seed=1)]
    BudCacheWhole.fit(cases, 4, 2, 3, 1, 9)
    assert seen[0][1] is cases and seen[0][2:7] == (4, 2, 3, 1, 9)
