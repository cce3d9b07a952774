"""What is said at the end of a loop, and when: reading the self-check waits for the device."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..report import ADVICE, Report, is_doubtful
from ..run import Run

LAST = "maybe_free_model_hooks"  # what a diffusers pipeline calls before it returns
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


def ends_with_a_hook(host: Any, method: str) -> bool:
    """Whether the host's method that loops calls LAST, and we are hooked in there."""
    return LAST in vars(host) and LAST in names_in(host, method)


def names_in(host: Any, method: str) -> tuple[str, ...]:
    """The names that the host's method that loops uses."""
    plain = inspect.unwrap(getattr(type(host), method))
    return getattr(getattr(plain, "__code__", None), "co_names", ())
