"""Pipelines on a GPU, in every way that diffusers can place one: exact, skipping, removable.

At a skipped stage the denoiser's forward does not run and none of its weights are moved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("accelerate")
pytest.importorskip("diffusers")

from accelerate import hooks
from diffusers.hooks import group_offloading
from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
    FlowMatchEulerDiscreteScheduler,
)

from geoshrink import accelerate
from geoshrink.hosts.diffusers import find_denoisers, find_schedulers
from geoshrink.hosts.scheduling import numbers, read_ahead
from hosts import image, video
from hosts.check import attributes, run, same

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]
DEVICE, STEPS, BUDGET = "cuda", 8, 5
NAMES = (
    "FluxPipeline",
    "StableDiffusion3Pipeline",
    "StableDiffusionXLPipeline",
    "WanPipeline (two experts)",
    "LTX2Pipeline",
)


# --- where the weights are -----------------------------------------------------------------------


def on_device(pipe: Any) -> None:
    pipe.to(DEVICE)


def model_offload(pipe: Any) -> None:
    pipe.enable_model_cpu_offload(device=DEVICE)


def sequential_offload(pipe: Any) -> None:
    pipe.enable_sequential_cpu_offload(device=DEVICE)


def group_offload(kind: str, stream: bool) -> Callable[[Any], None]:
    def place(pipe: Any) -> None:
        denoisers: list[Any] = find_denoisers(pipe)
        for part in pipe.components.values():
            if isinstance(part, nn.Module) and all(part is not d for d in denoisers):
                part.to(DEVICE)
        size = {"num_blocks_per_group": 1} if kind == "block_level" else {}
        for denoiser in denoisers:
            denoiser.enable_group_offload(
                torch.device(DEVICE),
                torch.device("cpu"),
                offload_type=kind,
                use_stream=stream,
                **size,
            )

    return place


PLACES: dict[str, Callable[[Any], None]] = {
    "on the device": on_device,
    "model offload": model_offload,
    "sequential offload": sequential_offload,
    "group offload, leaves": group_offload("leaf_level", stream=False),
    "group offload, leaves, stream": group_offload("leaf_level", stream=True),
    "group offload, blocks": group_offload("block_level", stream=False),
    "group offload, blocks, stream": group_offload("block_level", stream=True),
}


def tiny(name: str, dtype: torch.dtype) -> tuple[Any, dict[str, Any]]:
    pipe, kwargs = {**image.PIPELINES, **video.PIPELINES}[name]()
    pipe.to(dtype)
    for key, value in kwargs.items():
        if isinstance(value, Tensor):
            kwargs[key] = value.to(DEVICE, dtype if value.is_floating_point() else None)
    return pipe, kwargs


# --- what happens --------------------------------------------------------------------------------


class Log:
    """What the denoisers did between two steps of a scheduler: "forward", "move"."""

    def __init__(self, pipe: Any, patch: pytest.MonkeyPatch):
        self.between: list[set[str]] = [set()]
        self.parts = {id(part) for module in find_denoisers(pipe) for part in module.modules()}
        for module in find_denoisers(pipe):
            module.register_forward_pre_hook(lambda *_: self.between[-1].add("forward"))
        for kind in {type(scheduler) for scheduler in find_schedulers(pipe)}:
            self.watch(patch, kind, "step", lambda *_: self.between.append(set()))
        for kind in (hooks.CpuOffload, hooks.AlignDevicesHook):
            self.watch(patch, kind, "pre_forward", self.moved)
        for name in ("onload_", "offload_"):
            group = group_offloading.ModuleGroup
            self.watch(patch, group, name, lambda *_: self.between[-1].add("move"))

    def moved(self, hook: Any, module: nn.Module) -> None:
        if id(module) in self.parts:
            self.between[-1].add("move")

    def watch(self, patch: pytest.MonkeyPatch, owner: type, name: str, see: Callable) -> None:
        plain = getattr(owner, name)

        @functools.wraps(plain)
        def method(this: Any, *args: Any, **kwargs: Any) -> Any:
            see(this, *args[:1])
            return plain(this, *args, **kwargs)

        patch.setattr(owner, name, method)

    def take(self) -> list[set[str]]:
        """What was seen up to the last step, without stages where nothing ran and nothing moved."""
        seen, self.between = [events for events in self.between[:-1] if events], [set()]
        return seen


@pytest.fixture(autouse=True)
def repeatable() -> Any:
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield
    torch.backends.cudnn.deterministic = before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_a_placed_pipeline(monkeypatch, name, place, dtype):
    pipe, kwargs = tiny(name, dtype)
    try:
        PLACES[place](pipe)
        alone = run(pipe, kwargs, steps=STEPS)
    except Exception as error:
        pytest.skip(f"the plain pipeline fails: {type(error).__name__}: {error}")
    assert same(alone, run(pipe, kwargs, steps=STEPS)), "the plain run is not repeatable"
    before, log = attributes(pipe), Log(pipe, monkeypatch)

    offloaded = {"forward", "move"} if place != "on the device" else {"forward"}
    with accelerate(pipe, budget=STEPS) as handle:
        assert same(alone, run(pipe, kwargs, steps=STEPS))
        assert handle.report is not None and not handle.report.predicted
    assert log.take() == [offloaded] * STEPS

    with accelerate(pipe, budget=BUDGET) as handle:
        first = run(pipe, kwargs, steps=STEPS)
        seen = log.take()
        assert same(first, run(pipe, kwargs, steps=STEPS))
        reports = handle.reports
    assert len(reports) == 2 and reports[0].predicted
    assert reports[0].evaluations < STEPS
    assert seen == [offloaded] * reports[0].evaluations  # no stage moves weights for nothing
    assert all(t.isfinite().all() for t in first)
    assert not same(alone, first)

    log.take()
    assert same(alone, run(pipe, kwargs, steps=STEPS))
    assert log.take() == [offloaded] * STEPS
    assert attributes(pipe) == before


# --- reading σ -----------------------------------------------------------------------------------


def test_sigmas_are_read_from_the_copy_that_was_sent_ahead():
    scheduler: Any = FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(STEPS, device=DEVICE)
    read_ahead(scheduler)
    busy = torch.cuda.Event()
    torch.cuda._sleep(1_000_000_000)  # half a second of somebody else's work
    busy.record()
    read = numbers(scheduler.sigmas)
    assert not busy.query()
    assert read == scheduler.sigmas.double().tolist()


def test_sigmas_that_were_changed_since_are_read_anew():
    scheduler: Any = FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(STEPS, device=DEVICE)
    read_ahead(scheduler)
    scheduler.sigmas[1] = 0.125
    assert numbers(scheduler.sigmas)[1] == 0.125
    scheduler.set_timesteps(STEPS, device=DEVICE)
    assert numbers(scheduler.sigmas)[1] != 0.125
