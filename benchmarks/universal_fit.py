"""The constants of the universal mesh, fitted to profiles: of all models, and of all but a family.

    python benchmarks/universal_fit.py --out benchmarks/universal.json

Shapes drawn once from a box are tried on every profile of benchmarks/planning.py. What counts is by
how many dB of the surrogate (time rule, data space) a shape's anchors are behind those planned from
the profile itself, mean over budgets, settings and families. No model is run.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from planning_common import ZOO, settings

from geoshrink import Profile
from geoshrink.meshes.auto import Shape, universal_anchors
from geoshrink.planning.planner import decibel
from geoshrink_bench.zoo.carried import subset

LOW, HIGH = Shape(0.005, 0.01, 0.1, 0.0), Shape(0.08, 0.2, 0.8, 1.5)
SAMPLES = 8
RECIPE = "time, data space"


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the universal mesh.")
    parser.add_argument("--out", type=Path, required=True, help="the constants, JSON")
    parser.add_argument("--profiles", type=Path, default=Path("cells/profiles"))
    parser.add_argument("--shapes", type=int, default=300, help="so many are tried")
    args = parser.parse_args()
    torch.set_num_threads(1)
    known = [s for s in (Setting.load(args.profiles, *at) for at in settings(ZOO)) if s]
    shapes = drawn(args.shapes)
    losses = [by_family(known, shape) for shape in shapes]
    families = sorted(losses[0])
    body = {without: best(shapes, losses, without) for without in ("", *families)}
    made = f"python benchmarks/universal_fit.py --shapes {args.shapes}"
    write({"made": made, "settings": len(known), "without": body}, args.out)


def write(body: dict[str, Any], file: Path) -> None:
    """A line for each family that is left out; "" leaves out none."""
    rows = [f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in body["without"].items()]
    head = "".join(f" {json.dumps(k)}: {json.dumps(body[k])},\n" for k in ("made", "settings"))
    inner = ",\n".join(rows)
    file.write_text(f'{{\n{head} "without": {{\n{inner}\n }}\n}}\n', encoding="utf-8")


def family(model: str) -> str:
    """Models of the same data count as one."""
    return model.split("-")[0]


def drawn(count: int) -> list[Shape]:
    """a and b evenly in their logarithm, c and p evenly."""
    low, high = ([math.log(s.a), math.log(s.b), s.c, s.p] for s in (LOW, HIGH))
    rows = np.random.default_rng(0).uniform(low, high, (count, 4))
    return [Shape(*(round(x, 4) for x in (math.exp(a), math.exp(b), c, p))) for a, b, c, p in rows]


class Setting:
    """A profile with the cells that were asked for, which shapes share."""

    def __init__(self, profile: Profile) -> None:
        self.family, self.grid = family(profile.model), profile.grid
        few = range(0, profile.samples, max(1, profile.samples // SAMPLES))
        self.planner = subset(profile, few).planner
        self.cells: dict[tuple[int, ...], float] = {}
        trials = [t for t in profile.trials if t.recipe == RECIPE and t.target == "run"]
        self.planned = {t.budget: self.surrogate(t.anchors) for t in trials}

    @classmethod
    def load(cls, folder: Path, name: str, guidance: float, shift: object) -> Setting | None:
        """None where there is no profile, or one that is not whole."""
        try:
            file = folder / f"{name}, guidance {guidance:g}, shift {shift}, run.json"
            return cls(Profile.load(file))
        except (OSError, ValueError):
            return None

    def surrogate(self, anchors: Sequence[int]) -> float:
        total = 0.0
        for r, (first, last) in enumerate(self.grid.spans()):
            own = [a - first for a in anchors if first <= a < last]
            for place in range(len(own)):
                near, k = own[max(place - 2, 0) : place + 2], min(place, 2)
                key = r, place == len(own) - 1, *near
                if key not in self.cells:
                    costs = self.planner.regime(r, "data").cells(near, k).costs("time")
                    self.cells[key] = float(costs[0, max(k - 1, 0), 0])
                total += self.cells[key]
        return decibel(total)

    def loss(self, shape: Shape) -> float:
        behind = []
        for budget, planned in self.planned.items():
            anchors = universal_anchors(self.grid, budget, shape)
            assert anchors is not None
            behind.append(planned - self.surrogate(anchors))
        return statistics.mean(behind)


def by_family(known: Sequence[Setting], shape: Shape) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for setting in known:
        found.setdefault(setting.family, []).append(setting.loss(shape))
    return {name: statistics.mean(values) for name, values in found.items()}


def best(
    shapes: Sequence[Shape], losses: Sequence[dict[str, float]], without: str
) -> dict[str, Any]:
    """The shape with the least mean loss over the families but one, and what it loses on each."""

    def mean(place: int) -> float:
        return statistics.mean(x for name, x in losses[place].items() if name != without)

    place = min(range(len(shapes)), key=mean)
    return {
        "shape": shapes[place],
        "behind": {name: round(x, 3) for name, x in losses[place].items()},
    }


if __name__ == "__main__":
    main()
