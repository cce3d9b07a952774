"""The tables over all settings: losses, a glance, each rival against ours, who is nearest."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from geoshrink.page import Column, Table
from geoshrink.page.table import Cell as Entry

from ..methods.base import SLACK
from ..models import recipes
from ..page import Shown
from ..score import Score
from ..words import CALIBRATED, FREE, REFERENCE, interval_of, shift_of
from .contests import OURS, PUBLISHED, Contest, contests, references_of
from .results import Results

METRICS = 2  # of a setting, at a glance
EVEN = 0.05  # dB: nearer than this is a draw


def overview(results: Results) -> list[Table]:
    tables = [losses(results), glance(results), duels(results)]
    tables += [wins(results, reference) for reference in references_of(results)]
    return [table for table in tables if table.rows]


def kind_of(results: Results, label: str) -> str:
    return CALIBRATED if label in results.calibrated else FREE


def digits_for(means: Sequence[float]) -> int:
    """Decimals that tell means of this size apart."""
    largest = max((abs(mean) for mean in means if math.isfinite(mean)), default=10.0)
    return 2 if largest >= 10 else 3 if largest >= 1 else 4


def decibels(lead: float, digits: int = 2) -> Entry:
    return Shown(lead, f"{lead:+.{digits}f}") if math.isfinite(lead) else None


class Loss(NamedTuple):
    """A contest with one rival; `behind` in dB, below 0 where our default is ahead."""

    contest: Contest
    rival: str
    ours: float
    theirs: float
    behind: float


def against_rivals(results: Results) -> Iterator[Loss]:
    """Our default against all that kept to the budget, other forms of ours left out."""
    pairs = [(s, reference) for s in results.settings for reference in s.references]
    for contest in (c for s, reference in pairs for c in contests([s], reference)):
        means = contest.means()
        ours = means.get(OURS, math.nan)
        for rival in (label for label in contest.cells if label in means):
            other = rival == PUBLISHED or rival not in results.ours
            behind = -contest.measure.lead(ours, means[rival])
            if other and rival != "full run, again" and not math.isnan(behind):
                yield Loss(contest, rival, ours, means[rival], behind)


def losses(results: Results) -> Table:
    """The worst first."""
    every = list(against_rivals(results))
    lost = sorted((each for each in every if each.behind > EVEN), key=lambda each: -each.behind)
    contested, behind = ({each.contest.key for each in found} for found in (every, lost))
    names = ("setting", "distance to", "metric", "B", "rival", "kind", "ours", "its", "behind, dB")
    return Table(
        "Where our default loses",
        [Column(name) for name in names],
        [
            [
                contest.setting.title,
                REFERENCE[contest.reference],
                contest.measure.heading,
                contest.budget,
                rival,
                kind_of(results, rival),
                *(Shown(v, f"{v:.{digits_for([ours, theirs])}f}") for v in (ours, theirs)),
                Shown(lead, f"{lead:.2f}"),
            ]
            for contest, rival, ours, theirs, lead in lost
        ],
        caption=f"Our default is behind some rival in {len(behind)} of the {len(contested)} "
        f"contests (setting, budget, metric, reference) that it has run, and in {len(lost)} of "
        f"{len(every)} comparisons with one rival in one contest. All of them are here, the worst "
        "first. Rivals are all methods but other forms of ours; the published method counts as "
        f"one. Who runs the network more than {SLACK:g} times the budget is left out. Errors count "
        f"as 20·log₁₀ of their ratio; {EVEN:g} dB or less is a draw.",
    )


def glance(results: Results, reference: str = "full") -> Table:
    """A row for each setting, budget and one of its first metrics in which our default ran."""
    rows, decided, wins, ahead = [], 0, 0, 0
    for contest in contests(results.settings, reference, METRICS):
        means = contest.means()
        rivals = [label for label in means if label not in results.ours]
        if OURS not in means or not rivals:
            continue
        free = next((label for label in rivals if label not in results.calibrated), None)
        over = math.nan if free is None else contest.measure.lead(means[OURS], means[free])
        decided += contest.decided
        wins += contest.decided and next(iter(means)) == OURS
        ahead += contest.decided and (free is None or over > 0)
        rows.append(at_a_glance(contest, means, rivals[0], free, over))
    names = ("model", "guidance", "shift", "B", OURS, "winner's", "winner")
    others = ("ahead, dB", "best calibration-free rival", "ahead, dB")
    return Table(
        "Ours at a glance",
        [Column(name) for name in (*names, *others)],
        rows,
        caption=f"Distance to {REFERENCE[reference]}. Of the {decided} contests that every "
        f"method has run, our default is the best of all in {wins}, and ahead of every "
        f"calibration-free rival in {ahead}; in the others the winner is the best so far. Ahead: "
        "by how many dB our default is nearer than the winner (where it is that itself, than the "
        "best that is not ours), and than the rival; below 0, it is behind. Errors count as "
        "20·log₁₀ of their ratio.",
    )


def at_a_glance(
    contest: Contest, means: dict[str, float], rival: str, free: str | None, over: float
) -> list[Entry]:
    setting, winner = contest.setting, next(iter(means))
    digits = digits_for([means[OURS], means[winner]])
    other = rival if winner == OURS else winner
    known = "guidance" in setting.spec
    return [
        f"{setting.model}: {contest.measure.heading}",
        f"{setting.spec['guidance']:g}{interval_of(setting.spec)}" if known else None,
        shift_of(setting.spec) if known else None,
        contest.budget,
        *(Shown(means[who], Score(means[who]).text(digits)) for who in (OURS, winner)),
        winner if contest.decided else f"{winner}, so far",
        decibels(contest.measure.lead(means[OURS], means[other])),
        free,
        decibels(over),
    ]


def duels(results: Results, reference: str = "full", mine: str = OURS, least: float = 0.0) -> Table:
    """Where both ran: who is nearer to the reference, by how many dB, and at what cost.

    least   of the budget that the other must have used; those below are left out, and so are
            those above SLACK where this is given
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for contest in contests(results.settings, reference):
        means = contest.all_means()
        for label, mean in means.items():
            lead = contest.measure.lead(means.get(mine, math.nan), mean)
            runs = contest.cells[label].evaluations / contest.budget
            fits = not least or least <= runs <= SLACK
            if label != mine and math.isfinite(lead) and fits:
                found.setdefault(label, []).append((lead, runs))
    rows = []
    for label in dict.fromkeys(label for s in results.settings for label in s.labels):
        if label in found:
            leads = sorted(lead for lead, _ in found[label])
            numbers = (statistics.median(leads), leads[0], leads[-1])
            rows.append(
                [
                    label,
                    len(leads),
                    sum(lead > EVEN for lead in leads),
                    sum(lead < -EVEN for lead in leads),
                    *(decibels(lead, 1) for lead in numbers),
                    spread([runs for _, runs in found[label]]),
                    kind_of(results, label),
                ]
            )
    rows.sort(key=lambda row: row[4])
    columns = [
        Column("method"),
        *(Column(name, digits=0) for name in ("contests", "ahead", "behind")),
        *(Column(name, "dB") for name in ("median lead", "worst", "best")),
        Column("its runs / B"),
        Column("kind"),
    ]
    return Table(
        f"{'Our default' if mine == OURS else mine} against each method",
        columns,
        rows,
        caption=f"Contests (setting, budget, metric) that both have run, by distance to "
        f"{REFERENCE[reference]}. Metrics that are errors count as 20·log₁₀ of their ratio; less "
        f"than {EVEN:g} dB is a draw. A method whose runs exceed the budget had that much more "
        "work than ours; the range of its runs is in brackets, where they differ.",
    )


