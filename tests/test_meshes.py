"""Meshes as objects of a registry: one from outside, the fall-backs, and what cannot be."""

import json
import subprocess
import sys

import pytest
import torch

import geoshrink
from geoshrink import Grid, Plan, register_mesh, sample
from geoshrink.meshes import MESHES, Mesh, by_regime, sigma_anchors

SIGMAS = [1 - i / 20 for i in range(21)]
X = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))


def velocity(x, sigma):
    return torch.sin(3 * x) * (1 + sigma)


@pytest.fixture
def every_second():
    """A third party's mesh: every second stage from the start of each regime, as far as it goes."""

    def place(tau, budget):
        stages = list(range(0, len(tau) - 1, 2)) + list(range(1, len(tau) - 1, 2))
        return tuple(sorted(stages[:budget])), "every second stage"

    register_mesh(Mesh("every-2nd", by_regime(place), least=3))
    yield "every-2nd"
    del MESHES["every-2nd"]


def test_a_mesh_from_outside_runs_is_written_and_is_reported(every_second):
    x, report = sample(velocity, X, SIGMAS, 4, anchors=every_second, with_report=True)
    assert report.queried == (0, 2, 4, 6) and "every second stage anchors" in str(report)
    plan = Plan.of(SIGMAS, 4, anchors=every_second)
    again = Plan.from_json(plan.to_json())
    assert again == plan and again.mesh == "every second stage"
    assert torch.equal(sample(velocity, X, plan=again), x)
    assert torch.equal(
        sample(velocity, X, SIGMAS, 20, anchors=every_second), sample(velocity, X, SIGMAS)
    )


def test_a_plan_of_such_a_mesh_needs_the_mesh_no_more(every_second, tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(Plan.of(SIGMAS, 4, anchors=every_second).to_json())
    code = f"import geoshrink; print(geoshrink.Plan.from_json(open({str(file)!r}).read()).anchors)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(0, 2, 4, 6)"


def test_it_is_laid_out_in_every_regime(every_second):
    grid = Grid.of(SIGMAS, regimes=(3, 10))
    plan = Plan.of(grid, 10, anchors=every_second)
    assert plan.budget == 10 and {0, 3, 10} <= set(plan.anchors)


def test_its_least_budget_is_its_own(every_second):
    assert Plan.of(SIGMAS, 3, anchors=every_second).budget == 3
    with pytest.raises(ValueError, match="budget 2 is too small: this mesh needs at least 3 of"):
        Plan.of(SIGMAS, 2, anchors=every_second)
    assert Plan.of(SIGMAS, 2, anchors=every_second, rule="hold").anchors == (0, 2)


def test_a_mesh_is_named_among_the_choices(every_second):
    with pytest.raises(
        ValueError, match="one of auto, corrected, sigma, geometric, uniform, every-2nd, or"
    ):
        Plan.of(SIGMAS, 4, anchors="every-3rd")


def test_a_mesh_that_misses_its_budget_is_refused():
    register_mesh(Mesh("short", lambda grid, budget: ((0, 1), "short")))
    try:
        with pytest.raises(ValueError, match=r"'short' placed 2 anchors for a budget of 4: \(0, 1"):
            Plan.of(SIGMAS, 4, anchors="short")
    finally:
        del MESHES["short"]


@pytest.mark.parametrize(
    ("make", "quoted"),
    [
        (lambda: register_mesh(Mesh("Two Words", MESHES["auto"].place)), "'Two Words'"),
        (lambda: register_mesh(Mesh(None, MESHES["auto"].place)), "None"),  # type: ignore[arg-type]
        (lambda: register_mesh(MESHES["auto"]), "mesh 'auto' is already registered"),
        (lambda: register_mesh("auto"), "takes a geoshrink.meshes.Mesh, got 'auto'"),  # type: ignore[arg-type]
    ],
)
def test_meshes_that_cannot_be(make, quoted):
    with pytest.raises((TypeError, ValueError), match=quoted):
        make()


def test_the_fall_backs_are_the_meshes_own():
    wide = [1.0, 0.1, *[0.1 - i / 200 for i in range(1, 20)]]  # no root ≥ 1 after such a first gap
    words = [MESHES[name].place(Grid.of(wide), 6)[1] for name in ("auto", "sigma", "geometric")]
    assert words[2] == "geometric" and words[1].startswith("geometric (no σ-mesh: ")
    assert words[0].startswith(words[1]) and "(no auto mesh: " in words[0]
    few, words = MESHES["sigma"].place(Grid.of(wide), 3)
    assert words == "uniform" and few == (0, 10, 19)


def test_the_public_names():
    for name in ("geometric_anchors", "sigma_anchors", "uniform_anchors", "certificate"):
        assert getattr(geoshrink, name) is getattr(geoshrink.meshes, name)
    assert geoshrink.register_mesh is register_mesh
    assert json.loads(Plan.of(SIGMAS, 5).to_json())["mesh"] == "corrected"


@pytest.mark.parametrize(
    "tau",
    [[1.0, 0.8, 0.9, 0.6, 0.5, 0.3, 0.1, 0.0], [1.0, 1.0, 0.8, 0.6, 0.5, 0.3, 0.1, 0.0]],
    ids=["turns back", "first gap of no length"],
)
def test_there_is_no_sigma_mesh_where_progress_turns_back_or_stands_still(tau):
    assert sigma_anchors(tau, 4) is None
