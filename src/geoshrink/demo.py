"""The first run: full, direct and GeoShrink from the same noise on our own model, as one page."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import comparing, zoo
from .bench.metrics.image import psnr, ssim
from .comparing import DIRECT, FULL, GEOSHRINK, OURS, middle, png
from .comparing import PAPER as PAPER
from .page import Comparison, Page, Picture, Table
from .plan import METHODS, Plan
from .sampling import sample

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


@dataclass(frozen=True)
class Settings:
    """Eight fruits at the settings the model is judged at."""

    budgets: tuple[int, ...] = (7, 10, 15)
    fruits: tuple[str, ...] = FRUITS
    steps: int = 50
    guidance: float = 3.0
    shift: float = 3.0
    seed: int = 0


@dataclass(frozen=True)
class Outcome(comparing.Outcome):
    """One method at one budget, with its samples."""

    x: Tensor


def run_methods(model: zoo.Model, settings: Settings, tick: Callable[[], Any]) -> list[Outcome]:
    """Full, then direct and GeoShrink at every budget, from the same noise; tick() per call."""
    noise = model.noise(len(settings.fruits), settings.seed)
    velocity = model.velocity(settings.fruits, settings.guidance)
    sigmas = model.sigmas(settings.steps, settings.shift)
    plans = {  # before anything runs: a bad budget is an error at once
        (method, budget): Plan.of(sigmas, budget, **METHODS[name])
        for method, name in GEOSHRINK.items()
        for budget in settings.budgets
    }
    velocity(noise, 1.0)  # warm-up, not counted

    def measured(method: str, budget: int, grid: Any = None, plan: Plan | None = None) -> Outcome:
        calls = 0

        def counted(x: Tensor, sigma: float) -> Tensor:
            nonlocal calls
            calls += 1
            tick()
            return velocity(x, sigma)

        began = time.perf_counter()
        x, report = sample(counted, noise, grid, plan=plan, with_report=True)
        return Outcome(method, budget, calls, time.perf_counter() - began, (report,), x)

    outcomes = [measured(FULL, settings.steps, sigmas)]
    for budget in settings.budgets:
        outcomes.append(measured(DIRECT, budget, model.sigmas(budget, settings.shift)))
        for method in GEOSHRINK:
            outcomes.append(measured(method, budget, plan=plans[method, budget]))
    return outcomes


@dataclass(frozen=True)
class Demo:
    """The outcomes with their scores: a table, a verdict in words, a page, a picture."""

    model: zoo.Model
    settings: Settings
    outcomes: list[Outcome]

    @cached_property
    def all_scores(self) -> dict[str, tuple[Tensor, Tensor]]:
        reference = self.model.values(self.outcomes[0].x)
        pictures = {o.label: self.model.values(o.x) for o in self.outcomes}
        return {name: (psnr(p, reference), ssim(p, reference)) for name, p in pictures.items()}

    def scores(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """PSNR and SSIM of each sample against the full run."""
        return self.all_scores[outcome.label]

    @cached_property
    def means(self) -> dict[str, tuple[float, float]]:
        return {
            name: (float(p.mean()), float(s.mean())) for name, (p, s) in self.all_scores.items()
        }

    def table(self) -> Table:
        caption = (
            f"Against the full {self.settings.steps}-step run from the same noise, mean "
            f"over {len(self.settings.fruits)} samples. {self.about()}"
        )
        caption = "\n\n".join([caption, *self.verdict()])
        return comparing.results(self.outcomes, self.means, caption, "geoshrink demo")

    def about(self) -> str:
        s = self.settings
        return f"Guidance {s.guidance:g}, shift {s.shift:g}, Euler, seed {s.seed}."

    def verdict(self) -> list[str]:
        """For every budget, whether each GeoShrink is ahead of direct, and by how much."""
        psnr_of = {name: means[0] for name, means in self.means.items()}
        return comparing.verdict(self.settings.budgets, self.outcomes, psnr_of)

    def page(self) -> Page:
        s = self.settings
        return Page(
            "GeoShrink on our own fruit model",
            f"A diffusion transformer with {self.model.facts['parameters'] / 1e6:.1f} million "
            f"parameters draws fruit in {s.steps} solver steps. Direct step reduction takes fewer, "
            "longer steps. GeoShrink keeps all steps and predicts the model at most of them.",
            [
                self.comparison(),
                self.table(),
                *comparing.charts(self.outcomes, middle(s.budgets), s.steps),
            ],
            footer="Made by `geoshrink demo`. The model was trained on Fruits-360 (Mihai Oltean, "
            "CC BY-SA 4.0); it is small, and what it shows need not hold for yours: measure.",
        )

    def comparison(self) -> Comparison:
        fruits, media, scores = self.settings.fruits, {}, {}
        for o in self.outcomes:
            values = self.scores(o)[0]
            for fruit, image, value in zip(fruits, self.model.decode(o.x), values):
                media[fruit, o.label] = Picture(png(image), f"{fruit}, {o.label}")
                if o.method != FULL:
                    scores[fruit, o.label] = float(value)
        budget = middle(self.settings.budgets)
        return comparing.comparison(list(fruits), self.outcomes, media, scores, budget)

    def strip(self, budget: int) -> Any:
        """Reference | direct | ours as one picture, a row each."""
        from PIL import Image, ImageDraw

        chosen = [self.outcomes[0]]
        chosen += [o for o in self.outcomes if o.budget == budget and o.method in (DIRECT, OURS)]
        side, left = 112, 150
        canvas = Image.new(
            "RGB", (left + side * len(self.settings.fruits), side * len(chosen)), "white"
        )
        draw = ImageDraw.Draw(canvas)
        for i, o in enumerate(chosen):
            text = f"{o.method}\n{o.calls} model calls"
            if o.method != FULL:
                text += f"\n{float(self.scores(o)[0].mean()):.1f} dB"
            draw.multiline_text((8, side * i + 30), text, fill="black", font_size=16)
            for j, image in enumerate(self.model.decode(o.x)):
                big = image.resize((side, side), Image.Resampling.BICUBIC)
                canvas.paste(big, (left + side * j, side * i))
        return canvas


def run_demo(
    settings: Settings, out: Path, strip: Path | None = None, progress: bool = True
) -> Demo:
    """Runs everything, prints the table and the verdict, writes the page."""
    tqdm = comparing.progress_bar("demo")
    model = zoo.load("fruit")
    total = settings.steps + 3 * sum(min(b, settings.steps) for b in settings.budgets)
    with (
        tqdm(total=total, unit="call", desc="sampling", disable=not progress) as bar,
        torch.no_grad(),
    ):
        demo = Demo(model, settings, run_methods(model, settings, bar.update))
    print(demo.table().text())
    print(f"pictures, slider and charts: {demo.page().write(out)}")
    if strip is not None:
        strip.parent.mkdir(parents=True, exist_ok=True)
        demo.strip(middle(settings.budgets)).save(strip, optimize=True)
        print(f"strip: {strip}")
    return demo
