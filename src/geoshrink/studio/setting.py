"""Setting: all that the controls of the page say, as plain data; a link holds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

from ..compare.outcomes import DIRECT, GEOSHRINK, PAPER, PLANNED
from ..plan import METHODS, SPACES

AUTO = "auto"  # of an advanced control: geoshrink decides
FORMS = (GEOSHRINK, PAPER, PLANNED, DIRECT)
CORRECT = {AUTO: None, "on": True, "off": False}
CHOICES = {
    "form": FORMS,
    "rule": (AUTO, "signed time", "time", "linear", "chordal", "hold"),
    "space": (AUTO, *SPACES),
    "correct": tuple(CORRECT),
}
ADVANCED = ("rule", "space", "correct")
LEAST, MOST = 4, 1000  # calls of an accelerated run; steps


@dataclass(frozen=True)
class Picture:
    """What decides the full run: whoever asks for the same gets the same."""

    model: str
    prompt: str = ""
    negative: str = ""
    seed: int = 0
    steps: int = 50
    guidance: float | None = None
    shift: float | None = None


@dataclass(frozen=True)
class Setting(Picture):
    """A picture, and how it is accelerated.

    form        geoshrink, paper, planned or direct
    budget      model calls
    target_db   in place of a budget: as many calls as this quality takes
    rule, space, correct   of geoshrink's form; "auto" leaves them to it
    """

    form: str = GEOSHRINK
    budget: int = 10
    target_db: float | None = None
    rule: str = AUTO
    space: str = AUTO
    correct: str = AUTO

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type != "str" and not (value is None and "None" in str(field.type)):
                object.__setattr__(self, field.name, number(field.name, value, field.type == "int"))
        for name, choices in CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"unknown {name} {value!r}; choose one of {', '.join(choices)}")
        if not 2 <= self.steps <= MOST:
            raise ValueError(f"steps must be from 2 to {MOST}, got {self.steps}")
        least = 1 if self.form == DIRECT else min(LEAST, self.steps)
        if self.target_db is None and not least <= self.budget <= self.steps:
            raise ValueError(
                f"model calls must be from {least} to the {self.steps} steps, got {self.budget}"
            )
        if self.shift is not None and not self.shift > 0:
            raise ValueError(f"shift must be above 0, got {self.shift:g}")
        if self.target_db is not None and self.form == DIRECT:
            raise ValueError(
                f"direct step reduction cannot aim at {self.target_db:g} dB: ask for model calls"
            )
        if self.seed not in range(2**53):  # beyond, a browser rounds it
            raise ValueError(f"seed must be from 0 to 2**53 − 1, got {self.seed}")

    @property
    def picture(self) -> Picture:
        return Picture(**{field.name: getattr(self, field.name) for field in fields(Picture)})

    @property
    def label(self) -> str:
        """The method in words, as on the pages of compare."""
        amount = f"B = {self.budget}" if self.target_db is None else f"{self.target_db:g} dB"
        return ", ".join([self.form, amount, *(f"{k} {v}" for k, v in self.chosen.items())])

    @property
    def chosen(self) -> dict[str, str]:
        """The advanced controls that were turned, where the form has any."""
        values = {name: getattr(self, name) for name in ADVANCED}
        return {k: v for k, v in values.items() if v != AUTO and self.form == GEOSHRINK}

    def options(self) -> dict[str, Any]:
        """What accelerate(), sample() and Plan.of take for geoshrink and paper."""
        own: dict[str, Any] = {**METHODS.get(self.form, {}), **self.chosen}
        if "correct" in own:
            own["correct"] = CORRECT[own["correct"]]
        return {**self.amount(), **own}

    def amount(self) -> dict[str, Any]:
        return {"budget": self.budget} if self.target_db is None else {"target_db": self.target_db}

    def at(self, budget: int, form: str | None = None) -> Setting:
        return replace(self, budget=budget, target_db=None, form=form or self.form)

    def link(self) -> str:
        """The query of an address that restores it, whatever is usual elsewhere."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.target_db is not None:
            del values["budget"]
        told = {k: plain(v) for k, v in values.items() if v not in (None, "", AUTO)}
        return f"?{urlencode(told)}"


def asked(query: Mapping[str, str], usual: Setting) -> Setting:
    """The setting of an address; what it does not name is as usual."""
    return replace(usual, **{f.name: query[f.name] for f in fields(Setting) if f.name in query})


def plain(value: Any) -> str:
    """A number without loss, as short as it can be."""
    whole = isinstance(value, float) and value == int(value)
    return str(int(value) if whole else value)


def number(name: str, value: Any, whole: bool) -> Any:
    try:
        found = float(value)
        if whole and isinstance(value, (int, str)):
            return int(value)  # a float would lose digits of a seed
        if not math.isfinite(found) or (whole and found != int(found)):
            raise ValueError
    except (OverflowError, TypeError, ValueError):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name} must be {kind}, got {value!r}") from None
    return int(found) if whole else found
