"""All runs: every prompt with every method from the same noise, a table, a verdict, a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import comparing
from ..comparing import DIRECT, FULL, GEOSHRINK, OURS, middle
from ..page import Column, Page, Table
from ..page.media import Media
from ..plan import METHODS
from ..report import ADVICE
from .inputs import Settings, check_out
from .pipeline import load, quiet
from .running import Cost, measure
from .showing import FPS, Scores, medium, score, shown


@dataclass(frozen=True)
class Outcome(comparing.Outcome):
    """One method at one budget over all prompts: means of its costs, scores of each sample."""

    share: float
    psnr: tuple[float, ...]
    ssim: tuple[float, ...]

    @classmethod
    def of(cls, method: str, budget: int, runs: Sequence[tuple[Cost, Scores]]) -> Outcome:
        costs, scores = zip(*runs)
        calls = mean([cost.calls for cost in costs])
        return cls(
            method,
            budget,
            int(calls) if calls == int(calls) else calls,
            mean([cost.seconds for cost in costs]),
            tuple(cost.report for cost in costs if cost.report is not None),
            mean([cost.share for cost in costs]),
            tuple(value for values, _ in scores for value in values),
            tuple(value for _, values in scores for value in values),
        )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class Compared:
    """The outcomes of all prompts: a table, a verdict in words, warnings, a page."""

    settings: Settings
    kind: str
    subjects: list[str]
    outcomes: list[Outcome]
    media: dict[tuple[str, str], Media]
    moving: bool

    def verdict(self) -> list[str]:
        return comparing.verdict(
            self.settings.budgets, self.outcomes, {o.label: mean(o.psnr) for o in self.outcomes}
        )

    def warnings(self) -> list[str]:
        """Runs that were not accelerated, or are not to be trusted, or did not cost the same."""
        lines = []
        for o in self.outcomes:
            doubtful = [r.self_check or 0 for r in o.reports if r.doubtful]
            extra = {why for r in o.reports if r.extra for _, why in r.reasons}
            if o.not_accelerated is not None:
                lines.append(f"{o.label} was not accelerated: {o.not_accelerated}.")
            elif extra:
                lines.append(f"{o.label} queried more than planned: {'; '.join(sorted(extra))}.")
            if doubtful:
                where = f"in {len(doubtful)} of {len(o.reports)} runs"
                lines.append(f"{o.label}: self-check {max(doubtful):.0%} {where}: {ADVICE}.")
        calls = {(o.method, o.budget): o.calls for o in self.outcomes if not o.not_accelerated}
        for budget in self.settings.budgets:
            ours, direct = calls.get((OURS, budget)), calls[DIRECT, budget]
            if ours not in (None, direct):
                lines.append(
                    f"B = {budget}: direct made {direct:g} model calls, {OURS} {ours:g}: not the "
                    "same cost."
                )
        return lines

    def table(self) -> Table:
        s, count = self.settings, len(self.subjects)
        caption = (
            f"Against the full {s.steps}-step run from the same noise (seed {s.seed}), mean over "
            f"{count} {'video' if self.moving else 'picture'}{'s' * (count > 1)}"
            f"{', frame by frame' if self.moving else ''}. Time is that of a whole call; denoiser "
            "is the part of it spent in the model, which is all that fewer model calls can save."
        )
        return comparing.results(
            self.outcomes,
            {o.label: (mean(o.psnr), mean(o.ssim)) for o in self.outcomes},
            "\n\n".join([caption, *self.verdict(), *self.warnings()]),
            s.command(),
            (Column("denoiser", "%", digits=0), {o.label: 100 * o.share for o in self.outcomes}),
        )

    def page(self) -> Page:
        s, budget = self.settings, middle(self.settings.budgets)
        stages = [r.steps for o in self.outcomes for r in o.reports]
        scores = {
            (subject, o.label): value
            for o in self.outcomes
            if o.method != FULL
            for subject, value in zip(self.subjects, o.psnr)
        }
        return Page(
            f"GeoShrink on {s.name}",
            f"{self.kind} in {s.steps} solver steps. Direct step reduction takes fewer, longer "
            "steps. GeoShrink keeps all steps and predicts the model at most of them.",
            [
                comparing.comparison(self.subjects, self.outcomes, self.media, scores, budget),
                self.table(),
                *comparing.charts(self.outcomes, budget, max(stages, default=s.steps)),
            ],
            footer="Made by `geoshrink compare`. Closeness is not quality: a picture can differ "
            "from the full run and be as good.",
        )


class Bench:
    """Runs every method on one pipeline and gathers what it made; pictures are kept encoded."""

    def __init__(self, pipe: Any, call: Mapping[str, Any], settings: Settings, bar: Any):
        self.pipe, self.call, self.settings, self.bar = pipe, call, settings, bar
        self.kind = type(pipe).__name__
        self.fps = float(call.get("frame_rate") or call.get("fps") or FPS)
        self.methods = [(FULL, settings.steps)]
        self.methods += [(m, b) for b in settings.budgets for m in (DIRECT, *GEOSHRINK)]
        self.runs: dict[tuple[str, int], list[tuple[Cost, Scores]]] = {}
        self.media: dict[tuple[str, str], Media] = {}
        self.subjects: list[str] = []
        self.moving = False
        self.rate = 1.0  # model calls a step

    def run(self) -> Compared:
        s = self.settings
        least, prompts = min(s.budgets), s.prompts or (None,)
        self.bar.total = least + len(prompts) * sum(budget for _, budget in self.methods)
        pictures, cost = self.make(prompts[0], "warm-up", least)
        score(pictures[:1, :1], pictures[:1, :1])  # what has no score says so before the rest runs
        self.rate = cost.calls / least
        self.bar.total = round(self.rate * self.bar.total)
        for prompt in prompts:
            self.run_prompt(prompt)
        outcomes = [Outcome.of(*method, self.runs[method]) for method in self.methods]
        return Compared(s, self.kind, self.subjects, outcomes, self.media, self.moving)

    def run_prompt(self, prompt: str | None) -> None:
        """The full run first: the others are scored against it at once."""
        reference, names = None, []
        for method, budget in self.methods:
            pictures, cost = self.make(prompt, method, budget)
            self.bar.total += cost.calls - round(self.rate * budget)
            if reference is None:
                reference = finite(pictures)
                names = distinct(prompt or "sample", len(reference), self.subjects)
                self.subjects += names
            label = comparing.label_of(method, budget)
            for name, sample in zip(names, pictures, strict=True):
                alt = f"{name}, {label}"
                self.media[name, label] = medium(sample, self.moving, alt, self.fps)
            scored = cost, score(pictures, reference)
            self.runs.setdefault((method, budget), []).append(scored)

    def make(self, prompt: str | None, method: str, budget: int) -> tuple[Tensor, Cost]:
        self.bar.set_description(method)
        call = self.call if prompt is None else {**self.call, "prompt": prompt}
        steps, options = budget, None
        if method in GEOSHRINK:
            steps = self.settings.steps
            options = {"budget": budget, **METHODS[GEOSHRINK[method]]}
        seed, tick = self.settings.seed, self.bar.update
        output, cost = measure(self.pipe, call, steps, seed, options, tick)
        pictures, self.moving = shown(output, self.kind)
        return pictures, cost


def finite(pictures: Tensor) -> Tensor:
    if not pictures.isfinite().all():
        raise ValueError("the full run's pictures are not finite numbers: try another --dtype")
    return pictures


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
    tqdm = comparing.progress_bar("comparison")
    pipe, call = load(settings)
    with quiet(pipe), tqdm(total=1, unit="call", disable=not progress) as bar:
        compared = Bench(pipe, call, settings, bar).run()
    print(compared.table().text())
    print(f"pictures, slider and charts: {compared.page().write(out)}")
    return compared
