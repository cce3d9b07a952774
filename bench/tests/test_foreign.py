"""Foreign models: recipes are well formed, what is missing is said, what is here is real."""

from __future__ import annotations

import hashlib
import math
import subprocess
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from geoshrink import sample
from geoshrink_bench import command, foreign
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.foreign import files
from geoshrink_bench.foreign.__main__ import main
from geoshrink_bench.foreign.model import statistics
from geoshrink_bench.foreign.recipe import recipe_of
from geoshrink_bench.foreign.schedules import Continuous, Discrete, cosine_betas, kept_of
from geoshrink_bench.methods.registry import METHODS

NAMES = list(foreign.RECIPES)


class Toy(foreign.Network):
    """x₀ is the class, or 0 without one, whatever the noise."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, x, sigma, label):
        centre = torch.where(label < 3, label, 0).to(x.dtype) * self.scale
        return centre[:, None].expand_as(x).clone()


def build(folder):
    network = Toy()
    network.load_state_dict(files.tensors(folder / "toy.pt"))
    return network


def toy(folder, **changes):
    """A recipe whose file is in the folder."""
    path = folder / "toy" / "toy.pt"
    path.parent.mkdir(exist_ok=True)
    torch.save({"scale": torch.tensor(2.0)}, path)
    given = dict(
        name="toy",
        about="one number",
        source=foreign.Repository("somebody/toy", "0" * 40),
        licence="MIT",
        files={"toy.pt": hashlib.sha256(path.read_bytes()).hexdigest()},
        build=build,
        shape=(4,),
        prediction="sample",
        alphas="flow",
        looks={"mean": (0.0, 4.0)},
        classes=("a", "b", "c"),
        guided=True,
    )
    return foreign.Recipe(**{**given, **changes})


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    monkeypatch.setitem(foreign.RECIPES, "toy", toy(tmp_path))
    return foreign.load("toy")


@pytest.mark.parametrize("name", NAMES)
def test_recipes_are_well_formed(name):
    recipe = foreign.RECIPES[name]
    assert recipe.name == name and recipe.about and recipe.looks
    assert recipe.judged_at["steps"] == 50 and set(recipe.judged_at) == {
        "steps",
        "guidance",
        "shift",
    }
    sigmas = [recipe.schedule.sigma(i / 50) for i in range(51)]
    assert sigmas[0] == 0 and 0.99 < sigmas[-1] <= 1
    assert all(a < b for a, b in pairwise(sigmas))
    if isinstance(recipe.source, foreign.Repository):
        assert len(recipe.source.commit) == 40 and recipe.source.name.count("/") == 1
    else:
        assert "==" in recipe.source.requirement


def test_there_are_models_of_every_kind():
    kinds = {(r.prediction, r.alphas) for r in foreign.RECIPES.values()}
    assert len(NAMES) >= 5 and {("epsilon", "vp"), ("sample", "flow"), ("flow", "flow")} <= kinds


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"licence": "proprietary"}, "'proprietary'"),
        ({"prediction": "score"}, "'score'"),
        ({"alphas": "ve"}, "'ve'"),
        ({"files": {"toy.pt": "short"}}, "sha256"),
        ({"guided": False, "judged_at": dict(steps=50, guidance=2.0, shift=1.0)}, "no guidance"),
    ],
)
def test_bad_recipes_are_refused(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        toy(tmp_path, **changes)


def test_unknown_names_are_quoted():
    with pytest.raises(ValueError, match=r"'nothing'.*digits-vit"):
        recipe_of("nothing")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_is_said_loudly(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    with pytest.raises(foreign.Missing, match=f"{name} is not here") as error:
        foreign.load(name)
    source = foreign.RECIPES[name].source
    if isinstance(source, foreign.Repository):
        assert source.name in str(error.value) and source.commit in str(error.value)
    else:
        assert "fetch" in str(error.value)
    assert main(["list", name]) == 0
    said = capsys.readouterr()
    assert "missing" in said.out and "0 of 1 are here" in said.out and "NOT HERE" in said.err
    assert f"{foreign.RECIPES[name].licence}  " in said.out  # what comes next stands apart


def test_files_of_a_repository_are_not_fetched(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    assert main(["fetch", "digits-vit"]) == 1
    assert "Clone sofia-dominguezc/MNIST-diffusion" in capsys.readouterr().err


def test_pip_brings_a_package_into_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    asked = []

    def run(command, **options):
        asked.append(command)
        return SimpleNamespace(returncode=1, stderr="no network\n")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(foreign.Missing, match=r"py21cmEMU==3\.0\.0.*no network"):
        foreign.fetch(foreign.RECIPES["spectra-21cm"])
    assert asked[0][-4:] == [
        "--target",
        str(tmp_path / "spectra-21cm"),
        "py21cmEMU==3.0.0",
        "einops",
    ]


def test_another_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    monkeypatch.setitem(foreign.RECIPES, "toy", toy(tmp_path))
    torch.save({"scale": torch.tensor(3.0)}, tmp_path / "toy" / "toy.pt")
    with pytest.raises(ValueError, match="sha256"):
        foreign.load("toy")


def test_files_that_run_code_are_refused(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (exec, ("raise SystemExit",))

    torch.save({"x": Bomb()}, tmp_path / "bomb.pt")
    with pytest.raises(Exception, match="eights"):
        files.tensors(tmp_path / "bomb.pt")


def test_guidance_reaches_beyond_the_class(model):
    x, wanted = model.noise(2), torch.tensor([2.0, 4.0])[:, None].expand(2, 4)
    assert torch.equal(model.velocity(["b", 2], 1.0)(x, 0.5), wanted)
    assert torch.equal(model.velocity([1, 2], 3.0)(x, 0.5), 3 * wanted)
    outside = model.velocity([1, 2], 3.0, interval=(0.1, 0.4))
    assert torch.equal(outside(x, 0.5), wanted) and torch.equal(outside(x, 0.3), 3 * wanted)


def test_mistakes_are_quoted(model):
    with pytest.raises(ValueError, match="toy knows no class 3; it has 3"):
        model.velocity([3])
    with pytest.raises(ValueError, match="shape"):
        model.velocity([1])(model.noise(2), 0.5)
    with pytest.raises(ValueError, match="one size"):
        model.velocity([1], lengths=[3])
    free = replace(model, recipe=replace(model.recipe, guided=False))
    with pytest.raises(ValueError, match="no guidance 2"):
        free.velocity([1], 2.0)


def test_the_grid_knows_what_the_output_means(model):
    grid = model.grid(10)
    assert grid.tracks[0].prediction == "sample" and grid.regimes == ()
    assert model.grid(10, interval=(0.25, 0.65)).regimes == (4, 8)
    flow = replace(model, recipe=replace(model.recipe, prediction="flow"))
    assert flow.grid(10, shift=3.0).tracks[0].sigmas[5] == pytest.approx(0.75)


def test_it_is_a_case_like_those_of_the_zoo(model):
    case = ZooCase(model, [0, 1, 2], model.noise(3), steps=12)
    for name in ("direct", "GeoShrink (corrected)", "GeoShrink (published)"):
        outcome = METHODS[name]({}, list, 6).run(case, 6)
        assert len(outcome.evaluated) == 6
        assert torch.allclose(outcome.x[:, 0], torch.tensor([0.0, 2.0, 4.0]), atol=1e-5)


def test_schedules_invert():
    steps = Discrete(kept_of(cosine_betas(100)), first=0, top=90)
    for t in range(1, 91):
        assert steps.time(steps.sigma(t / 90)) == t - 1
    time = Continuous()
    for u in (0.02, 0.5, 0.9):
        assert time.time(time.sigma(u)) == pytest.approx(u, rel=1e-6)
    alpha = math.sqrt(1 - time.sigma(1.0) ** 2)
    assert alpha == pytest.approx(math.exp(-19.9 / 4 - 0.05), rel=1e-4)


def loaded(name):
    """A model, where it is on this machine."""
    try:
        return foreign.load(name)
    except foreign.Missing as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("name", NAMES)
def test_samples_look_like_data(name):
    """Where the model is on this machine: a full run is finite and has the data's statistics."""
    model = loaded(name)
    large = sum(p.numel() for p in model.network.parameters()) > 1e7
    size = math.prod(model.recipe.shape)
    count = 3 if large else 6 if size > 1024 else 24 if size > 128 else 96
    labels = [i % len(model.classes) for i in range(count)]
    x = sample(model.velocity(labels), model.noise(count), model.grid())
    assert x.isfinite().all()
    found = statistics(model.values(x), labels)
    for what, (least, most) in model.recipe.looks.items():
        assert least <= found[what] <= most, (name, what, found)
    noise = statistics(model.values(model.noise(count)), labels)
    assert not all(a <= noise[what] <= b for what, (a, b) in model.recipe.looks.items())
    velocity, few = model.velocity(labels[:2]), model.noise(2, seed=1)
    full, budget = (sample(velocity, few, model.grid(6), b) for b in (None, 6))
    assert torch.equal(full, budget)


