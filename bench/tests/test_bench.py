"""The runner: cells are whole or missing, a killed run goes on, nothing is hidden."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from cases import small_case
from geoshrink.cli import main
from geoshrink_bench import asked, command, compare, store, suite
from geoshrink_bench.cases import zoo as running
from geoshrink_bench.methods.base import Method, Outcome
from geoshrink_bench.methods.fora import Fora
from geoshrink_bench.methods.registry import METHODS
from geoshrink_bench.recall import Recall
from geoshrink_bench.runner import Attempts, Runner
from geoshrink_bench.score import Score

torch.set_num_threads(1)
SUITE = {
    "name": "tiny",
    "samples": 2,
    "seeds": 2,
    "converged": 20,
    "models": {"fruit": {"budgets": [3, 4], "guidance": [1.0, 2.0], "shift": 3.0, "steps": 6}},
    "methods": ["FORA", {"FORA": {"interval": 1}}],
}


@pytest.fixture(autouse=True)
def small_model(monkeypatch):
    """Whatever the model, a network of three blocks."""

    def load(name, device="cpu", folder=None):
        model = small_case().model
        model.facts["sha256"] = "0" * 64
        return model

    monkeypatch.setattr(running, "load", load)


def run(folder, **options):
    return command.run(SUITE, folder, quiet=True, **options)


# Cells


def test_a_cell_is_named_by_its_content():
    spec = {"model": "fruit", "shift": [1, 2.5]}
    assert store.name_of(spec) == store.name_of(dict(reversed(spec.items())))
    assert store.name_of(spec) != store.name_of(spec | {"shift": [2.5, 1]})


def test_what_is_written_is_read(tmp_path):
    cells = store.Store(tmp_path)
    assert cells.read({"a": 1}) is None
    cells.write({"a": 1}, {"σ": [0.1, 2]})
    assert cells.read({"a": 1}) == {"σ": [0.1, 2]} and cells.read({"a": 2}) is None
    assert list(cells.cells()) == [({"a": 1}, {"σ": [0.1, 2]})]
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


@pytest.mark.parametrize("damage", ["", "{", '{"spec": 1}', "flip", "null"])
def test_a_damaged_cell_counts_as_missing(tmp_path, damage):
    cells = store.Store(tmp_path)
    cells.write({"a": 1}, {"value": 41})
    path = cells.path({"a": 1})
    path.write_text(path.read_text().replace("41", "42") if damage == "flip" else damage)
    assert cells.read({"a": 1}) is None and cells.damaged() == [path] and not list(cells.cells())


def test_a_full_disk_leaves_the_old_cell(tmp_path, monkeypatch):
    cells = store.Store(tmp_path)
    cells.write({"a": 1}, {"value": 1})

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        cells.write({"a": 1}, {"value": 2})
    assert cells.read({"a": 1}) == {"value": 1} and len(list(tmp_path.iterdir())) == 1


# What networks have said


EASY = {"EasyCache": {"warm_up": "tuned"}}
TUNING = [EASY, {"ZEUS": {"fresh": "tuned"}}, "FORA", "TeaCache (uncalibrated)"]


def test_cells_are_the_same_without_a_memory_of_what_networks_said(tmp_path):
    change = {"methods": TUNING, "models": {"fruit": {"budgets": [4, 5], "steps": 8}}}
    asked_for = asked.Asked("", SUITE, change, options={"full_only": True})
    found = {}
    for most in (0, 2):
        lab: Any = asked_for.lab(tmp_path / str(most))
        recall = Recall(most)
        progress = Runner(lab, make=partial(Attempts, lab, recall)).run()
        assert progress.done == 8 and not progress.failed
        cells = list(lab.store.cells())
        found[most] = [(spec, result | {"prepared": 0.0}) for spec, result in cells]
        assert (recall.known > recall.asked / 4) == bool(most)
        assert "forward" not in vars(lab.model("fruit").network)
    assert found[0] == found[2]


def test_seconds_are_measured_without_a_memory(tmp_path):
    change = {"latency": True, "methods": ["FORA"], "models": {"fruit": {"budgets": [3]}}}
    lab = asked.Asked("", SUITE, change).lab(tmp_path)
    recall = Recall()
    recall.over = lambda networks: pytest.fail("used")
    worker = Attempts(lab, recall)
    timed = [spec for spec in lab.specs() if spec["kind"] == "latency"]
    assert len(timed) == 1 and worker(timed[0]).came == "done"


# Suites


def test_a_suite_says_what_is_run():
    found = suite.read(SUITE)
    assert len(found.settings()) == 2 and found.settings()[0][1] == [3, 4]
    assert len(found.cells()) == 2 * 2 * 2
    first = found.cells()[0]
    assert first["budget"] == 3 and first["method"] == "FORA" and first["options"] == {}
    assert first["setting"]["guidance"] == 1.0 and first["setting"]["steps"] == 6
    models = [{"digits-av": {}, "objects": {}}, {"objects": {"interval": [0.5, 0.9]}}]
    own = [s for s, _ in suite.read({"models": models, "methods": ["FORA"]}).settings()]
    assert own[0]["shift"] == [12.0, 3.0] and own[0]["steps"] == 30
    assert own[1]["guidance"] == 7.5 and own[1]["interval"] is None
    assert own[2] == own[1] | {"interval": [0.5, 0.9]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"modles": {}}, "unknown key 'modles'"),
        ({"models": {"vegetable": {}}}, "no model 'vegetable'; the zoo has fruit"),
        ({"models": {"fruit": {"budget": 3}}}, "fruit: unknown setting 'budget'"),
        ({"methods": ["FORRA"]}, "no method 'FORRA'; there are full run"),
        ({"methods": []}, "has no methods"),
        ({"methods": [3]}, "a method is a name.*got 3"),
        ({"samples": 0}, "samples must be at least 1, got 0"),
        ({"models": {"fruit": {"budgets": [60]}}}, "fruit: budget 60 is not from 1 to its 50"),
        ({"models": {"fruit": {"budgets": [0]}}}, "budget 0 is not from 1"),
        ({"models": {"fruit": {"shift": "a"}}}, "shift must be numbers above 0, got 'a'"),
        ({"models": {"digits-av": {"shift": 3.0}}}, "shift must be pairs of numbers.*got 3.0"),
        ({"models": {"fruit": {"shift": float("inf")}}}, "shift must be numbers above 0, got inf"),
        ({"models": {"fruit": {"guidance": "x"}}}, "guidance must be numbers, got 'x'"),
        ({"models": {"fruit": {"guidance": [float("nan")]}}}, r"numbers, got \[nan\]"),
        ({"models": {"fruit": {"guidance": None}}}, "guidance must be numbers, got None"),
        ({"models": {"fruit": {"budgets": []}}}, "fruit: budgets is empty"),
        ({"models": {"objects": {"interval": [0.9]}}}, r"highest σ\], got \[0.9\]"),
        ({"models": {"objects": {"interval": [0.9, 0.5]}}}, r"highest σ\], got \[0.9, 0.5\]"),
        ({"models": {"motion": {"lengths": "a"}}}, "list of numbers, got 'a'"),
        ({"models": {"motion": {"lengths": [65]}}}, r"from 1 to 64, got \[65\]"),
        ({"models": {"fruit": {"lengths": [8]}}}, r"lengths \[8\]: fruit has samples of one size"),
        ({"models": {"fruit": 3}}, "fruit has settings such as budgets, got 3"),
        ({"models": ["fruit"]}, r"models are name: settings.*got \['fruit'\]"),
        ({"methods": "FORA"}, "methods are a list of names, got 'FORA'"),
        ({"methods": [{"FORA": 3}]}, "FORA has values by name, got 3"),
        ({"methods": [{"FORA": {}, "ToCa": {}}]}, "a method is a name"),
        ({"methods": [{"FORA": {"intervall": 3}}]}, "no option 'intervall'; its options are inter"),
        ({"methods": [{"direct": {"steps": 3}}]}, "direct has no option 'steps'; it takes none"),
        ({"methods": [{"GeoShrink (planned)": {"nonsense": 1}}]}, "'nonsense'; it takes none"),
        ({"methods": [{"GeoShrink": {"rules": 1}}]}, "no option 'rules'; .*rule, space"),
        ({"methods": [{"MagCache": {"longest": 4}}]}, "MagCache has no option 'longest'"),
        ({"latency": "no"}, "latency is True or False, got 'no'"),
    ],
)
def test_mistakes_in_a_suite_are_quoted(change, message):
    with pytest.raises(ValueError, match=message):
        suite.read(SUITE | change)


def test_options_that_a_method_has_are_taken():
    methods = [
        {"GeoShrink": {"anchors": "sigma", "rule": "hold"}},
        {"DBCache": {"back": 1}},
        {"MagCache": {"threshold": 0.1, "longest": 4}},
        {"MeanCache": {"gamma": 2.0}},
    ]
    found = suite.read(SUITE | {"methods": methods})
    assert [{name: options} for name, options in found.methods] == methods


def test_a_file_that_is_no_suite(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("models: [unclosed")
    with pytest.raises(ValueError, match=r"broken\.yaml is no YAML"):
        suite.read(path)
    path.write_text("just words")
    with pytest.raises(ValueError, match="just words"):
        suite.read(path)


# Runs


def test_a_run_and_the_same_again(tmp_path):
    progress = run(tmp_path)
    assert (progress.done, progress.kept, progress.failed) == (8, 0, [])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.cell.json")}
    assert len(before) == 8 and len(list(tmp_path.glob("*.reference.safetensors"))) == 4
    progress = run(tmp_path)
    assert (progress.done, progress.kept) == (0, 8)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    cells = list(store.Store(tmp_path).cells())
    for spec, result in cells:
        full = result["scores"]["PSNR"]["full"]
        assert len(full) == 4 and len(result["scores"]["PSNR"]["converged"]) == 4
        if spec["options"]:  # every stage in full: the reference itself
            assert full == [999.0] * 4 and result["evaluations"] == 6
        else:
            assert max(full) < 200 and result["evaluations"] <= spec["budget"]


def test_cells_without_the_converged_flow_are_made_anew_by_a_run_with_it(tmp_path):
    run(tmp_path, full_only=True)
    cells = [result["scores"]["PSNR"] for _, result in store.Store(tmp_path).cells()]
    assert len(cells) == 8 and all(set(scores) == {"full"} for scores in cells)
    assert run(tmp_path, full_only=True).kept == 8
    assert "not run" in (tmp_path / "summary.md").read_text()
    assert run(tmp_path).done == 8
    again = [result["scores"]["PSNR"] for _, result in store.Store(tmp_path).cells()]
    assert [scores["full"] for scores in again] == [scores["full"] for scores in cells]
    assert all(set(scores) == {"full", "converged"} for scores in again)
    assert run(tmp_path, full_only=True).kept == 8


def test_a_damaged_cell_and_a_damaged_reference_are_made_anew(tmp_path):
    run(tmp_path)
    wanted = {path: path.read_text() for path in tmp_path.glob("*.cell.json")}
    broken = sorted(wanted)[:2]
    for path in broken:
        path.write_text("{")
    for path in tmp_path.glob("*.reference.safetensors"):
        path.write_bytes(path.read_bytes()[:40])
    progress = run(tmp_path)
    assert (progress.done, progress.kept, progress.damaged) == (2, 6, 2 + 4)
    for path in broken:
        assert (
            json.loads(path.read_text())["result"]["scores"]
            == (json.loads(wanted[path])["result"]["scores"])
        )


@pytest.mark.parametrize("where", ["data", "checksum", "header"])
def test_flipped_bytes_of_a_reference_are_noticed(tmp_path, where):
    run(tmp_path)
    wanted = {path: path.read_text() for path in tmp_path.glob("*.cell.json")}
    whole = {path: facts_of(path) for path in tmp_path.glob("*.reference.safetensors")}
    for path in whole:
        content = path.read_bytes()
        begin = content.index(b'"sha256":"') + 12 if where == "checksum" else len(content) - 64
        if where == "header":
            begin = content.index(b'"F32"') + 1
        flipped = bytes(byte ^ 1 for byte in content[begin : begin + 2])
        path.write_bytes(content[:begin] + flipped + content[begin + 2 :])
    for path in wanted:
        path.unlink()
    progress = run(tmp_path)
    assert (progress.done, progress.damaged) == (8, 4)
    assert "4 damaged and made anew" in progress.line()
    assert {path: facts_of(path) for path in whole} == whole
    for path, text in wanted.items():
        assert scores_of(path.read_text()) == scores_of(text)


def facts_of(path):
    """Of a file that is whole: the checksum of its tensors is one."""
    found = store.tensors_in(path)
    return found and found[1]


def scores_of(text):
    return json.loads(text)["result"]["scores"]


def test_a_reference_from_before_there_were_checksums_is_used(tmp_path):
    from safetensors.torch import load, save

    run(tmp_path)
    for path in tmp_path.glob("*.reference.safetensors"):
        path.write_bytes(save({name: x + 1 for name, x in load(path.read_bytes()).items()}))
    for path in tmp_path.glob("*.cell.json"):
        path.unlink()
    progress = run(tmp_path)
    assert (progress.done, progress.damaged) == (8, 0)
    identical = [r["scores"]["PSNR"]["full"] for s, r in store.Store(tmp_path).cells()]
    assert not any(999.0 in each for each in identical)  # the shifted reference was read


def test_a_metric_that_changed_is_measured_anew(tmp_path, monkeypatch):
    run(tmp_path)
    cells = store.Store(tmp_path)
    found = list(cells.cells())
    assert all(result["versions"] == {"PSNR": "1"} for _, result in found)
    for spec, result in found[:3]:  # as cells were before they named the version
        cells.write(spec, {k: v for k, v in result.items() if k != "versions"})
    assert run(tmp_path).kept == 8
    (plain,) = running.metrics_of("fruit")
    changed = replace(plain, metric=replace(plain.metric, version="2"))
    monkeypatch.setattr(running, "metrics_of", lambda model, chosen: [changed])
    assert run(tmp_path).done == 8 and run(tmp_path).kept == 8
    assert all(result["versions"] == {"PSNR": "2"} for _, result in cells.cells())


def test_a_full_disk_is_reported_with_every_cell(tmp_path, monkeypatch, capsys):
    def full(file):
        raise OSError(28, "No space left on device")

    run(tmp_path, shard="1/2")
    monkeypatch.setattr(os, "fsync", full)
    monkeypatch.setattr(asked.Asked, "save", lambda *_, **__: None)
    with pytest.raises(OSError, match=r"No space left on device: .*summary\.md"):
        command.run(SUITE, tmp_path)
    told = capsys.readouterr()
    assert "0 cells run, 4 kept from before, 4 FAILED" in told.out
    assert "and 1 more: OSError: [Errno 28] No space left on device: '" in told.err
    assert len(store.Store(tmp_path).files()) == 4


def test_shards_make_the_whole(tmp_path):
    parts = [run(tmp_path, shard=f"{i}/3") for i in (1, 2, 3)]
    assert [p.done for p in parts] == [4, 2, 2] and run(tmp_path).kept == 8
    for text in ("0/3", "4/3", "one", "1/2/3"):
        with pytest.raises(ValueError, match=f"got '{text}'"):
            run(tmp_path, shard=text)


class Fails(Method):
    name = "fails"

    def run(self, case, budget):
        if budget == 3:
            raise ZeroDivisionError("three")
        return Outcome(case.noise, (0,))


def test_a_method_that_raises_is_reported_and_tried_again(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "fails", lambda options, training, budget: Fails())
    given = SUITE | {"methods": ["fails", "FORA"]}
    progress = command.run(given, tmp_path, quiet=True)
    assert (
        progress.done == 6 and [r for _, r in progress.failed] == ["ZeroDivisionError: three"] * 2
    )
    text = (tmp_path / "summary.md").read_text()
    assert "| fails | failed |" in text
    monkeypatch.setattr(Fails, "run", lambda self, case, budget: Outcome(case.noise, (0,)))
    progress = command.resume(tmp_path, quiet=True)
    assert (progress.done, progress.kept, progress.failed) == (2, 6, [])
    assert not list(tmp_path.glob("*.error.json"))
    assert "failed" not in (tmp_path / "summary.md").read_text()


def test_what_is_no_number_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "fails", lambda options, training, budget: Fails())
    monkeypatch.setattr(
        Fails, "run", lambda self, case, budget: Outcome(case.noise * float("nan"), ())
    )
    progress = command.run(SUITE | {"methods": ["fails"]}, tmp_path, quiet=True)
    assert progress.done == 0 and len(progress.failed) == 4
    assert all("are not finite" in reason for _, reason in progress.failed)


def test_a_model_without_weights_does_not_stop_the_others(tmp_path, monkeypatch):
    load = running.load

    def without_motion(name, *rest):
        if name == "motion":
            raise FileNotFoundError("the weights of motion are not in zoo")
        return load(name, *rest)

    monkeypatch.setattr(running, "load", without_motion)
    models = {"motion": {"budgets": [10]}, **SUITE["models"]}
    progress = command.run(SUITE | {"models": models}, tmp_path, quiet=True)
    assert progress.done == 8 and len(progress.failed) == 2
    assert all("weights of motion" in reason for _, reason in progress.failed)


def test_every_method_gets_the_same_noise_and_training_has_its_own(tmp_path, monkeypatch):
    seen = []

    class Looks(Method):
        def __init__(self, cases):
            self.cases = cases

        def run(self, case, budget):
            seen.append((case.noise.clone(), list(case.labels), self.cases[0].noise))
            return Outcome(case.noise, ())

    make = lambda options, training, budget: Looks(training())  # noqa: E731
    monkeypatch.setitem(METHODS, "looks", make)
    command.run(SUITE | {"methods": ["looks"]}, tmp_path, quiet=True)
    noises = [noise for noise, _, _ in seen]
    assert len(seen) == 4 and all(torch.equal(noise, noises[0]) for noise in noises)
    assert all(labels == seen[0][1] for _, labels, _ in seen)
    rows = {tuple(row.flatten().tolist()) for row in noises[0]}
    assert not rows & {tuple(row.flatten().tolist()) for row in seen[0][2]} and len(rows) == 4


def test_latency_comes_last_and_is_repeated(tmp_path):
    command.run(SUITE | {"latency": True, "repeats": 2}, tmp_path, quiet=True)
    cells = [(s, r) for s, r in store.Store(tmp_path).cells() if s["kind"] == "latency"]
    assert len(cells) == 2 and all(len(result["seconds"]) == 2 for _, result in cells)
    specs = Runner(running.Zoo(suite.read(SUITE | {"latency": True}), tmp_path)).specs()
    assert [s["kind"] for s in specs] == ["fidelity"] * 8 + ["latency"] * 2


def test_the_summary(tmp_path):
    run(tmp_path)
    text = (tmp_path / "summary.md").read_text()
    assert "### fruit, 6 steps, guidance 1, shift 3: PSNR, dB ↑" in text
    assert "| FORA (interval 1) | identical (6 runs) |" in text
    assert "| FORA | 4 |" in text and "| fruit (of 4) |" in text
    assert Score.of([1.0, 3.0, 5.0, 7.0], 2).sd == pytest.approx(2.828427)


def test_in_a_notebook(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "fails", lambda options, training, budget: Fails())
    rest = {k: v for k, v in SUITE.items() if k in ("samples", "seeds", "converged")}
    methods = [{"FORA": {"interval": 1}}, "fails"]
    rows = compare(SUITE["models"], methods, tmp_path, quiet=True, **rest)
    assert len(rows) == 8 and [row["method"] for row in rows[:2]] == ["FORA", "fails"]
    assert rows[0]["PSNR"]["full"].text() == "identical" and rows[0]["options"] == {"interval": 1}
    assert rows[1]["error"] == "ZeroDivisionError: three"
    assert rows[1]["PSNR"]["full"] == "failed: ZeroDivisionError: three"
    assert rows[0]["guidance"] == 1.0 and rows[0]["evaluations"] == 6


def test_the_command(tmp_path, capsys):
    import yaml

    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(SUITE))
    out = tmp_path / "out"
    assert main(["bench", "run", str(path), "--out", str(out)]) == 0
    assert "8 cells run, 0 kept" in capsys.readouterr().out
    assert main(["bench", "resume", str(out)]) == 0
    assert "0 cells run, 8 kept" in capsys.readouterr().out
    assert main(["bench", "list"]) == 0
    assert "FORA" in capsys.readouterr().out
    assert main(["bench", "resume", str(tmp_path)]) == 2
    assert "no asked.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["--device", "cuda"], "no CUDA device"),
        (["--shard", "3/2"], "got '3/2'"),
        (["--summary", "nowhere/s.md"], "there is no folder nowhere"),
        (["--summary", "."], "--summary . is a folder"),
        (["--weights", "."], "--weights . has none of fruit.safetensors"),
    ],
)
def test_what_cannot_run_leaves_no_folder(tmp_path, monkeypatch, capsys, options, message):
    import yaml

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    Path("tiny.yaml").write_text(yaml.safe_dump(SUITE))
    assert main(["bench", "run", "tiny.yaml", "--out", "out", *options]) == 2
    assert message in capsys.readouterr().err and not Path("out").exists()


@pytest.mark.parametrize("device", ["tpu", "cuda"])
def test_plan_refuses_a_wrong_device_with_a_sentence(monkeypatch, capsys, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["plan", "fruit", "--device", device]) == 2
    assert f"device {device!r}" in capsys.readouterr().err


def test_an_unknown_suite_names_those_there_are(capsys):
    assert main(["bench", "run", "nosuite"]) == 2
    told = capsys.readouterr().err
    assert "no suite 'nosuite'" in told and "rivals" in told and "flux" in told


def test_failures_are_told_by_reason(tmp_path, monkeypatch, capsys):
    def nothing(name, device, folder):
        raise FileNotFoundError(f"the weights of {name} are not in zoo: give zoo.load(folder=…)")

    monkeypatch.setattr(running, "load", nothing)
    assert len(command.run(SUITE, tmp_path).failed) == 8
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("failed: fruit, FORA, B = 3; ") and "and 5 more: " in line
    assert line.endswith("the weights of fruit are not in zoo; --weights names their folder")


def test_stopped_by_hand(tmp_path, monkeypatch, capsys):
    import yaml

    def stop(self, case, budget):
        raise KeyboardInterrupt

    path, out = tmp_path / "tiny.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(SUITE))
    monkeypatch.setattr(Fora, "run", stop)
    assert main(["bench", "run", str(path), "--out", str(out), "--full-only"]) == 130
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == f"geoshrink bench: stopped; resume with: geoshrink bench resume {out}"
    assert main(["bench", "resume", str(out), "--only", "FORA", "fruit, FORA"]) == 130
    told = capsys.readouterr().err.splitlines()
    assert told[-1].endswith(f"geoshrink bench resume {out} --only FORA 'fruit, FORA'")
    assert asked.Asked.load(out).options == {"full_only": True}


def test_a_folder_keeps_its_options_for_resume(tmp_path, monkeypatch):
    made = run(tmp_path, full_only=True, shard="1/2", summary=tmp_path / "copy.md")
    (tmp_path / "copy.md").unlink()
    assert command.resume(tmp_path, quiet=True).done == 8 - made.done
    assert (tmp_path / "copy.md").read_bytes() == (tmp_path / "summary.md").read_bytes()
    (cell, *_) = store.Store(tmp_path).cells()
    assert [list(score) for score in cell[1]["scores"].values()] == [["full"]]
    assert command.resume(tmp_path, quiet=True, full_only=False).done == 8
    assert main(["bench", "resume", str(tmp_path), "--full-only"]) == 0
    assert asked.Asked.load(tmp_path).options == {"full_only": True}
    assert main(["bench", "resume", str(tmp_path), "--no-full-only"]) == 0
    assert asked.Asked.load(tmp_path).options == {"full_only": False}


def test_a_folder_belongs_to_one_suite(tmp_path):
    run(tmp_path, shard="1/2")
    run(tmp_path, shard="2/2")
    with pytest.raises(ValueError, match="holds the suite 'tiny', not 'other'"):
        command.run(SUITE | {"name": "other"}, tmp_path, quiet=True)
    with pytest.raises(ValueError, match="holds the suite 'tiny', not 'FLUX"):
        command.run("flux", tmp_path, quiet=True)


PROGRAM = """
import sys
sys.path[:0] = {paths!r}
import torch
torch.set_num_threads(1)
from cases import small_case
from geoshrink_bench import command
from geoshrink_bench.cases import zoo

