"""The first run: full, direct and geoshrink from the same noise on our own model, as one page."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from geoshrink.compare import outcomes as shared
from geoshrink.compare.compared import Outcome
from geoshrink.compare.inputs import check_out
from geoshrink.compare.outcomes import (
    DIRECT,
    FULL,
    GEOSHRINK,
    PAPER,
    PLANNED,
    Cost,
    label_of,
    middle,
)
from geoshrink.compare.pictures import Pictures
from geoshrink.page import Comparison, Page, Section, Table
from geoshrink.plan import METHODS, Plan
from geoshrink.planning import Profile
from geoshrink.sampling import sample
from geoshrink.terminal import show_table

from . import zoo
from .zoo.drawing import contact_sheet
from .zoo.modalities.pictures import picture_of
from .zoo.profiles import fitted

FRUITS = (
    "Banana 1",
    "Strawberry 1",
    "Kiwi 1",
    "Pineapple 1",
    "Pepper Orange 1",
    "Cauliflower 1",
    "Corn 1",
    "Pear Abate 1",
)
SIDE = 112  # of a picture in the strip
NUMBERS = ("steps", "guidance", "shift", "seed")  # of the settings


@dataclass(frozen=True)
class Settings:
    """Eight fruits at the settings the model is judged at."""

    budgets: tuple[int, ...] = (7, 10, 15)
    fruits: tuple[str, ...] = FRUITS
    steps: int = 50
    guidance: float = 3.0
    shift: float = 3.0
    seed: int = 0

    def command(self) -> str:
        """What makes the same page again, fruits of one's own apart."""
        words = ["geoshrink", "demo", "--budgets", *map(str, self.budgets)]
        for name in NUMBERS:
            words += [f"--{name}", f"{getattr(self, name):g}"]
        return shlex.join(words)


def plans_of(
    model: zoo.Model, settings: Settings, profile: Profile | None
) -> dict[tuple[str, int], Plan]:
    """{(method, budget): plan}, budget by budget."""
    sigmas, plans = model.sigmas(settings.steps, settings.shift), {}
    for budget in settings.budgets:
        for method in (PAPER, GEOSHRINK):
            plans[method, budget] = Plan.of(sigmas, budget, **METHODS[method])
        if profile is not None:
            plans[PLANNED, budget] = profile.plan(budget)
    return plans


def run_methods(
    model: zoo.Model,
    settings: Settings,
    plans: dict[tuple[str, int], Plan],
    tick: Callable[[], Any],
) -> tuple[list[Outcome], dict[str, Pictures]]:
    """(outcomes, pictures by label): full, then direct and the plans at every budget, from the
    same noise; tick() per call.
    """
    noise = model.noise(len(settings.fruits), settings.seed)
    velocity = model.velocity(settings.fruits, settings.guidance)
    velocity(noise, 1.0)  # warm-up, not counted
    outcomes: list[Outcome] = []
    made: dict[str, Pictures] = {}

    def run(method: str, budget: int, grid: Any = None, plan: Plan | None = None) -> None:
        calls = 0

        def counted(x: Tensor, sigma: float) -> Tensor:
            nonlocal calls
            calls += 1
            tick()
            return velocity(x, sigma)

        began = time.perf_counter()
        x, report = sample(counted, noise, grid, plan=plan, with_report=True)
        cost = Cost(time.perf_counter() - began, None, calls, (report,))
        pictures = made[label_of(method, budget)] = Pictures(model.values(x)[:, None])
        outcomes.append(Outcome.of(method, budget, [(cost, pictures.score(made[FULL], set()))]))

    run(FULL, settings.steps, model.sigmas(settings.steps, settings.shift))
    for budget in settings.budgets:
        run(DIRECT, budget, model.sigmas(budget, settings.shift))
        for (method, at), plan in plans.items():
            if at == budget:
                run(method, budget, plan=plan)
    return outcomes, made


