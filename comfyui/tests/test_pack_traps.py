"""What an attacker found: wrappers of other nodes, other grids, other caches, odd shapes of σ."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from support import fakes
from support.fakes import Flow, Guider, KSampler, Model, Patcher, named, noise_like, pack, sampled
from torch import Tensor

regimes, samplers, seam = pack("regimes"), pack("samplers"), pack("seam")
options, pictures = pack("options"), pack("pictures")


@pytest.mark.parametrize("percent", [0.2, 0.4, 0.6, 0.7, 0.8])
def test_a_prompt_that_begins_at_a_step(percent: float) -> None:
    """ConditioningSetTimestepRange on 10 steps of a grid without shift."""

    class Even(Flow):
        shift = 1.0

    sigmas = Even().levels(10)
    start = 1.0 - percent
    acts = [fakes.acts({"timestep_start": start}, sigma) for sigma in sigmas[:-1]]
    conds = {"positive": [{"prompt": 1.0}, {"prompt": -1.0, "timestep_start": start}]}
    found = regimes.switches(type("", (), {"conds": conds}), sigmas.double().tolist()[:-1])
    assert found == (acts.index(True),)


def test_teacache_as_it_is() -> None:
    def unet_wrapper_function(function: Any, arguments: Any) -> Any:
        return function(arguments["input"], arguments["timestep"], **arguments["c"])

    unet_wrapper_function.__module__ = "/ComfyUI/custom_nodes/ComfyUI-TeaCache.nodes"

    def patch(model: Patcher) -> None:
        own = model.model_options["transformer_options"]
        own.update(rel_l1_thresh=0.4, max_skip_steps=3, coefficients=[1.0, 2.0])
        model.model_options["model_function_wrapper"] = unet_wrapper_function

    assert sampled(patch=patch, budget=8).calls == 20


def outside(function: Any) -> Any:
    def patch(model: Patcher) -> None:
        model.add_wrapper_with_key("predict_noise", "another", function)

    return patch


@pytest.mark.parametrize("what", ["x", "result"])
def test_copies_outside(what: str) -> None:
    """Without corrections it makes no difference; with them the state is half moved."""

    def copying(run: Any, x: Tensor, *rest: Any) -> Tensor:
        return run(x.clone(), *rest) if what == "x" else run(x, *rest).clone()

    plain = sampled(fakes.dpmpp_2m, budget=8, patch=outside(copying), correct="off")
    assert torch.equal(plain.latent, sampled(fakes.dpmpp_2m, budget=8, correct="off").latent)
    fast = sampled(fakes.dpmpp_2m, budget=8, patch=outside(copying))
    either = sampled(fakes.dpmpp_2m, budget=8), plain
    assert any(torch.equal(fast.latent, one.latent) for one in either)


def test_other_levels_end_the_predictions() -> None:
    """A node behind ours passes another grid on: the first call shows it."""
    model = Model()
    node = seam.Accelerated(options.Options(budget=8), lambda text: None)
    patcher = node.attach(Patcher(model))

    def other(
        run: Any,
        noise: Tensor,
        latent: Tensor,
        sampler: Any,
        sigmas: Tensor,
        *rest: Any,
        **more: Any,
    ):
        return run(noise, latent, sampler, 0.9 * sigmas, *rest, **more)

    patcher.add_wrapper_with_key("outer_sample", "behind", other)
    Guider(patcher).sample(noise_like(), KSampler(fakes.euler), Flow().levels(20))
    assert model.calls == 20


def test_a_wrapper_that_calls_twice() -> None:
    def twice(run: Any, *arguments: Any) -> Tensor:
        return (run(*arguments) + run(*arguments)) / 2

    full, fast = sampled(patch=outside(twice)), sampled(patch=outside(twice), budget=8)
    assert fast.calls == 16 or torch.equal(fast.latent, full.latent)


def test_what_is_said_of_a_part() -> None:
    def swap(n: int, result: Tensor) -> Tensor:
        return result.double() if n == 4 else result

    fast = sampled(model=Model(change=swap), budget=8)
    assert fast.calls < 20 and not fast.text.startswith("every call was exact")


def test_another_sampler_of_eulers_name() -> None:
    @named("euler")
    def not_euler(*arguments: Any, **options: Any) -> Tensor:
        return fakes.ipndm(*arguments, **options)

    samplers.TRIALS.clear()
    guider = type("", (), {"inner_model": Model()})
    assert not samplers.try_out(KSampler(not_euler), Flow().levels(12), guider).euler


@pytest.mark.parametrize("shape", [(1, 4), (4,)])
def test_a_level_for_every_frame(shape: tuple[int, ...]) -> None:
    @named("euler")
    def frames(model, x, sigmas, extra_args, callback=None, disable=None):
        for sigma, after in itertools.pairwise(sigmas):
            ones = x.new_ones((len(x),) if x.ndim == 4 else shape)
            denoised = model(x, sigma * ones, **extra_args)
            x = x + (x - denoised) / sigma * (after - sigma)
        return x

    class Frames(Model):
        def denoised(self, x: Tensor, sigma: Tensor, prompt: float) -> Tensor:
            return super().denoised(x, sigma.flatten()[:1], prompt)

    noise = noise_like(1, 3, 4, 5, 5)
    assert sampled(frames, model=Frames(), noise=noise, budget=8).latent.shape == noise.shape


def test_unknown_samplers_are_not_run() -> None:
    runs: list[int] = []

    @named("of_another_pack")
    def own(*arguments: Any, **options: Any) -> Tensor:
        runs.append(1)
        return fakes.euler(*arguments, **options)

    sampled(own, budget=8)
    assert len(runs) == 1


def test_a_film_on_a_sheet() -> None:
    wide = torch.rand(1, 5, 64, 256, 3)
    assert pictures.sheet_of([("film", wide)]).shape[2] == 256


def test_a_grid_that_rises_is_named() -> None:
    assert (
        "σ does not fall at every step" in sampled(sigmas=Flow().levels(20).flip(0), budget=8).text
    )


def test_a_sheet_has_two_rows() -> None:
    batch = torch.rand(4, 256, 256, 3)
    sheet = pictures.sheet_of([("a", batch)])
    assert sheet.shape[1] < 3 * 256


def test_the_call_that_is_furthest_off_is_told() -> None:
    """One call in the middle is at another σ; those before and after it are not."""

    @named("euler")
    def once(model, x, sigmas, extra_args=None, callback=None, disable=None):
        if len(x) == 2:
            sigmas = sigmas.clone()
            sigmas[10] *= 0.98
        return fakes.euler(model, x, sigmas, extra_args)

    assert "called at other σ" in sampled(once, budget=8).text
