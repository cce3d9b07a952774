"""What a run with an aim believes before it has seen much of itself: fits aim.Prior.

    python benchmarks/quality_prior.py --cells cells/quality

From the runs of quality_runs.py (the default with Euler): the mean dB of a budget over families,
and how far the estimate of what lies ahead, made at every anchor from what was seen until then, can
be trusted. Fitted to all families and without each: quality_priors.json. The estimates are those of
the constants of all families in both.
"""

from __future__ import annotations

import argparse
import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from planning_common import family_of

from geoshrink.aim import Prior
from geoshrink.quality.cells import Slot
from geoshrink.quality.estimate import Constants, count_of, left, told

FEWEST, HIGHEST = 3, 72.0  # anchors seen; dB, above which rounding is what is measured


class Seen(NamedTuple):
    """A run when some of its anchors were made."""

    family: str
    budget: int
    steps: int
    done: float
    estimate: float
    truth: float


def main() -> None:
    parser = argparse.ArgumentParser(description="Fits aim.Prior.")
    parser.add_argument("--cells", type=Path, default=Path("cells/quality"))
    parser.add_argument("--constants", type=Path, default=Path("benchmarks/quality_constants.json"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/quality_priors.json"))
    args = parser.parse_args()
    known, priors = json.loads(args.constants.read_text(encoding="utf-8")), {}
    constants = Constants(**known["all"]["corrected"])
    files = sorted(args.cells.glob("*.pickle"))
    rows = [seen for file in files for seen in prefixes(file, constants)]
    for left_out in known:
        prior = fitted([row for row in rows if row.family != left_out])
        priors[left_out] = asdict(prior)
        own = [row for row in rows if row.family == left_out] if left_out != "all" else rows
        print(left_out, judged(own, prior), asdict(prior) if left_out == "all" else "")
    args.out.write_text(json.dumps(priors, indent=1) + "\n", encoding="utf-8")


def prefixes(file: Path, p: Constants) -> Iterator[Seen]:
    body = pickle.loads(file.read_bytes())
    for row in body["rows"]:
        truth = float(np.clip(row["db"], -5, HIGHEST).mean())
        if row["form"] != "geoshrink" or row["solver"] != "euler" or truth >= HIGHEST:
            continue
        slots, calls = row["slots"], row["budget"]
        for made in range(FEWEST, calls + 1):
            if all(slot.cells[made - 2].missed is not None for slot in slots):
                db = told(np.mean([ahead(slot, made, p) for slot in slots], 0), count_of(slots), p)
                known = family_of(body["model"]), calls, body["steps"], made / calls
                yield Seen(*known, float(db.mean()), truth)


def ahead(slot: Slot, made: int, p: Constants) -> np.ndarray:
    """E² of a slot if the outputs stay as they are at the latest of the anchors made."""
    now, path, total = slot.cells[made - 2], slot.path, np.zeros_like(slot.size)
    for i, cell in enumerate(slot.cells):
        after = slot.cells[min(i + 1, len(slot.cells) - 1)]
        unseen = i > made - 2 or cell.missed is None
        moved, rest = left(path, cell, now if unseen else cell, p)
        total = total + moved * path.length(after.k, after.end) ** (2 * p.power) + rest
    return total / slot.size


def fitted(rows: Sequence[Seen]) -> Prior:
    ends = [row for row in rows if row.done == 1]
    terms = [[1, np.log(r.budget), np.log(r.steps), r.budget / r.steps] for r in ends]
    of_budget = solved(terms, [r.truth for r in ends], ends)
    prior = Prior(*of_budget, trust=1.0, hope=0.0)
    terms, goals = [], []
    for r in rows:
        over, done = r.estimate - float(prior.expected(r.budget, r.steps)), r.done**2
        terms.append([(1 - done) * over, -(1 - done)])
        goals.append(r.truth - float(prior.expected(r.budget, r.steps)) - done * over)
    trust, hope = solved(terms, goals, rows)
    return Prior(*of_budget, trust=trust, hope=hope)


def solved(terms: Any, goals: Any, rows: Sequence[Seen]) -> list[float]:
    """Least squares in which every family weighs the same."""
    names = [row.family for row in rows]
    count = {name: names.count(name) for name in set(names)}
    weight = np.array([count[name] ** -0.5 for name in names])
    found = np.linalg.lstsq(np.array(terms) * weight[:, None], np.array(goals) * weight, rcond=None)
    return [round(float(value), 3) for value in found[0]]


def judged(rows: Sequence[Seen], prior: Prior) -> str:
    """The error of what a run goes by, by the part of its calls that is made."""
    words = []
    for low, high in ((0, 0.4), (0.4, 0.7), (0.7, 1)):
        off = [
            float(prior.weighed(r.estimate, r.budget, r.steps, r.done)) - r.truth
            for r in rows
            if low < r.done <= high
        ]
        words.append(f"{low:g}–{high:g}: {np.mean(off):+.1f} ± {np.std(off):.1f} dB")
    return "; ".join(words)


if __name__ == "__main__":
    main()
