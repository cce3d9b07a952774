"""The interface of the methods, and the two places where caches act in a network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from cases import Hold, calls_of, plain, small_case
from geoshrink_bench import zoo
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods.base import every, interval_for
from geoshrink_bench.methods.fora import Fora
from geoshrink_bench.methods.registry import METHODS, check_options
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.methods.tuning import WARM_UPS, distance


@pytest.fixture
def case():
    return small_case()


def test_intervals_keep_the_budget():
    for steps in range(2, 60):
        for warm_up in (1, 3):
            for budget in range(warm_up + 1, steps + 1):
                n = interval_for(budget, steps, warm_up)
                assert len(every(n, steps, warm_up)) <= budget
                assert n == 1 or len(every(n - 1, steps, warm_up)) > budget
    with pytest.raises(ValueError, match="budget of 2"):
        interval_for(2, 50, warm_up=3)


def test_fora_with_every_stage_is_the_plain_run(case):
    outcome = Fora(1).run(case, 12)
    assert torch.equal(outcome.x, plain(case)) and outcome.evaluations == 12


def test_fora_runs_the_branches_at_its_stages_only(case):
    outcome = Fora().run(case, 4)
    assert outcome.evaluated == (0, 3, 6, 9)
    attention, mlp = stack_of(case.network).branches[1]
    branch = 2 * 2 * 4 * 32 * 4  # guidance × samples × tokens × width × bytes of a float
    assert outcome.held == 2 * 3 * branch
    assert torch.equal(plain(case), plain(case)) and "forward" not in vars(attention)
    assert not torch.equal(outcome.x, plain(case)) and "forward" not in vars(mlp)


def test_fora_reuses_the_output_and_gates_it_anew(case):
    """By hand: the second stage with the branches' outputs of the first."""
    seen: dict[int, list] = {}
    network, grid = case.network, case.grid(12)
    modules = [b for block in stack_of(network).branches for b in block]
    hooks = [
        m.register_forward_hook(lambda mod, args, out, i=i: seen.setdefault(i, []).append(out))
        for i, m in enumerate(modules)
    ]
    velocity, sigmas = case.velocity(), grid.tracks[0].sigmas
    v0 = velocity(case.noise, sigmas[0])
    for hook in hooks:
        hook.remove()
    x1 = case.noise + (sigmas[1] - sigmas[0]) * v0
    hooks = [
        m.register_forward_hook(lambda mod, args, out, i=i: seen[i][0])
        for i, m in enumerate(modules)
    ]
    v1 = velocity(x1, sigmas[1])
    for hook in hooks:
        hook.remove()
    session = Fora().session(case, [0])
    outputs = []
    session.inner, inner = lambda x, s: outputs.append(inner(x, s)) or outputs[-1], session.inner
    session.run()
    assert torch.allclose(outputs[1], v1, atol=1e-6) and not torch.allclose(v0, v1, atol=1e-4)


@pytest.mark.parametrize("head", [0, 1])
def test_a_stack_is_left_out_after_its_head(case, head):
    outcome = Hold(case, {0, 5}, head).run()
    assert outcome.evaluated == (0, 5)
    assert torch.isfinite(outcome.x).all() and not torch.equal(outcome.x, plain(case))
    assert torch.equal(Hold(case, set(range(12)), head).run().x, plain(case))
    attention = [branches[0] for branches in stack_of(case.network).branches]
    calls = [calls_of(module) for module in attention]
    Hold(case, {0, 5}, head).run()
    assert [len(c) for c in calls] == [12] * head + [2] * (3 - head)


def test_another_batch_runs_in_full():
    """Guidance that switches on doubles the batch: nothing kept fits."""
    case = small_case(interval=(0.4, 0.9))
    switches = [0, *case.grid().regimes]
    assert len(switches) == 3
    assert Hold(case, {0}).run().evaluated == tuple(switches)
    assert Fora(100).run(case, 2).evaluated == tuple(switches)


def test_an_error_leaves_nothing_behind(case):
    class Fails(Hold):
        def predict(self):
            raise ZeroDivisionError

    before = plain(case)
    with pytest.raises(ZeroDivisionError):
        Fails(case, {0}).run()
    assert torch.equal(plain(case), before)
    assert all("forward" not in vars(block) for block in stack_of(case.network).blocks)


def test_a_network_without_blocks_is_named():
    with pytest.raises(TypeError, match="Linear"):
        stack_of(torch.nn.Linear(2, 2))


