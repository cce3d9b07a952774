"""Workers for processes of their own: spawn finds them by this module's name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from geoshrink.batch.jobs import Broken, Fatal


class Odd(Exception):
    """Cannot be pickled."""

    def __init__(self, words: str, more: Any):
        super().__init__(words)
        self.more = more


class Worker:
    """Does what a job says."""

    def __init__(self, folder: Path | None = None):
        self.folder = folder

    def __call__(self, what: dict[str, Any]) -> Any:
        do = what.get("do", "say")
        if do == "say":
            time.sleep(what.get("seconds", 0.0))
            return what.get("words", ""), os.getpid()
        if do == "gpu":
            return os.environ.get("CUDA_VISIBLE_DEVICES")
        if do == "interrupt":
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            return "still here"
        if do == "raise":
            raise ValueError("a prompt of theirs")
        if do == "raise odd":
            raise Odd("odd words", lambda: None)
        if do == "say odd":
            return lambda: None
        if do == "full":
            raise Fatal("the disk is full")
        if do in ("die once", "broken once"):
            assert self.folder is not None
            mark = self.folder / do
            if not mark.exists():
                mark.touch()
                if do == "broken once":
                    raise Broken("CUDA error")
                os._exit(7)
            return "alive"
        os._exit(9)


def worker() -> Worker:
    return Worker()


def no_worker() -> Worker:
    raise FileNotFoundError("no model there")
