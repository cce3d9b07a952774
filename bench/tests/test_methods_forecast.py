"""TaylorSeer, HiCache, ResilPhase and Spectrum against their formulas, written out once more."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from cases import calls_of, plain, small_case
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods.hicache import HiCache
from geoshrink_bench.methods.resilphase import ResilPhase, phase_weights
from geoshrink_bench.methods.spectrum import Spectrum, alpha_for, fit_weights, growing
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.methods.taylorseer import Series, TaylorSeer, TaylorSeerLite
from geoshrink_bench.methods.weighted import Weighted
from geoshrink_bench.zoo.model import Model
from geoshrink_bench.zoo.recipes import RECIPES

METHODS = [TaylorSeer, TaylorSeerLite, HiCache, ResilPhase, Spectrum]
TOKENS = 2 * 2 * 4 * 32 * 4  # guidance × samples × tokens × width × bytes of a float
OUTPUT = 2 * 2 * 3 * 8 * 8 * 4


@pytest.fixture
def case():
    return small_case()


def outputs_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """What a module returns, call by call, also while its forward is replaced."""
    seen: list[torch.Tensor] = []
    module.register_forward_hook(lambda mod, args, out: seen.append(out.double()))
    return seen


def inputs_of(module: torch.nn.Module) -> list[torch.Tensor]:
    seen: list[torch.Tensor] = []
    module.register_forward_pre_hook(lambda mod, args: seen.append(args[0].double()))
    return seen


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.allclose(a, b, rtol=0, atol=2e-6 * float(b.abs().max()))


def left_behind(network: torch.nn.Module) -> list[str]:
    return [name for name, module in network.named_modules() if "forward" in vars(module)]


@pytest.mark.parametrize(
    "method",
    [TaylorSeer(1), TaylorSeerLite(1), HiCache(1), ResilPhase(1), Spectrum(0.0, window=1)],
    ids=lambda m: m.name,
)
def test_with_every_stage_it_is_the_plain_run(case, method):
    outcome = method.run(case, 12)
    assert outcome.evaluated == tuple(range(12)) and outcome.evaluations == 12
    assert torch.equal(outcome.x, plain(case))


SIX = (0, 1, 2, 8, 14, 20, 26, 32, 38, 44)


@pytest.mark.parametrize(
    "method, budget, stages",
    [
        (TaylorSeer(), 10, SIX),
        (TaylorSeerLite(), 10, SIX),
        (HiCache(), 10, SIX),
        (ResilPhase(), 10, SIX),
        (TaylorSeer(11, order=2), 50, (0, 1, 2, 13, 24, 35, 46)),
        (TaylorSeer(7, warm_up=1), 50, (0, 7, 14, 21, 28, 35, 42, 49)),
        (HiCache(7), 50, (0, 1, 2, 9, 16, 23, 30, 37, 44)),
        (Spectrum(), 10, (0, 1, 2, 3, 4, 6, 11, 19, 30, 44)),
        (Spectrum(0.75), 50, (0, 1, 2, 3, 4, 6, 8, 11, 15, 20, 25, 31, 38, 46)),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_the_stages_are_the_authors_and_no_block_runs_between(method, budget, stages):
    case = small_case(steps=50)
    ran = [calls_of(block.attention.qkv) for block in stack_of(case.network).blocks]  # type: ignore[attr-defined]
    outcome = method.run(case, budget)
    assert outcome.evaluated == stages and outcome.partial == 0
    assert [len(calls) for calls in ran] == [len(stages)] * 3
    assert torch.isfinite(outcome.x).all() and not torch.equal(outcome.x, plain(case))
    assert left_behind(case.network) == []


def by_hand(
    f: list[torch.Tensor], second: dict[int, float], first: float
) -> dict[int, torch.Tensor]:
    """Stages 0, 1, 2, 6, 10 are full: what a series of order 2 says at some of the others.

    first, second[k]: the weights of D_1 per stage, and of D_2, at k stages past the last full one.
    """
    early, late, last = f[2] - f[1], (f[6] - f[2]) / 4, (f[10] - f[6]) / 4
    return {
        4: f[2] + 2 * first * early,  # D_2 has not begun
        7: f[6] + first * late + second[1] * (late - early) / 4,
        9: f[6] + 3 * first * late + second[3] * (late - early) / 4,
        11: f[10] + first * last + second[1] * (last - late) / 4,
    }


def check_series(f: list[torch.Tensor], first: float, second: dict[int, float]) -> None:
    assert len(f) == 12
    for n, value in by_hand(f, second, first).items():
        assert close(f[n], value), n
        assert not close(f[n], f[n - 1])


def test_taylor_of_every_branch(case):
    branches = [b for block in stack_of(case.network).branches for b in block]
    seen = [outputs_of(branch) for branch in branches]
    outcome = TaylorSeer(4, order=2).run(case, 12)
    for f in seen:
        check_series(f, 1.0, {1: 1 / 2, 3: 9 / 2})
    assert outcome.held == 3 * 6 * TOKENS
    assert TaylorSeer(4).run(case, 12).held == 2 * 6 * TOKENS


def test_taylor_of_order_one_is_a_line(case):
    f = outputs_of(stack_of(case.network).branches[2][1])
    TaylorSeer(4).run(case, 12)
    assert close(f[8], f[6] + 2 / 4 * (f[6] - f[2])) and not close(f[8], f[6])


def test_taylor_lite_is_the_output_alone(case):
    f, inside = outputs_of(case.network), calls_of(case.network.embed)
    outcome = TaylorSeerLite(4).run(case, 12)
    check_series(f, 1.0, {1: 1 / 2, 3: 9 / 2})
    assert outcome.held == 3 * OUTPUT and len(inside) == 5


def test_hermite_of_every_branch(case):
    """s·H_1(s·k) = k/2 and s²·H_2(s·k)/2 = (k² − 2)/8 at s = 1/2."""
    branches = [b for block in stack_of(case.network).branches for b in block]
    seen = [outputs_of(branch) for branch in branches]
    outcome = HiCache(4).run(case, 12)
    for f in seen:
        check_series(f, 1 / 2, {1: -1 / 8, 3: 7 / 8})
    assert outcome.held == 3 * 6 * TOKENS


def test_hermite_weights_at_another_scale():
    """Third order: s³·(8·(s·k)³ − 12·s·k)/6."""
    method, s = HiCache(scale=0.7), 0.7
    for k in range(1, 6):
        assert method.weight(0, k) == 1
        assert method.weight(1, k) == pytest.approx(2 * s * s * k)
        assert method.weight(3, k) == pytest.approx(s**3 * (8 * (s * k) ** 3 - 12 * s * k) / 6)


def test_resilphase_weights_are_the_closed_form():
    """w·(R_1 − R_2) with w = [tanh(α(1 + 2k/N)) − tanh α]/(2·tanh α); the note's row for N = 6."""
    a = 0.55
    for gap in (1, 3, 6, 11):
        for k in range(1, 12):
            w = (math.tanh(a * (1 + 2 * k / gap)) - math.tanh(a)) / (2 * math.tanh(a))
            assert phase_weights([2, 2 + gap], 2 + gap + k) == pytest.approx([-w, 1 + w])
    row = [phase_weights([2, 8], 8 + k)[1] - 1 for k in range(1, 6)]
    assert row == pytest.approx([0.124, 0.224, 0.300, 0.356, 0.398], abs=5e-4)
    assert phase_weights([2, 8], 10**4)[1] - 1 == pytest.approx(0.499, abs=5e-4)


