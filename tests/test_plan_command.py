"""geoshrink plan, on a trained model."""

from __future__ import annotations

import json

import pytest

from geoshrink import Plan, Profile
from geoshrink.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")

BUILDER = """
import torch
from geoshrink_bench.zoo.pipelines import FruitPipeline, FruitTransformer, as_scheduler

def build():
    torch.manual_seed(0)
    network = FruitTransformer((3, 8, 8), (4, 4), 5, width=32, depth=1, heads=2, condition=16)
    pipe = FruitPipeline(network.eval(), as_scheduler("euler", 3.0), list("abcde"))
    return pipe, {"labels": [1], "guidance_scale": 1.0}
"""


@pytest.mark.slow
def test_a_model_of_the_zoo_is_profiled_and_planned(tmp_path, capsys):
    file, page = tmp_path / "fruit.json", tmp_path / "curve.html"
    short = ["fruit", "--samples", "4", "--steps", "6", "--guidance", "1", "--shift", "1"]
    asked = ["plan", *short, "--budget", "4", "--out", str(file), "--curve", str(page)]
    assert main(asked) == 0
    said = capsys.readouterr()
    plan = Plan.from_json(said.out)  # alone, for a pipe
    assert plan.budget == 4 and plan.steps == 6 and "budget       planned" in said.err
    assert plan.grid.tracks[0].sigmas == pytest.approx([1 - i / 6 for i in range(7)])
    assert Profile.load(file).samples == 4 and "<html" in page.read_text(encoding="utf-8")
    json.loads(file.read_text(encoding="utf-8"))
    assert main(["plan", *short, "--out", str(file), "--target-db", "-100"]) == 0
    assert Plan.from_json(capsys.readouterr().out).budget == 2
    kept = tmp_path / "new" / "plan.json"
    assert main(["plan", *short[:1], *short[3:], "--out", str(file), "--plan", str(kept)]) == 2
    assert f"--plan {kept} is for a plan: give --budget or" in capsys.readouterr().err
    more = ["--out", str(file), "--budget", "500", "--plan", str(kept)]
    assert main(["plan", *short, *more]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "--budget 500 is more than the 6 steps: all are run" in said.err
    assert Plan.from_json(kept.read_text(encoding="utf-8")).exact
    assert main(["plan", *short, "--out", str(file)]) == 0
    assert capsys.readouterr().out.startswith("budget       planned")


def test_a_pipeline_that_a_builder_gives(tmp_path, capsys, monkeypatch):
    pytest.importorskip("diffusers")
    (tmp_path / "plan_builder.py").write_text(BUILDER, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("geoshrink.commands.plan.SAMPLES", 4)
    file = tmp_path / "profile.json"
    asked = ["plan", "plan_builder:build", "--steps", "8", "--budget", "4", "--out", str(file)]
    assert main(asked) == 0
    said = capsys.readouterr()
    plan = Plan.from_json(said.out)
    assert plan.budget == 4 and plan.steps == 8 and "budget       planned" in said.err
    found = Profile.load(file)
    assert found.model == "FruitPipeline" and found.guidance == 1.0 and found.samples == 4
    for more, why in (
        (["--samples", "4"], "--samples is not an option of a pipeline"),
        (["--target", "flow"], "a pipeline is profiled for target='run', not 'flow'"),
        (["--prompts", "a"], "FruitPipeline takes no 'prompt' in its call"),
    ):
        assert main([*asked, *more]) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    "more, why",
    [
        (["--budget", "0"], "budget 0 is too small: at least 2 stages are queried"),
        (["--target-db", "nan"], "target_db is a number of decibels, got nan"),
        (["--budget", "4", "--plan", "."], ". is a folder: name a file in it"),
        (["--out", "/dev/null/x.json"], "/dev/null/x.json cannot be written"),
        (["--curve", "/dev/null/x.html"], "/dev/null/x.html cannot be written"),
        (["--guidance", "nan"], "guidance is a finite number, got nan"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(more, why, capsys, monkeypatch):
    monkeypatch.setattr("geoshrink.commands.plan.load_host", lambda settings: 1 / 0)
    assert main(["plan", "nowhere:build", *more]) == 2
    assert why in capsys.readouterr().err


def test_bad_input_is_quoted(capsys):
    assert main(["plan", "fruits"]) == 2
    assert "'fruits'" in capsys.readouterr().err
    for asked, said in (
        (["--budget", "0"], "budget 0 is too small"),
        (["--budget", "5", "--target-db", "30"], "give --budget 5 or --target-db 30.0, not both"),
    ):
        assert main(["plan", "fruit", *asked]) == 2
        output = capsys.readouterr()
        assert said in output.err and "profiling" not in output.err  # before any model call
    for asked, said in (
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["--prompts", "a"], "--prompts is not an option of a model of the zoo"),
    ):
        assert main(["plan", "fruit", *asked]) == 2
        assert said in capsys.readouterr().err
    assert main(["plan", "fruit", "--samples", "0"]) == 2
    assert "--samples must be at least 1, got 0" in capsys.readouterr().err
