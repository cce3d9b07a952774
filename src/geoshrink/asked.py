"""The plan that a Run is asked for, and the checks of what is asked beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

import torch

from .checks import whole
from .correctable import OUT_OF_REACH, plan_with
from .plan import Plan
from .solvers import SOLVERS


def asked_plan(
    sigmas: Any,
    budget: int | None,
    options: Mapping[str, Any],
    solver: str | None,
    reserve: int,
    reaches: bool,
) -> Plan:
    """The plan of a Run that is given none.

    options   those of Plan.of
    reaches   the loop moves what its solver stores
    """
    check_options(options)
    why = "queries are kept in reserve" if reserve else None
    if solver not in (None, "euler") and not reaches:
        why = OUT_OF_REACH
    return plan_with(solver, sigmas, planned(budget, reserve), options, why)


def planned(budget: int | None, reserve: int) -> int | None:
    """The part of a budget that is not kept in hand."""
    if not reserve or budget is None:
        return budget
    left = whole(budget, "budget") - reserve
    if left < 2:
        raise ValueError(
            f"reserve={reserve} leaves {left} of a budget of {budget} to be planned: keep fewer in "
            "hand"
        )
    return left


def with_reserve(plan: Plan, reserve: int, solver: str | None) -> Plan:
    """The plan of a Run that keeps queries in hand, or whose solver takes two outputs a stage: it
    keeps its anchors. A reserve counts its cells; what Pace sees at a stage is one output.
    """
    if plan.aim is not None and reserve:
        raise ValueError(
            f"reserve={reserve} and target_db={plan.aim.db:g} both decide on further queries: give "
            "one of them"
        )
    twice = solver is not None and SOLVERS[solver].evaluations > 1
    return replace(plan, slow=()) if reserve or twice else plan


def check_options(options: Mapping[str, Any]) -> None:
    known = [*signature(Plan.of).parameters][2:]
    for name in options:
        if name not in known:
            raise TypeError(f"unknown option {name!r}; the options are {', '.join(known)}")


def check_solver(solver: Any) -> None:
    if solver is not None and not (isinstance(solver, str) and solver in SOLVERS):
        raise ValueError(f"unknown solver {solver!r}; choose one of {', '.join(SOLVERS)}")


def check_dtype(dtype: Any) -> None:
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"statistics are accumulated in torch.float32 or torch.float64, got {dtype}"
        )


def check_refined(plan: Plan, solver: str | None) -> str:
    """The solver of a refined plan, which is Euler: its steps are averaged as Euler's."""
    if solver not in (None, "euler"):
        raise ValueError(
            f"refine={plan.refine} is for Euler; with solver={solver!r} leave it out, and "
            "target='flow', too"
        )
    return "euler"
