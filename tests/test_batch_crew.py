"""Who does what on a cluster, in virtual time: a Ray whose calls take as long as a job says."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from geoshrink.batch import on_ray
from geoshrink.batch.jobs import TRIES, Broken, Done, Failed, Fatal, Job
from geoshrink.batch.on_ray import STARTS, Actors, OnRay, connected


class RayActorError(Exception):
    pass


class RayTaskError(Exception):
    def __init__(self, cause: Exception):
        super().__init__(f"Traceback\n{type(cause).__name__}: {cause}")
        self.cause = cause


@dataclass(eq=False)
class Ref:
    end: float
    outcome: Any


@dataclass
class Ray:
    """have: its resources; at: what else they become, by time; starts: how workers fare."""

    have: dict[str, float]
    at: dict[float, dict[str, float]] = field(default_factory=dict)
    starts: list[Exception | None] = field(default_factory=list)
    now: float = 0.0
    hired: int = 0
    ran: list[tuple[str, int, float, float]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    alive: set[int] = field(default_factory=set)
    exceptions = SimpleNamespace(RayActorError=RayActorError, RayTaskError=RayTaskError)

    def cluster_resources(self) -> dict[str, float]:
        later = [self.at[when] for when in sorted(self.at) if when <= self.now]
        return later[-1] if later else self.have

    def remote(self, **needs: Any) -> Callable[[type], Any]:
        self.asked.append(needs)
        return lambda kind: SimpleNamespace(remote=self.hire)

    def hire(self, make: Callable[[], Any], threads: int | None) -> Any:
        number = next(self.numbers)
        self.hired += 1
        self.alive.add(number)
        fate = self.starts.pop(0) if self.starts else None
        busy = [self.now]  # an actor does one thing after another

        def call(seconds: float, outcome: Any) -> Ref:
            busy[0] = max(busy[0], self.now) + seconds
            return Ref(busy[0], outcome)

        def do(what: dict[str, Any]) -> Ref:
            assert number in self.alive and busy[0] <= self.now, "it is given one job at a time"
            end = self.now + what["seconds"]
            self.ran.append((what["name"], number, self.now, end))
            fates = what.get("fates", [])
            return call(what["seconds"], fates.pop(0) if fates else f"said {what['name']}")

        return SimpleNamespace(
            number=number,
            ready=SimpleNamespace(remote=lambda: call(0.25, fate)),
            do=SimpleNamespace(remote=do),
            pause=SimpleNamespace(remote=lambda seconds: call(seconds, None)),
        )

    def __post_init__(self) -> None:
        self.numbers = itertools.count()

    def wait(
        self, refs: list[Ref], num_returns: int = 1, timeout: float = 0.0
    ) -> tuple[list[Ref], list[Ref]]:
        assert refs, "ray.wait refuses an empty list"
        order = sorted(refs, key=lambda ref: ref.end)
        self.now = max(self.now, min(order[num_returns - 1].end, self.now + timeout))
        ready = [ref for ref in order if ref.end <= self.now][:num_returns]
        return ready, [ref for ref in order if ref not in ready]

    def get(self, ref: Ref) -> Any:
        if isinstance(ref.outcome, Exception):
            raise ref.outcome
        return ref.outcome

    def kill(self, actor: Any) -> None:
        self.alive.remove(actor.number)

    def begun(self) -> list[str]:
        return [name for name, *_ in self.ran]

    def spans(self) -> dict[str, tuple[float, float]]:
        return {name: (start, end) for name, _, start, end in self.ran}


def job(name: str, seconds: float = 1.0, fates: list[Any] | None = None, **more: Any) -> Job:
    return Job(name, {"name": name, "seconds": seconds, "fates": fates or []}, **more)


def crew(ray: Ray, stopped: Callable[[], bool] = lambda: False, **engine: Any) -> Actors:
    return Actors(OnRay(**engine), ray, lambda: lambda what: what, stopped)


def worked(ray: Ray, jobs: list[Job], **engine: Any) -> list[Done | Failed]:
    hands = crew(ray, **engine)
    events = list(hands.work(jobs))
    hands.close()
    return events


def lost(words: str = "the node is gone") -> RayActorError:
    return RayActorError(f"The actor died.\n{words}\n")


def test_the_dearest_begin_first_and_all_are_done_once():
    ray = Ray({"CPU": 2.0})
    events = worked(ray, [job(str(i), seconds=1 + i % 3, cost=1 + i % 3) for i in range(20)])
    assert sorted(event.job.key for event in events) == sorted(map(str, range(20)))
    assert all(
        isinstance(event, Done) and event.said == f"said {event.job.key}" for event in events
    )
    costs = [1 + int(name) % 3 for name in ray.begun()]
    assert costs == sorted(costs, reverse=True) and len(ray.ran) == 20
    assert ray.now <= 39 / 2 + 3 and len({number for _, number, *_ in ray.ran}) == 2


@pytest.mark.parametrize(
    "have, engine, workers, needs",
    [
        ({"CPU": 8.0}, {}, 8, {"num_cpus": 1}),
        ({"CPU": 8.0}, {"cpus": 3}, 2, {"num_cpus": 3}),
        ({"CPU": 8.0, "GPU": 4.0}, {}, 4, {"num_gpus": 1.0, "num_cpus": 0}),
        ({"CPU": 8.0, "GPU": 3.0}, {"gpus": 0.5}, 6, {"num_gpus": 0.5, "num_cpus": 0}),
        ({"CPU": 8.0, "GPU": 1.0}, {"gpus": 0.1}, 10, {"num_gpus": 0.1, "num_cpus": 0}),
        ({"CPU": 8.0, "GPU": 4.0}, {"gpus": 2.0}, 2, {"num_gpus": 2.0, "num_cpus": 0}),
        ({"CPU": 2.0, "GPU": 4.0}, {"gpus": 0.0}, 2, {"num_cpus": 1}),
        ({}, {"workers": 5}, 5, {"num_cpus": 1}),
    ],
)
def test_there_are_as_many_workers_as_there_is_room(have, engine, workers: int, needs):
    ray = Ray(have)
    worked(ray, [job(str(i)) for i in range(40)], **engine)
    assert len({number for _, number, *_ in ray.ran}) == workers
    assert all(asked.items() >= needs.items() for asked in ray.asked)
    assert all(asked["max_restarts"] == asked["max_task_retries"] == 0 for asked in ray.asked)


def test_there_are_no_more_workers_than_jobs():
    ray = Ray({"CPU": 64.0})
    worked(ray, [job("a"), job("b")])
    assert ray.hired == 2 and not ray.alive


def test_threads_are_a_worker_s_cpus():
    assert crew(Ray({"CPU": 8.0}), cpus=3).threads() == 3
    assert crew(Ray({"CPU": 8.0}), cpus=3, threads=1).threads() == 1
    assert crew(Ray({"GPU": 8.0}), cpus=3).threads() is None


def test_a_cluster_that_grows_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(on_ray, "NEWS", -1.0)  # here time is virtual
    ray = Ray({"CPU": 1.0}, at={3.0: {"CPU": 4.0}})
    worked(ray, [job(str(i)) for i in range(20)])
    assert len({number for _, number, start, _ in ray.ran if start < 3}) == 1
    assert len({number for _, number, *_ in ray.ran}) == 4 and ray.now < 10


def test_no_room_says_what_there_is():
    with pytest.raises(Fatal, match=r"no room for a worker with \{'num_cpus': 4\}.*'CPU': 2"):
        worked(Ray({"CPU": 2.0}), [job("a")], cpus=4)


def test_a_job_whose_worker_died_goes_to_another():
    ray = Ray({"CPU": 2.0})
    events = worked(ray, [job("a", fates=[lost(), lost()]), *(job(str(i)) for i in range(6))])
    assert all(isinstance(event, Done) for event in events) and len(events) == 7
    assert Counter(ray.begun())["a"] == 3 and len(ray.ran) == 9
    homes = [number for name, number, *_ in ray.ran if name == "a"]
    assert len({*homes}) == 3  # the dead get no job
    assert ray.hired == 2 + 2


def test_a_job_that_kills_every_worker_is_given_up():
    ray = Ray({"CPU": 2.0})
    deadly = job("a", fates=[lost() for _ in range(9)])
    events = worked(ray, [deadly, *(job(str(i)) for i in range(6))])
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert failed.job is deadly and failed.error == "its worker died 3 times: the node is gone"
    assert Counter(ray.begun())["a"] == TRIES == 3 and len(events) == 7


def test_a_worker_that_dies_while_it_rests_is_replaced():
    """All at once, as with a node: nothing is lost, nothing is done twice."""
    ray = Ray({"CPU": 3.0})
    jobs = [job(str(i), fates=[lost()] if i < 3 else []) for i in range(9)]
    events = worked(ray, jobs)
    assert sorted(event.job.key for event in events) == [str(i) for i in range(9)]
    assert all(isinstance(event, Done) for event in events)
    assert Counter(ray.begun()) == {str(i): 2 if i < 3 else 1 for i in range(9)}


def test_workers_that_do_not_start_end_it():
    ray = Ray({"CPU": 2.0}, starts=[lost("no weights") for _ in range(99)])
    with pytest.raises(Fatal, match="3 workers died before their first job: no weights"):
        list(crew(ray).work([job("a"), job("b")]))
    assert ray.hired <= STARTS + 2 and not ray.ran


def test_a_start_that_fails_now_and_then_does_not():
    ray = Ray({"CPU": 1.0}, starts=[lost(), lost(), None, lost(), lost(), None])
    events = worked(ray, [job("a", fates=[lost()]), job("b")])
    assert [type(event) for event in events] == [Done, Done]


@pytest.mark.parametrize("error", [Fatal("the disk is full")])
def test_what_is_fatal_ends_all(error: Exception):
    ray = Ray({"CPU": 2.0})
    hands = crew(ray)
    with pytest.raises(Fatal, match="the disk is full"):
        list(hands.work([job("a", fates=[RayTaskError(error)]), *(job(str(i)) for i in range(9))]))
    assert len(ray.ran) <= 3
    hands.close()
    assert len(ray.alive) <= 1  # that of the job: Ray ends it when nobody holds it any more


def test_a_worker_that_says_it_is_broken_is_replaced():
    ray = Ray({"CPU": 1.0})
    events = worked(ray, [job("a", fates=[RayTaskError(Broken("CUDA error"))]), job("b")])
    assert [type(event) for event in events] == [Done, Done] and ray.hired == 2
    assert [number for _, number, *_ in ray.ran] == [0, 1, 1]
    ray = Ray({"CPU": 1.0})
    (failed,) = worked(ray, [job("a", fates=[RayTaskError(Broken("CUDA error")) for _ in "abc"])])
    assert isinstance(failed, Failed) and failed.error.endswith("died 3 times: CUDA error")


def test_a_job_that_raises_is_failed_once_and_its_worker_goes_on():
    ray = Ray({"CPU": 1.0})
    events = worked(ray, [job("a", fates=[RayTaskError(ValueError("bad"))]), job("b")])
    failed, done = events
    assert isinstance(failed, Failed) and "ValueError: bad" in failed.error
    assert isinstance(done, Done) and ray.hired == 1 and ray.begun() == ["a", "b"]


@pytest.mark.parametrize("fate", [None, RayTaskError(ValueError("bad")), "dies"])
def test_a_job_waits_for_the_one_it_comes_after(fate: Any):
    """Also where that fails, or its worker dies again and again."""
    fates = [lost() for _ in range(3)] if fate == "dies" else [fate] if fate else []
    first = job("first", 5.0, fates)
    rest = [job(f"rest {i}", after="first", cost=9) for i in range(4)]
    ray = Ray({"CPU": 3.0})
    events = worked(ray, [*rest, first, job("other")])
    assert len(events) == 6
    ended = max(end for name, _, _, end in ray.ran if name == "first")
    assert all(start >= ended for name, _, start, _ in ray.ran if name.startswith("rest"))
    assert ray.spans()["other"][0] < ended


def test_after_a_job_that_is_not_there_nobody_waits():
    assert len(worked(Ray({"CPU": 1.0}), [job("a", after="long ago")])) == 1


def test_what_is_timed_runs_alone_and_last():
    jobs = [job(f"timed {i}", cost=100, alone=True) for i in range(3)]
    jobs += [job(str(i), seconds=1 + i % 4) for i in range(9)]
    ray = Ray({"CPU": 4.0})
    assert len(worked(ray, jobs)) == 12
    spans = ray.spans()
    for name, (start, end) in spans.items():
        for other, (begins, ends) in spans.items():
            if name.startswith("timed") and other != name:
                assert ends <= start or begins >= end
                assert other.startswith("timed") or ends <= start


def test_nothing_begins_beside_what_is_timed():
    """Not even a job whose worker has just died, when another worker's own next job is timed."""
    jobs = [
        job("a", unit="a"),
        job("timed", 3, unit="a", alone=True),
        job("b", 1.4, [lost()], unit="b"),
    ]
    ray = Ray({"CPU": 2.0})
    assert len(worked(ray, jobs)) == 3
    start, end = ray.spans()["timed"]
    others = [span for name, _, *span in ray.ran if name != "timed"]
    assert len(others) == 3 and all(stop <= start or begin >= end for begin, stop in others)


