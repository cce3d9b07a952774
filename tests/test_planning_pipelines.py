"""profile_pipeline: a trained model's diffusers pipeline, profiled where its scheduler steps."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import geoshrink
from geoshrink import Plan, Profile
from geoshrink.hosts.profiling import profile_pipeline
from geoshrink.planning.tournament import BEST

pytest.importorskip("diffusers")


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pipe():
    """A tiny network of random weights: the plumbing is what is tested."""
    from geoshrink_bench.zoo.pipelines import FruitPipeline, FruitTransformer, as_scheduler

    torch.manual_seed(0)
    network = FruitTransformer((3, 8, 8), (4, 4), 5, width=32, depth=1, heads=2, condition=16)
    for weights in network.parameters():
        torch.nn.init.normal_(weights, std=0.3)
    made = FruitPipeline(network.eval(), as_scheduler("euler", 3.0), list("abcde"))
    made.set_progress_bar_config(disable=True)
    return made


CALLS = [{"labels": [0, 1]}, {"labels": [2, 3]}]
STEPS: dict[str, Any] = dict(num_inference_steps=12, guidance_scale=1.0)


@contextmanager
def counting(pipe, most: int | None = None) -> Iterator[list[int]]:
    """The network's calls; the one after `most` is interrupted."""
    calls: list[int] = []

    def count(*_: object) -> None:
        if len(calls) == most:
            raise KeyboardInterrupt
        calls.append(1)

    hook = pipe.transformer.register_forward_pre_hook(count)
    try:
        yield calls
    finally:
        hook.remove()


@pytest.fixture(scope="module")
def found(pipe):
    return profile_pipeline(pipe, CALLS, budgets=[5], quiet=True, **STEPS)


def test_a_pipeline_is_profiled_as_the_model_itself(pipe, found):
    """The same Gram matrices, gains and trials as profile() finds on the bare network."""

    def velocity(labels):
        labels = torch.tensor(labels)

        @torch.no_grad()
        def call(x, sigma):
            return pipe.transformer(x, torch.full((2,), 1000 * sigma), labels)[0]

        return call

    noises = [torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(i)) for i in (0, 1)]
    velocities = [velocity(call["labels"]) for call in CALLS]
    same = geoshrink.profile(velocities, noises, found.grid, budgets=[5], quiet=True)
    assert found.solver == "euler" and found.samples == 4 and found.model == "FruitPipeline"
    assert found.guidance == 1.0 and found.tried("run") == {5}
    torch.testing.assert_close(found.grams[0], same.grams[0], rtol=1e-3, atol=1e-2)
    assert found.gains() == pytest.approx(same.gains(), rel=0.02)
    mean = {t.recipe: t.mean for t in same.trials}
    for trial in found.trials:
        assert trial.mean == pytest.approx(mean[trial.recipe], abs=0.2)


def test_the_plan_runs_in_the_pipeline_and_nothing_stays_behind(pipe, found):
    assert "step" not in pipe.scheduler.__dict__
    plan = found.plan(5)
    assert Plan.from_json(plan.to_json()) == plan
    assert "not planned: no real runs for the flow" in found.plan(5, target="flow").mesh
    with geoshrink.accelerate(pipe, plan=plan) as handle:
        pipe([3], generator=torch.Generator().manual_seed(9), output_type="latent", **STEPS)
    assert handle.report is not None and handle.report.evaluations == 5


def test_corrected_plans_are_tried_in_the_pipeline_and_run_there(pipe, found):
    assert {*BEST} <= {t.recipe for t in found.trials}
    plan = found.planner.named(BEST[0], 5)
    assert plan is not None and plan.correct is not None
    with geoshrink.accelerate(pipe, plan=plan) as handle:
        pipe([3], generator=torch.Generator().manual_seed(9), output_type="latent", **STEPS)
    assert handle.report is not None and "not corrected" not in str(handle.report)
    assert any(stage.correction for stage in handle.report.stages)


def test_a_refined_plan_gives_step_the_average_over_each_stage(pipe, found):
    noise = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    labels = torch.tensor([0, 1])

    @torch.no_grad()
    def velocity(x, sigma):
        return pipe.transformer(x, torch.full((2,), 1000 * sigma), labels)[0]

    for space in ("output", "data"):
        plan = Plan.of(found.grid, 6, rule="time", refine=8, space=space)
        with geoshrink.accelerate(pipe, plan=plan) as handle:
            made = pipe([0, 1], latents=noise, output_type="latent", **STEPS).images
        assert handle.report is not None and handle.report.evaluations == 6
        torch.testing.assert_close(made, geoshrink.sample(velocity, noise, plan=plan))


