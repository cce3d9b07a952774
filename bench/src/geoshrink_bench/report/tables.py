"""The tables, which every format shares."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from geoshrink.page import Column, Shown, Table

from ..summary import measure_of
from ..zoo.recipes import RECIPES
from .ranking import contests
from .results import DONE, FAILED, NOT_RUN, SLACK, Cell, Results, Setting
from .score import Score

REFERENCE = {"full": "the full run", "converged": "the converged flow"}
FREE, CALIBRATED = "calibration-free", "calibrated"


def digits_for(means: Sequence[float]) -> int:
    """Decimals that tell means of this size apart."""
    largest = max((abs(mean) for mean in means if math.isfinite(mean)), default=10.0)
    return 2 if largest >= 10 else 3 if largest >= 1 else 4


def quality(results: Results, setting: Setting, metric: str, reference: str) -> Table:
    """Methods × budgets: mean ± sd over seeds, best in bold among the methods of a kind."""
    measure = measure_of(metric)
    found = {at: cell.score(metric, reference) for at, cell in setting.at.items()}
    digits = digits_for([score.mean for score in found.values() if isinstance(score, Score)])
    timed = any(cell.seconds for cell in setting.cells)
    rows, waiting = [], []
    for label in sorted(setting.labels, key=results.calibrated.__contains__):
        cells = [setting.at.get((label, budget)) for budget in setting.budgets]
        if all(c is None or found[label, c.budget] == NOT_RUN for c in cells):
            waiting.append(label)
            continue
        row = [
            label,
            *(shown(c, found.get((label, c.budget)), digits) if c else None for c in cells),
        ]
        row.append(max((c.result["held"] / 2**20 for c in cells if c and c.result), default=None))
        if timed:
            times = [statistics.median(c.seconds) for c in cells if c and c.seconds]
            row.append(times[0] if times else None)
        row.append(CALIBRATED if label in results.calibrated else FREE)
        rows.append(row)
    columns = [
        Column("method"),
        *(Column(f"B = {b}", better=measure.better, digits=digits) for b in setting.budgets),
        Column("held", "MiB", digits=1),
        *([Column("time", "s", digits=3)] if timed else []),
        Column("kind"),
    ]
    return Table(
        f"{setting.title}: {measure.heading}",
        columns,
        rows,
        caption=f"Distance to {REFERENCE[reference]}."
        + (f" Not run yet: {', '.join(waiting)}." if waiting else ""),
        group_by=len(columns) - 1,
    )


def shown(cell: Cell, score: Score | str | None, digits: int) -> Shown:
    """A score with its spread; the runs of the network where they are not the budget."""
    if not isinstance(score, Score):
        return Shown(math.nan, (score or NOT_RUN).split(":")[0])
    text = score.text(digits)
    if abs(cell.evaluations - cell.budget) > 1e-9:
        text += f" ({cell.evaluations:.3g} runs)"
    return Shown(score.mean, text, cell.competes)


def wins(results: Results, reference: str) -> Table:
    """For each model: in how many contests (setting × budget × metric) each method is the best."""
    counts: Counter[tuple[str, str]] = Counter()
    totals: Counter[str] = Counter()
    undecided = 0
    for setting, best in contests(results, reference):
        if best is None:
            undecided += 1
            continue
        totals[setting.model] += 1
        counts.update((label, setting.model) for label in best)
    models = [name for name in RECIPES if name in totals]
    labels = dict.fromkeys(label for label, _ in counts)
    sums = {label: sum(counts[label, m] for m in models) for label in labels}
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
                CALIBRATED if label in results.calibrated else FREE,
            ]
            for label in sorted(labels, key=lambda label: -sums[label])
        ],
        caption="In how many of the contests (setting, budget, metric) a method has the best mean. "
        f"Who runs the network more than {SLACK:g} times the budget does not compete."
        + (f" Not counted: {undecided} in which methods have yet to run." if undecided else ""),
    )


def counted(results: Results) -> str:
    """ "150 of 200 cells, 3 failed"."""
    count = Counter(cell.status for cell in results.cells)
    text = f"{count[DONE]} of {len(results.cells)} cells"
    more = [f"{count[status]} {status}" for status in (FAILED, NOT_RUN) if count[status]]
    return ", ".join([text, *more])
