"""What accelerate() returns: the reports of the runs, and the way back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import nn

from ..learning import Learned, Learning
from ..plan import Plan
from ..planning import Profile
from ..report import ADVICE, Report
from ..run import Run

KEPT = 32  # reports
logger = logging.getLogger("geoshrink")


class Handle:
    """What accelerate() returns: the reports of the runs, and the way back.

    `report` is that of the latest run, `reports` of the last 32; remove() leaves the host as it
    was. You need these only to make a handle for a host of your own:

    reports    called, returns the reports, the latest last
    remove     called, leaves the host as it was
    denoisers  the networks whose calls are saved
    host       whose it is, as a weak reference, where profile() can run it
    learning   what learn=… stands for, where it was given
    plan       called, returns the plan of the latest run, or None
    """

    #: profile_pipeline, set by the package: it makes handles itself, so they cannot import it.
    profiler: ClassVar[Callable[..., Profile]]

    def __init__(
        self,
        reports: Callable[[], list[Report]],
        remove: Callable[[], None],
        denoisers: Sequence[nn.Module] = (),
        host: Callable[[], Any] | None = None,
        learning: Learning | None = None,
        plan: Callable[[], Plan | None] = lambda: None,
    ):
        self._reports, self._remove, self._host, self._plan = reports, remove, host, plan
        self.learning = learning
        self.denoisers = tuple(denoisers)

    @property
    def reports(self) -> list[Report]:
        """Those of the last 32 runs, the latest last."""
        return self._reports()

    @property
    def report(self) -> Report | None:
        """None before the first run. A run that was not accelerated is there with the reason."""
        reports = self._reports()
        return reports[-1] if reports else None

    @property
    def plan(self) -> Plan | None:
        """Of the latest run that was accelerated; None before the first, or where the host does not
        tell. accelerate(pipe, plan=handle.plan) makes the same calls again.
        """
        return self._plan()

    @property
    def learned(self) -> Learned | None:
        """What exact runs have taught in the setting that was run last; None before the first."""
        return None if self.learning is None else self.learning.learned

    def profile(self, calls: Sequence[str | Mapping[str, Any]], **options: Any) -> Profile:
        """Profiles the pipeline on a few prompts, or arguments of calls, after remove().

            profile = handle.profile(["a lighthouse", "a dog", …], num_inference_steps=50)
            handle = geoshrink.accelerate(pipe, plan=profile.plan(budget=10))

        calls      prompts, or dicts of arguments, each with a seed of its own: 16 or more, 4 at
                   least
        budgets    at which plans are tried in real runs; () tries none; default: at most three
        seed       call i gets a generator with seed + i
        perturbed  the number of stages at which it is measured how errors grow; default: 3
        target     "run", the only one that a pipeline's loop can be profiled for
        file       written after every call; if it exists, profiling goes on from it
        quiet      print neither the cost nor a progress bar
        through    given what is profiled, returns what is asked in its place: batch.Spread
        options    any other keyword is an argument of all calls: num_inference_steps=50 …
        """
        host = None if self._host is None else self._host()
        if host is None:
            raise ValueError(
                "this host cannot be profiled as a pipeline: profile the model itself, with "
                "geoshrink.profile(velocity, noise, sigmas)"
            )
        return Handle.profiler(host, calls, before=self.remove, **options)

    def remove(self) -> None:
        """Leaves the host as it was before accelerate()."""
        self._remove()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def tell(
    run: Run,
    report: Callable[[], Report | None],
    notes: Sequence[tuple[int, str]],
    warned: bool = False,
) -> bool:
    """One line says what was done, and a warning if it is doubtful; whether it was ever warned.

    warned   of an earlier run: once is enough, the reports say it of each

    Estimating how far it is from the full run waits for the device.
    """
    doubt = None if warned else run.estimate.doubt
    if logger.isEnabledFor(logging.INFO):  # else nobody reads it here, and it takes its time
        done = report()
        assert done is not None
        faster = f", {done.steps / max(1, done.evaluations):.1f}×"
        faster = f"{faster}; {done.estimate}" if done.predicted else ""
        logger.info("geoshrink: %s%s", done.summary(), faster)
        for _, reason in notes:
            logger.info("geoshrink: %s", reason)
    if doubt:
        logger.warning("geoshrink: %s: %s", doubt, ADVICE)
    return warned or doubt is not None


def announced(report: Report) -> Report:
    """The report of a run that has ended, with its lines in the log."""
    logger.info("geoshrink: %s", report.summary())
    for _, reason in report.reasons:
        logger.info("geoshrink: %s", reason)
    if report.doubt:
        logger.warning("geoshrink: %s", report.doubt)
    return report
