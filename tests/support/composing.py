"""A tiny pipeline composed with something else: the checks that both still work."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoshrink import accelerate

image: Any = pytest.importorskip("hosts.image")
video: Any = pytest.importorskip("hosts.video")
STEPS, BUDGET = 8, 5


def tiny(name: str = "FluxPipeline") -> tuple[Any, dict[str, Any]]:
    return (image if name in image.PIPELINES else video).PIPELINES[name]()


def run(pipe: Any, kwargs: dict[str, Any]) -> Tensor:
    return image.run(pipe, kwargs, steps=STEPS)


class Count:
    """How often something happened since it was last asked."""

    def __init__(self) -> None:
        self.n = 0

    def add(self, *_: Any, **__: Any) -> None:
        self.n += 1

    def take(self) -> int:
        n, self.n = self.n, 0
        return n


def calls_of(module: nn.Module) -> Count:
    count = Count()
    module.register_forward_pre_hook(count.add)
    return count


def composes(pipe: Any, kwargs: dict[str, Any], count: Count) -> None:
    """The pipeline with the other tool on it, `count` counting what the tool does in a run."""
    alone = run(pipe, kwargs)
    count.take()
    assert torch.equal(run(pipe, kwargs), alone)
    per_stage, rest = divmod(count.take(), STEPS)
    assert per_stage and not rest
    with accelerate(pipe, budget=STEPS):
        assert torch.equal(run(pipe, kwargs), alone)
    assert count.take() == STEPS * per_stage
    with accelerate(pipe, budget=BUDGET) as handle:
        first = run(pipe, kwargs)
        assert count.take() == BUDGET * per_stage
        assert torch.equal(run(pipe, kwargs), first)
        assert count.take() == BUDGET * per_stage
        assert [report.evaluations for report in handle.reports] == [BUDGET, BUDGET]
    assert not torch.equal(first, alone)
    assert first.isfinite().all()
    assert torch.equal(run(pipe, kwargs), alone)
    assert count.take() == STEPS * per_stage
