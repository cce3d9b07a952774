"""geoshrink plan, on a trained model."""

from __future__ import annotations

import json

from geoshrink import Plan, Profile
from geoshrink.cli import main


def test_a_model_of_the_zoo_is_profiled_and_planned(tmp_path, capsys):
    file, page = tmp_path / "fruit.json", tmp_path / "curve.html"
    short = ["fruit", "--samples", "4", "--steps", "6", "--guidance", "1"]
    asked = ["plan", *short, "--budget", "4", "--out", str(file), "--curve", str(page)]
    assert main(asked) == 0
    said = capsys.readouterr().out
    plan = Plan.from_json(said.strip().splitlines()[-1])
    assert plan.budget == 4 and plan.steps == 6 and "planned" in said
    assert Profile.load(file).samples == 4 and "<html" in page.read_text(encoding="utf-8")
    json.loads(file.read_text(encoding="utf-8"))
    assert main(["plan", *short, "--out", str(file), "--target-db", "-100"]) == 0
    assert Plan.from_json(capsys.readouterr().out.strip().splitlines()[-1]).budget == 2


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
    assert main(["plan", "fruit", "--samples", "0"]) == 2
    assert "--samples must be at least 1, got 0" in capsys.readouterr().err