def test_a_policy_goes_the_way_it_was_going_or_around_either_side():
    model = loaded("avoiding")
    labels = [i % 3 for i in range(60)]
    x = sample(model.velocity(labels), model.noise(60), model.grid())
    sideways = model.values(x)[..., 0].sum(1)
    straight, left, right = (sideways[i::3] for i in range(3))
    assert (left < 0).all() and (right > 0).all()
    assert 0.2 < (straight < 0).double().mean() < 0.8


def test_what_is_known_of_a_patient_is_kept_and_spreads():
    model = loaded("vitals")
    pressure, mean_pressure, known_at = 20, 27, [6, 18, 30, 42]
    labels = [1, 1, 1, 2, 2, 2]
    values = model.values(sample(model.velocity(labels), model.noise(6), model.grid()))
    low, high = values[:3], values[3:]
    assert torch.allclose(low[:, pressure, known_at], torch.tensor(-1.5), atol=1e-4)
    assert torch.allclose(high[:, pressure, known_at], torch.tensor(1.5), atol=1e-4)
    for row in (pressure, mean_pressure):
        assert high[:, row].mean() > low[:, row].mean() + 0.5


def test_suites_run_them(model, tmp_path):
    given = {
        "name": "mine",
        "samples": 2,
        "seeds": 1,
        "keep": 1,
        "models": {"toy": {"budgets": [4], "steps": 6, "guidance": [2], "interval": [0.3, 0.7]}},
        "methods": ["direct", "GeoShrink (corrected)"],
        "metrics": ["dB"],
    }
    done = command.run(given, tmp_path / "cells", full_only=True, quiet=True)
    assert not done.failed
    command.report([tmp_path / "cells"], quiet=True)
    assert "toy" in (tmp_path / "cells" / "report.md").read_text(encoding="utf-8")
