"""First truth: the models of the zoo, the published method and ours, over budget, shift, guidance.

    python benchmarks/zoo.py [NAME …] --device cuda     (minutes on a GPU; --quick on a CPU)

Fidelity to the full run from the same noise, Euler (DDIM for fruit-epsilon), mean ± sd over five
seeds of the mean over 32 samples: PSNR of pictures and clips in dB, SI-SDR of sound in dB, the
mean distance of a joint in centimetres, the mean error of the signed distance in thousandths of an
object's half size. Settings are the model's own (steps, guidance, shift from the paper's
counterpart) and one other of each. Results are kept in zoo.json beside the table, model by model:
a run of one model keeps the others' rows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoshrink import sample, zoo
from geoshrink.bench.metrics.audio import si_sdr
from geoshrink.bench.metrics.image import psnr
from geoshrink.bench.metrics.motion import mpjpe
from geoshrink.bench.metrics.shape import sdf_error

METHODS: dict[str, dict[str, Any]] = {
    "published": dict(anchors="geometric", rule="chordal"),
    "σ-geometric": dict(anchors="sigma", rule="chordal"),
    "σ-geometric, signed (default)": dict(anchors="sigma", rule="signed chordal"),
}
LENGTHS = (40, 64)  # frames of motions, in turn
#: model: budgets, guidance scales, shifts
SETTINGS: dict[str, tuple[tuple[int, ...], tuple[float, ...], tuple[Any, ...]]] = {
    "fruit": ((7, 10, 15, 20), (1.5, 3.0), (1.0, 3.0)),
    "fruit-latent": ((7, 10, 15), (2.0, 4.5), (1.0, 3.0)),
    "fruit-epsilon": ((7, 10, 15, 20), (1.5, 3.0), (1.0, 3.0)),
    "fruit-x0": ((7, 10, 15, 20), (1.5, 3.0), (1.0, 3.0)),
    "fruit-video": ((10, 15, 20), (2.0, 5.0), (3.0, 7.0)),
    "digits-audio": ((10, 15, 20, 25, 30), (2.0, 4.5), (1.0, 3.0)),
    "digits-av": ((10, 15, 20), (1.5, 3.0), ((3.0, 1.0), (12.0, 3.0))),
    "motion": ((10, 20, 30, 40), (2.0, 5.0), (1.0, 3.0)),
    "objects": ((10, 12, 15, 18, 20), (3.0, 7.5), (1.0, 3.0)),
}


def centimetres(joints: Tensor, reference: Tensor) -> Tensor:
    return 100 * mpjpe(joints, reference, lengths_of(len(joints)))


def lengths_of(count: int) -> list[int]:
    return [LENGTHS[i % 2] for i in range(count)]


def thousandths(fields: Tensor, reference: Tensor) -> Tensor:
    return 1000 * sdf_error(fields, reference)


Metric = tuple[str, bool, Callable[[Tensor, Tensor], Tensor]]  # name, whether more is better


def metrics_of(model: zoo.Model) -> list[Metric]:
    """One metric per tensor of a sample."""
    sound, pictures = ("SI-SDR, dB", True, si_sdr), ("PSNR, dB", True, psnr)
    special: dict[str, list[Metric]] = {
        "digits-audio": [sound],
        "digits-av": [pictures, sound],
        "motion": [("MPJPE, cm", False, centimetres)],
        "objects": [("SDF error, ‰", False, thousandths)],
    }
    return special.get(model.name, [pictures])


def parts_of(model: zoo.Model, x: Any) -> list[Tensor]:
    values = model.values(x, lengths_of(len(x)) if model.name == "motion" else None)
    parts = list(values) if isinstance(values, tuple) else [values]
    return [p.transpose(1, 2).flatten(0, 1) if p.ndim == 5 else p for p in parts]  # clips: frames


class Setting:
    """One model at one guidance, shift and interval: every method at every budget."""

    def __init__(self, model: zoo.Model, guidance: float, shift: Any, interval: Any, size: Any):
        self.model, self.shift, self.interval = model, shift, interval
        self.samples, self.seeds = size
        count = self.samples * self.seeds
        order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
        labels = [i * len(model.classes) // count for i in order]
        more: dict[str, Any] = {}
        if model.name == "motion":
            more["lengths"] = lengths_of(count)
        self.velocity = model.velocity(labels, guidance, interval=interval, **more)
        noise = [model.noise(self.samples, seed=100 + s) for s in range(self.seeds)]
        joint = isinstance(noise[0], tuple)
        self.noise = tuple(map(torch.cat, zip(*noise))) if joint else torch.cat(noise)
        self.metrics = metrics_of(model)
        self.full = parts_of(model, self.run(None))

    def run(self, steps: int | None, budget: int | None = None, **options: Any) -> Any:
        grid = self.model.grid(steps, self.shift, self.interval)
        return sample(self.velocity, self.noise, grid, budget, **options)

    def score(self, x: Any) -> list[dict[str, float]]:
        """mean and sd over seeds, one per metric."""
        found = []
        for (_, _, metric), part, full in zip(self.metrics, parts_of(self.model, x), self.full):
            each = metric(part, full).double().reshape(self.seeds, -1).mean(1)
            sd = float(each.std()) if self.seeds > 1 else 0.0
            found.append({"mean": float(each.mean()), "sd": sd})
        return found

    def rows(self, budgets: tuple[int, ...]) -> dict[str, list[list[dict[str, float]]]]:
        rows: dict[str, Any] = {name: [] for name in ("direct", *METHODS)}
        for budget in budgets:
            rows["direct"].append(self.score(self.run(budget)))
            for name, options in METHODS.items():
                rows[name].append(self.score(self.run(None, budget, **options)))
        return rows


def judge(name: str, args: Any) -> dict[str, Any]:
    model = zoo.load(name, args.device, args.folder)
    budgets, scales, shifts = SETTINGS[name]
    interval = model.judged_at.get("interval")
    cases = [(g, s, None) for g in scales for s in shifts]
    if interval is not None:
        own = model.judged_at
        cases.append((own["guidance"], own["shift"], interval))
    began, settings = time.time(), []
    for guidance, shift, window in cases:
        setting = Setting(model, guidance, shift, window, args.size)
        rows = setting.rows(budgets)
        settings.append(dict(guidance=guidance, shift=shift, interval=window, rows=rows))
        print(f"{name}: guidance {guidance:g}, shift {shift}, {time.time() - began:.0f} s")
    device = torch.cuda.get_device_name() if args.device.startswith("cuda") else "a CPU"
    return dict(
        steps=model.judged_at["steps"],
        budgets=budgets,
        metrics=[(label, more) for label, more, _ in metrics_of(model)],
        settings=settings,
        size=args.size,
        made=f"{args.size[0]} samples × {args.size[1]} seeds on {device} in "
        f"{time.time() - began:.0f} s, torch {torch.__version__}",
        weights=model.facts["sha256"][:12],
    )


def table(name: str, result: dict[str, Any]) -> list[str]:
    lines = [
        f"\n## {name}, T = {result['steps']}\n",
        f"{result['made']}; weights {result['weights']}.",
    ]
    for setting in result["settings"]:
        for i, (label, more) in enumerate(result["metrics"]):
            means = {
                method: [cell[i]["mean"] for cell in cells]
                for method, cells in setting["rows"].items()
            }
            best = [(max if more else min)(column) for column in zip(*means.values())]
            title = f"guidance {setting['guidance']:g}, shift {setting['shift']}"
            title += f", in σ {setting['interval']} only" if setting["interval"] else ""
            lines += [f"\n{title}: {label} {'↑' if more else '↓'}\n"]
            lines += ["| method | " + " | ".join(f"B = {b}" for b in result["budgets"]) + " |"]
            lines += ["|---|" + "---|" * len(result["budgets"])]
            for method, cells in setting["rows"].items():
                texts = []
                for cell, top in zip(cells, best):
                    text = f"{cell[i]['mean']:.2f}"
                    text = f"**{text}**" if cell[i]["mean"] == top else text
                    texts.append(f"{text} ± {cell[i]['sd']:.2f}")
                lines.append(f"| {method} | " + " | ".join(texts) + " |")
    return lines


def summary(results: dict[str, Any]) -> list[str]:
    """In how many cells each of our methods is nearer to the full run than direct."""
    lines = ["| model | cells | " + " | ".join(METHODS) + " |", "|---|--:|" + "--:|" * len(METHODS)]
    for name, result in results.items():
        wins, cells = dict.fromkeys(METHODS, 0), 0
        for setting in result["settings"]:
            for b in range(len(result["budgets"])):
                for i, (_, more) in enumerate(result["metrics"]):
                    cells += 1
                    direct = setting["rows"]["direct"][b][i]["mean"]
                    for method in METHODS:
                        ours = setting["rows"][method][b][i]["mean"]
                        wins[method] += ours > direct if more else ours < direct
        lines.append(f"| {name} | {cells} | " + " | ".join(str(w) for w in wins.values()) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="The first table of the zoo.")
    parser.add_argument("names", nargs="*", default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/zoo.md"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", type=Path, help="of the models' weights")
    parser.add_argument("--quick", action="store_true", help="4 samples, one seed")
    args = parser.parse_args()
    args.size = (4, 1) if args.quick else (32, 5)
    kept = args.out.with_suffix(".json")
    results = json.loads(kept.read_text()) if kept.is_file() else {}
    for name in args.names:
        results[name] = judge(name, args)
        results = {key: results[key] for key in SETTINGS if key in results}
        kept.write_text(json.dumps(results) + "\n")
    missing = [name for name in SETTINGS if name not in results]
    head = [
        "# The models of the zoo: first truth",
        "",
        "Made by `python benchmarks/zoo.py`.",
        "",
        *(sys.modules["__main__"].__doc__ or "").splitlines()[4:],
        "Cells in which a method is nearer to the full run than direct step reduction:",
        "",
        *summary(results),
        *(["", f"Not run yet: {', '.join(missing)}."] if missing else []),
    ]
    body = [line for name, result in results.items() for line in table(name, result)]
    args.out.write_text("\n".join([*head, *body]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
