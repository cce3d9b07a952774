"""Motion as stick figures: several instants of a clip side by side, or one that moves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw

from .canvas import INK, PAPER, RULE

LEFT, RIGHT = "#d0662a", "#0b62a4"
FINER, QUICK = 3, 2  # drawn that much larger, then averaged; where it moves
BONE, HALO, HEAD = 0.055, 0.03, 0.1  # metres: thickness, the white around it, the head's radius
GAP, MARGIN, TALL = 0.95, 0.12, 1.7  # metres: between two instants, around all, least height
TURN = math.radians(35)  # by how much the walk comes towards us
WALK = 0.5  # metres; who gets less far is seen from where he faces
TICK = 0.5  # metres between marks on the ground, where the figure moves
FAR = 9.0  # sides of the picture: what a diverged motion draws ends there


def draw_motion(
    joints: np.ndarray,
    parents: Sequence[int],
    size: tuple[int, int] = (780, 150),
    names: Sequence[str] = (),
    instants: int = 10,
) -> Image.Image:
    """The clip (frames, joints, 3), y up, in metres, from its side: time and walk go to the right.

    names   of the joints: L… and R… are drawn in two colours, Head as a disc
    """
    frames = np.linspace(0, len(joints) - 1, instants).round().astype(int)
    joints = np.asarray(joints, dtype=float)
    poses = spread(seen(joints, heading(joints, names))[frames])
    low, high = min(0.0, poses[..., 1].min()), max(TALL, poses[..., 1].max() + HEAD)
    left, right = poses[..., 0].min(), poses[..., 0].max()
    width, height = FINER * size[0], FINER * size[1]
    scale = min(width / (right - left + 2 * MARGIN), height / (high - low + 2 * MARGIN))
    image = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(image)
    ground = height - scale * (MARGIN - low)
    pen.rectangle((0, ground, width, ground + FINER), RULE)
    middle = (left + right) / 2
    for pose in poses:
        x = width / 2 + scale * (pose[:, 0] - middle)
        y = ground - scale * pose[:, 1]
        draw_figure(pen, np.stack([x, y], 1), pose[:, 2], parents, names, scale)
    return image.resize(size, Image.Resampling.BOX)


def moving_figure(
    joints: np.ndarray,
    parents: Sequence[int],
    reference: np.ndarray,
    names: Sequence[str] = (),
    side: int = 320,
    most: int = 48,
) -> list[Image.Image]:
    """The clip as at most `most` pictures of side × side pixels.

    The eye follows the hips of the reference, and its poses are the size of the view: what is
    drawn with the same reference is seen from the same place.
    """
    count = min(most, len(joints))
    way = heading(reference, names)
    poses, followed = (seen(evenly(clip, count), way) for clip in (joints, reference))
    hips = followed[:, :1, 0]
    low, high = min(0.0, followed[..., 1].min()), max(TALL, followed[..., 1].max() + HEAD)
    across = max((high - low) / 2, np.abs(followed[..., 0] - hips).max() + HEAD)
    size = QUICK * side
    scale = size / (2 * across + 2 * MARGIN)
    ground = size / 2 + scale * (high + low) / 2
    places = np.stack([size / 2 + scale * (poses[..., 0] - hips), ground - scale * poses[..., 1]])
    places = places.clip(-FAR * size, FAR * size)
    frames = []
    for x, y, depth, middle in zip(*places, poses[..., 2], hips[:, 0]):
        image = Image.new("RGB", (size, size), PAPER)
        pen = ImageDraw.Draw(image)
        pen.rectangle((0, ground, size, ground + QUICK), RULE)
        reach = size / 2 / scale
        for tick in range(math.ceil((middle - reach) / TICK), int((middle + reach) // TICK) + 1):
            at = size / 2 + scale * (tick * TICK - middle)
            pen.rectangle((at, ground, at + QUICK, ground + 6 * QUICK), RULE)
        draw_figure(pen, np.stack([x, y], 1), depth, parents, names, scale)
        frames.append(image.resize((side, side), Image.Resampling.BOX))
    return frames


def evenly(clip: np.ndarray, count: int) -> np.ndarray:
    """`count` of the frames, from the first to the last."""
    return clip[np.linspace(0, len(clip) - 1, count).round().astype(int)]


def seen(joints: np.ndarray, way: tuple[float, float]) -> np.ndarray:
    """The joints as (to the right, up, towards us), the direction `way` to the right."""
    x, z = way
    forward, beside = np.array([x, 0.0, z]), np.array([-z, 0.0, x])  # beside = forward × up
    right = math.cos(TURN) * forward - math.sin(TURN) * beside
    towards = math.cos(TURN) * beside + math.sin(TURN) * forward
    return joints @ np.stack([right, [0.0, 1.0, 0.0], towards], 1)


def heading(joints: np.ndarray, names: Sequence[str]) -> tuple[float, float]:
    """The unit vector (x, z) of the way, or of where the body faces when it stays."""
    way = joints[-1, 0] - joints[0, 0]
    if math.hypot(way[0], way[2]) < WALK:
        sides = np.array([side(name) for name in names] or [0] * joints.shape[1])
        across = (joints.mean(0) * sides[:, None]).sum(0)  # from the right to the left
        way = np.cross(across, [0.0, 1.0, 0.0])
    length = math.hypot(way[0], way[2])
    return (way[0] / length, way[2] / length) if length > 1e-6 else (1.0, 0.0)


def side(name: str) -> int:
    """+1 on the left, −1 on the right.

    >>> side("LeftHand"), side("RThumb"), side("LowerBack"), side("Hips")
    (1, -1, 0, 0)
    """
    for sign, word in ((1, "Left"), (-1, "Right")):
        if name.startswith(word) or (name[:1] == word[0] and name[1:2].isupper()):
            return sign
    return 0


def spread(poses: np.ndarray) -> np.ndarray:
    """Each pose moved to the right until its hips are at least GAP from those before."""
    poses = poses.copy()
    for before, pose in pairwise(poses):
        lacking = GAP - (pose[0, 0] - before[0, 0])
        pose[:, 0] += max(0.0, lacking)
    return poses


def draw_figure(
    pen: ImageDraw.ImageDraw,
    points: np.ndarray,
    depth: np.ndarray,
    parents: Sequence[int],
    names: Sequence[str],
    scale: float,
) -> None:
    """Bones from the farthest to the nearest, each with a halo that parts it from those behind."""
    bones = [(j, p) for j, p in enumerate(parents) if p >= 0]
    for joint, parent in sorted(bones, key=lambda bone: depth[list(bone)].mean()):
        name = names[joint] if names else ""
        colour = {1: LEFT, -1: RIGHT, 0: INK}[side(name)]
        if name == "Head":
            disc(pen, points[joint], scale * HEAD, colour)
            continue
        a, b = points[parent], points[joint]
        inner = 0.2 * (b - a)  # at its ends a halo would cut the limb
        pen.line([*(a + inner), *(b - inner)], PAPER, round(scale * (BONE + 2 * HALO)))
        pen.line([*a, *b], colour, round(scale * BONE))
        for end in (a, b):
            disc(pen, end, scale * BONE / 2, colour)


def disc(pen: ImageDraw.ImageDraw, centre: np.ndarray, radius: float, colour: str) -> None:
    pen.ellipse([*(centre - radius), *(centre + radius)], colour)
