"""What was learned as files: whole or not there, shared, told apart; and geoshrink learned."""

from __future__ import annotations

import importlib.util
import json
import logging
import multiprocessing
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from geoshrink import Grid, Learned, Learning, Plan, sample
from geoshrink.cli import main
from geoshrink.learning import files
from geoshrink.learning.choosing import plan_from
from geoshrink.learning.setting import Setting
from geoshrink.planning.files import digest

pytestmark = pytest.mark.usefixtures("one_thread")
needs_locks = pytest.mark.skipif(
    importlib.util.find_spec("fcntl") is None, reason="the system has no such locks"
)
T, BUDGET = 20, 7
CHANGED = 2.0  # times as large a first output: another model


class Velocity(torch.nn.Module):
    """It counts its calls."""

    def __init__(self, seed: int = 0):
        super().__init__()
        drawn = torch.randn(8, 8, generator=torch.Generator().manual_seed(seed))
        self.weight, self.calls = torch.nn.Parameter(drawn), 0

    def forward(self, x: torch.Tensor, sigma: float) -> torch.Tensor:
        self.calls += 1
        return torch.tanh(x @ self.weight) + x * sigma


def even(steps: int = T, bend: float = 0.0) -> list[float]:
    """σ from 1 to 0, moved by up to `bend` in the middle."""
    line = [1 - i / steps for i in range(steps + 1)]
    return [s + 4 * bend * s * (1 - s) for s in line]


def noise(seed: int = 1) -> torch.Tensor:
    return torch.randn(2, 8, generator=torch.Generator().manual_seed(seed))


def calls(velocity: Velocity, learning: Learning, steps: int = T, **options: Any) -> int:
    """How many a run takes: T if it is exact, BUDGET if it was taught."""
    before, x = velocity.calls, noise().to(velocity.weight.dtype)
    with torch.no_grad():
        sample(velocity, x, even(steps), BUDGET, learn=learning, **options)
    return velocity.calls - before


def taught(setting: Setting | None = None, pictures: int = 2, **more: Any) -> Learned:
    """Something that looks as if an exact run had taught it."""
    setting = Setting(Grid.of(even()), (8,), solver="euler") if setting is None else setting
    size = setting.grid.steps + 1
    drawn = torch.Generator().manual_seed(pictures)
    rows = torch.randn(len(setting.sizes), size, 4, generator=drawn, dtype=torch.float64)
    grams = rows @ rows.mT
    given = {"spread": 0.5, "first": (1.0,) * len(setting.sizes)} | more
    return Learned(setting, tuple((grams + grams.mT) / 2), pictures=pictures, **given)


def same(one: Learned, other: Learned) -> bool:
    grams = [torch.equal(a, b) for a, b in zip(one.grams, other.grams, strict=True)]
    names = "setting", "spread", "first", "pictures", "runs"
    return all(grams) and all(getattr(one, name) == getattr(other, name) for name in names)


def aged(file: Path, seconds: float) -> Path:
    """As if it was used so long ago."""
    then = time.time() - seconds
    os.utime(file, (then, then))
    return file


def pictures_in(folder: Path) -> list[int]:
    return sorted(Learned.load(file).pictures for file in files.entries(folder))


# Files -------------------------------------------------------------------------------------------


def test_what_a_run_has_taught_is_read_as_it_was_written(tmp_path):
    velocity, learning = Velocity(), Learning(name="my own")
    calls(velocity, learning)
    learned = learning.learned
    assert learned is not None and learned.spread is not None and learned.setting.model
    file = learned.save(str(tmp_path / "new" / "one.json"))
    assert file == tmp_path / "new" / "one.json" and same(Learned.load(str(file)), learned)
    handed = Learning.of(file)
    assert handed.name == "my own" and calls(velocity, handed) == BUDGET


def test_every_kind_of_setting_is_read_as_it_was_written(tmp_path):
    grids: Any = {"video": even(12), "audio": even(12, 0.1)}
    several = Setting(Grid.of(grids, regimes=[5]), (96, 8), "bfloat16", "", "ab12", "n", "cfg=7 σ")
    other = Grid.of(even(9)[:-1], prediction="v", alphas="vp")
    for setting in (several, Setting(other, (4,))):
        learned = taught(setting, 3, spread=None, runs=2)
        found = Learned.load(learned.save(tmp_path / "a.json"))
        assert same(found, learned) and found.setting == setting
        assert found.setting.difference(setting) is None


