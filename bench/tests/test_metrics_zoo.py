"""The plain metrics: analytic cases, and what they must not see; all metrics of every model."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from geoshrink_bench import command, suite
from geoshrink_bench.metrics import zoo
from geoshrink_bench.metrics.audio import si_sdr
from geoshrink_bench.metrics.base import Metric, Skipped
from geoshrink_bench.metrics.motion import MPJPE
from geoshrink_bench.metrics.shape import sdf_error
from geoshrink_bench.store import Store
from geoshrink_bench.zoo.recipes import RECIPES


def test_si_sdr_of_orthogonal_noise():
    """A tenth of the amplitude, at right angles: 20 dB, at any volume and offset."""
    t = torch.arange(800, dtype=torch.float64) * 2 * math.pi / 100
    wave, noise = t.sin()[None], t.cos()[None]
    for gain, offset in ((1.0, 0.0), (7.0, 0.3), (-2.0, 0.0)):
        assert float(si_sdr(gain * (wave + 0.1 * noise) + offset, wave)) == pytest.approx(20)


def test_si_sdr_is_that_of_numpy():
    rng = np.random.default_rng(0)
    w, r = rng.normal(size=(2, 3, 500))
    want = []
    for x, y in zip(w - w.mean(1, keepdims=True), r - r.mean(1, keepdims=True)):
        part = np.dot(x, y) / np.dot(y, y) * y
        want.append(10 * np.log10(np.dot(part, part) / np.dot(x - part, x - part)))
    assert si_sdr(torch.tensor(w), torch.tensor(r)).tolist() == pytest.approx(want)


def test_si_sdr_of_silence_is_skipped():
    with pytest.raises(Skipped, match="reference 0 of 1 is silent"):
        si_sdr(torch.rand(1, 8), torch.zeros(1, 8))


def test_mpjpe_is_a_distance_in_space():
    joints = torch.zeros(2, 4, 3, 3)
    moved = joints + torch.tensor([3.0, 0.0, 4.0])
    assert MPJPE.of(moved, joints, None).tolist() == [500, 500]
    moved[0, 2:] = 1e6  # padding
    assert MPJPE.of(moved, joints, [2, 4]).tolist() == [500, 500]
    half = joints.clone()
    half[:, :, 0] = 3.0
    assert MPJPE.of(half, joints, None).tolist() == pytest.approx([100 * math.sqrt(27) / 3] * 2)


def test_sdf_error_is_a_mean():
    fields = torch.zeros(2, 2, 2, 2)
    other = fields.clone()
    other[1, 0] = -0.1
    assert sdf_error(other, fields).tolist() == pytest.approx([0, 0.05])
    other[1, 0, 0, 0] = math.nan
    with pytest.raises(ValueError, match="1 values of field 1 are not finite"):
        sdf_error(other, fields)


@pytest.mark.parametrize(
    "metric, shape", [(si_sdr, (2, 8)), (MPJPE.of, (2, 4, 5, 3)), (sdf_error, (2, 3, 3, 3))]
)
def test_other_shapes_are_quoted(metric, shape):
    with pytest.raises(ValueError, match=r"\(1, 2\)"):
        metric(torch.zeros(1, 2), torch.zeros(shape))


@pytest.mark.parametrize("lengths", [[2], [0, 2], [2, 5]])
def test_lengths_that_do_not_fit_are_quoted(lengths):
    joints = torch.zeros(2, 4, 3, 3)
    with pytest.raises(ValueError, match="2 numbers from 1 to 4"):
        MPJPE.of(joints, joints, lengths)


@pytest.mark.parametrize("model", RECIPES)
def test_every_model_has_its_metrics(model):
    plain, every = zoo.metrics_of(model), zoo.metrics_of(model, "all")
    parts = len(RECIPES[model].shapes)
    assert [m.part for m in plain] == list(range(parts)) and not any(m.metric.needs for m in plain)
    names = [m.name for m in every]
    assert len(set(names)) == len(names) > parts and set(names) <= set(zoo.names())
    assert {m.name for m in plain} <= set(names)
    assert [m.name for m in zoo.metrics_of(model, names[-1:])] == names[-1:]


def test_a_score_is_a_list_a_number_or_a_reason():
    def skip(x, y, lengths):
        raise Skipped("silent")

    x, y = torch.rand(2, 3, 16, 16), torch.rand(2, 3, 16, 16)
    measured = zoo.Measured(zoo.PSNR)
    scores = measured.of([x], [torch.stack([x[0], y[1]])], None, None)
    assert isinstance(scores, list) and scores[0] == 999.0 and scores[1] < 20
    assert zoo.Measured(Metric("m", "", True, skip)).of([x], [y], None, None) == "skipped: silent"
    with pytest.raises(ValueError, match="values of reference 0 are not finite"):
        measured.of([x], [y * math.nan], None, None)


def test_pictures_are_measured_by_all_metrics_and_made_anew_for_new_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("GEOSHRINK_WEIGHTS", str(tmp_path / "weights"))
    setting = {"budgets": [4], "guidance": 2.0, "shift": 3.0, "steps": 6}
    given = {"samples": 2, "seeds": 1, "models": {"fruit": setting}, "methods": ["direct"]}

    def run(metrics):
        made = given | {"metrics": metrics}
        return command.run(made, tmp_path / "bench", full_only=True, quiet=True)

    assert run("plain").done == 1
    assert run(["SSIM"]).done == 1
    assert run("all").done == 1 and run("all").kept == 1
    [(_, result)] = Store(tmp_path / "bench").cells()
    scores = {name: by["full"] for name, by in result["scores"].items()}
    assert len(scores["PSNR"]) == len(scores["SSIM"]) == len(scores["accuracy, fruit"]) == 2
    assert scores["Fréchet, fruit"] > 0
    assert scores["LPIPS alex"].startswith("skipped: needs the weights lpips-alex")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "lpips-alex.safetensors").write_bytes(b"")  # there now, though damaged
    assert len(run("all").failed) == 1


def test_unknown_metrics_are_quoted():
    given = {"models": {"fruit": {}}, "methods": ["direct"], "metrics": ["PSNR", "psrn"]}
    with pytest.raises(ValueError, match="no metric 'psrn'; say plain, all, or some of PSNR, SSIM"):
        suite.read(given)


@pytest.mark.parametrize("model", RECIPES)
def test_there_is_a_suite_for_every_model(model):
    found = suite.read(f"zoo-{model}")
    assert found.metrics == "all" and found.keep and {m for m, _ in found.models} == {model}
