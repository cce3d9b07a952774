"""The cells of a suite as Markdown: who wins where, and by how much; what is missing says so."""

from __future__ import annotations

import statistics
from typing import Any

from ..zoo.recipes import RECIPES
from .metrics import OF_MODEL, PSNR, Metric
from .store import Store

Spec = dict[str, Any]


def metrics_of(model: str) -> list[Metric]:
    return OF_MODEL.get(model, [PSNR])


def title_of(setting: Spec) -> str:
    shift = setting["shift"]
    text = f"{setting['model']}, {setting['steps']} steps, guidance {setting['guidance']:g}, shift "
    text += " and ".join(f"{s:g}" for s in (shift if isinstance(shift, list) else [shift]))
    if setting["interval"]:
        text += " for σ in [{:g}, {:g}]".format(*setting["interval"])
    return text


def label_of(spec: Spec) -> str:
    options = ", ".join(f"{k} {v}" for k, v in spec["options"].items())
    return f"{spec['method']} ({options})" if options else spec["method"]


def by_seed(each: list[float], seeds: int) -> tuple[float, float]:
    """(mean, sd over seeds of the mean over samples)."""
    size = len(each) // seeds
    means = [statistics.fmean(each[i * size : (i + 1) * size]) for i in range(seeds)]
    return statistics.fmean(means), statistics.stdev(means) if seeds > 1 else 0.0


def tables(specs: list[Spec], store: Store, reference: str = "full") -> list[str]:
    """One table per setting and metric: methods × budgets, the best in bold, NFE where it differs
    from the budget.
    """
    lines: list[str] = []
    chosen = [spec for spec in specs if spec["kind"] == "fidelity"]
    settings = list({repr(spec["setting"]): spec["setting"] for spec in chosen}.values())
    for setting in settings:
        mine = [spec for spec in chosen if spec["setting"] == setting]
        budgets = list(dict.fromkeys(spec["budget"] for spec in mine))
        for metric in metrics_of(setting["model"]):
            rows: dict[str, dict[int, tuple[float, float, float] | str]] = {}
            for spec in mine:
                row = rows.setdefault(label_of(spec), {})
                row[spec["budget"]] = cell_of(spec, store, metric, reference)
            arrow = "↑" if metric.higher else "↓"
            lines += ["", f"### {title_of(setting)}: {metric.name}, {metric.unit} {arrow}", ""]
            lines += ["| method | " + " | ".join(f"B = {b}" for b in budgets) + " |"]
            lines += ["|---|" + "--:|" * len(budgets)]
            best = {b: best_of([row[b] for row in rows.values()], metric) for b in budgets}
            for label, row in rows.items():
                cells = [text_of(row[b], best[b], b) for b in budgets]
                lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def cell_of(
    spec: Spec, store: Store, metric: Metric, reference: str
) -> tuple[float, float, float] | str:
    result = store.read(spec)
    if result is None:
        return "failed" if store.error(spec) else "not run"
    each = result["scores"][metric.name][reference]
    return (*by_seed(each, spec["setting"]["seeds"]), result["evaluations"])


def best_of(cells: list[Any], metric: Metric) -> float | None:
    means = [cell[0] for cell in cells if not isinstance(cell, str)]
    return (max if metric.higher else min)(means) if means else None


def text_of(cell: tuple[float, float, float] | str, best: float | None, budget: int) -> str:
    if isinstance(cell, str):
        return cell
    mean, sd, evaluations = cell
    text = f"**{mean:.2f}**" if mean == best else f"{mean:.2f}"
    text += f" ± {sd:.2f}"
    return text if abs(evaluations - budget) < 1e-9 else f"{text} ({evaluations:.3g} runs)"


def wins(specs: list[Spec], store: Store, reference: str = "full") -> list[str]:
    """Per model: in how many cells (setting × budget × metric) each method is the best."""
    counts: dict[str, dict[str, int]] = {}
    totals: dict[str, int] = {}
    chosen = [spec for spec in specs if spec["kind"] == "fidelity"]
    groups: dict[str, list[Spec]] = {}
    for spec in chosen:
        groups.setdefault(repr((spec["setting"], spec["budget"])), []).append(spec)
    for group in groups.values():
        model = group[0]["setting"]["model"]
        for metric in metrics_of(model):
            cells = {label_of(s): cell_of(s, store, metric, reference) for s in group}
            best = best_of(list(cells.values()), metric)
            if best is None:
                continue
            totals[model] = totals.get(model, 0) + 1
            for label, cell in cells.items():
                if not isinstance(cell, str) and cell[0] == best:
                    counts.setdefault(label, {})
                    counts[label][model] = counts[label].get(model, 0) + 1
    models = [name for name in RECIPES if name in totals]
    lines = ["| best in | " + " | ".join(f"{m} (of {totals[m]})" for m in models) + " |"]
    lines += ["|---|" + "--:|" * len(models)]
    for label in sorted(counts, key=lambda label: -sum(counts[label].values())):
        numbers = [str(counts[label].get(m, 0) or "") for m in models]
        lines.append(f"| {label} | " + " | ".join(numbers) + " |")
    return lines
