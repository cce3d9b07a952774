"""geoshrink batch in one process: what it makes, keeps, tries again, says, and survives."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import geoshrink
from batch import (
    MODEL,
    NAME,
    Command,
    batch,
    calls,
    check_whole,
    counted,
    files,
    parts,
    put_prompts,
    put_toy,
    rows,
    stamps,
    until,
)
from geoshrink.batch import Batch, run
from geoshrink.batch.jobs import Fatal, Here, Job
from geoshrink.batch.results import ROW
from geoshrink.cli import main
from geoshrink.grid import Grid
from geoshrink.plan import Plan

pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")
pytest.importorskip("torchdiffeq")
Image = pytest.importorskip("PIL.Image")
STEPS = 20


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The toy's folder."""
    monkeypatch.syspath_prepend(str(put_toy(tmp_path)))
    monkeypatch.chdir(tmp_path)
    sys.modules.pop(NAME, None)
    yield tmp_path
    sys.modules.pop(NAME, None)


def quick(prompts: Any, out: Any = "out", steps: int = STEPS, **options: Any) -> Batch:
    settings = {"steps": steps, **options.pop("settings", {})}
    if not {"plain", "speedup", "target_db", "plan"} & {*options}:
        options = {"budget": 5, **options}
    return run(MODEL, prompts, out, progress=False, settings=settings, **options)


def pixels(content: bytes) -> bytes:
    with Image.open(io.BytesIO(content)) as image:
        return image.tobytes()


# -- what is made


def test_each_prompt_becomes_a_sample_and_a_row(here: Path):
    put_prompts(here, ["a cat", "a dog", "a fish"])
    done = quick("prompts.txt", seed=7)
    assert (done.total, done.made, done.kept, done.failed, done.left) == (3, 3, 0, [], 0)
    assert done.calls == 15 and done.line() == "3 made, 0 kept from before" and done.seconds > 0
    table = rows(here / "out")
    assert [(row["prompt"], row["seed"]) for row in table] == [
        ("a cat", 7),
        ("a dog", 8),
        ("a fish", 9),
    ]
    for row in table:
        assert row["calls"] == 5 and row["file"] == f"{row['key']}.png" and row["call"] == "{}"
        assert row["seconds"] > 0 and row["error"] is None and row["made"] == "CPU"
        assert "GeoShrink" in row["report"] or "stages" in row["report"]
    assert len(os.listdir("out")) == 7 and not parts(here / "out")
    assert len(calls(here, "built.log")) == 1
    check_whole(here / "out")


def test_a_second_start_makes_nothing_and_loads_no_model(here: Path):
    quick(["a cat", "a dog"])
    before, written = files(here / "out"), stamps(here / "out")
    done = quick(["a dog", "a cat"])  # the seeds go by the order
    assert (done.made, done.kept) == (2, 0)
    again = quick(["a cat", "a dog"])
    assert (again.made, again.kept, again.left) == (0, 2, 0)
    assert again.line() == "0 made, 2 kept from before"
    assert len(calls(here, "built.log")) == 2 and len(calls(here)) == 4
    assert before.items() <= files(here / "out").items()
    assert written.items() <= stamps(here / "out").items()


def test_more_prompts_make_what_is_missing(here: Path):
    quick(["a cat"])
    done = quick(["a cat", "a dog"])
    assert (done.made, done.kept) == (1, 1) and counted(here) == {"a cat": 1, "a dog": 1}
    assert len(rows(here / "out")) == 2


def test_the_same_prompt_twice_is_one(here: Path):
    twice = [{"prompt": "a cat", "seed": 1}, {"prompt": "a cat", "seed": 1}, "a dog"]
    done = quick(twice)
    assert (done.total, done.made) == (2, 2) and counted(here) == {"a cat": 1, "a dog": 1}


def test_a_sample_without_its_row_is_made_again(here: Path):
    quick(["a cat"])
    before = files(here / "out")
    next((here / "out").glob(f"*{ROW}")).unlink()
    done = quick(["a cat"])
    assert done.made == 1 and files(here / "out") == before


