"""A million prompts on a thousand GPUs: benchmarks/scale.md.

    python benchmarks/scale.py measure     # what the driver and the store cost here: scale.json
    python benchmarks/scale.py simulate    # the batch on paper, from these costs: scale.md

Seconds of a prompt are those of benchmarks/gpu/RESULTS.md, target_cost.md and quality.md.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from scale_measure import measured, written
from scale_simulation import HOUR, Told, World, simulate

FOLDER = Path(__file__).parent
COSTS = FOLDER / "scale.json"
PROMPTS, GPUS = 1_000_000, 1000
#: Assumed, not measured.
LOAD = 120.0  # seconds until a worker is ready: imports, 34 GB of weights, the first run
AROUND = 0.25  # seconds of text encoders and VAE, which RESULTS.md leaves out
BACK, NOTICED = 600.0, 30.0  # seconds until a lost machine is back; until Ray tells of it
LATENCY, LIMIT = 0.05, 3500.0  # seconds of a request; writes a second under one prefix of S3
LIST, KEYS = 0.1, 1000  # seconds of a request that lists, and how many keys it lists
READERS = 16  # threads of Results.gather
#: 10 of 50 steps with a budget, six runs on an H200 (gpu/target_cost.md), seconds.
RUNS = (1.7986, 1.8007, 1.7996, 1.8047, 1.8084, 1.8157)
CALL = 0.1829  # seconds of a call where a quality is held, same page
#: Seconds of our runs (gpu/RESULTS.md), for the table over models; the last is FLUX unaccelerated.
MODELS = {
    "SD3.5 Medium, 10 of 28": 0.826,
    "FLUX.1-dev, 10 of 50": None,
    "FLUX.1-dev, target_db=30": None,
    "FLUX.1-dev, 50 of 50": 8.721,
    "Wan 2.1 14B, 10 of 50": 15.390,
}
ROW = re.compile(r"^\| [\w-]+ \| 30 \| ([\d.]+) \((\d+) to (\d+)\)", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Plain)
    parser.add_argument("what", choices=("measure", "simulate"))
    parser.add_argument("--only", choices=("store", "prepare", "driver"), help="measure this part")
    parser.add_argument("--costs", type=Path, default=COSTS, help="what was measured")
    parser.add_argument("--out", type=Path, default=FOLDER / "scale.md")
    args = parser.parse_args()
    if args.what == "measure":
        kept = json.loads(args.costs.read_text(encoding="utf-8")) if args.only else {}
        args.costs.write_text(written(kept | measured(args.only or "")), encoding="utf-8")
    else:
        costs = json.loads(args.costs.read_text(encoding="utf-8"))
        args.out.write_text(report(costs), encoding="utf-8")


class Plain(argparse.RawDescriptionHelpFormatter):
    """The text above, as it stands."""


# -- the worlds


def runs() -> tuple[float, ...]:
    """FLUX with a budget of 10: seconds of a prompt."""
    return tuple(each + AROUND for each in RUNS)


def targets() -> tuple[float, ...]:
    """FLUX with a target of 30 dB: the calls of quality.md's samples, all its models mixed, which
    spreads more than one model does.
    """
    rows = ROW.findall((FOLDER / "quality.md").read_text(encoding="utf-8"))
    calls = [float(n) for mean, least, most in rows for n in (least, mean, mean, most)]
    return tuple(n * CALL + AROUND for n in calls)


def seconds_of(model: str) -> tuple[float, ...]:
    if model == "FLUX.1-dev, 10 of 50":
        return runs()
    if model == "FLUX.1-dev, target_db=30":
        return targets()
    return (MODELS[model] + AROUND,)


def driver_seconds(costs: Any, gpus: int, clock: str = "cpu_ms") -> float:
    """Of a job with so many hands, between the numbers that were measured; --workers not given."""
    hands = costs["driver"]["hands"].items()
    return 1e-3 * between(sorted((int(n), each["default"][clock]) for n, each in hands), gpus)


def between(points: Sequence[tuple[float, float]], x: float) -> float:
    """Piecewise linear; beyond the ends as at the nearest end.

    >>> between([(0, 1.0), (2, 3.0)], 1), between([(0, 1.0), (2, 3.0)], 9)
    (2.0, 3.0)
    """
    for (a, low), (b, high) in pairwise(points):
        if x <= b:
            return low + (high - low) * max(0.0, (x - a) / (b - a))
    return points[-1][1]


def world_of(costs: Any, gpus: int = GPUS, model: str = "FLUX.1-dev, 10 of 50") -> World:
    """The batch as it stands: one driver, workers not given, a store like S3."""
    return World(
        PROMPTS,
        gpus,
        seconds_of(model),
        back=BACK,
        noticed=NOTICED,
        load=LOAD,
        encode=1e-3 * costs["store"]["encode_cpu_ms"],
        latency=LATENCY,
        limit=LIMIT,
        driver=driver_seconds(costs, gpus),
    )


told = cache(simulate)


# -- before and after the batch: no simulation, a multiplication


def gather_seconds(costs: Any, prompts: int = PROMPTS) -> dict[str, float]:
    """Parts of Results.gather over a store with this latency."""
    store = costs["store"]
    beside = 1e-3 * max(each["cpu_ms"] for each in store["gather_beside"].values())
    read = max(LATENCY / READERS, 1e-3 * store["gather_row_cpu_ms"] - beside)
    return {
        "listing": 2 * prompts / KEYS * LIST,
        "reading rows": prompts * read,
        "keys and the table": prompts * beside,
    }


def start_ends(gpus: int, failing: float, node_failing: float, first: float = LOAD) -> float:
    """The probability that three workers die, or a node and it is noticed, before the first one is
    ready: the driver then gives up (STARTS).
    """
    deaths = gpus * failing * first / HOUR
    few = math.exp(-deaths) * (1 + deaths + deaths**2 / 2)
    nodes = gpus / World().node * node_failing * max(0.0, first - NOTICED) / HOUR
    return 1 - few * math.exp(-nodes)


# -- the page

PAGE = """# A million prompts on a thousand GPUs, on paper

