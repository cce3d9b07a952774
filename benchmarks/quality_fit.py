"""The constants of the estimate, fitted to runs, and judged on families left out.

    python benchmarks/quality_fit.py --cells cells/quality --out benchmarks/estimate.md

Reads what quality_runs.py wrote. A least-squares fit of the mean dB of each run, with less weight
for what is off by more than 3 dB, families of equal weight, 1.5 times as much for the default with
Euler. Runs above 72 dB, where float32 ends, are not fitted. Beside the page: the constants fitted
without each family (quality_constants.json), and the plot.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import pickle
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from planning_common import family_of
from quality_runs import ZOO, all_settings
from scipy.optimize import least_squares
from scipy.stats import rankdata

from geoshrink.page.charts import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Lines, Series
from geoshrink.page.document import OWN, resources
from geoshrink.page.markup import Markup, element
from geoshrink.page.scale import Scale
from geoshrink.quality.cells import Slot
from geoshrink.quality.estimate import (
    CORRECTED,
    LEAST,
    MARGIN,
    MOST_COORDINATES,
    UNCORRECTED,
    Constants,
    count_of,
    decibels,
    direct_decibels,
    growth,
    latest,
)
from geoshrink_bench import foreign
from geoshrink_bench.page.drawing import BACKGROUND, COLUMN, ROW, entry

Array = np.ndarray
COMMAND = "python benchmarks/quality_fit.py --cells cells/quality --out benchmarks/estimate.md"
MOST_SAMPLES = 32
LOW, HIGH = -5.0, 72.0  # dB; truth is clipped
ROBUST = 3.0  # dB
ASKED = 2.8  # dB of bias at most, of a family
EMPHASIS = 1.5
OURS = ("a", "slope", "floor", "count", "spread", "last", "power", "moved")
DIRECT = (
    "direct_a", "direct_slope", "direct_floor", "direct_count", "direct_spread", "direct_budget",
)  # fmt: skip
POSITIVE = {"floor", "spread", "last", "moved", "direct_floor", "direct_spread"}
KINDS = {"corrected": CORRECTED, "uncorrected": UNCORRECTED}


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit the estimate, judge it on families left out.")
    parser.add_argument("--cells", type=Path, default=Path("cells/quality"))
    parser.add_argument("--out", type=Path, required=True, help="the page, Markdown")
    parser.add_argument("--constants", type=Path, help="default: quality_constants.json beside it")
    parser.add_argument("--plot", type=Path, default=Path("docs/plots/estimate.svg"))
    args = parser.parse_args()
    rows = list(load(args.cells))
    kinds = {name: Runs([r for r in rows if r["corrected"] == (name == "corrected")], start)
             for name, start in KINDS.items()}  # fmt: skip
    for runs in kinds.values():
        check(runs)
    fits = {name: fit_all(runs) for name, runs in kinds.items()}
    families = sorted({family_of(r["model"]) for r in rows})
    body = {
        without: {name: dataclasses.asdict(fit[without]) for name, fit in fits.items()}
        for without in ("all", *families)
    }
    file = args.constants or args.out.with_name("quality_constants.json")
    file.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    judged = Judged(kinds, fits)
    args.plot.write_text(plot(judged), encoding="utf-8")
    at = os.path.relpath(args.plot, args.out.parent)
    args.out.write_text(page(judged, args.cells, at), encoding="utf-8")
    for name, fit in fits.items():
        print(source(name.upper(), fit["all"]))


def load(folder: Path) -> Iterator[dict[str, Any]]:
    """The runs, each with its setting."""
    for file in sorted(folder.glob("*.pickle")):
        body = pickle.loads(file.read_bytes())
        for row in body.pop("rows"):
            yield body | row


class Runs:
    """Runs of one kind as arrays: a row for each run, or for each cell; a column for each sample.

    V, direct_V   dB of the estimate, leave-family-out, once fit_all has set them
    """

    def __init__(self, rows: Sequence[dict[str, Any]], start: Constants) -> None:
        self.rows, self.constants = rows, start
        self.db, self.direct = (padded([np.clip(r[k], LOW, HIGH) for r in rows])
                                for k in ("db", "direct"))  # fmt: skip
        self.model, self.form, self.solver = (
            np.array([r[k] for r in rows]) for k in ("model", "form", "solver")
        )
        self.family = np.array([family_of(m) for m in self.model])
        self.calls, self.steps = (np.array([r[k] for r in rows]) for k in ("budget", "steps"))
        self.below = np.nanmedian(self.db, 1) < HIGH
        self.default = (self.form == "geoshrink") & (self.solver == "euler")
        counts = padded([count_of(r["slots"]) for r in rows])
        self.count = np.log10(np.minimum(counts, MOST_COORDINATES))
        parts = [[seen for slot in r["slots"] for seen in parts_of(slot, r)] for r in rows]
        cells = [cell for row in parts for cell in row]
        self.first = np.cumsum([0, *map(len, parts)])[:-1]  # cell of each run
        self.noise, self.after, self.last = (
            np.array([c[k] for c in cells])[:, None] for k in ("noise", "after", "last")
        )
        self.held, self.rest, self.drift = (
            padded([c[k] for c in cells]) for k in ("held", "rest", "drift")
        )
        self.V = self.direct_V = np.full_like(self.db, np.nan)

    @cached_property
    def weight(self) -> Array:
        of = {f: (self.family == f).sum() for f in set(self.family)}
        return np.array([of[f] for f in self.family]) ** -0.5 * np.where(self.default, EMPHASIS, 1)

    def estimate(self, p: Constants) -> Array:
        """quality.estimate.decibels of every run."""
        g = growth(self.noise, p.spread)  # type: ignore[arg-type]
        h = np.where(self.last, p.last**2, p.moved**2 * self.after ** (2 * p.power))
        E2 = np.add.reduceat(g * h * self.held + g * self.rest, self.first)
        ratio = 10 * np.log10(1 / np.maximum(E2, LEAST) + p.floor)
        return p.a + p.slope * ratio + p.count * self.count

    def estimate_direct(self, p: Constants) -> Array:
        """quality.estimate.direct_decibels of every run."""
        g = growth(self.noise, p.direct_spread)  # type: ignore[arg-type]
        E = np.add.reduceat(g**0.5 * self.drift, self.first)
        E = E * np.maximum(self.steps / self.calls - 1, 0.05)[:, None]
        ratio = 10 * np.log10(1 / np.maximum(E**2, LEAST) + p.direct_floor)
        budget = p.direct_budget * np.log10(self.calls)[:, None]
        return p.direct_a + p.direct_slope * ratio + p.direct_count * self.count + budget


def parts_of(slot: Slot, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the formula needs of each cell, over ‖x̂₀‖ and the number of slots."""
    path, slots = slot.path, len(row["slots"])
    for i, cell in enumerate(slot.cells):
        seen, after = latest(slot, i), slot.cells[min(i + 1, len(slot.cells) - 1)]
        assert seen.slope is not None and seen.curvature is not None
        at, last = (cell.k, cell.end), cell.missed is None
        missed = path.inside(*at) * seen.curvature if cell.corrected else cell.missed
        rest = 0 * slot.size if missed is None else missed
        moved = seen.slope * (path.y[cell.end] - path.y[cell.k]) * path.mean_weight(*at)
        yield dict(
            noise=path.noise[cell.end],
            after=path.y[after.end] - path.y[after.k],
            last=last,
            held=(seen.slope * path.reach(*at)) ** 2 / slot.size / slots,
            rest=rest**2 / slot.size / slots,
            drift=moved / np.sqrt(slot.size) / slots,
        )


