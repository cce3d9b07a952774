"""What a request costs inside geoshrink, and what a server gains: benchmarks/serving.md.

    python benchmarks/serving.py [--repeats 100 --requests 8]

Overhead: requests to a pipeline whose network takes next to no time, one after the other, made as
examples/serve.py makes them: a copy of the pipeline, attach, run, report, way back. geoshrink's
handlers are timed, and the network's and the scheduler's own calls subtracted. "Request" is what
comes once: attach, reading the scheduler, the first stage with the plan, the report, the way back.
"From outside" checks it without any of our clocks inside: the whole accelerated request, less a
plain one, plus the network calls that were saved; it includes the way to our handlers. A new grid
is one that was not planned before: its mesh must be searched. All of it is CPU time of the one
thread, so that other work on the same cores does not count.

Throughput: examples/serve.py in a process of its own with the fruit model, two runs at once, one
torch thread; clients that ask again as soon as they have an answer. Exact and accelerated blocks
alternate; the ratio is of the two within one turn. This is the clock on the wall: other work on
the same cores shows.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
ASKED = ("budget=7", "budget=10", "target_db=30")
STEPS, TURNS, LABELS = (20, 50), 3, ("Kiwi 1", "Apple 10")


def request(serve: Any, pipe: Any, policy: Any, asked: str, steps: int) -> float:
    """Seconds of one request without the network around it."""
    call = {"prompt": "a", "num_inference_steps": steps}
    call["generator"] = torch.Generator().manual_seed(0)
    call["callback_on_step_end"] = lambda *_: {}
    began = time.thread_time()
    serve.make(pipe, policy, asked, call)
    return time.thread_time() - began


def network_call(pipe: Any) -> float:
    """Seconds of one stage's two calls of the network."""
    x, t, spent = torch.randn(1, 8, 4), torch.tensor(500.0), []
    with torch.no_grad():
        for _ in range(500):
            began = time.thread_time()
            for _ in range(2):
                pipe.transformer(x, t, x[0, 0])
            spent.append(time.thread_time() - began)
    return statistics.median(spent)


def overhead(repeats: int) -> list[str]:
    support: Any = importlib.import_module("serving")  # of tests/support
    serve, pipe = support.load_example("serve"), support.toy()
    pipe.set_progress_bar_config(disable=True)
    policy, call = support.Policy(), network_call(pipe)
    lines = ["| steps | asked | calls | exact stage | skipped stage | request | from outside |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for steps in STEPS:
        for asked in ASKED:
            for _ in range(5):
                request(serve, pipe, policy, asked, steps)
            outside, inside, calls = [], [], told(serve, pipe, policy, asked, steps)["calls"]
            watch = support.Stopwatch()
            for _ in range(repeats):
                plain = request(serve, pipe, policy, "exact", steps)
                whole = request(serve, pipe, policy, asked, steps)
                outside.append(whole - plain + (steps - calls) * call)
                before = sum(map(sum, watch.spent.values()))
                with watch:
                    request(serve, pipe, policy, asked, steps)
                inside.append(sum(map(sum, watch.spent.values())) - before)
            cells = [f"{middle:.2f} / {late:.2f}" for _, _, middle, late in watch.rows()]
            both = [f"{1e3 * statistics.median(each):.1f}" for each in (outside, inside)]
            cells.append(f"{both[0]}, by parts {both[1]}")
            lines.append(f"| {steps} | {asked} | {calls} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return [*lines, "", *new_grids(support, serve, pipe, policy)]


def told(serve: Any, pipe: Any, policy: Any, asked: str, steps: int) -> dict[str, Any]:
    call = {"num_inference_steps": steps, "generator": torch.Generator().manual_seed(0)}
    return serve.make(pipe, policy, asked, call)[1]


def new_grids(support: Any, serve: Any, pipe: Any, policy: Any) -> list[str]:
    """Requests each of which has a number of steps that none before it had."""
    found = {}
    for asked, lengths in (("budget=9", range(21, 61)), ("target_db=31", range(61, 101))):
        policy.options(asked)
        with support.Stopwatch() as watch:
            for steps in lengths:
                request(serve, pipe, policy, asked, steps)
        _, count, middle, late = watch.rows()[-1]
        found[asked] = f"{asked}, {lengths[0]}–{lengths[-1]} steps: {middle:.1f} / {late:.1f}"
        found[asked] += f" of {count}"
    print(*found.values(), sep="\n", flush=True)
    return [f"A request over a new grid: {'; '.join(found.values())}."]


def throughput(requests: int) -> list[str]:
    """Pictures per minute, exact and accelerated, by the number of clients."""
    support: Any = importlib.import_module("serving")
    command = [sys.executable, str(ROOT / "examples/serve.py"), "--port", "0", "--runs", "2"]
    alone, pipes = {**os.environ, "OMP_NUM_THREADS": "1"}, (subprocess.PIPE, subprocess.DEVNULL)
    lines = ["| clients | exact | speedup=3 | ratio |", "|---|---|---|---|"]
    with subprocess.Popen(command, env=alone, stdout=pipes[0], stderr=pipes[1]) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().decode().rsplit(":", 1)[1])
            support.ask(port, fields(0), "speedup=3")
            for clients in (1, 2, 4, 8):
                turns = [block(support, port, clients, requests) for _ in range(TURNS)]
                rates = [statistics.median(column) for column in zip(*turns)]
                ratios = ", ".join(f"{fast / exact:.2f}" for exact, fast in turns)
                lines.append(f"| {clients} | {rates[0]:.0f} | {rates[1]:.0f} | {ratios} |")
                print(lines[-1], flush=True)
        finally:
            process.terminate()
    return lines


def fields(number: int) -> dict[str, Any]:
    return {"labels": LABELS[number % 2], "seed": number, "num_inference_steps": 20}


def block(support: Any, port: int, clients: int, requests: int) -> tuple[float, float]:
    """(exact, accelerated) pictures per minute."""

    def rate(asked: str) -> float:
        began = time.perf_counter()
        with ThreadPoolExecutor(clients) as pool:
            answers = pool.map(lambda n: support.ask(port, fields(n), asked)[0], range(requests))
            assert [*answers] == [200] * requests
        return 60 * requests / (time.perf_counter() - began)

    return rate("exact"), rate("speedup=3")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--requests", type=int, default=8, help="in a block of the throughput")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests/support"))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("geoshrink").setLevel(logging.ERROR)
    diffusers: Any = importlib.import_module("diffusers")
    lines = [
        "# What a request costs inside geoshrink, and what a server gains",
        "",
        f"Made by `python benchmarks/serving.py --repeats {args.repeats} --requests "
        f"{args.requests}` on {os.cpu_count()} cores ({platform.machine()}; load average "
        f"{os.getloadavg()[0]:.1f} before), torch {torch.__version__}, diffusers "
        f"{diffusers.__version__}, Python {platform.python_version()}.",
        "",
        *(__doc__ or "").splitlines()[4:],
        "",
        "## Overhead",
        "",
        "Milliseconds, p50 / p99. Latents 1 × 8 × 4, guidance by two calls, Euler's scheduler.",
        "",
        *overhead(args.repeats),
        "",
        "## Throughput",
        "",
        "Pictures per minute, median of the turns; fruit, 20 steps, guidance 3. speedup=3 is 7 of "
        "20 stages, which is at most 2.86 times as many pictures.",
        "",
        *throughput(args.requests),
    ]
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
