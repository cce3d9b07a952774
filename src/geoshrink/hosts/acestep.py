"""ACE-Step v1: a prediction for each branch of its guidance.

The pipeline decodes the branches (prompt, nothing, prompt without lyrics) one after another, makes
a scheduler inside its loop, and guides with a memory of its own (APG momentum, a decaying scale)
within an interval of steps. Each branch's output is predicted where its decode() is called, so
guidance, its memory, repainting and the solver all run at every step as they are.
"""

from __future__ import annotations

import inspect
import logging
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..outputs import stand_in
from ..plan import Plan
from ..report import Report
from ..run import Run
from .handle import KEPT, Handle, announced
from .hooks import Hooks, lift_all
from .host import Host, is_a
from .options import check_options, plan_of, uncorrected, wants_correction
from .signatures import check_method, named
from .stack import stack
from .stages import switches

logger = logging.getLogger("geoshrink")

LOOP, EDIT = "text2music_diffusion_process", "flowedit_diffusion_process"
#: Arguments and variables of the loop that are read.
ARGUMENTS = ("scheduler_type", "guidance_interval")
VARIABLES = (
    "i", "timesteps", "scheduler", "start_idx", "end_idx", "do_classifier_free_guidance",
    "is_repaint", "n_min", "repaint_mask",
)  # fmt: skip
DECODE = ("hidden_states", "encoder_hidden_states")
MIXES = "ACE-Step mixes branches of guidance that are predicted apart"
NOT_EULER = {
    "heun": "the Heun scheduler calls the model twice a step",
    "pingpong": "the pingpong scheduler adds noise at every step",
}


def knows(host: Any) -> bool:
    return is_a(host, "ACEStepPipeline")


def attach(host: Any, budget: int | None = None, **options: Any) -> Handle:
    given_learn = options.get("learn")
    options = check_options(budget, options)
    aim = options["plan"].aim if "plan" in options else None
    db = options.get("target_db") if aim is None else aim.db
    if db is not None:
        raise ValueError(f"target_db={db!r} cannot be held: {MIXES}; give a budget")
    if "learn" in options:
        raise ValueError(f"learn={given_learn!r} is not for this host: {MIXES}")
    check_method(host, LOOP, ARGUMENTS, VARIABLES)
    lift_all(host, LOOP)
    reports: deque[Report] = deque(maxlen=KEPT)
    hooks, this = Hooks(), weakref.ref(host)

    def on_loop(original: Callable, given: dict, args: tuple, kwargs: dict) -> Any:
        host: Any = this()
        loop = Loop(inspect.unwrap(original).__code__, given["scheduler_type"], options, host)
        model = host.ace_step_transformer
        check_method(model, "decode", DECODE)
        with Hooks() as inner:
            inner.place(model, "decode", named(model.decode, loop.on_decode))
            result = original(*args, **kwargs)
        reports.append(announced(loop.report()))
        return result

    def on_edit(original: Callable, given: dict, args: tuple, kwargs: dict) -> Any:
        logger.warning("geoshrink: editing adds noise at every step: it runs as it is")
        return original(*args, **kwargs)

    hooks.place(host, LOOP, named(getattr(host, LOOP), on_loop))
    if callable(getattr(host, EDIT, None)):
        hooks.place(host, EDIT, named(getattr(host, EDIT), on_edit))
    return Handle(lambda: list(reports), hooks.lift)


