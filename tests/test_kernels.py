"""The fused kernels against plain torch and the oracle: on a GPU, else in Triton's interpreter.

The interpreter cuts where a GPU rounds to bfloat16, so there a bfloat16 may be one step lower.
"""

from __future__ import annotations

import importlib
import importlib.util
import math

import pytest
import torch

import oracle
from geoshrink import Correction, Run, sample
from geoshrink.history import slot
from geoshrink.rules import RULES, Form, Rule
from geoshrink.rules.retention import Statistics, retention, turning

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="needs triton, on a GPU or interpreted"
    ),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the interpreter computes with numpy
]
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
STEPS, BUDGET = 14, 7
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
STEP = {torch.float32: 1e-6, torch.bfloat16: 2**-7, torch.float16: 2e-3, torch.float64: 1e-14}
SHAPES = [(2, 2500), (1, 1), (3, 1), (2, 3, 7, 11), (5,), (1, 4099)]


@pytest.fixture
def kernels():
    try:
        module = importlib.import_module("geoshrink.history.kernels.triton")
    except Exception as error:
        pytest.skip(f"triton does not load: {error}")
    if not CUDA and not hasattr(module.combine_kernel, "fn"):
        pytest.skip("triton was imported without its interpreter")
    return module


@pytest.fixture
def fused(kernels, monkeypatch):
    """Every output goes through the kernels, whatever its size and device."""
    monkeypatch.setattr(slot, "fused", lambda like: kernels if like.numel() else None)
    monkeypatch.setattr(slot, "LARGE", 0)
    return kernels


@pytest.fixture
def torch_only(monkeypatch):
    return lambda: monkeypatch.setattr(slot, "fused", lambda like: None)


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(DEVICE, dtype)


