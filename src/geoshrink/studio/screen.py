"""Screen: one run on the page, from the first word to the last number."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

from ..compare.outcomes import FULL
from ..page import Media
from ..page.markup import Markup, element
from . import panel
from .lane import Lane
from .line import Stopped
from .model import Ran
from .setting import Setting
from .studio import Session, Studio, Waiting

COUNT = itertools.count()
PATIENCE = 2.0  # seconds that a picture waits for a model call to end


@dataclass(frozen=True)
class Shown:
    """What a handler puts on the page; None leaves a part as it is."""

    status: str | None = None
    result: str | None = None
    live: str | None = None
    strips: str | None = None
    table: str | None = None
    report: str | None = None

    def parts(self) -> tuple[str | None, ...]:
        return self.status, self.result, self.live, self.strips, self.table, self.report


class Screen:
    """One run on the page: the slider is put up once, then its cells change."""

    def __init__(self, studio: Studio, session: Session, setting: Setting):
        self.studio, self.session, self.setting = studio, session, setting
        self.full = studio.known(setting)
        others = [r for r in same_picture(session, setting) if r.label != setting.label]
        self.others = others[-panel.SHOWN + 1 :]
        self.labels = [FULL, *(ran.label for ran in self.others), setting.label]
        self.lanes: list[Lane] = []
        self.up = False
        self.seen: dict[str, Media] = {}
        self.rest = 0.0  # until when no picture is made: they must not slow the model down
        self.finished: set[str] = set()
        self.run = str(next(COUNT))

    def at(self, event: Waiting | list[Lane]) -> Shown:
        if isinstance(event, Waiting):
            return Shown(say(progress_words(event)))
        self.lanes = event
        self.look()
        words = progress_words(event)
        strips = panel.stage_panel([panel.live_stages(lane) for lane in event])
        if self.up:
            return Shown(say(words), live=self.cells(), strips=strips)
        self.up = True
        return Shown(say(words), self.slider(), "", strips, "", "")

    def look(self) -> None:
        """Pictures of what the lanes have, if it is time."""
        running = [lane for lane in self.lanes if lane.turns is not None and not lane.over]
        if time.perf_counter() < self.rest or not running or running[0].turns is None:
            return
        with running[0].turns.place() as place:  # in turn with the models: their time is their own
            running[0].turns.wait(place, PATIENCE)
            began = time.perf_counter()
            for lane in self.lanes:
                if lane.ran is None and lane.preview is not None:
                    medium = panel.made_medium(lane.preview(), f"{lane.label}, not done yet")
                    if medium is not None:
                        self.seen[lane.label] = medium
        self.rest = time.perf_counter() + 3 * (time.perf_counter() - began)

    def entry(self, label: str) -> panel.Entry:
        lane = next((lane for lane in self.lanes if lane.label == label), None)
        full = self.studio.known(self.setting)
        if lane is None:
            ran = full if label == FULL else next(r for r in self.others if r.label == label)
            assert ran is not None
            return panel.entry_of(ran, full)
        return (
            panel.entry_of(lane.ran, full)
            if lane.ran
            else panel.live_entry(lane, self.seen.get(label))
        )

    def slider(self) -> str:
        entries = [self.entry(label) for label in self.labels]
        return panel.slider(title_of(self.setting), entries, self.setting.label, self.run)

    def cells(self, link: str | None = None) -> str:
        """Those that can have changed."""
        labels = [lane.label for lane in self.lanes if lane.label not in self.finished]
        full_known = self.studio.known(self.setting) is not None
        for lane in self.lanes:
            if lane.ran is not None and full_known:
                self.finished.add(lane.label)
        found = [(self.labels.index(label), self.entry(label)) for label in labels]
        return panel.cells(found, link, self.run)

    def end(self) -> Shown:
        """All is done, or something went wrong."""
        for lane in self.lanes:
            if lane.error is not None:
                raise lane.error
        if any(lane.stopped for lane in self.lanes):
            raise Stopped
        ran = self.lanes[0].ran
        assert ran is not None
        self.finished.clear()
        return self.done(ran, live=self.cells(self.setting.link()))

    def still(self, ran: Ran) -> Shown:
        """A run of before."""
        self.others = [*self.others, ran]
        if self.full is None:  # it was stopped, or is no longer kept
            self.labels.remove(FULL)
        return self.done(ran, result=self.slider(), live=panel.cells([], self.setting.link()))

    def done(self, ran: Ran, **shown: Any) -> Shown:
        full = self.studio.known(self.setting)
        runs = [*(r for r in self.others if r is not ran), ran]
        strips = [panel.stages(ran)]
        self.session.shown = self.setting, ran
        return Shown(
            say(panel.summary(ran, full)),
            strips=panel.stage_panel(strips),
            table=panel.fresh(Markup(panel.numbers(runs, full).html())),
            report=panel.report_panel(ran),
            **shown,
        )


def same_picture(session: Session, setting: Setting) -> list[Ran]:
    """The runs of this page with the same full run, the latest of each label."""
    found = {s.label: ran for s, ran in session.runs if s.picture == setting.picture}
    return list(found.values())[-panel.SHOWN :]


def title_of(setting: Setting) -> str:
    line = " ".join(setting.prompt.split()) or setting.model
    line = line if len(line) <= 80 else f"{line[:79]}…"
    return f"{line}, seed {setting.seed}"


def progress_words(event: Any) -> str:
    if isinstance(event, Waiting):
        return (
            f"Loading {event.loading} …" if event.loading else f"Waiting: {event.ahead} before you"
        )
    return ", ".join(f"{lane.label}: {lane.calls} calls" for lane in event)


def bar(done: int, total: int | None, words: str) -> Markup:
    progress = element("progress", value=done, max=total, aria_label=words)
    return element(
        "p", progress if total else Markup(), f" {words}", class_="status", role="status"
    )


def say(words: str) -> str:
    return panel.scoped(element("p", words, class_="status", role="status", aria_live="polite"))


def alert(error: Exception) -> str:
    name = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return panel.scoped(element("p", f"{name}{error}", class_="status", role="alert"))
