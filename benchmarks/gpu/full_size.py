"""Speed on full-size models, through their own pipelines: benchmarks/gpu/RESULTS.md.

    python benchmarks/gpu/full_size.py [--models flux sd3 wan hunyuan] [--out results.jsonl]
    python benchmarks/gpu/full_size.py --report results.jsonl        # RESULTS.md from what was kept
    python benchmarks/gpu/full_size.py --tiny                        # the same code on a CPU

Per model: direct (as many steps as the budget), ours, ours with corrected cells ("corrected"),
full, then the rivals at the same number of evaluations. Every line is written as soon as it is
measured, and what fails or no longer fits in the model's time is written as such. Seconds are wall
time from the call of the pipeline until the device is idle. What a skipped stage costs the host is
seen on a small latent, where nothing hides it: the time from one callback_on_step_end to the next,
the device idle at the start of each.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import header, kernels, profiler
from methods import RIVALS, Context, corrected, ours, plain
from models import MODELS, Model, build
from results import report

Method = Callable[[Any, int, int], Context]
EXTRA = 60.0  # seconds that direct, ours and full may take beyond a model's share
ATTENTION = ("_native_cudnn", "native")


class Bench:
    """One model: its pipeline, its clock, and the file its lines go to."""

    def __init__(
        self,
        name: str,
        args: argparse.Namespace,
        write: Callable[[dict], None],
        deadline: Callable[[], float],
    ):
        self.deadline = deadline
        self.name, self.model, self.cuda = name, MODELS[name], torch.cuda.is_available()
        self.write, self.rivals, self.begun = write, args.rivals, time.perf_counter()
        self.limit = args.limit or self.model.seconds
        self.pipe, self.call, self.small = build(name, args.tiny, "cuda" if self.cuda else "cpu")
        self.wait()
        if args.tiny:
            self.model = Model(self.model.title, 12, 6, 60, 2, self.model.make)
        self.counted = 0
        last = [m for n, m in self.pipe.transformer.named_modules() if n.endswith("attn1.to_q")]
        last = last or [
            m for n, m in self.pipe.transformer.named_modules() if n.endswith("attn.to_q")
        ]
        last[-1].register_forward_pre_hook(self.count)
        self.marks: dict[
            str, tuple[float, Any]
        ] = {}  # the first call and the last, host and device
        self.pipe.transformer.register_forward_pre_hook(lambda *_: self.mark("first"))
        self.pipe.transformer.register_forward_hook(lambda *_: self.mark("last"))

    def count(self, *_: Any) -> None:
        self.counted += 1

    def mark(self, name: str) -> None:
        if self.cuda and (name == "last" or name not in self.marks):
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks[name] = time.perf_counter(), event

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def left(self, extra: float = 0.0) -> float:
        """Seconds of the model's share, of which what matters most may use more."""
        return min(self.limit + extra - (time.perf_counter() - self.begun), self.deadline())

    def run(self, call: dict[str, Any], steps: int, **more: Any) -> None:
        device = "cuda" if self.cuda else "cpu"
        self.pipe(
            **call,
            num_inference_steps=steps,
            generator=torch.Generator(device).manual_seed(0),
            output_type="latent",
            **more,
        )

    def timed(self, method: Method, steps: int) -> dict[str, Any]:
        """Seconds, evaluations and peak memory of one run."""
        with method(self.pipe, steps, self.model.budget) as handle:
            gc.collect()
            self.wait()
            if self.cuda:
                torch.cuda.reset_peak_memory_stats()
            self.marks.clear()
            self.counted, begun = 0, time.perf_counter()
            self.run(self.call, steps)
            self.wait()
            seconds = time.perf_counter() - begun
            peak = torch.cuda.max_memory_allocated() if self.cuda else 0
            report = getattr(handle, "report", None)
        found = {"seconds": seconds, "evaluations": self.counted, "peak_bytes": peak}
        if self.marks:  # nothing runs on the device before the first call
            before = self.marks["first"][0] - begun
            calls = self.marks["first"][1].elapsed_time(self.marks["last"][1]) / 1e3
            found |= {"before": before, "calls": calls, "after": seconds - before - calls}
        return found | ({} if report is None else {"held_bytes": report.bytes_held})

    def stages(self, method: Method) -> dict[str, Any]:
        """Host µs and kernel launches of a skipped stage, on a small latent."""
        steps = self.model.steps
        skipped: list[float] = []
        launches: list[int] = []
        state: dict[str, Any] = {"since": 0.0, "profile": None, "seen": 0, "warm": False}

        def callback(pipe: Any, n: int, t: Any, tensors: dict) -> dict:
            now = time.perf_counter()
            ran, state["seen"] = self.counted > state["seen"], self.counted
            if state["profile"] is not None:
                self.wait()
                state["profile"].stop()
                if not ran:
                    launches.append(kernels(state["profile"]))
                state["profile"] = None
            elif n and not ran:
                skipped.append(1e6 * (now - state["since"]))
            self.wait()
            if state["warm"] and not ran and not launches and len(skipped) > 2 and n < steps - 1:
                state["profile"] = profiler(self.cuda)
                state["profile"].start()
            state["since"] = time.perf_counter()
            return {}

        extra = {"callback_on_step_end": callback, "callback_on_step_end_tensor_inputs": []}
        for state["warm"] in (False, True):
            skipped.clear()
            with method(self.pipe, steps, self.model.budget):
                self.counted = state["seen"] = 0
                self.run(self.small, steps, **extra)
        if not skipped:
            return {}
        found: dict[str, Any] = {"host_us": statistics.median(skipped)}
        return found | ({"launches": statistics.median(launches)} if launches else {})

    def bare(self) -> dict[str, Any]:
        """Host µs and launches of a step of the pipeline whose transformer costs nothing."""
        transformer, outputs = self.pipe.transformer, {}

        def stub(hidden_states: Any, **_: Any) -> Any:
            shape = hidden_states.shape
            if shape not in outputs:
                outputs[shape] = torch.zeros_like(hidden_states)
            return (outputs[shape],)

        transformer.forward = stub
        try:
            return self.stages(plain)
        finally:
            del transformer.forward

    def measure(
        self, name: str, seconds: float, does: Callable[[], dict[str, Any]], extra: float = 0.0
    ) -> Any:
        """Writes one line: what was measured, or why it was not."""
        line: dict[str, Any] = {"model": self.name, "method": name}
        left = self.left(extra)
        if seconds > left:
            line |= {"error": f"not run: {seconds:.0f} s do not fit in {left:.0f} s"}
        else:
            try:
                line |= does()
            except Exception as error:
                line |= {"error": f"{type(error).__name__}: {error}"[:400]}
        self.write(line)
        return line.get("seconds")

    def attention(self) -> dict[str, Any]:
        """The faster kernel for videos, whose attention is most of the run; images keep torch's."""
        if "num_frames" not in self.call or not self.cuda:
            return {"attention": "native"}
        found = {}
        for backend in ATTENTION:
            try:
                self.pipe.transformer.set_attention_backend(backend)
                self.run(self.call, 1)
                self.wait()
                begun = time.perf_counter()
                self.run(self.call, 1)
                self.wait()
                found[backend] = time.perf_counter() - begun
            except Exception as error:
                print(f"  {backend}: {error}"[:200], flush=True)
        best = min(found, key=lambda backend: found[backend])
        self.pipe.transformer.set_attention_backend(best)
        return {"attention": best, "seconds_of_a_step": found}

    def go(self) -> None:
        steps, budget = self.model.steps, self.model.budget
        torch.manual_seed(0)
        self.measure("built", 0, lambda: {"built": time.perf_counter() - self.begun})
        self.measure("attention", 0, self.attention)
        for method in (ours, corrected):  # compiles what is compiled at the first use of a size
            with method(self.pipe, 8, 4):
                self.run(self.call, 8)
        direct = self.measure("direct", 0, lambda: self.timed(plain, budget)) or 1.0
        self.measure("ours", direct, lambda: self.timed(ours, steps), EXTRA)
        self.measure("corrected", direct, lambda: self.timed(corrected, steps), EXTRA)
        for _ in range(self.model.repeats - 1):
            self.measure("direct", direct, lambda: self.timed(plain, budget))
            self.measure("ours", direct, lambda: self.timed(ours, steps))
            self.measure("corrected", direct, lambda: self.timed(corrected, steps))
        self.measure("full", direct * steps / budget, lambda: self.timed(plain, steps), EXTRA)
        self.measure("stage: pipeline alone", 2, self.bare, EXTRA)
        self.measure("stage: ours", 3, lambda: self.stages(ours), EXTRA)
        self.measure("stage: corrected", 3, lambda: self.stages(corrected), EXTRA)
        for name, method in RIVALS.items() if self.rivals else ():  # the last leaves traces
            self.measure(name, 1.5 * direct, lambda m=method: self.timed(m, steps))
            self.measure(f"stage: {name}", 5, lambda m=method: self.stages(m))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--limit", type=float, help="seconds for each model")
    parser.add_argument("--deadline", type=float, default=1e9, help="seconds for all of them")
    parser.add_argument("--no-rivals", dest="rivals", action="store_false")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"))
    parser.add_argument("--report", type=Path, help="write the page from this file, and stop")
    parser.add_argument("--page", default="RESULTS.md", help="beside this script")
    args = parser.parse_args()
    if args.report:
        Path(__file__).with_name(args.page).write_text(report(args.report), encoding="utf-8")
        return
    warnings.simplefilter("ignore")
    if args.tiny:
        torch.set_num_threads(1)

    def write(line: dict[str, Any]) -> None:
        print(json.dumps(line), flush=True)
        with args.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def deadline() -> float:
        return args.deadline - (time.perf_counter() - begun)

    begun = time.perf_counter()
    write(header())
    for name in args.models:
        if deadline() < 30:
            write({"model": name, "method": "built", "error": "not run: no time was left"})
            continue
        try:
            Bench(name, args, write, deadline).go()
        except Exception as error:
            write({"model": name, "method": "built", "error": f"{type(error).__name__}: {error}"})
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
