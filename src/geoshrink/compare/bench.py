"""All runs: every prompt with every method, from the same noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..hosts.recording import quiet_host
from ..page import Media
from ..plan import METHODS
from .compared import Compared, Outcome
from .inputs import Settings, check_out
from .kinds import Made, Scores
from .outcomes import DIRECT, FORMS, FULL, GEOSHRINK, PAPER, label_of, progress_bar
from .pipeline import Call, Loaded, load, loaded
from .running import Cost, measure


class Bench:
    """Runs every method on one host and gathers what it made; samples are kept encoded."""

    def __init__(self, loaded: Loaded, settings: Settings, bar: Any):
        self.loaded, self.settings, self.bar = loaded, settings, bar
        self.methods = [(FULL, settings.steps)]
        self.methods += [(m, b) for b in settings.budgets for m in (DIRECT, PAPER, GEOSHRINK)]
        self.runs: dict[tuple[str, int], list[tuple[Cost, Scores]]] = {}
        self.media: dict[tuple[str, str], Media] = {}
        self.subjects: list[str] = []
        self.skipped: set[str] = set()
        self.rate = 1.0  # model calls a step

    def run(self) -> Compared:
        s = self.settings
        least, prompts = min(s.budgets), s.prompts or (None,)
        self.bar.total = least + len(prompts) * sum(budget for _, budget in self.methods)
        made, cost = self.make(prompts[0], "warm-up", least)
        made.score(made, set())  # what has no score says so before the rest runs
        self.rate = cost.calls / least
        self.bar.total = round(self.rate * self.bar.total)
        for prompt in prompts:
            self.run_prompt(prompt)
        outcomes = [Outcome.of(*method, self.runs[method]) for method in self.methods]
        told = self.subjects, outcomes, self.media, made, sorted(self.skipped)
        return Compared(s, self.loaded, *told)

    def run_prompt(self, prompt: str | None) -> None:
        """The full run first: the others are scored against it at once."""
        reference, names = None, []
        for method, budget in self.methods:
            made, cost = self.make(prompt, method, budget)
            self.bar.total += cost.calls - round(self.rate * budget)
            if reference is None:
                if not made.is_finite():
                    raise ValueError(
                        f"the full run's {made.noun} is empty or not finite: try another --dtype"
                    )
                reference = made
                names = distinct(prompt or "sample", len(reference), self.subjects)
                self.subjects += names
            label = label_of(method, budget)
            for i, name in enumerate(names):
                self.media[name, label] = made.medium(i, f"{name}, {label}", reference)
            scored = cost, self.score(made, reference, label)
            self.runs.setdefault((method, budget), []).append(scored)

    def score(self, made: Made, reference: Made, label: str) -> Scores:
        if made.is_finite():
            return made.score(reference, self.skipped)
        self.skipped.add(
            f"{label} made a {made.noun} that is empty or not finite: it has no score."
        )
        return [[math.nan] * len(made) for _ in made.metrics]

    def make(self, prompt: str | None, method: str, budget: int) -> tuple[Made, Cost]:
        self.bar.set_description(method)
        steps, options = budget, None
        if method == DIRECT:
            steps += self.loaded.way.beyond
        elif method in FORMS:
            steps = self.settings.steps
            options = {"budget": budget, **METHODS[method]}
        seed, tick = self.settings.seed, self.bar.update
        output, cost = measure(self.loaded, prompt, steps, seed, options, tick)
        return self.loaded.show(output), cost


def distinct(prompt: str, count: int, taken: Sequence[str]) -> list[str]:
    """A short name for each sample of a prompt that no other bears."""
    line = " ".join(prompt.split())
    short = line if len(line) <= 80 else f"{line[:79]}…"
    names = [f"{short} ({i + 1})" if count > 1 else short for i in range(count)]
    clash = any(name in taken for name in names)
    return [f"{name} [{len(taken) + i + 1}]" if clash else name for i, name in enumerate(names)]


def run_compare(settings: Settings, out: Path, progress: bool = True) -> Compared:
    """Runs everything, prints the table, the verdict and the warnings, writes the page."""
    check_out(out)
    tqdm = progress_bar("comparison")
    return run_loaded(load(settings), settings, out, tqdm, progress)


def compare(
    host: Any,
    prompts: str | Sequence[str] = (),
    *,
    call: Call | None = None,
    out: str | Path = "compare/index.html",
    progress: bool = True,
    **settings: Any,
) -> Compared:
    """`geoshrink compare` on a host that is built already; `settings` are steps, budgets, seed …

        compare(pipe, ["a fox"], steps=50, budgets=(7, 10), call={"guidance_scale": 3.5})
        compare(model, call=lambda steps, seed: Sounds(sing(model, steps, seed), 44100))

    call    a dict of arguments, or a function of steps, and optionally of prompt and seed
    """
    if moves := {"dtype", "device"} & {*settings}:
        raise TypeError(f"the host is built already: give it its {min(moves)} yourself")
    check_out(Path(out))
    tqdm = progress_bar("comparison")
    prompts = (prompts,) if isinstance(prompts, str) else tuple(prompts)
    told = Settings(model=type(host).__name__, prompts=prompts, **settings)
    ready = loaded(host, {} if call is None else call, told)
    return run_loaded(ready, told, Path(out), tqdm, progress)


def run_loaded(ready: Loaded, settings: Settings, out: Path, tqdm: Any, progress: bool) -> Compared:
    with quiet_host(ready.host), tqdm(total=1, unit="call", disable=not progress) as bar:
        compared = Bench(ready, settings, bar).run()
    print(compared.table().text())
    print(f"samples, slider and charts: {compared.page().write(out)}")
    return compared
