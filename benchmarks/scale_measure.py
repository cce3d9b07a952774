"""What a batch costs beside the model, measured on this machine: benchmarks/scale.json.

The driver is the library's own: Actors.work, account and Bar of geoshrink.batch. For more hands
than this machine can hold processes, all hands share two actors that answer at once; the driver
sees as many actors, references and answers as on a cluster.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

HANDS = (1, 10, 100, 1000, 4000)
PROCESSES = (1, 2, 4, 8)
JOBS_LEFT = (2_000, 200_000)
FILES = (10_000, 100_000)
ROWS = 1000
GATHERED = (10_000, 50_000)
NODES = (1, 4, 8)
REPEATS = 3
SAID = {"key": "0" * 24, "calls": 10, "seconds": 1.75}
PROMPT = "a red fox asleep in deep snow under a birch, early light, photographed from a low angle"


def measured(only: str = "") -> dict[str, Any]:
    """Everything, or one part; some minutes."""
    parts = {"store": store, "prepare": prepare, "driver": driver}
    found: dict[str, Any] = {"machine": machine()}
    for name, measure in parts.items():
        if only in ("", name):
            before = os.getloadavg()[0]
            found[name] = measure()
            found[name]["load"] = [round(x, 1) for x in (before, os.getloadavg()[0])]
    return found


def machine() -> dict[str, Any]:
    from importlib.metadata import version

    packages = {name: version(name) for name in ("ray", "fsspec", "pyarrow", "pillow")}
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **packages,
        "date": date.today().isoformat(),
    }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def clocked(act: Callable[[], Any], times: int) -> float:
    """Seconds of one act, the median."""
    return both(act, times)[0]


def both(act: Callable[[], Any], times: int) -> tuple[float, float]:
    """Seconds of one act, by the clock and of the CPU in all threads: medians."""
    walls, cpus = [], []
    for _ in range(times):
        began, cpu = time.perf_counter(), time.process_time()
        act()
        walls.append(time.perf_counter() - began)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


# -- the driver


class Echo:
    """An actor that answers at once, to any number of calls."""

    async def ready(self) -> None: ...

    async def do(self, what: Any) -> Any:
        return SAID

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Nothing:
    """A worker that does nothing; an actor of the library makes it."""

    def __call__(self, what: Any) -> Any:
        return SAID


def driver() -> dict[str, Any]:
    from geoshrink.batch.on_ray import connected

    ray = connected("local", {"num_cpus": max(PROCESSES)})
    echo = ray.remote(num_cpus=0, max_concurrency=10_000)(Echo)
    shared = [echo.remote() for _ in range(2)]
    ray.get([actor.ready.remote() for actor in shared])
    found = {
        "hands": {
            n: {"given": driven(ray, shared, n, True), "default": driven(ray, shared, n, False)}
            for n in HANDS
        },
        "left": {n: driven(ray, shared, 100, True, left=n) for n in JOBS_LEFT},
        "wait": {n: wait(ray, shared[0], n) for n in (1, 100, 1000)},
        "processes": {n: processes(n) for n in PROCESSES},
    }
    ray.shutdown()
    return {**found, "cluster_resources": {n: elsewhere(f"resources_of({n})") for n in NODES}}


def driven(
    ray: Any, shared: Sequence[Any], hands: int, given: bool, left: int = 0
) -> dict[str, float]:
    """Milliseconds per job of the driver, with actors that answer at once.

    given   the number of workers was given (--workers); else the cluster is asked for its room
    """
    from geoshrink.batch.on_ray import Actors, OnRay

    class Dealer:
        """Deals the shared actors out in turn."""

        def __init__(self) -> None:
            self.dealt = 0

        def remote(self, *_: Any) -> Any:
            self.dealt += 1
            return shared[self.dealt % len(shared)]

    class Crowd(Actors):
        dealer = Dealer()

        def remote(self) -> Any:
            return self.dealer

        def room(self) -> int:
            super().room()
            return hands

        def close(self) -> None:
            self.hands, self.idle = {}, []

    many = max(500, 3 * hands)  # whole rounds: a round takes all that have ended

    def once() -> tuple[float, float]:
        engine = OnRay("local", workers=hands if given else None, gpus=0 if given else None)
        crew = Crowd(engine, ray, Nothing, lambda: False)
        return timed(crew, many, skip=hands, left=left)

    walls, cpus = zip(*(once() for _ in range(REPEATS)))
    return {"wall_ms": statistics.median(walls), "cpu_ms": statistics.median(cpus)}


def timed(crew: Any, many: int, skip: int, left: int = 0) -> tuple[float, float]:
    """Wall and CPU milliseconds of the driver per job, over `many` jobs after the first `skip`."""
    from geoshrink.batch import Batch, Job
    from geoshrink.batch.running import Bar, account

    count = skip + many + left
    what = {"prompt": PROMPT, "seed": 0, "call": {}}
    batch = Batch("nowhere", count)
    events = crew.work([Job(f"{i:024x}", {"key": f"{i:024x}", **what}) for i in range(count)])
    gc.collect()
    with Bar(batch, crew, False) as bar:
        for _ in islice(events, skip):
            pass
        began, cpu = time.perf_counter(), time.process_time()
        for event in islice(events, many):
            account(batch, event, results=None)  # pyright: ignore[reportArgumentType]
            bar.tick()
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    events.close()
    crew.close()
    return 1e3 * wall / many, 1e3 * cpu / many


def processes(count: int) -> dict[str, float]:
    """The same with real actors, each a process that does nothing."""
    from geoshrink.batch.on_ray import OnRay

    crew = OnRay("local", workers=count, gpus=0).open(Nothing, lambda: False)
    wall, cpu = timed(crew, 1000, skip=500)
    return {"wall_ms": wall, "cpu_ms": cpu}


def wait(ray: Any, actor: Any, count: int) -> dict[str, float]:
    """Milliseconds of ray.wait where one of so many has ended."""
    refs = [actor.pause.remote(20) for _ in range(count - 1)] + [actor.do.remote(None)]
    time.sleep(0.5)
    first = clocked(lambda: ray.wait(refs, timeout=5), 11)
    drain = clocked(lambda: ray.wait(refs, num_returns=len(refs), timeout=0), 11)
    time.sleep(0.1)
    return {"one_ms": 1e3 * first, "all_that_ended_ms": 1e3 * drain}


def elsewhere(call: str) -> Any:
    """What a function of this file returns in a process of its own."""
    code = f"import json, scale_measure; print(json.dumps(scale_measure.{call}))"
    given: dict[str, Any] = dict(cwd=Path(__file__).parent, capture_output=True, text=True)
    made = subprocess.run([sys.executable, "-c", code], timeout=300, check=True, **given)
    return json.loads(made.stdout.splitlines()[-1])


def resources_of(nodes: int) -> float:
    """Milliseconds of ray.cluster_resources() in a cluster of so many nodes."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(nodes - 1):
        cluster.add_node(num_cpus=0, num_gpus=8)
    ray.init(address=cluster.address, log_to_driver=False)
    found = 1e3 * clocked(ray.cluster_resources, 101)
    ray.shutdown()
    cluster.shutdown()
    return found


