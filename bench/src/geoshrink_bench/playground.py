"""All budgets on one page: a dial over model calls, computed beforehand, so that no server is
needed.
"""

from __future__ import annotations

import io
from pathlib import Path

import torch
from PIL import Image

from geoshrink.compare.outcomes import DIRECT, FULL, GEOSHRINK, PAPER, PLANNED
from geoshrink.page import Page
from geoshrink.page.charts import Lines, Series
from geoshrink.page.media import Picture

from .demo import Demo
from .page.dial import Dial, Shot
from .zoo.modalities.pictures import picture_of

BUDGETS = (4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30)
METHODS = (DIRECT, PAPER, GEOSHRINK, PLANNED)
QUALITY = 90  # of the pictures, WEBP


def write_playground(demo: Demo, out: Path) -> Path:
    """The page of a demo that ran at many budgets."""
    return page_of(demo).write(out)


def page_of(demo: Demo) -> Page:
    s, budgets = demo.settings, demo.settings.budgets
    full, *others = demo.outcomes
    shown = {
        budget: [shot(demo, o.label, f"{o.means[0]:.1f} dB") for o in others if o.budget == budget]
        for budget in budgets
    }
    begin = min(budgets, key=lambda b: abs(b - s.steps // 5))
    dial = Dial(
        "Turn the dial",
        shot(demo, full.label, f"{s.steps} model calls: what the others should look like"),
        shown,
        f"of {s.steps} model calls",
        begin,
        "PSNR of the pictures to the full run from the same noise, mean of "
        f"{len(s.fruits)} samples. {demo.about()} {demo.planned()}",
    )
    return Page(
        "Fruit with fewer model calls",
        f"A model of {demo.model.facts['parameters'] / 1e6:.1f} million parameters draws "
        f"{len(s.fruits)} fruits in {s.steps} solver steps. With fewer model calls: longer steps "
        "(direct), the published method (paper), our default (geoshrink), and anchors planned from "
        "a profile of the model (planned).",
        [dial, curves(demo)],
        footer=f"Made by `{s.command()} --play FILE`. The model was trained on Fruits-360 (Mihai "
        "Oltean, CC BY-SA 4.0). It is small, and what it shows need not hold for yours: measure.",
    )


def shot(demo: Demo, label: str, words: str) -> Shot:
    """All samples side by side."""
    values = demo.made[label].values[:, 0]
    strip = picture_of(torch.cat([*values], -1))
    strip = strip.resize((2 * strip.width, 2 * strip.height), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    strip.save(buffer, "WEBP", quality=QUALITY, method=6)
    said = "full run" if label == FULL else label.partition(",")[0]
    return Shot(said, words, Picture(buffer.getvalue(), f"{label}: {words}"))


def curves(demo: Demo) -> Lines:
    found = []
    for method in METHODS:
        own = [o for o in demo.outcomes if o.method == method]
        if own:
            found.append(Series(method, [o.budget for o in own], [o.means[0] for o in own]))
    return Lines("PSNR by model calls", found, "model calls", "PSNR, dB")
