"""What the paper says, and what our models say, as a table.

    mkdir -p cells && tar xf benchmarks/cells.tar.xz -C cells
    python benchmarks/claims.py cells/rivals cells/first                # prints it
    python benchmarks/claims.py cells/rivals cells/first --out FILE     # and writes it

Reads the cells of `geoshrink bench run` and the table benchmarks/fruit.md; benchmarks/CLAIMS.md was
made so. Nothing is sampled here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from geoshrink_bench.report import load
from geoshrink_bench.report.contests import PUBLISHED
from geoshrink_bench.report.overview import duels

HERE = Path(__file__).parent
BASELINES = ("FORA", "TeaCache", "ToCa", "TaylorSeer", "SpeCa", "ResilPhase")
DRAW = 0.05  # dB
SPENT = 0.95  # of the budget: who makes fewer calls does not make as many
ENOUGH = 10  # cells to judge by


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What the paper says, and what our models say.")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of cells")
    parser.add_argument("--out", type=Path, help="write the table here, too")
    args = parser.parse_args(argv)
    try:
        text = table(args.folders)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    print(text, end="")


def table(folders: Sequence[Path]) -> str:
    cells = load(folders)
    ahead, equal = (
        {row[0]: (row[2], row[1]) for row in duels(cells, mine=PUBLISHED, least=least).rows}
        for least in (0.0, SPENT)
    )
    missing = [name for name in ("direct", *BASELINES) if name not in ahead]
    if missing:
        names = " and ".join(map(str, folders))
        raise ValueError(f"{names}: no cells of {PUBLISHED} beside {', '.join(missing)}")
    fruit = read_fruit((HERE / "fruit.md").read_text(encoding="utf-8"))
    four = ("Fixed-Linear", "Geo-Linear", "Fixed-Shrink", "published")
    best = sum(cell["published"] == max(cell[row] for row in four) for cell in fruit)
    here, first = "`fruit`, benchmarks/fruit.md", "the settings that ran"
    nearer = "nearer to the full run"
    rows = [
        (
            "Keeping the solver's grid is better than shortening it",
            "nearer to the full run than direct step reduction",
            ahead["direct"],
            equal.get("direct"),
            "all models",
        ),
        *((f"Ahead of {name}", nearer, ahead[name], equal.get(name), first) for name in BASELINES),
        (
            "Geometric anchors gain by themselves",
            "Geo-Linear ahead of Fixed-Linear",
            *[count(fruit, "Geo-Linear", "Fixed-Linear")] * 2,
            here,
        ),
        (
            "Shrinking gains by itself",
            "Fixed-Shrink ahead of Fixed-Linear",
            *[count(fruit, "Fixed-Shrink", "Fixed-Linear")] * 2,
            here,
        ),
        (
            "Both together are best of the four",
            "first of the four rows",
            *[(best, len(fruit))] * 2,
            here,
        ),
        (
            "Keeping the whole innovation is worse",
            "ahead of Geo-Linear with ω = 1",
            *[count(fruit, "published", "Geo-Linear (ω = 1)")] * 2,
            here,
        ),
        (
            "Keeping nothing is worse",
            "ahead of holding the output, both on σ-geometric anchors",
            *[count(fruit, "σ, chordal", "σ, hold")] * 2,
            here,
        ),
    ]
    lines = [
        "# What the paper claims, and what we see",
        "",
        f"Made by `python benchmarks/claims.py {' '.join(map(str, folders))}`. The published "
        "method on our small trained models, by distance to the full run; a cell is one setting, "
        "budget and metric. Agrees: in nine of ten cells; mostly: in six of ten. Schedules of some "
        f"rivals make more or fewer calls than the budget; where {ENOUGH} cells or more are left "
        "with as many, to 5 %, these decide; where none is, nothing is judged. The paper's own "
        "models have not been run (docs/paper.md says how).",
        "",
        "| the paper says | what we count | cells | with as many calls | on | agrees |",
        "|---|---|--:|--:|---|---|",
    ]
    for claim, what, every, same, where in rows:
        wins, of = same if same is not None and same[1] >= ENOUGH else every
        verdict = "yes" if wins >= 0.9 * of else "mostly" if wins >= 0.6 * of else "no"
        verdict = "not judged" if same is None else verdict
        lines.append(f"| {claim} | {what} | {told(every)} | {told(same)} | {where} | {verdict} |")
    return "\n".join(lines) + "\n"


def told(count: tuple[float, float] | None) -> str:
    return "none" if count is None else f"{count[0]:.0f} of {count[1]:.0f}"


def read_fruit(text: str) -> list[dict[str, float]]:
    """method → PSNR, for every setting and budget of benchmarks/fruit.md."""
    cells = []
    for part in text.split("\n## ")[1:]:
        table = dict(rows_of(part))
        cells += [dict(zip(table, column)) for column in zip(*table.values())]
    return cells


def rows_of(part: str) -> Iterator[tuple[str, list[float]]]:
    for line in part.splitlines():
        if line.startswith("|") and "±" in line:
            name, *values = (cell.strip() for cell in line.strip("|").split("|"))
            yield name, [float(re.sub(r"\*|±.*", "", value)) for value in values]


def count(cells: list[dict[str, float]], one: str, other: str) -> tuple[int, int]:
    return sum(cell[one] > cell[other] + DRAW for cell in cells), len(cells)


if __name__ == "__main__":
    main()