def test_a_model_of_the_zoo():
    model = zoo.load("fruit")
    case = ZooCase(model, ["Kiwi 1"], model.noise(1), 2.0, 6)
    assert Fora().run(case, 3).evaluated == (0, 2, 4)


#: What makes more or fewer whole runs of 30 stages as its authors set it.
OUT_OF_REACH = {"SpeCa": "they make"}
ALWAYS_FULL = "full run, again"
FOR_OTHERS = "TeaCache (whole network)"  # tested in test_teacache_whole.py
ELSEWHERE = (ALWAYS_FULL, FOR_OTHERS)


def test_the_full_run_again_is_the_full_run(case):
    outcome = METHODS[ALWAYS_FULL]({}, lambda: [], 3).run(case, 3)
    assert torch.equal(outcome.x, plain(case)) and outcome.evaluations == 12


@pytest.mark.parametrize("name", [name for name in METHODS if name not in ELSEWHERE])
def test_every_method_by_its_name(name):
    """Near the budget in whole runs, the same twice, nothing left behind."""
    case, budget = small_case(steps=30, depth=6), 9
    before = plain(case)

    def make():
        count = 2 if name == "GeoShrink (planned)" else 1  # a profile needs four samples
        quick = {"heats": 5, "climbs": 1} if name == "BudCache" else {}
        return METHODS[name](quick, lambda: [small_case(steps=30, depth=6)] * count, budget)

    if name in OUT_OF_REACH:
        with pytest.raises(ValueError, match=OUT_OF_REACH[name]):
            make()
        return
    method = make()
    outcome = method.run(case, budget)
    assert abs(len(outcome.evaluated) - budget) <= 1 + method.adaptive
    assert torch.isfinite(outcome.x).all() and not torch.equal(outcome.x, before)
    assert torch.equal(method.run(case, budget).x, outcome.x)
    assert torch.equal(plain(case), before)
    assert all("forward" not in vars(module) for module in case.network.modules())


@pytest.mark.parametrize("name", ["FORA", "TaylorSeer", "FirstBlockCache", "GeoShrink (corrected)"])
def test_a_budget_is_a_whole_number(case, name):
    budgets: list[Any] = [2.5, True]
    for budget in budgets:
        with pytest.raises(TypeError, match=f"budget must be an integer, got {budget}"):
            METHODS[name]({}, lambda: [case], budget).run(case, budget)


# Tuning: one mechanism for all

WITH_WARM_UP = (
    *("ToCa", "TaylorSeer", "TaylorSeer-Lite", "ResilPhase", "MagCache", "EasyCache"),
    *(
        "LazyCache",
        "DBCache",
        "HiCache",
        "Spectrum",
        "VDE",
        "SeaCache",
        "DPCache",
        "DPCache (whole network)",
        "ZEUS",
    ),
    *("PrediT", "TACache", "FastFlow"),
)


def test_every_method_with_a_warm_up_has_the_same_choices(monkeypatch):
    entries: dict[str, Any] = dict(METHODS)
    found = [name for name in METHODS if "warm_up" in entries[name].takes({})]
    assert sorted(found) == sorted(WITH_WARM_UP)
    tried = {name: [] for name in found}
    for name in found:

        def kind(warm_up, name=name, **options):
            tried[name].append(warm_up)
            raise ValueError("too few")

        monkeypatch.setitem(METHODS, name, replace(entries[name], kind=kind, fit=None))
        with pytest.raises(ValueError, match="no warm-up of 1, 2, 3, 5, 8 stages fits"):
            METHODS[name]({"warm_up": "tuned"}, lambda: [small_case()], 6)
    assert all(choices == [*WARM_UPS] for choices in tried.values())


@pytest.mark.parametrize("name", ["EasyCache", "VDE", "TaylorSeer-Lite"])
def test_a_tuned_warm_up_is_the_best_on_the_training_cases(name):
    case = small_case(seed=1)
    made: Any = METHODS[name]({"warm_up": "tuned"}, lambda: [case], 6)
    off = {}
    for warm_up in WARM_UPS:
        try:
            method = METHODS[name]({"warm_up": warm_up}, lambda: [case], 6)
            outcome = method.run(case, 6)
        except ValueError:
            continue
        if outcome.evaluations <= 6:
            off[warm_up] = distance(outcome.x, plain(case))
    assert made.warm_up == min(off, key=off.__getitem__) and len(off) > 1


def test_a_warm_up_is_a_number_of_stages_or_tuned():
    check_options("VDE", {"warm_up": "tuned"})
    for bad in (0, "best"):
        with pytest.raises((ValueError, TypeError), match="warm_up"):
            check_options("VDE", {"warm_up": bad})
