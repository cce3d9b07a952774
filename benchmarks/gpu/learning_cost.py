"""What an exact run that teaches costs beyond the plain one, and the first run after it.

    python benchmarks/gpu/learning_cost.py --out benchmarks/gpu/learning_cost.md

A stand-in for a model: products of matrices that take as long as asked, on outputs of the size of a
1024² picture's latents in FLUX and of a film's in HunyuanVideo. Each run is timed after one of its
kind; ratios are to the plain run of 50 calls, the median of five.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import geoshrink
from geoshrink.learning.sketch import Sketch

SIZES = {
    "picture, 262,144 coordinates": (1, 4096, 64),
    "film, 7,603,200 coordinates": (1, 16, 33, 90, 160),
}
STEPS, BUDGET, WIDTH = 50, 10, 6144
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]


class Model(torch.nn.Module):
    def __init__(self, device: str, times: int):
        super().__init__()
        drawn = torch.randn(WIDTH, WIDTH, device=device, dtype=torch.bfloat16)
        self.weight, self.times = torch.nn.Parameter(drawn / WIDTH**0.5, False), times

    def forward(self, x: torch.Tensor, sigma: float) -> torch.Tensor:
        h = self.weight
        for _ in range(self.times):
            h = h @ self.weight
        return torch.tanh(3 * x * (1 + sigma)) + x + 0 * h[0, 0].float()


def seconds(model: Model, x: torch.Tensor, **options: Any) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    geoshrink.sample(model, x, SIGMAS, **options)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="What an exact run that teaches costs.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--times", type=int, default=20, help="products of matrices in a call")
    args = parser.parse_args()
    model = Model(args.device, args.times)
    lines = [
        f"# {str(__doc__).splitlines()[0]}",
        "",
        f"Made by `python benchmarks/gpu/learning_cost.py --times {args.times}` on "
        f"{torch.cuda.get_device_name()}.",
        "",
        *str(__doc__).splitlines()[4:],
        "",
        "| outputs | a plain call | exact run that teaches | first run after it, 10 calls of 50 | "
        "runs after that | host memory |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for words, shape in SIZES.items():
        x = torch.randn(shape, device=args.device)
        found: dict[str, list[float]] = {"plain": [], "exact": [], "first": [], "next": []}
        for i in range(6):
            learning = geoshrink.Learning()
            times = [seconds(model, x)]
            times += [seconds(model, x, budget=BUDGET, learn=learning) for _ in range(3)]
            for own, t in zip(found.values(), times):
                own += [t] * (i > 0)
        plain = statistics.median(found["plain"])
        ratios = [
            statistics.median(a / b for a, b in zip(found[name], found["plain"]))
            for name in ("exact", "first", "next")
        ]
        held = Sketch(STEPS + 3, [x.numel()], torch.device("cpu")).bytes / 2**20
        values = " | ".join(f"{ratio:.3f}" for ratio in ratios)
        lines.append(f"| {words} | {1000 * plain / STEPS:.1f} ms | {values} | {held:.0f} MiB |")
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
