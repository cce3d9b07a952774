"""A quality held with a profile: profile.plan(target_db=…, hold=True) on the zoo's own profiles.

    python benchmarks/quality_profile.py --device cuda --out benchmarks/quality_profile.md

For every model of the zoo, at the setting that its profile is of, targets of 20 to 40 dB, 16
held-out samples in one batch: calls and dB to the full run of the profile's plan as it is (share
0), with 0.2, 0.35 and 0.5 of what the run sees of itself (SEEN_SHARE of quality/goal.py, chosen in
this table), and without a profile. The constants of the estimate are those fitted without the
family. Lines already in --lines are not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from planning_common import SETTINGS, ZOO, family_of, held_out
from quality import REACHED, TARGETS, without

from geoshrink import sample
from geoshrink.planning.tournament import decibels
from geoshrink.quality.goal import SEEN_SHARE
from geoshrink_bench.models import load
from geoshrink_bench.zoo.profiles import fitted

SHARES, ALONE = (0.0, 0.2, 0.35, 0.5), -1.0  # ALONE: without a profile


def main() -> None:
    parser = argparse.ArgumentParser(description="A quality held with a profile.")
    parser.add_argument("--out", type=Path, default=Path(sys.argv[0]).with_suffix(".md"))
    parser.add_argument("--lines", type=Path, default=Path("benchmarks/quality_profile.jsonl"))
    parser.add_argument("--models", nargs="*", default=ZOO)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--samples", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    known = [json.loads(line) for line in args.lines.open()] if args.lines.exists() else []
    for name in args.models:
        if all(row["model"] != name for row in known):
            for row in work(name, args):
                known.append(row)
                with args.lines.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    args.out.write_text(page(known), encoding="utf-8")


def work(name: str, args: Any) -> Iterator[dict[str, Any]]:
    guidance, shift = (SETTINGS[name][key][0] for key in ("guidance", "shift"))
    args.seeds = 1
    case = held_out(load(name, args.device), guidance, shift, args)
    grid, velocity = case.grid(), case.velocity()
    goal = sample(velocity, case.noise, grid)
    profile, why = fitted(name, grid, guidance)
    if profile is None:
        raise ValueError(f"the profile of {name} does not fit: {why}")
    with without(family_of(name)):
        for target in TARGETS:
            plan = profile.plan(target_db=target, hold=True)
            ways: dict[float, dict[str, Any]] = {share: dict(plan=plan) for share in SHARES}
            ways[ALONE] = dict(sigmas=grid, target_db=target)
            for share, way in ways.items():
                with mock.patch("geoshrink.quality.goal.SEEN_SHARE", max(share, 0.0)):
                    x, seen = sample(velocity, case.noise, with_report=True, **way)
                got = round(float(decibels(x, goal).mean()), 1)
                yield dict(model=name, db=target, share=share, calls=seen.evaluations, got=got)


def page(rows: list[dict[str, Any]]) -> str:
    lines = [f"# {str(__doc__).splitlines()[0]}", "", *str(__doc__).splitlines()[4:], ""]
    models = list(dict.fromkeys(row["model"] for row in rows))
    missing = [name for name in ZOO if name not in models]
    lines += [
        f"On an NVIDIA H200. Not run: {', '.join(missing) or 'none'}.",
        "",
        f"| | contests | within ±{REACHED:g} dB | mean off | sd | farthest |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for share in (*SHARES, ALONE):
        off = [row["got"] - row["db"] for row in rows if row["share"] == share]
        near = sum(abs(o) <= REACHED for o in off) / len(off)
        words = "without a profile" if share == ALONE else f"share {share:g}"
        words += " (the library's)" * (share == SEEN_SHARE)
        lines.append(
            f"| {words} | {len(off)} | {near:.0%} | {statistics.mean(off):+.1f} | "
            f"{statistics.pstdev(off):.1f} | {max(off, key=abs):+.1f} |"
        )
    head = " | ".join("alone" if s == ALONE else f"share {s:g}" for s in (*SHARES, ALONE))
    lines += ["", f"| model | target | {head} |", "|---|--:|" + "--:|" * (len(SHARES) + 1)]
    for name in models:
        for target in TARGETS:
            mine = {r["share"]: r for r in rows if (r["model"], r["db"]) == (name, target)}
            cells = [mine.get(share) for share in (*SHARES, ALONE)]
            told = " | ".join("–" if r is None else f"{r['got']} ({r['calls']})" for r in cells)
            lines.append(f"| {name} | {target} | {told} |")
    return "\n".join([*lines, "", "dB to the full run (calls).", ""])


if __name__ == "__main__":
    main()
