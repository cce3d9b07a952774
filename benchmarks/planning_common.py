"""What the planning benchmarks share: settings, calibration and held-out cases, cells in files.

A cell is one model at one guidance and shift. Each is a JSON file in a folder, so a run that was
stopped goes on, and several processes (--shard 1/4 … 4/4) work on one folder; the last one to end
writes the table of all.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from geoshrink import Profile, profile
from geoshrink.outputs import flatten
from geoshrink.planning.tournament import decibels
from geoshrink_bench import foreign
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.models import load
from geoshrink_bench.zoo.model import joined

#: guidance: as judged, then moderate; shift: as judged, then another; budgets: the paper's.
SETTINGS: dict[str, dict[str, Any]] = {
    "fruit": dict(guidance=(3.0, 1.5), shift=(3.0, 1.0), budgets=(7, 10, 15, 20)),
    "motion": dict(guidance=(5.0, 2.0), shift=(1.0, 3.0), budgets=(10, 20, 30, 40)),
    "digits-audio": dict(guidance=(4.5, 2.0), shift=(1.0, 3.0), budgets=(10, 15, 20, 25, 30)),
    "digits-av": dict(guidance=(3.0, 1.5), shift=((12.0, 3.0), (3.0, 1.0)), budgets=(10, 15, 20)),
    "objects": dict(guidance=(7.5, 3.0), shift=(3.0, 1.0), budgets=(10, 12, 15, 18, 20)),
    "fruit-latent": dict(guidance=(4.5, 2.0), shift=(3.0, 1.0), budgets=(7, 10, 14)),
    "fruit-epsilon": dict(guidance=(3.0, 1.5), shift=(1.0, 3.0), budgets=(7, 10, 15, 20)),
    "fruit-x0": dict(guidance=(3.0, 1.5), shift=(3.0, 1.0), budgets=(7, 10, 15, 20)),
    "fruit-video": dict(guidance=(5.0, 2.0), shift=(7.0, 3.0), budgets=(10, 15, 20)),
}
ZOO = list(SETTINGS)
#: Models of others, on the machine or skipped: guidance as judged, then none.
SETTINGS |= {
    name: dict(
        guidance=tuple(dict.fromkeys([recipe.judged_at["guidance"], 1.0])),
        shift=(recipe.judged_at["shift"],),
        budgets=(7, 10, 15, 20),
    )
    for name, recipe in foreign.RECIPES.items()
}
#: So many times fewer samples.
HEAVY = {"fruit-video": 4, "objects": 2, "spectra-21cm": 2, "vitals": 4}

Setting = tuple[str, float, Any]  # model, guidance, shift


def arguments(about: str, folder: str, seeds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--out", type=Path, default=Path(sys.argv[0]).with_suffix(".md"), help="the table, Markdown"
    )
    parser.add_argument("--cells", type=Path, default=Path(folder), help="kept here, gone on with")
    parser.add_argument(
        "--profiles", type=Path, default=Path("cells/profiles"), help="so are these"
    )
    parser.add_argument("--models", nargs="+", default=ZOO, choices=list(SETTINGS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--calibration", type=int, default=32, help="samples of the profile")
    parser.add_argument("--samples", type=int, default=32, help="held out, for each seed")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts of the cells")
    return parser


def settings(models: Sequence[str]) -> list[Setting]:
    return [
        (name, guidance, shift)
        for name in models
        for guidance, shift in itertools.product(
            *(SETTINGS[name][k] for k in ("guidance", "shift"))
        )
    ]


def each(
    args: Any, chosen: Sequence[Setting], work: Callable[..., dict[str, Any]]
) -> list[dict[str, Any]]:
    """work(model, guidance, shift, args) of this shard's missing cells; then all there are."""
    part, parts = map(int, args.shard.split("/"))
    args.cells.mkdir(parents=True, exist_ok=True)
    for name, guidance, shift in chosen[part - 1 :: parts]:
        file = cell_file(args, (name, guidance, shift))
        if not file.exists():
            start = time.time()
            try:
                model = load(name, args.device)
            except foreign.Missing as error:
                print(f"SKIPPED: {error}", file=sys.stderr, flush=True)
                continue
            body = work(model, guidance, shift, args)
            seconds = round(time.time() - start)
            body |= {"setting": [name, guidance, shift], "seconds": seconds, "on": device_of(args)}
            body |= {"samples": args.samples, "seeds": args.seeds}
            beside = file.with_suffix(".part")
            beside.write_text(json.dumps(body), encoding="utf-8")
            beside.replace(file)
            print(f"{file.stem}: {body['seconds']} s", flush=True)
    files = [cell_file(args, setting) for setting in chosen]
    return [json.loads(f.read_text(encoding="utf-8")) for f in files if f.exists()]


