"""The worker of a batch: one model, one sample after another, each written before the next."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..compare.bench import measure
from ..compare.inputs import Settings
from ..compare.pipeline import Loaded, load
from ..hosts import accelerate
from ..hosts.recording import quiet_host
from ..learning import Learning
from ..report import Report
from .jobs import Broken, Fatal
from .results import Results

MISFITS = ("this plan is for", "the plan was made for")  # how a refused plan's reason begins
ERRORS = 4000  # characters of a traceback, its end


@dataclass(frozen=True)
class Recipe:
    """What all samples of a batch have in common: plain data, which travels to the workers.

    settings   of the model: folder or builder, size, dtype, …
    steps      of the solver
    options    of accelerate(); None: the plain pipeline
    place      of the results
    names      of the arguments that some prompts bring along
    """

    settings: Settings
    steps: int
    options: Mapping[str, Any] | None
    place: str
    names: tuple[str, ...] = ()

    def __call__(self) -> Maker:
        """The worker: the model is loaded here."""
        return Maker(self)


@dataclass
class Maker:
    recipe: Recipe
    loaded: Loaded = field(init=False)
    results: Results = field(init=False)
    options: dict[str, Any] | None = field(init=False)

    def __post_init__(self) -> None:
        self.options = None if self.recipe.options is None else dict(self.recipe.options)
        if self.options is not None and self.options.get("learn") is True:
            self.options["learn"] = Learning()  # one for all samples of this worker
        self.results = Results(self.recipe.place)
        self.loaded = load(self.recipe.settings)
        check_names(self.loaded, self.recipe.names)  # what is wrong is wrong for all
        if self.options is not None:
            accelerate(self.loaded.host, **self.options).remove()

    def __call__(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """One sample and its row; a row with the error where it could not be made."""
        row = {name: asked[name] for name in ("key", "prompt", "seed")}
        row |= {"call": json.dumps(asked["call"]), "made": device_name()}
        began = time.perf_counter()
        try:
            content, suffix, told = self.make(asked)
        except Fatal:
            raise
        except Exception as error:
            if "CUDA error" in str(error):  # the device answers nothing more to this process
                raise Broken(f"{type(error).__name__}: {error}") from None
            clean()
            words = traceback.format_exc()[-ERRORS:]
            row |= {"seconds": time.perf_counter() - began, "error": words}
            self.results.fail(row)
            return {"key": asked["key"], "error": f"{type(error).__name__}: {error}"}
        row |= told
        self.results.keep(row, content, suffix, asked.get("again", True))
        return {"key": asked["key"], "calls": told["calls"], "seconds": told["seconds"]}

    def make(self, asked: Mapping[str, Any]) -> tuple[bytes, str, dict[str, Any]]:
        ready = replace(self.loaded, call={**self.loaded.call, **asked["call"]})
        options = self.options
        with quiet_host(ready.host):
            told = asked["prompt"], self.recipe.steps, asked["seed"], options
            output, cost, _ = measure(ready, *told)
            made = ready.show(output)
        if len(made) != 1:
            raise ValueError(f"{len(made)} samples were made of one prompt: ask for one at a time")
        if not made.is_finite():
            raise ValueError(f"the {made.noun} is empty or not finite")
        keep: Any = getattr(made, "file", None)
        if keep is None:
            raise TypeError(f"a {made.noun} cannot be kept: {type(made).__name__} has no file(i)")
        content, suffix = keep(0)
        report = cost.reports[-1] if cost.reports else None
        check_fit(options, report, asked["call"])
        guess = None if report is None else report.estimated_db
        return (
            content,
            suffix,
            {
                "calls": cost.calls,
                "seconds": cost.seconds,
                "estimated_db": guess if guess is not None and guess < float("inf") else None,
                "report": None if report is None else str(report),
            },
        )


def check_names(loaded: Loaded, names: Sequence[str]) -> None:
    """Columns beside prompt and seed that the model's call cannot take."""
    takes = loaded.way.takes(loaded.host)
    for name in names:
        if name not in takes:
            raise ValueError(f"the prompts have a column {name!r}: {loaded.kind} takes none such")
        if name in loaded.way.sets:
            raise ValueError(f"the prompts have a column {name!r}: batch sets that itself")


def check_fit(
    options: Mapping[str, Any] | None, report: Report | None, call: Mapping[str, Any]
) -> None:
    """Ends a batch whose plan is for other runs: every sample would cost a full run. A prompt with
    arguments of its own says nothing of the others: it is kept, and its report says why.
    """
    if options is None or "plan" not in options or report is None or call:
        return
    for _, why in report.reasons:
        if why.startswith(MISFITS):
            raise Fatal(why.removesuffix(": every stage is queried"))


def clean() -> None:
    """After an error: memory that a half-made sample held goes back to the device."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_initialized() else "CPU"
