"""On a GPU: no host synchronisation at a skipped stage, and the results of the CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from geoshrink import Blocks, Plan, Run, sample
from geoshrink.history import slot
from geoshrink_bench.zoo import shifted_sigmas

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SIGMAS = shifted_sigmas(30, 3.0)


def field(x, sigma):
    return torch.tanh(x.roll(1, -1)) * (1 + sigma) + torch.sin(3 * sigma * x)


def never_wait(function, *args):
    torch.cuda.set_sync_debug_mode("error")
    try:
        return function(*args)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize(
    "blocks", [Blocks(), Blocks((0, 1)), Blocks((0, 1), groups=(2, 6)), Blocks(shared=True)]
)
def test_a_skipped_stage_never_waits(space, blocks):
    run = Run(SIGMAS, 8, space=space, blocks=blocks)
    x = torch.randn(4, 8, 16, device="cuda")
    for n in range(run.steps):
        if run.queries(n, x):
            v = field(x, SIGMAS[n])
            run.observe(n, v, x)
        else:
            v = never_wait(run.predict, n, x)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
    assert run.report.evaluations == 8


@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "torch"])
def test_an_anchor_never_waits(kernels, monkeypatch):
    if not kernels:
        monkeypatch.setattr(slot, "fused", lambda like: None)
    path = torch.randn(30, 4, 8, 16, device="cuda")
    carried(path)  # compiles the kernels
    run = Run(SIGMAS, 8)
    for n in range(run.steps):
        if run.queries(n):
            never_wait(run.observe, n, path[n])
        else:
            never_wait(run.predict, n)
    assert run.report.evaluations == 8


@pytest.mark.parametrize("solver", ["euler", "ab2"])
@pytest.mark.parametrize("kernels", [True, False], ids=["fused", "torch"])
def test_a_correction_never_waits_and_holds_two_tensors(kernels, solver, monkeypatch):
    if not kernels:
        monkeypatch.setattr(slot, "fused", lambda like: None)
    path = torch.randn(30, 4, 8, 16, device="cuda")
    run = Run(SIGMAS, 8, correct=True, solver=solver)
    for attempt in range(2):  # the first compiles the kernels and tries the solver out
        state = torch.randn(4, 8, 16, device="cuda")
        memory = [[state] * (1 + len(run.stored(0)))]
        for n in range(run.steps):
            if not run.queries(n):
                never_wait(run.predict, n)
            elif attempt:
                never_wait(run.observe_state, n, path[n], None, memory)
            else:
                run.observe_state(n, path[n], None, memory)
    report = run.report
    assert report.evaluations == 8 and not report.reasons
    assert sum(stage.correction is not None for stage in report.stages) > 2
    assert report.bytes_held == 2 * path[0].nbytes


def carried(path, **options):
    run = Run(SIGMAS, 8, **options)
    return [run(n, lambda n=n: path[n]).clone() for n in range(run.steps)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 4096, 64), (3, 1 << 20), (2, 4099), (1, 1)])
def test_the_fused_kernels_repeat_themselves_and_agree_with_torch(monkeypatch, shape, dtype):
    a, b, c = torch.randn(3, *shape, device="cuda", dtype=torch.float64).unbind()
    path = [(a + s * b + s * s * c).to(dtype) for s in SIGMAS[:-1]]
    first, again = carried(path), carried(path)
    assert all(torch.equal(x, y) for x, y in zip(first, again))
    monkeypatch.setattr(slot, "fused", lambda like: None)
    close = 4 * torch.finfo(dtype).eps
    for x, y in zip(first, carried(path)):
        assert torch.allclose(x, y, rtol=close, atol=4 * close)


@pytest.mark.parametrize("correct", [False, True])
def test_a_whole_run_in_one_cuda_graph(correct):
    plan = replace(Plan.of(SIGMAS, 8, correct=correct), slow=())
    x = torch.randn(2, 8, 16, device="cuda")
    expected = sample(field, x, plan=plan)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        sample(field, x, plan=plan)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = sample(field, x, plan=plan)
    other = torch.randn_like(x)
    for given in (x.clone(), other):
        x.copy_(given)
        graph.replay()
        assert torch.allclose(captured, sample(field, given, plan=plan), atol=1e-5)
    assert not torch.equal(captured, expected)


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_model_whose_output_buffer_is_used_again():
    x = torch.randn(2, 8, 16, device="cuda")
    expected = sample(field, x, SIGMAS, 8)
    quick = torch.compile(field, fullgraph=True, mode="reduce-overhead", dynamic=False)
    levels = {s: torch.tensor(s, device="cuda") for s in SIGMAS}
    for _ in range(3):
        found = sample(lambda x, sigma: quick(x, levels[sigma]), x, SIGMAS, 8)
        assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("solver", ["euler", "ab2", "heun", "dpm++2m"])
@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("correct", [False, True])
def test_the_gpu_computes_what_the_cpu_computes(correct, space, solver):
    x = torch.randn(4, 8, 16, dtype=torch.float64)
    here = sample(field, x, SIGMAS, 8, space=space, solver=solver, correct=correct)
    there = sample(field, x.cuda(), SIGMAS, 8, space=space, solver=solver, correct=correct)
    assert (here - there.cpu()).abs().max() < 1e-9


def test_half_precision_outputs_stay_half():
    x = torch.randn(2, 64, device="cuda", dtype=torch.bfloat16)
    run = Run(SIGMAS, 8)
    outputs = [run(n, lambda n=n: field(x, SIGMAS[n]), x) for n in range(run.steps)]
    assert all(v.dtype == torch.bfloat16 and v.is_cuda for v in outputs)
