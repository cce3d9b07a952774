"""Trials of samplers: what they are found to do, and why they are left alone."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support import fakes
from support.fakes import Flow, KSampler, Model, Variance, named, pack

samplers = pack("samplers")
SIGMAS = Flow().levels(12)


def guider_of(levels: Any = None) -> Any:
    return SimpleNamespace(inner_model=Model(levels))


def tried(function: Any, sigmas: torch.Tensor = SIGMAS, data: bool = False, **extra: Any) -> Any:
    samplers.TRIALS.clear()
    return samplers.try_out(KSampler(function, extra), sigmas, guider_of(), data)


SPACES = pytest.mark.parametrize("data", [False, True])


def test_what_euler_owes() -> None:
    """x at stage l is Σ (σ_{n+1} − σ_n)·d_n over the stages before."""
    trial = tried(fakes.euler)
    assert (trial.name, trial.why, trial.euler, trial.noisy) == ("sample_euler", "", True, False)
    assert trial.sigmas == tuple(SIGMAS.double().tolist())
    assert trial.response.stored == ()
    steps = np.diff(SIGMAS.double().numpy())
    expected = np.tril(np.broadcast_to(steps, (12, 12)), -1)
    np.testing.assert_allclose(trial.response.table, expected[None], atol=1e-12)


def test_what_dpmpp_2m_owes() -> None:
    """x, and the result before, by the recursion itself in numpy."""
    trial = tried(fakes.dpmpp_2m)
    assert trial.response.stored == (("results", 0),) and not trial.euler
    s = SIGMAS.double().numpy()
    x, old, table = np.zeros(12), np.zeros(12), []
    for n in range(12):
        table.append((x, old))
        d = np.eye(12)[n]
        denoised = x - s[n] * d
        data = denoised
        if n and s[n + 1] > 0:
            ratio = np.log(s[n] / s[n + 1]) / np.log(s[n - 1] / s[n]) / 2
            data = denoised + ratio * (denoised - old)
        x, old = data + (x - data) * s[n + 1] / s[n], denoised
    np.testing.assert_allclose(trial.response.table, np.array(table).swapaxes(0, 1), atol=1e-9)


@SPACES
@pytest.mark.parametrize("kept", [1, 2, 3])
def test_how_many_results_are_kept(kept: int, data: bool) -> None:
    response = tried(fakes.remembering(kept), data=data).response
    assert response.stored == tuple(("results", back) for back in range(kept))
    assert response.table.shape == (1 + kept, 12, 12)
    for back in range(kept):  # the result before the latest is the latest of one call before
        np.testing.assert_allclose(
            response.table[1 + back, 1 + back :], response.table[1, 1 : 12 - back]
        )


@pytest.mark.parametrize("function", [fakes.ipndm, fakes.keeps_x, fakes.remembering(4)])
@pytest.mark.parametrize("data", [False, True])
def test_why_there_is_no_response(function: Any, data: bool) -> None:
    trial = tried(function, data=data)
    short = function.__name__.removeprefix("sample_")
    assert trial.response is None
    assert trial.why == f"{short}: it keeps its past where it cannot be reached"
    assert trial.sigmas == tuple(SIGMAS.double().tolist())


@pytest.mark.parametrize("data", [False, True])
def test_a_state_that_is_not_linear(data: bool) -> None:
    trial = tried(fakes.clipped, data=data)
    assert trial.response is None and trial.why == "deis: its state is not linear in the outputs"


def test_results_that_are_written_to() -> None:
    """What the sampler keeps is not what it was given: that is not to be moved."""

    @named("res_multistep")
    def writing(model, x, sigmas, extra_args=None, callback=None, disable=None):
        old = None
        for sigma, after in itertools.pairwise(sigmas):
            denoised = fakes.asked(model, x, sigma, extra_args)
            data = denoised if old is None else 1.2 * denoised - old
            x = data + (x - data) * after / sigma
            old = denoised.mul_(0.2)
        return x

    assert tried(writing).response is None


def test_a_state_that_is_written_to() -> None:
    """A sampler that writes into x owes what the one owes that does not."""

    @named("dpmpp_2m")
    def writing(model, x, sigmas, extra_args=None, callback=None, disable=None):
        kept = ()
        for i, (sigma, after) in enumerate(itertools.pairwise(sigmas)):
            denoised = fakes.asked(model, x, sigma, extra_args)
            data = fakes.multistep(sigmas, i, (denoised, *kept))
            x.sub_(data).mul_(after / sigma).add_(data)
            kept = (denoised,)
        return x

    expected, response = tried(fakes.dpmpp_2m).response, tried(writing).response
    assert response.stored == expected.stored
    np.testing.assert_allclose(response.table, expected.table, atol=1e-9)
    fast, plain = fakes.sampled(writing, budget=8), fakes.sampled(fakes.dpmpp_2m, budget=8)
    assert fakes.distance(fast.latent, plain.latent) < 1e-5


def test_what_dpmpp_2m_owes_to_data() -> None:
    """In data space: the same recursion, with the data given."""
    trial = tried(fakes.dpmpp_2m, SIGMAS[:-1], data=True)
    s = SIGMAS.double().numpy()[:-1]
    x, old, table = np.zeros(11), np.zeros(11), []
    for n in range(11):
        table.append((x, old))
        denoised = data = np.eye(11)[n]
        if n:
            ratio = np.log(s[n] / s[n + 1]) / np.log(s[n - 1] / s[n]) / 2
            data = denoised + ratio * (denoised - old)
        x, old = data + (x - data) * s[n + 1] / s[n], denoised
    assert trial.data and trial.response.stored == (("results", 0),)
    np.testing.assert_allclose(trial.response.table, np.array(table).swapaxes(0, 1), atol=1e-9)


def test_noise_is_nothing_in_a_trial() -> None:
    trial = tried(fakes.dpmpp_2m_sde)
    assert trial.noisy and trial.response.stored == (("results", 0),)
    quiet = tried(named("dpmpp_2m")(fakes.noisy(1)), eta=0.0)
    plain = tried(fakes.dpmpp_2m)
    np.testing.assert_allclose(quiet.response.table, plain.response.table, atol=1e-9)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (fakes.heun, "the sampler heun: it calls the model more than once a step"),
        (fakes.between, "the sampler dpm_2: it calls the model between the steps"),
        (fakes.cfg_pp, "the sampler euler_cfg_pp: it reads the unconditional output, too (CFG++)"),
        (fakes.twice, "the sampler euler: it calls the model more than once a step"),
        (fakes.never, "the sampler euler: it calls the model at some of the steps only"),
        (fakes.raising, "the sampler dpmpp_2m could not be tried out (KeyError: 'no such thing')"),
        (
            named("lcm")(lambda *_: torch.zeros(1)),
            "lcm makes few, large steps: there is nothing to skip",
        ),
        (
            named("ar_video")(lambda *_: torch.zeros(1)),
            "ar_video samples one block of frames after another",
        ),
    ],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_why_a_sampler_is_refused(function: Any, why: str) -> None:
    with pytest.raises(samplers.Refused) as refused:
        tried(function)
    assert str(refused.value) == why
    assert isinstance(refused.value, ValueError)


def test_samplers_that_nobody_knows() -> None:
    @named("my_own")
    def own(*args: Any, **kwargs: Any) -> torch.Tensor:
        return fakes.euler(*args, **kwargs)

    with pytest.raises(samplers.Refused, match="the sampler my_own is not known"):
        tried(own)

    @named("heun")
    def another(*args: Any, **kwargs: Any) -> torch.Tensor:
        return fakes.euler(*args, **kwargs)

    with pytest.raises(samplers.Refused, match="the sampler heun is not known"):
        tried(another)

    class Strange:
        pass

    with pytest.raises(samplers.Refused, match="the sampler Strange is not known"):
        samplers.try_out(Strange(), SIGMAS, guider_of())


def test_the_call_of_a_tolerance() -> None:
    """SDE samplers on flows move the first σ by a little: that is no other σ."""

    def moved(by: float) -> Any:
        @named("er_sde")
        def sample(model, x, sigmas, extra_args=None, callback=None, disable=None):
            sigmas = sigmas.clone()
            sigmas[0] = sigmas[0] * (1 + by)
            return fakes.euler(model, x, sigmas, extra_args)

        return sample

    trial = tried(moved(-5e-4))
    assert (
        trial.sigmas[0] == pytest.approx(1 - 5e-4)
        and trial.sigmas[1:] == tuple(SIGMAS.double().tolist())[1:]
    )
    with pytest.raises(samplers.Refused, match="between the steps"):
        tried(moved(-2e-3))


def test_calls_beyond_the_last() -> None:
    @named("euler")
    def one_more(model, x, sigmas, extra_args=None, callback=None, disable=None):
        x = fakes.euler(model, x, sigmas, extra_args)
        return x + fakes.asked(model, x, sigmas[-1], extra_args)

    with pytest.raises(samplers.Refused, match="more than once a step"):
        tried(one_more)


def test_the_model_as_a_sampler_sees_it() -> None:
    """ComfyUI's samplers look at model.inner_model.inner_model.model_sampling, and at options."""
    seen: list[Any] = []

    @named("euler")
    def curious(model, x, sigmas, extra_args=None, callback=None, disable=None, strength=1.0):
        seen.append((model.inner_model.inner_model.model_sampling, extra_args, callback, strength))
        assert x.dtype == sigmas.dtype == torch.float64 and not x.any() and not x.requires_grad
        assert not torch.is_grad_enabled()
        return fakes.euler(model, x, sigmas, extra_args)

    guider = guider_of(Variance())
    samplers.TRIALS.clear()
    samplers.try_out(KSampler(curious, {"strength": 0.5}), Variance().levels(12), guider)
    levels, extra, callback, strength = seen[0]
    assert levels is guider.inner_model.model_sampling and callback is None and strength == 0.5
    assert extra == {"model_options": {}, "seed": 0, "denoise_mask": None}


