"""summary.md: a suite's table in Markdown, how it was made, and what the suite chooses."""

from __future__ import annotations

from collections.abc import Sequence

from geoshrink.page.table import piped

from .results import Result
from .suite import Suite
from .table import table_of

CHOICES = "What the paper does not say, and the suite chooses (what this run changed stands above)"


def summary(suite: Suite, found: Sequence[Result], command: str, where: str) -> str:
    parts = [
        f"# {piped(suite.title)}",
        f"Made by `{command}`. {where}",
        protocol(suite),
        table_of(suite, found).markdown().strip(),
        f"{CHOICES}:",
        "\n".join(f"- {choice}" for choice in suite.choices),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def protocol(suite: Suite) -> str:
    return (
        f"{suite.count} prompts ({suite.source}, {suite.take}) × {suite.seeds} seeds, "
        f"{suite.steps} steps, {said(suite)}. The paper's model: {suite.checkpoint}."
    )


def said(suite: Suite) -> str:
    """The arguments of the call, and the rates."""
    words = [f"{name} {value!r}" for name, value in suite.call.items()]
    words += [f"{suite.fps:g} frames per second"] if suite.fps else []
    words += [f"{suite.rate} Hz"] if suite.rate else []
    return ", ".join(words) or "the call's defaults"
