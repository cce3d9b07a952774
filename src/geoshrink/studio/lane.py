"""Lane: one run while it runs. Its own thread writes it, the page reads it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..compare.kinds import Made
from .line import Line, Stopped
from .model import Ran

Work = Callable[["Lane"], Ran]


class Lane:
    """
    label    of the method
    steps    of its solver
    total    model calls that it will make, where that is known
    work     work(lane) makes the run; it tells the lane of every call, which may raise Stopped
    asked    the stages at which the model was called so far
    preview  makes what can be seen of the sample now; None: nothing yet
    ran      what came out; None: not yet, or never, and then `error` or `stopped` says why
    """

    def __init__(
        self, label: str, steps: int, total: int | None, work: Work, stop: threading.Event
    ):
        self.label, self.steps, self.total = label, steps, total
        self.work, self.stop = work, stop
        self.turns: Line | None = None
        self.asked: list[int] = []
        self.calls, self.waited = 0, 0.0
        self.preview: Callable[[], Made | None] | None = None
        self.ran: Ran | None = None
        self.error: Exception | None = None
        self.stopped = False
        self.thread = threading.Thread(target=self.go, name=f"studio {label}", daemon=True)

    @property
    def over(self) -> bool:
        return self.ran is not None or self.error is not None or self.stopped

    def start(self, turns: Line | None) -> None:
        """In a thread of its own; with others it takes turns at model calls."""
        self.turns = turns
        self.thread.start()

    def end(self) -> None:
        """Stopped, if it still runs; afterwards it does not."""
        if self.thread.is_alive():
            self.stop.set()
            self.thread.join()

    def go(self) -> None:
        ran, error = None, None
        try:
            ran = self.work(self)
        except Stopped:
            pass
        except Exception as raised:
            error = raised
            self.stop.set()  # the others need not go on
        finally:
            self.ran, self.error, self.stopped = ran, error, ran is None and error is None
            if self.turns is not None:
                self.turns.leave(self)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Around a model call; the time spent waiting for another lane is not this one's."""
        self.check()
        if self.turns is None:
            yield
            return
        began = time.perf_counter()
        with self.turns.turn(self, self.stop.is_set):
            self.waited += time.perf_counter() - began
            yield

    def called(self, stage: int, preview: Callable[[], Made | None] | None = None) -> None:
        """The model was called at a stage."""
        self.calls += 1
        if stage not in self.asked:
            self.asked.append(stage)
        self.shows(preview)
        self.check()

    def shows(self, preview: Callable[[], Made | None] | None) -> None:
        if preview is not None:
            self.preview = preview

    def check(self) -> None:
        if self.stop.is_set():
            raise Stopped
