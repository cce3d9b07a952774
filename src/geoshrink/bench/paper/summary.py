"""The table of a suite as Markdown: measured beside the paper's numbers, reasons below."""

from __future__ import annotations

from collections.abc import Sequence

from .columns import COLUMNS
from .results import IDENTICAL, Result, Value
from .suite import SPEEDUP, Suite


def summary(suite: Suite, found: Sequence[Result], command: str, where: str) -> str:
    notes: list[str] = []
    lines = [f"# {suite.title}", "", f"Made by `{command}`. {where}", ""]
    lines += [
        f"{suite.count} prompts ({suite.source}, {suite.take}) × {suite.seeds} seeds, "
        f"{suite.steps} steps, {said(suite)}. The paper's model: {suite.checkpoint}. Mean ± sd "
        f"over seeds; in brackets the paper's number ({suite.label}). NFE: stages at which "
        "the whole network ran, or as much work. Speed-up: seconds of the sampling loop alone, "
        "without encoding and decoding.",
        "",
    ]
    heads = [f"{name} {'↑' if COLUMNS[name].higher else '↓'}" for name in suite.columns]
    lines += ["| " + " | ".join(["method", "NFE", "speed-up", *heads]) + " |"]
    lines += ["|---|" + "--:|" * (2 + len(heads))]
    for result in found:
        paper = result.row.paper
        cells = [result.row.label, noted(number(result.evaluations), result.reasons, notes)]
        cells.append(beside(number(result.speedup, "×"), paper.get(SPEEDUP)))
        for name in suite.columns:
            text = text_of(result.columns[name], notes)
            cells.append(beside(text, paper.get(name)))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"{i}. {note}" for i, note in enumerate(notes, 1))] if notes else []
    lines += ["", "What the paper does not say, and we chose:", ""]
    lines += [f"- {choice}" for choice in suite.choices]
    return "\n".join(lines) + "\n"


def said(suite: Suite) -> str:
    """The arguments of the call, and the rates."""
    words = [f"{name} {value!r}" for name, value in suite.call.items()]
    words += [f"{suite.fps:g} frames per second"] if suite.fps else []
    words += [f"{suite.rate} Hz"] if suite.rate else []
    return ", ".join(words) or "the call's defaults"


def number(value: float | None, unit: str = "") -> str:
    return "–" if value is None else f"{value:.4g}{unit}"


def beside(text: str, paper: float | None) -> str:
    return text if paper is None else f"{text} [{paper:g}]"


def text_of(value: Value | str, notes: list[str]) -> str:
    """A number, or a word and the number of the note with the reason."""
    if isinstance(value, Value):
        if value.mean == IDENTICAL and value.identical:
            return "identical"
        more = f" ({value.identical} identical)" if value.identical else ""
        spread = "" if value.sd is None else f" ± {value.sd:.2g}"
        return f"{value.mean:.4g}{spread}{more}"
    word, _, reason = value.partition(": ")
    return noted(word, [reason] if reason else [], notes)


def noted(text: str, reasons: Sequence[str], notes: list[str]) -> str:
    """The text with the numbers of the notes that hold the reasons."""
    for reason in reasons:
        if reason not in notes:
            notes.append(reason)
    return text + "".join(f" ({notes.index(reason) + 1})" for reason in reasons)
