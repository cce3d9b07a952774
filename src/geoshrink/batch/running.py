"""run(): a file of prompts through a model, here or on a cluster; a second start does the rest."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import __version__
from ..compare.inputs import Settings, check_amount, check_out
from ..compare.outcomes import progress_bar
from ..files import digest, digest_of_folder
from ..plan import Plan, given_plan
from ..pointers import explained, see
from ..purpose import Purpose
from .jobs import Crew, Done, Engine, Failed, Here, Job
from .prompts import Prompt, is_plain, prompt_of, read_prompts
from .results import ERROR, TABLE, Results
from .samples import Recipe

#: Settings that decide what a sample is; the others say where it is made.
ASKED = ("guidance", "height", "width", "frames", "dtype", "kwargs")
STEPS = 50
MORE = 9  # stages that a scheduler may add to the steps that it is asked for: PNDM's beginning


@dataclass
class Batch:
    """What a run did.

    made      samples of this run
    kept      of runs before
    failed    (key, error)
    left      that were not begun, since it was stopped
    """

    place: str
    total: int
    made: int = 0
    kept: int = 0
    calls: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def left(self) -> int:
        return self.total - self.made - self.kept - len(self.failed)

    def line(self) -> str:
        parts = [f"{self.made} made", f"{self.kept} kept from before"]
        parts += [f"{len(self.failed)} FAILED"] * bool(self.failed)
        parts += [f"{self.left} left"] * bool(self.left)
        return ", ".join(parts)


@explained("batch")
def run(
    model: str,
    prompts: str | Path | Sequence[str | Mapping[str, Any] | Prompt],
    out: str | Path,
    *,
    engine: Engine | None = None,
    seed: int = 0,
    progress: bool = True,
    settings: Mapping[str, Any] | None = None,
    plain: bool = False,
    **options: Any,
) -> Batch:
    """Thousands of prompts through a pipeline.

        run("models/FLUX.1-dev", "prompts.txt", "out", budget=10)
        run("mine:wan", "prompts.jsonl", "s3://bucket/run", engine=OnRay(), target_db=30)

    model      a folder that diffusers saved, or a builder package.module:function
    prompts    a file (text, JSON lines, Parquet) or a list of prompts, or of dicts with prompt,
               seed and arguments of the call
    out        a folder, or an fsspec address; a sample and its row are named by the hash of all
               that decides them, so that a second start makes what is missing, and tries what
               failed again
    engine     where: in this process, batch.OnProcesses(workers) or batch.OnRay(…)
    seed       of the first prompt that has none; each other gets the next
    settings   steps, guidance, height, width, frames, dtype, device, kwargs, as in compare; without
               steps those that a plan is for, or 50
    plain      do not accelerate
    options    of accelerate(): budget, speedup, target_db, plan, learn, rule, …
    """
    wanted = wanted_of(prompts, seed)
    texts = tuple(dict.fromkeys(each.text for each in wanted if each.text is not None))
    given: dict[str, Any] = dict(settings or {})
    asked = None if plain else check_options(options)
    steps = given.pop("steps", None)
    steps = steps_of(asked) if steps is None else steps
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps must be a whole number from 1 on, got {steps!r}")
    source = str(Path(model).resolve()) if Path(model).is_dir() else model
    place = str(out) if "://" in str(out) else str(Path(out).resolve())
    own = Settings(source, texts[:1], max(5, steps), (4,), **given)
    names = tuple(sorted({name for each in wanted for name in each.call}))
    check_plan(asked, steps, own.guidance)
    recipe = Recipe(own, steps, asked, place, names)
    jobs = jobs_of(recipe, wanted)
    results = Results(str(out))
    if not results.remote:
        check_out(Path(results.root) / TABLE)
    names = results.names()
    done, failed = results.done(names), results.done(names, ERROR)
    missing = [tried(job, failed) for job in jobs if job.key not in done]
    batch = Batch(str(out), len(jobs), kept=len(jobs) - len(missing))
    with stopping() as stop:
        crew = (engine or Here()).open(recipe, stop.is_set)
        try:
            with Bar(batch, crew, progress) as shown:
                for event in crew.work(missing):
                    account(batch, event, results)
                    shown.tick()
        finally:
            crew.close()
    results.gather(job.key for job in jobs)
    return batch


def tried(job: Job, failed: set[str]) -> Job:
    """Says whether it failed before."""
    return replace(job, what={**job.what, "again": job.key in failed})


def wanted_of(prompts: Any, seed: int) -> list[Prompt]:
    if isinstance(prompts, (str, Path)):
        return read_prompts(str(prompts), seed)
    found = []
    for i, each in enumerate(prompts):
        row = {"prompt": each} if isinstance(each, str) else each
        whole = isinstance(row, Prompt)
        found.append(row if whole else prompt_of(row, seed + i, f"prompt {i + 1}"))
    if not found:
        raise ValueError("there are no prompts")
    return found


def check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """What accelerate() is given; a plan file is read here, since workers may not have it."""
    amounts = [name for name in ("budget", "speedup", "target_db", "plan") if name in options]
    if len(amounts) != 1:
        told = ", ".join(f"{name}={options[name]!r}" for name in amounts) or "none"
        raise ValueError(f"give one of budget, speedup, target_db and plan, got {told}")
    check_amount(*(options.get(name) for name in ("budget", "speedup", "target_db")))
    plan = options.get("plan")
    return {**options, "plan": read_plan(plan)} if isinstance(plan, (str, Path)) else dict(options)


def read_plan(file: str | Path) -> Any:
    """What JSON says in a plan's file; a ValueError that names the file if it is no plan."""
    Plan.load(file)
    return json.loads(Path(file).read_text("utf-8"))


