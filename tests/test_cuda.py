"""On a GPU: no host synchronisation at a skipped stage, and the results of the CPU."""

from __future__ import annotations

import pytest
import torch

from geoshrink import Blocks, Run, sample
from geoshrink.zoo import shifted_sigmas

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


def test_a_planned_anchor_never_waits_once_the_table_is_there():
    run = Run(SIGMAS, 8)
    x = torch.randn(4, 8, 16, device="cuda")
    for n in range(run.steps):
        if run.queries(n, x):
            v = field(x, SIGMAS[n])
            torch.cuda.synchronize()
            if n > 2:
                never_wait(run.observe, n, v, x)
            else:
                run.observe(n, v, x)
        else:
            v = run.predict(n, x)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v


@pytest.mark.parametrize("solver", ["euler", "ab2", "heun", "dpm++2m"])
@pytest.mark.parametrize("space", ["output", "data"])
def test_the_gpu_computes_what_the_cpu_computes(space, solver):
    x = torch.randn(4, 8, 16, dtype=torch.float64)
    here = sample(field, x, SIGMAS, 8, space=space, solver=solver)
    there = sample(field, x.cuda(), SIGMAS, 8, space=space, solver=solver)
    assert (here - there.cpu()).abs().max() < 1e-9


def test_half_precision_outputs_stay_half():
    x = torch.randn(2, 64, device="cuda", dtype=torch.bfloat16)
    run = Run(SIGMAS, 8)
    outputs = [run(n, lambda n=n: field(x, SIGMAS[n]), x) for n in range(run.steps)]
    assert all(v.dtype == torch.bfloat16 and v.is_cuda for v in outputs)