Made by `python benchmarks/scale.py simulate` from what `python benchmarks/scale.py measure` found
([scale.json](scale.json): {cpu}, {cores} cores shared with other work; load at the beginning
and the end {loads};
Python {python}, Ray {ray}, {date}). [What it means](../docs/scale.md).

No cluster of this size was used. **Measured**: the driver's and the store's costs, here; the GPU's
seconds, on an H200 ([RESULTS.md](gpu/RESULTS.md), [target_cost.md](gpu/target_cost.md)); the calls
of a target ([quality.md](quality.md)). **Assumed**: {assumed}.
**Simulated**: the first three tables, one run each with seed 0, from models loading to the last
prompt. The driver and its machine never fail.

The machine was busy with other work, so what computes counts with its **CPU time**, all threads
together. By the clock most of it took longer here; one row says what that would mean.

## The batch, over GPUs

FLUX.1-dev, 1024², 10 of 50 calls; {prompts:,} prompts; a worker fails with 1 % an hour; `--workers`
not given. Ideal: GPUs do nothing but make samples. Shares are of all GPU time. Each prompt costs
the store two requests (picture, row); one that failed before a third.

{gpus}

The store then holds {files:,} files, {size:.1f} TB; {speed:.1f} GB/s at {n:,} GPUs.

## Over models, {n:,} GPUs

{models}

## Over what may go wrong, or be mended, {n:,} GPUs

FLUX.1-dev, 10 of 50. Rows from "files written" on say what a change would be worth; the code has
none of them, but several drivers can be started by hand.

{cases}

After a CUDA error a worker is replaced and its prompt given to another. Any other error is a row of
its own, and the worker goes on: if it is broken all the same (the GPU's memory taken by another
process), each prompt it takes is written as failed. A second start tries these again. Over {seeds}
seeds {least:,} to {most:,} prompts fail so.

## After the last prompt

`Results.gather`, which every start ends with, from the store above. The driver alone; GPUs are held
no more, but the command has not ended.

{gather}

The driver then holds all rows in memory: {row_memory:.1f} kB each, {memory:.0f} GB for {prompts:,}
(measured with {gathered:,} rows).

## The start

Three workers that die before the first one is ready end the batch; a node that is lost has eight.
All load at the same time, for {load:g} s. The probability that a start ends so (a product, no
simulation):

{starts}

## What was measured

Milliseconds of the driver for a job (`Actors.work`, `account`, `Bar.tick`). Actors answer at
once, but with few hands the driver still waits for them. The first number is the clock's; the
second, which the simulation takes, the CPU of all the driver's threads.
All hands share two actors but in the last
column, where each is a process and they compete for {cores} cores.

{driver}

With 100 hands and {few:,} jobs left {left_few:.2f} ms, with {many:,} {left_many:.2f} ms.

{parts}

