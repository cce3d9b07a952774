"""What is said at the end of a loop, and when: reading the self-check waits for the device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ..report import ADVICE, Report, is_doubtful
from ..run import Run

logger = logging.getLogger("geoshrink")


def tell(run: Run, report: Callable[[], Report | None], notes: Sequence[tuple[int, str]]) -> None:
    """One line says what was done, and a warning if it is not to be trusted."""
    check = run.self_check
    if logger.isEnabledFor(logging.INFO):  # else nobody reads it here, and it takes its time
        done = report()
        assert done is not None
        faster = f", {done.steps / max(1, done.evaluations):.1f}×"
        logger.info("geoshrink: %s%s", done.summary(), faster if done.predicted else "")
        for _, reason in notes:
            logger.info("geoshrink: %s", reason)
    if is_doubtful(check):
        logger.warning("geoshrink: self-check %.0f%%: %s", 100 * check, ADVICE)


def announced(report: Report) -> Report:
    """The report of a run that has ended, with its lines in the log."""
    logger.info("geoshrink: %s", report.summary())
    for _, reason in report.reasons:
        logger.info("geoshrink: %s", reason)
    if report.doubt:
        logger.warning("geoshrink: %s", report.doubt)
    return report