def load(name, device="cpu", folder=None):
    model = small_case().model
    model.facts["sha256"] = "0" * 64
    return model

zoo.load = load
command.run({suite!r}, sys.argv[1], quiet=True)
"""


def test_a_run_that_is_killed_goes_on(tmp_path):
    """Killed again and again at any moment: every cell that is there is whole."""
    longer = SUITE | {"samples": 8, "converged": 100}
    paths = [str(Path(__file__).parent / "support")]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(paths=paths, suite=longer))
    out, kills = tmp_path / "out", 0
    cells = store.Store(out)
    deadline = time.monotonic() + 120
    seen, code = 0, None
    while time.monotonic() < deadline:
        process = subprocess.Popen([sys.executable, str(program), str(out)])
        while process.poll() is None and len(cells.files()) < seen + 2:
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        code = process.wait()
        assert not cells.damaged()
        seen = len(cells.files())
        if code == 0:
            break
    assert code == 0 and kills >= 1 and seen == 8
    assert command.run(longer, out, quiet=True).kept == 8


@pytest.mark.parametrize("name", list(suite.suites("zoo")))
def test_the_suites_that_come_with_the_package(name):
    found = suite.read(name)
    assert len(found.cells()) >= 15
    assert found.latency or (found.samples >= 4 and found.seeds == 5)
