"""diffusers' FLUX, SD3 and HunyuanVideo transformers as lists of blocks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cases import Hold, calls_of
from geoshrink import sample
from geoshrink_bench.methods.fora import Fora
from geoshrink_bench.methods.stack import stack_of
from transformers_of import STEPS, case_of, flux, hunyuan, sd3

d: Any = pytest.importorskip("diffusers")


@pytest.fixture(params=[flux, sd3, hunyuan])
def case(request):
    return case_of(request.param)


def plain(case):
    return sample(case.velocity(), case.noise, case.grid())


@pytest.mark.parametrize("head", [0, 1])
def test_the_residual_of_the_stack(case, head):
    def run(stages):
        return Hold(case, stages, head).run()

    full = plain(case)
    assert torch.equal(run(range(STEPS)).x, full)
    calls = [calls_of(branches[0]) for branches in stack_of(case.network).branches]
    outcome = run({0, 3})
    assert outcome.evaluated == (0, 3) and not torch.equal(outcome.x, full)
    assert [len(c) for c in calls] == [STEPS] * head + [2] * (len(calls) - head)


def test_the_branches(case):
    full = plain(case)
    assert torch.equal(Fora().session(case, list(range(STEPS))).run().x, full)
    modules = [m for branches in stack_of(case.network).branches for m in branches]
    inner = {id(layer): layer for m in modules for layer in m.modules() if layer is not m}
    calls = [calls_of(layer) for layer in inner.values() if not list(layer.children())]
    outcome = Fora().session(case, [0, 3]).run()
    assert outcome.evaluated == (0, 3) and torch.isfinite(outcome.x).all()
    assert not torch.equal(outcome.x, full) and outcome.held > 0
    assert max(len(c) for c in calls) == 2


def test_reuse_of_an_unchanging_stage_is_exact(case):
    """Where x and σ stay, so does the output: nothing but the branches and gates decide it."""
    inner = case.velocity()
    first = inner(case.noise, 0.5)
    session = Fora().session(case, [0])
    session.inner = lambda x, sigma: inner(case.noise, 0.5)
    seen = []
    velocity = session.velocity
    session.velocity = lambda x, sigma: seen.append(velocity(x, sigma)) or seen[-1]
    session.run()
    assert all(torch.allclose(v, first, atol=1e-5) for v in seen)
