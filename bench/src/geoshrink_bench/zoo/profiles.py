"""Profiles that come with the zoo's models, beside their weights: NAME.profile.json.

    geoshrink plan motion --samples 32 --out motion.json     # or benchmarks/planning.py
    python -m geoshrink_bench.zoo.profiles motion motion.json "geoshrink plan motion --samples 32"

Each is made at its model's judged setting, is stored in single precision, and names the command and
the weights that it was made from. zoo_plan() uses it if it fits, else warns and gives the default.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from geoshrink.batch.jobs import Engine
from geoshrink.batch.spread import parts_of, spread
from geoshrink.grid import Grid
from geoshrink.plan import Plan
from geoshrink.planning import Profile, plan_for, profile
from geoshrink.planning.gains import STAGES, gain_stages
from geoshrink.planning.profiling import Models
from geoshrink.planning.runs import check_budget
from geoshrink.planning.tournament import Source

from .model import Model, find, load

SAMPLES = 16


def shipped(name: str) -> Profile | None:
    """The profile that comes with a model; None if there is none or it is of other weights."""
    file = place(name)
    if file is None or not file.is_file():
        return None
    found = Profile.load(file)
    if found.made and weights_of(name) not in found.made:
        words = f"{file} was made from other weights than those beside it, and is not used"
        warnings.warn(words, UserWarning, stacklevel=2)
        return None
    return found


def fitted(name: str, grid: Grid, guidance: float) -> tuple[Profile | None, str]:
    """(the profile that comes with a model, ""), or (None, why it does not fit the run)."""
    found = shipped(name)
    if found is None:
        return None, f"there is none for {name}"
    reason = found.misfit(grid, guidance, name)
    return (found, "") if reason is None else (None, reason)


def place(name: str) -> Path | None:
    try:
        return Path(str(find(name, None))) / f"{name}.profile.json"
    except FileNotFoundError:
        return None


def zoo_plan(
    model: Model, budget: int, grid: Grid | None = None, guidance: float | None = None
) -> Plan:
    """The plan of a model's own profile, or the default with a warning why."""
    at = model.judged_at
    grid = model.grid(interval=at.get("interval")) if grid is None else grid
    guidance = at["guidance"] if guidance is None else guidance
    return plan_for(shipped(model.name), grid, budget, guidance, model.name)


@dataclass(frozen=True)
class Samples:
    """What a profile of a model is made on: plain data, so that a worker elsewhere can make it.

    batch   samples in one batch; None: all
    """

    name: str
    count: int = SAMPLES
    steps: int | None = None
    shift: Any = None
    guidance: float | None = None
    batch: int | None = None
    device: str = "cpu"

    def pairs(self, model: Model) -> tuple[list[Any], list[Any]]:
        """(velocities, noise), one of each for a batch."""
        at = model.judged_at
        guidance = at["guidance"] if self.guidance is None else self.guidance
        labels = [i * len(model.classes) // self.count for i in range(self.count)]
        size = self.batch or self.count
        noise = parts_of(model.noise(self.count, seed=10_000), size)
        parts = [labels[i : i + size] for i in range(0, self.count, size)]
        interval = at.get("interval")
        return [model.velocity(part, guidance, interval=interval) for part in parts], noise

    def grid(self, model: Model) -> Grid:
        return model.grid(self.steps, self.shift, model.judged_at.get("interval"))

    def __call__(self) -> Source:
        """Where a worker is."""
        model = load(self.name, self.device)
        grid = self.grid(model)
        return Models(*self.pairs(model), grid, gain_stages(grid, STAGES), "euler")


def profiled(
    model: Model,
    samples: int = SAMPLES,
    steps: int | None = None,
    shift: Any = None,
    guidance: float | None = None,
    batch: int | None = None,
    engine: Engine | None = None,
    **options: Any,
) -> Profile:
    """profile() of a model at its judged setting, or with other steps, shift or guidance.

    batch    samples in one batch; None: all
    engine   where the batches run; None: here
    """
    guidance = model.judged_at["guidance"] if guidance is None else guidance
    told = Samples(model.name, samples, steps, shift, guidance, batch, str(model.device))
    with spread(engine, told) as through:
        return profile(
            *told.pairs(model),
            told.grid(model),
            model=model.name,
            guidance=guidance,
            through=through,
            **options,
        )


@dataclass(frozen=True)
class Planned:
    """A model of the zoo as `geoshrink plan` and `geoshrink studio` take it: the entry points
    geoshrink.models.
    """

    model: Model

    @classmethod
    def load(cls, name: str, device: str = "cpu") -> Planned:
        return cls(load(name, device))

    @property
    def python(self) -> str:
        """The lines that load the model."""
        return f"from geoshrink_bench import zoo\n\nmodel = zoo.load({self.model.name!r})"

    def fitted(self, grid: Grid, guidance: float) -> Profile | None:
        """The profile that comes with the model, where it fits."""
        return fitted(self.model.name, grid, guidance)[0]

    def profile(
        self,
        budget: int | None = None,
        *,
        samples: int | None = None,
        steps: int | None = None,
        shift: Any = None,
        guidance: float | None = None,
        target: str = "run",
        file: Path | None = None,
        batch: int | None = None,
        engine: Engine | None = None,
    ) -> Profile:
        """The profile that comes with the model, where it fits and no other is asked for."""
        model, at = self.model, self.model.judged_at
        grid = model.grid(steps, shift, at.get("interval"))
        if budget is not None:
            check_budget(budget, grid)
        scale: float = at["guidance"] if guidance is None else guidance
        if file is None and samples is None and batch is None:
            found, reason = fitted(model.name, grid, scale)
            if found is not None and found.tried(target):
                words = f"the profile that comes with {model.name}: {found}"
                print(f"{words}; --samples or --out make one anew", file=sys.stderr)
                return found
            reason = reason or f"it has no real runs for target={target!r}"
            print(f"not by the profile that comes with {model.name}: {reason}", file=sys.stderr)
        options: dict[str, Any] = dict(shift=shift, guidance=scale, target=target, file=file)
        options |= dict(batch=batch, engine=engine)
        return profiled(model, SAMPLES if samples is None else samples, steps, **options)


def ship(model: Model, file: str | Path, command: str) -> Path:
    """Puts a profile of a model at its judged setting beside its weights."""
    found, to = Profile.load(file), place(model.name)
    at = model.judged_at
    found.check(model.grid(interval=at.get("interval")), at["guidance"], model.name)
    assert to is not None
    made = f"{command}; weights {weights_of(model.name)}"
    replace(found, made=made).save(to, small=True)
    return to


def weights_of(name: str) -> str:
    """The recorded sha256 of a model's weights."""
    facts = (find(name, None) / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(facts)["sha256"]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Put a profile beside the weights of its model.")
    parser.add_argument("model")
    parser.add_argument("file", type=Path, help="the profile")
    parser.add_argument("command", help="what made it")
    args = parser.parse_args(argv)
    file = ship(load(args.model), args.file, args.command)
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