def cell_file(args: Any, setting: Setting) -> Path:
    name, guidance, shift = setting
    return args.cells / f"{name}, guidance {guidance:g}, shift {shift}.json"


def profile_of(model: Any, guidance: float, shift: Any, args: Any, **options: Any) -> Profile:
    """The profile of a setting from its calibration samples: from its file, or made now."""
    training = calibration(model, guidance, shift, args)
    file = (
        f"{model.name}, guidance {guidance:g}, shift {shift}, {options.get('target', 'run')}.json"
    )
    return profile(
        training.velocity(),
        training.noise,
        training.grid(),
        model=model.name,
        guidance=guidance,
        file=args.profiles / file,
        quiet=True,
        **options,
    )


def calibration(model: Any, guidance: float, shift: Any, args: Any) -> ZooCase:
    count = max(4, args.calibration // HEAVY.get(model.name, 1))
    labels = [i * len(model.classes) // count for i in range(count)]
    return case_of(model, labels, model.noise(count, seed=10_000), guidance, shift)


def held_out(model: Any, guidance: float, shift: Any, args: Any) -> ZooCase:
    """All seeds in one batch: other labels and other noise than those of the calibration."""
    count, classes = max(2, args.samples // HEAVY.get(model.name, 1)), len(model.classes)
    labels = [
        (2 * i + 1 + seed) * classes // (2 * count) % classes
        for seed in range(args.seeds)
        for i in range(count)
    ]
    noise = joined([model.noise(count, seed=20_000 + seed) for seed in range(args.seeds)])
    return case_of(model, labels, noise, guidance, shift)


def case_of(model: Any, labels: list[int], noise: Any, guidance: float, shift: Any) -> ZooCase:
    interval = model.judged_at.get("interval")
    return ZooCase(model, labels, noise, guidance, None, shift, interval)


def scores(x: Any, goal: Any, seeds: int) -> list[float]:
    """Mean dB of each seed."""
    db = decibels(x, goal)
    assert len(flatten(x)[0][0]) % seeds == 0
    return [float(part.mean()) for part in db.chunk(seeds)]


def shown(values: Sequence[float] | None) -> str:
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def family_of(model: str) -> str:
    """Models of one family know each other's data or were made alike."""
    if model.startswith("fruit"):
        return "fruit"
    kin = ("digits-vit", "digits-cnn", "digits-unet", "digits-latent")
    return "digits" if model in kin else model


def device_of(args: Any) -> str:
    return torch.cuda.get_device_name() if args.device.startswith("cuda") else "a CPU"


def heading(
    about: str, script: str, args: Any, cells: Sequence[dict[str, Any]], asked: int
) -> list[str]:
    where = " and ".join(sorted({cell["on"] for cell in cells}))
    fewer = ", ".join(f"{name}: 1/{n}" for name, n in HEAVY.items() if name in args.models)
    fewer = f" ({fewer} of both)" if fewer else ""
    given = [("models", args.models if args.models != ZOO else None)]
    given += [(name, getattr(args, name, None)) for name in ("budgets", "between")]
    more = "".join(f" --{name} {' '.join(map(str, each))}" for name, each in given if each)
    return [
        f"# {about.splitlines()[0]}",
        "",
        f"Made by `python benchmarks/{script} --calibration {args.calibration} --samples "
        f"{args.samples} --seeds {args.seeds}{more}` on {where}: "
        f"{args.calibration} calibration samples,",
        f"{args.samples} held-out samples for each of {args.seeds} seeds{fewer}.",
        f"{len(cells)} of {asked} settings have run.",
        *about.splitlines()[3:],
        "",
    ]
