"""Recorder: a pipeline's runs, noted down where its scheduler steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from .gains import heard


class Begun(Exception):
    """Ends a run after its first step."""


class Recorder:
    """The scheduler's step, noted down: the grid of the loop, its first and its last state.

    keep      all outputs, too
    error     (n, tensor): added to the state that stage n begins with
    anchors   the steps at which the model is called, all unless said: `tick` is told of each
    """

    def __init__(
        self,
        pipe: Any,
        error: tuple[int, Tensor] | None = None,
        keep: bool = False,
        anchors: Collection[int] | None = None,
        tick: Callable[[], None] = lambda: None,
    ):
        self.pipe, self.error, self.keep, self.anchors, self.tick = pipe, error, keep, anchors, tick
        self.outputs: list[Tensor] = []
        self.steps, self.off = 0, 0.0  # how many were made, and how far they were from Euler's
        self.grid: Any = None
        self.reason: str | None = None
        self.start: Any = None  # the first state and output
        self.end: Any = None  # the last state
        self.put: Any = None  # ‖error‖ of each sample, as rounded

    def step(self, scheduler: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        output, x = next(iter(given.values())), given.get("sample")
        if not isinstance(output, Tensor) or not isinstance(x, Tensor):
            raise ValueError(
                f"{type(scheduler).__name__}.step was not given a model output and a sample: "
                "profile the model itself, with geoshrink.profile(velocity, noise, sigmas)"
            )
        result = original(*args, **kwargs)
        if self.grid is None:
            self.grid, self.reason = self.read_grid(scheduler, given.get("timestep"))
            self.start = x.detach().cpu(), output.detach().cpu()
        after = result[0] if isinstance(result, tuple) else result.prev_sample
        if self.anchors is None or self.steps in self.anchors:
            self.tick()
        self.steps += 1
        if self.keep:
            self.outputs.append(output.detach().cpu())
            self.compare(x, output, after)
        if self.error is not None and self.error[0] == self.steps:
            moved = after + heard(self.error[1].to(after.device), after).to(after.dtype)
            self.put = (moved.double() - after.double()).flatten(1).norm(dim=1).cpu()
            result = replaced(result, moved)
            after = moved
        self.end = after.detach().cpu()
        return result

    def read_grid(self, scheduler: Any, timestep: Any) -> tuple[Grid, str | None]:
        from ..adapters import diffusers

        order = max(1, getattr(scheduler, "order", 1))
        if order > 1:
            return Grid.of([1.0, 0.0]), f"{type(scheduler).__name__} evaluates twice a stage"
        return diffusers.grid_of(scheduler, self.pipe, order, timestep)

    def compare(self, x: Tensor, output: Tensor, after: Tensor) -> None:
        """How far the solver's step is from Euler's on the grid."""
        n = self.grid.effective.get(self.steps - 1)
        if n is None or n >= self.grid.steps or len(self.grid.tracks) > 1:
            return
        p, g = self.grid.tracks[0].euler(n)
        made = p * x.double() + g * output.double()
        moved = float((after.double() - x.double()).norm())
        self.off = max(self.off, float((after.double() - made).norm()) / max(moved, 1e-12))


class Beginning(Recorder):
    """Of a run that ends after its first step."""

    def step(self, scheduler: Any, original: Callable, args: tuple, kwargs: dict) -> Any:
        super().step(scheduler, original, args, kwargs)
        raise Begun


def recorded(
    pipe: Any,
    run: dict[str, Any],
    seed: int,
    recorder: Recorder,
    plan: Any = None,
) -> Recorder:
    """One call of the pipeline, seeded, with its scheduler noted down; as it was afterwards."""
    from .. import accelerate

    call = {"generator": torch.Generator().manual_seed(seed)} | run
    if "output_type" in inspect.signature(type(pipe).__call__).parameters:
        call = {"output_type": "latent"} | call
    with stepping(pipe.scheduler, recorder), torch.no_grad():
        handle = None if plan is None else accelerate(pipe, plan=plan)
        try:
            pipe(**call)
        except Begun:
            pass
        finally:
            if handle is not None:
                handle.remove()
    return recorder


@contextmanager
def stepping(scheduler: Any, recorder: Recorder) -> Iterator[None]:
    before = scheduler.__dict__.get("step")
    original = scheduler.step

    def step(*args: Any, **kwargs: Any) -> Any:
        return recorder.step(scheduler, original, args, kwargs)

    step.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    scheduler.__dict__["step"] = step
    try:
        yield
    finally:
        scheduler.__dict__.pop("step", None)
        if before is not None:
            scheduler.__dict__["step"] = before


def replaced(result: Any, x: Tensor) -> Any:
    if isinstance(result, tuple):
        return (x, *result[1:])
    result.prev_sample = x
    return result