@dataclass(frozen=True)
class Demo:
    """The outcomes with their scores: a table, a verdict in words, a page, a picture.

    profile   that comes with the model; None where it does not fit, and then `misfit` says why
    """

    model: zoo.Model
    settings: Settings
    outcomes: list[Outcome]
    made: dict[str, Pictures]
    profile: Profile | None = None
    misfit: str = ""

    def table(self) -> Table:
        caption = (
            f"Against the full {self.settings.steps}-step run from the same noise, mean "
            f"over {len(self.settings.fruits)} samples. {self.about()}"
        )
        caption = "\n\n".join([caption, self.planned(), *self.verdict()])
        means = {o.label: o.means for o in self.outcomes}
        return shared.results(self.outcomes, means, caption, self.settings.command())

    def about(self) -> str:
        s = self.settings
        return f"Guidance {s.guidance:g}, shift {s.shift:g}, Euler, seed {s.seed}."

    def planned(self) -> str:
        """Where the anchors of the planned method come from."""
        if self.profile is None:
            return (
                f"{PLANNED} is left out: of the profile that comes with the model, {self.misfit}."
            )
        return (
            f"{PLANNED} has its anchors from the profile that comes with the model, made on "
            f"{self.profile.samples} samples of other fruits and other noise."
        )

    def verdict(self) -> list[str]:
        """For every budget, whether each form of ours is ahead of direct, and by how much."""
        means = {o.label: o.means[0] for o in self.outcomes}
        return shared.verdict(self.settings.budgets, self.outcomes, means)

    def page(self) -> Page:
        s = self.settings
        return Page(
            "geoshrink on our own fruit model",
            f"A diffusion transformer with {self.model.facts['parameters'] / 1e6:.1f} million "
            f"parameters draws fruit in {s.steps} solver steps. Direct step reduction takes fewer, "
            "longer steps. geoshrink keeps all steps and predicts the model at most of them.",
            [
                self.comparison(),
                self.table(),
                *self.expected(),
                *shared.charts(self.outcomes, middle(s.budgets), s.steps),
            ],
            footer=f"Made by `{s.command()}`. The model was trained on Fruits-360 (Mihai Oltean, "
            "CC BY-SA 4.0); it is small, and what it shows need not hold for yours: measure.",
        )

    def expected(self) -> list[Section]:
        """The profile's curve: what it expected of every budget before anything ran."""
        if self.profile is None:
            return []
        tried = sorted(self.profile.tried("run"))
        caption = (
            "What the profile expects of a budget before anything is run, in dB of the full run's "
            "energy over the error's, in what the solver sees (the table's PSNR is of pictures). "
            f"Plans were run at {', '.join(map(str, tried))} calls, the rest is in between. "
            f"`geoshrink plan {self.model.name}` prints it."
        )
        chart = self.profile.curve(range(tried[0], tried[-1] + 1)).chart()
        return [replace(chart, title="Quality to expect, by budget", caption=caption)]

    def comparison(self) -> Comparison:
        fruits, media, scores = self.settings.fruits, {}, {}
        for o in self.outcomes:
            for i, fruit in enumerate(fruits):
                media[fruit, o.label] = self.made[o.label].picture(i, f"{fruit}, {o.label}")
                if o.method != FULL:
                    scores[fruit, o.label] = o.scores[0][i]
        budget = middle(self.settings.budgets)
        return shared.comparison(list(fruits), self.outcomes, media, scores, budget)

    def strip(self, budget: int) -> Image.Image:
        """Reference, direct, geoshrink and planned as one picture, a row each."""
        shown = (DIRECT, GEOSHRINK, PLANNED)
        chosen = [o for o in self.outcomes if o.budget == budget and o.method in shown]
        rows, labels = [], []
        for o in (self.outcomes[0], *chosen):
            row = picture_of(torch.cat([*self.made[o.label].values[:, 0]], -1))
            size = (SIDE * len(self.settings.fruits), SIDE)
            rows.append(row.resize(size, Image.Resampling.BICUBIC))
            distance = "" if o.method == FULL else f", {o.means[0]:.1f} dB"
            labels.append(f"{o.method}, {o.calls} model calls{distance}")
        return contact_sheet(rows, labels, columns=1)


def run_demo(
    settings: Settings, out: Path, strip: Path | None = None, progress: bool = True
) -> Demo:
    """Runs everything, prints the table and the verdict, writes the page."""
    for path in (out, strip):
        if path is not None:
            check_out(path)
    tqdm = shared.progress_bar("demo")
    model = zoo.load("fruit")
    grid = model.grid(settings.steps, settings.shift)
    profile, misfit = fitted(model.name, grid, settings.guidance)
    plans = plans_of(model, settings, profile)
    total = settings.steps + sum(settings.budgets) + sum(p.budget for p in plans.values())
    with (
        tqdm(total=total, unit="call", desc="sampling", disable=not progress) as bar,
        torch.no_grad(),
    ):
        outcomes, made = run_methods(model, settings, plans, bar.update)
    demo = Demo(model, settings, outcomes, made, profile, misfit)
    show_table(demo.table())
    print()
    print(f"pictures, slider and charts: {demo.page().write(out)}")
    if strip is not None:
        strip.parent.mkdir(parents=True, exist_ok=True)
        demo.strip(middle(settings.budgets)).save(strip, optimize=True)
        print(f"strip: {strip}")
    return demo