def test_trials_are_remembered() -> None:
    runs: list[int] = []

    @named("dpmpp_2m")
    def counted(model, x, sigmas, extra_args=None, callback=None, disable=None, order=2):
        runs.append(order)
        return fakes.dpmpp_2m(model, x, sigmas, extra_args)

    samplers.TRIALS.clear()
    guider, grids = guider_of(), [Flow().levels(n) for n in range(8, 8 + samplers.KEPT)]
    first = samplers.try_out(KSampler(counted), SIGMAS, guider)
    count = len(runs)
    assert samplers.try_out(KSampler(counted), SIGMAS.clone(), guider_of()) is first
    assert len(runs) == count
    others: list[tuple[Any, ...]] = [
        (KSampler(counted, {"order": 3}), SIGMAS, guider),
        (KSampler(counted), SIGMAS[:-1], guider),
        (KSampler(counted), SIGMAS, guider_of(Variance())),
        (KSampler(counted), SIGMAS, guider, True),
    ]
    shifted = guider_of()
    shifted.inner_model.model_sampling.shift = 5.0
    others.append((KSampler(counted), SIGMAS, shifted))
    for other in others:
        before = len(runs)
        assert samplers.try_out(*other) is not first and len(runs) > before
    for grid in grids:
        samplers.try_out(KSampler(counted), grid, guider)
    assert len(samplers.TRIALS) == samplers.KEPT
    assert samplers.try_out(KSampler(counted), SIGMAS, guider) is not first


