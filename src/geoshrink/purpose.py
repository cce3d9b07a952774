"""Purpose: what a plan was made for, as far as somebody knew: model, scheduler, steps, guidance."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from reprlib import repr as cut
from typing import Any

LETTERS = 200  # of a name, at most
SETTINGS = 32  # of a scheduler, at most
MOST = 10**6  # steps or calls of a run
SHIFTS = ("shift", "flow_shift")
Setting = float | int | bool | str | None


@dataclass(frozen=True)
class Purpose:
    """The facts that decide whether a plan fits a run. "", () and None: nobody said.

    model      the model's id, "black-forest-labs/FLUX.1-dev"; or a name, which no host compares
    network    the class of its network
    scheduler  the class of the scheduler
    settings   those of the scheduler that shape its grid, as (name, value)
    steps      of a run
    guidance   its scale, or a range (low, high) of it
    """

    model: str = ""
    network: str = ""
    scheduler: str = ""
    settings: tuple[tuple[str, Setting], ...] = ()
    steps: int | None = None
    guidance: float | tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("model", "network", "scheduler"):
            check_name(name, getattr(self, name))
        if len(self.settings) > SETTINGS:
            raise ValueError(f"{len(self.settings)} settings of a scheduler, at most {SETTINGS}")
        for name, value in self.settings:
            check_name("a setting", name)
            if isinstance(value, str):
                check_name(name, value)
            elif not (value is None or is_finite(value)):
                raise ValueError(f"the setting {name} is a number or a word, got {cut(value)}")
        if self.steps is not None and not is_count(self.steps):
            raise ValueError(f"steps are a whole number from 1 to {MOST}, got {cut(self.steps)}")
        if not all(map(is_finite, self.range)) or sorted(self.range) != [*self.range]:
            told = cut(self.guidance)
            raise ValueError(f"guidance is a number or a range (low, high), got {told}")

    @property
    def range(self) -> tuple[Any, ...]:
        """(low, high) of the guidance, or () if it is not known."""
        if self.guidance is None:
            return ()
        if isinstance(self.guidance, tuple) and len(self.guidance) == 2:
            return self.guidance
        return self.guidance, self.guidance

    @classmethod
    def of(cls, given: Any) -> Purpose | None:
        """A Purpose as it is, None, or what JSON says of one."""
        if given is None or isinstance(given, Purpose):
            return given
        if not isinstance(given, Mapping):
            raise ValueError(f"a purpose is an object like {{'model': …}}, got {cut(given)}")
        if unknown := set(given) - {field.name for field in fields(cls)}:
            raise ValueError(f"a purpose has no {cut(min(map(str, unknown)))}")
        body = dict(given)
        settings = body.pop("settings", {})
        if not isinstance(settings, Mapping):
            raise ValueError(f"settings are an object like {{'shift': 3}}, got {cut(settings)}")
        if isinstance(guidance := body.get("guidance"), list):
            body["guidance"] = tuple(guidance)
        return cls(**body, settings=tuple(sorted(settings.items())))

    def to_json(self) -> dict[str, Any]:
        """What Purpose.of reads: only what is known."""
        body = {field.name: getattr(self, field.name) for field in fields(self)}
        body["settings"] = dict(self.settings)
        if isinstance(self.guidance, tuple):
            body["guidance"] = [*self.guidance]
        return {name: value for name, value in body.items() if value not in ("", {}, None)}

    def of_grid(self) -> Purpose:
        """What decides the grid; neither the model nor its guidance does."""
        return Purpose(scheduler=self.scheduler, settings=self.settings, steps=self.steps)

    def filled(self, more: Purpose) -> Purpose:
        """This one, with what only `more` knows."""
        new = [f.name for f in fields(self) if is_unknown(getattr(self, f.name))]
        return replace(self, **{name: getattr(more, name) for name in new})

    def difference(self, run: Purpose) -> str | None:
        """Why a run is not what the plan is for, in words; None if it is, as far as both know."""
        mine, theirs = common(self, run)
        if not apart(mine, theirs):
            return None
        if theirs.scheduler == mine.scheduler and theirs.steps:
            theirs = replace(theirs, scheduler="")  # once is enough
        return f"this plan is for {mine}; this run has {theirs}"

    def __str__(self) -> str:
        settings = ", ".join(f"{name} {told(value)}" for name, value in self.settings)
        steps = "" if self.steps is None else f"{self.steps} steps"
        of = f"{'of ' * bool(steps)}{self.scheduler}" if self.scheduler else ""
        grid = " ".join(filter(None, (steps, of, f"with {settings}" if settings else "")))
        low, high = self.range or (None, None)
        guidance = "" if low is None else f"guidance {low:g}"
        guidance += "" if low == high else f" to {high:g}"
        network = f"a {self.network}" if self.network else ""
        model = f"the model {self.model}" if self.model else ""
        return ", ".join(filter(None, (grid, guidance, network, model))) or "anything"


def common(mine: Purpose, theirs: Purpose) -> tuple[Purpose, Purpose]:
    """Both, with the facts that both know; of a scheduler's settings those that differ, and its
    shift.
    """
    names = [f.name for f in fields(mine) if f.name != "settings"]
    unknown = {n for n in names if is_unknown(getattr(mine, n)) or is_unknown(getattr(theirs, n))}
    if not all("/" in one.model for one in (mine, theirs)):
        unknown.add("model")
    blank: dict[str, Any] = {name: getattr(Purpose(), name) for name in unknown}
    one, other = dict(mine.settings), dict(theirs.settings)
    shown = [n for n in one if n in other and (n in SHIFTS or one[n] != other[n])]
    first = replace(mine, **blank, settings=tuple((n, one[n]) for n in shown))
    return first, replace(theirs, **blank, settings=tuple((n, other[n]) for n in shown))


def apart(mine: Purpose, theirs: Purpose) -> bool:
    """Whether two purposes that know the same facts differ in one."""
    if mine.guidance is not None:
        low, high, *given = (max(1.0, g) for g in (*mine.range, *theirs.range))  # ≤ 1: none acts
        if not all(low - 1e-6 <= g <= high + 1e-6 for g in given):
            return True
    return replace(mine, guidance=None) != replace(theirs, guidance=None)


def check_name(what: str, name: Any) -> None:
    """A name is short and has no control characters: it may come from a stranger."""
    if not is_name(name):
        raise ValueError(f"{what} is a name of at most {LETTERS} letters, got {str(name)[:60]!r}")


def is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LETTERS and value.isprintable()


def is_unknown(fact: Any) -> bool:
    return fact is None or fact in ("", ())


def is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) <= sys.float_info.max


def is_count(value: Any) -> bool:
    """Whether it is a whole number of steps or calls that some run may have."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST


def told(value: Setting) -> str:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value:g}" if plain else str(value)
