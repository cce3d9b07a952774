"""Every method against direct step reduction, by calls: a part of docs/results.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from geoshrink_bench.report.contests import DIRECT, OURS, PUBLISHED, contests
from geoshrink_bench.report.overview import EVEN
from geoshrink_bench.report.results import Results

BUDGETS = (7, 10, 15, 20)
SHARE = 0.7  # of the contests of the variant that ran most
HALF = 0.5  # of the contests of our default
FORMS = (PUBLISHED, OURS, "learned", "planned")  # shown first, in this order
Leads = dict[int, dict[tuple[str, str], float]]  # budget → (setting, metric) → dB


def leads_of(results: Results) -> dict[str, Leads]:
    """By method: its lead over direct in dB, for every contest in which it kept to the budget."""
    found: dict[str, Leads] = {}
    for contest in contests(results.settings, "full"):
        means = contest.means()
        for label, mean in means.items():
            lead = contest.measure.lead(mean, means.get(DIRECT, math.nan))
            if label != DIRECT and math.isfinite(lead):
                own = found.setdefault(label, {}).setdefault(contest.budget, {})
                own[contest.setting.title, contest.metric] = lead
    return found


def ranked(results: Results) -> list[tuple[str, Leads]]:
    """Forms of ours, then of every rival its best variant, by the mean lead over all contests.

    A variant competes for its method if it ran at least SHARE of the contests of the one that ran
    most; the best is the nearest in the contests that all of these ran. Rivals are ranked by what
    our default is ahead of them in the contests that both ran, those in fewer than HALF of its
    contests last.
    """
    found = leads_of(results)
    variants: dict[str, dict[str, Leads]] = {}
    for label, leads in found.items():
        if label not in results.ours:
            variants.setdefault(method_of(results, label), {})[label] = leads
    rivals = [best_variant(each) for each in variants.values()]
    forms = [(form, found[form]) for form in FORMS if form in found]
    ours = found.get(OURS, {})

    def place(leads: Leads) -> tuple[bool, float]:
        return size(leads) < HALF * size(ours), statistics.fmean(over(leads, ours) or [math.inf])

    return [*forms, *sorted(rivals, key=lambda pair: place(pair[1]))]


def best_variant(variants: dict[str, Leads]) -> tuple[str, Leads]:
    most = max(map(size, variants.values()))
    compete = {label: leads for label, leads in variants.items() if size(leads) >= SHARE * most}
    both = set.intersection(*map(contests_in, compete.values()))
    if not both:
        return max(compete.items(), key=lambda pair: size(pair[1]))
    return max(compete.items(), key=lambda pair: sum(pair[1][b][key] for b, key in both))


def size(leads: Leads) -> int:
    return sum(map(len, leads.values()))


def over(leads: Leads, ours: Leads) -> list[float]:
    """The leads of our default over a method, in the contests that both ran."""
    return [
        mine - leads[budget][key]
        for budget, own in ours.items()
        for key, mine in own.items()
        if key in leads.get(budget, {})
    ]


def behind(leads: Leads, ours: Leads) -> str:
    """Their mean."""
    both = over(leads, ours)
    return f"{statistics.fmean(both):+.1f}".replace("-", "−") if both else "—"


def spent(results: Results, label: str) -> str:
    """The share of the calls it may make that a method makes, where it keeps to the budget."""
    shares = [
        contest.cells[label].evaluations / contest.budget
        for contest in contests(results.settings, "full")
        if label in contest.means()
    ]
    return f"{100 * statistics.fmean(shares):.0f} %" if shares else "—"


def against_the_best(results: Results) -> str:
    """In a sentence: how often each form is behind the best rival of a contest, and the most."""
    told = []
    for form in FORMS[1:]:
        leads = []
        for contest in contests(results.settings, "full"):
            means = contest.means()
            rivals = {k: mean for k, mean in means.items() if k not in results.ours}
            if form in means and rivals.keys() - {DIRECT}:  # from the best to the worst
                best = next(iter(rivals.values()))
                leads.append(contest.measure.lead(means[form], best))
        lost = [lead for lead in leads if lead < -EVEN]
        if leads:
            most = f", by {-min(lost):.1f} dB at most" if lost else ""
            told.append(f"`{form}` in {len(lost)} of {len(leads)}{most}")
    which = "Behind the best rival of each contest (`paper` is no rival)"
    return f"{which}: {'; '.join(told)}."


def rows(results: Results, budgets: Sequence[int] = BUDGETS) -> list[list[str]]:
    """method | contests | needs | its calls of those it may make | our default's lead over it |
    mean lead over direct (least) at each budget, bold where it is the most.
    """
    chosen = ranked(results)
    ours = dict(chosen).get(OURS, {})
    best = {
        b: max(
            (statistics.fmean(leads[b].values()) for _, leads in chosen if b in leads), default=0
        )
        for b in budgets
    }
    table = []
    for label, leads in chosen:
        lead = "" if label == OURS else behind(leads, ours)
        row = [label, str(size(leads)), needs(results, label), spent(results, label), lead]
        for budget in budgets:
            own = [*leads.get(budget, {}).values()]
            if not own:
                row.append("—")
                continue
            value = statistics.fmean(own)
            text = f"{value:+.1f}".replace("-", "−")
            text = f"**{text}**" if value == best[budget] else text
            row.append(f"{text} ({min(own):+.1f})".replace("-", "−"))
        table.append(row)
    return table


def in_part(results: Results) -> list[list[str]]:
    """Variants of rivals that rows() does not show and that are nearer than the one it shows:
    variant | contests | its mean lead over direct, the shown one's and our forms', in the contests
    that all of these ran. The nearest to our default first.
    """
    found, table = leads_of(results), list[tuple[float, list[str]]]()
    shown = {method_of(results, label): label for label, _ in ranked(results)}
    ours = [form for form in FORMS[1:] if form in found]
    if OURS not in found:
        return []
    for label in found:
        above = shown.get(method_of(results, label))
        if label in results.ours or above is None or label == above:
            continue
        names = (label, above, *ours)
        keys = set.intersection(*(contests_in(found[name]) for name in names))
        means = [statistics.fmean(found[n][b][key] for b, key in keys) for n in names if keys]
        if means and means[0] > means[1]:
            told = [f"{lead:+.1f}".replace("-", "−") for lead in means]
            table.append((means[2] - means[0], [label, str(len(keys)), *told]))
    return [row for _, row in sorted(table)]


def contests_in(leads: Leads) -> set[tuple[int, tuple[str, str]]]:
    return {(budget, key) for budget, own in leads.items() for key in own}


def method_of(results: Results, label: str) -> str:
    """The method that a variant is of."""
    return next(cell.method for cell in results.cells if cell.label == label)


def needs(results: Results, label: str) -> str:
    """What a method is given beforehand."""
    if label == "learned":
        return "one full sample"
    if label in results.calibrated:
        return "calibration"
    return "tuning" if "tuned" in label or adaptive(results, label) else "nothing"


def adaptive(results: Results, label: str) -> bool:
    return any(cell.result.get("adaptive") for cell in results.cells if cell.label == label)