Reproduce: `python benchmarks/scale.py measure` (some minutes, a local Ray), then `simulate`.
"""


def report(costs: Any) -> str:
    left, size = costs["driver"]["left"], sum(costs["store"][n] for n in SIZES)
    (few, one), (many, other) = ((int(n), each["wall_ms"]) for n, each in left.items())
    eaten = [told(replace(cases(costs)[BROKEN], seed=seed)).failed for seed in range(SEEDS)]
    return PAGE.format(
        **costs["machine"],
        assumed=assumed(),
        loads=loads(costs),
        prompts=PROMPTS,
        n=GPUS,
        load=LOAD,
        gpus=gpus_table(costs),
        models=models_table(costs),
        cases=cases_table(costs),
        gather=gather_table(costs),
        starts=starts_table(),
        driver=driver_table(costs),
        few=few,
        many=many,
        files=2 * PROMPTS,
        size=1e-12 * PROMPTS * size,
        gathered=max(map(int, costs["store"]["gather_beside"])),
        row_memory=1e-3 * memory_of_row(costs),
        memory=1e-9 * PROMPTS * memory_of_row(costs),
        speed=1e-9 * size * told(world_of(costs)).rate,
        seeds=SEEDS,
        least=min(eaten),
        most=max(eaten),
        left_few=one,
        left_many=other,
        parts=parts_table(costs),
    )


SEEDS, BROKEN = 5, "1 %, half of the failures: another error, and the worker stays broken"
SIZES = ("picture_bytes", "row_bytes")


def memory_of_row(costs: Any) -> float:
    """Bytes of the driver for a row that is gathered, from the largest number of them."""
    beside = costs["store"]["gather_beside"]
    return beside[max(beside, key=int)]["bytes"]


def loads(costs: Any) -> str:
    pairs = ((name, costs[name]["load"]) for name in ("store", "prepare", "driver"))
    return ", ".join(f"{before:g} and {after:g} ({name})" for name, (before, after) in pairs)


def assumed() -> str:
    return (
        f"{LOAD:g} s until a worker is ready; {AROUND:g} s a prompt for text encoders and VAE; "
        f"{LATENCY * 1e3:g} ms a request, {LIMIT:,.0f} writes a second (what S3 states for one "
        f"prefix), {LIST:g} s for a list of {KEYS:,} keys; a lost machine is noticed after "
        f"{NOTICED:g} s and back after {BACK / 60:g} min; eight GPUs a node; a job on a broken "
        f"worker raises after {1e3 * World().quick:g} ms"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["--:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def span(seconds: float) -> str:
    """
    >>> span(42.3), span(2500), span(2e5), span(2e6)
    ('42 s', '41.7 min', '55.6 h', '23.1 days')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / HOUR:.1f} h" if seconds < 100 * HOUR else f"{seconds / HOUR / 24:.1f} days"


def share(part: float, whole: float) -> str:
    """
    >>> share(1, 3), share(2, 100_000), share(0, 3)
    ('33.3 %', '< 0.01 %', '0')
    """
    percent = 100 * part / whole
    if not part:
        return "0"
    if percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.1f} %" if percent >= 0.1 else f"{percent:.2f} %"


def shares(each: Told) -> list[str]:
    whole = each.world.gpus * each.makespan
    parts = (each.lost, each.down, each.loading, each.writing, each.waiting)
    return [share(part, whole) for part in parts]


SHARES = ("made twice", "down", "loading", "writing", "waiting")


def gpus_table(costs: Any) -> str:
    head = ("GPUs", "ideal", "takes", "failures", *SHARES, "driver: jobs/s of most", "requests/s")
    rows = []
    for gpus in (10, 100, 1000, 4000):
        world = world_of(costs, gpus)
        each = told(world)
        driver = f"{each.rate:,.0f} of {1 / world.driver:,.0f}"
        numbers = (f"{gpus:,}", span(each.ideal), span(each.makespan), str(each.deaths))
        rows.append((*numbers, *shares(each), driver, f"{world.requests * each.rate:,.0f}"))
    return table(head, rows)


def models_table(costs: Any) -> str:
    head = ("", "s a prompt", "ideal", "takes", "failures", *SHARES, "jobs/s")
    rows = []
    for model in MODELS:
        each = told(world_of(costs, model=model))
        mean = each.ideal * each.world.gpus / each.world.prompts
        numbers = (f"{mean:.2f}", span(each.ideal), span(each.makespan), str(each.deaths))
        rows.append((model, *numbers, *shares(each), f"{each.rate:,.0f}"))
    return table(head, rows)


