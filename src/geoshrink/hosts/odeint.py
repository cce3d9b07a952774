"""torchdiffeq.odeint on a fixed grid: func(t, y) is queried at the anchors only.

Euler calls func once a stage, at the stage's own time. Every other method calls it in between, so
that no prediction is made: it runs as torchdiffeq has it, and that is said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..correctable import OUT_OF_REACH, plan_with
from ..grid import Grid
from ..plan import Plan, given_plan
from ..run import check_options
from ..teaching import teacher_of
from .options import plan_for
from .stages import Wrapped

logger = logging.getLogger("geoshrink")


def odeint(
    func: Callable[[Tensor, Any], Any],
    y0: Any,
    t: Tensor,
    *,
    budget: int | None = None,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = "euler",
    options: Mapping[str, Any] | None = None,
    event_fn: Callable | None = None,
    plan: Plan | str | Path | Mapping[str, Any] | None = None,
    mask: Any = None,
    dtype: torch.dtype = torch.float32,
    with_report: bool = False,
    learn: Any = None,
    **plan_options: Any,
) -> Any:
    """torchdiffeq.odeint, with func queried at `budget` of the stages of t: y at every t.

        trajectory = geoshrink.odeint(velocity, noise, torch.linspace(0, 1, 51), budget=10)

    `plan_options` are those of Plan.of (speedup, target_db, anchors, rule, space, correct, data …);
    without budget, speedup, target_db, anchors or plan every stage is queried, bit for bit as
    without us. The method is Euler by default (torchdiffeq's own default is dopri5); with any
    other, and with an event_fn, func runs at every call.

    mask          which coordinates of y the statistics see (all are predicted): True is seen
    with_report   return (trajectory, report)
    learn         True: the first call in a setting runs func at every stage, and teaches the others
                  where to (docs/learning.md); a number, or geoshrink.Learning(…). From 0 to 1 it
                  needs to be told where the data is: data=1.0
    """
    try:
        import torchdiffeq
    except ImportError:
        raise ImportError("geoshrink.odeint needs torchdiffeq: pip install torchdiffeq") from None
    times, reason = times_of(func, y0, t, method, options, event_fn)
    if reason is not None:
        reason = f"{reason}: every call is run"
        logger.warning("geoshrink: %s", reason)
    stages = stages_of(times, reason, budget, plan, plan_options, "euler")
    teacher = teacher_of(learn, plan_options, plan, model=func)
    teacher = teacher if reason is None else None
    wrapped = Integrated(func, *stages, mask, dtype, False, "euler", teacher)
    more = {} if event_fn is None else {"event_fn": event_fn}
    given = None if options is None else dict(options)
    result = torchdiffeq.odeint(
        wrapped, y0, t, rtol=rtol, atol=atol, method=method, options=given, **more
    )
    return (result, wrapped.report) if with_report else result


def wrap(
    func: Callable[[Tensor, Any], Any],
    t: Any,
    budget: int | None = None,
    *,
    plan: Plan | str | Path | Mapping[str, Any] | None = None,
    mask: Any = None,
    dtype: torch.dtype = torch.float32,
    solver: str | None = None,
    learn: Any = None,
    **plan_options: Any,
) -> Integrated:
    """func for a solver that calls it once at every time of t but the last, as Euler does.

        velocity = geoshrink.hosts.odeint.wrap(velocity, t, budget=10)
        trajectory = torchdiffeq.odeint(velocity, noise, t, method="euler")
        print(velocity.report)

    Options are those of odeint(); say solver="euler" if it is Euler's, for corrected cells. A call
    at any other time runs func, and so do all calls after it; a call at t_0 begins a new run. Each
    thread has runs of its own.
    """
    stages = stages_of(numbers(t), None, budget, plan, plan_options, solver)
    teacher = teacher_of(learn, plan_options, plan, model=func)
    return Integrated(func, *stages, mask, dtype, False, solver, teacher)


class Integrated(Wrapped):
    """func(t, y) with predictions."""

    def __call__(self, t: Any, y: Any) -> Any:
        return self.stages(t, lambda: self.inner(t, y), y)


def stages_of(
    times: list[float],
    reason: str | None,
    budget: int | None,
    plan: Any,
    options: dict[str, Any],
    solver: str | None,
) -> tuple[Plan, list[float], str | None]:
    """(plan, times, note) of the runs over these times."""
    check_options(options)
    if plan is None:
        why = None if solver in (None, "euler") else OUT_OF_REACH
        made = plan_with(solver, times, budget, options, why)
    else:
        made = given_plan(plan, {**options, "budget": budget})
        made = plan_for(Grid.of(times), {"plan": made})
    return (made if reason is None else Plan.of(times)), times, reason


def times_of(
    func: Callable, y0: Any, t: Tensor, method: str | None, options: Any, event_fn: Any
) -> tuple[list[float], str | None]:
    """(the times of the solver's stages, why every call must run func or None)."""
    options = options or {}
    reason = None
    if method != "euler":
        reason = f"{method or 'dopri5'} calls func between the times of its grid"
    elif event_fn is not None:
        reason = "with an event_fn the stages are not known beforehand"
    elif options.get("interp", "linear") != "linear":
        reason = f"{options['interp']} interpolation calls func more often than once a stage"
    if options.get("grid_constructor") is not None:
        t = options["grid_constructor"](func, y0, t)
    elif options.get("step_size") is not None and reason is None:
        t = stepped(torch.as_tensor(t), options["step_size"])
    return numbers(t), reason


def stepped(t: Tensor, step: Any) -> Tensor:
    """From the first time to the last in steps of one size, the last one shorter."""
    sign = 1 if t[-1] >= t[0] else -1
    count = int(torch.ceil((t[-1] - t[0]).abs() / step))
    grid = sign * torch.arange(count + 1, dtype=t.dtype, device=t.device) * step + t[0]
    grid[-1] = t[-1]
    return grid


def numbers(t: Any) -> list[float]:
    return torch.as_tensor(t).detach().double().flatten().tolist()