def changed(**values: Any) -> Callable[[dict[str, Any]], str]:
    """Other contents, with the sha256 that they have."""

    def rewrite(body: dict[str, Any]) -> str:
        body = {k: v for k, v in {**body, **values}.items() if v is not None and k != files.DIGEST}
        return json.dumps({**body, files.DIGEST: digest(body)})

    return rewrite


BAD: dict[str, tuple[Callable[[dict[str, Any]], str], str]] = {
    "empty": (lambda body: "", "holds nothing that was learned, or is damaged"),
    "half": (lambda body: json.dumps(body)[:800], "is damaged"),
    "cut": (lambda body: json.dumps(body)[:-1], "is damaged"),
    "a list": (lambda body: "[1]", "holds nothing that was learned"),
    "deep": (lambda body: "[" * 100_000, "holds nothing that was learned"),
    "a profile": (lambda body: '{"geoshrink profile": 1}', "holds nothing that was learned"),
    "newer": (changed(**{files.KIND: 2}), "has version 2, this geoshrink reads 1: update"),
    "a number": (lambda body: json.dumps({**body, "pictures": 9}), "its sha256 is another one"),
    "no sha256": (lambda body: json.dumps(body | {files.DIGEST: None}), "its sha256 is another"),
    "no first output": (changed(first=None), "KeyError('first')"),
    "no pictures": (changed(pictures=0), "0 pictures, 1 runs"),
    "no matrix": (changed(grams=["no"]), "is damaged"),
    "not finite": (changed(first=[float("inf")]), "a number is not finite"),
    "a setting": (changed(setting={"grid": {}}), "KeyError"),
    "an option": (lambda b: changed(setting={**b["setting"], "more": 1})(b), "more"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_damaged_or_something_else_is_named(tmp_path, name):
    file = taught().save(tmp_path / "some.learned.json")
    rewrite, why = BAD[name]
    file.write_text(rewrite(json.loads(file.read_text(encoding="utf-8"))), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(str(file))) as error:
        Learned.load(file)
    assert why in str(error.value)


def test_no_changed_letter_of_a_file_goes_unnoticed(tmp_path):
    file = taught(Setting(Grid.of(even(4)), (8,))).save(tmp_path / "a.json")
    whole = file.read_bytes()
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=re.escape(str(file))):
            Learned.load(file)
    file.write_bytes(whole[:-9] + b"\xff" + whole[-8:])  # no UTF-8
    with pytest.raises(ValueError, match=re.escape(str(file))):
        Learned.load(file)


# Folders -----------------------------------------------------------------------------------------


def test_a_reader_never_sees_half_a_file(tmp_path):
    setting, enough = Setting(Grid.of(even(150)), (8,)), threading.Event()
    one, other = taught(setting, 1), taught(setting, 2)
    file = one.save(tmp_path / "a.learned.json")

    def write() -> None:
        while not enough.is_set():
            other.save(file)
            one.save(file)

    writer, seen, until = threading.Thread(target=write), list[int](), time.time() + 30
    writer.start()
    try:
        while (len(seen) < 60 or len({*seen}) < 2) and time.time() < until:
            found = Learned.load(file)  # or a ValueError: it is damaged
            assert same(found, one if found.pictures == 1 else other)
            seen.append(found.pictures)
    finally:
        enough.set()
        writer.join()
    assert {*seen} == {1, 2} and files.entries(tmp_path) == [file]


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    files.add_to(tmp_path, taught())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        files.add_to(tmp_path, taught())
    assert pictures_in(tmp_path) == [2]
    monkeypatch.undo()
    assert files.add_to(tmp_path, taught()).pictures == 4  # and nobody holds the lock any more


def add_often(folder: Path, times: int, together: Any) -> None:
    together.wait(60)
    for _ in range(times):
        files.add_to(folder, taught(pictures=3))


@needs_locks
@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_nobody_who_adds_at_the_same_time_loses_a_picture(tmp_path, kind):
    context, count, times = multiprocessing.get_context("spawn"), 2, 20
    together = (context if kind == "processes" else threading).Barrier(count)
    made: Any = context.Process if kind == "processes" else threading.Thread
    adding = [made(target=add_often, args=(tmp_path, times, together)) for _ in range(count)]
    for one in adding:
        one.start()
    for one in adding:
        one.join()
    assert kind == "threads" or [one.exitcode for one in adding] == [0] * count
    assert pictures_in(tmp_path) == [count * times * 3]
    assert Learned.load(files.entries(tmp_path)[0]).runs == count * times


def test_a_full_folder_forgets_the_oldest_first(tmp_path):
    ages = {"new": 10, "old": 4000, "older": 5000, "oldest": 6000}
    kept = {n: aged(taught().save(tmp_path / f"{n}{files.ENDING}"), s) for n, s in ages.items()}
    other = tmp_path / "mine.json"
    taught().save(other)
    size = kept["new"].stat().st_size
    files.bound(tmp_path, 4 * size)
    assert files.entries(tmp_path) == [*kept.values()]
    files.bound(tmp_path, 3 * size - 1)
    assert files.entries(tmp_path) == [kept["new"], kept["old"]]
    files.bound(tmp_path, size)
    assert files.entries(tmp_path) == [kept["new"]] and other.exists()


def test_a_full_folder_keeps_the_newest(tmp_path):
    files.add_to(tmp_path, taught())
    files.bound(tmp_path, 1)
    assert pictures_in(tmp_path) == [2]


def test_what_is_added_bounds_the_folder(tmp_path, monkeypatch):
    old = aged(taught().save(tmp_path / f"old{files.ENDING}"), 4000)
    size = old.stat().st_size
    monkeypatch.setattr(files.bound, "__defaults__", (size + size // 2,))
    added = taught(replace(taught().setting, name="another"), pictures=5)
    assert files.add_to(tmp_path, added) is added
    assert pictures_in(tmp_path) == [5] and not old.exists()
    assert files.FOLDER_BYTES == 64 * 2**20


def test_what_is_used_counts_as_new(tmp_path):
    velocity = Velocity()
    calls(velocity, Learning(folder=tmp_path))
    (mine,) = files.entries(tmp_path)
    other = aged(taught().save(tmp_path / f"0{files.ENDING}"), 1000)
    aged(mine, 2000)
    assert files.entries(tmp_path) == [other, mine]
    assert calls(velocity, Learning(folder=tmp_path)) == BUDGET
    assert files.entries(tmp_path) == [mine, other]
    files.used(tmp_path / "gone")  # another process has forgotten it


def test_a_damaged_file_is_passed_over_with_a_warning(tmp_path, caplog):
    good = taught()
    file = aged(good.save(files.file_of(tmp_path, good.setting)), 1000)
    bad, folder = (tmp_path / f"{file.name[:8]}{name}{files.ENDING}" for name in ("bad", "folder"))
    bad.write_text(file.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    folder.mkdir()
    with caplog.at_level(logging.WARNING, "geoshrink"):
        found = files.found_in(tmp_path, good.setting, Learned)
    assert found is not None and found[0] == file and same(found[1], good)
    assert [str(bad) in record.getMessage() for record in caplog.records] == [True]
    assert files.found_in(tmp_path / "nowhere", good.setting, Learned) is None


def test_a_damaged_file_is_learned_again(tmp_path):
    velocity = Velocity()
    calls(velocity, Learning(folder=tmp_path))
    (file,) = files.entries(tmp_path)
    file.write_text("{", encoding="utf-8")
    assert calls(velocity, Learning(folder=tmp_path)) == T
    assert files.entries(tmp_path) == [file] and pictures_in(tmp_path) == [2]


def test_what_is_found_is_added_to_whatever_its_name(tmp_path):
    usual = files.file_of(tmp_path, taught().setting)
    file = taught().save(usual.with_name(f"{usual.name[:8]}mine{files.ENDING}"))
    files.add_to(tmp_path, taught())
    assert files.entries(tmp_path) == [file] and pictures_in(tmp_path) == [4]


def own(**changes: Any) -> Setting:
    return replace(Setting(Grid.of(even()), (800,), "float32", "euler", "ab", "n", "w"), **changes)


OTHERS = {
    "model": own(model="cd"),
    "unknown model": own(model=""),
    "name": own(name="m"),
    "words": own(words="guidance=7"),
    "solver": own(solver="ab2"),
    "dtype": own(dtype="bfloat16"),
    "larger": own(sizes=(1600,)),
    "a bit too large": own(sizes=(1210,)),
    "smaller": own(sizes=(400,)),
    "slots": own(sizes=(800, 800)),
    "steps": own(grid=Grid.of(even(19))),
    "noise levels": own(grid=Grid.of(even(bend=0.021))),
    "regimes": own(grid=Grid.of(even(), regimes=[4])),
    "predictions": own(grid=Grid.of(even(), prediction="sample", alphas="flow")),
}
ALIKE = {
    "itself": own(),
    "larger": own(sizes=(1190,)),
    "smaller": own(sizes=(540,)),
    "noise levels": own(grid=Grid.of(even(bend=0.019))),
    "the other way": own(grid=Grid.of(even(bend=-0.019))),
}


@pytest.mark.parametrize("name", OTHERS)
def test_settings_that_differ_do_not_mix(tmp_path, name):
    files.add_to(tmp_path, taught(own()))
    other = taught(OTHERS[name], 3)
    assert files.found_in(tmp_path, other.setting, Learned) is None
    assert files.add_to(tmp_path, other) is other and pictures_in(tmp_path) == [2, 3]
    for learned in (taught(own()), other):
        found = files.found_in(tmp_path, learned.setting, Learned)
        assert found is not None and same(found[1], learned)


@pytest.mark.parametrize("name", ALIKE)
def test_settings_that_are_alike_add_up(tmp_path, name):
    files.add_to(tmp_path, taught(own()))
    both = files.add_to(tmp_path, taught(ALIKE[name], 3))
    (file,) = files.entries(tmp_path)
    assert same(Learned.load(file), both) and (both.pictures, both.runs) == (5, 2)
    mean = (2 * taught(own()).grams[0] + 3 * taught(own(), 3).grams[0]) / 5
    assert torch.allclose(both.grams[0], mean)


def test_exactly_half_as_much_again_is_alike_both_ways():
    one, other = own(sizes=(800,)), own(sizes=(1200,))
    assert (one.difference(other), other.difference(one)) == (None, None)


# Learning ----------------------------------------------------------------------------------------


def test_one_process_teaches_the_next(tmp_path):
    velocity, first = Velocity(), Learning(folder=tmp_path)
    assert [calls(velocity, first) for _ in range(3)] == [T, BUDGET, BUDGET]
    second = Learning(folder=str(tmp_path))
    assert [calls(velocity, second) for _ in range(2)] == [BUDGET, BUDGET]
    assert first.learned is not None and second.learned is not None
    assert same(first.learned, second.learned) and second.learned.pictures == 2
    assert calls(Velocity(), Learning(folder=tmp_path)) == BUDGET  # the same weights, elsewhere
    third = Learning(2, folder=tmp_path)
    assert [calls(velocity, third) for _ in range(3)] == [BUDGET, T, BUDGET]
    assert pictures_in(tmp_path) == [4]
    second.forget()
    assert calls(velocity, second) == BUDGET and second.learned.pictures == 4


def test_another_model_is_taught_anew(tmp_path):
    velocity = Velocity()
    assert calls(velocity, Learning(folder=tmp_path)) == T
    learning = Learning(folder=tmp_path)
    assert calls(velocity, learning) == BUDGET
    with torch.no_grad():
        velocity.weight.mul_(1.5)
    assert calls(velocity, learning) == T
    assert calls(velocity, Learning(folder=tmp_path)) == BUDGET
    assert calls(velocity.double(), Learning(folder=tmp_path)) == T
    assert pictures_in(tmp_path) == [2, 2, 2]
    assert calls(Velocity(), Learning(folder=tmp_path)) == BUDGET  # what was first known still is


def test_other_runs_of_a_model_are_taught_anew(tmp_path):
    velocity = Velocity()
    assert calls(velocity, Learning(folder=tmp_path)) == T
    assert calls(velocity, Learning(folder=tmp_path, name="mine")) == T
    assert calls(velocity, Learning(folder=tmp_path), solver="ab2") == T
    assert calls(velocity, Learning(folder=tmp_path), steps=12) == 12
    others: list[dict[str, Any]] = [{}, {"solver": "ab2"}, {"steps": 12}]
    for options in others:
        assert calls(velocity, Learning(folder=tmp_path), **options) == BUDGET


@pytest.mark.parametrize("times", [0.9 * CHANGED, 0.9 / CHANGED, 1.1 * CHANGED, 1.1 / CHANGED])
def test_a_file_with_another_first_output_is_not_used(tmp_path, caplog, times):
    velocity = Velocity()
    calls(velocity, Learning(folder=tmp_path))
    (file,) = files.entries(tmp_path)
    learned = Learned.load(file)
    replace(learned, first=(learned.first[0] * times,)).save(file)
    caplog.clear()
    alike = 1 / CHANGED < times < CHANGED
    learning = Learning(folder=tmp_path)
    assert calls(velocity, learning) == (BUDGET if alike else T)
    assert ("its first output is unlike this one's" in caplog.text) is not alike
    assert calls(velocity, learning) == BUDGET
    assert same(Learned.load(file), learned) is not alike  # what was new has taken its place


@pytest.mark.parametrize("inside", [False, True])
def test_a_folder_that_cannot_be_written_only_warns(tmp_path, caplog, inside):
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    velocity, learning = Velocity(), Learning(folder=file / "inside" if inside else file)
    assert calls(velocity, learning) == T
    assert "what was learned could not be kept" in caplog.text and str(file) in caplog.text
    assert calls(velocity, learning) == BUDGET
    assert file.read_text(encoding="utf-8") == "mine"


def test_the_environment_says_where(tmp_path, monkeypatch):
    for name in ("GEOSHRINK_LEARNED", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert files.cache_folder() == tmp_path / "home" / ".cache" / "geoshrink" / "learned"
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert files.cache_folder() == tmp_path / "local" / "geoshrink" / "learned"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert files.cache_folder() == tmp_path / "cache" / "geoshrink" / "learned"
    calls(Velocity(), Learning(folder=True))
    assert len(files.entries(tmp_path / "cache" / "geoshrink" / "learned")) == 1
    monkeypatch.setenv("GEOSHRINK_LEARNED", str(tmp_path / "own"))
    assert Learning(folder=True).folder == files.cache_folder() == tmp_path / "own"
    assert Learning(folder=False).folder is Learning().folder is None


# The command -------------------------------------------------------------------------------------


def said(capsys: Any, *words: object) -> str:
    """What a command prints that succeeds."""
    code, text = main(["learned", *map(str, words)]), capsys.readouterr()
    assert (code, text.err) == (0, "")
    return text.out


def refused(capsys: Any, *words: object) -> str:
    code, text = main(["learned", *map(str, words)]), capsys.readouterr()
    assert (code, text.out) == (2, "") and text.err.startswith("geoshrink learned: ")
    return text.err


def three(folder: Path) -> list[Path]:
    """Files of a folder, the latest used first."""
    several = Setting(Grid.of(even(12)), (96, 8), "bfloat16", words="cfg=7, " + 9 * "a word ")
    settings = {
        "0123456789abcdef": own(model="feedc0ffee99", name="mine", words="guidance=3"),
        "0123456799999999": several,
        "9876543210fedcba": own(),
    }
    made = []
    for days, (name, setting) in enumerate(settings.items()):
        file = taught(setting, 2 + days).save(folder / f"{name}{files.ENDING}")
        made.append(aged(file, 86400 * days))
    return made


def test_list_has_every_file_the_latest_used_first(tmp_path, capsys):
    made = three(tmp_path)
    bad = tmp_path / f"bad{files.ENDING}"
    bad.write_text("{", encoding="utf-8")
    newer = changed(**{files.KIND: 2})({})
    (tmp_path / f"newer{files.ENDING}").write_text(newer, encoding="utf-8")
    aged(bad, 86400 * 1.5)
    aged(tmp_path / f"newer{files.ENDING}", 86400 * 9)
    lines = said(capsys, "list", "--folder", tmp_path).splitlines()
    head, rule, *rows, empty, why, also, last = lines
    assert re.split("  +", head) == [
        *("id", "stages", "pictures", "size", "dtype", "model", "name, words", "last used", "bytes")
    ]
    cells = [re.split("  +", row) for row in rows]
    assert [c[0] for c in cells] == ["012345678", "012345679", "bad", "98765432", "newer"]
    times = [time.strftime("%Y-%m-%d %H:%M", time.localtime(f.stat().st_mtime)) for f in made]
    sizes = [str(file.stat().st_size) for file in made]
    assert cells[0][1:] == [
        *("20", "2", "800", "float32", "feedc0ff", "mine, guidance=3", times[0], sizes[0])
    ]
    assert cells[1][1:6] == ["12", "3", "96 + 8", "bfloat16", "—"]
    assert cells[1][6].startswith("cfg=7, a word") and cells[1][6].endswith("…")
    assert cells[2][1:7] == [*5 * "—", "damaged, or of another version"] and cells[2][8] == "1"
    assert cells[3][1:7] == ["20", "4", "800", "float32", "ab", "n, w"]
    assert set(rule) == {"-", " "} and empty == ""
    assert why == f"{bad} holds nothing that was learned, or is damaged"
    assert "newer" in also and "has version 2, this geoshrink reads 1" in also
    total = sum(file.stat().st_size for file in files.entries(tmp_path))
    assert last == f"{tmp_path}: 5 files, {total / 1000:.1f} kB"


def test_an_empty_folder_is_no_error(tmp_path, capsys, monkeypatch):
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert said(capsys, "list", "--folder", folder) == f"nothing was learned in {folder}\n"
        assert said(capsys, "forget", "--all", "--folder", folder).startswith("nothing was learned")
    assert not (tmp_path / "nowhere").exists() and [*tmp_path.iterdir()] == []
    monkeypatch.setenv("GEOSHRINK_LEARNED", str(tmp_path / "own"))
    assert said(capsys, "list") == f"nothing was learned in {tmp_path / 'own'}\n"
    files.add_to(tmp_path / "own", taught())
    assert f"{tmp_path / 'own'}: 1 file, " in said(capsys, "list")
    file = tmp_path / "file"
    file.write_text("", encoding="utf-8")
    assert f"{file} is not a folder" in refused(capsys, "list", "--folder", file)


def test_show_tells_all_that_is_known(tmp_path, capsys):
    made = three(tmp_path)
    text = said(capsys, "show", "012345678", "--folder", tmp_path)
    lines = [re.split("  +", line.strip()) for line in text.split("\n")]
    about = dict(line for line in lines if len(line) == 2)
    assert lines[0] == [str(made[0])]
    assert about["pictures"] == "2, in 1 exact run" and about["stages"] == "20, σ from 1 to 0"
    assert about["predictions"] == "flow" and about["regimes"] == "one"
    assert about["size"] == "800 coordinates a picture, float32" and about["solver"] == "euler"
    assert about["model"] == "feedc0ffee99" and about["name"] == "mine"
    assert about["words"] == "guidance=3" and about["first output"] == "mean square 1"
    assert about["spread"].startswith("0.5 (") and about["used"].startswith("20")
    learned = Learned.load(made[0])
    for budget in (7, 10):  # 15 and 20 are more than 0.7·20
        default = Plan.of(learned.setting.grid, budget)
        plan = plan_from(learned, default, ("output",), "euler")
        rows = (
            [f"{n}", ", ".join(map(str, p.anchors))]
            for n, p in (("chosen", plan), ("default", default))
        )
        at = lines.index([f"{budget} of 20 stages: {plan.mesh}"])
        assert lines[at + 1 : at + 3] == [*rows]
    assert "15 of" not in text and "20 of" not in text


def test_show_of_other_grids(tmp_path, capsys):
    grids: Any = {"video": even(12), "audio": even(12, 0.1)}
    grid = Grid.of(grids, regimes=[5, 8])
    file = taught(Setting(grid, (96, 8)), spread=None).save(tmp_path / "a.json")
    text = said(capsys, "show", file)
    assert "12, audio: σ from 1 to 0; video: σ from 1 to 0" in text
    assert "new ones begin at stages 5, 8" in text and "96 + 8 coordinates" in text
    assert "not known (" in text and "the host's own" in text and "7 of 12 stages" in text
    short = taught(Setting(Grid.of(even(8)), (8,))).save(tmp_path / "b.json")
    assert "4 of 8 stages" in said(capsys, "show", short)
    least = taught(Setting(Grid.of(even(3)), (8,))).save(tmp_path / "c.json")
    assert "no anchors can be chosen" in said(capsys, "show", least)


def test_show_prints_json_for_programs(tmp_path, capsys):
    learned = taught(own(), pictures=9)
    setting, file = learned.setting, learned.save(tmp_path / "own.json")  # a path, and no id
    found = json.loads(said(capsys, "show", file, "--json", "--folder", tmp_path))
    assert found["file"] == str(file) and found["bytes"] == file.stat().st_size
    assert found["used"] == file.stat().st_mtime
    for name in ("pictures", "runs", "spread"):
        assert found[name] == getattr(learned, name)
    assert found["first"] == [*learned.first] and found["setting"]["model"] == setting.model
    assert found["setting"]["grid"]["tracks"][0]["sigmas"] == [*setting.grid.tracks[0].sigmas]
    assert "grams" not in found and [p["budget"] for p in found["plans"]] == [7, 10]
    plan = found["plans"][0]
    default = Plan.of(setting.grid, 7)
    asked = plan_from(learned, default, ("output",), "euler")
    assert plan["default"] == [*default.anchors] and plan["anchors"] == [*asked.anchors]
    assert plan["mesh"] == asked.mesh and asked.anchors != default.anchors


def test_forget_removes_what_is_named_and_nothing_else(tmp_path, capsys):
    made = three(tmp_path)
    more = taught().save(tmp_path / "mine.json")
    assert said(capsys, "forget", "98", "98", "--folder", tmp_path) == f"forgot {made[2]}\n"
    assert files.entries(tmp_path) == made[:2] and more.exists()
    made[0].write_text("damaged", encoding="utf-8")
    text = said(capsys, "forget", "--all", "--folder", tmp_path)
    assert sorted(text.splitlines()) == sorted(f"forgot {file}" for file in made[:2])
    assert files.entries(tmp_path) == [] and more.exists()
    for file in (tmp_path / f"one{files.ENDING}", tmp_path / f"one two{files.ENDING}"):
        taught().save(file)
    assert "one two" not in said(capsys, "forget", "one", "--folder", tmp_path)  # it is one's name


def test_what_is_not_there_is_quoted(tmp_path, capsys):
    made = three(tmp_path)
    asked = "--folder", tmp_path
    known = "012345678, 012345679, 98765432"
    for verb in ("show", "forget"):
        text = refused(capsys, verb, "abc", *asked)
        assert f"no id 'abc' in {tmp_path}, which has {known}" in text
        assert "no id ''" in refused(capsys, verb, "", *asked)
        text = refused(capsys, verb, "0123", *asked)
        assert "'0123' begins 2 ids: 0123456789abcdef, 0123456799999999. Give more" in text
    assert "no id 'abc'" in refused(capsys, "forget", "98765432", "abc", *asked)
    assert "give --all or ids (98765432), not both" in refused(
        capsys, "forget", "--all", "98765432", *asked
    )
    assert f"--all, or ids of {tmp_path}: {known}" in refused(capsys, "forget", *asked)
    assert files.entries(tmp_path) == made  # not one of them is gone
    assert "which has nothing" in refused(capsys, "show", "a", "--folder", tmp_path / "nowhere")
    made[0].write_text("{", encoding="utf-8")
    assert f"{made[0]} holds nothing that was" in refused(capsys, "show", "012345678", *asked)


def test_what_others_do_meanwhile_is_no_error(tmp_path, capsys, monkeypatch):
    made = three(tmp_path)
    (tmp_path / f"folder{files.ENDING}").mkdir()
    gone = tmp_path / f"gone{files.ENDING}"
    listed = [*files.entries(tmp_path), gone]
    monkeypatch.setattr("geoshrink.commands.learned.entries", lambda folder: listed)
    text = said(capsys, "list", "--folder", tmp_path)
    assert "gone" not in text and "4 files" in text and "Is a directory" in text
    assert "gone" in said(capsys, "forget", "gone", "--folder", tmp_path)
    assert all(file.exists() for file in made)


@needs_locks
def test_forgetting_waits_for_one_who_adds(tmp_path, capsys):
    file, _, _ = three(tmp_path)
    forgetting = threading.Thread(
        target=main, args=(["learned", "forget", "--all", "--folder", str(tmp_path)],)
    )
    with files.locked(tmp_path):
        forgetting.start()
        forgetting.join(0.3)
        assert forgetting.is_alive() and file.exists()
    forgetting.join()
    assert not file.exists() and "forgot" in capsys.readouterr().out


def test_a_verb_is_needed(capsys):
    with pytest.raises(SystemExit):
        main(["learned"])
    assert "list,show,forget" in capsys.readouterr().err
