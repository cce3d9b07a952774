"""The runs: one with its seconds and the model calls that were really made; all, every prompt with
every method, from the same noise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..hosts import accelerate
from ..hosts.hooks import Hooks, entrance
from ..hosts.recording import quiet_host
from ..page import Media
from ..plan import METHODS
from ..pointers import explained
from ..terminal import show_table
from .compared import Compared, Outcome
from .ends import End, distance
from .inputs import Settings, check_out
from .kinds import Made, Scores
from .outcomes import DIRECT, FORMS, FULL, GEOSHRINK, PAPER, Cost, label_of, progress_bar
from .pipeline import Call, Loaded, load, loaded


class Watch:
    """Counts and times the denoisers' real calls, until it is left.

    It stands where the seam does, outside hooks, offloading and compilation, and inside the seam:
    a skipped call does not reach it.
    """

    def __init__(self, denoisers: Sequence[nn.Module], tick: Callable[[int], Any]):
        self.denoisers, self.tick = denoisers, tick
        self.calls, self.seconds = 0, 0.0
        self._hooks, self._inside = Hooks(), False

    def __enter__(self) -> Watch:
        for module in self.denoisers:
            self._hooks.place(module, entrance(module), self._on_call)
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.lift()

    def _on_call(self, module: nn.Module, call: Callable, args: tuple, kwargs: dict) -> Any:
        if self._inside:  # one denoiser calls another: that is its own affair
            return call(*args, **kwargs)
        began, self._inside = now(), True
        try:
            return call(*args, **kwargs)
        finally:
            self._inside = False
            self.seconds += now() - began
            self.calls += 1
            self.tick(1)


def now() -> float:
    """The time when the device has done all that it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    elif torch.backends.mps.is_available():
        torch.mps.synchronize()
    return time.perf_counter()


def measure(
    loaded: Loaded,
    prompt: str | None,
    steps: int,
    seed: int,
    options: Mapping[str, Any] | None = None,
    tick: Callable[[int], Any] = lambda calls: None,
    stepped: Callable[[Any], Any] = lambda state: None,
) -> tuple[Any, Cost, Tensor | None]:
    """(output, cost, where the solver ended) of one call from the seed's noise, accelerated where
    there are options.

    A host whose own loop counts the model's calls is run with every stage exact where there are
    none, which is bit for bit the plain run.
    """
    seen, accelerated = loaded.denoisers, options is not None
    if not seen and options is None:
        options = {"speedup": 1}
    with (
        Watch(seen, tick) as watch,  # left last: the seam stands outside it
        End(loaded.host, stepped) as end,
        accelerate(loaded.host, **options) if options else nullcontext() as handle,
    ):
        torch.manual_seed(seed)  # some hosts draw from the global generator
        began = now()
        output = loaded(prompt, steps, seed)
        seconds = now() - began
        reports = tuple(handle.reports) if handle else ()
        plan = handle.plan if handle else None
    share, calls = watch.seconds / seconds, watch.calls
    if not seen:
        counts = [r.evaluations if r.forwards is None else r.forwards for r in reports]
        share, calls = None, sum(counts)
        tick(calls)
    cost = Cost(seconds, share, calls)
    cost = replace(cost, reports=reports, plan=plan) if accelerated else cost
    return output, cost, end.state


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
        made, cost, _ = self.make(prompts[0], "warm-up", least)
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
        reference, full, names = None, None, []
        for method, budget in self.methods:
            made, cost, end = self.make(prompt, method, budget)
            self.bar.total += cost.calls - round(self.rate * budget)
            if reference is None:
                if not made.is_finite():
                    raise ValueError(
                        f"the full run's {made.noun} is empty or not finite: try another --dtype"
                    )
                reference, full = made, end
                names = distinct(prompt or "sample", len(reference), self.subjects)
                self.subjects += names
            label = label_of(method, budget)
            for i, name in enumerate(names):
                self.media[name, label] = made.medium(i, f"{name}, {label}", reference)
            cost = replace(cost, off=distance(end, full))
            scored = cost, self.score(made, reference, label)
            self.runs.setdefault((method, budget), []).append(scored)

    def score(self, made: Made, reference: Made, label: str) -> Scores:
        if made.is_finite():
            return made.score(reference, self.skipped)
        self.skipped.add(
            f"{label} made a {made.noun} that is empty or not finite: it has no score."
        )
        return [[math.nan] * len(made) for _ in made.metrics]

    def make(
        self, prompt: str | None, method: str, budget: int
    ) -> tuple[Made, Cost, Tensor | None]:
        self.bar.set_description(method)
        steps, options = budget, None
        if method == DIRECT:
            steps += self.loaded.way.beyond
        elif method in FORMS:
            steps = self.settings.steps
            options = {"budget": budget, **METHODS[method]}
        seed, tick = self.settings.seed, self.bar.update
        output, cost, end = measure(self.loaded, prompt, steps, seed, options, tick)
        return self.loaded.show(output), cost, end


def distinct(prompt: str, count: int, taken: Sequence[str]) -> list[str]:
    """A short name for each sample of a prompt that no other bears."""
    line = " ".join(prompt.split())
    short = line if len(line) <= 80 else f"{line[:79]}…"
    names = [f"{short} ({i + 1})" if count > 1 else short for i in range(count)]
    clash = any(name in taken for name in names)
    return [f"{name} [{len(taken) + i + 1}]" if clash else name for i, name in enumerate(names)]


@explained("compare")
def run_compare(settings: Settings, out: Path, progress: bool = True) -> Compared:
    """Runs everything, prints the table, the verdict and the warnings, writes the page."""
    check_out(out)
    tqdm = progress_bar("comparison")
    return run_loaded(load(settings), settings, out, tqdm, progress)


@explained("compare")
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
    show_table(compared.table())
    print()
    print(f"samples, slider and charts: {compared.page().write(out)}")
    return compared