class Loop:
    """One call of the pipeline's loop: a run for every branch, all with the same anchors."""

    def __init__(self, code: Any, scheduler: str, options: dict[str, Any], host: Any):
        self.code, self.scheduler, self.options = code, scheduler, options
        self.host, self.thread = host, threading.get_ident()
        self.plan: Plan | None = None
        self.runs: dict[int, Run] = {}  # by the id of what the branch attends to
        self.guided: list[int] = []  # where guidance begins and ends
        self.note: str | None = None
        self.first = self.forwards = 0
        self.mask: Any = None
        self.template: Any = None  # what decode() returns, without its tensor

    def on_decode(self, original: Callable, given: dict, args: tuple, kwargs: dict) -> Any:
        frame = next((f for f in stack() if f.f_code is self.code), None)
        here: dict[str, Any] = {} if frame is None else frame.f_locals
        if here.get("self") is not self.host or threading.get_ident() != self.thread:
            return original(*args, **kwargs)  # of another loop over this model
        if self.plan is None:
            self.begin(here)
        run, x = self.run_of(given["encoder_hidden_states"]), given["hidden_states"]
        n = here["i"] - self.first
        if not run.queries(n, x):
            return self.with_sample(run.predict(n, x))
        output = original(*args, **kwargs)
        self.forwards += 1
        answer = run.observe(n, output.sample, x)
        self.template = copy(output)
        self.template.sample = stand_in(output.sample)
        return output if answer is output.sample else self.with_sample(answer)

    def with_sample(self, sample: Tensor) -> Any:
        """What decode() returns, with this tensor in it."""
        answer = copy(self.template)
        answer.sample = sample
        return answer

    def begin(self, here: dict[str, Any]) -> None:
        """The plan, once the loop has come to its first model call."""
        repaint = here["is_repaint"]
        self.first = here["n_min"] if repaint else 0
        self.mask = here["repaint_mask"] == 1 if repaint else None
        stages = len(here["timesteps"])
        inside = [here["start_idx"] <= i < here["end_idx"] for i in range(self.first, stages)]
        self.guided = switches(inside) if here["do_classifier_free_guidance"] else []
        begins = [n for n in self.guided if inside[n]]  # a branch appears: it must be queried
        sigmas = torch.as_tensor(here["scheduler"].sigmas).double().flatten().tolist()
        reason = NOT_EULER.get(self.scheduler)
        if reason is None and len(sigmas) != stages + 1:
            reason = f"{len(sigmas)} σ for {stages} steps"
        if reason is not None:
            sigmas, begins = [float(stages - i) for i in range(stages + 1)], []
        grid = Grid.of(sigmas[self.first :], data=0.0, regimes=begins)
        options = uncorrected(self.options)
        plan, self.note = plan_of(grid, options, reason)
        if wants_correction(self.options) and options is not self.options and not plan.exact:
            plan = replace(plan, mesh=f"{plan.mesh} (cells are not corrected: {MIXES})")
        self.plan = plan

    def run_of(self, branch: Any) -> Run:
        """The first branch is there at every step: its history goes on where others begin."""
        assert self.plan is not None
        if id(branch) not in self.runs:
            plan = self.plan
            if not self.runs:
                plan = replace(plan, grid=replace(plan.grid, regimes=()))
            self.runs[id(branch)] = run = Run(plan, mask=self.mask)
            run.know(None, why=MIXES)
        return self.runs[id(branch)]

    def report(self) -> Report:
        reports = [run.report for run in self.runs.values()]
        reasons = {reason for report in reports for reason in report.reasons}
        if self.note is not None:
            reasons.add((0, self.note))
        return replace(
            reports[0],
            reasons=tuple(sorted(reasons)),
            bytes_held=sum(report.bytes_held for report in reports),
            regimes=tuple(self.guided),
            forwards=self.forwards,
        )


def call(host: Any, arguments: dict[str, Any], steps: int, seed: int) -> Any:
    """(waves, rate). The pipeline writes files: the waves are taken where it would."""
    waves, rates = [], []
    with tempfile.TemporaryDirectory() as folder, Hooks() as hooks:  # it writes more beside them

        def keep(wave: Any, idx: int, *_: Any, sample_rate: int = 48000, **__: Any) -> str:
            waves.append(wave)
            rates.append(sample_rate)
            return f"{folder}/{idx}.wav"

        hooks.place(host, "save_wav_file", lambda host, save, args, more: keep(*args, **more))
        host(infer_step=steps, manual_seeds=[seed], **{"lyrics": "", **arguments})
    return torch.stack(waves), rates[0]


def show(host: Any, output: Any) -> tuple[str, dict[str, Any]]:
    return "Sounds", dict(zip(("waves", "rate"), output))


SETS = ("infer_step", "manual_seeds", "save_path", "format")
HOST = Host("ACE-Step v1", knows, attach, call, show, sets=SETS)
