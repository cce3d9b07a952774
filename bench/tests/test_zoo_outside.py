"""A model of a new kind joins the zoo from outside the package: by one modality and one recipe."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from geoshrink_bench import command, zoo
from geoshrink_bench.metrics.base import Metric
from geoshrink_bench.metrics.measured import Measured
from geoshrink_bench.metrics.zoo import metrics_of, names
from geoshrink_bench.report.looks import medium
from geoshrink_bench.samples import Samples, read_samples
from geoshrink_bench.zoo import judge, sheet
from geoshrink_bench.zoo import train as training
from geoshrink_bench.zoo.modalities import Data, Modality
from geoshrink_bench.zoo.modalities.judging import Finding
from geoshrink_bench.zoo.recipes import RECIPES

LEVEL = Metric("level", "", False, lambda x, y, _: (x - y).abs().double().mean(1))


class Levels(Modality):
    """Eight numbers, low or high."""

    axes, count, columns, legend = 2, 2, 2, "Grey is the mean."
    drawn_with = ("grey",)

    def read(self, path):
        with np.load(path) as archive:
            values = torch.from_numpy(archive["values"])
        return Data((values[:, None],), (values.mean(1) > 0).long(), ["low", "high"], {"grey": 128})

    def batch(self, data, pick):
        return (data.parts[0][pick],), None

    def values(self, x, facts, lengths=None):
        return x[:, 0]

    def decode(self, x, facts, lengths):
        return list(x[:, 0].numpy())

    def metrics(self):
        return [Measured(LEVEL)]

    def draw(self, values, facts, length=None):
        grey = int(facts["grey"] + 100 * values[0].mean().clamp(-1, 1))
        return Image.new("RGB", (20, 20), (grey, grey, grey))

    def judge(self, samples):
        return [Finding("level", float(samples.x.mean()), passes=True)]


RECIPE = zoo.Recipe(
    name="levels",
    data="levels.npz",
    modality=Levels(),
    network=dict(shape=(1, 8), patch=(2,), width=16, depth=1, heads=2, condition=8),
    judged_at=dict(steps=8, guidance=2.0, shift=1.0),
    training=dict(batch=8, rate=1e-3, label_drop=0.1, ema=0.9, minutes=1, compiled=False),
)


@pytest.fixture
def levels(tmp_path, monkeypatch):
    """The zoo with the model in it, trained for two steps."""
    zoo.register(RECIPE)
    signs = np.where(np.arange(16) % 2, 1, -1)[:, None]
    np.savez(tmp_path / "levels.npz", values=np.ones((16, 8), "f4") * signs.astype("f4"))
    weights, facts = training.train(RECIPE, tmp_path / "levels.npz", 5, "cpu", max_steps=2)
    training.save(weights, facts, tmp_path)
    monkeypatch.setenv("GEOSHRINK_ZOO", str(tmp_path))
    yield zoo.load("levels")
    del RECIPES["levels"]


def test_it_is_measured_judged_drawn_and_benched_like_ours(levels, tmp_path):
    assert [m.name for m in metrics_of("levels", "all")] == ["level"] and "level" in names()
    assert judge.judge(levels, 2)[0].measured == "level"
    path = sheet.write_sheet(levels, tmp_path, {}, steps=2)
    sheet.write_page(tmp_path)
    assert (
        path.name == "levels.webp" and "Grey is the mean." in (tmp_path / "README.md").read_text()
    )
    kept = Samples([torch.ones(1, 8)], ["high"], None, {"grey": 128})
    shown = medium(kept.sample(0, levels.recipe.modality), "a level")
    assert shown is not None and shown.html().startswith("<img")
    with pytest.raises(ValueError, match="levels has samples of one size"):
        levels.velocity([0], lengths=[3])
    given = {"models": {"levels": {"budgets": [4]}}, "methods": ["direct"], "samples": 2}
    given |= {"seeds": 1, "keep": 1}
    done = command.run(given, tmp_path / "cells", full_only=True, quiet=True)
    assert done.done == 1 and not done.failed
    found = [read_samples(p) for p in (tmp_path / "cells").rglob("*.samples.safetensors")]
    assert found and all(each and each.facts == {"grey": 128} for each in found)


def test_what_the_zoo_does_not_know_is_an_error(levels):
    with pytest.raises(ValueError, match="model 'levels' already"):
        zoo.register(RECIPE)
    with pytest.raises(ValueError, match="the zoo has no 'fruits'; it has digits-audio"):
        metrics_of("fruits")
    with pytest.raises(TypeError, match="must be a Modality, got 'pictures'"):
        zoo.Recipe("x", "x.npz", "pictures", {}, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Modality,), {})()