def test_arguments_of_a_row_reach_the_call(here: Path):
    done = quick([{"prompt": "a cat", "seed": 1}, {"prompt": "a cat", "seed": 1, "size": 12}])
    assert done.made == 2
    sizes = [pixels((here / "out" / row["file"]).read_bytes()) for row in rows(here / "out")]
    assert [len(size) for size in sizes] == [3 * 64, 3 * 144]
    assert json.loads(rows(here / "out")[1]["call"]) == {"size": 12}


def test_arguments_of_the_batch_reach_every_call(here: Path):
    quick(["a cat"], "plain", plain=True)
    quick(["a cat"], "gain", plain=True, settings={"kwargs": {"gain": 2.0}})
    assert [*files(here / "plain").values()] != [*files(here / "gain").values()]


@pytest.mark.parametrize("seed", [0, 3])
def test_a_batch_makes_what_accelerate_makes(here: Path, seed: int):
    import importlib

    quick(["a cat"], seed=seed)
    toy, call = importlib.import_module(NAME).built()
    with geoshrink.accelerate(toy, budget=5):
        wanted = call("a cat", STEPS, seed)
    (kept,) = files(here / "out").values()
    assert kept == wanted.file(0)[0]
    assert kept != call("a cat", STEPS, seed).file(0)[0]


def test_a_budget_of_all_steps_is_the_plain_run(here: Path):
    import importlib

    quick(["a cat", "a dog"], "all", budget=STEPS)
    done = quick(["a cat", "a dog"], "plain", plain=True)
    assert done.calls == 2 * STEPS
    same = sorted(files(here / "all").values()), sorted(files(here / "plain").values())
    assert same[0] == same[1]
    _, call = importlib.import_module(NAME).built()
    first = rows(here / "plain")[0]
    assert first["report"] is first["estimated_db"] is None
    assert (here / "plain" / first["file"]).read_bytes() == call("a cat", STEPS, 0).file(0)[0]


@pytest.mark.parametrize("steps", [1, 4, 5])
def test_few_steps_are_enough_for_a_plain_run(here: Path, steps: int):
    assert quick(["a cat"], plain=True, steps=steps).calls == steps


def test_a_plan_file_is_followed(here: Path):
    grid = Grid.of(torch.linspace(0, 1, STEPS + 1).tolist(), data=1.0)
    (here / "plan.json").write_text(Plan.of(grid, 6).to_json())
    done = quick(["a cat"], plan="plan.json")
    assert done.calls == 6
    assert quick(["a cat"], plan=here / "plan.json").kept == 1  # by its content, not its name
    (here / "other.json").write_text(Plan.of(grid, 7).to_json())
    assert quick(["a cat"], plan="other.json").calls == 7


def test_a_worker_learns_from_its_first_sample(here: Path):
    done = quick(["a cat", "a dog", "a fish"], learn=True)
    assert [row["calls"] for row in rows(here / "out")] == [
        STEPS,
        5,
        5,
    ] and done.calls == STEPS + 10


def test_results_go_to_an_address(here: Path):
    import fsspec

    quick(["a cat", "a dog; raise"])
    done = quick(["a cat", "a dog; raise"], "memory://batch/run")
    store: Any = fsspec.filesystem("memory")
    found = {
        path.rpartition("/")[2]: store.cat_file(path) for path in store.ls("/batch/run", False)
    }
    assert (done.made, len(done.failed)) == (1, 1) and files(here / "out").items() <= found.items()
    assert {*found} == {*os.listdir("out")} and not (here / "memory:").exists()
    assert quick(["a cat"], "memory://batch/run").kept == 1
    store.store.clear()


def test_a_video_is_kept_as_webp(here: Path):
    quick(["a cat; film"])
    assert [Path(name).suffix for name in files(here / "out")] == [".webp"]


# -- what fails


