"""report(folders): CSV, Markdown, LaTeX and a page of what suites of the paper found."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..report.facts import many
from ..report.latex import comment, tabular
from ..store import put
from .columns import COLUMNS
from .found import Found, found_in
from .results import IDENTICAL, Result, Value
from .suite import SPEEDUP, Suite
from .summary import summary
from .table import table_of

SAMPLES = 2  # prompts shown on the page unless said
HEAD = (
    *("suite", "label", "method", "setting", "options", "budget", "samples", "evaluations"),
    *("forwards", "seconds", "speedup", "paper_speedup", "column", "unit", "better", "status"),
    *("mean", "sd", "identical", "paper"),
)


def report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    samples: int | None = None,
    quiet: bool = False,
) -> list[Path]:
    """results.csv, report.md, report.tex and report.html in the folder `out`, the first of
    `folders` unless given; no model is needed. The page shows `samples` prompts of each suite.
    """
    from .webpage import webpage

    found = []
    for folder in dict.fromkeys(map(Path, folders)):
        found.append(found_in(folder))
    place = Path(out or folders[0])
    place.mkdir(parents=True, exist_ok=True)
    made = {
        "results.csv": spreadsheet(found),
        "report.md": "\n".join(markdown(each) for each in found),
        "report.tex": "\n\n".join(map(latex, found)) + "\n",
        "report.html": webpage(found, SAMPLES if samples is None else samples).html(),
    }
    for name, text in made.items():
        put(place / name, text.encode())
    if not quiet:
        done = sum(result.done for each in found for result in each.results)
        names = ", ".join(str(place / name) for name in made)
        print(f"{many(done, 'sample')} of {many(len(found), 'suite')}: {names}")
    return [place / name for name in made]


def markdown(found: Found) -> str:
    return summary(found.cells.suite, found.results, found.command, found.asked.where())


def latex(found: Found) -> str:
    suite = found.cells.suite
    parts = [
        comment(f"{suite.title}: made by geoshrink bench report."),
        comment("The preamble needs \\usepackage{booktabs,textcomp}."),
        comment(found.asked.where()),
        tabular(replace(table_of(suite, found.results), title=suite.title)),
    ]
    return "\n".join(parts)


def spreadsheet(found: Sequence[Found]) -> str:
    """A row for each row of a table and each of its columns; identical has mean inf."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, HEAD, lineterminator="\n")
    writer.writeheader()
    for each in found:
        for result in each.results:
            writer.writerows(lines(each.cells.suite, result))
    return buffer.getvalue()


def lines(suite: Suite, result: Result) -> Iterator[dict[str, Any]]:
    row = result.row
    common = dict(
        suite=suite.title,
        label=suite.label,
        method=row.method,
        setting=row.setting,
        options=json.dumps(row.options, ensure_ascii=False) if row.options else "",
        budget=row.budget,
        samples=result.done,
        evaluations=result.evaluations,
        forwards=result.forwards,
        seconds=result.seconds,
        speedup=result.speedup,
        paper_speedup=row.paper.get(SPEEDUP),
    )
    for name in suite.columns:
        column, value = COLUMNS[name], result.columns[name]
        better = "higher" if column.higher else "lower"
        yield common | dict(
            column=name,
            unit=column.unit,
            better=better,
            paper=row.paper.get(name),
            **said(value),
        )


def said(value: Value | str) -> dict[str, Any]:
    if isinstance(value, str):
        return dict(status=value)
    mean = "inf" if value.mean == IDENTICAL else value.mean
    return dict(status="done", mean=mean, sd=value.sd, identical=value.identical)