def spread(runs: list[float]) -> Shown:
    """The mean, and the range where there is one.

    >>> spread([1.0, 1.0]).text, spread([1.0, 1.5]).text
    ('1.00', '1.25 (1.00 to 1.50)')
    """
    mean, low, high = statistics.fmean(runs), min(runs), max(runs)
    differ = f"{low:.2f}" != f"{high:.2f}"
    return Shown(mean, f"{mean:.2f}" + (f" ({low:.2f} to {high:.2f})" if differ else ""))


def wins(results: Results, reference: str) -> Table:
    """For each model: in how many contests (setting × budget × metric) each method is the best."""
    counts: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    undecided = 0
    for contest in contests(results.settings, reference):
        means = contest.means()
        if not contest.decided:
            undecided += 1
        elif means:
            best = next(iter(means.values()))
            totals[contest.setting.model] += 1
            counts.update((k, contest.setting.model) for k, mean in means.items() if mean == best)
    models = [name for name in recipes() if name in totals]
    sums = {label: sum(counts[label, m] for m in models) for label, _ in counts}
    return Table(
        f"Who is nearest to {REFERENCE[reference]}",
        [
            Column("best in"),
            *(Column(m, f"of {totals[m]}", digits=0) for m in models),
            Column("all", f"of {sum(totals.values())}", digits=0),
            Column("kind"),
        ],
        [
            [
                label,
                *(counts[label, m] or None for m in models),
                sums[label],
                kind_of(results, label),
            ]
            for label in sorted(sums, key=lambda label: -sums[label])
        ],
        caption="In how many of the contests (setting, budget, metric) a method has the best mean. "
        f"Who runs the network more than {SLACK:g} times the budget does not compete."
        + (f" Not counted: {undecided} in which methods have yet to run." if undecided else ""),
    )
