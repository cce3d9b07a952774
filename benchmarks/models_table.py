"""The table of models in docs/results.md and the paragraph on losses, from the cells of a bench.

    mkdir -p cells && tar xf benchmarks/cells.tar.xz -C cells
    python benchmarks/models_table.py cells/rivals             # prints them
    python benchmarks/models_table.py cells/rivals --write     # and puts them into docs/results.md

Nothing is sampled here.
"""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from geoshrink_bench.report import load
from geoshrink_bench.report.contests import DIRECT, OURS, PUBLISHED, contest
from geoshrink_bench.report.overview import EVEN, against_rivals, digits_for, duels
from geoshrink_bench.report.results import Results
from geoshrink_bench.words import DONE

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
HEAD = "| model, calls, metric | direct | paper | geoshrink | "
HEAD += "best rival without calibration | best calibrated rival |\n|---|--:|--:|--:|---|---|"
FIRST = "Over the contests that ran"
#: What the row says, its setting as far as it is needed, budget, metric.
ROWS: tuple[tuple[str, dict[str, Any], int, str], ...] = (
    ("pictures, 10 of 50", dict(model="fruit", guidance=3.0, shift=3.0), 10, "PSNR"),
    ("pictures from latents, 10 of 28", dict(model="fruit-latent"), 10, "PSNR"),
    ("motion, 10 of 50", dict(model="motion", guidance=5.0, shift=1.0), 10, "MPJPE"),
    (
        "3-D objects, guidance in an interval, 10 of 25",
        dict(model="objects", interval=[0.5, 0.95]),
        10,
        "SDF error",
    ),
    ("speech, 15 of 40", dict(model="digits-audio", guidance=4.5, shift=1.0), 15, "SI-SDR"),
    ("picture with speech, 15 of 30", dict(model="digits-av", guidance=3.0), 15, "PSNR"),
    ("its sound", dict(model="digits-av", guidance=3.0), 15, "SI-SDR"),
    ("film, 10 of 50", dict(model="fruit-video", guidance=5.0, shift=7.0), 10, "PSNR"),
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The table of models, from the cells of a bench.")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of cells")
    parser.add_argument("--write", action="store_true", help="into docs/results.md")
    args = parser.parse_args(argv)
    try:
        results = load(args.folders)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    made = [table(results), paragraph(results)]
    print("\n\n".join(made))
    if args.write:
        text = PAGE.read_text(encoding="utf-8")
        for start, part in zip((HEAD[:24], FIRST), made):
            before, found, rest = text.partition(start)
            if not found:
                parser.error(f"{PAGE} has no place that begins with {start!r}")
            text = before + part + "\n\n" + rest.partition("\n\n")[2]
        PAGE.write_text(text, encoding="utf-8")


def table(results: Results) -> str:
    return "\n".join([HEAD, *(line for row in ROWS if (line := line_of(results, *row)))])


def line_of(results: Results, words: str, wanted: dict[str, Any], budget: int, metric: str) -> str:
    """A row; empty where our default has not run there."""
    setting = next(
        (s for s in results.settings if all(s.spec[k] == v for k, v in wanted.items())), None
    )
    found = contest(setting, metric, budget) if setting else None
    means = found.means() if found else {}
    if found is None or OURS not in means:
        return ""
    rivals = [label for label in means if label not in results.ours and label != DIRECT]
    free = next((label for label in rivals if label not in results.calibrated), None)
    fitted = next((label for label in rivals if label in results.calibrated), None)
    shown = [DIRECT, PUBLISHED, OURS, free, fitted]
    best = next(label for label in means if label in shown)
    digits = max(1, digits_for([means[OURS]]) - 1)

    def said(label: str | None) -> str:
        if label not in means:
            return "—"
        text = f"{means[label]:.{digits}f}"
        text = f"**{text}**" if label == best else text
        return text if label in shown[:3] else f"{text} {label.replace('warm_up', 'warm-up')}"

    cells = [f"{words}, {found.measure.heading.replace(',', '')}", *map(said, shown)]
    return f"| {' | '.join(cells)} |"


def paragraph(results: Results) -> str:
    against: dict[Any, Sequence[Any]] = {row[0]: row for row in duels(results).rows}
    _, direct, ahead, *_ = against[DIRECT]
    text = (
        f"{FIRST}, each one setting, budget and metric, our default is nearer to the full run than "
    )
    text += f"direct step reduction in {ahead} of {direct}"
    for label, name in (
        (PUBLISHED, "the published method"),
        ("MeanCache", "MeanCache, whose anchors are fitted to the model beforehand,"),
    ):
        _, count, ahead, _, median, *_ = against[label]
        text += f"; than {name} in {ahead} of {count}, by {float(median):.1f} dB in the median"
    every = [each for each in against_rivals(results) if each.contest.reference == "full"]
    lost = [each for each in every if each.behind > EVEN]
    often = Counter(each.rival.replace("warm_up", "warm-up") for each in lost).most_common()
    contests = [len({each.contest.key for each in found}) for found in (lost, every)]
    text += f". **We lose** to some rival in {contests[0]} of {contests[1]} contests: "
    text += ", ".join(f"{label} ({count})" for label, count in often)
    text += ". [LOSSES.md](../benchmarks/LOSSES.md) lists every one. "
    done = sum(cell.status == DONE for cell in results.cells)
    text += f"{done} of {len(results.cells)} cells have run."
    return textwrap.fill(text, 128, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
