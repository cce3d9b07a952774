"""What the studio drives: a model that makes samples at a setting, by any method."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from torch import Tensor

from ..compare.kinds import Made
from ..plan import Plan
from ..planning import Profile
from ..report import Report
from .setting import Setting

if TYPE_CHECKING:
    from .lane import Lane


@dataclass(frozen=True)
class Controls:
    """Which controls a model has, and how they stand when it is opened.

    classes   to choose from; none: a prompt is written, where `prompted`
    """

    usual: Setting
    classes: tuple[str, ...] = ()
    prompted: bool = True
    negative: bool = False
    guidance: bool = True
    shift: bool = False


@dataclass(frozen=True)
class Ran:
    """One run that has ended.

    end     where the solver ended, to be compared with the full run's; None where nobody knows
    plan    what was run, as plain data; None of a full run and of direct
    """

    label: str
    made: Made
    end: Any
    calls: int
    seconds: float
    steps: int
    asked: tuple[int, ...] = ()
    report: Report | None = None
    plan: Plan | None = None

    @property
    def bytes(self) -> int:
        """What it takes to remember it."""
        return weight(self.made) + weight(self.end)


def weight(held: Any) -> int:
    """The bytes of all tensors and arrays in something."""
    if isinstance(held, Tensor):
        return held.numel() * held.element_size()
    if isinstance(held, np.ndarray):
        return held.nbytes
    if isinstance(held, (list, tuple)):
        return sum(map(weight, held))
    return sum(map(weight, vars(held).values())) if is_dataclass(held) else 0


class Model(Protocol):
    """
    about       in one line
    together    whether two runs of it can go on at once, taking turns
    """

    name: str
    about: str
    together: bool

    @property
    def controls(self) -> Controls: ...

    def check(self, setting: Setting) -> None:
        """A ValueError for what it cannot make."""
        ...

    def full(self, setting: Setting, lane: Lane) -> Ran:
        """Every step of the solver."""
        ...

    def fast(self, setting: Setting, profile: Profile | None, lane: Lane) -> Ran:
        """By the setting's form; the profile is for the planned one."""
        ...

    def profile(self, setting: Setting, samples: int, lane: Lane) -> Profile: ...

    def shipped(self, setting: Setting) -> Profile | None:
        """The profile that comes with the model, where it fits the setting."""
        ...

    def python(self, setting: Setting, plan: Path | None) -> str:
        """The lines that make the same sample."""
        ...
