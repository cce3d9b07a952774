"""examples/serve.py under load: mixed requests, faults, clients that go, and nothing that stays."""

from __future__ import annotations

import functools
import gc
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("diffusers")
serving: Any = pytest.importorskip("serving")
from serving import (  # noqa: E402
    BUILDERS,
    ROOT,
    Faults,
    Stopwatch,
    alone,
    ask,
    ask_and_go,
    census,
    marks,
)

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]
serve: Any = serving.load_example("serve")
CLIENTS, RUNS = 8, 3
ASKED = ("exact", "budget=5", "budget=7", "speedup=2", "target_db=25", "target_db=30, most=9", None)
Request = tuple[str | None, dict[str, Any]]


def requests(count: int, kinds: int, seed: int = 0) -> list[Request]:
    """So many of a few kinds, in any order."""
    draw = random.Random(seed)
    known = [
        (
            ASKED[i % len(ASKED)],
            {
                "prompt": f"prompt {i}",
                "seed": draw.randrange(1000),
                "num_inference_steps": draw.choice((8, 12, 20)),
                "height": draw.choice((16, 32)),
                "guidance_scale": draw.choice((1.5, 3.0)),
            },
        )
        for i in range(kinds)
    ]
    return [draw.choice(known) for _ in range(count)]


@pytest.fixture(scope="module")
def wanted() -> Any:
    """What a request gives alone."""

    @functools.cache
    def answer(name: str, asked: str | None, fields: str) -> tuple[bytes, int | None]:
        return alone(name, asked, json.loads(fields))

    return lambda name, request: answer(name, request[0], json.dumps(request[1]))


def built(name: str) -> Any:
    """A pipeline whose networks have run once: diffusers leaves marks of its own on them."""
    pipe = BUILDERS[name]()
    pipe.set_progress_bar_config(disable=True)
    serve.twin(pipe)(num_inference_steps=2)
    return pipe


@pytest.fixture
def toy() -> Any:
    return built("toy")


