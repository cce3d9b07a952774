"""Where outputs move slowly at first: which anchors the default takes, and what that gains.

    python -m geoshrink_bench.foreign fetch
    python benchmarks/pace.py --samples 16 --out benchmarks/pace.md

At its second anchor a run sees how far the output has moved, and what it says about the data: the
column "moved", per unit of the auto mesh's y. Below the threshold (pace.py) it takes the slow
anchors (meshes/slow.py), else those of the corrected mesh. Both are run here with as many
calls: "corrected", "slow", and what the default then is. dB is 10·log10 of the full run's energy
over the error's, in what the solver sees, of each sample, then the mean. Models that predict noise
and those with several σ-grids keep the corrected mesh, whatever they show (kept). That exception,
the threshold, the weights of the slow anchors and the measure were chosen with these models in
view; none was measured after that choice.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from planning_common import HEAVY, ZOO, arguments, each, family_of, held_out, scores, settings

from geoshrink import Plan, sample
from geoshrink.meshes import slow
from geoshrink.meshes.auto import noise_levels
from geoshrink.pace import NOISE, SLOW, movement
from geoshrink_bench import foreign
from geoshrink_bench.foreign.recipe import Repository

BUDGETS, MOST = (7, 10, 15, 20), 0.7  # of the stages
TRIED = tuple(itertools.product((3.0, 10.0, slow.EVEN, 100.0), (4.0, slow.LAST, 64.0)))


class Contest(NamedTuple):
    """One setting at one budget."""

    model: str
    guidance: float
    shift: Any
    budget: int
    moved: float
    direct: float
    corrected: float
    slow: float
    kept: bool = False
    estimated: float | None = None
    estimated_slow: float | None = None
    tried: Mapping[str, float] = MappingProxyType({})

    def slowly(self, threshold: float = SLOW) -> bool:
        """Whether the default takes the slow anchors."""
        return self.moved < threshold and not self.kept

    def default(self, threshold: float = SLOW) -> float:
        return self.slow if self.slowly(threshold) else self.corrected

    def __str__(self) -> str:
        shift = "" if self.shift == 1 else f", shift {self.shift}"
        return f"{self.model}, guidance {self.guidance:g}{shift}, {self.budget} calls"


def main() -> None:
    parser = arguments("Where the outputs move slowly at first.", "cells/pace", 1)
    parser.set_defaults(models=[*foreign.RECIPES, *ZOO], samples=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    chosen = settings(args.models)
    if cells := each(args, chosen, work):
        args.out.write_text(report(cells, args, len(chosen)), encoding="utf-8")


def work(model: Any, guidance: float, shift: Any, args: Any) -> dict[str, Any]:
    case = held_out(model, guidance, shift, args)
    grid, velocity, rows = case.grid(), case.velocity(), {}
    goal = sample(velocity, case.noise, grid)
    for budget in (b for b in BUDGETS if b <= MOST * grid.steps):
        plan = Plan.of(grid, budget)
        fixed = replace(plan, slow=())
        other = replace(fixed, anchors=slow_ones(fixed))
        x, told = sample(velocity, case.noise, plan=fixed, with_report=True)
        x_slow, told_slow = sample(velocity, case.noise, plan=other, with_report=True)
        rows[str(budget)] = {
            "moved": moved(told, plan),
            "kept": [t.prediction for t in grid.tracks] == [NOISE] or len(grid.tracks) > 1,
            "direct": scores(sample(velocity, case.noise, case.grid(budget)), goal, 1)[0],
            "corrected": scores(x, goal, 1)[0],
            "slow": scores(x_slow, goal, 1)[0],
            "estimated": told.estimated_db,
            "estimated_slow": told_slow.estimated_db,
        }
        if model.name not in ZOO:
            rows[str(budget)]["tried"] = {
                f"{even:g}, {last:g}": scores(sample(velocity, case.noise, plan=own), goal, 1)[0]
                for even, last, own in tried(fixed)
            }
    return {"rows": rows}


def tried(plan: Plan) -> Iterator[tuple[float, float, Plan]]:
    """The plan with slow anchors of other weights."""
    for even, last in TRIED:
        with mock.patch.multiple(slow, EVEN=even, LAST=last):
            slow.mesh.cache_clear()
            yield even, last, replace(plan, anchors=slow_ones(plan))
    slow.mesh.cache_clear()


def slow_ones(plan: Plan) -> tuple[int, ...]:
    """The slow anchors, also where there are several σ-grids."""
    tau, anchors = noise_levels(plan.grid), plan.anchors
    if tau is None or not 2 < len(anchors) < plan.steps or anchors[1] in plan.grid.regimes:
        return anchors
    return slow.mesh(tau, len(anchors), anchors[1], plan.grid.regimes)


def moved(report: Any, plan: Plan) -> float:
    """What pace.py compares with its threshold, from a report; of the first σ-grid."""
    second, track = plan.anchors[1], plan.grid.tracks[0]
    errors = [stage.error for stage in report.stages if stage.stage == second]
    return movement(plan, errors, abs(track.data_map(second)[1]))


def contests(cells: Sequence[dict[str, Any]]) -> list[Contest]:
    found = []
    for cell in cells:
        model, guidance, shift = cell["setting"]
        found += [
            Contest(model, guidance, shift, int(budget), **row)
            for budget, row in cell["rows"].items()
        ]
    return found


def best_threshold(found: Sequence[Contest]) -> float:
    """The middle of those with the highest mean dB."""
    tried = np.geomspace(0.01, 2.0, 107).tolist()
    worth = [statistics.fmean(c.default(t) for c in found) for t in tried]
    return statistics.median(t for t, w in zip(tried, worth) if w >= max(worth) - 1e-9)


def losses(found: Sequence[Contest]) -> list[str]:
    worse = [(c.default() - max(c.corrected, c.slow), c) for c in found]
    worse = sorted((w for w in worse if w[0] < -0.3), key=lambda w: w[0])
    lines = [
        f"In {len(worse)} of {len(found)} contests the other anchors would have been more than 0.3 "
        "dB nearer:"
    ]
    for gap, c in worse:
        names = ("slow", "corrected") if c.slowly() else ("corrected", "slow")
        lines.append(f"- {c}: {names[0]} was taken (moved {c.moved:.3f}), {names[1]} is {-gap:.1f}")
    return lines


def behind(found: Sequence[Contest]) -> list[str]:
    lost = [c for c in found if c.default() < c.direct - 0.3]
    return [
        f"The default is more than 0.3 dB behind direct in {len(lost)} of {len(found)} contests:",
        *(f"- {c}: {c.default():.1f} dB against {c.direct:.1f}" for c in lost),
    ]


def verdicts(found: Sequence[Contest]) -> list[str]:
    head = "".join(f" {b} calls (least) |" for b in BUDGETS)
    lines = [f"| against direct | contests |{head}", "|---|--:|" + "--:|" * len(BUDGETS)]
    for words, ours in (("models of others", False), ("our models", True)):
        rows = [c for c in found if (c.model in ZOO) == ours]
        for name in ("corrected", "slow", "default"):
            cells = []
            for budget in BUDGETS:
                own = [
                    (c.default() if name == "default" else getattr(c, name)) - c.direct
                    for c in rows
                    if c.budget == budget
                ]
                cells.append(f"{statistics.fmean(own):+.1f} ({min(own):+.1f})" if own else "–")
            lines.append(f"| {words}: {name} | {len(rows)} | {' | '.join(cells)} |")
    return lines


def estimates(found: Sequence[Contest]) -> str:
    """How far the report's own estimate was off, on models of others."""
    parts = []
    for name, told in (("corrected", "estimated"), ("slow", "estimated_slow")):
        taken = [c for c in found if c.slowly() and c.model not in ZOO]
        off = [getattr(c, told) - getattr(c, name) for c in taken if getattr(c, told) is not None]
        if len(off) > 1:
            spread = statistics.stdev(off)
            parts.append(f"{name} {statistics.fmean(off):+.1f} ± {spread:.1f} dB ({len(off)})")
    return f"Where outputs move slowly, the report's estimate is off by: {'; '.join(parts)}."


