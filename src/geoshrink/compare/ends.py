"""Where a run ended, in what its solver sees: the truth beside the estimate of a report."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..hosts.hooks import Hooks
from ..page import Column
from ..planning.tournament import decibels
from ..report import Report

ESTIMATED = Column("estimated", "dB", digits=0)
TRUE = Column("in the solver", "dB", digits=0)
SAME = 250.0  # dB


class End:
    """The state after the last step of a host's scheduler; None where it has none.

    stepped   is called with the state after every step
    """

    def __init__(self, host: Any, stepped: Callable[[Any], Any] = lambda state: None):
        self.scheduler, self.state, self._hooks = getattr(host, "scheduler", None), None, Hooks()
        self.stepped = stepped

    def __enter__(self) -> End:
        if callable(getattr(self.scheduler, "step", None)):
            self._hooks.place(self.scheduler, "step", self._on_step)
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.lift()

    def _on_step(self, scheduler: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        result = call(*args, **kwargs)
        first = result[0] if isinstance(result, tuple) else getattr(result, "prev_sample", None)
        self.state: Tensor | None = first if isinstance(first, Tensor) else None
        self.stepped(self.state)
        return result


def distance(state: Tensor | None, full: Tensor | None) -> float | None:
    """dB of the full run's energy over the error's, mean over samples; None where they cannot be
    compared, or are the same.
    """
    if state is None or full is None or state.shape != full.shape:
        return None
    found = float(decibels(state.detach(), full.detach()).mean())
    return found if math.isfinite(found) and found < SAME else None


def estimated(reports: Sequence[Report]) -> float | None:
    """The mean over reports; None where some do not know, or were exact."""
    found = [report.estimated_db for report in reports]
    known = [db for db in found if db is not None and db < SAME]
    return statistics.mean(known) if known and len(known) == len(found) else None