@pytest.fixture
def frozen() -> Iterator[None]:
    """What is alive already is not counted: going through a million objects takes a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


# --- one request at a time ---------------------------------------------------------------------


def test_it_is_short():
    assert len((ROOT / "examples/serve.py").read_text(encoding="utf-8").splitlines()) < 100


@pytest.mark.parametrize("where", ["header", "field"])
@pytest.mark.parametrize("asked, calls", [("budget=5", 5), ("speedup=2", 6), ("exact", None)])
def test_a_request_says_what_it_wants(toy, wanted, where, asked, calls):
    fields = {"prompt": "a", "seed": 3, "num_inference_steps": 12}
    with serving.serving(serve, toy, "budget=8") as port:
        if where == "header":
            status, told, body = ask(port, fields, asked)
        else:
            status, told, body = ask(port, {**fields, "geoshrink": asked}, "budget=4")
        assert status == 200 and body == wanted("toy", (asked, fields))[0]
        assert told["calls"] == calls and told["exact"] == (calls is None) and not told["reasons"]
        assert ask(port, fields)[1]["calls"] == 8  # the server's own


def test_a_quality_is_held(toy):
    with serving.serving(serve, toy) as port:
        found = [ask(port, {"num_inference_steps": 20}, f"target_db={db}")[1] for db in (20, 40)]
        assert found[0]["calls"] < found[1]["calls"] and found[1]["estimated_db"] > 30


WRONG = {
    "budget=many": "must be an integer",
    "budget=5, speedup=2": "budget",
    "plan=/etc/plan.json": "a request may say",
    "faster": "expected words like",
    '{"budget": ': "not valid JSON",
}


@pytest.mark.parametrize("asked", WRONG)
def test_a_wrong_wish_runs_exactly_and_is_told(toy, wanted, asked):
    fields = {"prompt": "a", "num_inference_steps": 12}
    with serving.serving(serve, toy, "budget=6") as port:
        status, told, body = ask(port, fields, asked)
    assert status == 200 and body == wanted("toy", ("exact", fields))[0]
    assert told["exact"] and WRONG[asked] in told["reasons"][0]


def test_a_long_wrong_wish_is_told_briefly(toy):
    """A header is a line that not everybody reads to its end."""
    with serving.serving(serve, toy) as port:
        status, told, _ = ask(port, {"geoshrink": "faster" * 9_000})
    assert status == 200 and told["exact"] and "too many" in told["reasons"][0]
    assert len(told["reasons"][0]) <= 300


def test_what_this_pipeline_cannot_do_runs_exactly(toy, wanted):
    """Only accelerate() itself can know it: here the scheduler is not one whose data is known."""
    toy.scheduler = serving.image.diffusers.HeunDiscreteScheduler()
    with serving.serving(serve, toy, {"target": "flow", "budget": 6}) as port:
        status, told, _ = ask(port, {"num_inference_steps": 12})
    assert status == 200 and told["exact"] and "HeunDiscreteScheduler" in told["reasons"][0]


BAD = {
    b"{": "expected a JSON object",
    b"[1]": "not a mapping",
    b"": "expected a JSON object",
    b'{"high": 3}': "wrong is 'high'",
    b'{"height": "tall"}': "wrong is 'height'",
    b'{"callback_on_step_end": 1}': "wrong is 'callback_on_step_end'",
    b"[" * 60_000: "expected a JSON object",
}


@pytest.mark.parametrize("body", BAD, ids=lambda body: repr(body[:30]))
def test_a_bad_request_is_told(toy, body):
    calls = Faults(toy.transformer, 0)
    with serving.serving(serve, toy) as port:
        status, told, said = ask(port, body)
    assert status == 400 and told is None and BAD[body] in said.decode() and calls.calls == 0


def test_other_nonsense_leaves_the_server_alive(toy):
    with serving.serving(serve, toy) as port:
        for name, value in (("content-length", "many"), ("x-geoshrink", "é" * 50)):
            link = HTTPConnection("127.0.0.1", port, timeout=30)
            link.putrequest("POST", "/")
            for header in {"content-length": "2", name: value}.items():
                link.putheader(header[0], header[1].encode("latin-1"))
            link.endheaders(b"{}")
            assert link.getresponse().status == (400 if name == "content-length" else 200)
            link.close()
        assert ask(port, {"seed": 10**30})[0] == 500
        assert ask(port, {"seed": -1})[0] == 200


def test_a_fault_is_told_and_forgotten(toy, wanted):
    before, request = marks(toy), ("budget=5", {"prompt": "b", "num_inference_steps": 12})
    faults = Faults(toy.transformer, 1.0)
    with serving.serving(serve, toy) as port:
        for asked in ("budget=5", "exact"):
            status, told, said = ask(port, request[1], asked)
            assert status == 500 and told is None and b"Planted: planted" in said
            assert marks(toy) == before
        faults.chance = 0
        assert ask(port, request[1], request[0])[2] == wanted("toy", request)[0]


# --- the copies --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILDERS)
def test_a_twin_shares_all_but_the_scheduler(name):
    pipe = built(name)
    pipe.scheduler.set_shift(2.0)  # nothing of the configuration
    mine = serve.twin(pipe)
    for part, own in pipe.components.items():
        assert (getattr(mine, part) is own) == (part != "scheduler")
    assert (
        mine.scheduler.shift == 2.0 and vars(mine.scheduler).keys() == vars(pipe.scheduler).keys()
    )
    idle, before = marks(pipe), dict(vars(pipe.scheduler))
    mine("a", num_inference_steps=8, generator=torch.Generator().manual_seed(0))
    assert marks(pipe) == idle and dict(vars(pipe.scheduler)) == before


def test_a_server_that_learns(toy):
    """The first request teaches, the others query where it says; the copies are one model."""
    with serving.serving(serve, toy, {"learn": True, "budget": 5}) as port:
        found = [ask(port, {"num_inference_steps": 12, "seed": seed})[1] for seed in range(4)]
    assert [told["calls"] for told in found] == [12, 5, 5, 5]


# --- clients that go ---------------------------------------------------------------------------


@pytest.fixture
def stuck(toy) -> Iterator[Any]:
    """Holds the network's third call until it is let go; counts the calls."""
    there, free, calls = threading.Event(), threading.Event(), []

    def hold(module: Any, args: Any) -> None:
        calls.append(threading.get_ident())
        if len(calls) == 3:
            there.set()
            assert free.wait(30)

    toy.transformer.register_forward_pre_hook(hold)
    yield toy, there, free, calls
    free.set()


