"""Several processes on one machine. Who does what is tests/test_batch_crew.py's."""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import hands
from geoshrink.batch import Done, Failed, Job, OnProcesses, drive, on_processes
from geoshrink.batch.jobs import Fatal

TWO = OnProcesses(2, threads=1)


def job(name: str, **what: Any) -> Job:
    after = what.pop("after", "")
    return Job(name, {"words": name, **what}, after=after)


def events(jobs: list[Job], make: Any = hands.worker, engine: OnProcesses = TWO) -> dict[str, Any]:
    found = {event.job.key: event for event in drive(jobs, make, engine)}
    assert len(found) == len(jobs) and not multiprocessing.active_children()
    return found


def test_every_job_is_done_once_by_one_of_them():
    jobs = [job(str(i), seconds=0.2) for i in range(6)]
    found = events([*jobs, job("last", after="0"), job("signal", do="interrupt")])
    assert all(isinstance(event, Done) for event in found.values())
    assert [found[str(i)].said[0] for i in range(6)] == [str(i) for i in range(6)]
    assert len({found[str(i)].said[1] for i in range(6)}) == 2
    assert [*found].index("last") > [*found].index("0")
    assert found["signal"].said == "still here"  # a signal to all of them is for the driver


def test_what_goes_wrong_is_said_and_the_others_go_on(tmp_path: Path):
    kinds = ("raise", "raise odd", "say odd", "die once", "die", "broken once", "say")
    found = events([job(do, do=do) for do in kinds], partial(hands.Worker, tmp_path))
    errors = {key: e.error for key, e in found.items() if isinstance(e, Failed)}
    assert {*errors} == {"raise", "raise odd", "say odd", "die"}
    assert "ValueError: a prompt of theirs" in errors["raise"]
    assert "hands.py" in errors["raise odd"] and "odd words" in errors["raise odd"]
    assert "what a worker said cannot be sent" in errors["say odd"]
    assert errors["die"] == "its worker died 3 times: a worker's process ended with code 9"
    assert found["die once"].said == found["broken once"].said == "alive"


@pytest.mark.parametrize(
    "make, said",
    [
        (hands.worker, "the disk is full"),
        (hands.no_worker, "a worker cannot start: FileNotFoundError: no model there"),
    ],
)
def test_what_nobody_can_go_on_after_ends_it(make: Any, said: str):
    with pytest.raises(Fatal, match=said):
        list(drive([job(str(i), do="full") for i in range(4)], make, OnProcesses(1)))
    assert not multiprocessing.active_children()


def test_after_a_stop_nothing_is_begun():
    done: list[str] = []
    jobs = [job(str(i), seconds=0.1) for i in range(50)]
    for event in drive(jobs, hands.worker, OnProcesses(1), lambda: len(done) >= 2):
        done.append(event.job.key)
    assert 2 <= len(done) <= 3


def test_left_in_the_middle_no_process_stays():
    going = drive([job(str(i), seconds=5.0 * (i > 0)) for i in range(3)], hands.worker, TWO)
    assert isinstance(next(going), Done)
    began = time.perf_counter()
    going.close()  # type: ignore[attr-defined]
    assert time.perf_counter() - began < 4 and not multiprocessing.active_children()


def test_what_cannot_be_sent_or_is_nobody_is_refused():
    with pytest.raises(ValueError, match=r"importable by name.*lambda"):
        list(drive([job("a")], lambda: hands.worker(), TWO))
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        OnProcesses(0)
    assert OnProcesses(10**6).threads == 1 and TWO.threads == 1


@dataclass
class Stood:
    """In the place of a process."""

    kind: type
    given: tuple[Any, ...]
    gpu: str | None
    alive: bool = True

    def is_alive(self) -> bool:
        return self.alive


@pytest.mark.parametrize("own, names", [("", ["0", "1"]), ("3,5", ["3", "5"])])
def test_gpus_are_dealt_out(monkeypatch: pytest.MonkeyPatch, own: str, names: list[str]):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(on_processes, "Process", Stood)
    monkeypatch.setenv(on_processes.VISIBLE, own)
    hired = on_processes.Processes()
    found: list[Any] = [hired.start(str) for _ in range(3)]
    assert [each.gpu for each in found] == [names[0], names[1], names[0]]
    found[1].alive = False
    assert [hired.start(str).gpu for _ in range(2)] == [names[1], names[1]]
    assert OnProcesses(4).gpus == 0.5 and OnProcesses(1).gpus == 1.0


def test_a_process_sees_its_own_gpu_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(on_processes, "gpus", lambda: ["7"])
    assert events([job("where", do="gpu")], engine=OnProcesses(1))["where"].said == "7"


def test_without_a_gpu_none_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(on_processes, "Process", Stood)
    started: Any = on_processes.Processes().start(str)
    assert started.gpu is None and OnProcesses(4).gpus == 0
