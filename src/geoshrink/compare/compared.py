"""What came out: a table, a verdict in words, warnings, a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..page import Column, Media, Page, Table
from . import outcomes as shared
from .ends import ESTIMATED, TRUE, estimated
from .inputs import Settings
from .kinds import Made, Scores
from .outcomes import DIRECT, FULL, GEOSHRINK, Cost, middle
from .pipeline import Loaded


@dataclass(frozen=True)
class Outcome(shared.Outcome):
    """One method at one budget over all prompts: means of its costs, scores of each sample.

    scores   of each metric, of each sample
    off      how far the solver ended from the full run, in dB; None if nobody knows
    """

    share: float | None
    scores: tuple[tuple[float, ...], ...]
    off: float | None = None

    @classmethod
    def of(cls, method: str, budget: int, runs: Sequence[tuple[Cost, Scores]]) -> Outcome:
        costs, scores = zip(*runs)
        calls, shares = mean([cost.calls for cost in costs]), [cost.share for cost in costs]
        return cls(
            method,
            budget,
            int(calls) if calls == int(calls) else calls,
            mean([cost.seconds for cost in costs]),
            tuple(report for cost in costs for report in cost.reports),
            None if None in shares else mean(shares),
            tuple(tuple(value for part in parts for value in part) for parts in zip(*scores)),
            mean([cost.off for cost in costs]) if None not in [c.off for c in costs] else None,
        )

    @property
    def means(self) -> list[float]:
        return [mean(values) for values in self.scores]


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True)
class Compared:
    """The outcomes of all prompts: a table, a verdict in words, warnings, a page.

    made      of the warm-up: what kind of samples they are
    skipped   why some metrics have no numbers
    """

    settings: Settings
    loaded: Loaded
    subjects: list[str]
    outcomes: list[Outcome]
    media: dict[tuple[str, str], Media]
    made: Made
    skipped: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        return self.loaded.kind

    def verdict(self) -> list[str]:
        means = {o.label: o.means[0] for o in self.outcomes}
        metric = self.made.metrics[0]
        return shared.verdict(self.settings.budgets, self.outcomes, means, metric)

    def warnings(self) -> list[str]:
        """Runs that were not accelerated, or are not to be trusted, or did not cost the same."""
        lines = [*self.skipped]
        for o in self.outcomes:
            doubts = dict.fromkeys(r.doubt for r in o.reports if r.doubt)
            extra = {why for r in o.reports if r.extra for _, why in r.reasons}
            if o.not_accelerated is not None:
                lines.append(f"{o.label} was not accelerated: {o.not_accelerated}.")
            elif extra:
                lines.append(f"{o.label} queried more than planned: {'; '.join(sorted(extra))}.")
            if doubts:
                where = f"in {sum(r.doubtful for r in o.reports)} of {len(o.reports)} runs"
                lines.append(f"{o.label}, {where}: {next(iter(doubts))}.")
        calls = {(o.method, o.budget): o.calls for o in self.outcomes if not o.not_accelerated}
        idle = self.loaded.way.idle
        if idle:
            lines.append(
                f"The last model call of {self.kind} changes nothing: direct has B + 1 steps."
            )
        for budget in self.settings.budgets:
            ours, direct = calls.get((GEOSHRINK, budget)), calls[DIRECT, budget]
            if ours not in (None, direct - idle):
                lines.append(
                    f"B = {budget}: direct made {direct:g} model calls, {GEOSHRINK} {ours:g}: not "
                    "the same cost."
                )
        return lines

    def table(self) -> Table:
        s, count, noun = self.settings, len(self.subjects), self.made.noun
        plural = {"mesh": "meshes"}.get(noun, f"{noun}s")
        caption = (
            f"Against the full {s.steps}-step run from the same noise (seed {s.seed}), mean over "
            f"{count} {noun if count == 1 else plural}"
            f"{', frame by frame' if noun in ('video', 'film') else ''}. "
            "Time is that of a whole call."
        )
        more = []
        if self.loaded.denoisers:
            caption += (
                " Denoiser is the part of it spent in the model, which is all that fewer model "
                "calls can save."
            )
            shares = {o.label: 100 * (o.share or 0) for o in self.outcomes}
            more = [(Column("denoiser", "%", digits=0), shares)]
        told = {o.label: estimated(o.reports) for o in self.outcomes}
        if any(db is not None for db in told.values()):
            caption += (
                " Estimated is what each run says of itself, in dB to the full run, in what the "
                "solver sees; beside it what that really is."
            )
            more = [(ESTIMATED, told), (TRUE, {o.label: o.off for o in self.outcomes}), *more]
        return shared.results(
            self.outcomes,
            {o.label: o.means for o in self.outcomes},
            "\n\n".join([caption, *self.verdict(), *self.warnings()]),
            s.command(),
            *more,
            metrics=self.made.metrics,
        )

    def page(self) -> Page:
        s, budget, made = self.settings, middle(self.settings.budgets), self.made
        stages = [r.steps for o in self.outcomes for r in o.reports]
        scores = {
            (subject, o.label): value
            for o in self.outcomes
            if o.method != FULL
            for subject, value in zip(self.subjects, o.scores[0])
        }
        look = shared.comparison(
            self.subjects, self.outcomes, self.media, scores, budget, made.metrics[0], made.title
        )
        return Page(
            f"geoshrink on {s.name}",
            f"{self.kind} in {s.steps} solver steps. Direct step reduction takes fewer, longer "
            "steps. geoshrink keeps all steps and predicts the model at most of them.",
            [
                look,
                self.table(),
                *shared.charts(self.outcomes, budget, max(stages, default=s.steps)),
            ],
            footer="Made by `geoshrink compare`. Closeness is not quality: a "
            f"{made.noun} can differ from the full run and be as good.",
        )
