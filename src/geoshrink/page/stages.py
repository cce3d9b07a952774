"""A sampler's stages as bars: tall where the model is called, short where it is predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from geoshrink.page.markup import Markup, element, fill, join

WIDTH, TOP, FOOT, HEIGHT = 600, 10, 58, 76
TALL, LEAST = 44, 4  # of a call, and of what is not reached yet
BAR = (
    '<g class="{kind}"><title>{title}</title><rect x="{x}" y="{y}" width="{w}" height="{h}">'
    "</rect>{mark}</g>"
)
STRIP = (
    '<svg class="stages" viewBox="0 0 {width} {height}" role="img" aria-label="{spoken}">'
    "{bars}{axis}</svg>"
)


@dataclass(frozen=True)
class Bar:
    """One stage.

    kind     "called", "predicted" or "ahead"
    kept     of a prediction: ω, which its height shows
    moved    of a call: how far it put the stages before right, ‖d‖/‖z‖, which a dot shows
    """

    sigma: float | None = None
    kind: str = "ahead"
    kept: float | None = None
    turning: float | None = None
    moved: float | None = None

    def words(self, stage: int) -> str:
        """As a tooltip says it."""
        what = {"called": "model call", "predicted": "predicted", "ahead": "not reached yet"}
        found = [f"stage {stage}: {what[self.kind]}"]
        for name, value in (
            ("σ", self.sigma),
            ("ω", self.kept),
            ("sin²θ", self.turning),
            ("corrected by", self.moved),
        ):
            if value is not None:
                found.append(f"{name} {value:.3g}")
        return ", ".join(found)


@dataclass(frozen=True)
class Stages:
    """One bar for each stage of a run, with σ beneath."""

    label: str
    bars: Sequence[Bar]

    def html(self) -> str:
        called = [str(n) for n, bar in enumerate(self.bars) if bar.kind == "called"]
        spoken = (
            f"{self.label}: {len(called)} of {len(self.bars)} stages call the model: "
            f"{', '.join(called) or 'none yet'}"
        )
        bars = join(self._bar(n, bar) for n, bar in enumerate(self.bars))
        size = dict(width=WIDTH, height=HEIGHT)
        return fill(STRIP, **size, spoken=spoken, bars=bars, axis=self._axis())

    def _at(self, stage: float) -> float:
        return round(stage * WIDTH / len(self.bars), 2)

    def _bar(self, n: int, bar: Bar) -> Markup:
        height = {"called": TALL, "ahead": LEAST}.get(bar.kind, LEAST)
        if bar.kind == "predicted" and bar.kept is not None:
            height = LEAST + min(max(bar.kept, 0.0), 1.0) * (TALL / 2 - LEAST)
        width = self._at(1) * 0.7
        left, mark = self._at(n) + self._at(1) * 0.15, Markup()
        if bar.moved is not None:
            radius = round(min(4.0, 1.5 + 12 * bar.moved), 2)
            mark = element("circle", cx=round(left + width / 2, 2), cy=TOP - 4, r=radius)
        place = dict(x=round(left, 2), y=round(FOOT - height, 2), w=round(width, 2))
        words = bar.words(n)
        return fill(BAR, kind=bar.kind, title=words, **place, h=round(height, 2), mark=mark)

    def _axis(self) -> Markup:
        """σ at the first stage, at the last, and at three between."""
        count = len(self.bars)
        ticks = sorted({round(i * (count - 1) / 4) for i in range(5)})
        texts = []
        for n in ticks:
            sigma = self.bars[n].sigma
            label = str(n) if sigma is None else f"σ {sigma:.2f}"
            anchor = "start" if n == 0 else "end" if n == count - 1 else "middle"
            x = {"start": 0.0, "end": float(WIDTH)}.get(anchor, self._at(n + 0.5))
            texts.append(element("text", label, x=x, y=HEIGHT - 4, text_anchor=anchor))
        return join(texts)
