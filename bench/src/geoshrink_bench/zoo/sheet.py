"""Contact sheets: python -m geoshrink_bench.zoo.sheet [NAME …] --out docs/zoo

Samples each model with every call of its solver, from a fixed seed and for a fixed spread of
classes, and writes NAME.webp, NAME.wav where there is sound, NAME-moving.webp where there are
clips, and README.md, a page of all the sheets in the folder.
"""

from __future__ import annotations

import argparse
import re
import sys
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from geoshrink.sampling import sample

from .drawing import (
    contact_sheet,
    draw_clip,
    draw_motion,
    draw_object,
    draw_pair,
    draw_sound,
    notes_of,
    save_animation,
    save_picture,
)
from .modalities import Audiovisual, Clips, Motion, Objects, Pictures, Sound
from .model import Model, load
from .recipes import RECIPES

GUIDANCE, SEED = 3.0, 0
MOTIONS = ("walk", "run", "jump", "danc", "kick", "box", "sit", "march")  # known at a glance
FRAMES = (64, 64, 48, 64, 32, 48, 64, 64)
PAUSE = 0.1  # seconds between two words


@dataclass(frozen=True)
class Samples:
    """What was drawn from a model: x for the classes `labels`."""

    model: Model
    x: Any
    labels: list[str]
    lengths: Sequence[int] | None = None

    def decode(self) -> list[Any]:
        return self.model.decode(self.x, self.lengths)

    @property
    def facts(self) -> dict[str, Any]:
        return self.model.facts.get("data", {})


@dataclass(frozen=True)
class Layout:
    """How a modality's samples are shown: how many, in how many columns, and a tile of each."""

    count: int
    columns: int
    tiles: Callable[[Samples], list[Image.Image]]
    legend: str
    extras: Callable[[Samples, Path], None] | None = None  # files beside NAME.webp


def pictures(samples: Samples) -> list[Image.Image]:
    return [image.resize((190, 190), Image.Resampling.BICUBIC) for image in samples.decode()]


def clips(samples: Samples) -> list[Image.Image]:
    return [draw_clip(frames) for frames in samples.decode()]


def sounds(samples: Samples) -> list[Image.Image]:
    return [draw_sound(heard, samples.facts["rate"]) for heard in samples.decode()]


def pairs(samples: Samples) -> list[Image.Image]:
    rate = samples.facts["rate"]
    return [draw_pair(seen, heard, rate) for seen, heard in samples.decode()]


def motions(samples: Samples) -> list[Image.Image]:
    facts = samples.facts
    return [
        draw_motion(joints, facts["parents"], names=facts["joint_names"])
        for joints in samples.decode()
    ]


def objects(samples: Samples) -> list[Image.Image]:
    return [draw_object(field) for field in samples.model.values(samples.x).cpu().numpy()]


def moving(samples: Samples, path: Path) -> None:
    """NAME-moving.webp: every clip, to and fro."""
    turns = [
        [frame.resize((96, 96), Image.Resampling.BICUBIC) for frame in clip]
        for clip in samples.decode()
    ]
    frames = [contact_sheet(frames, [""] * len(turns), 4) for frames in zip(*turns)]
    save_animation([*frames, *frames[-2:0:-1]], path.with_name(f"{path.stem}-moving.webp"))


def spoken(samples: Samples, path: Path) -> None:
    """NAME.wav: every word, one after the other."""
    words = [word[-1] if isinstance(word, tuple) else word for word in samples.decode()]
    rate = samples.facts["rate"]
    pause = np.zeros(int(PAUSE * rate))
    speech = np.concatenate([part for word in words for part in (word, pause)])
    save_wave(speech, rate, path.with_suffix(".wav"))


