"""What a stage costs beside the model: benchmarks/overhead.md.

    python benchmarks/overhead.py [--steps 50 --budget 10 --repeats 15]

A real FluxPipeline at 1024 × 1024 (latents 1 × 4096 × 64) whose transformer is a stub that returns
tensors made beforehand, so that the pipeline's own loop is what is timed. The last row, a picture
of 64 × 64, leaves the host's time alone. Plain and accelerated runs alternate in one process. A
step is the time from one callback_on_step_end to the next; each number is the median over the
repeats of the median over a run's steps of that kind. One torch thread: where other work runs on
the same cores, two wait for each other and the clock shows multiples of the scheduler's 8 ms.

The second table is the zoo's fruit model in a loop of one's own: one picture, guidance 3.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import os
import platform
import statistics
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import geoshrink
from geoshrink_bench import zoo

CHANNELS = 64
#: (tokens, dtype): FLUX at 1024 × 1024, and a latent so small that only the host's time is left.
CASES = ((4096, torch.bfloat16), (4096, torch.float32), (16, torch.float32))


class Stub(nn.Module):
    """Answers the n-th call of a run with the n-th of its tensors, which bend slowly."""

    def __init__(self, steps: int, tokens: int, dtype: torch.dtype):
        super().__init__()
        self.dtype, self.device, self.calls = dtype, torch.device("cpu"), 0
        self.config = SimpleNamespace(in_channels=CHANNELS, guidance_embeds=True)
        a, b, c = torch.randn(3, 1, tokens, CHANNELS).unbind()
        times = [n / steps for n in range(steps)]
        self.outputs = [(a + t * b + t * t * c).to(dtype) for t in times]

    def cache_context(self, name: str) -> Any:
        return nullcontext()

    def forward(self, timestep: Tensor, **_: Any) -> tuple[Tensor]:
        self.calls += 1
        return (self.outputs[self.calls % len(self.outputs)],)


def pipeline(steps: int, tokens: int, dtype: torch.dtype) -> Any:
    diffusers: Any = importlib.import_module("diffusers")

    empty = dict.fromkeys(["vae", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2"])
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0)
    transformer = Stub(steps, tokens, dtype)
    pipe = diffusers.FluxPipeline(scheduler=scheduler, transformer=transformer, **empty)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def times(pipe: Any, steps: int, tokens: int, dtype: torch.dtype) -> list[float]:
    """Seconds of every step but the first, which has no step before it."""
    ends: list[float] = []
    size = 16 * math.isqrt(tokens)

    def callback(pipe: Any, n: int, t: Any, tensors: dict) -> dict:
        ends.append(time.perf_counter())
        return {}

    pipe(
        prompt_embeds=torch.zeros(1, 512, 4096, dtype=dtype),
        pooled_prompt_embeds=torch.zeros(1, 768, dtype=dtype),
        height=size,
        width=size,
        num_inference_steps=steps,
        generator=torch.Generator().manual_seed(0),
        output_type="latent",
        callback_on_step_end=callback,
        callback_on_step_end_tensor_inputs=[],
    )
    return [b - a for a, b in itertools.pairwise(ends)]


def measure(args: Any, tokens: int, dtype: torch.dtype) -> dict[str, list[float]]:
    """Per repeat the median milliseconds of a plain step, an exact and a skipped stage."""
    torch.manual_seed(0)
    pipe = pipeline(args.steps, tokens, dtype)
    found: dict[str, list[float]] = {"plain": [], "exact": [], "skipped": []}
    for repeat in range(args.repeats + 1):
        plain = times(pipe, args.steps, tokens, dtype)
        with geoshrink.accelerate(pipe, budget=args.budget, denoisers=["transformer"]) as handle:
            ours = times(pipe, args.steps, tokens, dtype)
            report = handle.report
        assert report is not None and report.evaluations == args.budget, report
        if not repeat:
            continue  # warm-up
        skipped = set(report.predicted)
        found["plain"].append(1e3 * statistics.median(plain))
        for name, kind in (("exact", False), ("skipped", True)):
            part = [s for n, s in enumerate(ours, start=1) if (n in skipped) == kind]
            found[name].append(1e3 * statistics.median(part))
    return found


def fruit(args: Any) -> list[str]:
    """What a Run takes at an anchor and at a skipped stage, beside a call of the model."""
    model = zoo.load("fruit")
    velocity, sigmas, kinds = model.velocity([0], 3.0), model.sigmas(args.steps), {}
    for turn in range(max(2, args.repeats // 5)):
        run, x = geoshrink.Run(sigmas, args.budget), model.noise(1)
        for n in range(run.steps):
            begun = time.perf_counter()
            if queried := run.queries(n, x):
                asked = time.perf_counter()
                v = velocity(x, sigmas[n])
                answered = time.perf_counter()
                run.observe(n, v, x)
                kinds.setdefault("model", []).append(answered - asked)
                begun += answered - asked
            else:
                v = run.predict(n, x)
            if turn:
                spent = time.perf_counter() - begun
                kinds.setdefault("anchor" if queried else "skipped stage", []).append(spent)
            x = x + (sigmas[n + 1] - sigmas[n]) * v
    call = statistics.median(kinds.pop("model"))
    rows = [f"| the model's call | {1e3 * call:.2f} | |"]
    for kind, spent in kinds.items():
        median = statistics.median(spent)
        rows.append(f"| {kind} | {1e3 * median:.3f} | {median / call:.2%} |")
    return ["", "| fruit, 1 × 3 × 64 × 64 | ms | of a call |", "|---|---|---|", *rows]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--budget", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    diffusers: Any = importlib.import_module("diffusers")

    lines = [
        "# What a stage costs beside the model",
        "",
        f"Made by `python benchmarks/overhead.py --steps {args.steps} --budget {args.budget} "
        f"--repeats {args.repeats}` on {os.cpu_count()} cores ({platform.machine()}, "
        f"{torch.get_num_threads()} torch thread), torch {torch.__version__}, diffusers "
        f"{diffusers.__version__}, Python {platform.python_version()}.",
        "",
        *(line for line in (__doc__ or "").splitlines()[4:]),
        "",
        "Milliseconds on the CPU; in brackets the smallest and largest median of a run. The ratio "
        "is the median of the ratios within each pair of runs.",
        "",
        "| latents | plain step | exact stage | skipped stage | skipped − plain | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for tokens, dtype in CASES:
        found = measure(args, tokens, dtype)
        middle = {name: statistics.median(values) for name, values in found.items()}
        cells = [
            f"{middle[name]:.2f} ({min(values):.2f}–{max(values):.2f})"
            for name, values in found.items()
        ]
        more = statistics.median(s - p for s, p in zip(found["skipped"], found["plain"]))
        ratio = statistics.median(s / p for s, p in zip(found["skipped"], found["plain"]))
        kind = str(dtype).removeprefix("torch.")
        lines.append(
            f"| 1 × {tokens} × {CHANNELS} {kind} | " + " | ".join(cells) + f" | {more:+.2f} | "
            f"{ratio:.2f} |"
        )
        print(lines[-1], flush=True)
    lines += fruit(args)
    print(*lines[-3:], sep="\n", flush=True)
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