def test_jobs_of_a_unit_stay_with_one_worker():
    jobs = [job(f"{unit}{i}", 1 + (unit == "b"), unit=unit) for unit in "ab" for i in range(4)]
    ray = Ray({"CPU": 2.0})
    worked(ray, jobs)
    early = [(name[0], number) for name, number, start, _ in ray.ran if start < 4]
    assert len({*early}) == 2 and {unit for unit, _ in early} == {"a", "b"}
    ray = Ray({"CPU": 3.0})
    worked(ray, [job(f"a{i}", unit="a") for i in range(9)])
    assert ray.now < 5  # who has nothing else to do helps


def test_after_a_stop_what_is_begun_is_finished():
    ray = Ray({"CPU": 2.0})
    hands = crew(ray, lambda: ray.now >= 3)
    events = list(hands.work([job(str(i), 1.5) for i in range(20)]))
    assert [event.job.key for event in events] == ray.begun() and len(events) < 6
    assert all(start < 3 for _, _, start, _ in ray.ran) and ray.now >= 3
    hands.close()
    assert not ray.alive


def test_a_worker_that_dies_after_a_stop_is_not_replaced():
    ray = Ray({"CPU": 1.0})
    hands = crew(ray, lambda: ray.now >= 1)
    assert list(hands.work([job("a", 2, [lost()]), job("b")])) == []
    assert ray.hired == 1 and ray.begun() == ["a"]


