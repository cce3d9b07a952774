"""TeaCache, First Block Cache and MagCache: against a sampler by hand, and against diffusers."""

from __future__ import annotations

import copy
import importlib
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from cases import calls_of, plain, small_case
from geoshrink_bench.methods import magcache, teacache
from geoshrink_bench.methods.base import Method, Outcome
from geoshrink_bench.methods.firstblock import FirstBlockCache
from geoshrink_bench.methods.magcache import MagCache
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.methods.teacache import TeaCache
from geoshrink_bench.methods.tuning import tuned

STREAM = 2 * 2 * 4 * 32 * 4  # guidance × samples × tokens × width × bytes of a float
ONES = [1.0] * 50


@pytest.fixture
def case():
    return small_case()


def by_hand(case, rule, head=0):
    """Euler with guidance and the blocks written out: x, the full stages, all m, R and outputs.

    rule(i, m, r) says whether stage i is full, from what goes into the first attention and what
    the first block adds; the rest adds what it added at the last full stage.
    """
    net, sigmas = case.network, case.grid().tracks[0].sigmas
    seen: list[torch.Tensor] = []
    hook = net.blocks[0].attention.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    x, label, evaluated, residuals, outputs = case.noise, torch.tensor([0, 3, 5, 5]), [], [], []
    kept: Any = None
    for i in range(case.steps):
        h = net.embed(net.patcher.fold(torch.cat([x, x]))) + net.position
        c = net.condition(torch.full((4, 1), sigmas[i]), label)
        first = net.blocks[0](h, c, lambda m: m, None)
        begin = first if head else h
        if rule(i, seen[i], first - h):
            evaluated.append(i)
            y = first
            for block in net.blocks[1:]:
                y = block(y, c, lambda m: m, None)
            kept = y - begin
        y = begin + kept
        residuals.append(kept)
        shift, scale = net.modulation(c).chunk(2, -1)
        outputs.append(net.patcher.unfold(net.head(net.norm(y) * (1 + scale) + shift)))
        given, free = outputs[-1].chunk(2)
        x = x + (sigmas[i + 1] - sigmas[i]) * (free + case.guidance * (given - free))
    hook.remove()
    return x, tuple(evaluated), seen, residuals, outputs


def change(new, old):
    return ((new - old).double().abs().mean() / old.double().abs().mean()).item()


def same(outcome, x, evaluated):
    assert outcome.evaluated == evaluated
    assert torch.allclose(outcome.x, x, atol=1e-4 * x.abs().max().item())


@pytest.mark.parametrize("method", [TeaCache(0), FirstBlockCache(0), MagCache([1.1] * 12, 0)])
def test_without_leave_to_skip_it_is_the_plain_run(case, method):
    outcome = method.run(case, 12)
    assert torch.equal(outcome.x, plain(case)) and outcome.evaluations == 12


def test_the_stages_that_always_run():
    case = small_case(steps=50)
    always = math.inf
    assert TeaCache(always).run(case, 0).evaluated == (0, 49)
    assert FirstBlockCache(always).run(case, 0).evaluated == (0,)
    assert MagCache(ONES, always).run(case, 0).evaluated == (*range(10), *range(13, 50, 4))
    theirs = (0, 1, 2, 3, 4, 10, 16, 22, 28, 34, 40, 46)
    assert MagCache(ONES, always, 5, 0.1).run(case, 0).evaluated == theirs
    assert MagCache(ONES, always, None).run(case, 12).evaluated == theirs


@pytest.mark.parametrize("coefficients", [None, (2.0, 0.0, 0.5, 0.3, 0.01)])
def test_teacache_by_hand(case, coefficients):
    before, total = [], 0.0

    def rule(i, m, r):
        nonlocal total
        before.append(m)
        if i in (0, 11):
            return True
        d = change(m, before[-2])
        total += (
            d
            if coefficients is None
            else sum(a * d**k for k, a in zip((4, 3, 2, 1, 0), coefficients))
        )
        full = total >= 0.4
        total = 0.0 if full else total
        return full

    x, evaluated, *_ = by_hand(case, rule)
    assert 3 < len(evaluated) < 10
    method = TeaCache(0.4, coefficients)
    outcome = method.run(case, 0)
    same(outcome, x, evaluated)
    assert outcome.held == 2 * STREAM and outcome.partial == 0
    assert method.calibrated is (coefficients is not None) and method.adaptive
    assert method.name == ("TeaCache" if coefficients else "TeaCache (uncalibrated)")