def save_wave(samples: np.ndarray, rate: int, path: Path) -> None:
    """A mono waveform within ±1 as 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767).round().astype("<i2").tobytes())


SPEECH = "Waveform above, spectrogram from 80 Hz to 4 kHz below, pitch logarithmic."
LAYOUTS: dict[type, Layout] = {
    Pictures: Layout(16, 4, pictures, "64×64 pixels, enlarged."),
    Clips: Layout(8, 1, clips, "Every second of 16 frames.", moving),
    Sound: Layout(10, 2, sounds, SPEECH, spoken),
    Audiovisual: Layout(10, 2, pairs, f"8×8 picture and sound. {SPEECH}", spoken),
    Motion: Layout(
        len(MOTIONS),
        1,
        motions,
        "Ten instants each, time to the right; left limbs orange, right limbs blue, the ground "
        "grey. People are set apart where they would overlap.",
    ),
    Objects: Layout(12, 4, objects, "The zero set of the 32³ signed distance."),
}


def spread(model: Model, count: int) -> list[str]:
    """The classes of the sheet: evenly spaced in the model's list, digits by turns of speakers."""
    classes = model.classes
    if isinstance(model.recipe.modality, Motion):
        return list(MOTIONS[:count])
    if isinstance(model.recipe.modality, (Sound, Audiovisual)):
        people = len(classes) // 10
        return [classes[digit * people + digit % people] for digit in range(10)][:count]
    return [classes[i * len(classes) // count] for i in range(count)]


def draw_samples(model: Model, steps: int | None = None, guidance: float = GUIDANCE) -> Samples:
    """x of the plain solver at the steps (unless given), shift and interval of `judged_at`."""
    labels = spread(model, LAYOUTS[type(model.recipe.modality)].count)
    lengths = None
    if isinstance(model.recipe.modality, Motion):
        lengths = FRAMES[: len(labels)]
    interval = model.judged_at.get("interval")
    velocity = model.velocity(labels, guidance, interval=interval, lengths=lengths)
    grid = model.grid(steps, interval=interval)
    x = sample(velocity, model.noise(len(labels), SEED), grid)
    return Samples(model, x, labels, lengths)


def write_sheet(samples: Samples, folder: Path, notes: dict[str, str]) -> Path:
    """NAME.webp and what lies beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    layout = LAYOUTS[type(samples.model.recipe.modality)]
    captions = samples.labels
    if samples.lengths is not None:
        seconds = [frames / samples.facts["fps"] for frames in samples.lengths]
        captions = [f"{label}, {s:.1f} s" for label, s in zip(captions, seconds)]
    path = folder / f"{samples.model.name}.webp"
    save_picture(contact_sheet(layout.tiles(samples), captions, layout.columns), path, notes=notes)
    if layout.extras is not None:
        layout.extras(samples, path)
    return path


def line_about(model: Model) -> str:
    """The first sentence of the model's card, or its facts where it has no card."""
    body = re.sub(r"(?m)^(#.*|\|.*)$", "", model.card).strip()
    if body:
        paragraph = " ".join(body.split("\n\n")[0].split())
        return re.split(r"(?<=\.)\s", paragraph)[0]
    facts = model.facts
    return (
        f"{facts['parameters']:,} parameters, {len(model.classes)} classes, trained for "
        f"{facts['steps']:,} steps of {facts['batch']} in {facts['seconds']} s on one "
        f"{facts['device']}."
    )


def write_page(folder: Path) -> None:
    """README.md: the sheets of the folder in the order of the recipes."""
    parts = [
        "# What the models of the zoo make",
        f"Samples of the plain solver, every stage a call, from seed {SEED}, for a fixed spread of "
        "each model's classes; no sample was picked, and what a model is bad at is here too. The "
        "command beneath a sheet made it; `python -m geoshrink_bench.zoo.sheet` makes all.",
    ]
    for name, recipe in RECIPES.items():
        path = folder / f"{name}.webp"
        if not path.is_file():
            continue
        notes = notes_of(path)
        legend = LAYOUTS[type(recipe.modality)].legend
        parts += [f"## {name}", notes.get("about", ""), f"![{name}]({path.name})", legend]
        if (folder / f"{name}.wav").is_file():
            parts += [f"Listen: [{name}.wav]({name}.wav), the ten digits in order."]
        if (folder / f"{name}-moving.webp").is_file():
            parts += [f"![{name}, moving]({name}-moving.webp)"]
        if "command" in notes:
            parts += [f"`{notes['command']}`"]
    text = "\n\n".join(part for part in parts if part) + "\n"
    (folder / "README.md").write_text(text, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draws contact sheets of the zoo's models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all whose weights are here")
    parser.add_argument("--out", type=Path, default=Path("docs/zoo"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="those the model is judged at unless given")
    parser.add_argument("--guidance", type=float, default=GUIDANCE)
    args = parser.parse_args(argv)
    for name in args.names or RECIPES:
        try:
            model = load(name, args.device)
        except FileNotFoundError as missing:
            if args.names:
                raise
            print(f"{name} is left out: {missing}", file=sys.stderr)
            continue
        steps = model.judged_at["steps"] if args.steps is None else args.steps
        options = f"--steps {steps} --guidance {args.guidance:g}"
        command = f"python -m geoshrink_bench.zoo.sheet {name} {options}"
        samples = draw_samples(model, steps, args.guidance)
        notes = dict(about=line_about(model), command=command)
        path = write_sheet(samples, args.out, notes)
        write_page(args.out)
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
