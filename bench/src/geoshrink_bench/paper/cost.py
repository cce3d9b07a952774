"""What a suite of the paper costs: its calls of the network, and GPU-hours where one was timed.

python -m geoshrink_bench.paper.cost writes the table of docs/paper.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from geoshrink.page import Column, Table

from ..suite import read
from ..words import Row
from .hosts import HOSTS
from .tables import PROMPTS, TABLES, folder_name, grouped

TAUGHT = {"GeoShrink (learned)": 1}  # full runs beforehand, for each such row
FITTED = 4  # of TeaCache without its authors' polynomial


@dataclass(frozen=True)
class Timed:
    """Seconds of a full run's sampling loop with so many calls, at the suite's own size."""

    seconds: float
    calls: int

    @property
    def each(self) -> float:
        return self.seconds / self.calls


GPU = "NVIDIA H200, bf16, random weights of full size"
SOURCE = "benchmarks/gpu/corrected.jsonl"
#: The rows "full" of SOURCE.
MEASURED = {
    "flux": Timed(8.763, 50),
    "sd3": Timed(2.410, 28),
    "hunyuan-video": Timed(79.247, 50),
}


@dataclass(frozen=True)
class Cost:
    """samples: of each row; runs: of all rows, the full one too; calls: of the network."""

    samples: int
    runs: int
    calls: float
    each: float | None

    @property
    def hours(self) -> float | None:
        return None if self.each is None else self.calls * self.each / 3600


def cost_of(suite: Any) -> Cost:
    stages = HOSTS[suite.host]().stages(suite.steps)
    samples = suite.prompts["count"] * suite.seeds
    once = stages + sum(calls_of(row, stages) for row in suite.rows)
    before = stages * sum(map(beforehand, suite.rows))
    timed = MEASURED.get(suite.host)
    each = timed.each if timed else None
    return Cost(samples, samples * (1 + len(suite.rows)), samples * once + before, each)


def calls_of(row: Row, stages: int) -> float:
    """Of one sample, or as much work: the budget; a rival that has none makes what its speed-up in
    the paper leaves of the stages, or all of them where the paper has no number.

    >>> calls_of(Row("direct", 10), 50), calls_of(Row("FORA", paper={"speedup": 5.0}), 50)
    (10, 10.0)
    """
    if row.budget is not None:
        return row.budget
    return stages / row.paper.get("speedup", 1.0)


def beforehand(row: Row) -> int:
    """Full runs that a row needs once, whatever the number of samples."""
    if row.method == "TeaCache" and "coefficients" not in row.options:
        return FITTED
    return TAUGHT.get(row.method, 0)


def hours_text(cost: Cost) -> str:
    return "not measured" if cost.hours is None else f"{cost.hours:.1f}"


def table(names: Iterable[str]) -> Table:
    """A row for each suite."""
    places = {table.label: table.name for table in TABLES}
    rows = []
    for name in names:
        suite = read(name)
        cost = cost_of(suite)
        rows.append(
            [
                places[suite.label],
                name,
                folder_name(suite),
                f"{cost.samples:,}",
                f"{cost.runs:,}",
                f"{cost.calls:,.0f}",
                "not measured" if cost.each is None else f"{cost.each:.4f}",
                hours_text(cost),
            ]
        )
    names = ("in the paper", "suite", "checkpoint", "samples", "runs", "calls", "s a call")
    return Table(
        "What it costs",
        [Column(name) for name in (*names, "GPU-hours")],
        rows,
        caption="Samples: prompts × seeds. Runs: of all rows, the full run too. Calls: stages of a "
        "full run, budgets, and for rivals without one the stages over the paper's speed-up (all "
        "stages where it names none); what is learned or fitted beforehand is in. Seconds a call: "
        f"the sampling loop of a full run, {GPU} ({SOURCE}); loading, encoding, decoding and "
        "metrics come on top.",
    )


if __name__ == "__main__":
    print(table(name for names in grouped(list(PROMPTS)).values() for name in names).markdown())