@pytest.mark.parametrize(
    "order, said",
    [
        ("raise", "RuntimeError: no such cat"),
        ("memory", "OutOfMemoryError: CUDA out of memory"),
        ("nan", "ValueError: the picture is empty or not finite"),
    ],
)
def test_a_failed_prompt_is_a_row_with_its_error(here: Path, order: str, said: str):
    prompts = ["a cat", f"a dog; {order}", "a fish"]
    done = quick(prompts)
    assert (done.made, done.left) == (2, 0) and len(done.failed) == 1 and "1 FAILED" in done.line()
    assert said in done.failed[0][1] and len(done.failed[0][1].splitlines()) == 1
    cat, dog, fish = rows(here / "out")
    assert cat["error"] is fish["error"] is None and said in dog["error"]
    assert "Traceback" in dog["error"] and dog["file"] is None and dog["key"] == done.failed[0][0]
    assert (here / "out" / f"{dog['key']}.error.parquet").is_file()
    again = quick(prompts)
    assert (again.made, again.kept, len(again.failed)) == (0, 2, 1)
    assert counted(here) == {prompts[0]: 1, prompts[1]: 2, prompts[2]: 1}


def test_a_prompt_that_failed_is_tried_again(here: Path):
    prompts = ["a cat; mend", "a dog"]
    assert len(quick(prompts).failed) == 1
    done = quick(prompts)
    assert (done.made, done.kept, done.failed) == (1, 1, [])
    assert [row["error"] for row in rows(here / "out")] == [None, None]
    assert not [*(here / "out").glob("*.error.parquet")]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"budget": 5, "speedup": 2.0}, "give one of budget, speedup, target_db and plan"),
        ({"budget": 2}, "budget"),
        ({"plan": "none.json"}, r"none\.json"),
        ({"settings": {"dtype": "fp8"}}, "unknown dtype 'fp8'"),
        ({"settings": {"kwargs": {"steps": 4}}}, "'steps'"),
        ({"settings": {"kwargs": {"colour": 4}}}, "'colour'"),
        ({"rule": "no such rule"}, "no such rule"),
    ],
)
def test_what_is_wrong_for_all_is_said_at_once(here: Path, options: dict[str, Any], said: str):
    with pytest.raises((ValueError, TypeError, OSError), match=said):
        quick(["a cat", "a dog"], **options)
    assert not calls(here)


def test_no_prompts_are_an_error(here: Path):
    with pytest.raises(ValueError, match="there are no prompts"):
        quick([])


def test_a_full_disk_ends_the_batch(here: Path, monkeypatch: pytest.MonkeyPatch):
    replace = os.replace

    def full(a: Any, b: Any) -> None:
        if len(calls(here)) > 2:
            raise OSError(28, "No space left on device")
        replace(a, b)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(Fatal, match=r"out/[0-9a-f]+\.png cannot be written: .*No space left"):
            quick(["a cat", "a dog", "a fish", "a bird"])
    assert len(calls(here)) == 3 and len(stamps(here / "out")) == 2 and not parts(here / "out")
    check_whole(here / "out")
    done = quick(["a cat", "a dog", "a fish", "a bird"])
    assert (done.made, done.kept) == (2, 2)


# -- who runs it


def test_an_engine_gets_the_dearest_and_the_stop(here: Path):
    class Engine(Here):
        jobs: list[Job]

        def open(self, make: Any, stopped: Any) -> Any:
            assert not stopped()
            crew = super().open(make, stopped)
            work = crew.work
            vars(crew)["work"] = lambda jobs: work(self.seen(jobs))
            return crew

        def seen(self, jobs: Any) -> Any:
            self.jobs = list(jobs)
            return self.jobs

    engine, big = Engine(), {"prompt": "a dog", "height": 8, "width": 16}
    done = run(MODEL, ["a cat", big], "out", engine=engine, progress=False, budget=5)
    assert done.made == 2
    assert [job.cost for job in engine.jobs] == [1, 128]
    assert {job.what["prompt"] for job in engine.jobs} == {"a cat", "a dog"}