def test_an_interrupted_profile_goes_on_with_the_call_it_was_at(pipe, found, tmp_path):
    """Two calls, 12 steps: a first step each, 4 runs each, then plans with 5 of the steps."""
    file = tmp_path / "half.json"
    asked: dict[str, Any] = {"budgets": [5], "quiet": True, **STEPS}
    with counting(pipe, 2 + 4 * 12 + 20), pytest.raises(KeyboardInterrupt):
        profile_pipeline(pipe, CALLS, file=file, **asked)
    assert "step" not in pipe.scheduler.__dict__
    with pytest.raises(ValueError, match=r"interrupted: call profile\(…, file=…\)"):
        Profile.load(file)
    for more, why in (
        (dict(calls=[CALLS[1], CALLS[0]]), "its first outputs differ"),
        (dict(calls=CALLS, seed=5), "its noise differ"),
        (dict(calls=CALLS, perturbed=4), "its stages differ"),
    ):
        with pytest.raises(ValueError, match=f"half.json is of another profile .*{why}"):
            profile_pipeline(pipe, file=file, **{**asked, **more})
    for most in (2 + 4 * 12 + 12 + 10 + 3, 2 + 2 * 12 + 5):  # in the tournament, and again
        with counting(pipe, most), pytest.raises(KeyboardInterrupt):
            profile_pipeline(pipe, CALLS, file=file, **asked)
    half = json.loads(file.read_text(encoding="utf-8"))
    assert {len(trial["db"]) for trial in half["trials"]} == {2, 4} and not half["complete"]
    other = tmp_path / "other.json"
    other.write_bytes(file.read_bytes())
    changed = profile_pipeline(pipe, CALLS, file=other, **{**asked, "budgets": [6]})
    assert changed.tried("run") == {6} and {len(t.db) for t in changed.trials} == {4}
    with counting(pipe) as calls:
        resumed = profile_pipeline(pipe, CALLS, file=file, **asked)
    assert resumed.trials == found.trials and torch.equal(resumed.grams[0], found.grams[0])
    with counting(pipe) as again:
        assert profile_pipeline(pipe, CALLS, file=file, **asked).trials == found.trials
    assert len(calls) < 2 + 24 + 9 * 10 and len(again) == 2
    assert Profile.load(file).plan(5) == found.plan(5)


def test_a_profile_has_one_bar_and_says_its_memory_before(pipe, monkeypatch, capsys):
    totals, ticks = [], []

    class Bar:
        def __init__(self, total: int):
            totals.append(total)

        def update(self) -> None:
            ticks.append(1)

        def close(self) -> None:
            ticks.append(0)

    monkeypatch.setattr("geoshrink.planning.tournament.bar", Bar)
    pipe.set_progress_bar_config(disable=False)
    try:
        with counting(pipe) as calls:
            profile_pipeline(pipe, CALLS, budgets=[5], perturbed=1, **STEPS)
        assert pipe._progress_bar_config == {"disable": False}
    finally:
        pipe.set_progress_bar_config(disable=True)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"profiling: at most {totals[0]} model calls (5.8 full runs), "
        f"{13 * 2 * 3 * 64 * 4 / 1000:.1f} kB of host memory"
    ]
    assert totals == [2 * (2 * 12 + 9 * 5)] and ticks[-1] == 0
    assert sum(ticks) == len(calls) - 2 <= totals[0]  # after the first steps


def test_a_failing_run_leaves_the_scheduler_as_it_was(pipe):
    with pytest.raises(ValueError):
        profile_pipeline(pipe, [{"labels": ["no such fruit"]}], quiet=True, **STEPS)
    assert "step" not in pipe.scheduler.__dict__


def test_bad_calls_are_refused(pipe):
    with pytest.raises(ValueError, match="without a generator"):
        profile_pipeline(pipe, [{"labels": [0], "generator": torch.Generator()}])
    with pytest.raises(ValueError, match="at least one call"):
        profile_pipeline(pipe, [])
    with (
        counting(pipe) as calls,
        pytest.raises(ValueError, match="2 samples are too few to plan from: give 4 calls"),
    ):
        profile_pipeline(pipe, [{"labels": [0]}, {"labels": [1]}], quiet=True, **STEPS)
    assert len(calls) == 2  # the first step of each, and nothing more
    with pytest.raises(ValueError, match="FruitPipeline takes no 'label' in its call"):
        profile_pipeline(pipe, [{"label": [0]}], quiet=True, **STEPS)
    with pytest.raises(ValueError, match="perturbed is a number of stages from 1 to 50, got 0"):
        profile_pipeline(pipe, CALLS, perturbed=0, **STEPS)
    with pytest.raises(ValueError, match=r"for target='run', not 'flow'.*plan\(budget, target="):
        profile_pipeline(pipe, CALLS, target="flow", **STEPS)
    with pytest.raises(ValueError, match="unknown target 'flows'"):
        profile_pipeline(pipe, CALLS, target="flows", **STEPS)
    few: dict[str, Any] = STEPS | {"num_inference_steps": 4}
    with pytest.raises(ValueError, match="cannot be planned: 4 stages leave nothing to skip"):
        profile_pipeline(pipe, CALLS, quiet=True, **few)


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # diffusers' own
def test_another_solver_is_planned_as_for_euler_and_says_so(pipe):
    from geoshrink_bench.zoo.pipelines import DigitsPipeline, FruitPipeline, as_scheduler

    other = FruitPipeline(pipe.transformer, as_scheduler("dpm++", 3.0), list("abcde"))
    other.set_progress_bar_config(disable=True)
    found = profile_pipeline(other, CALLS, budgets=[5], quiet=True, **STEPS)
    assert found.solver == "DPMSolverMultistepScheduler"
    assert found.plan(5).mesh.endswith("with DPMSolverMultistepScheduler, as for Euler")
    both = object.__new__(DigitsPipeline)
    both.__dict__.update(scheduler=other.scheduler, audio_scheduler=pipe.scheduler)
    with pytest.raises(ValueError, match="2 schedulers"):
        profile_pipeline(both, CALLS, quiet=True)
    refined = Plan.of(found.grid, 6, refine=8)
    with pytest.raises(ValueError, match="refine=8 is for Euler, not DPMSolver"):
        geoshrink.accelerate(other, plan=refined)