@pytest.mark.parametrize("asked", ["exact", "budget=6"])
def test_the_run_of_a_client_that_goes_ends(stuck, wanted, asked):
    pipe, there, free, calls = stuck
    before, threads = marks(pipe), threading.active_count()
    with serving.serving(serve, pipe) as port:
        ask_and_go(port, {"num_inference_steps": 12}, asked, seconds=0.2)
        assert there.wait(30)
        free.set()
        census(pipe, threads + 1)
        assert len(calls) == 4  # two of each stage: the second was under way
        assert marks(pipe) == before
        request = ("budget=5", {"num_inference_steps": 12})
        assert ask(port, request[1], request[0])[2] == wanted("toy", request)[0]


def test_a_client_that_goes_while_it_waits_is_never_run(stuck):
    pipe, there, free, calls = stuck
    threads = threading.active_count()
    with serving.serving(serve, pipe, runs=1) as port, ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, port, {"num_inference_steps": 12}, "exact")
        assert there.wait(30)
        ask_and_go(port, {"num_inference_steps": 20}, "exact", seconds=0)
        free.set()
        assert first.result()[0] == 200
        census(pipe, threads + 2)
    assert len(calls) == 2 * 12


def test_only_so_many_run_at_once(toy):
    inside, seen = set(), []

    def enter(module: Any, args: Any) -> None:
        inside.add(threading.get_ident())
        seen.append(len(inside))
        threading.Event().wait(0.001)  # lets others in

    toy.transformer.register_forward_pre_hook(enter)
    toy.transformer.register_forward_hook(lambda *_: inside.discard(threading.get_ident()))
    with serving.serving(serve, toy, runs=2) as port, ThreadPoolExecutor(CLIENTS) as pool:
        answers = pool.map(lambda seed: ask(port, {"seed": seed}, "budget=5")[0], range(CLIENTS))
        assert [*answers] == [200] * CLIENTS
    assert max(seen) == 2


# --- load --------------------------------------------------------------------------------------


def load(
    port: int, name: str, jobs: list[Request], wanted: Any, leaving: float = 0.1
) -> dict[str, int]:
    """Eight clients at once, some of which go; every answer is what the request gives alone."""
    counts, lock = {"right": 0, "failed": 0, "went": 0}, threading.Lock()

    def client(number: int) -> None:
        draw, (asked, fields) = random.Random(number), jobs[number]
        if draw.random() < leaving:
            ask_and_go(port, fields, asked, draw.choice((0.0, 0.005, 0.02)))
            kind = "went"
        else:
            status, told, body = ask(port, fields, asked)
            kind = "right" if status == 200 else "failed"
            if status == 200:
                assert (body, told["calls"]) == wanted(name, jobs[number]), jobs[number]
            else:
                assert (status, b"Planted: planted" in body) == (500, True), body
        with lock:
            counts[kind] += 1

    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in pool.map(client, range(len(jobs))):
            pass
    return counts


def print_overhead(capsys: Any, watch: Stopwatch, what: str) -> None:
    with capsys.disabled():
        print(
            f"\n{what}: milliseconds of this thread's CPU inside geoshrink (the network's and the"
        )
        print("scheduler's own calls subtracted; a request: attach, plan, first stage, report)")
        for kind, count, middle, late in watch.rows():
            print(f"  {kind:14} p50 {middle:6.2f}   p99 {late:6.2f}   of {count}")


@pytest.mark.parametrize("name", BUILDERS)
def test_a_short_load(name, wanted, frozen):
    pipe, jobs = built(name), requests(40, kinds=10)
    for job in jobs:
        wanted(name, job)
    faults, threads = Faults(pipe.transformer, 0.01), threading.active_count()
    before, alive = marks(pipe), census(pipe, threads)
    with serving.serving(serve, pipe, runs=RUNS) as port:
        counts = load(port, name, jobs, wanted)
    left = census(pipe, threads)
    assert counts["right"] > 20 and counts["went"] and faults.planted >= counts["failed"]
    assert marks(pipe) == before and left["classes"] == 0
    more = {what: many - alive.get(what, 0) for what, many in left.items()}
    assert not [what for what, many in more.items() if many > 0], more


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_two_hundred_requests(name, wanted, capsys):
    """The answers are those of a fresh process."""
    pipe, jobs = built(name), requests(200, kinds=28)
    distinct = [*{json.dumps(job): job for job in jobs}.values()]
    script = [sys.executable, str(Path(serving.__file__))]
    lines = "\n".join(json.dumps([name, *job]) for job in distinct)
    made = subprocess.run(script, input=lines, capture_output=True, text=True, check=True)
    fresh = {json.dumps(job): bytes.fromhex(out) for job, out in zip(distinct, made.stdout.split())}
    assert len(fresh) == len(distinct)
    for job in distinct:
        assert wanted(name, job)[0] == fresh[json.dumps(job)]
    before, faults = marks(pipe), Faults(pipe.transformer, 0.01)
    with serving.serving(serve, pipe, runs=RUNS) as port, Stopwatch() as watch:
        counts = load(port, name, jobs, wanted)
    assert counts["right"] > 120 and counts["went"] > 5 and counts["failed"] > 5, counts
    assert faults.planted >= counts["failed"] and marks(pipe) == before
    print_overhead(capsys, watch, f"{name}, {counts}")


