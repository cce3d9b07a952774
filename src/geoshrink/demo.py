"""The first run: full, direct and GeoShrink from the same noise on our own model, as one page."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import zoo
from .bench.metrics.image import psnr, ssim
from .page import Anchors, Column, Comparison, Lines, Page, Picture, Series, Table
from .plan import METHODS, Plan
from .report import Report
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
DIRECT, PAPER, OURS = "direct", "GeoShrink (paper)", "GeoShrink (ours)"


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
class Outcome:
    """One method at one budget: its samples, what they cost, how close they are to the full run."""

    method: str
    budget: int
    x: Tensor
    calls: int
    seconds: float
    report: Report | None = None

    @property
    def label(self) -> str:
        return self.method if self.method == "full" else f"{self.method}, B = {self.budget}"


def run_methods(model: zoo.Model, settings: Settings, tick: Callable[[], Any]) -> list[Outcome]:
    """Full, then direct and GeoShrink at every budget, from the same noise; tick() per call."""
    noise = model.noise(len(settings.fruits), settings.seed)
    velocity = model.velocity(settings.fruits, settings.guidance)
    sigmas = model.sigmas(settings.steps, settings.shift)
    plans = {  # before anything runs: a bad budget is an error at once
        (method, budget): Plan.of(sigmas, budget, **METHODS[name])
        for method, name in ((PAPER, "paper"), (OURS, "default"))
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
        return Outcome(method, budget, x, calls, time.perf_counter() - began, report)

    outcomes = [measured("full", settings.steps, sigmas)]
    for budget in settings.budgets:
        outcomes.append(measured(DIRECT, budget, model.sigmas(budget, settings.shift)))
        for method in (PAPER, OURS):
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
        reference = self.model.pixels(self.outcomes[0].x)
        pictures = {o.label: self.model.pixels(o.x) for o in self.outcomes}
        return {name: (psnr(p, reference), ssim(p, reference)) for name, p in pictures.items()}

    def scores(self, outcome: Outcome) -> tuple[Tensor, Tensor]:
        """PSNR and SSIM of each sample against the full run."""
        return self.all_scores[outcome.label]

    def table(self) -> Table:
        full, verdict = self.outcomes[0], "\n\n".join(self.verdict())
        rows: list[list[Any]] = []
        for o in self.outcomes:
            quality = [None, None] if o is full else [float(s.mean()) for s in self.scores(o)]
            rows.append(
                [o.budget, o.method, o.calls, o.seconds, full.seconds / o.seconds, *quality]
            )
        return Table(
            "Quality at equal cost",
            [
                Column("B", digits=0),
                Column("method"),
                Column("model calls", digits=0),
                Column("time", "s", digits=1),
                Column("speed-up", "×", digits=1),
                Column("PSNR", "dB", better="higher", digits=1),
                Column("SSIM", better="higher", digits=3),
            ],
            rows,
            caption=f"Against the full {self.settings.steps}-step run from the same noise, mean "
            f"over {len(self.settings.fruits)} samples. {self.about()}\n\n" + verdict,
            command="geoshrink demo",
            group_by=0,
        )

    def about(self) -> str:
        s = self.settings
        return f"Guidance {s.guidance:g}, shift {s.shift:g}, Euler, seed {s.seed}."

    def verdict(self) -> list[str]:
        """For every budget, whether each GeoShrink is ahead of direct, and by how much."""
        lines = []
        for budget in self.settings.budgets:
            at = {
                o.method: float(self.scores(o)[0].mean())
                for o in self.outcomes
                if o.budget == budget
            }
            parts = []
            for method in (PAPER, OURS):
                gain = at[method] - at[DIRECT]
                word = "ahead of" if gain > 0 else "BEHIND"
                parts.append(f"{method} is {abs(gain):.1f} dB {word} direct")
            lines.append(f"B = {budget}: " + "; ".join(parts) + ".")
        return lines

    def page(self) -> Page:
        s = self.settings
        shown = [o for o in self.outcomes if o.report is not None and o.method in (PAPER, OURS)]
        middle = s.budgets[len(s.budgets) // 2]
        return Page(
            "GeoShrink on our own fruit model",
            f"A diffusion transformer with {self.model.facts['parameters'] / 1e6:.1f} million "
            f"parameters draws fruit in {s.steps} solver steps. Direct step reduction takes fewer, "
            "longer steps. GeoShrink keeps all steps and predicts the model at most of them.",
            [
                self.comparison(f"{DIRECT}, B = {middle}", f"{OURS}, B = {middle}"),
                self.table(),
                Anchors(
                    "Where the model is asked",
                    [(o.label, o.report.queried) for o in shown if o.report],
                    s.steps,
                    "Each strip is the solver's grid; a dot is a real model call.",
                ),
                self.lines(middle, "omega", "How much of the latest change is kept", "retention ω"),
                self.lines(middle, "turning", "How sharply the outputs turn", "turning sin²θ"),
            ],
            footer="Made by `geoshrink demo`. The model was trained on Fruits-360 (Mihai Oltean, "
            "CC BY-SA 4.0); it is small, and what it shows need not hold for yours: measure.",
        )

    def comparison(self, left: str, right: str) -> Comparison:
        media, scores, names = {}, {}, [o.label for o in self.outcomes]
        for o in self.outcomes:
            values = self.scores(o)[0]
            for fruit, image, value in zip(self.settings.fruits, self.model.decode(o.x), values):
                media[fruit, o.label] = Picture(png(image), f"{fruit}, {o.label}")
                if o.method != "full":
                    scores[fruit, o.label] = f"{float(value):.1f} dB"
        groups = {
            o.label: "reference" if o.method == "full" else f"B = {o.budget}" for o in self.outcomes
        }
        caption = (
            "Drag to wipe between any two methods; under each picture its distance to the full run."
        )
        return Comparison(
            "Look", list(self.settings.fruits), names, media, caption, groups, scores, (left, right)
        )

    def lines(self, budget: int, what: str, title: str, label: str) -> Lines:
        series = []
        for o in self.outcomes:
            if o.report is not None and o.method in (PAPER, OURS) and o.budget == budget:
                rows = [(row.stage, getattr(row, what)) for row in o.report.stages]
                rows = [(n, value) for n, value in rows if value is not None]
                series.append(Series(o.label, [n for n, _ in rows], [v for _, v in rows]))
        where = "at the predicted stages" if what == "omega" else "at the anchors"
        caption = f"Mean over the samples, {where}, B = {budget}."
        return Lines(title, series, "stage", label, caption, (0.0, 1.0))

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
            if o.method != "full":
                text += f"\n{float(self.scores(o)[0].mean()):.1f} dB"
            draw.multiline_text((8, side * i + 30), text, fill="black", font_size=16)
            for j, image in enumerate(self.model.decode(o.x)):
                big = image.resize((side, side), Image.Resampling.BICUBIC)
                canvas.paste(big, (left + side * j, side * i))
        return canvas


def png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def run_demo(
    settings: Settings, out: Path, strip: Path | None = None, progress: bool = True
) -> Demo:
    """Runs everything, prints the table and the verdict, writes the page."""
    try:
        import PIL  # noqa: F401
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(f"the demo needs {error.name}: pip install 'geoshrink[demo]'") from None
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
        demo.strip(settings.budgets[len(settings.budgets) // 2]).save(strip, optimize=True)
        print(f"strip: {strip}")
    return demo
