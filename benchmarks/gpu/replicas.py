"""Replicas of one model on one GPU: samples a second of `geoshrink batch` on a local Ray.

    python benchmarks/gpu/replicas.py --out benchmarks/gpu/replicas.md

Our fruit model, one picture at a time, 50 steps, 10 model calls: small, so that one replica leaves
most of the GPU idle. Needs ray, pyarrow, torchdiffeq and geoshrink-bench.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torchdiffeq import odeint  # at the top: by it geoshrink knows the class below

REPLICAS = (1, 2, 4, 8, 16)
STEPS, BUDGET, PROMPTS = 50, 10, 320
HERE = Path(__file__).resolve()


class Fruit:
    """The model in an ODE solver's loop: a host that geoshrink knows."""

    def __init__(self, device: str) -> None:
        from geoshrink_bench import zoo

        self.model = zoo.load("fruit", device)

    def run(self, label: str, steps: int, seed: int) -> Any:
        velocity = self.model.velocity([label], 3.0)
        sigmas = torch.tensor(self.model.sigmas(steps, 3.0), device=self.model.device)

        def func(t: Any, x: Any) -> Any:
            return velocity(x, float(t))

        with torch.no_grad():
            states: Any = odeint(func, self.model.noise(1, seed), sigmas, method="euler")
        return self.model.made(states[-1].cpu())


def fruit() -> tuple[Fruit, Any]:
    """The builder."""
    made = Fruit("cuda" if torch.cuda.is_available() else "cpu")
    return made, lambda prompt, steps, seed: made.run(prompt, steps, seed)


def measured(replicas: int, prompts: int) -> tuple[float, float]:
    """(samples a second after a first one of each replica, seconds until all were ready)."""
    from geoshrink.batch.on_ray import OnRay
    from geoshrink.batch.prompts import Prompt
    from geoshrink.batch.running import Recipe, jobs_of
    from geoshrink.compare.inputs import Settings

    gpus = 1 / replicas if torch.cuda.is_available() else 0
    with tempfile.TemporaryDirectory() as out:
        settings = Settings("replicas:fruit", ("Kiwi 1",), STEPS, (4,))
        recipe = Recipe(settings, STEPS, {"budget": BUDGET}, out)
        wanted = [Prompt("Kiwi 1", seed) for seed in range(prompts + 2 * replicas)]
        jobs = jobs_of(recipe, wanted)
        crew = OnRay("local", replicas, gpus).open(recipe, lambda: False)
        try:
            began = time.perf_counter()
            list(crew.work(jobs[: 2 * replicas]))
            ready = time.perf_counter() - began
            began = time.perf_counter()
            done = list(crew.work(jobs[2 * replicas :]))
            seconds = time.perf_counter() - began
        finally:
            crew.close()
    assert all("error" not in getattr(each, "said", {"error": ""}) for each in done), done[:1]
    return len(done) / seconds, ready


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE.with_suffix(".md"))
    parser.add_argument("--replicas", type=int, nargs="+", default=REPLICAS)
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    args = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{HERE.parent}:{path}"
    rows, first = [], 0.0
    for replicas in args.replicas:
        rate, ready = measured(replicas, args.prompts)
        first = first or rate
        rows.append(f"| {replicas} | {rate:.1f} | {rate / first:.2f} | {ready:.0f} |")
        print(rows[-1], flush=True)
    cuda = torch.cuda.is_available()
    where = torch.cuda.get_device_name() if cuda else "the CPU"
    head = (
        "# Replicas on one GPU\n\n"
        f"`python benchmarks/gpu/replicas.py`: {args.prompts} pictures of our fruit model (5.9 M\n"
        f"parameters, one at a time, {BUDGET} of {STEPS} calls) through geoshrink.batch on a\n"
        f"local Ray, on {where} with {os.cpu_count()} CPU cores. Encoding and writing included.\n\n"
        "| replicas | samples a second | over one | s until ready |\n|--:|--:|--:|--:|\n"
    )
    args.out.write_text(head + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