def gap(found: Sequence[Contest]) -> str:
    """Between which values every threshold is as good."""
    decided = sorted(c.moved for c in found if not c.kept)
    low = max((m for m in decided if m < SLOW), default=0.0)
    high = min((m for m in decided if m >= SLOW), default=float("inf"))
    named = dict.fromkeys(c.model for c in found if c.kept and c.moved < SLOW)
    return (
        f"The threshold is {SLOW:g}. None of the contests in which it decides moved by more than "
        f"{low:.3f} and less than {high:.3f}, so every threshold in between is as good. Kept, "
        f"though they moved by less than that: {', '.join(named) or 'none'}."
    )


def author_of(model: str) -> str:
    """Who trained it: a model of others by its source, ours by family."""
    if model in ZOO:
        return family_of(model)
    source = foreign.RECIPES[model].source
    return source.name.partition("/")[0] if isinstance(source, Repository) else model


def held_back(found: Sequence[Contest], group: Callable[[str], str]) -> list[str]:
    """The threshold that all other groups would choose, judged on the one left out."""
    lines = [
        "| left out | threshold of the others | contests | mean over corrected | over slow | over "
        "the better of both |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name in dict.fromkeys(group(c.model) for c in found):
        own = [c for c in found if group(c.model) == name]
        others = [c for c in found if group(c.model) != name]
        if not others:
            continue
        threshold = best_threshold(others)
        gains = [
            statistics.fmean(c.default(threshold) - base(c) for c in own)
            for base in (
                lambda c: c.corrected,
                lambda c: c.slow,
                lambda c: max(c.corrected, c.slow),
            )
        ]
        shown = " | ".join(f"{gain:+.1f}" for gain in gains)
        lines.append(f"| {name} | {threshold:.2f} | {len(own)} | {shown} |")
    return lines


def weights(found: Sequence[Contest]) -> list[str]:
    """The weights that all other families of others would choose, judged on the one left out."""
    rows = [c for c in found if c.tried and c.slowly()]
    lines = [
        "| left out | even, last of the others | contests | mean over corrected | with ours | with "
        "its own best |",
        "|---|---|--:|--:|--:|--:|",
    ]

    def gain(name: str, of: Sequence[Contest]) -> float:
        return statistics.fmean(c.tried[name] - c.corrected for c in of)

    for family in dict.fromkeys(family_of(c.model) for c in rows):
        own = [c for c in rows if family_of(c.model) == family]
        others = [c for c in rows if family_of(c.model) != family]
        if not others:
            continue
        chosen = max(others[0].tried, key=lambda name: gain(name, others))
        best = max(gain(name, own) for name in own[0].tried)
        ours = gain(f"{slow.EVEN:g}, {slow.LAST:g}", own)
        shown = f"{gain(chosen, own):+.1f} | {ours:+.1f} | {best:+.1f}"
        lines.append(f"| {family} | {chosen} | {len(own)} | {shown} |")
    return lines


def report(cells: Sequence[dict[str, Any]], args: Any, asked: int) -> str:
    about, found = str(__doc__).splitlines(), contests(cells)
    counts: dict[int, list[str]] = {}
    for cell in cells:
        n = cell["samples"] // HEAVY.get(cell["setting"][0], 1)
        counts.setdefault(max(2, n), []).append(cell["setting"][0])
    told = "; ".join(
        f"{n}: {', '.join(dict.fromkeys(names))}" for n, names in sorted(counts.items())
    )
    lines = [
        f"# {about[0]}",
        "",
        f"Made by `python benchmarks/pace.py`, with `--samples` as below, on "
        f"{' and '.join(sorted({cell['on'] for cell in cells}))}. {len(cells)} of {asked} settings "
        f"have run. Samples: {told}.",
        "",
        *about[5:],
        "",
        gap(found),
        "",
        "## Behind direct",
        "",
        *behind(found),
        "",
        "## Behind the other anchors",
        "",
        *losses(found),
        "",
        "## Against direct",
        "",
        *verdicts(found),
        "",
        estimates(found),
        "",
        "## The threshold, chosen without the family that it is judged on",
        "",
        *held_back(found, family_of),
        "",
        "The same with all models of one author left out:",
        "",
        *held_back(found, author_of),
        "",
        "## The weights of the slow anchors, chosen without the family that they are judged on",
        "",
        f"Where outputs move slowly. Ours ({slow.EVEN:g}, {slow.LAST:g}) were chosen with all in "
        "view.",
        "",
        *weights(found),
        "",
        "## dB to the full run",
        "",
        "| model, guidance, shift | calls | moved | direct | corrected | slow | default |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for c in found:
        db = " | ".join(f"{v:.1f}" for v in (c.direct, c.corrected, c.slow, c.default()))
        place = f"{c.model}, {c.guidance:g}, {c.shift}"
        far = f"{c.moved:.3f}" + (" (kept)" if c.kept else "")
        lines.append(f"| {place} | {c.budget} | {far} | {db} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