# -- the store


def store() -> dict[str, Any]:
    from geoshrink.batch.results import Results, table_bytes

    picture, encode, encode_cpu = pictured()
    row = {**row_of(0), "report": report_text()}
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        here, memory = Results(folder), Results("memory://scale")
        found: dict[str, Any] = {
            "picture_bytes": len(picture),
            "encode_ms": encode,
            "encode_cpu_ms": encode_cpu,
            "row_bytes": len(table_bytes([row])),
            "row_ms": 1e3 * clocked(lambda: table_bytes([row]), 51),
            "keep_folder_ms": 1e3
            * clocked(lambda: here.keep(row, picture, ".png", again=False), 51),
            "keep_memory_ms": 1e3 * clocked(lambda: memory.keep(row, picture, ".png", False), 51),
        }
    found |= listing(table_bytes([row]))
    return {**found, "gather_beside": {n: elsewhere(f"gathered({n})") for n in GATHERED}}


def row_of(i: int) -> dict[str, Any]:
    facts = {"key": f"{i:024x}", "prompt": PROMPT, "seed": i, "call": "{}", "calls": 10}
    return {**facts, "seconds": 1.75, "estimated_db": 28.1, "made": "NVIDIA H200"}


def listing(row: bytes) -> dict[str, Any]:
    """gather() of rows in a folder, per row; names() of many files."""
    from geoshrink.batch.results import ROW, Results

    found: dict[str, Any] = {"names_ms": {}}
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        results, place, there = Results(folder), Path(folder), 0
        for i in range(ROWS):
            (place / f"{i:024x}{ROW}").write_bytes(row)
        keys = [f"{i:024x}" for i in range(ROWS)]
        wall, cpu = both(lambda: results.gather(keys), 3)
        found |= {"gather_row_ms": 1e3 * wall / ROWS, "gather_row_cpu_ms": 1e3 * cpu / ROWS}
        for files in FILES:
            for i in range(max(there, ROWS), files):
                (place / f"{i:024x}{ROW}").touch()
            there = files
            found["names_ms"][files] = 1e3 * clocked(results.names, 3)
    return found


