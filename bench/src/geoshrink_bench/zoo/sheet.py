"""Contact sheets: python -m geoshrink_bench.zoo.sheet [NAME …] --out docs/zoo

Samples each model with every call of its solver, from a fixed seed and for a fixed spread of
classes, and writes NAME.webp, NAME.wav where there is sound, NAME-moving.webp where there are
clips, and README.md, a page of all the sheets in the folder.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from .drawing import contact_sheet, notes_of, save_picture
from .model import Model, load
from .recipes import RECIPES

GUIDANCE, SEED = 3.0, 0


def write_sheet(
    model: Model,
    folder: Path,
    notes: dict[str, str],
    steps: int | None = None,
    guidance: float = GUIDANCE,
) -> Path:
    """NAME.webp and what lies beside it, by default with the steps of `judged_at`."""
    folder.mkdir(parents=True, exist_ok=True)
    modality, facts = model.recipe.modality, model.facts.get("data", {})
    labels, lengths = modality.sheet_classes(model.classes), modality.sheet_lengths
    x = model.sample(labels, model.noise(len(labels), SEED), guidance, steps, lengths)
    values, captions = model.parts(x, lengths), labels
    if lengths is not None:
        captions = [f"{label}, {n / facts['fps']:.1f} s" for label, n in zip(labels, lengths)]
    tiles = [
        modality.draw([part[i] for part in values], facts, lengths[i] if lengths else None)
        for i in range(len(labels))
    ]
    path = folder / f"{model.name}.webp"
    save_picture(contact_sheet(tiles, captions, modality.columns), path, notes=notes)
    modality.write_beside(model.decode(x, lengths), facts, path)
    return path


def line_about(model: Model) -> str:
    """The first sentence of the model's card, or its facts where it has no card."""
    text = re.sub(r"\A---\n.*?\n---\n", "", model.card, flags=re.DOTALL)  # what a hub reads
    body = re.sub(r"(?m)^(#.*|\|.*)$", "", text).strip()
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
        legend = recipe.modality.legend
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
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all that are here")
    parser.add_argument("--out", type=Path, default=Path("docs/zoo"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="default: those the model is judged at")
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
        notes = dict(about=line_about(model), command=command)
        path = write_sheet(model, args.out, notes, steps, args.guidance)
        write_page(args.out)
        print(f"{path}  {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
