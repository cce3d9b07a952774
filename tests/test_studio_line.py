"""Line and Lane: who is next, and one run while it runs."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from geoshrink.studio.lane import Lane
from geoshrink.studio.line import Line, Stopped

RAN: Any = object()  # what came out of a run


class Member:
    """Members are told apart by what they are, not by what they say."""

    def __init__(self, name: str):
        self.name = name


A, B, C = map(Member, "abc")


def never() -> bool:
    return False


def test_a_line_keeps_the_order_in_which_it_was_joined():
    line = Line()
    for member in (A, B, C):
        line.join(member)
    assert [line.ahead(member) for member in (A, B, C)] == [0, 1, 2]
    assert [line.wait(member, 0) for member in (A, B, C)] == [True, False, False]
    line.leave(A)
    assert [line.ahead(member) for member in (B, C)] == [0, 1] and line.wait(B, 0)
    line.leave(C)
    line.leave(C)  # it is gone already
    assert list(line.members) == [B]


def test_whoever_waits_is_woken_when_the_first_leaves():
    line, woken = Line(A, B), []
    waiter = threading.Thread(target=lambda: woken.append(line.wait(B, 30)), daemon=True)
    waiter.start()
    line.leave(A)
    waiter.join(5)
    assert woken == [True]


def test_a_place_is_left_by_an_error_too():
    line = Line()
    with pytest.raises(KeyError), line.place() as mine:
        assert line.ahead(mine) == 0
        raise KeyError
    assert not line.members


def test_turns_alternate_and_one_who_leaves_is_not_waited_for():
    line, order, last = Line(A, B), [], {A: 3, B: 5}

    def work(member: Member) -> None:
        for _ in range(last[member]):
            with line.turn(member, never):
                order.append(member.name)
        line.leave(member)

    workers = [threading.Thread(target=work, args=(each,), daemon=True) for each in (A, B)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(5)
    assert "".join(order) == "abababbb"


def test_a_turn_is_handed_on_after_an_error():
    line = Line(A, B)
    with pytest.raises(KeyError), line.turn(A, never):
        raise KeyError
    assert line.wait(B, 0)


def test_stop_ends_the_wait_for_a_turn():
    line = Line(A, B)
    with pytest.raises(Stopped), line.turn(B, lambda: True):
        raise AssertionError("it was not its turn")
    assert list(line.members) == [A, B]


# Lane


def started(work: Any, stop: threading.Event | None = None, turns: Line | None = None) -> Lane:
    lane = Lane("x", 10, None, work, stop or threading.Event())
    lane.start(turns)
    lane.thread.join(5)
    assert not lane.thread.is_alive()
    return lane


def test_a_lane_tells_what_was_asked_and_what_came_out():
    def work(lane: Lane) -> Any:
        for stage in (0, 0, 4):
            with lane.turn():
                pass
            lane.called(stage, lambda: None)
        return RAN

    lane = started(work)
    assert lane.over and lane.ran is RAN and lane.error is None and not lane.stopped
    assert lane.asked == [0, 4] and lane.calls == 3 and lane.preview is not None
    assert lane.waited == 0 and not lane.stop.is_set()


def test_a_call_without_a_preview_keeps_the_last_one():
    lane = Lane("x", 10, None, lambda lane: RAN, threading.Event())
    lane.called(0, seen := lambda: None)
    lane.called(1)
    assert lane.preview is seen and not lane.over


@pytest.mark.parametrize("where", ["turn", "called"])
def test_stop_ends_a_lane_at_its_next_call(where: str):
    stop, calls = threading.Event(), []

    def work(lane: Lane) -> Any:
        for stage in range(10):
            with lane.turn():
                calls.append(stage)
                if stage == 3:
                    stop.set()
            if where == "called":
                lane.called(stage)
        return RAN

    lane = started(work, stop)
    assert calls == [0, 1, 2, 3] and lane.stopped and lane.over
    assert lane.ran is None and lane.error is None


def test_an_error_is_kept_and_stops_the_others():
    stop, turns = threading.Event(), Line()

    def work(lane: Lane) -> Any:
        raise RuntimeError("no")

    lane = Lane("x", 10, None, work, stop)
    turns.join(lane)
    lane.start(turns)
    lane.thread.join(5)
    assert str(lane.error) == "no" and lane.over and not lane.stopped and lane.ran is None
    assert stop.is_set() and not turns.members


def test_the_time_spent_waiting_for_another_is_not_its_own():
    def work(lane: Lane) -> Any:
        with lane.turn():
            time.sleep(0.01)
        return RAN

    lane = Lane("x", 10, None, work, threading.Event())
    turns = Line(A, lane)
    lane.start(turns)
    time.sleep(0.2)
    turns.leave(A)
    lane.thread.join(5)
    assert lane.ran is RAN and 0.15 < lane.waited < 1 and not turns.members


def test_end_stops_a_lane_and_waits_for_it():
    def work(lane: Lane) -> Any:
        while True:
            time.sleep(0.01)
            lane.called(0)

    lane = Lane("x", 10, None, work, threading.Event())
    lane.end()  # not begun: nothing to end
    assert not lane.stop.is_set()
    lane.start(None)
    lane.end()
    assert lane.stopped and not lane.thread.is_alive()
