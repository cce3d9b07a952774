"""The parts of a batch: prompts, keys, results, and jobs done in this process."""

from __future__ import annotations

import io
import json
import os
import re
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from geoshrink.batch import Done, Failed, Job, Results, drive, read_prompts
from geoshrink.batch.jobs import Broken, Fatal, Here
from geoshrink.batch.prompts import Prompt
from geoshrink.batch.results import COLUMNS, ERROR, ROW, TABLE, table_bytes
from geoshrink.batch.running import check_options, jobs_of, model_of
from geoshrink.batch.samples import Recipe
from geoshrink.batch.spread import parts_of
from geoshrink.compare import Pictures, Settings
from geoshrink.files import digest
from geoshrink.pointers import notes_of, page_of

pytest.importorskip("fsspec")
pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")
ROWS = [
    {"prompt": "a cat", "seed": 7, "height": 64, "negative_prompt": None},
    {"prompt": "ein Hünd", "height": None, "negative_prompt": "blur"},
    {"prompt": "x", "seed": 0},
]
READ = [
    Prompt("a cat", 7, {"height": 64}),
    Prompt("ein Hünd", 101, {"negative_prompt": "blur"}),
    Prompt("x", 0),
]


# -- prompts


def test_each_line_of_a_text_is_a_prompt(tmp_path: Path):
    path = tmp_path / "prompts.txt"
    path.write_bytes("  a cat \r\n\n\t\nein Hünd\n".encode())
    assert read_prompts(str(path), seed=5) == [Prompt("a cat", 5), Prompt("ein Hünd", 6)]


@pytest.mark.parametrize("kind", ["jsonl", "ndjson", "parquet", "PARQUET"])
def test_rows_bring_seeds_and_arguments(tmp_path: Path, kind: str):
    path = tmp_path / f"prompts.{kind}"
    path.write_bytes(encoded(kind))
    assert read_prompts(str(path), seed=100) == READ


def encoded(kind: str) -> bytes:
    if kind.endswith("l"):
        return "\n\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS).encode()
    if kind == "ndjson":
        return "\n".join(map(json.dumps, ROWS)).encode()
    import pyarrow
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), buffer)
    return buffer.getvalue()


def test_a_line_of_json_may_be_a_text(tmp_path: Path):
    path = tmp_path / "p.jsonl"
    path.write_text('"a cat"\n{"prompt": "a dog"}')
    assert [each.text for each in read_prompts(str(path))] == ["a cat", "a dog"]


@pytest.mark.parametrize("kind", ["txt", "jsonl", "parquet"])
def test_prompts_at_an_address(memory: Any, kind: str):
    content = b"a cat" if kind == "txt" else encoded(kind)
    memory.pipe_file(f"/in/p.{kind}", content)
    found = read_prompts(f"memory://in/p.{kind}", 100)
    assert found == ([Prompt("a cat", 100)] if kind == "txt" else READ)


def test_a_local_address_is_a_file_and_is_closed(tmp_path: Path):
    (tmp_path / "p.txt").write_text("a cat")
    assert read_prompts(f"file://{tmp_path}/p.txt") == [Prompt("a cat", 0)]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85"])
