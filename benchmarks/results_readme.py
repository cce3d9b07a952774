"""The tables of README.md, from the cells; benchmarks/results_page.py writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import results_methods as methods
from results_excerpts import piped

from geoshrink_bench.report.calls import curves
from geoshrink_bench.report.contests import DIRECT, OURS, PUBLISHED, contest
from geoshrink_bench.report.results import Results, Setting

BUDGETS = (7, 10, 15, 20)
SHOWN = 4  # rivals, the nearest to our default
#: Because people use them, or ask for them.
ALSO = ("AB2, direct grid", "MeanCache", "TeaCache (whole network)", "UniPC, direct grid")
#: What the row says, and its setting.
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pixels, guidance 3, shift 3, 50 steps", dict(model="fruit", guidance=3.0, shift=3.0)),
    ("latents, guidance 4.5, shift 3, 28 steps", dict(model="fruit-latent")),
)
BEST = "best rival at each"
TARGET = 30.0  # dB


def plain(label: str) -> str:
    return re.sub(r"\(.*tuned.*\)", "(tuned)", label).removesuffix(", direct grid")


def others(results: Results) -> str:
    """Mean leads over direct on models of others, and how often a form is behind the best rival."""
    rows, rivals = [], []
    for name, contests, needs, _, _, *leads in methods.rows(results, BUDGETS):
        form = name in methods.FORMS
        rivals += [] if form else [name]
        if form or len(rivals) <= SHOWN or name in ALSO:
            first = f"**{name}**" if name in methods.FORMS[1:] else plain(name)
            rows.append([first, needs, contests, *(lead.partition(" (")[0] for lead in leads)])
    heading = ("", "needs", "contests", *(f"{budget} calls" for budget in BUDGETS))
    told = f"{len(rows)} of {len(methods.ranked(results))} methods. {worst(results)}"
    shown = [name for i, name in enumerate(rivals) if i < SHOWN or name in ALSO]
    told += f"{methods.against_the_best(results)}{not_run(results, shown)}"
    return f"{piped(heading, rows, words=2)}\n\n{told}"


def worst(results: Results) -> str:
    """In a sentence: the least lead of our default over direct."""
    leads = dict(methods.ranked(results)).get(OURS, {})
    least = [lead for budget in BUDGETS for lead in leads.get(budget, {}).values()]
    told = f"{min(least):+.1f} dB".replace("-", "−") if least else ""
    return f"The worst contest of `{OURS}`: {told}. " if told else ""


def not_run(results: Results, rivals: Sequence[str]) -> str:
    """In a sentence: on which models the rivals that are shown have not run in any contest."""
    ran: dict[str, set[str]] = {}
    for each in methods.contests(results.settings, "full"):
        ran.setdefault(each.setting.spec["model"], set()).update(each.means())
    lacking = {model: [r for r in rivals if r not in labels] for model, labels in ran.items()}
    told = [f"{model}: {', '.join(map(plain, names))}" for model, names in lacking.items() if names]
    return f" Not run on {'; on '.join(told)}." if told else ""


def ours(results: Results) -> str:
    """PSNR at the settings of README, and the calls for 30 dB."""
    rows, calls = [], []
    for words, wanted in SETTINGS:
        setting = setting_of(results, wanted)
        means = {b: contest(setting, "PSNR", b).means() for b in BUDGETS}
        rivals = {b: best_rival(results, means[b]) for b in BUDGETS}
        for name in (DIRECT, PUBLISHED, f"**{OURS}**", BEST):
            labels = [rivals[b] if name == BEST else name.strip("*") for b in BUDGETS]
            shown = [value(means[b], own, rivals[b]) for b, own in zip(BUDGETS, labels)]
            more = which(rivals) if name == BEST else ""
            rows.append([words if name == DIRECT else "", f"{name}{more}", *shown])
        calls.append(calls_for(results, setting))
    heading = ("model", "method", *(f"{budget} calls" for budget in BUDGETS))
    pairs = zip(SETTINGS, calls)
    told = "; ".join(f"on {words.partition(',')[0]} {each}" for (words, _), each in pairs)
    return f"{piped(heading, rows, words=2)}\n\nTo come to {TARGET:g} dB (interpolated): {told}."


def setting_of(results: Results, wanted: dict[str, Any]) -> Setting:
    return next(s for s in results.settings if all(s.spec[k] == v for k, v in wanted.items()))


def best_rival(results: Results, means: dict[str, float]) -> str:
    return next(label for label in means if label not in results.ours and label != DIRECT)


def which(rivals: dict[int, str]) -> str:
    """Its name, where it is always the same method."""
    names = {short(label) for label in rivals.values()}
    return f" ({names.pop()})" if len(names) == 1 else ""


def short(label: str) -> str:
    """Without what was tuned."""
    return plain(label).partition(" (")[0]


def value(means: dict[str, float], label: str, rival: str) -> str:
    """In bold where it is the first of those that the table shows."""
    shown = [k for k in means if k in (DIRECT, PUBLISHED, OURS, rival)]
    text = f"{means[label]:.1f}"
    return f"**{text}**" if label == shown[0] else text


def calls_for(results: Results, setting: Setting) -> str:
    """In words: the calls with which each comes as near as TARGET."""
    curve = next(c for c in curves(results) if c.setting is setting and c.measure.name == "PSNR")
    calls = curve.calls(TARGET)
    rivals = [label for label in calls if label not in results.ours and label != DIRECT]
    best = min(rivals, key=lambda label: (calls[label].high, calls[label].low))
    told = [f"{OURS} needs {calls[OURS]} calls"]
    told += [f"{label} {calls[label]}" for label in (DIRECT, PUBLISHED)]
    return ", ".join([*told, f"the best rival {calls[best]} ({short(best)})"])
