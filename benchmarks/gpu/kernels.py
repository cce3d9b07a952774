"""Our own cost on a GPU: bandwidth of the two passes, launches of a stage, and our own loop.

    python benchmarks/gpu/kernels.py [--out kernels.jsonl] [--megabytes 256] [--seconds 0.17]

Bandwidth counts the fewest bytes that the operation must move (an anchor reads v, v¹ and Δv and
writes v¹ and Δv; a skipped stage reads v¹ and Δv and writes v̂) over its time, beside that of a
copy. The loop is sample() with a model that keeps the device busy for --seconds a call at FLUX's
output size (1 × 4096 × 64, bfloat16), where waiting for the device is an error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import header, kernels, profiler
from torch import Tensor

import geoshrink
from geoshrink.history import slot
from geoshrink.history.kernels import fused

STEPS, BUDGET = 50, 10
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CUDA = DEVICE == "cuda"


def seconds_of(does: Callable[[], Any], repeats: int = 20) -> float:
    """The median time of a call on the device."""
    found = []
    for _ in range(repeats + 3):
        if not CUDA:
            begun = time.perf_counter()
            does()
            found.append(time.perf_counter() - begun)
            continue
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # a millisecond, in which the host gets ahead
        begin.record()
        does()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(found[3:])


def bandwidth(megabytes: float, dtype: torch.dtype) -> dict[str, Any]:
    count = int(megabytes * 1e6 / dtype.itemsize) // 2048 * 2048
    v, z, dz, x = torch.randn(4, 1, count, device=DEVICE).to(dtype).unbind()
    omega, before = torch.rand(2, 1, device=DEVICE).unbind()
    size, other, unit = v.nbytes, torch.empty_like(v), 1e9

    def rate(passes: int, does: Callable[[], Any]) -> float:
        return passes * size / seconds_of(does) / unit

    def plain() -> Tensor:
        return z + omega * dz

    found = {"megabytes": size / 1e6, "dtype": str(dtype), "copy": rate(2, lambda: other.copy_(v))}
    found["torch skipped stage"] = rate(3, plain)
    found["torch.addcmul"] = rate(3, lambda: torch.addcmul(z, omega, dz, out=torch.empty_like(z)))
    module = fused(v)
    if module is not None:
        wide = torch.promote_types(dtype, torch.float32)
        found["anchor"] = rate(5, lambda: module.anchor(v, z, dz, omega, before, wide))
        found["skipped stage"] = rate(3, lambda: module.combine(z, dz, omega))
        found["collapsed cell"] = rate(4, lambda: module.combine(z, dz, omega, x, 1.0, -0.1))
    return found | {"unit": "GB/s"}


def stages(use: bool) -> dict[str, Any]:
    """Launches and time of an anchor and of a skipped stage of a Run, at FLUX's size."""
    before, shape = slot.fused, (1, 4096, 64)
    if not use:
        slot.fused = lambda like: None
    found: dict[str, Any] = {"kernels": "fused" if use else "torch"}
    try:
        path = torch.randn(STEPS, *shape, device=DEVICE, dtype=torch.bfloat16)
        for turn in range(2):  # the first compiles
            run = geoshrink.Run(SIGMAS, BUDGET)
            host: dict[str, list[float]] = {"anchor": [], "skipped": []}
            for n in range(STEPS):
                kind = "anchor" if run.queries(n) else "skipped"
                profile = profiler(CUDA) if turn and n in (21, 25) else None
                if profile is not None:
                    profile.start()
                if CUDA:
                    torch.cuda.synchronize()
                begun = time.perf_counter()
                _ = run.observe(n, path[n]) if kind == "anchor" else run.predict(n)
                host[kind].append(1e6 * (time.perf_counter() - begun))
                if profile is not None:
                    if CUDA:
                        torch.cuda.synchronize()
                    profile.stop()
                    found[f"{kind}: launches"] = kernels(profile)
            for kind, times in host.items():
                found[f"{kind}: host µs"] = statistics.median(times[3:])
    finally:
        slot.fused = before
    return found