def test_first_block_cache_by_hand(case):
    kept: list[torch.Tensor] = []

    def rule(i, m, r):
        if kept and change(r, kept[-1]) <= 0.8:
            return False
        kept.append(r)
        return True

    x, evaluated, *_ = by_hand(case, rule, head=1)
    assert 2 < len(evaluated) < 10
    outcome = FirstBlockCache(0.8).run(case, 0)
    same(outcome, x, evaluated)
    assert outcome.held == 2 * STREAM
    assert outcome.partial == pytest.approx((12 - len(evaluated)) / 3)


def test_magcache_by_hand(case):
    """Stages 0 and 1 are kept; then E is 0.1, 0.31, 0.64: two are within it, or K of them."""
    x, *_ = by_hand(case, lambda i, m, r: i in (0, 1, 4, 7, 10))
    same(MagCache([1.1] * 12, 0.32).run(case, 0), x, (0, 1, 4, 7, 10))
    x, *_ = by_hand(case, lambda i, m, r: i in (0, 1, 3, 5, 7, 9, 11))
    outcome = MagCache([1.1] * 12, 0.32, longest=1).run(case, 0)
    same(outcome, x, (0, 1, 3, 5, 7, 9, 11))
    assert outcome.held == STREAM and MagCache.calibrated and not MagCache.adaptive


def test_calibrations_by_hand(case):
    _, _, m, residuals, outputs = by_hand(case, lambda i, m, r: True)
    x = [change(b, a) for a, b in itertools.pairwise(m)]
    y = [change(b, a) for a, b in itertools.pairwise(outputs)]
    fit = np.polyval(np.polyfit(x, y, 4), x)
    assert np.allclose(np.polyval(teacache.calibrate([case]), x), fit, rtol=1e-3)
    lengths = [r.norm(dim=-1) for r in residuals]
    gammas = [1.0, *((b / a).mean().item() for a, b in itertools.pairwise(lengths))]
    assert magcache.calibrate([case]) == pytest.approx(gammas, rel=1e-3)
    other = small_case(guidance=4.0)
    both = magcache.calibrate([case, other])
    assert both[3] == pytest.approx((gammas[3] + magcache.calibrate([other])[3]) / 2, rel=1e-3)
    assert not case.network._forward_hooks and torch.equal(plain(case), plain(case))


@pytest.mark.parametrize("method", [TeaCache(0.4), FirstBlockCache(0.8), MagCache(ONES, 1)])
def test_skipped_stages_run_no_blocks(case, method):
    attention = [branches[0] for branches in stack_of(case.network).branches]
    calls = [calls_of(module) for module in attention]
    full = len(method.run(case, 0).evaluated)
    head = 12 if isinstance(method, FirstBlockCache) else full
    assert full < 12 and [len(c) for c in calls] == [head, full, full]
    assert all("forward" not in vars(block) for block in case.network.blocks)


@pytest.mark.parametrize(
    "method", [TeaCache(99.0), FirstBlockCache(99.0), MagCache(ONES, 9, 99, 0)]
)
def test_another_batch_runs_in_full(method):
    """Guidance that switches on doubles the batch: nothing kept fits."""
    case = small_case(interval=(0.4, 0.9))
    switches = (0, *case.grid().regimes)
    last = (11,) if isinstance(method, TeaCache) else ()
    assert method.run(case, 0).evaluated == switches + last
    assert len(teacache.calibrate([case])) == 5
    assert [magcache.calibrate([case])[i] for i in switches] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("method", [TeaCache(0.4), FirstBlockCache(0.8), MagCache(ONES, 1)])
def test_an_error_leaves_nothing_behind(case, method):
    before = plain(case)
    hook = case.network.head.register_forward_hook(lambda *_: 1 / 0)
    for act in (lambda: method.run(case, 0), lambda: teacache.calibrate([case])):
        with pytest.raises(ZeroDivisionError):
            act()
    hook.remove()
    assert torch.equal(plain(case), before) and not case.network._forward_hooks
    assert all("forward" not in vars(block) for block in case.network.blocks)