def test_resilphase_weights_of_order_two_interpolate():
    anchors, values = [1, 2, 8], [0.3, -1.0, 2.0]
    phases = np.tanh(0.55 * (np.array([1, 2, 8, 11]) - 11 / 3) / (13 / 3))
    expected = np.polyval(np.polyfit(phases[:3], values, 2), phases[3])
    assert np.dot(phase_weights(anchors, 11), values) == pytest.approx(expected)


def test_resilphase_predicts_what_the_stack_adds(case):
    blocks = stack_of(case.network).blocks
    begin, end = inputs_of(blocks[0]), outputs_of(blocks[-1])
    outcome = ResilPhase(4).run(case, 12)
    r = [out - start for start, out in zip(begin, end)]
    w = (math.tanh(0.55 * (1 + 2 * 3 / 4)) - math.tanh(0.55)) / (2 * math.tanh(0.55))
    assert outcome.evaluated == (0, 1, 2, 6, 10) and len(r) == 12
    assert close(end[9], begin[9] + r[6] + w * (r[6] - r[2])) and not close(r[9], r[6])
    assert outcome.held == 2 * TOKENS


def test_spectrum_fits_the_last_feature(case):
    """Ridge regression as least squares on rows added for λ, T_m(τ) = cos(m·arccos τ)."""
    blocks = stack_of(case.network).blocks
    end = outputs_of(blocks[-1])
    outcome = Spectrum(1.0, w=0.7).run(case, 12)
    full = [0, 1, 2, 3, 4, 6, 9]
    assert outcome.evaluated == tuple(full) and len(end) == 12
    assert outcome.held == 7 * TOKENS

    def basis(n):
        return np.cos(np.arange(5) * np.arccos((n - 6) / 6))

    for n, anchors, k in [(5, full[:5], 1.0), (8, full[:6], 1.0), (11, full, 2 / 3)]:
        features = np.stack([end[i].flatten().numpy() for i in anchors])
        rows = np.concatenate([np.stack([basis(i) for i in anchors]), np.sqrt(0.1) * np.eye(5)])
        padded = np.concatenate([features, np.zeros((5, features.shape[1]))])
        fit = basis(n) @ np.linalg.lstsq(rows, padded, rcond=None)[0]
        line = features[-1] + k * (features[-1] - features[-2])
        expected = torch.from_numpy(0.7 * fit + 0.3 * line).reshape(end[n].shape)
        assert close(end[n], expected), n
        assert not close(end[n], end[n - 1])