def padded(rows: Sequence[Array]) -> Array:
    out = np.full((len(rows), MOST_SAMPLES), np.nan)
    for line, row in zip(out, rows):
        line[: len(row)] = row
    return out


def check(runs: Runs) -> None:
    """The formula here is the product's, or this fails."""
    p = runs.constants
    ours, direct = runs.estimate(p), runs.estimate_direct(p)
    for i in range(0, len(runs.rows), 37):
        r = runs.rows[i]
        n = len(r["db"])
        for here, there in (
            (ours, decibels(r["slots"], p)),
            (direct, direct_decibels(r["slots"], p, r["budget"], r["steps"])),
        ):
            if not np.abs(here[i, :n] - there).max() < 1e-6:
                raise SystemExit(f"not the product's formula: {r['model']}, {r['form']}")


# The fit


def fit_all(runs: Runs) -> dict[str, Constants]:
    """The constants from all families and without each; sets the estimates leave-family-out."""
    found = {"all": fit(runs, np.ones(len(runs.rows)), runs.constants)}
    runs.V, runs.direct_V = np.full_like(runs.db, np.nan), np.full_like(runs.db, np.nan)
    for left_out in sorted(set(runs.family)):
        mine = runs.family == left_out
        p = found[left_out] = fit(runs, ~mine, found["all"])
        runs.V[mine], runs.direct_V[mine] = runs.estimate(p)[mine], runs.estimate_direct(p)[mine]
    return {without: with_band(runs, without, p) for without, p in found.items()}