def test_only_a_newline_ends_a_line(tmp_path: Path, mark: str):
    """JSON may hold any of these as they are."""
    text = f"a{mark}b"
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": text}, ensure_ascii=False) + "\n", "utf-8")
    assert [each.text for each in read_prompts(str(path))] == [text]


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path: Path, kind: str):
    path = tmp_path / f"p.{kind}"
    path.write_text("a cat" if kind == "txt" else '{"prompt": "a cat"}', "utf-8-sig")
    assert [each.text for each in read_prompts(str(path))] == ["a cat"]


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("p.txt", b"", r"p\.txt holds no prompts"),
        ("p.txt", b" \n\n", r"p\.txt holds no prompts"),
        ("p.txt", b"\xff\xfe", r"p\.txt: .*utf-8"),
        ("p.jsonl", b"", r"p\.jsonl holds no prompts"),
        (
            "p.jsonl",
            b'"a"\n\n{"prompt": "b"',
            r"p\.jsonl: line 3 is not JSON .*\{\"prompt\": \"b\"",
        ),
        ("p.jsonl", b"[1]", r"p\.jsonl: line 1 is not an object like .*\[1\]"),
        ("p.jsonl", b"3", r"p\.jsonl: line 1 is not an object"),
        ("p.jsonl", b'{"prompt": " "}', r"p\.jsonl, row 1: a prompt is text, got ' '"),
        ("p.jsonl", b'"a"\n{"prompt": 5}', r"p\.jsonl, row 2: a prompt is text, got 5"),
        ("p.jsonl", b'{"prompt": "a", "seed": -1}', r"row 1: a seed is .* got -1"),
        ("p.jsonl", b'{"prompt": "a", "seed": 1.5}', r"row 1: a seed is .* got 1\.5"),
        ("p.jsonl", b'{"prompt": "a", "seed": true}', r"row 1: a seed is .* got True"),
        ("p.jsonl", b'{"prompt": "a", "seed": "1"}', r"row 1: a seed is .* got '1'"),
        ("p.parquet", b"", r"p\.parquet: it is no Parquet file"),
        ("p.parquet", b"PAR1 and no more PAR1", r"p\.parquet: "),
    ],
)
def test_bad_prompts_are_quoted(tmp_path: Path, name: str, content: bytes, said: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_prompts(str(tmp_path / name))


@pytest.mark.parametrize("path", ["none.txt", ".", "memory://nowhere/p.jsonl"])
def test_a_missing_file_says_which_and_what_it_may_be(tmp_path: Path, monkeypatch, path: str):
    monkeypatch.chdir(tmp_path)
    said = re.escape(f"no file of prompts {path!r}: give a file with a prompt on each line, JSON")
    with pytest.raises(FileNotFoundError, match=said) as caught:
        read_prompts(path)
    assert notes_of(caught.value) == [f"See {page_of('batch')}"]


# -- keys


def keys(
    prompts: tuple[Prompt, ...] = READ[:1],  # pyright: ignore[reportArgumentType]
    plain: bool = False,
    model: str = "mine:wan",
    options: dict[str, Any] | None = None,
    out: str = "out",
    **settings: Any,
) -> list[str]:
    steps = settings.pop("steps", 50)
    own = Settings(model, ("a",), budgets=(4,), **settings)
    recipe = Recipe(own, steps, None if plain else check_options(options or {"budget": 5}), out)
    return [job.key for job in jobs_of(recipe, prompts)]


def test_the_same_content_has_the_same_key():
    cat = Prompt("a cat", 1, {"height": 8, "width": 9})
    same = Prompt("a cat", 1, dict(reversed([*cat.call.items()])))
    assert keys((cat,)) == keys((same,)) == keys((cat,), device="cpu", out="s3://elsewhere")
    assert keys((cat, same)) == keys((cat,)) and len(keys((cat,))[0]) == 24
    options = {"plan": None, "learn": True}
    assert keys(options=options) == keys(options=dict(reversed(options.items())))


def test_any_change_makes_another_key():
    cat = Prompt("a cat", 1)
    found = [
        keys((cat,)),
        keys((Prompt("a cat.", 1),)),
        keys((Prompt("a cat", 2),)),
        keys((Prompt(None, 1),)),
        keys((Prompt("a cat", 1, {"height": 8}),)),
        keys((Prompt("a cat", 1, {"height": 9}),)),
        keys((cat,), model="mine:flux"),
        keys((cat,), steps=49),
        keys((cat,), guidance=3.0),
        keys((cat,), height=8),
        keys((cat,), width=8),
        keys((cat,), frames=8),
        keys((cat,), dtype="fp32"),
        keys((cat,), kwargs={"eta": 1}),
        keys((cat,), plain=True),
        keys((cat,), options={"budget": 6}),
        keys((cat,), options={"speedup": 5}),
        keys((cat,), options={"target_db": 5}),
        keys((cat,), options={"budget": 5, "learn": True}),
        keys((cat,), options={"budget": 5, "rule": "linear"}),
        keys((cat,), options={"plan": {"a": 1}}),
        keys((cat,), options={"plan": {"a": 2}}),
    ]
    assert len({key for (key,) in found}) == len(found)


def test_an_option_that_is_an_object_has_one_key_in_every_process():
    from geoshrink import Learning

    first, second = Learning(every=3), Learning(every=3)
    assert keys(options={"budget": 5, "learn": first}) == keys(
        options={"budget": 5, "learn": second}
    )


def test_a_folder_is_known_by_its_files(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name / "unet").mkdir(parents=True)
        (tmp_path / name / "unet" / "w.bin").write_bytes(b"12")
        (tmp_path / name / "model_index.json").write_text("{}")
    first = model_of(str(tmp_path / "a"))
    assert first == model_of(str(tmp_path / "b")) != model_of("mine:wan") == "mine:wan"
    (tmp_path / "b" / "unet" / "w.bin").write_bytes(b"123")
    assert model_of(str(tmp_path / "b")) != first
    (tmp_path / "b" / "unet" / "w.bin").write_bytes(b"12")
    (tmp_path / "b" / "model_index.json").write_text("[]")
    assert model_of(str(tmp_path / "b")) != first


@pytest.mark.parametrize("options", [{}, {"budget": 5, "speedup": 2.0}, {"learn": True}])
def test_one_amount_is_given(options: dict[str, Any]):
    with pytest.raises(ValueError, match="give one of budget, speedup, target_db and plan, got"):
        check_options(options)


# -- results


@pytest.fixture
def memory():
    import fsspec

    found: Any = fsspec.filesystem("memory")
    found.store.clear()
    found.pseudo_dirs[:] = [""]
    return found


@pytest.fixture(params=["folder", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path, memory: Any) -> str:
    return {
        "folder": str(tmp_path / "deep" / "out"),
        "file": f"file://{tmp_path}/out",
        "memory": "memory://run/out/",
    }[request.param]


def test_what_is_kept_is_read_again(place: str):
    results = Results(place)
    assert results.names() == results.done() == set()
    told = {"key": "k", "prompt": "ein Hünd", "seed": 3, "calls": 5, "seconds": 0.5}
    results.keep(told, b"\x00picture", ".png")
    assert results.names() == {"k.png", f"k{ROW}"} and results.done() == {"k"}
    assert results.read("k.png") == b"\x00picture"
    row = Results(place).row("k")
    assert row == {**dict.fromkeys(COLUMNS), **told, "file": "k.png"} and [*row] == [*COLUMNS]


def test_the_row_is_written_last(place: str, monkeypatch: pytest.MonkeyPatch):
    results = Results(place)

    def no_rows(self: Results, name: str, content: bytes) -> None:
        if name.endswith(ROW):
            raise Fatal("no")
        write(self, name, content)

    write = Results.write
    monkeypatch.setattr(Results, "write", no_rows)
    with pytest.raises(Fatal):
        results.keep({"key": "k"}, b"picture", ".png")
    assert results.names() == {"k.png"} and not results.done()


def test_an_error_stays_until_it_is_made(place: str):
    results = Results(place)
    results.fail({"key": "k", "prompt": "a", "seed": 1, "error": "Traceback\nno"})
    assert results.done() == set() and results.done(kind=ERROR) == {"k"}
    assert results.row("k", ERROR)["error"] == "Traceback\nno"
    results.fail({"key": "k", "error": "again"})
    assert results.row("k", ERROR)["error"] == "again"
    results.keep({"key": "k"}, b"", ".png")
    assert results.names() == {"k.png", f"k{ROW}"}
    results.remove("k.png")
    results.remove("k.png")  # is gone already
    assert results.names() == {f"k{ROW}"}


def test_all_rows_become_one_table(place: str):
    from pyarrow import parquet

    results = Results(place)
    for key in ("a", "b", "other"):
        results.keep({"key": key, "calls": 1}, b"", ".png")
    results.fail({"key": "c", "error": "no"})
    results.fail({"key": "b", "error": "long ago"})  # by a second driver: the row counts
    wanted = ["c", "b", "missing", "a"]
    found = results.gather(wanted)
    assert [(row["key"], row["error"]) for row in found] == [("c", "no"), ("b", None), ("a", None)]
    assert parquet.read_table(io.BytesIO(results.read(TABLE))).to_pylist() == found
    assert (
        results.gather([]) == [] and len(parquet.read_table(io.BytesIO(results.read(TABLE)))) == 0
    )


def test_a_table_has_its_types_without_rows():
    from pyarrow import parquet

    table = parquet.read_table(io.BytesIO(table_bytes([])))
    assert {f.name: str(f.type).replace("double", "float64") for f in table.schema} == COLUMNS


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_is_fatal_and_leaves_no_part(tmp_path: Path, monkeypatch, step: str):
    results = Results(str(tmp_path / "out"))
    results.keep({"key": "old"}, b"old", ".png")
    before = results.names()
    with monkeypatch.context() as patched:
        patched.setattr(os, step, full)
        with pytest.raises(Fatal, match=rf"{tmp_path}/out/k\.png cannot be written: .*No space"):
            results.keep({"key": "k"}, b"picture", ".png")
        with pytest.raises(Fatal, match=r"results\.parquet cannot be written"):
            results.gather(["old"])
        with pytest.raises(Fatal, match=r"k\.error\.parquet cannot be written"):
            results.fail({"key": "k"})
    assert results.names() == before
    results.keep({"key": "k"}, b"picture", ".png")  # there is room again
    assert results.done() == {"old", "k"}


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("times, ends", [(1, False), (3, False), (4, True)])
def test_a_store_that_stumbles_is_asked_again(tmp_path: Path, monkeypatch, times: int, ends: bool):
    naps: list[float] = []
    errors = [OSError(5, "Input/output error")] * times
    replace = os.replace

    def stumble(a: Any, b: Any) -> None:
        if errors:
            raise errors.pop()
        replace(a, b)

    monkeypatch.setattr(os, "replace", stumble)
    monkeypatch.setattr(time, "sleep", naps.append)
    results = Results(str(tmp_path))
    if ends:
        with pytest.raises(Fatal, match=r"k\.png cannot be written: .*Input/output error"):
            results.keep({"key": "k"}, b"picture", ".png")
    else:
        results.keep({"key": "k"}, b"picture", ".png")
    assert naps == [1, 4, 9][: min(times, 3)] and bool(results.done()) is not ends
    assert not [name for name in results.names() if name.startswith(".")]


def test_a_store_that_refuses_is_fatal(memory: Any, monkeypatch):
    results = Results("memory://run")
    monkeypatch.setattr(type(memory), "pipe_file", full)
    with pytest.raises(Fatal, match=r"memory://run/k\.png cannot be written: .*No space left"):
        results.keep({"key": "k"}, b"", ".png")


def test_old_parts_are_swept(tmp_path: Path):
    """What killed writers left, not what another writes now, nor files of others."""
    results, key = Results(str(tmp_path)), "0" * 24
    old = [f".{key}.png.123", f".{key}.row.parquet.9", ".results.parquet.77"]
    new, foreign = f".{key}.png.124", [".nfs000.1", ".git", "x.png.123", f".{key}.png"]
    for name in (*old, new, *foreign):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, None if name == new else (1, 1))
    results.gather([])
    assert results.names() == {new, TABLE, *foreign}


def test_a_file_is_no_place(tmp_path: Path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="out is a file: name a folder"):
        Results(str(tmp_path / "out"))


def test_the_same_object_has_one_key():
    assert digest({"a": 1, "b": [2, None]}) == digest({"b": (2, None), "a": 1})
    assert digest({"a": [1, 2]}) != digest({"a": [2, 1]}) != digest({"a": "1"})


# -- jobs in this process


def test_jobs_run_in_order_by_one_worker():
    made = []

    def make():
        made.append(1)
        return lambda what: what * 10

    jobs = [Job(str(i), i, cost=i) for i in range(4)]
    events = list(drive(jobs, make))
    assert all(isinstance(event, Done) for event in events) and made == [1]
    told = [event.said for event in events if isinstance(event, Done)]
    assert told == [0, 10, 20, 30] and [event.job for event in events] == jobs
    assert all(0 <= event.seconds < 1 for event in events if isinstance(event, Done))


def test_nothing_to_do_makes_no_worker():
    def make():
        raise AssertionError("nobody asked")

    assert list(drive([], make)) == []
    assert list(drive([Job("a", 1)], make, stopped=lambda: True)) == []


def test_a_job_that_raises_does_not_end_the_others():
    events = list(drive([Job("a", 1), Job("b", 0), Job("c", 2)], lambda: lambda what: 6 // what))
    assert [type(event) for event in events] == [Done, Failed, Done]
    failed = events[1]
    assert (
        isinstance(failed, Failed)
        and failed.error.endswith("ZeroDivisionError: integer division or modulo by zero\n")
        and "Traceback" in failed.error
    )


def test_after_a_stop_nothing_begins():
    begun: list[int] = []
    events = drive(
        (Job(str(i), i) for i in range(9)), lambda: begun.append, stopped=lambda: len(begun) >= 3
    )
    assert len(list(events)) == 3 and begun == [0, 1, 2]


def test_a_broken_worker_ends_all_where_there_is_no_other():
    def worker(what: int) -> None:
        raise Broken("CUDA error: an illegal memory access")

    with pytest.raises(Fatal, match="the worker cannot go on: CUDA error"):
        list(drive([Job("a", 1)], lambda: worker))


@pytest.mark.parametrize("error", [Fatal("the disk is full"), KeyboardInterrupt(), SystemExit(1)])
def test_what_is_fatal_ends_all(error: BaseException):
    begun: list[int] = []

    def worker(what: int) -> None:
        begun.append(what)
        if what == 1:
            raise error

    with pytest.raises(type(error)):
        list(drive([Job(str(i), i) for i in range(4)], lambda: worker))
    assert begun == [0, 1]


def test_a_worker_is_let_go():
    crew = Here().open(lambda: lambda what: what, lambda: False)
    assert [*crew.work([Job("a", 1)])] and [*crew.work([Job("b", 1)])] and crew.gpu_seconds == 0
    crew.close()
    assert vars(crew)["worker"] is None


def test_jobs_are_taken_one_by_one():
    """A generator of jobs may look at what came of those before."""
    ended: list[str] = []

    def jobs():
        for i in range(3):
            assert len(ended) == i
            yield Job(str(i), i)

    for event in drive(jobs(), lambda: lambda what: what):
        ended.append(event.job.key)


def test_a_batch_in_parts():
    x = {"a": torch.arange(10).reshape(5, 2), "b": torch.arange(5)}
    parts = parts_of(x, 2)
    assert [len(part["b"]) for part in parts] == [2, 2, 1]
    for name, value in x.items():
        assert torch.equal(torch.cat([part[name] for part in parts]), value)


# -- what a picture is kept as


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_picture_is_a_png(channels: int):
    pixels = torch.randint(0, 256, (2, 1, channels, 5, 7)).float()
    content, suffix = Pictures(pixels / 255).file(1)
    with Image.open(io.BytesIO(content)) as image:
        assert suffix == ".png" and image.format == "PNG" and image.size == (7, 5)
        found = torch.tensor(list(image.tobytes())).reshape(5, 7, channels).movedim(-1, 0)
    assert torch.equal(found.float(), pixels[1, 0])


def test_a_video_is_a_webp_of_its_own_size():
    values = torch.linspace(0, 1, 4).reshape(1, 4, 1, 1, 1).expand(1, 4, 3, 8, 600)
    content, suffix = Pictures(values, moving=True, fps=10).file(0)
    with Image.open(io.BytesIO(content)) as image:
        assert suffix == ".webp" and image.format == "WEBP" and image.size == (600, 8)
        assert vars(image).get("n_frames", 4) == 4
    assert not zipfile.is_zipfile(io.BytesIO(content))
