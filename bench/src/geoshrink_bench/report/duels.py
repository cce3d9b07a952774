"""One method, our default unless said, against every other, cell by cell."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from geoshrink.page import Column, Shown, Table

from ..summary import Measure, measure_of
from .ranking import OURS
from .results import Results
from .score import Score
from .tables import CALIBRATED, FREE, REFERENCE

EVEN = 0.05  # dB: nearer than this is a draw


def duels(results: Results, reference: str = "full", mine: str = OURS) -> Table:
    """Where both ran: who is nearer to the reference, by how many dB, and at what cost."""
    labels = dict.fromkeys(label for s in results.settings for label in s.labels if label != mine)
    rows = []
    for label in labels:
        found = list(pairs(results, mine, label, reference))
        if not found:
            continue
        leads = sorted(lead for lead, _ in found)
        median = statistics.median(leads)
        rows.append(
            [
                label,
                len(leads),
                sum(lead > EVEN for lead in leads),
                sum(lead < -EVEN for lead in leads),
                *(Shown(v, f"{v:+.1f}") for v in (median, leads[0], leads[-1])),
                spread([runs for _, runs in found]),
                CALIBRATED if label in results.calibrated else FREE,
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


def pairs(results: Results, mine: str, label: str, reference: str) -> Iterator[tuple[float, float]]:
    """(the lead of mine in dB, the other's runs per budget)."""
    for setting in results.settings:
        for budget in setting.budgets:
            one, other = (setting.at.get((name, budget)) for name in (mine, label))
            if one is None or other is None:
                continue
            for metric in setting.metrics:
                scores = [cell.score(metric, reference) for cell in (one, other)]
                a, b = (s.mean if isinstance(s, Score) else math.nan for s in scores)
                lead = lead_of(a, b, measure_of(metric))
                if math.isfinite(lead):
                    yield lead, other.evaluations / budget


def lead_of(mine: float, other: float, measure: Measure) -> float:
    """In dB; not a number where there is none to compare.

    >>> from ..summary import measure_of
    >>> lead_of(32.0, 30.0, measure_of("PSNR")), lead_of(1.0, 10.0, measure_of("MPJPE"))
    (2.0, 20.0)
    """
    if measure.better == "higher":
        return mine - other
    if measure.better == "lower" and mine > 0 and other > 0:
        return 20 * math.log10(other / mine)
    return math.nan