def test_stopped_before_it_begins():
    ray = Ray({"CPU": 1.0})
    assert list(crew(ray, lambda: True).work([job("a")])) == [] and not ray.hired


def test_workers_rest_between_two_rounds():
    ray = Ray({"CPU": 2.0})
    hands = crew(ray)
    for n in range(3):
        assert len(list(hands.work([job(f"{n} {i}") for i in range(4)]))) == 4
    assert ray.hired == 2 and list(hands.work([])) == []
    hands.close()
    hands.close()
    assert not ray.alive


def test_a_name_used_again_has_its_own_tries():
    """Spread names the batches of every round alike."""
    ray = Ray({"CPU": 1.0})
    hands = crew(ray)
    for _ in range(3):
        events = list(hands.work([job("batch 0", fates=[lost()])]))
        assert [type(event) for event in events] == [Done]


def test_gpu_seconds_are_those_of_the_jobs():
    hands = crew(Ray({"CPU": 1.0}))
    list(hands.work([job("a")]))
    assert hands.gpu_seconds == 0
    hands = crew(Ray({"GPU": 1.0}), gpus=0.5)
    list(hands.work([job("a")]))
    assert hands.gpu_seconds == hands.seconds / 2


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"gpus": -0.5}, {"cpus": 0}])
def test_an_engine_refuses(wrong: dict[str, Any]):
    with pytest.raises(ValueError, match="must be"):
        OnRay(**wrong)


def test_it_joins_and_says_where_nobody_is(monkeypatch: pytest.MonkeyPatch):
    import signal
    import sys

    given: list[dict[str, Any]] = []

    def init(**options: Any) -> None:
        given.append(options)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Ray does
        if options["address"] == "nobody:1":
            raise ConnectionError("refused")

    fake = SimpleNamespace(init=init, is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", fake)
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        mine = signal.getsignal(signal.SIGTERM)
        assert connected("local", {"num_cpus": 3}) is fake and connected("auto", {}) is fake
        with pytest.raises(ConnectionError, match=r"no Ray cluster at 'nobody:1': .*refused"):
            connected("nobody:1", {})
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert given[0]["address"] == "local" and given[0]["num_cpus"] == 3
    assert given[1]["address"] == "auto" and all(not each["log_to_driver"] for each in given)
    fake.is_initialized = lambda: True
    assert connected("auto", {}) is fake and len(given) == 3
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'geoshrink\[ray\]'"):
        connected("auto", {})
