"""Our default at a glance: who wins each contest, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from geoshrink.page import Column, Shown, Table
from geoshrink.page.table import Cell as Entry

from ..summary import measure_of
from .duels import lead_of
from .ranking import OURS, contest, decided, is_ours, ranked
from .results import Results, Setting
from .score import Score
from .tables import REFERENCE, digits_for

METRICS = 2  # of a setting, at a glance


class Contest(NamedTuple):
    """Means by label, from the best to the worst; `free` is the best rival without calibration."""

    setting: Setting
    metric: str
    budget: int
    means: dict[str, float]
    free: str | None
    decided: bool

    @property
    def winner(self) -> str:
        return next(iter(self.means))

    def ahead(self, other: str | None) -> float:
        """By how many dB ours is nearer than another; not a number where there is none."""
        mean = self.means.get(other or "", math.nan)
        return lead_of(self.means[OURS], mean, measure_of(self.metric))


def contests(results: Results, reference: str) -> Iterator[Contest]:
    """Those in which our default ran."""
    for setting in results.settings:
        for metric in setting.metrics[:METRICS]:
            for budget in setting.budgets:
                found = contest(setting, budget, metric, reference)
                means = {label: found[label] for label in ranked(found, measure_of(metric))}
                rivals = [label for label in means if not is_ours(label)]
                free = next((label for label in rivals if label not in results.calibrated), None)
                if OURS in means and rivals:
                    done = decided(setting, budget, metric, reference)
                    yield Contest(setting, metric, budget, means, free, done)


def glance(results: Results, reference: str = "full") -> Table:
    """A row for each setting, budget and one of its first metrics."""
    found = list(contests(results, reference))
    over = [each for each in found if each.decided]
    wins = sum(each.winner == OURS for each in over)
    free = sum(each.free is None or each.ahead(each.free) > 0 for each in over)
    names = ("model", "guidance", "shift", "B", "default", "winner's", "winner")
    rivals = ("ahead, dB", "best calibration-free rival", "ahead, dB")
    return Table(
        "Ours at a glance",
        [Column(name) for name in (*names, *rivals)],
        [row(each) for each in found],
        caption=f"Distance to {REFERENCE[reference]}. Of the {len(over)} contests that every "
        f"method has run, our default is the best of all in {wins}, and ahead of every "
        f"calibration-free rival in {free}; in the others the winner is the best so far. Ahead: by "
        "how many dB our default is nearer than the winner (where it is that itself, than the best "
        "that is not ours), and than the rival; below 0, it is behind. Errors count as 20·log₁₀ of "
        "their ratio.",
    )


def row(found: Contest) -> list[Entry]:
    spec, means, winner = found.setting.spec, found.means, found.winner
    shift = spec["shift"] if isinstance(spec["shift"], list) else [spec["shift"]]
    guidance = f"{spec['guidance']:g}"
    if spec["interval"]:
        guidance += " for σ in [{:g}, {:g}]".format(*spec["interval"])
    digits = digits_for([means[OURS], means[winner]])
    rival = next(label for label in means if not is_ours(label)) if winner == OURS else winner
    return [
        f"{found.setting.model}: {measure_of(found.metric).heading}",
        guidance,
        " and ".join(f"{s:g}" for s in shift),
        found.budget,
        *(Shown(means[who], Score(means[who]).text(digits)) for who in (OURS, winner)),
        winner if found.decided else f"{winner}, so far",
        decibels(found.ahead(rival)),
        found.free,
        decibels(found.ahead(found.free)),
    ]


def decibels(lead: float) -> Entry:
    return Shown(lead, f"{lead:+.2f}") if math.isfinite(lead) else None