def fit(runs: Runs, keep: Array, start: Constants) -> Constants:
    ours = solved(runs.estimate, runs.db, runs.weight * keep * runs.below, start, OURS)
    return solved(runs.estimate_direct, runs.direct, runs.weight * keep, ours, DIRECT)


def solved(
    formula: Any, truth: Array, weight: Array, start: Constants, names: Sequence[str]
) -> Constants:
    mean = np.nanmean(truth, 1)

    def constants(theta: Array) -> Constants:
        values = (math.exp(t) if n in POSITIVE else float(t) for n, t in zip(names, theta))
        return dataclasses.replace(start, **dict(zip(names, values)))

    def residual(theta: Array) -> Array:
        off = np.nanmean(formula(constants(theta)), 1) - mean
        return weight * off * np.sqrt(2 / (1 + np.sqrt(1 + (off / ROBUST) ** 2)))

    values = [(n, getattr(start, n)) for n in names]
    theta = [math.log(v) if n in POSITIVE else v for n, v in values]
    return constants(least_squares(residual, theta, x_scale="jac", max_nfev=100, ftol=1e-9).x)


def with_band(runs: Runs, without: str, p: Constants) -> Constants:
    """Half the band covers 90 % of the runs of the other families for 1 and for 16 samples."""
    keep = runs.below & (runs.family != without)
    one, many = (np.quantile(np.abs(means_of(runs, keep, n)[0]), 0.9) for n in (1, 16))
    within2 = max(one**2 - many**2, 0.0) * 16 / 15
    between2 = max(many**2 - within2 / 16, 0.0)
    return dataclasses.replace(p, between=float(between2**0.5), within=float(within2**0.5))