def steps_of(options: Mapping[str, Any] | None) -> int:
    """Those that a plan is for; 50 where it does not say, and without one."""
    plan = given_plan(options["plan"]) if options and "plan" in options else None
    return (plan.purpose.steps if plan is not None and plan.purpose else None) or STEPS


def check_plan(options: Mapping[str, Any] | None, steps: int, guidance: float | None) -> None:
    """Refuses a plan for other runs, before any model is loaded. What is known only then, the
    scheduler, the network and the very stages, accelerate() compares.
    """
    if options is None or (given := options.get("plan")) is None:
        return
    purpose = given_plan(given).purpose or Purpose()
    more = purpose.steps is not None and purpose.steps > steps + MORE  # fewer: some skip the first
    known = Purpose(steps=steps if more else None, guidance=guidance)
    if difference := purpose.difference(known):
        raise see(ValueError(difference), "fit")


def jobs_of(recipe: Recipe, wanted: Sequence[Prompt]) -> list[Job]:
    """One for each sample that is asked for; the same asked for twice is one."""
    facts = asdict(recipe.settings)
    common = {name: facts[name] for name in ASKED} | {"steps": recipe.steps}
    common |= {"model": model_of(recipe.settings.model), "version": __version__}
    options = recipe.options
    if options is not None:
        options = {k: v if is_plain(v) else str(v) for k, v in options.items()}
    common["options"] = options
    jobs = {}
    for each in wanted:
        asked = {"prompt": each.text, "seed": each.seed, "call": dict(each.call)}
        key = digest({**common, **asked})[:24]
        jobs[key] = Job(key, {"key": key, **asked}, cost_of(each.call))
    return list(jobs.values())


def cost_of(call: Mapping[str, Any]) -> float:
    """As compared with the others of the batch: the dearest are begun first."""
    sizes = (call.get(name) for name in ("height", "width", "num_frames"))
    return math.prod(float(size) for size in sizes if isinstance(size, (int, float)) and size > 0)


def model_of(source: str) -> str:
    """What tells a model from another before it is loaded: its folder, or a builder's name."""
    return digest_of_folder(Path(source)) if Path(source).is_dir() else source


def account(batch: Batch, event: Done | Failed, results: Results) -> None:
    """What a job came to; one whose worker died has no row of its own yet."""
    if isinstance(event, Failed):
        asked = event.job.what
        row = {name: asked[name] for name in ("key", "prompt", "seed")}
        results.fail({**row, "call": json.dumps(asked["call"]), "error": event.error})
        batch.failed.append((event.job.key, event.error.strip().splitlines()[-1]))
    elif "error" in event.said:
        batch.failed.append((event.job.key, event.said["error"]))
    else:
        batch.made += 1
        batch.calls += event.said["calls"]


class Stop:
    """A plain flag: an Event's lock would wait for itself if a second signal came in between."""

    asked = False

    def is_set(self) -> bool:
        return self.asked


@contextmanager
def stopping() -> Iterator[Stop]:
    """Set by the first Ctrl-C or SIGTERM: what is begun is finished; a second one ends at once."""
    stop, before = Stop(), {}

    def on_signal(number: int, frame: Any) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    if threading.current_thread() is threading.main_thread():
        before = {n: signal.signal(n, on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Bar:
    """Samples a second, GPU-hours, and when it ends."""

    def __init__(self, batch: Batch, crew: Crew, shown: bool):
        self.batch, self.crew, self.shown = batch, crew, shown
        self.began = time.perf_counter()

    def __enter__(self) -> Bar:
        tqdm = progress_bar("batch")
        start = {"total": self.batch.total, "initial": self.batch.kept}
        self.bar = tqdm(**start, unit="sample", disable=not self.shown, smoothing=0.05)
        return self

    def tick(self) -> None:
        self.bar.update()
        hours = self.crew.gpu_seconds / 3600
        failed = len(self.batch.failed)
        words = [f"{failed} failed"] if failed else []
        words += [f"{hours:.2f} GPU-hours"] if hours else []
        self.bar.set_postfix_str(", ".join(words))

    def __exit__(self, *exception: object) -> None:
        self.batch.seconds = time.perf_counter() - self.began
        self.bar.close()