class Number(int):
    """A case that is but a number."""

    def __init__(self, value):
        self.costs = {}


class Countdown(Method):
    """Runs ⌊8 − threshold⌋ stages of an even case, one more of an odd one."""

    def __init__(self, threshold):
        self.threshold = threshold

    def run(self, case: Any, budget):
        return Outcome(None, tuple(range(math.floor(8 - self.threshold) + case % 2)), partial=2.0)


def test_a_threshold_meets_the_mean_budget():
    cases: Any = [Number(0), Number(2)]
    mixed: Any = [Number(0), Number(1)]
    assert math.floor(8 - tuned(Countdown, cases, 5, 0, 8)) == 5
    assert math.floor(8 - tuned(Countdown, mixed, 5, 0, 8)) == 4  # 4.5 rather than 5.5
    thresholds = []

    def listening(threshold):
        thresholds.append(threshold)
        return Countdown(threshold)

    again: Any = [Number(0)]
    run = Countdown.run
    counted = []
    Countdown.run = lambda self, case, budget: counted.append(1) or run(self, case, budget)
    try:
        tuned(listening, again, 5, 0, 8)
        before = len(counted)
        tuned(listening, again, 5, 0, 8)  # the same budget again: everything is remembered
    finally:
        Countdown.run = run
    assert before == len(counted) and len(thresholds) == 2 * before
    with pytest.raises(ValueError, match="from 4 to 8 meets a budget of 5: they make 0 to 4 runs"):
        tuned(Countdown, cases, 5, 4, 8)
    with pytest.raises(ValueError, match="budget of 1"):
        tuned(Countdown, cases, 1, 0, 6)
    with pytest.raises(ValueError, match="no cases"):
        tuned(Countdown, [], 5, 0, 8)


def test_tuned_methods_keep_the_budget(case):
    ratios = magcache.calibrate([case])
    for method in (
        TeaCache.tune([case], 6),
        TeaCache.tune([case], 6, coefficients=(1.0, 0.05)),
        FirstBlockCache.tune([case], 6),
        MagCache.tune([case], 6, ratios),
    ):
        assert len(method.run(case, 6).evaluated) in (5, 6, 7)
    with pytest.raises(ValueError, match="more than 2 of 50"):
        magcache.setting_for(2, 50)


@pytest.mark.parametrize("method", [FirstBlockCache(0.8), MagCache([1.1, 0.95, 1.02, 0.9], 0.2)])
def test_diffusers_decides_alike(case, method):
    """Its own hooks on the blocks of the zoo: the same stages, the same sample."""
    hooks: Any = pytest.importorskip("diffusers.hooks")
    helpers: Any = pytest.importorskip("diffusers.hooks._helpers")

    class First(helpers.TransformerBlockMetadata):
        def _get_parameter_from_args_kwargs(self, identifier, args=(), kwargs=None):
            return args[0]

    ours = method.run(case, 0)
    network: Any = copy.deepcopy(case.network)
    block = type("Registered", (type(network.blocks[0]),), {})
    for module in network.blocks:
        module.__class__ = block
    meta = First(return_hidden_states_index=0, return_encoder_hidden_states_index=None)
    helpers.TransformerBlockRegistry.register(block, meta)
    if isinstance(method, FirstBlockCache):
        hooks.apply_first_block_cache(network, hooks.FirstBlockCacheConfig(method.threshold))
    else:
        config = dict(threshold=0.2, num_inference_steps=12, mag_ratios=list(method.ratios))
        hooks.apply_mag_cache(network, hooks.MagCacheConfig(**config))
    state: Any = importlib.import_module("diffusers.hooks.hooks")
    state._set_cache_context(network, state.CacheContext(name="both"))
    stages, full = calls_of(network), []
    network.blocks[-1].attention.register_forward_pre_hook(lambda *_: full.append(len(stages) - 1))
    theirs = copy.copy(case)
    object.__setattr__(theirs, "model", copy.copy(case.model))
    object.__setattr__(theirs.model, "network", network)
    x = plain(theirs)
    assert tuple(full) == ours.evaluated and 3 < len(full) < 12
    assert torch.allclose(x, ours.x, atol=1e-5 * x.abs().max().item())
