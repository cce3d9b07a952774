"""Does it hold with size? One architecture, one data set, several sizes, over training time.

    python benchmarks/gpu/sizes.py train --size 56M --data fruits64.npz --out sizes
    python benchmarks/gpu/sizes.py page benchmarks/gpu/sizes.jsonl --out benchmarks/gpu/sizes.md

The network of the zoo, on the latents of fruit-latent's autoencoder, in several sizes. Each is
trained for some minutes; at an eighth, a quarter, a half of the time and at its end the average of
its weights is sampled by every method with the same noise and classes, and compared with its own
full run. The weights are not kept.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geoshrink.learning import Learning
from geoshrink.sampling import sample
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods.registry import METHODS
from geoshrink_bench.zoo.model import Model, load
from geoshrink_bench.zoo.recipes import RECIPES
from geoshrink_bench.zoo.train import encoded, loss_of

SIZES: dict[str, dict[str, int]] = {
    "1.6M": dict(width=128, depth=6, heads=2, condition=64),
    "5.8M": dict(width=256, depth=6, heads=4, condition=96),
    "56M": dict(width=640, depth=10, heads=10, condition=160),
    "171M": dict(width=1024, depth=12, heads=16, condition=256),
}
RATES = {"1.6M": 7e-4, "5.8M": 7e-4, "56M": 3e-4, "171M": 2e-4}
BATCH, DROP, AVERAGE, WARM_UP = 512, 0.1, 0.9995, 300
SHARES = (0.125, 0.25, 0.5, 1.0)  # of the time, at which it is looked at
SAMPLES, TRAINING = 64, 16
BUDGETS = (7, 10, 15, 20)
SETTINGS: dict[str, dict[str, Any]] = {
    "50 steps, guidance 3": dict(steps=50, guidance=3.0, shift=3.0),
    "28 steps, guidance 4.5": dict(steps=28, guidance=4.5, shift=3.0),
}
EARLY = ("direct", "paper", "geoshrink")  # that are looked at before the end, too
LEARNED = "geoshrink, after one exact picture"
NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "direct": ("direct", {}),
    "paper": ("GeoShrink (published)", {}),
    "geoshrink": ("GeoShrink (corrected)", {}),
    "UniPC": ("UniPC, direct grid", {}),
    "AB2": ("AB2, direct grid", {}),
    "MeanCache": ("MeanCache", {}),
    "TeaCache": ("TeaCache", {}),
    "TaylorSeer-Lite, tuned": ("TaylorSeer-Lite", {"warm_up": "tuned"}),
}


def train(size: str, minutes: float, data: Path, device: str, seed: int = 0) -> Iterator[Any]:
    """(share of the time, steps so far, mean loss of the last 500, model) at each of SHARES."""
    torch.manual_seed(seed)
    known = load("fruit-latent", device)
    assert known.autoencoder is not None
    recipe = replace(
        RECIPES["fruit-latent"], network=dict(shape=(4, 16, 16), patch=(2, 2), **SIZES[size])
    )
    pictures = recipe.modality.read(data).to(device)
    latents = encoded(known.autoencoder, recipe, pictures)
    network = recipe.build(len(pictures.classes)).to(device)
    average = copy.deepcopy(network).requires_grad_(False)
    now, mean = tuple(network.parameters()), tuple(average.parameters())
    optimizer = torch.optim.AdamW(now, lr=RATES[size], betas=(0.9, 0.95), fused=True)
    loss_fn = torch.compile(loss_of)
    classes, began, step = len(pictures.classes), time.monotonic(), 0
    losses: list[Tensor] = []
    looked = 0.0  # seconds that were spent on looking
    for share in SHARES:
        while (done := (time.monotonic() - began - looked) / (60 * minutes)) < share:
            falling = 0.5 + 0.5 * math.cos(math.pi * min(1.0, done))
            rate = RATES[size] * min(1, (step + 1) / WARM_UP) * falling
            for group in optimizer.param_groups:
                group["lr"] = rate
            pick = torch.randint(len(pictures.labels), (BATCH,), device=device)
            x0 = (latents[torch.randint(2, (BATCH,), device=device), pick],)
            dropped = torch.rand(BATCH, device=device) < DROP
            label = torch.where(dropped, classes, pictures.labels[pick])
            with torch.autocast("cuda", torch.bfloat16):
                value = loss_fn(network, "flow", x0, label, None)
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            torch.nn.utils.clip_grad_norm_(now, 1.0)
            optimizer.step()
            with torch.no_grad():
                torch._foreach_lerp_(mean, now, 1 - min(AVERAGE, (1 + step) / (10 + step)))  # type: ignore[attr-defined]
            losses = [*losses[-499:], value.detach()]
            step += 1
            if step % 100 == 0:
                torch.cuda.synchronize()
        stopped = time.monotonic()
        facts = {**known.facts, "name": f"fruit-latent, {size}"}
        model = Model(recipe, average.eval(), facts, "", known.autoencoder)
        yield share, step, float(torch.stack(losses).mean()), model
        looked += time.monotonic() - stopped


def cases(model: Model, setting: dict[str, Any], count: int, seed: int, first: int) -> ZooCase:
    labels = [(first + 7 * i) % len(model.classes) for i in range(count)]
    return ZooCase(model, labels, model.noise(count, seed), **setting)


def decibels(x: Tensor, full: Tensor) -> float:
    """10·log10(‖full run‖²/‖error‖²), the mean over samples, in latents."""
    error = (x - full).flatten(1).square().sum(1).clamp_min(1e-20)
    return float((10 * (full.flatten(1).square().sum(1) / error).log10()).mean())


def psnr(model: Model, x: Tensor, full: Tensor) -> float:
    """Of the decoded pictures, the mean over samples."""
    a, b = model.values(x), model.values(full)
    return float((-10 * (a - b).flatten(1).square().mean(1).clamp_min(1e-12).log10()).mean())


def look(model: Model, methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Every one of the methods at every budget."""
    for name, setting in SETTINGS.items():
        case = cases(model, setting, SAMPLES, 1, 0)
        training = cases(model, setting, TRAINING, 2, 3)
        teacher = cases(model, setting, 1, 3, 5)
        for budget in BUDGETS:
            for method in methods:
                known, options = NAMES[method]
                try:
                    made = METHODS[known](dict(options), lambda t=training: [t], budget)
                    outcome = made.run(case, budget)
                except ValueError as error:
                    print(f"{method}, {budget} calls: {error}", file=sys.stderr, flush=True)
                    continue
                yield row(model, name, method, budget, outcome.evaluations, outcome.x, case.full)
            if len(methods) < len(NAMES):
                continue
            learning = Learning()
            how: dict[str, Any] = {"budget": budget, "learn": learning}
            sample(teacher.velocity(), teacher.noise, teacher.grid(), **how)
            x = sample(case.velocity(), case.noise, case.grid(), **how)
            yield row(model, name, LEARNED, budget, budget, x, case.full)


