"""What a bench found: results.csv, the losses, report.md, .tex, and .html, which loads nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from geoshrink.page.table import piped

from ..store import put
from .latex import latex
from .losses import losses
from .markdown import markdown
from .reading import load
from .results import Results
from .spreadsheet import spreadsheet
from .tables import counted


def write(
    results: Results,
    out: Path,
    bar: Callable[[int], Any] = lambda total: nullcontext(),
    samples: int | None = None,
) -> list[Path]:
    """Writes the five files; bar(total) makes a progress bar for the samples that are drawn.

    samples   so many of each setting are shown at most, all that were kept unless given
    """
    from .webpage import webpage

    out.mkdir(parents=True, exist_ok=True)
    made = {
        "results.csv": spreadsheet(results),
        "losses.md": f"# {piped(results.name)}\n\n{losses(results).markdown().strip()}\n",
        "report.md": markdown(results),
        "report.tex": latex(results),
        "report.html": webpage(results, bar, samples).html(),
    }
    for name, text in made.items():
        put(out / name, text.encode())
    return [out / name for name in made]


def draw(results: Results, folder: Path) -> list[Path]:
    """Each setting's first metric against evaluations, as an SVG file of its own."""
    from geoshrink.page import drawing

    from .charts import first_chart

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for setting in results.settings:
        chart = first_chart(setting)
        if chart is not None:
            name = re.sub(r"[^a-z0-9.]+", "-", setting.title.lower()).strip("-")
            written.append(folder / f"{name}.svg")
            put(written[-1], drawing(chart).encode())
    return written
