"""The cells of a suite in a folder: enough to read them, without the model that made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..store import Store, name_of
from .hosts import HOSTS
from .prompts import Prompt
from .suite import Row, Suite


class Cells:
    """made: what else than the suite decides what a cell is: weights, dtype, on, version."""

    def __init__(
        self, suite: Suite, folder: str | Path, prompts: list[Prompt], made: Mapping[str, Any]
    ):
        self.suite, self.store = suite, Store(folder)
        self.prompts, self.made = prompts, dict(made)

    def cases(self) -> Iterator[tuple[Prompt, int]]:
        """Every prompt of the first seed, then of the next."""
        return ((prompt, seed) for seed in range(self.suite.seeds) for prompt in self.prompts)

    def spec(self, row: Row, prompt: Prompt, seed: int) -> dict[str, Any]:
        """All that decides what a sample is."""
        suite = self.suite
        return dict(
            self.made,
            host=suite.host,
            steps=suite.steps,
            call=suite.call,
            method=row.method,
            options=row.options,
            budget=row.budget,
            prompt=prompt.text,
            seed=seed,
            **({"picture": prompt.picture} if HOSTS[suite.host].pictures else {}),
        )

    def path(self, spec: dict[str, Any]) -> Path:
        return self.store.folder / "samples" / f"{name_of(spec)}.safetensors"
