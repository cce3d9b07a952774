"""Where our default is behind: every contest, every rival, by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from geoshrink.page import Column, Shown, Table
from geoshrink.page.table import Cell as Entry

from ..summary import measure_of
from .duels import EVEN, lead_of
from .ranking import OURS, PUBLISHED, contest, is_ours
from .results import SLACK, Results, Setting
from .tables import CALIBRATED, FREE, REFERENCE, digits_for


class Loss(NamedTuple):
    """A contest (setting, budget, metric) with one rival; `behind` in dB, below 0 where ahead."""

    setting: Setting
    reference: str
    metric: str
    budget: int
    rival: str
    ours: float
    theirs: float
    behind: float

    @property
    def contest(self) -> tuple[str, str, str, int]:
        return self.setting.title, self.reference, self.metric, self.budget


def against_rivals(results: Results) -> Iterator[Loss]:
    """Our default against all that kept to the budget, other forms of ours left out."""
    for setting in results.settings:
        for reference in setting.references:
            for metric in setting.metrics:
                for budget in setting.budgets:
                    means = contest(setting, budget, metric, reference)
                    ours = means.get(OURS, math.nan)
                    for rival, theirs in means.items():
                        behind = -lead_of(ours, theirs, measure_of(metric))
                        known = rival == PUBLISHED or not is_ours(rival)
                        if known and rival != "full run, again" and not math.isnan(behind):
                            yield Loss(
                                setting, reference, metric, budget, rival, ours, theirs, behind
                            )


def losses(results: Results) -> Table:
    """The worst first."""
    every = list(against_rivals(results))
    lost = sorted((each for each in every if each.behind > EVEN), key=lambda each: -each.behind)
    contests, behind = ({each.contest for each in found} for found in (every, lost))
    names = ("setting", "distance to", "metric", "B", "rival", "kind", "ours", "its", "behind, dB")
    return Table(
        "Where our default loses",
        [Column(name) for name in names],
        [row(each, results) for each in lost],
        caption=f"Our default is behind some rival in {len(behind)} of the {len(contests)} "
        f"contests (setting, budget, metric, reference) that it has run, and in {len(lost)} of "
        f"{len(every)} comparisons with one rival in one contest. All of them are here, the worst "
        "first. Rivals are all methods but other forms of ours; the published method counts as "
        f"one. Who runs the network more than {SLACK:g} times the budget is left out. Errors count "
        f"as 20·log₁₀ of their ratio; {EVEN:g} dB or less is a draw.",
    )


def row(loss: Loss, results: Results) -> list[Entry]:
    digits = digits_for([loss.ours, loss.theirs])
    return [
        loss.setting.title,
        REFERENCE[loss.reference],
        measure_of(loss.metric).heading,
        loss.budget,
        loss.rival,
        CALIBRATED if loss.rival in results.calibrated else FREE,
        *(Shown(value, f"{value:.{digits}f}") for value in (loss.ours, loss.theirs)),
        Shown(loss.behind, f"{loss.behind:.2f}"),
    ]
