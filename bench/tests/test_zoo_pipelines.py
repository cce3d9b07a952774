"""The zoo in diffusers: trained weights through pipelines, schedulers, folders and accelerate()."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from geoshrink import Handle, Plan, Report, accelerate, sample
from geoshrink_bench import zoo
from geoshrink_bench.zoo.recipes import RECIPES

pytest.importorskip("diffusers")
p: Any = pytest.importorskip("geoshrink_bench.zoo.pipelines")
pytestmark = pytest.mark.filterwarnings("ignore")  # diffusers' own, of numpy's conversions
torch.set_num_threads(1)

KINDS = ("euler", "unipc", "dpm++")
STEPS, BUDGET, GUIDANCE, LABELS = 16, 7, 2.0, ["Kiwi 1"]
SHORT = 6  # stages where nothing but plumbing is looked at
DIGITS = [3]


def accelerated(pipe: Any, **options: Any) -> Handle:
    return accelerate(pipe, **options)


def counted(module: nn.Module) -> list[int]:
    """Grows by one with every forward call of the module."""
    calls: list[int] = []
    module.register_forward_pre_hook(lambda module, args: calls.append(len(calls)))
    return calls


def drawn(pipe: Any, steps: int = STEPS, guidance: float = GUIDANCE) -> Any:
    """One tensor, or two where there is sound, from the noise of model.noise(n, seed=0)."""
    noise = torch.Generator().manual_seed(0)
    options = dict(num_inference_steps=steps, guidance_scale=guidance, generator=noise)
    labels = DIGITS if isinstance(pipe, p.DigitsPipeline) else LABELS
    made = pipe(labels, **options, output_type="latent", return_dict=False)
    return made[0] if len(made) == 1 else made


def quiet(pipe: Any) -> Any:
    pipe.set_progress_bar_config(disable=True)
    return pipe


def close(one: Any, other: Any, atol: float) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=atol)


def marks(pipe: Any) -> list[set[str]]:
    """Our names in the pipeline and its parts."""
    hooks = {"step", "set_timesteps", "progress_bar", "_call_impl"}
    return [hooks & set(vars(part)) for part in (pipe, *pipe.components.values())]


# --- fruit -------------------------------------------------------------------------------------


@functools.cache
def fruit() -> zoo.Model:
    return zoo.load("fruit")


@functools.cache
def fruit_pipe(kind: str) -> Any:
    return quiet(p.pipeline("fruit", kind))


class Runs(NamedTuple):
    full: Tensor
    few: Tensor
    report: Report
    calls: int


@functools.cache
def runs(kind: str) -> Runs:
    """All stages, and BUDGET of them; computed once, it takes a second or two."""
    pipe = fruit_pipe(kind)
    full, calls = drawn(pipe), counted(pipe.transformer)
    with accelerated(pipe, budget=BUDGET) as handle:
        few = drawn(pipe)
        assert handle.report is not None
        return Runs(full, few, handle.report, len(calls))


def psnr(x: Tensor, y: Tensor) -> float:
    error = (fruit().values(x) - fruit().values(y)).square().mean()
    return float(-10 * error.log10())


@pytest.mark.parametrize("guidance", [1.0, GUIDANCE])
def test_euler_is_the_sampler_of_the_zoo(guidance):
    pipe, steps = fruit_pipe("euler"), 5
    ours = sample(fruit().velocity(LABELS, guidance), fruit().noise(1), fruit().grid(steps))
    close(drawn(pipe, steps, guidance), ours, 1e-4)
    assert pipe.scheduler.sigmas.tolist() == pytest.approx(zoo.shifted_sigmas(steps, 3.0), abs=1e-6)
    assert pipe.num_timesteps == steps


def test_the_multistep_schedulers_go_over_nearly_the_same_grid():
    grid = zoo.shifted_sigmas(STEPS, 3.0)
    for kind in ("unipc", "dpm++"):
        scheduler = p.flow_scheduler(kind, 3.0)
        p.set_timesteps(scheduler, STEPS, "cpu")
        assert scheduler.sigmas.tolist() == pytest.approx(grid, abs=1e-3)
        assert scheduler.timesteps / 1000 == pytest.approx(np.array(grid[:-1]), abs=1.5e-3)


def test_a_saved_pipeline_draws_the_same(tmp_path):
    pipe = fruit_pipe("euler")
    pipe.save_pretrained(tmp_path)
    index = json.loads((tmp_path / "model_index.json").read_text())
    assert index["transformer"] == ["geoshrink_bench.zoo.pipelines", "FruitTransformer"]
    back = quiet(p.FruitPipeline.from_pretrained(tmp_path))
    assert back.transformer is not pipe.transformer and back.scheduler.config.shift == 3.0
    assert torch.equal(drawn(back, 3), drawn(pipe, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_budget_changes_nothing(kind):
    pipe = fruit_pipe(kind)
    plain, calls = drawn(pipe, SHORT, 1.0), counted(pipe.transformer)
    with accelerated(pipe, budget=SHORT) as handle:
        assert torch.equal(drawn(pipe, SHORT, 1.0), plain)
        assert handle.report is not None and handle.report.evaluations == len(calls) == SHORT


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_budget_comes_near_the_full_run(kind):
    full, few, report, calls = runs(kind)
    assert calls == len(report.queried) == BUDGET and not report.extra
    assert psnr(few, full) > 27


def test_as_many_calls_on_a_short_grid_do_not():
    full, few, *_ = runs("euler")
    assert psnr(few, full) > psnr(drawn(fruit_pipe("euler"), BUDGET), full) + 8


def test_accelerated_euler_is_the_sampler_of_the_zoo():
    velocity, noise = fruit().velocity(LABELS, GUIDANCE), fruit().noise(1)
    ours, report = sample(velocity, noise, fruit().grid(STEPS), BUDGET, with_report=True)
    assert report.queried == runs("euler").report.queried
    close(runs("euler").few, ours, 1e-3)


# --- digits: two outputs, two schedulers -------------------------------------------------------


@functools.cache
def small_digits() -> zoo.Model:
    """A random network in the place of the trained one."""
    sizes: dict[str, Any] = dict(shapes=((1, 8, 8), (1, 256)), patches=((2, 2), (32,)))
    sizes |= dict(width=32, depth=2, heads=2, condition=16)
    recipe = dataclasses.replace(RECIPES["digits-av"], network=sizes)
    torch.manual_seed(0)
    network = recipe.build(10).eval().requires_grad_(False)
    for weight in network.parameters():
        weight.add_(0.05 * torch.randn_like(weight))
    return zoo.Model(recipe, network, {"classes": list("0123456789")}, "")


@functools.cache
def digits() -> zoo.Model:
    """The trained model where its weights are: they are not in the package."""
    try:
        return zoo.load("digits-av")
    except FileNotFoundError:
        return small_digits()


def digits_pipe(kind: str = "euler", model: zoo.Model | None = None) -> Any:
    model = model or small_digits()
    schedulers = [p.flow_scheduler(kind, shift) for shift in model.judged_at["shift"]]
    return quiet(p.DigitsPipeline(p.filled(p.DigitsTransformer, model), *schedulers, model.classes))


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def test_each_part_has_a_grid_of_its_own():
    pipe, model = digits_pipe(model=digits()), digits()
    ours = sample(model.velocity(DIGITS, GUIDANCE), model.noise(1), model.grid(SHORT))
    close(drawn(pipe, SHORT), ours, 1e-3)  # sound goes to 3.5, and guidance magnifies rounding
    found = [s.sigmas.tolist() for s in (pipe.scheduler, pipe.audio_scheduler)]
    assert found[0] == pytest.approx(zoo.shifted_sigmas(SHORT, 12.0), abs=1e-6)
    assert found[1] == pytest.approx(zoo.shifted_sigmas(SHORT, 3.0), abs=1e-6)


def test_both_parts_are_predicted_with_one_set_of_anchors():
    pipe, model = digits_pipe(model=digits()), digits()
    calls = counted(pipe.transformer)
    with accelerated(pipe, budget=BUDGET) as handle:
        few, report = drawn(pipe), handle.report
    assert report is not None and len(report.queried) == len(calls) == BUDGET
    velocity, noise = model.velocity(DIGITS, GUIDANCE), model.noise(1)
    close(few, sample(velocity, noise, model.grid(STEPS), BUDGET), 1e-3)
    assert report.queried == Plan.of(model.grid(STEPS), BUDGET).anchors


@pytest.mark.parametrize("kind", KINDS)
def test_digits_with_every_scheduler(kind):
    pipe = digits_pipe(kind)
    plain, calls = drawn(pipe), counted(pipe.transformer)
    with accelerated(pipe, budget=STEPS):
        exact = drawn(pipe)
    assert all(torch.equal(a, b) for a, b in zip(exact, plain)) and len(calls) == STEPS
    with accelerated(pipe, budget=BUDGET):
        few = drawn(pipe)
    assert len(calls) == STEPS + BUDGET
    assert all(0 < distance(a, b) < 0.03 for a, b in zip(few, plain))


@pytest.mark.parametrize("kind", KINDS)
def test_both_schedulers_are_saved(tmp_path, kind):
    pipe = digits_pipe(kind)
    pipe.save_pretrained(tmp_path)
    back = quiet(p.DigitsPipeline.from_pretrained(tmp_path))
    assert all(torch.equal(a, b) for a, b in zip(drawn(back, 6), drawn(pipe, 6)))
    assert type(back.audio_scheduler) is type(pipe.scheduler)
    assert back.scheduler.config != back.audio_scheduler.config
    assert back.config.classes == list("0123456789")


def test_removing_restores():
    pipe = digits_pipe()
    plain, calls, before = drawn(pipe, SHORT), counted(pipe.transformer), marks(pipe)
    handle = accelerated(pipe, budget=4)
    drawn(pipe, SHORT)
    assert len(calls) == 4 and marks(pipe) != before
    handle.remove()
    again = drawn(pipe, SHORT)
    assert len(calls) == 4 + SHORT and marks(pipe) == before
    assert all(torch.equal(a, b) for a, b in zip(again, plain))


# --- the call ----------------------------------------------------------------------------------


def tiny(**options: Any) -> Any:
    """An untrained pipeline, whose velocity is 0: what comes out is the noise that went in."""
    sizes = dict(width=16, depth=1, heads=2, condition=8)
    network = p.FruitTransformer((3, 8, 8), (4, 4), classes=2, **sizes)
    return quiet(p.FruitPipeline(network, p.flow_scheduler(), ["fig", "plum"], **options))


def test_what_comes_out():
    pipe, latents = tiny(), torch.linspace(-2, 2, 192).reshape(1, 3, 8, 8)
    pixels = (latents.clamp(-1, 1) + 1) / 2
    out = {t: pipe("fig", 2, latents=latents, output_type=t).images for t in p.OUTPUT_TYPES}
    assert torch.equal(out["latent"], latents)
    close(out["pt"], pixels, 1e-6)
    assert np.allclose(out["np"], pixels.permute(0, 2, 3, 1).numpy(), atol=1e-6)
    assert np.array_equal(np.asarray(out["pil"][0]), (255 * out["np"][0]).round())


def test_what_comes_out_of_digits():
    out = digits_pipe()([3, 7], 2)
    assert [image.size for image in out.images] == [(8, 8)] * 2
    assert out.audios.shape == (2, 256) and np.abs(out.audios).max() <= 1


def test_names_and_numbers_are_the_same_labels():
    pipe = tiny()
    assert pipe.encode_labels(["plum", 0]).tolist() == [1, 0]
    pipe._guidance_scale = 2.0
    assert pipe.encode_labels(["plum", 0]).tolist() == [2, 2, 1, 0]


def test_a_callback_sees_every_step_and_may_change_the_latents():
    seen = []

    def callback(pipe: Any, i: int, t: Tensor, tensors: dict) -> dict:
        seen.append((i, float(t)))
        return {"latents": 0 * tensors["latents"]} if i == 2 else {}

    out = tiny()("fig", 4, output_type="latent", callback_on_step_end=callback).images
    times = [1000 * sigma for sigma in zoo.shifted_sigmas(4, 3.0)[:4]]
    assert seen == [(i, pytest.approx(time)) for i, time in enumerate(times)]
    assert not out.any()


def test_bad_input_is_quoted():
    pipe = tiny()
    for label in ("kiwi", 2, -1, 0.5):
        with pytest.raises(ValueError, match=f"no class {label!r}.*'fig'"):
            pipe([label])
    with pytest.raises(ValueError, match=r"\(1, 3, 8, 8\), got \(2, 3, 8, 8\)"):
        pipe("fig", latents=torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match="'gif'"):
        pipe("fig", output_type="gif")
    with pytest.raises(ValueError, match="'heun'"):
        p.pipeline("fruit", "heun")
    with pytest.raises(ValueError, match="'motion'; there is one for fruit, digits-av"):
        p.pipeline("motion")
    with pytest.raises(ValueError, match=r"FruitPipeline.*'fruit-x0'"):
        p.FruitPipeline.of("fruit-x0")


def test_the_zoo_itself_does_not_import_diffusers():
    code = "import sys, geoshrink_bench.zoo; sys.exit('diffusers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
