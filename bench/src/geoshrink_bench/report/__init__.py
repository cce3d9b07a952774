"""What a bench found: two spreadsheets, the losses, report.md, .tex, and .html, which loads
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from geoshrink.page.table import piped

from ..asked import Asked
from ..cases.zoo_suite import ZooSuite
from ..page import drawing
from ..store import put
from . import checkpoint, zoo
from .calls_tables import calls_sheet
from .charts import first_chart
from .contests import chosen
from .latex import latex
from .markdown import markdown
from .overview import losses
from .results import Results
from .spreadsheet import spreadsheet
from .webpage import webpage


def load(
    folders: Sequence[str | Path], tick: Callable[[], Any] = lambda: None, empty: bool = False
) -> Results:
    """Reads folders of `geoshrink bench run`, of whatever cases; tick() after each cell.

    empty   whether they may be without any
    """
    if not folders:
        raise ValueError("a report needs at least one folder of cells")
    found = [(Path(folder), Asked.load(folder)) for folder in dict.fromkeys(folders)]
    suites = [(folder, asked.suite()) for folder, asked in found]
    on_zoo = [(folder, suite) for folder, suite in suites if isinstance(suite, ZooSuite)]
    settings, damaged, left_out = zoo.settings_of(on_zoo, tick, empty) if on_zoo else ([], [], [])
    results = Results(suites, settings, damaged, left_out)
    for folder, asked in found:
        if folder not in dict(on_zoo):
            results.settings.append(checkpoint.setting_of(folder, asked))
    return results


def write(
    results: Results,
    out: Path,
    bar: Callable[[int], Any] = lambda total: nullcontext(),
    samples: int | None = None,
) -> list[Path]:
    """Writes the six files; bar(total) makes a progress bar for the samples that are drawn.

    samples   so many of each setting are shown at most
    """
    made = {
        "results.csv": spreadsheet(results),
        "losses.md": f"# {piped(results.name)}\n\n{losses(results).markdown().strip()}\n",
        "report.md": markdown(results),
        "report.tex": latex(results),
        "calls.csv": calls_sheet(results),
        "report.html": webpage(results, bar, samples).html(),
    }
    for name, text in made.items():
        put(out / name, text.encode())
    return [out / name for name in made]


def draw(results: Results, folder: Path) -> list[Path]:
    """Each setting's first metric against evaluations, as an SVG file of its own."""
    written = []
    for setting in results.settings:
        chart = first_chart(setting, chosen(setting, results.ours))
        if chart is not None:
            name = re.sub(r"[^a-z0-9.]+", "-", setting.title.lower()).strip("-")
            written.append(folder / f"{name}.svg")
            put(written[-1], drawing(chart).encode())
    return written
