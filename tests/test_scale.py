"""benchmarks/scale.py: the simulation loses no prompt, wastes nothing where nothing fails, and says
the same twice.
"""

import dataclasses
import importlib
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def simulation(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("scale_simulation")


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("scale")


def small(simulation, **given):
    asked = dict(prompts=4000, gpus=40, seconds=(8.0, 10.0, 12.0), failing=0.0, load=60.0)
    return simulation.World(**{**asked, **given})


STORMY = dict(failing=0.9, node_failing=0.5, back=100.0, tries=100)


@pytest.mark.parametrize("drivers", [1, 5])
@pytest.mark.parametrize("weather", [{}, STORMY], ids=["calm", "stormy"])
def test_every_prompt_is_kept_once(simulation, weather, drivers):
    world = small(simulation, drivers=drivers, driver=0.01, latency=0.1, **weather)
    told = simulation.simulate(world, counted=True)
    assert told.done == 4000 and not told.failed
    assert set(told.times) == set(range(4000)) and set(told.times.values()) == {1}
    assert bool(told.deaths) == bool(told.redone) == bool(weather)


def test_without_failures_it_is_the_ideal_and_a_tail(simulation):
    told = simulation.simulate(small(simulation))
    assert told.ideal + 60 <= told.makespan <= told.ideal + 60 + 12
    assert told.lost == told.down == 0 and told.loading == 40 * 60
    assert told.useful == pytest.approx(40 * told.ideal)


@pytest.mark.parametrize("seed", range(5))
def test_more_failures_are_never_less_work(simulation, seed):
    def work(failing):
        told = simulation.simulate(small(simulation, failing=failing, seed=seed))
        return told.useful, told.useful + told.lost + told.loading + told.down

    (useful, calm), (same, rough), (again, storm) = map(work, (0.0, 0.5, 0.99))
    assert useful == pytest.approx(same) == pytest.approx(again)
    assert calm < rough < storm


def test_all_seconds_of_the_gpus_are_accounted_for(simulation):
    told = simulation.simulate(small(simulation, encode=0.2, latency=0.1, **STORMY))
    assert told.writing == pytest.approx(4000 * 0.4)
    assert 0 <= told.waiting < 0.1 * 40 * told.makespan
    assert min(told.lost, told.loading, told.down) > 0


def test_the_same_seed_says_the_same(simulation):
    def once(seed):
        return dataclasses.asdict(simulation.simulate(small(simulation, seed=seed, **STORMY)))

    assert once(1) == once(1) != once(2)


def test_a_slow_driver_or_store_sets_the_pace_and_more_drivers_do_not(simulation):
    one = simulation.simulate(small(simulation, driver=0.5))
    five = simulation.simulate(small(simulation, driver=0.5, drivers=5))
    assert one.rate == pytest.approx(2.0, rel=0.02)
    assert five.makespan < 1.15 * five.ideal < 0.6 * one.makespan
    limited = simulation.simulate(small(simulation, limit=4.0))
    assert limited.rate == pytest.approx(2.0, rel=0.05)


def test_a_broken_worker_eats_prompts_unless_it_is_known(simulation):
    def once(**given):
        return simulation.simulate(small(simulation, failing=0.5, **given))

    broken, known, lost = once(broken=1.0, known=False), once(broken=1.0), once()
    assert broken.failed > 100 and not known.failed and not lost.failed
    assert broken.done + broken.failed == known.done == lost.done == 4000
    assert known.deaths and known.down < lost.down


def test_the_library_still_does_what_the_page_says(script):
    """A broken worker does not end the batch; tries of a write, a start and a job."""
    from geoshrink.batch import jobs, on_ray, results

    assert issubclass(jobs.Broken, Exception) and not issubclass(jobs.Broken, jobs.Fatal)
    assert (results.ATTEMPTS, results.READERS) == (4, script.READERS)
    assert on_ray.STARTS == 3 and script.World().tries == jobs.TRIES


def test_a_job_whose_worker_dies_again_and_again_has_failed(simulation):
    told = simulation.simulate(small(simulation, prompts=400, failing=0.99999, tries=1, back=1.0))
    assert told.failed and told.done + told.failed == 400 and not told.redone


def test_costs_that_were_measured_are_read(script):
    costs = json.loads((FOLDER / "scale.json").read_text(encoding="utf-8"))
    world = script.world_of(costs)
    assert 0 < world.driver < 0.1 and world.gpus == 1000
    assert len(script.targets()) > 50 and min(script.targets()) < max(script.targets())
    assert script.start_ends(1000, 0.0, 0.0) == 0 < script.start_ends(1000, 0.01, 0.0)
    assert script.start_ends(1000, 0.01, 0.01, 60.0) < script.start_ends(1000, 0.01, 0.01)
    assert all(x > 0 for x in script.gather_seconds(costs).values())
    told = script.simulate(dataclasses.replace(world, prompts=5000))
    assert told.done == 5000