def means_of(runs: Any, keep: Array, n: int) -> tuple[Array, Array]:
    """(Estimate less truth, the run), for disjoint sets of n samples of the runs that have them."""
    order = np.random.default_rng(0).permutation(MOST_SAMPLES)
    found, at = [], []
    for i in np.flatnonzero(keep):
        off = (runs.V[i] - runs.db[i])[order]
        off = off[np.isfinite(off)]
        sets = off[: len(off) // n * n].reshape(-1, n).mean(1)
        found.append(sets)
        at.append(np.full(len(sets), i))
    return np.concatenate(found), np.concatenate(at)


def source(name: str, p: Constants) -> str:
    """As it stands in quality/estimate.py."""
    text = {k: f"{k}={float(f'{v:.5g}'):g}" for k, v in dataclasses.asdict(p).items()}
    lines = [OURS[:5], OURS[5:], DIRECT[:4], (*DIRECT[4:], "between", "within")]
    body = "\n".join("    " + ", ".join(text[k] for k in line) + "," for line in lines)
    return f"{name} = Constants(\n{body}\n)  # fmt: skip"


# The page


class Judged:
    """Runs of both kinds, with the estimates and the bands of families left out."""

    V: Array
    db: Array
    direct_V: Array
    direct: Array
    model: Array
    family: Array
    form: Array
    solver: Array
    calls: Array
    below: Array
    default: Array

    def __init__(self, kinds: dict[str, Runs], fits: dict[str, dict[str, Constants]]) -> None:
        for name in Judged.__annotations__:
            setattr(self, name, np.concatenate([getattr(r, name) for r in kinds.values()]))
        self.rows = [row for runs in kinds.values() for row in runs.rows]
        self.corrected = np.array([row["corrected"] for row in self.rows])
        left_out = [fits[name][f] for name, runs in kinds.items() for f in runs.family]
        self.between, self.within = (
            np.array([getattr(p, k) for p in left_out]) for k in ("between", "within")
        )
        self.bands = {name: fit["all"] for name, fit in fits.items()}
        self.families: list[str] = sorted(set(self.family))
        self.ours = ~np.isin(self.model, list(foreign.RECIPES))
        self.truth, self.told = np.nanmean(self.db, 1), np.nanmean(self.V, 1)
        self.off = self.told - self.truth
        self.direct_off = np.nanmean(self.direct_V, 1) - np.nanmean(self.direct, 1)
        self.ahead = self.truth - np.nanmean(self.direct, 1)
        self.expected = self.told - np.nanmean(self.direct_V, 1)

    def name(self, i: int) -> str:
        r = self.rows[i]
        setting = f"guidance {r['guidance']:g}, shift {r['shift']}, {r['steps']} steps"
        return f"{r['model']}, {setting}, B {r['budget']}"

    def covered(self, keep: Array, n: int) -> tuple[Array, Array]:
        """(Whether in the band, the family), of each set of n samples."""
        off, at = means_of(self, keep & self.below, n)
        return np.abs(off) <= np.hypot(self.between, self.within / n**0.5)[at], self.family[at]


def page(j: Judged, cells: Path, plot_at: str) -> str:
    parts = [
        "# What a run says about its distance to the full run, against the truth",
        origin(j, cells),
        f"""\
Every number here is of a model whose family was left out of the fit (all fruit models are one
family; digits-vit, -cnn, -unet and -latent are one, digits). The form of the formula was not left
out: it was chosen among about 45 with these families in view, so the numbers are somewhat too good.
The margin of {MARGIN:g} dB was read off such a table of the same runs. dB is
10·log10(‖full run‖²/‖error‖²), mean over the samples of a run, each clipped to
{LOW:g} … {HIGH:g}. Bias is estimate − truth: above zero,
the run is worse than it says. The default is geoshrink with Euler; corrected are all runs whose
cells are corrected, with it. {(~j.below).sum()} runs with a median of {HIGH:g} dB or more
({(~j.below & j.default).sum()} of the default), where float32 ends, count only for doubt and direct
step reduction; of these the estimate says {j.told[~j.below].mean():.0f} dB in the mean.""",
        "## Losses and misses",
        losses(j),
        f"![Estimate and truth, families left out]({plot_at})",
        "## By family",
        by_family(j),
        "## By model, of families with several",
        by_model(j),
        "## By form and solver",
        by_form(j),
        "## By budget",
        by_budget(j),
        "## The band",
        band(j),
        "## Doubt",
        doubt(j),
        "## Samples of a run",
        ranking(j),
    ]
    return "\n\n".join(parts) + "\n"


def origin(j: Judged, cells: Path) -> str:
    """What the page was made from, and what is missing."""
    samples = sorted({len(r["db"]) for r in j.rows})
    wanted = [(m, f"guidance {g:g}, shift {s}, {steps or 'own'} steps")
              for (m, g, s), steps in all_settings([*foreign.RECIPES, *ZOO])]  # fmt: skip
    there = {file.stem + " steps" for file in cells.glob("*.pickle")}
    missing = [(m, text) for m, text in wanted if f"{m}, {text}" not in there]
    none = sorted({m for m, _ in missing} - set(j.model))
    some = "; ".join(f"{m}, {text}" for m, text in missing if m not in none)
    about = cells / "about.txt"
    lines = [
        f"Made by `{COMMAND}`",
        "for runs as `python benchmarks/quality_runs.py --cells cells/quality` makes them:",
        f"{len(j.rows)} runs of {len(set(j.model))} models in {len(j.families)} families, "
        f"{samples[0]} to {samples[-1]} samples each,",
        f"{len(wanted) - len(missing)} of {len(wanted)} settings.",
        f"Models without any run: {', '.join(none) or 'none'}.",
        f"Other settings without: {some or 'none'}.",
    ]
    if about.exists():
        lines.append(about.read_text(encoding="utf-8").strip())
    return "\n".join(lines)


def losses(j: Judged) -> str:
    lines = []
    for what, keep in groups(j):
        bias = {f: j.off[keep & j.below & (j.family == f)].mean() for f in j.families}
        out = sorted((f for f in bias if abs(bias[f]) > ASKED), key=lambda f: -abs(bias[f]))
        listed = ", ".join(f"{f} {bias[f]:+.1f}" for f in out) or "none"
        lines.append(f"- {what}: outside ±{ASKED} dB {len(out)} of {len(bias)} families: {listed}.")
    for what, keep in groups(j):
        low = {n: worst(*j.covered(keep, n)) for n in (1, 16)}
        text = ", ".join(f"n = {n}: {f} {share:.0%}" for n, (f, share) in low.items())
        lines.append(f"- {what}: worst coverage of the 90 % band, {text}.")
    for what, keep in sets_of(j):
        found, wrong = flagged(j, keep, MARGIN)
        met = "met" if found >= 0.8 and wrong <= 0.1 else "NOT met"
        lines.append(
            f"- Doubt, {what}: flagged are {found:.0%} of {(keep & (j.ahead < 0)).sum()} runs "
            f"behind direct step reduction (asked ≥ 80 %), {wrong:.0%} of "
            f"{(keep & (j.ahead >= 6)).sum()} at least 6 dB ahead (asked ≤ 10 %): {met}."
        )
    kinds = {kind: [f"{solver} {j.off[k].mean():+.1f}" for solver in ("euler", "ab2", "dpm++2m")
                    for k in [j.below & (j.form == kind) & (j.solver == solver)] if k.any()]
             for kind in ("geoshrink", "uncorrected")}  # fmt: skip
    told = "; ".join(f"{kind}: {', '.join(found)}" for kind, found in kinds.items())
    lines.append(f"- The estimate does not know the solver; bias, dB: {told}.")
    off = j.direct_off
    lines.append(
        f"- Direct step reduction's dB is known less well: sd {off.std():.1f} dB, "
        f"bias by family from {least(j, off):+.1f} to {-least(j, -off):+.1f} dB."
    )
    for what, keep in (("the default", j.default), ("other forms", j.below & ~j.default)):
        order = np.argsort(-np.abs(np.where(keep & j.below, j.off, 0)))
        lines.append(f"- Most wrong, {what}, the worst run of each model:")
        seen: list[str] = []
        for i in order:
            if j.model[i] not in seen and len(seen) < 6:
                seen.append(str(j.model[i]))
                form = "" if j.default[i] else f", {j.form[i]} {j.solver[i]}"
                text = f"{j.told[i]:.0f} dB told, {j.truth[i]:.0f} true ({j.off[i]:+.1f})"
                lines.append(f"  - {j.name(i)}{form}: {text}")
    return "\n".join(lines)


def groups(j: Judged) -> list[tuple[str, Array]]:
    return [("the default", j.default), ("corrected", j.corrected), ("uncorrected", ~j.corrected)]


def sets_of(j: Judged) -> list[tuple[str, Array]]:
    return [("all", j.below | True), ("our models", j.ours), ("models of others", ~j.ours),
            ("the default", j.default), ("the default, ours", j.default & j.ours),
            ("the default, others", j.default & ~j.ours)]  # fmt: skip


def worst(inside: Array, families: Array) -> tuple[str, float]:
    shares = {f: float(inside[families == f].mean()) for f in set(families)}
    least = min(sorted(shares), key=lambda f: shares[f])
    return least, shares[least]


def least(j: Judged, off: Array) -> float:
    return min(off[j.family == f].mean() for f in j.families)


def flagged(j: Judged, keep: Array, margin: float) -> tuple[float, float]:
    """The share of runs in doubt: of those behind direct step reduction, and 6 dB ahead of it."""
    doubtful = j.expected < margin
    behind, ahead = keep & (j.ahead < 0), keep & (j.ahead >= 6)
    return float(doubtful[behind].mean()), float(doubtful[ahead].mean())


def three(j: Judged, keep: Array) -> list[str]:
    """Bias and sd of the groups."""
    offs = [j.off[keep & group & j.below] for _, group in groups(j)]
    return [text for off in offs for text in (f"{off.mean():+.1f}", f"{off.std():.1f}")]


def by_family(j: Judged) -> str:
    rows = []
    for f in j.families:
        mine = j.family == f
        off, direct = j.off[mine & j.default & j.below], j.direct_off[mine]
        most = off[np.abs(off).argmax()]
        rows.append([f, "ours" if j.ours[mine].all() else "others", mine.sum(), *three(j, mine),
                     f"{most:+.1f}", f"{direct.mean():+.1f}", f"{direct.std():.1f}"])  # fmt: skip
    every, direct = j.below | True, j.direct_off
    rows.append(["all runs", "", len(j.rows), *three(j, every), "", f"{direct.mean():+.1f}",
                 f"{direct.std():.1f}"])  # fmt: skip
    head = ["family", "of", "runs", "default: bias", "sd", "corrected: bias", "sd",
            "uncorrected: bias", "sd", "default: worst", "direct: bias", "sd"]  # fmt: skip
    return table(head, rows)


def by_model(j: Judged) -> str:
    of = {f: sorted(set(j.model[j.family == f])) for f in j.families}
    models = [m for models in of.values() if len(models) > 1 for m in models]
    head = ["model", "runs", "default: bias", "sd", "corrected: bias", "sd", "uncorrected: bias",
            "sd"]  # fmt: skip
    return table(head, [[m, (j.model == m).sum(), *three(j, j.model == m)] for m in models])


def by_form(j: Judged) -> str:
    rows = []
    for form, solver in sorted(set(zip(j.form, j.solver))):
        keep = (j.form == form) & (j.solver == solver) & j.below
        off = j.off[keep]
        low, high = np.quantile(off, [0.05, 0.95])
        single = np.nanstd((j.V - j.db)[keep])
        rows.append([form, solver, keep.sum(), f"{off.mean():+.1f}", f"{off.std():.1f}",
                     f"{low:+.1f} … {high:+.1f}", f"{single:.1f}"])  # fmt: skip
    head = ["form", "solver", "runs", "bias", "sd", "5 % … 95 %", "sd of single samples"]
    return table(head, rows)


def by_budget(j: Judged) -> str:
    rows = []
    for calls in sorted(set(j.calls)):
        at = j.calls == calls
        direct = j.direct_off[at]
        rows.append([calls, *three(j, at), f"{direct.mean():+.1f}", f"{direct.std():.1f}"])
    head = ["B", "default: bias", "sd", "corrected: bias", "sd", "uncorrected: bias", "sd",
            "direct: bias", "sd"]  # fmt: skip
    return table(head, rows)


def band(j: Judged) -> str:
    rows = []
    for what, keep in groups(j):
        p = j.bands["uncorrected" if what == "uncorrected" else "corrected"]
        for n in (1, 4, 16):
            inside, of = j.covered(keep, n)
            f, low = worst(inside, of)
            mean = np.mean([inside[of == f].mean() for f in set(of)])
            half = math.hypot(p.between, p.within / n**0.5)
            rows.append([what, n, f"±{half:.1f}", f"{inside.mean():.0%}", f"{mean:.0%}",
                         f"{f} {low:.0%}"])  # fmt: skip
    about = """\
Half of it is √(between² + within²/n) for n samples. The two are such that it holds 90 % of the runs
of families left out for n = 1 and n = 16. What is in the band was counted with the two read off the
other families alone. Runs with fewer than n samples (fruit-video, vitals: 8) are not counted."""
    head = ["runs", "n", "half, dB", "in the band", "mean of families", "worst family"]
    return f"{about}\n\n{table(head, rows)}"


def doubt(j: Judged) -> str:
    rows = []
    for what, keep in sets_of(j):
        shares = [flagged(j, keep, margin) for margin in (2, 3, 4)]
        behind, ahead = (keep & (j.ahead < 0)).sum(), (keep & (j.ahead >= 6)).sum()
        between = (j.expected < MARGIN)[keep & (j.ahead >= 0) & (j.ahead < 6)].mean()
        rows.append([what, behind, ahead, *(f"{b:.0%} / {a:.0%}" for b, a in shares),
                     f"{between:.0%}"])  # fmt: skip
    about = f"""\
A run is doubtful if its estimate is below direct step reduction's plus a margin, {MARGIN:g} dB in
the library. For each margin: the share flagged of the runs that are behind direct step reduction
with Euler and as many calls / of those at least 6 dB ahead of it. Last, at {MARGIN:g} dB, the share
flagged of those between. Runs with AB2 and DPM++(2M) are measured to their own full runs."""
    head = ["runs", "behind", "≥ 6 dB ahead", "2 dB", "3 dB", "4 dB", "0 to 6 dB ahead"]
    return f"{about}\n\n{table(head, rows)}"


def ranking(j: Judged) -> str:
    ranks = np.array([rank_correlation(v, d) for v, d in zip(j.V, j.db)])
    sets = [*groups(j), *((f"default, {f}", j.default & (j.family == f)) for f in j.families)]
    rows = []
    for what, keep in sets:
        found = ranks[keep & j.below]
        rows.append([what, f"{np.nanmean(found):.2f}", f"{np.nanmean(found > 0):.0%}"])
    about = "Rank correlation of estimate and truth over the samples of a run, mean over runs."
    return f"{about}\n\n{table(['runs', 'rank correlation', 'runs above 0'], rows)}"


def rank_correlation(estimate: Array, truth: Array) -> float:
    known = np.isfinite(estimate) & np.isfinite(truth)
    a, b = estimate[known], truth[known]
    if a.std() == 0 or b.std() == 0:
        return math.nan
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def plot(j: Judged) -> str:
    """Truth over estimate, a dot for each run of the default; dashed, the band of 16 samples."""
    keep = j.default & j.below
    title = "Distance to the full run, dB, families left out: true, over estimated"
    low, high = (float(f(np.r_[j.told[keep], j.truth[keep]])) for f in (np.min, np.max))
    equal = Series("as estimated", [low, high], [low, high])
    chart = Lines(title, [equal], "estimated, dB", "true, dB")
    x = Scale.around((low, high), LEFT, RIGHT, count=6)
    y = Scale.around((low, high), BOTTOM, TOP)
    p = j.bands["corrected"]
    half = math.hypot(p.between, p.within / 4)
    edges = "".join(
        f"M{x(a)},{y(a + h)}L{x(b)},{y(b + h)}"
        for h, a, b in ((-half, low + half, high), (half, low, high - half))
    )
    marks = [dots_of(1 + i, j, keep & of, x, y) for i, of in enumerate((j.ours, ~j.ours))]
    legend = [
        entry(0, "as estimated; dashed: the 90 % band"),
        dot_entry(1, "a run of a model of ours", COLUMN, 0),
        dot_entry(2, "a run of a model of others", COLUMN, ROW),
    ]
    height = HEIGHT + 12 + 2 * ROW
    return element(
        "svg",
        element("title", title),
        element(
            "style", resources([(OWN, "colours.css"), (OWN, "charts.css")]), Markup(BACKGROUND)
        ),
        *marks,
        chart.plot(),
        element("path", d=edges, class_="axis", stroke_dasharray="5 4"),
        *legend,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"-8 -8 {WIDTH + 16} {height + 8}",
        width=WIDTH + 16,
        height=height + 8,
        role="img",
    )


def dots_of(i: int, j: Judged, keep: Array, x: Scale, y: Scale) -> Markup:
    path = "".join(f"M{x(a):.1f},{y(b):.1f}h.1" for a, b in zip(j.told[keep], j.truth[keep]))
    return dots(i, path)


def dots(i: int, path: str) -> Markup:
    style = f"stroke-width:4;stroke-linecap:{('round', 'square')[i - 1]};stroke-opacity:.55"
    return element("path", d=path, class_=f"line series-{i}", style=style)


def dot_entry(i: int, label: str, x: int, y: int) -> Markup:
    text = element("text", label, x=36, dy="0.35em")
    return element("g", dots(i, "M14,0h.1"), text, transform=f"translate({x} {HEIGHT + 12 + y})")


if __name__ == "__main__":
    main()