def gathered(count: int) -> dict[str, float]:
    """gather() without reading: keys, threads and the table. Milliseconds and bytes per row."""
    from geoshrink.batch.results import ROW, Results

    class Kept(Results):
        """Rows that are in memory already; the table is made, and not written."""

        def names(self) -> set[str]:
            return there

        def row(self, key: str, kind: str = ROW) -> dict[str, Any]:
            return {**facts, "key": key, "report": key + report}

        def write(self, name: str, content: bytes) -> None: ...

    facts, report = row_of(0), report_text()
    keys = [f"{i:024x}" for i in range(count)]
    there = {f"{key}{suffix}" for key in keys for suffix in (ROW, ".png")}
    results = Kept("memory://scale")
    results.gather(keys[:10])  # imports pyarrow
    before = resident()
    wall, cpu = both(lambda: results.gather(keys), 1)
    grown = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"ms": 1e3 * wall / count, "cpu_ms": 1e3 * cpu / count, "bytes": grown / count}


def pictured() -> tuple[bytes, float, float]:
    """A PNG of 1024² as the library writes it, and its milliseconds (clock, CPU): noise with
    the spectrum of photographs (amplitude 1/f), rounded to bytes.
    """
    import torch
    from PIL import Image

    from geoshrink.compare.pictures import png

    torch.manual_seed(0)
    f = torch.fft.fftfreq(1024)
    radius = (f[:, None] ** 2 + f[None, :] ** 2).sqrt().clamp_min(1 / 1024)
    values = torch.fft.ifft2(torch.fft.fft2(torch.randn(4, 1024, 1024)) / radius).real
    values = 0.9 * values[:1] + 0.3 * values[1:]  # the colours go together
    values = (0.5 + 0.18 * values / values.std()).clamp(0, 1)
    image = Image.fromarray((255 * values).round().byte().movedim(0, -1).numpy())
    wall, cpu = both(lambda: png(image, optimize=False), 5)
    return png(image, optimize=False), 1e3 * wall, 1e3 * cpu


def report_text() -> str:
    """A report of 10 of 50 calls, as it stands in a row."""
    import torch

    from geoshrink import sample

    sigmas = [1 - i / 50 for i in range(51)]
    torch.manual_seed(0)
    x, told = sample(
        lambda x, s: x.sin() * (1 + s), torch.randn(1, 64), sigmas, budget=10, with_report=True
    )
    del x
    return str(told)


def prepare() -> dict[str, float]:
    """Per prompt, before the first is begun: milliseconds, and bytes that stay."""
    from geoshrink.batch.prompts import prompt_of
    from geoshrink.batch.running import jobs_of, tried
    from geoshrink.batch.samples import Recipe
    from geoshrink.compare.inputs import Settings

    count = 50_000
    recipe = Recipe(Settings("models:flux", (PROMPT,), budgets=(4,)), 50, {"budget": 10}, "out")
    gc.collect()
    before = resident()
    began = time.perf_counter()
    wanted = [prompt_of({"prompt": f"{PROMPT} {i}"}, i, "") for i in range(count)]
    jobs = jobs_of(recipe, wanted)
    missing = [tried(job, set()) for job in jobs]
    seconds = time.perf_counter() - began
    grown = resident() - before
    assert len(jobs) == len(missing) == count
    return {"ms": 1e3 * seconds / count, "bytes": grown / count}


def resident() -> int:
    """Bytes of memory that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * resource.getpagesize()


def written(found: Any, digits: int = 4) -> str:
    """JSON with numbers of a few digits."""

    def short(x: Any) -> Any:
        if isinstance(x, dict):
            return {str(name): short(value) for name, value in x.items()}
        return float(f"{x:.{digits}g}") if isinstance(x, float) else x

    out = io.StringIO()
    json.dump(short(found), out, indent=2)
    return out.getvalue() + "\n"