def test_spectrum_without_a_ridge_is_exact_on_polynomials():
    anchors, steps = growing(3.0, 30), 30
    values = [(i / 10) ** 4 - i for i in anchors]
    for n in (5, 17, 29):
        weights = fit_weights(anchors, n, steps, ridge=0.0)
        assert weights @ values == pytest.approx((n / 10) ** 4 - n)


def test_spectrum_keeps_the_budget():
    for steps in (20, 28, 50):
        for budget in range(6, steps // 2):
            assert len(growing(alpha_for(budget, steps), steps)) == budget
    with pytest.raises(ValueError, match="budget of 5"):
        alpha_for(5, 50)


@pytest.mark.parametrize("kind", METHODS, ids=lambda m: m.name)
def test_another_batch_runs_in_full_and_begins_anew(kind):
    """Guidance switches on and off: what was kept is of another batch, so one stage is reused."""
    case = small_case(steps=16, interval=(0.4, 0.9))
    switches = list(case.grid().regimes)
    method = kind(99.0, warm_up=1) if kind is Spectrum else kind(99, warm_up=1)
    method.window = 99
    f = outputs_of(
        case.network if kind is TaylorSeerLite else stack_of(case.network).branches[0][0]
    )
    outcome = method.run(case, 4)
    assert outcome.evaluated == (0, *switches) and len(switches) == 2
    assert torch.isfinite(outcome.x).all()
    if len(f) == 16:  # branches and outputs are seen at skipped stages, too
        assert all(torch.equal(f[n], f[switches[0]]) for n in range(*switches))
    again = kind().run(case, 9)
    assert set(switches) < set(again.evaluated) and torch.isfinite(again.x).all()


def test_spectrum_draws_a_line_where_a_batch_is_new():
    case = small_case(steps=16, interval=(0.0, 0.9))
    (switch,) = case.grid().regimes
    end = outputs_of(stack_of(case.network).blocks[-1])
    outcome = Spectrum(0.0).run(case, 16)
    _, second = since = [n for n in outcome.evaluated if n >= switch][:2]
    assert second - switch <= 2 and second + 1 not in outcome.evaluated, since
    gap = second - switch
    assert close(end[second + 1], end[second] + (end[second] - end[switch]) / gap)


@pytest.mark.parametrize("kind", METHODS, ids=lambda m: m.name)
def test_an_error_leaves_nothing_behind(case, kind, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    before = plain(case)
    monkeypatch.setattr(Series, "at", fail)
    monkeypatch.setattr(Weighted, "predict", fail)
    with pytest.raises(ZeroDivisionError):
        kind().run(case, 7)
    assert left_behind(case.network) == [] and torch.equal(plain(case), before)


@pytest.mark.parametrize("kind", METHODS, ids=lambda m: m.name)
def test_outputs_of_several_parts(kind):
    """A film and its sound: the network returns a tuple."""
    torch.manual_seed(0)
    recipe = next(r for r in RECIPES.values() if r.joint)
    small = dict(shapes=((1, 4, 4), (1, 8)), patches=((2, 2), (4,)), width=16, depth=2, heads=2)
    recipe = dataclasses.replace(recipe, network=small | dict(condition=8))
    network = recipe.build(3)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    model = Model(recipe, network.eval().requires_grad_(False), {"classes": list("abc")}, "")
    joint = ZooCase(model, [1], model.noise(1), 2.0, 14)
    outcome = kind().run(joint, 6)
    assert len(outcome.evaluated) == 6 and all(torch.isfinite(part).all() for part in outcome.x)
    assert left_behind(network) == []
