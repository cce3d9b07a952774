"""The samples that were kept, side by side: pictures, films, sound, skeletons, objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from geoshrink.page import Animation, Comparison, Media, Picture
from geoshrink.page.media import png

from ..page import Sound, encode_wave
from ..samples import Sample
from ..zoo import drawing
from ..zoo.drawing.canvas import encoded
from ..zoo.modalities.pictures import picture_of
from .contests import DIRECT, OURS
from .results import Setting

FPS = 8.0  # of a film, where nothing else is said
WIDEST, EXACT = 512, 128  # pixels of a picture on the page; up to here every pixel is exact


def look(
    setting: Setting, chosen: Sequence[str], most: int | None, tick: Callable[[], Any]
) -> list[Comparison]:
    """A slider between any two methods, where samples were kept; tick() after each method.

    most   so many samples at most, all that were kept unless given
    """
    media: dict[tuple[str, str], Media] = {}
    scores: dict[tuple[str, str], str] = {}
    groups: dict[str, str] = {}
    subjects: list[str] = []
    for shot in setting.shots(most, list(chosen)):
        drawn = {s: medium(sample, f"{s}, {shot.title}") for s, sample in shot.samples.items()}
        if drawn and None not in drawn.values():
            media |= {(s, shot.title): found for s, found in drawn.items() if found}
            scores |= {(s, shot.title): text for s, text in shot.scores.items() if text}
            groups[shot.title] = shot.group
            subjects = subjects or list(drawn)
        tick()
    if len(groups) < 2 or not subjects:
        return []
    ends = [f"{method}, B = {setting.first_budget}" for method in (DIRECT, OURS)]
    heard = any(isinstance(found, Sound) for found in media.values())
    return [
        Comparison(
            "Look and listen" if heard else "Look",
            subjects,
            list(groups),
            media,
            "Drag to wipe between any two; beneath each its distance to the full run.",
            {title: group for title, group in groups.items() if group},
            scores,
            (ends[0], ends[1]) if all(end in groups for end in ends) else None,
        )
    ]


def medium(sample: Sample, alt: str) -> Media | None:
    """Something to look at or listen to; None for what has no picture here."""
    if sample.seen is not None:
        return sample.seen(alt)
    parts, facts = sample.parts, sample.facts
    if "wave" in parts and sample.rate:
        wave = parts["wave"].numpy()
        if "frames" in parts and len(parts["frames"]) == 1:
            seen = drawing.draw_pair(pictures_of(sample)[0], wave, sample.rate)
        else:
            seen = drawing.draw_sound(wave, sample.rate)
        return Sound(encoded(seen), alt, encode_wave(wave, sample.rate))
    if "frames" in parts:
        pictures = pictures_of(sample)
        if len(pictures) > 1:
            return Animation.of(pictures, alt, facts.get("fps") or FPS)
        exact = max(pictures[0].size) <= EXACT
        return Picture(png(pictures[0]) if exact else encoded(pictures[0]), alt)
    if "joints" in parts and "parents" in facts:
        names = facts["joint_names"]
        seen = drawing.draw_motion(parts["joints"].numpy(), facts["parents"], names=names)
        return Picture(encoded(seen), alt)
    if "vertices" in parts:
        return Picture(encoded(picture_of(sample.views[0])), alt)
    return None


def pictures_of(sample: Sample) -> list[Any]:
    """Of the frames, at most WIDEST on either side."""
    scale = 255 if not sample.part("frames").is_floating_point() else 1
    found = [picture_of(frame.float() / scale) for frame in sample.part("frames")]
    for picture in found:
        picture.thumbnail((WIDEST, WIDEST))
    return found
