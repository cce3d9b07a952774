"""What the page shows of runs, made of the parts of page/: the slider, stages, numbers, a curve."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

from ..compare.ends import SAME, estimated
from ..compare.kinds import Made
from ..compare.outcomes import DIRECT, amount
from ..outputs import flatten
from ..page import Column, Comparison, Lines, Media, Page, Picture, Section, Series, Table
from ..page.markup import Markup, element, join
from ..page.media import png
from ..page.stages import Bar, Stages
from ..planning.tournament import decibels
from ..report import size
from .lane import Lane
from .model import Ran
from .setting import Setting

SHOWN = 5  # runs of one picture beside the full one
SCOPE = "geoshrink"  # the class in which the styles of page/ hold


@dataclass(frozen=True)
class Entry:
    """One method in the slider: what it shows, and a few words under it."""

    label: str
    medium: Media
    words: str


COUNT = itertools.count()


def scoped(*parts: str) -> Markup:
    return element("div", *parts, class_=SCOPE)


def fresh(*parts: str, **attributes: str | None) -> Markup:
    """For what a script has started: gradio changes an element of the same name in place, so this
    one has a name of its own.
    """
    return element(f"part-{next(COUNT)}", *parts, class_=SCOPE, **attributes)


# -- the slider


def slider(title: str, entries: Sequence[Entry], right: str, run: str = "") -> Markup:
    """The full run, which comes first, against one of the others; `run` tells it from others."""
    return fresh(Markup(compared(title, entries, right).html()), data_run=run)


def compared(title: str, entries: Sequence[Entry], right: str) -> Comparison:
    labels = [entry.label for entry in entries]
    media = {(title, entry.label): entry.medium for entry in entries}
    words = {(title, entry.label): entry.words for entry in entries}
    start = labels[0], right
    caption = "Drag to wipe; the keys ← and → do it too, x exchanges the sides."
    return Comparison(title, [title], labels, media, caption, scores=words, start=start)


def cells(entries: Sequence[tuple[int, Entry]], link: str | None = None, run: str = "") -> Markup:
    """What takes the place of media in the slider of the same run, and of the address: the script
    puts it there.
    """
    found = (
        element("span", Markup(e.medium.html()), data_method=i, data_words=e.words)
        for i, e in entries
    )
    return fresh(element("div", *found, data_link=link, data_run=run))


def entry_of(ran: Ran, full: Ran | None) -> Entry:
    reference = ran.made if full is None else full.made
    if not (ran.made.is_finite() and reference.is_finite()):
        return Entry(ran.label, blank(), f"the {ran.made.noun} is empty or not finite")
    medium = ran.made.medium(0, f"{ran.label}, {ran.calls} model calls", reference)
    if ran is full:
        return Entry(ran.label, medium, f"{ran.calls} model calls, {seconds(ran.seconds)}")
    words = [f"{ran.calls} model calls, {seconds(ran.seconds)}"]
    if full is not None and (score := scores(ran, full)[0]) is not None:
        words.append(amount(score, ran.made.metrics[0]))
    return Entry(ran.label, medium, " · ".join(words))


def live_entry(lane: Lane, medium: Media | None) -> Entry:
    total = "" if lane.total is None else f" of {lane.total}"
    return Entry(lane.label, medium or blank(), f"{lane.calls}{total} model calls …")


@cache
def blank() -> Picture:
    """Before there is anything to see."""
    from PIL import Image

    return Picture(png(Image.new("L", (16, 16), 128)), "nothing yet")


# -- numbers


def scores(ran: Ran, full: Ran) -> list[float | None]:
    """Of the first sample, by each metric of its kind; None where it has none."""
    if ran is full or not (ran.made.is_finite() and full.made.is_finite()):
        return [None for _ in ran.made.metrics]
    found = [values[0] for values in ran.made.score(full.made, set())]
    return [None if math.isnan(value) else value for value in found]


def true_db(ran: Ran, full: Ran) -> float | None:
    """How far the solver ended from the full run, as the estimate counts it: infinite if it is the
    same, None if nobody knows.
    """
    if ran is full or ran.end is None or full.end is None:
        return None
    ends = [flatten(each.end)[0] for each in (ran, full)]
    if [tuple(t.shape) for t in ends[0]] != [tuple(t.shape) for t in ends[1]]:
        return None
    found = float(decibels(ran.end, full.end).mean())
    return None if math.isnan(found) else found if found < SAME else math.inf


def numbers(runs: Sequence[Ran], full: Ran | None) -> Table:
    """What each run cost, and how far it is from the full one."""
    shown = [*([full] if full else []), *runs]
    metrics = shown[0].made.metrics
    rows = []
    for ran in shown:
        off = [None] * len(metrics) if full is None else scores(ran, full)
        guess = estimated([ran.report] if ran.report else [])
        faster = None if full is None else full.seconds / ran.seconds
        true = None if full is None else true_db(ran, full)
        cost = [ran.label, ran.calls, ran.seconds, faster]
        rows.append([*cost, guess, true, *off])
    return Table(
        "Numbers",
        [
            Column("method"),
            Column("calls", digits=0),
            Column("time", "s", digits=2),
            Column("speed-up", "×", digits=1),
            Column("estimated", "dB", digits=1),
            Column("true", "dB", better="higher", digits=1),
            *metrics,
        ],
        rows,
        caption="Against the full run from the same noise. Estimated and true: dB of the full "
        "run's energy over the error's, in what the solver sees. "
        "Times are of this machine, now; a first run warms it up.",
    )


def summary(ran: Ran, full: Ran | None) -> str:
    """One line under the button that was pressed."""
    words = [f"{ran.calls} model calls in {seconds(ran.seconds)}"]
    if full is not None:
        words.append(f"the full run {full.calls} in {seconds(full.seconds)}")
        words.append(f"speed-up {full.seconds / ran.seconds:.1f}×")
        if true_db(ran, full) == math.inf:
            words.append(
                "the same, bit for bit" if same(ran, full) else "the same but for rounding"
            )
        elif (score := scores(ran, full)[0]) is not None:
            metric = ran.made.metrics[0]
            words.append(f"{metric.name} {amount(score, metric)}")
    return f"Done: {', '.join(words)}."


def same(ran: Ran, full: Ran) -> bool:
    """Whether both ended in the same numbers."""
    return all(torch.equal(a, b) for a, b in zip(flatten(ran.end)[0], flatten(full.end)[0]))


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:.0f} s"


# -- stages


def live_stages(lane: Lane) -> Markup:
    """While it runs: what was asked, and what lies behind."""
    reached = max(lane.asked, default=-1)
    kinds = ["called" if n in lane.asked else "predicted" for n in range(reached + 1)]
    bars = [Bar(kind=kind) for kind in kinds] + [Bar()] * (lane.steps - len(kinds))
    return strip(lane.label, bars[: lane.steps])


def stages(ran: Ran) -> Markup:
    """Once it has run: σ, ω, how outputs turned, what was put right."""
    if ran.report is None or not ran.report.stages:
        bars = [Bar(kind="called" if n in ran.asked else "predicted") for n in range(ran.steps)]
        return strip(ran.label, bars)
    rows = {row.stage: row for row in reversed(ran.report.stages)}
    bars = []
    for n in range(ran.report.steps):
        row = rows.get(n)
        if row is None:
            bars.append(Bar())
        elif row.exact:
            told = dict(turning=row.turning, moved=row.correction)
            bars.append(Bar(row.sigma, "called", **told))
        else:
            bars.append(Bar(row.sigma, "predicted", row.omega))
    return strip(ran.label, bars)


def strip(label: str, bars: Sequence[Bar]) -> Markup:
    return join([element("h3", label), Markup(Stages(label, bars).html())])


LEGEND = (
    "Tall: the model is called. Short: predicted, as high as the part ω of the latest change that "
    "is kept. Dot: how far a call put the stages before it right. Point at a bar for its numbers."
)


def stage_panel(parts: Sequence[Markup]) -> Markup:
    return scoped(*parts, element("p", LEGEND, class_="caption"))


def report_panel(ran: Ran) -> Markup:
    """What geoshrink says of its own run."""
    if ran.report is None or ran.plan is None:
        return Markup()
    doubt = ran.report.doubt
    warning = (
        element("p", f"Doubtful: {doubt}.", role="alert", class_="doubt") if doubt else Markup()
    )
    held = f"{size(ran.report.bytes_held)} held"
    summary = element("summary", f"Report: {ran.report.summary()}; {held}")
    return scoped(warning, element("details", summary, element("pre", str(ran.report))))


# -- a curve of budgets


def curve(found: Sequence[tuple[Setting, float]], asked: float | None, most: int) -> Lines:
    """Quality over calls, one line for each form."""
    series = []
    for form in dict.fromkeys(setting.form for setting, _ in found):
        points = sorted((s.budget, db) for s, db in found if s.form == form)
        series.append(Series(form, [x for x, _ in points], [y for _, y in points]))
    if asked is not None and found:
        least = min(setting.budget for setting, _ in found)
        series.append(Series(f"asked: {asked:g} dB", [least, most], [asked, asked]))
    return Lines(
        "Quality over calls",
        series,
        "model calls",
        "dB to the full run",
        "Measured on this prompt and this seed, in what the solver sees, as target_db counts it.",
    )


def cheapest(found: Sequence[tuple[Setting, float]], asked: float) -> int | None:
    """The fewest calls that reach it, by our form."""
    reached = [s.budget for s, db in found if s.form != DIRECT and db >= asked]
    return min(reached, default=None)


# -- the whole, to keep


def page_of(title: str, entries: Sequence[Entry], table: Table, code: str) -> Page:
    """One file that shows the same without the studio."""
    look = compared(title, entries, entries[-1].label)
    sections: list[Section] = [look, replace(table, command=code)]
    return Page("geoshrink studio", title, sections)


def made_medium(made: Made | None, alt: str) -> Media | None:
    """Of what is not done yet; None where there is nothing to see."""
    return made.medium(0, alt, made) if made is not None and made.is_finite() else None
