"""What stands around the tables: what was run, where the numbers come from, what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from geoshrink.page import Column, Table

from ..score import Score
from ..words import DONE, FAILED, NOT_RUN, REFERENCE, SKIPPED, many
from .results import Cell, Results, Setting

Row = tuple[str, int | None, str, str]  # method, budget, status, why


def counted(results: Results) -> str:
    """ "150 of 200 cells, 3 failed"."""
    count = Counter(cell.status for cell in results.cells)
    text = f"{count[DONE]} of {len(results.cells)} cells"
    more = [f"{count[status]} {status}" for status in (FAILED, NOT_RUN) if count[status]]
    return ", ".join([text, *more])


def lead(results: Results) -> str:
    """What was run on the zoo; a checkpoint's setting says it itself."""
    suites = [suite for _, suite in results.suites if hasattr(suite, "converged")]
    if not suites:
        return ""
    counts = dict.fromkeys((s.samples, s.seeds) for s in suites)
    samples = " or ".join(f"{many(n, 'sample')} × {many(k, 'seed')}" for n, k in counts)
    steps = " or ".join(dict.fromkeys(str(s.converged) for s in suites))
    return (
        f"{counted(results)}; {samples}, the same noise for every method. Numbers are means ± the "
        "standard deviation over seeds. There are two references: the full run, which the fast "
        f"methods imitate, and the flow as it converges with {steps} steps."
    )


def facts(results: Results) -> list[tuple[str, str]]:
    """(what, value), as far as the cells say."""
    done = [c for s in results.settings if not s.facts for c in s.cells if c.status == DONE]
    made = [cell.result.get("made", {}) for cell in done]
    weights = {c.spec["setting"]["model"]: str(c.spec.get("weights"))[:12] for c in done}
    found = [
        ("geoshrink", listed(cell.spec.get("version") for cell in done)),
        ("torch", listed(each.get("torch") for each in made)),
        ("made on", listed(each.get("on") for each in made)),
        ("timed on", listed(cell.on for cell in done if cell.on)),
        ("products in float32", listed(c.spec["setting"].get("precision") for c in done)),
        ("weights (sha256)", ", ".join(f"{model} {hash_}" for model, hash_ in weights.items())),
        *(fact for setting in results.settings for fact in setting.facts),
        ("made by", " ".join(["geoshrink bench report", *(str(f) for f, _ in results.suites)])),
        ("damaged cells", ", ".join(path.name for path in results.damaged)),
        ("left out", "; ".join(results.left_out)),
    ]
    return [(name, value) for name, value in found if value]


def listed(values: Iterable[Any]) -> str:
    """Every value there is; how often, where there are several.

    >>> listed(["H200", "H200"]), listed(["H200", "CPU", "H200", None])
    ('H200', 'H200 (2), CPU (1), not recorded (1)')
    """
    counts = Counter(str(value) if value is not None else "not recorded" for value in values)
    if len(counts) < 2:
        return next(iter(counts), "")
    return ", ".join(f"{value} ({count})" for value, count in counts.most_common())


def missing(results: Results) -> Table:
    """A row for each failure and each skipped metric; what was not run is counted together.

    The table beside the paper's numbers has its reasons in its caption.
    """
    rows = [
        (setting.title, *row)
        for setting in results.settings
        if not setting.label
        for found in (*map(failures, setting.cells), not_run(setting))
        for row in found
    ]
    names = ("setting", "method", "B", "status", "why")
    return Table("What is missing", [Column(name) for name in names], rows)


def failures(cell: Cell) -> Iterator[Row]:
    if cell.status == FAILED:
        yield cell.label, cell.budget, FAILED, cell.reason
    if cell.timing.startswith(FAILED):
        yield cell.label, cell.budget, FAILED, cell.timing.replace(FAILED, "seconds", 1)
    for (metric, reference), found in cell.scores.items():
        if not isinstance(found, Score) and found.startswith(SKIPPED):
            yield cell.label, cell.budget, SKIPPED, f"{metric}, {reference}: {found}"


def not_run(setting: Setting) -> Iterator[Row]:
    waiting = [cell.label for cell in setting.cells if cell.status == NOT_RUN]
    untimed = [cell.label for cell in setting.cells if cell.timing == NOT_RUN]
    for labels, what in ((waiting, ""), (untimed, "seconds: ")):
        if labels:
            names = ", ".join(dict.fromkeys(labels))
            yield many(len(labels), "cell"), None, NOT_RUN, f"{what}{names}"
    for reference, name in REFERENCE.items():
        if setting.references and reference not in setting.references:
            yield "all", None, NOT_RUN, f"against {name}"