def busy(seconds: float) -> Callable[[Tensor, float], Tensor]:
    """A model that takes the device that long, whatever the host does meanwhile."""
    cycles = 1
    if CUDA:
        torch.cuda._sleep(1000)
        once = seconds_of(lambda: torch.cuda._sleep(50_000_000), 5)
        cycles = int(50_000_000 * seconds / once)

    def velocity(x: Tensor, sigma: float) -> Tensor:
        if CUDA:
            torch.cuda._sleep(cycles)
        else:
            time.sleep(seconds)
        return torch.sin(3 * x) * sigma

    return velocity


def loop(seconds: float) -> dict[str, Any]:
    velocity = busy(seconds)
    x = torch.randn(1, 4096, 64, device=DEVICE, dtype=torch.bfloat16)

    def timed(budget: int, steps: int = STEPS) -> float:
        sigmas = [1 - i / steps for i in range(steps + 1)]
        if CUDA:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        if CUDA:
            torch.cuda.set_sync_debug_mode("error")
        try:
            geoshrink.sample(velocity, x, sigmas, budget)
        finally:
            if CUDA:
                torch.cuda.set_sync_debug_mode("default")
                torch.cuda.synchronize()
        return time.perf_counter() - begun

    timed(BUDGET)
    ours = statistics.median(timed(BUDGET) for _ in range(3))
    direct = statistics.median(timed(BUDGET, BUDGET) for _ in range(3))
    full = timed(STEPS)
    ratio = full / ours / (STEPS / BUDGET)
    return {"full": full, "direct": direct, "ours": ours, "of T/B": ratio, "seconds": seconds}


def graphs() -> dict[str, Any]:
    """sample() inside one CUDA graph, and over a compiled model whose output buffer is reused."""
    if not CUDA:
        return {"error": "needs a GPU"}
    plan = geoshrink.Plan.of(SIGMAS, BUDGET)
    weight = torch.randn(64, 64, device=DEVICE) / 8

    def velocity(x: Tensor, sigma: Any) -> Tensor:
        return torch.tanh(x @ weight) * (1 + sigma)

    x = torch.randn(1, 256, 64, device=DEVICE)
    expected, found = geoshrink.sample(velocity, x, plan=plan), {}
    try:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            geoshrink.sample(velocity, x, plan=plan)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = geoshrink.sample(velocity, x, plan=plan)
        graph.replay()
        found["captured: largest difference"] = float((captured - expected).abs().max())
    except Exception as error:
        found["captured: error"] = f"{type(error).__name__}: {error}"[:300]
    try:
        compiled = torch.compile(velocity, fullgraph=True, mode="reduce-overhead", dynamic=False)
        levels = {s: torch.tensor(s, device=DEVICE) for s in SIGMAS}

        def quick(x: Tensor, sigma: float) -> Tensor:
            return compiled(x, levels[sigma])

        results = [geoshrink.sample(quick, x, plan=plan) for _ in range(3)]
        found["compiled: largest difference"] = float((results[-1] - expected).abs().max())
    except Exception as error:
        found["compiled: error"] = f"{type(error).__name__}: {error}"[:300]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("kernels.jsonl"))
    parser.add_argument("--megabytes", type=float, default=256)
    parser.add_argument("--seconds", type=float, default=0.17)
    args = parser.parse_args()
    if not CUDA:
        torch.set_num_threads(1)

    def write(name: str, does: Callable[[], dict[str, Any]]) -> None:
        try:
            line = {"measure": name, **does()}
        except Exception as error:
            line = {"measure": name, "error": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(line, ensure_ascii=False), flush=True)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    write("machine", header)
    for dtype in (torch.bfloat16, torch.float32):
        write("bandwidth", lambda dtype=dtype: bandwidth(args.megabytes, dtype))
    for use in (True, False):
        write("stage", lambda use=use: stages(use))
    write("our own loop", lambda: loop(args.seconds))
    write("graphs", graphs)


if __name__ == "__main__":
    main()