# --- leaks -------------------------------------------------------------------------------------

GROWTH = 6.0  # MB that the allocator may move by


def grown(samples: list[dict[str, float]]) -> list[str]:
    """What there is more of in the last samples than in the first."""
    names = {name for sample in samples for name in sample}
    many = {name: [sample.get(name, 0) for sample in samples] for name in names}
    allowed = {"MB": GROWTH}
    half = len(samples) // 2
    late = {name: min(values[half:]) - max(values[:half]) for name, values in many.items()}
    return sorted(name for name, more in late.items() if more > allowed.get(name, 0))


def sampled(port: int, pipe: Any, turns: int, size: int, wanted: Any) -> list[dict[str, float]]:
    """What is alive after each of so many loads."""
    threads, found = threading.active_count(), []
    for _ in range(turns):
        load(port, "toy", requests(size, kinds=14), wanted, leaving=0.05)
        found.append({**census(pipe, threads), "MB": serving.resident()})
    return found


def test_leaks_are_seen(toy, wanted, monkeypatch, frozen):
    """A report, a tensor and a block of memory that are kept each show up."""
    kept: list[Any] = []
    plain = serving.Handle.remove

    def remove(handle: Any) -> None:
        plain(handle)
        kept.append((handle.report, torch.zeros(3), bytearray(2_000_000)))

    with serving.serving(serve, toy, runs=RUNS) as port:
        sampled(port, toy, 1, 10, wanted)
        assert "Report" not in grown(sampled(port, toy, 4, 10, wanted))
        monkeypatch.setattr(serving.Handle, "remove", remove)
        found = grown(sampled(port, toy, 4, 10, wanted))
    assert {"Report", "tensors", "MB"} <= {*found}, found


@pytest.mark.slow
def test_nothing_grows_over_two_thousand_requests(toy, wanted, frozen, capsys):
    before, faults = marks(toy), Faults(toy.transformer, 0.002)
    alive = census(toy, threading.active_count())
    with serving.serving(serve, toy, runs=RUNS) as port, Stopwatch() as watch:
        sampled(port, toy, 2, 250, wanted)  # caches fill, the allocator finds its size
        found = sampled(port, toy, 6, 250, wanted)
    with capsys.disabled():
        print(f"\nMB after each 250: {[round(sample['MB'], 1) for sample in found]}")
        print(f"alive at the end: {found[-1]}")
    assert not grown(found), found
    assert marks(toy) == before and faults.planted > 10
    for name in ("Run", "Loop", "Seam", "Report", "Hook", "classes"):
        assert found[-1].get(name, 0) <= alive.get(name, 0), (name, found[-1])
    print_overhead(capsys, watch, "toy, 2,000 requests")


# --- as it is started --------------------------------------------------------------------------


@pytest.mark.slow
def test_it_runs_as_it_stands():
    """The demo model, in a process of its own."""
    pytest.importorskip("geoshrink_bench")
    command = [sys.executable, str(ROOT / "examples/serve.py"), "--port", "0", "--runs", "1"]
    with subprocess.Popen(
        [*command, "--geoshrink", "budget=5"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().decode().rsplit(":", 1)[1])
            fields = {"labels": "Kiwi 1", "num_inference_steps": 8}
            found = [ask(port, fields, asked) for asked in (None, "exact")]
        finally:
            process.terminate()
    assert [told["calls"] for _, told, _ in found] == [5, None]
    assert all(body.startswith(b"\x89PNG") for _, _, body in found) and found[0][2] != found[1][2]
