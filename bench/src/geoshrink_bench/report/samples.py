"""The samples that were kept, side by side: pictures, films, sound, skeletons, objects."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from geoshrink.comparing import png
from geoshrink.page import Animation, Comparison, Media, Picture, Sound
from geoshrink.page.sound import encode_wave

from ..keeping import Samples, read_samples
from ..setting import REFERENCES, reference_key
from ..store import name_of
from ..summary import measure_of
from ..zoo.modalities import Audiovisual, Clips, Motion, Objects, Pictures
from ..zoo.modalities import Sound as Speech
from ..zoo.modalities.pictures import picture_of
from ..zoo.recipes import RECIPES
from .ranking import DIRECT, OURS, chosen
from .results import DONE, Cell, Setting
from .score import IDENTICAL

FPS = 8.0  # of a film
SIDE = (150, 150)  # pixels of an object: its rays are what takes time


def kept_by(cell: Cell) -> Path:
    return cell.folder / f"{name_of(cell.spec)}.samples.safetensors"


def shown_cells(setting: Setting) -> list[Cell]:
    """Those with samples: every method at the first budget, the chosen ones at all."""
    some = chosen(setting)
    return [
        cell
        for budget in setting.budgets
        for label in [*some, *(label for label in setting.labels if label not in some)]
        if (cell := setting.at.get((label, budget))) is not None
        and cell.status == DONE
        and (budget == setting.first_budget or label in some)
        and kept_by(cell).is_file()
    ]


def references_of(setting: Setting, cell: Cell) -> dict[str, Samples]:
    """The kept samples of the references, beside a cell."""
    found = {}
    for name in REFERENCES:
        steps = None if name == "full" else cell.spec["converged"]
        key = name_of(reference_key(setting.spec, cell.spec["weights"], steps))
        samples = read_samples(cell.folder / f"{key}.samples.safetensors")
        if samples is not None:
            found[name] = samples
    return found


def look(
    setting: Setting, tick: Callable[[], Any] = lambda: None, most: int | None = None
) -> list[Comparison]:
    """A slider between any two methods, where samples were kept; tick() after each cell.

    most   so many samples at most, all that were kept unless given
    """
    cells = {f"{cell.label}, B = {cell.budget}": cell for cell in shown_cells(setting)}
    loaded = {name: read_samples(kept_by(cell)) for name, cell in cells.items()}
    by_method = {name: found for name, found in loaded.items() if found is not None}
    if not by_method:
        return []
    first = cells[next(iter(by_method))]
    by_method = references_of(setting, first) | by_method
    labels = next(iter(by_method.values())).labels
    subjects = [f"{label}, {i + 1}" for i, label in enumerate(labels)][:most]
    media: dict[tuple[str, str], Media] = {}
    scores: dict[tuple[str, str], str] = {}
    for method, samples in by_method.items():
        for i, subject in enumerate(subjects):
            media[subject, method] = medium(setting.model, samples, i, f"{subject}, {method}")
            if method in cells and (text := score_of(setting, cells[method], i)):
                scores[subject, method] = text
        tick()
    groups = {m: f"B = {cells[m].budget}" if m in cells else "reference" for m in by_method}
    ends = [f"{label}, B = {setting.first_budget}" for label in (DIRECT, OURS)]
    caption = "Drag to wipe between any two; beneath each its distance to the full run."
    return [
        Comparison(
            "Look" if setting.model not in ("digits-audio", "digits-av") else "Look and listen",
            subjects,
            list(by_method),
            media,
            caption,
            groups,
            scores,
            (ends[0], ends[1]) if all(end in by_method for end in ends) else None,
        )
    ]


def score_of(setting: Setting, cell: Cell, i: int) -> str:
    """Of one sample, in the setting's first metric."""
    measure = measure_of(setting.metrics[0])
    each = cell.result["scores"].get(measure.name, {}).get("full")
    if not isinstance(each, list) or i >= len(each):
        return ""
    return "identical" if each[i] == IDENTICAL else f"{each[i]:.3g} {measure.unit}".strip()


def medium(model: str, samples: Samples, i: int, alt: str) -> Media:
    """Sample i as something to look at or listen to."""
    values = [part[i] for part in samples.values]
    return DRAWN[type(RECIPES[model].modality)](values, samples, i, alt)


def picture(values: list[Any], samples: Samples, i: int, alt: str) -> Media:
    return Picture(png(picture_of(values[0])), alt)


def encoded(drawing: Any) -> bytes:
    """A drawing, whose pixels need not be exact: WEBP, or PNG where Pillow was built without it."""
    from PIL import features

    if not features.check("webp"):
        return png(drawing)
    buffer = io.BytesIO()
    drawing.save(buffer, "WEBP", quality=80)
    return buffer.getvalue()


def film(values: list[Any], samples: Samples, i: int, alt: str) -> Media:
    return Animation.of([picture_of(frame) for frame in values[0].transpose(0, 1)], alt, FPS)


def sound(values: list[Any], samples: Samples, i: int, alt: str) -> Media:
    from ..zoo.drawing import draw_sound

    wave, rate = values[0].numpy(), samples.facts["rate"]
    return Sound(encoded(draw_sound(wave, rate)), alt, encode_wave(wave, rate))


def pair(values: list[Any], samples: Samples, i: int, alt: str) -> Media:
    from ..zoo.drawing import draw_pair

    wave, rate = values[1].numpy(), samples.facts["rate"]
    image = draw_pair(picture_of(values[0]), wave, rate)
    return Sound(encoded(image), alt, encode_wave(wave, rate))


def skeleton(values: list[Any], samples: Samples, i: int, alt: str) -> Media:
    from ..zoo.drawing import draw_motion

    frames = len(values[0]) if samples.lengths is None else samples.lengths[i]
    facts = samples.facts
    joints = values[0][:frames].numpy()
    return Picture(encoded(draw_motion(joints, facts["parents"], names=facts["joint_names"])), alt)


def object_(values: list[Any], samples: Samples, i: int, alt: str) -> Media:
    from ..zoo.drawing import draw_object

    return Picture(encoded(draw_object(values[0].numpy(), SIDE)), alt)


DRAWN: dict[type, Callable[[list[Any], Samples, int, str], Media]] = {
    Pictures: picture,
    Clips: film,
    Speech: sound,
    Audiovisual: pair,
    Motion: skeleton,
    Objects: object_,
}