def cases(costs: Any) -> dict[str, World]:
    base = world_of(costs)
    nodes = replace(base, node_failing=0.01)
    aside = replace(base, encode=0.0, latency=0.0)
    many = replace(aside, gpus=4000, driver=driver_seconds(costs, 4000))
    split = replace(many, drivers=20, driver=driver_seconds(costs, 200))
    return {
        "nothing fails": replace(base, failing=0.0),
        "1 % an hour": base,
        "and 1 % of the nodes": nodes,
        "10 % an hour, nodes too": replace(base, failing=0.1, node_failing=0.1),
        "1 %, models load in 10 min": replace(base, load=600.0),
        "1 %, half of the failures: a CUDA error": replace(base, broken=0.5),
        BROKEN: replace(base, broken=0.5, known=False),
        "1 %, files written while the next is made": aside,
        "the same, 5 drivers": replace(aside, drivers=5, driver=driver_seconds(costs, GPUS // 5)),
        "4,000 GPUs, written aside": many,
        "the same, the driver by the clock, on this busy machine": replace(
            many, driver=driver_seconds(costs, 4000, "wall_ms")
        ),
        "4,000 GPUs, written aside, 20 drivers": split,
        "the same, two prefixes": replace(split, limit=2 * LIMIT),
    }


def cases_table(costs: Any) -> str:
    head = ("", "takes", "failures", "made again", "failed prompts", *SHARES)
    rows = []
    for name, world in cases(costs).items():
        each = told(world)
        numbers = (span(each.makespan), str(each.deaths), str(each.redone), f"{each.failed:,}")
        rows.append((name, *numbers, *shares(each)))
    return table(head, rows)


def gather_table(costs: Any) -> str:
    sizes = (10_000, 100_000, PROMPTS)
    parts = [gather_seconds(costs, n) for n in sizes]
    rows = [(name, *(span(each[name]) for each in parts)) for name in parts[0]]
    return table(("prompts", *(f"{n:,}" for n in sizes)), rows)


def starts_table() -> str:
    weathers = (0.01, 0.0), (0.01, 0.01), (0.01, 0.01, LOAD / 2)
    rows = [
        (f"{n:,}", *(f"{100 * start_ends(n, *each):.2g} %" for each in weathers))
        for n in (100, 1000, 4000)
    ]
    first = f"the same, the first ready after {LOAD / 2:g} s"
    return table(("GPUs", "workers fail, 1 % an hour", "and nodes, 1 % an hour", first), rows)


def driver_table(costs: Any) -> str:
    driver = costs["driver"]
    hands, real = driver["hands"], driver["processes"]
    rows = []
    for n in sorted({*map(int, hands), *map(int, real)}):
        pairs = [hands.get(str(n), {}).get(kind) for kind in ("given", "default")]
        cells = [shown(each) for each in (*pairs, real.get(str(n)))]
        rows.append((f"{n:,}", *cells))
    head = ("hands", "workers and GPUs given: ms (CPU)", "not given: ms (CPU)", "real processes")
    return table(head, rows)


def shown(each: Any) -> str:
    return "" if each is None else f"{each['wall_ms']:.2f} ({each['cpu_ms']:.2f})"


def parts_table(costs: Any) -> str:
    store, driver = costs["store"], costs["driver"]
    rows = [
        (f"`ray.wait`, one of {int(n):,} has ended", ms(w["one_ms"]))
        for n, w in driver["wait"].items()
    ]
    rows += [
        (f"`ray.wait`, all of {int(n):,} that have ended", ms(w["all_that_ended_ms"]))
        for n, w in driver["wait"].items()
    ]
    rows += [
        (f"`ray.cluster_resources()`, {n} nodes", ms(x))
        for n, x in driver["cluster_resources"].items()
    ]
    rows += [
        ("a PNG of 1024², encoded (CPU)", ms(store["encode_ms"], store["encode_cpu_ms"])),
        ("its size", f"{store['picture_bytes'] / 1e6:.1f} MB"),
        ("a row, made", ms(store["row_ms"])),
        ("its size", f"{store['row_bytes'] / 1e3:.1f} kB"),
        ("`Results.keep` in a folder (two fsyncs)", ms(store["keep_folder_ms"])),
        ("`Results.keep` in memory://", ms(store["keep_memory_ms"])),
        (
            "`Results.gather`, a row of 1,000 in a folder (CPU)",
            ms(store["gather_row_ms"], store["gather_row_cpu_ms"]),
        ),
    ]
    rows += [(f"`Results.names` of {int(n):,} files", ms(x)) for n, x in store["names_ms"].items()]
    rows += [
        (f"`Results.gather` without reading, a row of {int(n):,} (CPU)", ms(x["ms"], x["cpu_ms"]))
        for n, x in store["gather_beside"].items()
    ]
    prepare = costs["prepare"]
    rows += [
        ("a prompt read and hashed, before the start", ms(prepare["ms"])),
        ("memory of the driver for it", f"{prepare['bytes'] / 1e3:.1f} kB"),
    ]
    return table(("", "measured here"), rows)


def ms(x: float, cpu: float | None = None) -> str:
    """
    >>> ms(12.34), ms(12.34, 5.678)
    ('12 ms', '12 ms (5.7)')
    """
    short = [f"{float(f'{each:.2g}'):g}" for each in (x, cpu) if each is not None]
    return f"{short[0]} ms" + "".join(f" ({each})" for each in short[1:])


if __name__ == "__main__":
    main()
