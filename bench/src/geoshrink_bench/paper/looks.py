"""The samples that were kept, side by side: pictures, films, sound, objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geoshrink.page import Animation, Comparison, Media, Picture, Sound
from geoshrink.page.sound import encode_wave

from ..report.samples import encoded
from ..zoo.modalities.pictures import picture_of
from .cells import Cells
from .results import FPS, IDENTICAL, Result
from .sample import Sample
from .suite import FULL

WIDEST = 512  # pixels of a sample on the page


def look(cells: Cells, found: Sequence[Result], most: int) -> list[Comparison]:
    """A slider between any two rows: the first `most` prompts of the first seed that all have."""
    rows = [result.row for result in found if result.done]
    media: dict[tuple[str, str], Media] = {}
    scores: dict[tuple[str, str], str] = {}
    subjects: list[str] = []
    for prompt in dict.fromkeys(cells.prompts):
        if len(subjects) >= most or prompt.text in subjects:
            continue
        specs = {row.label: cells.spec(row, prompt, 0) for row in rows}
        samples = {label: Sample.load(cells.path(spec)) for label, spec in specs.items()}
        drawn = {
            label: medium(sample, f"{prompt.text}, {label}", cells.suite.fps)
            for label, sample in samples.items()
            if sample is not None
        }
        if len(drawn) < len(rows) or None in drawn.values():
            continue
        subjects.append(prompt.text)
        for label, spec in specs.items():
            shown = drawn[label]
            assert shown is not None
            media[prompt.text, label] = shown
            scores[prompt.text, label] = score_of(cells, spec)
    if not subjects or len(rows) < 2:
        return []
    caption = "Drag to wipe between any two; beneath each its distance to the full run."
    labels = [row.label for row in rows]
    return [
        Comparison(
            "Look", subjects, labels, media, caption, scores=scores, start=(FULL.label, labels[-1])
        )
    ]


def score_of(cells: Cells, spec: dict[str, Any]) -> str:
    """Of one sample, in the suite's first column."""
    name = cells.suite.columns[0]
    value = ((cells.store.read(spec) or {}).get("scores", {}).get(name) or {}).get("value")
    if not isinstance(value, (int, float)):
        return ""
    return "identical" if value == IDENTICAL else f"{name} {value:.4g}"


def medium(sample: Sample, alt: str, fps: float | None) -> Media | None:
    """Something to look at or listen to; None for what has no picture here, such as joints."""
    if "frames" in sample.parts:
        pictures = [small(picture_of(f.float() / 255)) for f in sample.part("frames")]
        if len(pictures) > 1:
            return Animation.of(pictures, alt, fps or FPS)
        return Picture(encoded(pictures[0]), alt)
    if "wave" in sample.parts and sample.rate:
        from ..zoo.drawing import draw_sound

        wave = sample.part("wave").numpy()
        return Sound(encoded(draw_sound(wave, sample.rate)), alt, encode_wave(wave, sample.rate))
    if "vertices" in sample.parts:
        return Picture(encoded(small(picture_of(sample.views[0]))), alt)
    return None


def small(picture: Any) -> Any:
    """At most WIDEST on either side."""
    picture.thumbnail((WIDEST, WIDEST))
    return picture