def test_a_refusal_is_not_remembered_as_a_trial() -> None:
    samplers.TRIALS.clear()
    for _ in range(2):
        with pytest.raises(samplers.Refused):
            samplers.try_out(KSampler(fakes.heun), SIGMAS, guider_of())
    assert not samplers.TRIALS


def test_levels_on_another_device_or_in_half_precision() -> None:
    trial = tried(fakes.euler, SIGMAS.to(torch.bfloat16))
    assert trial.sigmas == tuple(SIGMAS.bfloat16().double().tolist())


def test_every_name_once() -> None:
    names = [*samplers.PLAIN, *samplers.NOISY, *samplers.LEFT]
    assert len(set(names)) == len(names) and all(name.startswith("sample_") for name in names)
    assert set(samplers.EULER) <= set(samplers.PLAIN)


@pytest.mark.parametrize("sigmas", [
    SIGMAS.flip(0), torch.cat([SIGMAS[:6], SIGMAS[5:]]), torch.cat([SIGMAS, SIGMAS[3:]]),
], ids=["ascending", "repeated", "zero in the middle"])  # fmt: skip
@pytest.mark.parametrize("function", [fakes.euler, fakes.dpmpp_2m], ids=lambda f: f.__name__)
def test_grids_that_do_not_descend(sigmas: torch.Tensor, function: Any) -> None:
    """Unsampling, and grids put together by hand: exact, bit for bit."""
    with pytest.raises(samplers.Refused):
        tried(function, sigmas)
    full, fast = (
        fakes.sampled(function, sigmas=sigmas),
        fakes.sampled(function, sigmas=sigmas, budget=6),
    )
    assert full.calls == fast.calls == len(sigmas) - 1
    torch.testing.assert_close(fast.latent, full.latent, rtol=0, atol=0, equal_nan=True)
    assert "σ does not fall at every step" in fast.text


@SPACES
def test_euler_by_what_it_does(data: bool) -> None:
    for function in (fakes.euler, fakes.euler_in_place):
        for sigmas in (SIGMAS, SIGMAS[3:-1], Variance().levels(20)):
            trial = tried(function, sigmas, data)
            assert trial.euler and trial.data == data and trial.response.stored == ()
    for function in (fakes.ipndm, fakes.keeps_x, fakes.dpmpp_2m, fakes.remembering(1)):

        @named("euler")
        def other(*arguments: Any, function: Any = function, **options: Any) -> torch.Tensor:
            return function(*arguments, **options)

        assert not tried(other, data=data).euler

    @named("lms")
    def renamed(*arguments: Any, **options: Any) -> torch.Tensor:
        return fakes.euler(*arguments, **options)

    @named("euler")
    def slow(*arguments: Any, **options: Any) -> torch.Tensor:
        model, x, sigmas = arguments[:3]
        for i in range(len(sigmas) - 1):
            ahead = fakes.euler(model, x, sigmas[i : i + 2], **options)
            x = x + 0.99 * (ahead - x)
        return x

    for function in (renamed, slow):
        trial = tried(function, data=data)
        assert not trial.euler and trial.response.stored == ()
