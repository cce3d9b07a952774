"""Interrupts at any point of a run."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        torch.set_grad_enabled(True)  # an interrupt in the end of torch.no_grad() leaves it off
        signal.signal(signal.SIGALRM, before)
        fresh_locks()


def fresh_locks() -> None:
    """An interrupt inside logging leaves its locks held by this thread, for ever: others that log
    later would wait for it.
    """
    logging._lock = threading.RLock()  # type: ignore[attr-defined]
    for name in (None, "geoshrink"):
        for handler in logging.getLogger(name).handlers:
            handler.createLock()
