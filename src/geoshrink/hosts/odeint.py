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

from ..asked import check_options
from ..correctable import OUT_OF_REACH, plan_with
from ..grid import Grid
from ..plan import Plan, given_plan
from ..pointers import explained
from ..teaching import teacher_of
from .options import plan_for
from .stages import Wrapped

logger = logging.getLogger("geoshrink")


@explained("odeint")
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

    Without budget, speedup, target_db, anchors or plan every stage is queried, bit for bit as
    without us.

    func          func(t, y) returns dy/dt
    y0            the state at t_0: a tensor, or a tuple of them
    t             the times t_0 … t_T, which are the solver's stages
    budget        how many stages query func
    method        torchdiffeq's; "euler" is the default here (there it is dopri5). With any other
                  func runs at every call
    rtol, atol    torchdiffeq's tolerances, which Euler does not read
    options       torchdiffeq's options of the method: step_size, grid_constructor …
    event_fn      torchdiffeq's: where to stop. With it func runs at every call
    plan          a Plan, the path of its JSON file, or the contents as a dict
    mask          which coordinates of y the statistics see (all are predicted): True is seen
    dtype         the statistics are accumulated in this precision or better
    with_report   return (trajectory, report)
    learn         True: the first call in a setting runs func at every stage, and teaches the others
                  where to (docs/learning.md); a number, or geoshrink.Learning(…). From 0 to 1 it
                  needs to be told where the data is: data=1.0

    How the plan is made, where none is given (as in Plan.of):

    speedup       in place of a budget: the number of stages divided by this, but at least 4
    target_db     in place of a budget: as many calls as the run turns out to need to come this
                  close to the full run, in dB (docs/quality.md)
    most          with target_db: calls at most
    judge         with target_db: "mean" of the samples of a batch, or "worst"
    anchors       the stages to query; or the mesh that places the budget: "corrected" (the default,
                  where cells are corrected), "auto" (where they are not), "sigma", "geometric" (the
                  paper's), "uniform", or one that you registered
    rule          how much of the latest change is kept: "signed time" (the default), "chordal"
                  (the paper's), "hold", …, a Rule, or one per anchor
    space         "output" predicts dy/dt, "data" the data
    blocks        geoshrink.Blocks(…): which coordinates share one ω; default: those of a sample
    coefficients  one ω per stage that replaces the rule; None where the rule decides
    target        "run" (the default): close to Euler's own T steps. "flow": close to the exact flow
    refine        Euler steps in place of each one, 1 to 64
    correct       True: put a skipped cell right at the anchor that ends it, at no further call; a
                  gain or a geoshrink.Correction says how; False: do not
    clock         distances between stages are measured in "sigma" or "mesh", the auto mesh's y
    prediction    what func returns: "flow", dy/dt
    alphas        α of x = α·x₀ + σ·ε, unless it is a flow
    data          the time at which y is data, unless t falls to 0
    regimes       stages at which func changes: each is queried; the jump is no innovation
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
