"""Line: who is next. Users wait in it for the device; two runs take turns at model calls in it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Stopped(Exception):
    """Somebody asked for it."""


class Line:
    """In the order in which they joined; the first is at work."""

    def __init__(self, *members: Any):
        self.members: deque[Any] = deque(members)
        self.moved = threading.Condition()

    def join(self, member: Any) -> None:
        with self.moved:
            self.members.append(member)

    def leave(self, member: Any) -> None:
        with self.moved:
            if member in self.members:
                self.members.remove(member)
            self.moved.notify_all()

    def ahead(self, member: Any) -> int:
        """How many are before this one."""
        with self.moved:
            return self.members.index(member)

    def wait(self, member: Any, seconds: float) -> bool:
        """Whether it is this one's turn, after so many seconds at most."""
        with self.moved:
            return self.moved.wait_for(lambda: self.members[0] is member, seconds)

    @contextmanager
    def place(self) -> Iterator[object]:
        """A place at its end, until it is left."""
        mine = object()
        self.join(mine)
        try:
            yield mine
        finally:
            self.leave(mine)

    @contextmanager
    def turn(self, member: Any, stopped: Callable[[], bool]) -> Iterator[None]:
        """Wait until it is first; afterwards it is last."""
        while not self.wait(member, 0.1):
            if stopped():
                raise Stopped
        try:
            yield
        finally:
            with self.moved:
                self.members.remove(member)
                self.members.append(member)
                self.moved.notify_all()
