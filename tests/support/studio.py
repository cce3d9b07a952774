"""What the tests of the studio run: a toy flow with classes, shelves of it, and how to play."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from geoshrink.compare.inputs import Settings
from geoshrink.compare.pictures import Pictures
from geoshrink.grid import Grid
from geoshrink.planning import Profile
from geoshrink.studio import shelf
from geoshrink.studio.lane import Lane
from geoshrink.studio.model import Ran
from geoshrink.studio.setting import Setting
from geoshrink.studio.shelf import Shelf
from geoshrink.studio.studio import Session, Studio
from toy import shifted

SHAPE, SIZE, SECRET = (3, 16, 16), 768, "geoshrink.models"
CLASSES = ["Apple", "Pear", "Strawberry 1", "<b>Plum</b>"]


def nothing(calls: int) -> None:
    """Of a model that is left alone."""


class Toy:
    """A curved flow of small pictures.

    at_call   called with the number of the call before it is made: it may raise, or stop a session
    """

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self.matrix = torch.randn(SIZE, SIZE, generator=generator) / SIZE**0.5
        self.marks = torch.randn(len(CLASSES), SIZE, generator=generator)
        self.classes, self.calls = CLASSES, 0
        self.judged_at: dict[str, Any] = {"steps": 12, "guidance": 2.0, "shift": 3.0}
        self.at_call: Callable[[int], Any] = nothing

    def labels(self, labels: Sequence[str]) -> list[int]:
        for label in labels:
            if label not in self.classes:
                raise ValueError(f"toy has no class {label!r}")
        return [self.classes.index(label) for label in labels]

    def velocity(
        self, labels: Sequence[str], guidance: float = 2.0, *, interval: Any = None
    ) -> Callable[[Any, Any], Any]:
        mark = self.marks[self.labels(labels)]

        def velocity(x: Tensor, sigma: float) -> Tensor:
            self.calls += 1
            self.at_call(self.calls)
            flat = x.flatten(1)
            turned = 2 * torch.tanh(flat @ self.matrix) + math.sin(5 * float(sigma)) * flat
            return (turned + 0.3 * guidance * mark).reshape(x.shape)

        return velocity

    def noise(self, n: int, seed: int = 0) -> Tensor:
        return torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(seed))

    def grid(self, steps: int, shift: float | None = None, interval: Any = None) -> Grid:
        return Grid.of(shifted(steps, 3.0 if shift is None else shift), data=0.0)

    def made(self, x: Tensor) -> Pictures:
        return Pictures((x / 8 + 0.5).clamp(0, 1)[:, None])

    def decode(self, x: Tensor) -> list[Tensor]:
        return list(self.made(x).values)


@dataclass
class Planned:
    """As an entry point geoshrink.models gives it."""

    model: Any
    shipped: Profile | None = None
    python: str = "from studio import TOY as model"

    def fitted(self, grid: Grid, guidance: float) -> Profile | None:
        fits = self.shipped is not None and self.shipped.misfit(grid, guidance, "toy") is None
        return self.shipped if fits else None


TOY = Toy()


def load(name: str, device: str) -> Planned:
    """What the entry points below name."""
    TOY.calls, TOY.at_call = 0, nothing
    return Planned(TOY)


def bad(name: str, device: str) -> Planned:
    raise RuntimeError(f"no weights for <i>{name}</i>")


def entry(name: str, function: str = "load") -> EntryPoint:
    return EntryPoint(name, f"studio:{function}", SECRET)


def known(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    """These are the demo models that are installed."""
    monkeypatch.setattr(shelf, "entry_points", lambda group: [*entries] * (group == SECRET))


def toys(monkeypatch: pytest.MonkeyPatch, out: Path, *names: str) -> Studio:
    """A studio with the toy, loaded."""
    known(monkeypatch, *(entry(name) for name in names or ("toy",)))
    made = Studio(Shelf([], [], Settings("")), out)
    for name in made.shelf.names:
        model: Any = made.shelf.get(name)
        model.warm = True  # calls are counted here
    return made


def setting(**changes: Any) -> Setting:
    given = dict(model="toy", prompt="Pear", seed=3, steps=12, guidance=2.0, shift=3.0, budget=5)
    return Setting(**{**given, **changes})


def play(studio: Studio, at: Setting, session: Session | None = None) -> tuple[list[Any], Ran]:
    """All that a run says, and what came out of the accelerated one."""
    events: list[Any] = list(studio.play(at, session or Session()))
    return events, ended(events[-1][0])


def ended(lane: Lane) -> Ran:
    if lane.error is not None:
        raise lane.error
    assert lane.ran is not None
    return lane.ran


def full(studio: Studio, at: Setting) -> Ran:
    found = studio.known(at)
    assert found is not None
    return found


def same(one: Ran, other: Ran) -> bool:
    """Bit for bit."""
    return torch.equal(one.end, other.end) and torch.equal(pixels(one), pixels(other))


def pixels(ran: Ran) -> Tensor:
    made: Any = ran.made
    return made.values


def last(events: Iterator[Any]) -> Any:
    *_, found = events
    return found