def test_signals_are_as_before(here: Path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    quick(["a cat"])
    with pytest.raises(ImportError):
        run("no_such_module:x", ["a cat"], "other", progress=False, budget=5)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_it_runs_in_a_thread(here: Path):
    """Where no signal can be caught."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(quick, ["a cat"]).result().made == 1


# -- the command


def test_the_command_says_what_it_did(here: Path, capsys: pytest.CaptureFixture[str]):
    put_prompts(here, ["a cat", "a dog; raise"])
    words = ["batch", MODEL, "prompts.txt", "--out", "out", "--steps", "20", "--budget", "5"]
    assert main(words) == 1
    said = capsys.readouterr()
    assert "out: 1 made, 0 kept from before, 1 FAILED; results.parquet has a row" in said.out
    assert "failed: " in said.err and "RuntimeError: no such cat" in said.err
    put_prompts(here, ["a cat"])
    assert main(words) == 0 and "0 made, 1 kept from before" in capsys.readouterr().out
    assert main([*words, "--learn", "--seed", "3"]) == 0
    assert rows(here / "out")[0]["seed"] == 3


@pytest.mark.parametrize(
    "words, said",
    [
        (["--budget", "5", "--plain"], "not allowed with argument"),
        ([], "give one of budget, speedup, target_db and plan, got none"),
        (["--budget", "5", "--kwargs", "{"], "--kwargs is not JSON"),
        (["--budget", "5", "--dtype", "fp8"], "unknown dtype 'fp8'"),
        (["--budget", "5", "--workers", "0"], "workers must be at least 1, got 0"),
        (["--budget", "5", "--gpus-per-worker", "1"], "--gpus-per-worker 1.0 is for a cluster"),
        (
            ["--budget", "5", "--ray", "local", "--workers", "0"],
            "workers must be at least 1, got 0",
        ),
        (["--budget", "5", "--ray", "local", "--cpus-per-worker", "0"], "at least 1, got 0"),
        (["--budget", "5", "--ray", "local", "--gpus-per-worker", "-1"], "0 or more, got -1"),
        (["--plan", "none.json"], "none.json"),
        (["--budget", "5", "--out", "prompts.txt"], "prompts.txt is a file: name a folder"),
    ],
)
def test_the_command_refuses(here: Path, capsys: pytest.CaptureFixture[str], words, said: str):
    put_prompts(here, ["a cat"])
    try:
        status = main(["batch", MODEL, "prompts.txt", "--out", "out", *words])
    except SystemExit as end:
        status = end.code
    assert status == 2 and said in capsys.readouterr().err and not calls(here)


@pytest.mark.parametrize(
    "model, prompts, said",
    [
        ("no_such_module:x", "prompts.txt", "no_such_module"),
        ("no_such_folder", "prompts.txt", "no folder 'no_such_folder'"),
        (MODEL, "none.txt", "none.txt"),
    ],
)
def test_the_command_names_what_is_missing(here: Path, capsys, model, prompts, said: str):
    put_prompts(here, ["a cat"])
    assert main(["batch", model, prompts, "--out", "out", "--budget", "5"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("builder", ["broken"])
def test_a_model_that_cannot_be_built_says_why(here: Path, capsys, builder: str):
    put_prompts(here, ["a cat"])
    words = ["prompts.txt", "--out", "out", "--budget", "5"]
    with pytest.raises(RuntimeError, match="the weights are gone"):
        main(["batch", f"{NAME}:{builder}", *words])


def test_the_command_says_where_the_disk_is_full(here: Path, capsys, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    put_prompts(here, ["a cat"])
    monkeypatch.setattr(os, "replace", full)
    assert main(["batch", MODEL, "prompts.txt", "--out", "out", "--budget", "5"]) == 2
    said = capsys.readouterr().err
    assert "geoshrink batch: " in said and "out/" in said and "No space left on device" in said


# -- stopped and killed

MANY = [f"cat {i}; sleep 0.1" for i in range(10)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_it_finish_what_is_begun(tmp_path: Path, number: int):
    put_prompts(put_toy(tmp_path), MANY)
    going = batch(tmp_path)
    until(lambda: len(calls(tmp_path)) >= 3)
    os.kill(going.pid, number)
    status, said = going.end()
    made = len(calls(tmp_path))
    assert status == 130 and 3 <= made < 10 and "Traceback" not in said
    assert f"out: {made} made, 0 kept from before, {10 - made} left" in said
    assert "stopped: the same command goes on" in said
    assert len(stamps(tmp_path / "out")) == made == len(rows(tmp_path / "out"))
    (tmp_path / "quick").touch()
    assert batch(tmp_path).end()[0] == 0
    assert counted(tmp_path) == dict.fromkeys(MANY, 1) and len(rows(tmp_path / "out")) == 10


def test_a_second_signal_ends_it_at_once(tmp_path: Path):
    put_prompts(put_toy(tmp_path), ["cat; sleep 60"])
    going = batch(tmp_path)
    until(lambda: calls(tmp_path))
    os.kill(going.pid, signal.SIGTERM)
    time.sleep(0.3)  # two at once may reach two threads
    os.kill(going.pid, signal.SIGINT)
    status, said = going.end(20)
    assert status == 130 and "geoshrink batch: stopped" in said and not stamps(tmp_path / "out")


@pytest.mark.parametrize("files_until", [1, 2, 5])
def test_a_kill_in_a_write_leaves_nothing_half_written(tmp_path: Path, files_until: int):
    """1: in the sample; 2: in its row, after its sample; 5: in one of the next."""
    prompts = [f"cat 0; die writing {files_until}", *(f"cat {i}" for i in range(1, 6))]
    put_prompts(put_toy(tmp_path), prompts)
    out = tmp_path / "out"
    assert batch(tmp_path).end()[0] == -signal.SIGKILL
    check_whole(out)
    before, kept = stamps(out), (files_until - 1) // 2
    assert len(before) == kept and len([*out.glob("*.png")]) == files_until // 2
    status, said = batch(tmp_path).end()
    assert status == 0 and f"{6 - kept} made, {kept} kept" in said
    again = [prompt for prompt, times in counted(tmp_path).items() if times > 1]
    assert again == [prompts[kept]] and before.items() <= stamps(out).items()
    check_whole(out)
    assert len(rows(out)) == 6 and len([*out.glob("*.png")]) == 6


def test_a_kill_in_the_middle_loses_only_that_one(tmp_path: Path):
    put_prompts(put_toy(tmp_path), MANY)
    going = batch(tmp_path)
    until(lambda: len(calls(tmp_path)) >= 4)
    os.kill(going.pid, signal.SIGKILL)
    assert going.end()[0] == -signal.SIGKILL
    out = tmp_path / "out"
    before = stamps(out)
    check_whole(out)
    (tmp_path / "quick").touch()
    assert batch(tmp_path).end()[0] == 0
    assert len(calls(tmp_path)) <= 11 and before.items() <= stamps(out).items()
    assert [row["prompt"] for row in rows(out)] == MANY and not parts(out)


def test_two_of_them_in_one_folder_are_harmless(tmp_path: Path):
    put_prompts(put_toy(tmp_path), [f"cat {i}; sleep 0.05" for i in range(8)])
    both = [batch(tmp_path), batch(tmp_path)]
    assert [each.end()[0] for each in both] == [0, 0]
    out = tmp_path / "out"
    check_whole(out)
    assert len(rows(out)) == 8 and not parts(out)
    (tmp_path / "quick").touch()
    put_prompts(put_toy(tmp_path / "other"), [f"cat {i}; sleep 0.05" for i in range(8)])
    words = ("batch", MODEL, "prompts.txt", "--out", "out", "--steps", 20, "--budget", 5)
    assert Command(tmp_path / "other", *words).end()[0] == 0
    assert files(tmp_path / "other" / "out") == files(out)


@pytest.mark.parametrize(
    "row, words",
    [
        ({"id": 7}, "a column 'id': Toy takes none such"),
        ({"steps": 9}, "a column 'steps': batch sets that itself"),
        ({"gain": {1}}, r"prompt 2: gain is text, a number or a list of them, got \{1\}"),
    ],
)
def test_a_column_that_cannot_be_is_refused_before_anything_is_made(
    here: Path, row: dict[str, Any], words: str
):
    with pytest.raises(ValueError, match=words):
        quick(["a cat", {"prompt": "a dog", **row}])
    assert not (here / "calls.log").exists() and not [*here.glob("out/*")]


def test_several_samples_of_one_prompt_are_not_dropped_in_silence(here: Path):
    done = quick([{"prompt": "a cat", "count": 2}])
    assert done.made == 0 and "2 samples were made of one prompt" in done.failed[0][1]