def spread(omega, like):
    return omega.reshape(-1, *[1] * (like.ndim - 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_one_pass_over_an_anchor(kernels, shape, dtype):
    torch.manual_seed(0)
    v, z, dz = (randn(*shape, dtype=dtype) for _ in range(3))
    wide = torch.promote_types(dtype, torch.float32)
    omega, before = (torch.rand(shape[0]).to(DEVICE, wide) for _ in range(2))
    old, innovation = z.clone(), dz.clone()
    found = kernels.anchor(v, z, dz, omega, before, wide)
    assert torch.equal(z, v)
    assert torch.allclose(dz, v - old, rtol=STEP[dtype], atol=0)
    held = dz.double().flatten(1) if dz.ndim > 1 else dz.double()[:, None]
    was = innovation.double().reshape(held.shape)
    assert torch.allclose(found.stats.S.double(), held.square().sum(1), rtol=1e-5)
    assert torch.allclose(found.stats.D.double(), (held * was).sum(1), rtol=1e-5, atol=1e-3)
    assert torch.equal(found.stats.P, before)
    predicted = (old.to(wide) + spread(omega, old) * innovation.to(wide)).to(dtype).double()
    ratio = (predicted - v.double()).reshape(held.shape).norm(dim=1) / v.double().reshape(
        held.shape
    ).norm(dim=1)
    assert torch.allclose(found.error.double(), ratio, rtol=1e-4, atol=4 * STEP[dtype])
    assert found.usable.all() and found.finite.all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_skipped_stage(kernels, shape, dtype):
    z, dz, x = (randn(*shape, dtype=dtype) for _ in range(3))
    wide = torch.promote_types(dtype, torch.float32)
    omega = torch.rand(shape[0]).to(DEVICE, wide)
    expected = z.to(wide) + spread(omega, z) * dz.to(wide)
    found = kernels.combine(z, dz, omega)
    assert found.dtype == dtype and found.data_ptr() != z.data_ptr()
    assert torch.allclose(found, expected.to(dtype), rtol=STEP[dtype], atol=STEP[dtype])
    if dtype != torch.float64:
        moved = 0.75 * x.double() - 0.5 * z.double() + spread(omega, z).double() * dz.double()
        found = kernels.combine(z, dz, omega, x, 0.75, -0.5)
        assert torch.allclose(found.double(), moved, rtol=STEP[dtype], atol=2 * STEP[dtype])


CASES = [
    "chordal", "signed chordal", "time", "signed time", "hold", "linear", "fixed(0.5)",
    "beta-kappa(0.9, 2)", Rule("linear", clamp=True), Rule("chordal", eps_s=0.1),
]  # fmt: skip


@pytest.mark.parametrize("rule", CASES, ids=str)
def test_retention_of_a_cell(kernels, rule):
    torch.manual_seed(1)
    rule = Rule.of(rule)
    stats = [torch.rand(6) + 0.1, torch.rand(6) + 0.1, torch.rand(6) - 0.5]
    stats[0][0] = stats[1][1] = 0.0
    given = Statistics(*(t.to(DEVICE) for t in stats))
    table = randn(3, 9)[:2, 2:7]
    omega, turned = kernels.retain(rule, given, table)
    assert torch.allclose(omega, retention(rule, given, *table[:, :, None]), rtol=1e-5, atol=1e-7)
    assert torch.allclose(turned, turning(rule, given), atol=1e-6)


@pytest.mark.parametrize("kernel", [None, "of next year"])
def test_a_rule_the_kernels_do_not_know_runs_as_tensors(fused, torch_only, monkeypatch, kernel):
    # Was: a list of the rules they do not know, so that a new one would have run as chordal.
    form = Form("third", lambda rule, R, energy, reach: 1 / (3 + R), kernel=kernel)
    monkeypatch.setitem(RULES, "third", form)
    stats = Statistics(*(torch.ones(2, device=DEVICE) for _ in range(3)))
    assert not fused.retains(Rule("third"), stats) and fused.retains(Rule("chordal"), stats)
    mine, report = carried(outputs(), rule="third")
    torch_only()
    plain, expected = carried(outputs(), rule="third")
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in zip(mine, plain))
    found, wanted = ([s.omega for s in r.stages if s.omega] for r in (report, expected))
    assert found and found == pytest.approx(wanted, abs=1e-5) and max(found) <= 1 / 3 + 1e-6


@pytest.mark.parametrize("rule", RULES)
def test_kernels_know_what_the_rules_say_they_know(kernels, rule):
    stats = Statistics(*(torch.ones(2, device=DEVICE) for _ in range(3)))
    assert kernels.retains(Rule(rule), stats) == (rule not in ("log", "exp"))
    assert {f.kernel for f in RULES.values() if f.kernel} == set(kernels.RETAINED)


def test_what_autograd_follows_is_left_to_torch(fused, torch_only):
    def gradient():
        w = torch.tensor(0.7, device=DEVICE, requires_grad=True)
        outs = carried([torch.sin(w * v) for v in outputs()], rule="chordal")[0]
        return torch.autograd.grad(torch.stack(outs).square().sum(), w)[0]

    mine = gradient()
    torch_only()
    assert torch.equal(mine, gradient()) and mine != 0


@pytest.mark.parametrize("switch", range(1, STEPS))
def test_gradients_switched_on_and_off_in_mid_run(fused, torch_only, switch):
    """The kernels write in place what no graph holds, and nothing else."""

    def gradient():
        w = torch.tensor(0.7, device=DEVICE, requires_grad=True)
        run, path, kept = Run(SIGMAS, BUDGET, rule="chordal"), outputs(), []
        for n in range(STEPS):
            with torch.set_grad_enabled((n < switch) or n > switch + 3):
                turned = path[n].transpose(1, 2)
                kept.append(run(n, lambda t=turned: torch.sin(w * t)))
        return torch.autograd.grad(torch.stack(kept).square().sum(), w)[0]

    mine = gradient()
    torch_only()
    assert torch.allclose(mine, gradient(), rtol=1e-5)


def outputs(dtype=torch.float32, shape=(2, 3, 50), bad=None):
    """A bent path of outputs, one of them spoilt if asked."""
    torch.manual_seed(3)
    a, b, c = torch.randn(3, *shape).double().unbind()
    found = [(a + s * b + s * s * c).to(DEVICE, dtype) for s in SIGMAS[:-1]]
    for n, value in (bad or {}).items():
        found[n][0].flatten()[0] = value
    return found


def carried(path, **options):
    run = Run(SIGMAS, BUDGET, **options)
    return [run(n, lambda n=n: path[n]).clone() for n in range(STEPS)], run.report


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rule", ["chordal", "signed time", "exp"])
@pytest.mark.parametrize("regimes", [(), (4,)], ids=str)
def test_a_run_is_the_same_either_way(fused, torch_only, dtype, rule, regimes):
    path = outputs(dtype)
    mine, report = carried(path, rule=rule, regimes=regimes)
    torch_only()
    plain, expected = carried(path, rule=rule, regimes=regimes)
    for got, want in zip(mine, plain):
        assert torch.allclose(got, want, rtol=4 * STEP[dtype], atol=4 * STEP[dtype])
    assert report.queried == expected.queried and report.bytes_held == expected.bytes_held
    for got, want in zip(report.stages, expected.stages):
        for name in ("omega", "turning", "error"):
            a, b = getattr(got, name), getattr(want, name)
            assert (a is None) == (b is None)
            assert a is None or abs(a - b) < 1e-4 + 2 * STEP[dtype]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_what_is_not_finite_is_not_kept(fused, torch_only, value):
    path = outputs(bad={3: value})
    mine, report = carried(path, rule="fixed(0.5)")
    torch_only()
    plain, expected = carried(path, rule="fixed(0.5)")
    assert report.reasons == expected.reasons and report.reasons
    for got, want in zip(mine, plain):
        assert torch.allclose(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)


def test_an_output_buffer_may_be_used_again(fused):
    path, buffer = outputs(), torch.empty(2, 3, 50, device=DEVICE)
    run, expected = Run(SIGMAS, BUDGET), carried(path)[0]
    for n in range(STEPS):
        v = run(n, lambda n=n: buffer.copy_(path[n]))
        assert torch.equal(v, expected[n])
        buffer.fill_(float("nan"))


def test_an_output_that_is_not_contiguous(fused):
    path = outputs()
    turned = [v.transpose(1, 2) for v in path]
    for got, want in zip(carried(turned)[0], carried(path)[0]):
        assert torch.allclose(got.transpose(1, 2), want, rtol=1e-5, atol=1e-5)


def test_an_empty_batch_and_a_single_number(fused):
    for shape in ((0, 3), (2, 0), ()):
        path = [torch.ones(shape, device=DEVICE) * s for s in SIGMAS[:-1]]
        assert all(v.shape == shape for v in carried(path)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_our_own_loop_crosses_a_cell_in_one_update(fused, torch_only, dtype):
    def field(x, sigma):
        return torch.tanh(x.roll(1, -1)) * (1 + sigma)

    x = randn(2, 3, 50, dtype=dtype)
    mine = sample(field, x, SIGMAS, BUDGET)
    torch_only()
    plain = sample(field, x, SIGMAS, BUDGET)
    assert torch.allclose(mine, plain, rtol=8 * STEP[dtype], atol=8 * STEP[dtype])


@pytest.mark.parametrize("way", ["fused", "torch"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_retention_survives_cancellation(fused, torch_only, way, dtype):
    """Δv is a few units in the last place of v: ω of the rounded outputs, to 1e-3 of the oracle."""
    if way == "torch":
        torch_only()
    torch.manual_seed(5)
    base, *bends = torch.randn(3, 1, 2000).double().unbind()
    base, unit = 64 + base.sign(), torch.finfo(dtype).eps * 64
    turns = [(8 * math.cos(6 * s), 8 * math.sin(6 * s)) for s in SIGMAS[:-1]]
    path = [
        (base + unit * (a * bends[0] + b * bends[1]).round()).to(DEVICE, dtype) for a, b in turns
    ]
    report = carried(path, rule="chordal")[1]
    for stage in report.stages:
        if stage.omega is None:
            continue
        k, j, i = sorted((a for a in report.queried if a < stage.stage), reverse=True)[:3]
        v = [path[n].double().flatten().cpu().numpy() for n in (k, j, i)]
        rho = oracle.horizon(SIGMAS, stage.stage, k, j)
        truth = oracle.retention("chordal", v[0] - v[1], v[1] - v[2], rho, None)
        assert truth < 0.99 and abs(stage.omega - truth) < 1e-3


CORRECTED = [
    {"correct": True},
    {"correct": Correction("linear", 1.0)},
    {"correct": Correction(0.3, 2.0), "rule": "chordal"},
    {"correct": True, "solver": "ab2"},
    {"correct": True, "solver": "dpm++2m"},
    {"correct": True, "anchors": (0, 4, 9)},  # the first cell is held
    {"correct": True, "regimes": (4,)},
]


@pytest.mark.parametrize("options", CORRECTED, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_corrected_run_is_the_same_either_way(fused, torch_only, dtype, options):
    torch.manual_seed(3)
    x, weight = randn(3, 40, dtype=dtype), randn(40, 40) / 5
    options = {"anchors": (0, 1, 2, 4, 7, 11)} | options

    def run():
        def velocity(x, sigma):
            return (torch.tanh(x.float() @ weight) * (1 + sigma)).to(dtype)

        return sample(velocity, x, SIGMAS, with_report=True, **options)

    (quick, told), _ = run(), torch_only()
    plain, same = run()
    assert not told.reasons and not same.reasons
    half = 6e-2 if CUDA else 0.15  # four steps at 3; the interpreter cuts
    step = {torch.float32: 1e-5, torch.bfloat16: half, torch.float16: 5e-3, torch.float64: 1e-12}
    assert torch.allclose(quick.double(), plain.double(), rtol=0, atol=step[dtype])
    moved = [(a.correction, b.correction) for a, b in zip(told.stages, same.stages)]
    loose = {torch.bfloat16: 0.2, torch.float16: 1e-2}.get(dtype, 1e-4)
    assert any(a for a, _ in moved)
    assert all((a is None) == (b is None) for a, b in moved)
    assert all(a == pytest.approx(b, rel=loose, abs=1e-4) for a, b in moved if a is not None)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_a_correction_that_is_not_finite_or_outlying_is_dropped(fused, torch_only, value):
    """Of the sample that has it, and of no other."""
    torch.manual_seed(0)
    x = randn(2, 30)

    def run():
        def velocity(x, sigma):
            out = torch.tanh(x) * (1 + sigma)
            if abs(sigma - SIGMAS[4]) < 1e-6:
                out[1, 3] = value
            return out

        v, states = Run(SIGMAS, anchors=(0, 1, 2, 4, 9), correct=True, solver="euler"), []
        y = x.clone()
        for n in range(6):
            before = y
            output, y = v.with_state(n, lambda n=n, y=y: velocity(y, SIGMAS[n]), y)
            states.append((before, y))
            y = y + (SIGMAS[n + 1] - SIGMAS[n]) * output
        return states

    quick, _ = run(), torch_only()
    for before, after in (quick[4], run()[4]):
        assert torch.equal(before[1], after[1]) and not torch.equal(before[0], after[0])
    assert torch.allclose(quick[4][1], run()[4][1], atol=1e-6)


@pytest.mark.parametrize("caution", [0.0, 1.0])
def test_an_output_that_carries_the_correction_is_the_same_either_way(fused, torch_only, caution):
    torch.manual_seed(3)
    x, weight = randn(3, 40), randn(40, 40) / 5
    sigmas = [s**1.3 for s in SIGMAS]

    def run():
        how = {"anchors": (0, 1, 2, 4, 7, 11), "correct": Correction("half", caution)}
        loop, y = Run(sigmas, solver="euler", **how), x
        for n in range(STEPS):
            v = loop(n, lambda y=y, n=n: torch.tanh(y @ weight) * (1 + sigmas[n]))
            y = y + (sigmas[n + 1] - sigmas[n]) * v
        return y

    quick, _ = run(), torch_only()
    assert torch.allclose(quick, run(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("times", "kept"), [(1.9, True), (2.1, False)])
def test_the_kernels_drop_what_is_longer_than_twice_the_cells_way(fused, times, kept):
    base = torch.tensor([[1.0, 0.0]], device=DEVICE)
    shares = sum(i / 5 for i in range(1, 5)) / 4
    last = base + torch.tensor([[0.0, times / shares]], device=DEVICE)
    run = Run([1 - i / 20 for i in range(21)], anchors=(0, 5), correct=True, solver="euler")
    x = torch.zeros(1, 2, device=DEVICE)
    for n in range(5):
        run.with_state(n, lambda: base, x)
    _, y = run.with_state(5, lambda: last, x)
    assert torch.equal(x, y) != kept