def row(
    model: Model, setting: str, method: str, budget: int, calls: float, x: Tensor, full: Tensor
) -> dict[str, Any]:
    found = dict(setting=setting, method=method, budget=budget, calls=calls)
    return found | dict(db=decibels(x, full), psnr=psnr(model, x, full))


def run_train(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for share, step, loss, model in train(args.size, args.minutes, args.data, "cuda"):
        parameters = sum(p.numel() for p in model.network.parameters())
        facts = dict(size=args.size, parameters=parameters, share=share, steps=step, loss=loss)
        facts |= dict(minutes=args.minutes, device=torch.cuda.get_device_name())
        print(facts, flush=True)
        for found in look(model, [*NAMES] if share == 1 else EARLY):
            lines.append(json.dumps({**facts, **found}))
            (args.out / f"{args.size}.jsonl").write_text("\n".join(lines) + "\n")


# --- the page


def calls_for(points: Sequence[tuple[float, float]], wanted: float) -> float | None:
    """Calls at which a line through (calls, dB) reaches so many dB; None beyond both ends."""
    for (a, x), (b, y) in pairwise(sorted(points)):
        if x <= wanted <= y:
            return a + (b - a) * (wanted - x) / (y - x) if y > x else a
    return None


def page(rows: Sequence[dict[str, Any]]) -> str:
    sizes = [size for size in SIZES if any(r["size"] == size for r in rows)]
    lines = [
        "# Does it hold with size?",
        "",
        (__doc__ or "").split("\n\n")[2].replace("\n", " "),
        "",
        "Made by `benchmarks/gpu/sizes.py`. dB: the full run's energy over the error's in latents, "
        f"mean of {SAMPLES} samples; the full run is the same network's. One {rows[0]['device']}, "
        f"{BATCH} latents a step; networks may have shared the GPU, so steps and loss say how much "
        "each has learnt. One seed of each.",
        "",
        "| network | parameters | minutes | steps | loss at the end |",
        "|---|--:|--:|--:|--:|",
    ]
    for size in sizes:
        last = [r for r in rows if r["size"] == size][-1]
        lines.append(
            f"| {size} | {last['parameters']:,} | {last['minutes']:g} | {last['steps']:,} | "
            f"{last['loss']:.4f} |"
        )
    methods = [*NAMES, LEARNED]
    for setting in SETTINGS:
        lines += ["", f"## {setting}, shift 3", "", *advantage(rows, sizes, setting)]
        lines += ["", "dB at the end of training:", ""]
        lines += [f"| method | calls | {' | '.join(sizes)} |", f"|---|--:|{'--:|' * len(sizes)}"]
        for method in methods:
            for budget in BUDGETS:
                found = [at(rows, size, setting, method, budget) for size in sizes]
                shown = ["–" if db is None else f"{db:.1f}" for db in found]
                lines.append(f"| {method} | {budget} | {' | '.join(shown)} |")
        lines += ["", "dB of geoshrink over direct, by share of the training time (10 calls):", ""]
        lines += [f"| share | {' | '.join(sizes)} |", f"|--:|{'--:|' * len(sizes)}"]
        for share in SHARES:
            pairs = [
                [at(rows, size, setting, m, 10, share) for m in ("geoshrink", "direct")]
                for size in sizes
            ]
            shown = [
                "–" if a is None or b is None else f"{a:.1f} − {b:.1f} = {a - b:+.1f}"
                for a, b in pairs
            ]
            lines.append(f"| {share:g} | {' | '.join(shown)} |")
        lines += ["", "Calls for 30 dB PSNR of the decoded pictures, interpolated:", ""]
        lines += [f"| method | {' | '.join(sizes)} |", f"|---|{'--:|' * len(sizes)}"]
        for method in methods:
            needed = [
                calls_for(
                    [
                        (r["calls"], r["psnr"])
                        for r in rows
                        if (r["size"], r["setting"], r["method"], r["share"])
                        == (size, setting, method, 1.0)
                    ],
                    30,
                )
                for size in sizes
            ]
            shown = ["–" if calls is None else f"{calls:.1f}" for calls in needed]
            lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def advantage(rows: Sequence[dict[str, Any]], sizes: Sequence[str], setting: str) -> list[str]:
    """The conclusion, computed: geoshrink over direct and over the best other, by size."""
    lines = []
    for size in sizes:
        over_direct, over_best, behind = [], [], []
        for budget in BUDGETS:
            own = at(rows, size, setting, "geoshrink", budget)
            direct = at(rows, size, setting, "direct", budget)
            others = {m: at(rows, size, setting, m, budget) for m in NAMES if m != "geoshrink"}
            known = {m: db for m, db in others.items() if db is not None}
            if own is None or direct is None:
                continue
            best = max(known, key=lambda m: known[m])
            over_direct.append(own - direct)
            over_best.append(own - known[best])
            behind += [f"{best} at {budget}"] if known[best] > own else []
        words = f"behind {', '.join(behind)}" if behind else "behind nobody"
        lines.append(
            f"- **{size}**: {statistics.fmean(over_direct):+.1f} dB over direct, "
            f"{statistics.fmean(over_best):+.1f} over the best other at each budget; {words}."
        )
    return lines


def at(
    rows: Sequence[dict[str, Any]],
    size: str,
    setting: str,
    method: str,
    budget: int,
    share: float = 1.0,
) -> float | None:
    wanted = (size, setting, method, budget, share)
    names = ("size", "setting", "method", "budget", "share")
    return next((r["db"] for r in rows if tuple(r[n] for n in names) == wanted), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(required=True)
    trains = commands.add_parser("train")
    trains.add_argument("--size", choices=SIZES, required=True)
    trains.add_argument("--minutes", type=float, default=6.0)
    trains.add_argument("--data", type=Path, required=True)
    trains.add_argument("--out", type=Path, required=True)
    trains.set_defaults(run=run_train)
    pages = commands.add_parser("page")
    pages.add_argument("files", type=Path, nargs="+")
    pages.add_argument("--out", type=Path, required=True)
    pages.set_defaults(
        run=lambda args: args.out.write_text(
            page(
                [
                    json.loads(line)
                    for file in args.files
                    for line in file.read_text(encoding="utf-8").splitlines()
                ]
            ),
            encoding="utf-8",
        )
    )
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
