"""benchmarks/quality_fit.py: its formula is the product's, its fit finds known constants, its
band covers what it says; the library's constants are those it wrote.
"""

import dataclasses
import importlib
import json
from pathlib import Path

import numpy as np
import pytest

from geoshrink import Grid
from geoshrink.quality.cells import Cell, Slot
from geoshrink.quality.cells import Path as Track
from geoshrink.quality.estimate import CORRECTED, UNCORRECTED, Constants, decibels, direct_decibels

FOLDER = Path(__file__).parents[1] / "benchmarks"
WRITTEN = json.loads((FOLDER / "quality_constants.json").read_text(encoding="utf-8"))


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    pytest.importorskip("scipy")
    pytest.importorskip("geoshrink_bench")
    return importlib.import_module("quality_fit")


def drawn(rng, corrected, samples=4, slots=2):
    """A run of random cells."""
    track = Grid.of(np.linspace(1, 0, 21).tolist()).tracks[0]
    anchors = [0, *sorted(rng.choice(range(1, 20), 5, replace=False).tolist()), 20]
    found = []
    for _ in range(slots):
        cells = []
        for j, k, end in zip([None, *anchors], anchors, anchors[1:]):
            missed, curvature, slope = rng.lognormal(-2, 1, (3, samples))
            cells.append(Cell(j, k, end, missed, curvature, slope, corrected and end - k > 1))
        cells[-1] = Cell(anchors[-3], anchors[-2], 20, None, None, None)
        size, count = rng.uniform(1, 2, samples), np.full(samples, 784.0)
        found.append(Slot(Track(track, False), cells, size, count))
    return found


def runs_of(script, corrected, count):
    p, rng = CORRECTED if corrected else UNCORRECTED, np.random.default_rng(0)
    rows = []
    for i in range(count):
        slots = drawn(rng, corrected)
        row = dict(model=f"m{i % 3}", form="geoshrink", solver="euler", budget=6, steps=20)
        row |= dict(db=decibels(slots, p), direct=direct_decibels(slots, p, 6, 20))
        rows.append(row | dict(corrected=corrected, slots=slots))
    return script.Runs(rows, p)


@pytest.mark.parametrize("corrected", [True, False])
def test_the_formula_is_the_products(script, corrected):
    runs = runs_of(script, corrected, 12)
    for found, told in (
        (runs.estimate(runs.constants), runs.db),
        (runs.estimate_direct(runs.constants), runs.direct),
    ):
        clipped = np.clip(found[:, :4], script.LOW, script.HIGH)
        np.testing.assert_allclose(clipped, told[:, :4], atol=1e-6)


def test_another_formula_is_noticed(script):
    runs = runs_of(script, True, 3)
    runs.held = runs.held * 1.01
    with pytest.raises(SystemExit, match="not the product's formula"):
        script.check(runs)


def test_the_fit_finds_the_constants_it_was_given(script):
    runs = runs_of(script, True, 60)
    start = dataclasses.replace(runs.constants, a=5.0, slope=0.8, moved=2.0)
    names = ("a", "slope", "moved")
    found = script.solved(runs.estimate, runs.db, runs.weight, start, names)
    for name in names:
        assert getattr(found, name) == pytest.approx(getattr(runs.constants, name), rel=1e-2)


def test_the_band_covers_nine_of_ten(script):
    runs = runs_of(script, True, 3)
    rng = np.random.default_rng(1)
    size = (400, script.MOST_SAMPLES)
    runs.V, runs.db = rng.normal(size=(400, 1)) * 3 + rng.normal(size=size) * 4, np.zeros(size)
    runs.below, runs.family = np.ones(400, bool), np.full(400, "one")
    p = script.with_band(runs, "none", runs.constants)
    for n in (1, 16):
        off, _ = script.means_of(runs, runs.below, n)
        half = np.hypot(p.between, p.within / n**0.5)
        assert np.mean(np.abs(off) <= half) == pytest.approx(0.9, abs=0.005)


def test_families(script):
    assert {script.family_of(m) for m in ("fruit", "fruit-x0", "fruit-video")} == {"fruit"}
    assert script.family_of("digits-vit") == script.family_of("digits-latent") == "digits"
    assert script.family_of("digits-av") == "digits-av"


def test_every_family_has_the_fields_of_the_constants():
    for kinds in WRITTEN.values():
        assert kinds.keys() == {"corrected", "uncorrected"}
        for values in kinds.values():
            Constants(**values)


@pytest.mark.parametrize("kind, used", [("corrected", CORRECTED), ("uncorrected", UNCORRECTED)])
def test_the_library_uses_what_was_fitted(kind, used):
    assert dataclasses.asdict(used) == pytest.approx(WRITTEN["all"][kind], rel=1e-3)