def test_a_handle_profiles_its_pipeline_and_lets_go_of_it(pipe, found):
    handle = geoshrink.accelerate(pipe, budget=5)
    assert "step" in pipe.scheduler.__dict__
    same = handle.profile(CALLS, budgets=[5], quiet=True, **STEPS)
    assert "step" not in pipe.scheduler.__dict__ and not handle.reports
    assert same.plan(5) == found.plan(5) and same.predict(5) == found.predict(5)
    torch.testing.assert_close(same.grams[0], found.grams[0], rtol=0, atol=0)
    handle = geoshrink.accelerate(pipe, budget=5)
    asked: list[tuple[Any, str]] = [
        ("a lighthouse", "calls is a list of prompts, or of dicts of arguments, got 'a lighth"),
        ([3], "a call is a prompt or a dict of arguments, got 3"),
        (["a lighthouse", "a dog"], "FruitPipeline takes no 'prompt' in its call"),
    ]
    for calls, error in asked:
        with pytest.raises((TypeError, ValueError), match=error):
            handle.profile(calls, **STEPS)
        assert "step" in pipe.scheduler.__dict__  # nothing was removed
    with pytest.raises(ValueError, match="this FruitPipeline is accelerated: profile it with"):
        profile_pipeline(pipe, CALLS, **STEPS)
    handle.remove()
    with pytest.raises(ValueError, match="cannot be profiled as a pipeline"):
        geoshrink.Handle(list, lambda: None).profile(CALLS)


def test_prompts_alone_are_calls(pipe):
    class Prompted(type(pipe)):
        def __call__(self, prompt, **options):  # type: ignore[override]
            return super().__call__([int(word) for word in prompt.split()], **options)

    other = Prompted(pipe.transformer, pipe.scheduler, list("abcde"))
    other.set_progress_bar_config(disable=True)
    asked: dict[str, Any] = {"budgets": (), "quiet": True, "perturbed": 1, **STEPS}
    same = profile_pipeline(pipe, CALLS, **asked)
    handle = geoshrink.accelerate(other, budget=5)
    found = handle.profile(["0 1", "2 3"], **asked, output_type="latent")
    assert torch.equal(found.grams[0], same.grams[0])


def test_refine_is_an_option_of_accelerate_and_reserve_is_not(pipe, found):
    noise = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    made = []
    asked: list[dict[str, Any]] = [
        dict(budget=6, refine=8),
        dict(plan=Plan.of(found.grid, 6, refine=8)),
    ]
    for options in asked:
        with geoshrink.accelerate(pipe, **options) as handle:
            made += [pipe([0, 1], latents=noise, output_type="latent", **STEPS).images]
        assert handle.report is not None and handle.report.evaluations == 6
        assert "refined 8 times" in handle.report.plan
    assert torch.equal(*made)
    with pytest.raises(ValueError, match=r"refine is how many steps replace one, .* got 0"):
        geoshrink.accelerate(pipe, budget=6, refine=0)
    with pytest.raises(TypeError, match=r"reserve=2 is an option of sample\(\) and Run only"):
        geoshrink.accelerate(pipe, budget=6, reserve=2)
    assert "step" not in pipe.scheduler.__dict__


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # diffusers' own
def test_a_plan_in_data_space_needs_a_scheduler_that_knows_the_data(pipe, found, monkeypatch):
    monkeypatch.setattr("geoshrink.hosts.options.knows_data", lambda scheduler: False)
    plan = Plan.of(found.grid, 6, space="data")
    asked: list[dict[str, Any]] = [dict(plan=plan), dict(budget=6, space="data")]
    for options in asked:
        with pytest.raises(ValueError, match=r"space='data' needs to know .*FlowMatchEuler"):
            geoshrink.accelerate(pipe, **options)
    assert "step" not in pipe.scheduler.__dict__
