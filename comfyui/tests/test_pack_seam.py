"""One sampling through the node: how often the model runs, what is left behind, what is said."""

from __future__ import annotations

import itertools
import logging
from typing import Any

import pytest
import torch
from support import fakes
from support.fakes import (
    Flow,
    Guider,
    KSampler,
    Model,
    Odd,
    Patcher,
    Variance,
    distance,
    noise_like,
    pack,
    sampled,
)
from torch import Tensor

seam, options, samplers = pack("seam"), pack("options"), pack("samplers")

ACCELERATED = {
    "euler": fakes.euler,
    "in place": fakes.euler_in_place,
    "dpmpp_2m": fakes.dpmpp_2m,
    "two kept": fakes.remembering(2),
    "ipndm": fakes.ipndm,
    "an older x": fakes.keeps_x,
    "not linear": fakes.clipped,
    "ancestral": fakes.euler_ancestral,
    "sde": fakes.dpmpp_2m_sde,
}
EXACT = {
    fakes.heun: "more than once a step",
    fakes.between: "between the steps",
    fakes.cfg_pp: "unconditional output",
    fakes.twice: "more than once a step",
    fakes.every_second: "between the steps",
}


@pytest.mark.parametrize("name", ACCELERATED)
@pytest.mark.parametrize("levels", [Flow, Variance])
def test_the_budget_is_kept(name: str, levels: Any) -> None:
    full = sampled(ACCELERATED[name], model=Model(levels()))
    fast = sampled(ACCELERATED[name], model=Model(levels()), budget=8)
    assert (full.calls, fast.calls) == (20, 8)
    assert fast.node.calls == 8 and fast.node.steps == 20 and len(fast.node.anchors) == 8
    assert fast.model.sigmas == [full.model.sigmas[n] for n in fast.node.anchors]
    assert "8 of 20 stages exact, 12 predicted" in fast.text
    assert "in the latents" in fast.text
    assert distance(fast.latent, full.latent) < 0.5


@pytest.mark.parametrize("name", ACCELERATED)
def test_all_steps_are_bit_identical(name: str) -> None:
    full = sampled(ACCELERATED[name])
    for budget in (20, 50):
        whole = sampled(ACCELERATED[name], budget=budget)
        assert whole.calls == 20 and torch.equal(whole.latent, full.latent)
        assert ("a budget of 50 is more than the 20 steps" in whole.text) == (budget == 50)
        assert ("is more than" in whole.text) == (budget == 50)


@pytest.mark.parametrize("function", EXACT, ids=lambda f: f.__name__)
def test_what_is_refused_is_bit_identical(function: Any) -> None:
    full, fast = sampled(function), sampled(function, budget=8)
    assert fast.calls == full.calls and torch.equal(fast.latent, full.latent)
    assert fast.text.startswith("every call was exact: the sampler ")
    assert EXACT[function] in fast.text and fast.node.full == fast.text
    assert fast.node.calls == full.calls and fast.node.anchors == tuple(range(full.calls))


def test_a_sampler_that_never_calls() -> None:
    fast = sampled(fakes.never, budget=8)
    assert fast.text == "every call was exact: the sampler never asked for an output"
    assert fast.node.calls == 0 and fast.node.anchors == ()


def test_a_sampler_that_raises_in_its_trial_only() -> None:
    """A trial is no reason to lose a picture."""

    @fakes.named("dpmpp_2m")
    def shy(model, x, sigmas, extra_args=None, callback=None, disable=None):
        if x.shape[1:] == (1, 1, 1):
            raise ZeroDivisionError("not on so small a picture")
        return fakes.dpmpp_2m(model, x, sigmas, extra_args)

    full, fast = sampled(shy), sampled(shy, budget=8)
    assert torch.equal(fast.latent, full.latent)
    why = "could not be tried out (ZeroDivisionError: not on so small a picture)"
    assert f"the sampler dpmpp_2m {why}" in fast.text


def test_a_sampler_that_raises() -> None:
    with pytest.raises(KeyError, match="no such thing"):
        sampled(fakes.raising, budget=8)


def test_constants_in_float32() -> None:
    """A sampler that cannot be run in float64 is tried out in float32."""

    @fakes.named("dpmpp_2m")
    def single(model, x, sigmas, extra_args=None, callback=None, disable=None):
        if x.dtype != torch.float32:
            raise RuntimeError("expected scalar type Float but found Double")
        return fakes.dpmpp_2m(model, x, sigmas, extra_args)

    expected, fast = sampled(fakes.dpmpp_2m, budget=8), sampled(single, budget=8)
    assert fast.calls == 8 and distance(fast.latent, expected.latent) < 1e-4


def test_nothing_is_left_behind() -> None:
    """The model of the node, and the one before it, are as they were; so is the guider."""
    model = Model()
    before = Patcher(model)
    node = seam.Accelerated(options.Options(budget=8), lambda text: None)
    after = node.attach(before)
    sampler, sigmas, noise = KSampler(fakes.euler), model.model_sampling.levels(20), noise_like()
    plain = Guider(before).sample(noise.clone(), sampler, sigmas)
    guider = Guider(after)
    given, kept = guider.model_options, fakes.copied(after.model_options)
    guider.sample(noise.clone(), sampler, sigmas)
    assert guider.model_options is given is after.model_options and given == kept
    assert fakes.all_wrappers(fakes.WrappersMP.PREDICT_NOISE, given, True) == []
    assert before.model_options == {"transformer_options": {}} and model.calls == 28
    for clean in (before, seam.without(after)):
        again = Guider(clean).sample(noise.clone(), sampler, sigmas)
        assert torch.equal(again, plain)
        assert seam.accelerated(clean) is None
    assert model.calls == 68 and seam.accelerated(after) is node
    assert seam.without(after).model_options["transformer_options"]["wrappers"] == {
        "outer_sample": {}
    }


def test_a_run_is_reproducible() -> None:
    for function in (fakes.euler, fakes.dpmpp_2m, fakes.dpmpp_2m_sde):
        runs = [sampled(function, budget=8) for _ in range(2)]
        assert torch.equal(runs[0].latent, runs[1].latent)


def test_the_noise_is_not_written_to() -> None:
    """Of a sampler that does not write to it either."""
    for function in (fakes.euler, fakes.dpmpp_2m):
        noise, model = noise_like(), Model()
        node = seam.Accelerated(options.Options(budget=8), lambda text: None)
        guider = Guider(node.attach(Patcher(model)))
        guider.sample(noise, KSampler(function), model.model_sampling.levels(20))
        assert torch.equal(noise, noise_like())


def test_the_trial_leaves_the_random_numbers_alone() -> None:
    @fakes.named("deis")
    def drawing(model, x, sigmas, extra_args=None, callback=None, disable=None):
        for sigma, after in itertools.pairwise(sigmas):
            denoised = fakes.asked(model, x, sigma, extra_args)
            x = denoised + (x - denoised) * after / sigma + 0.01 * after * torch.randn(x.shape)
        return x

    torch.manual_seed(3)
    full = sampled(drawing)
    torch.manual_seed(3)
    whole = sampled(drawing, budget=20)
    assert torch.equal(whole.latent, full.latent)


class Interrupt(BaseException):
    """Not an Exception, as KeyboardInterrupt."""


@pytest.mark.parametrize("error", [RuntimeError("as the test asked"), Interrupt("stop")])
@pytest.mark.parametrize("function", [fakes.euler, fakes.dpmpp_2m, fakes.heun])
@pytest.mark.parametrize("at", [0, 3])
def test_an_error_of_the_model(error: BaseException, function: Any, at: int) -> None:
    """It is raised as it is, nothing is left behind, and the next sampling is what it was."""

    def change(n: int, result: Tensor) -> Tensor:
        if n == at and failing:
            raise error
        return result

    failing, model = True, Model(change=change)
    node = seam.Accelerated(options.Options(budget=8), lambda text: None)
    guider = Guider(node.attach(Patcher(model)))
    given, sigmas, sampler = guider.model_options, Flow().levels(20), KSampler(function)
    with pytest.raises(type(error)) as caught:
        guider.sample(noise_like(), sampler, sigmas)
    assert caught.value is error and guider.model_options is given
    assert fakes.all_wrappers(fakes.WrappersMP.PREDICT_NOISE, given, True) == []
    if function is not fakes.heun:
        step = node.anchors[-1] + 1
        assert f"the sampling was stopped in its step {step} of 20" in node.text
    assert node.calls == at + 1
    failing = False
    again = guider.sample(noise_like(), sampler, sigmas)
    assert torch.equal(again, sampled(function, budget=8).latent)
    assert "stopped" not in node.text


def test_the_model_is_not_asked_twice_at_an_error() -> None:
    """An error of the model is not mistaken for one of ours."""

    def change(n: int, result: Tensor) -> Tensor:
        raise MemoryError("out of memory")

    model = Model(change=change)
    with pytest.raises(MemoryError):
        sampled(model=model, budget=8)
    assert model.calls == 1


@pytest.mark.parametrize("method", ["predict", "observe", "queries"])
def test_an_error_of_ours(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture goes on with the model, which is asked once a step; the node says why."""
    own = getattr(seam.Run, method)

    def fail(self: Any, n: int, *args: Any, **kwargs: Any) -> Any:
        if n >= 9:
            raise FloatingPointError("as the test asked")
        return own(self, n, *args, **kwargs)

    monkeypatch.setattr(seam.Run, method, fail)
    fast = sampled(budget=8)
    first = next(
        n for n in range(9, 20) if (n in PLANNED) == (method != "predict") or method == "queries"
    )
    assert fast.node.anchors == (*[n for n in PLANNED if n < first], *range(first, 20))
    assert fast.calls == len(fast.node.anchors) and len(fast.model.sigmas) == fast.calls
    assert f"from step {first} on: FloatingPointError: as the test asked" in fast.text
    assert torch.isfinite(fast.latent).all()


PLANNED = sampled(budget=8).node.anchors


def test_an_error_of_ours_at_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise IndexError("as the test asked")

    full = sampled()
    for place, name in ((options.Options, "run"), (samplers, "table"), (seam, "levels_of")):
        with monkeypatch.context() as patched:
            samplers.TRIALS.clear()
            patched.setattr(place, name, fail)
            fast = sampled(budget=8)
            assert torch.equal(fast.latent, full.latent) and fast.calls == 20
            assert fast.text == "every call was exact: IndexError: as the test asked"


def test_a_report_that_fails_costs_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sampled(budget=8)

    def fail(*_: Any) -> Any:
        raise IndexError("as the test asked")

    monkeypatch.setattr(seam.Session, "summary", fail)
    fast = sampled(budget=8)
    assert torch.equal(fast.latent, expected.latent) and fast.calls == 8
    assert fast.text == fast.node.full == "there is no report (IndexError: as the test asked)"


def test_the_tensors_are_let_go() -> None:
    sessions: list[Any] = []

    class Kept(seam.Session):
        def __init__(self, *args: Any):
            super().__init__(*args)
            sessions.append(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(seam, "Session", Kept)
        sampled(fakes.dpmpp_2m, budget=8)
    (session,) = sessions
    assert session.results == [] and session.off is None and session.guider is None
    assert not session.run._history.seen


@pytest.mark.parametrize("at", [0, 4])
@pytest.mark.parametrize(
    "change",
    [lambda t: t.half(), lambda t: t[:, :, :2], lambda t: t.double(), lambda t: t.to("meta")],
    ids=["half", "shape", "double", "device"],
)
def test_outputs_of_another_kind(at: int, change: Any) -> None:
    """From there on every call is exact, and the node says what came."""
    made: list[Any] = []

    def swap(n: int, result: Tensor) -> Any:
        made.append(change(result) if n == at else result)
        return made[-1]

    seen: list[Any] = []

    @fakes.named("euler")
    def watching(model, x, sigmas, extra_args=None, callback=None, disable=None):
        for sigma, after in itertools.pairwise(sigmas):
            denoised = fakes.asked(model, x, sigma, extra_args)
            seen.append(denoised)
            if (denoised.shape, denoised.dtype, denoised.device) == (x.shape, x.dtype, x.device):
                x = x + (x - denoised) / sigma * (after - sigma)
        return x

    fast = sampled(watching, model=Model(change=swap), budget=8)
    n = PLANNED[at]
    assert fast.node.anchors == (*PLANNED[:at], *range(n, 20))
    assert any(one is made[at] for one in seen)
    assert "the model returned (2, 3, " in fast.text and "for x of (2, 3, 4, 5)" in fast.text


def test_an_output_that_is_no_tensor() -> None:
    @fakes.named("euler")
    def lists(model, x, sigmas, extra_args=None, callback=None, disable=None):
        if len(x) == len(sigmas):  # the trial
            return fakes.euler(model, x, sigmas, extra_args)
        for sigma in sigmas[:-1]:
            assert isinstance(fakes.asked(model, x, sigma, extra_args), list)
        return x

    fast = sampled(lists, model=Model(change=lambda n, t: [t]), budget=8)
    assert fast.calls == 20
    why = "the model returned list for x of (2, 3, 4, 5) torch.float32 on cpu"
    assert fast.text == f"every call was exact: {why}"


@pytest.mark.parametrize("function", [fakes.euler, fakes.dpmpp_2m])
def test_outputs_that_are_not_finite(function: Any) -> None:
    """One sample breaks: the other is what it would be alone, and the node says so."""

    def spoil(n: int, result: Tensor) -> Tensor:
        result[0] = result[0] * (float("nan") if n == 3 else 1.0)
        return result

    fast = sampled(function, model=Model(change=spoil), budget=8)
    clean = sampled(function, budget=8)
    assert fast.calls == 8 and not torch.isfinite(fast.latent[0]).any()
    assert torch.equal(fast.latent[1], clean.latent[1])
    assert "not finite" in fast.text


@pytest.mark.parametrize(
    "name", ["easycache", "LazyCache", "my_TeaCache_2", "magcache", "x_cache_dit"]
)
@pytest.mark.parametrize("place", ["option", "wrapper"])
def test_another_cache_in_the_chain(name: str, place: str) -> None:
    def patch(model: Patcher) -> None:
        if place == "option":
            model.model_options["transformer_options"][name] = {}
        else:
            model.add_wrapper_with_key("diffusion_model", name, lambda run, *a, **k: run(*a, **k))

    full, fast = sampled(patch=patch), sampled(patch=patch, budget=8)
    assert torch.equal(fast.latent, full.latent) and fast.calls == 20
    assert f"{name} is in the same chain and skips calls, too" in fast.text


def test_other_wrappers_are_no_cache() -> None:
    def patch(model: Patcher) -> None:
        model.model_options["transformer_options"]["cfg_zero"] = 1
        model.add_wrapper_with_key("predict_noise", "CFGOverride", lambda run, *a: run(*a))

    assert sampled(patch=patch, budget=8).calls == 8


@pytest.mark.parametrize(("steps", "calls"), [(1, 1), (7, 7), (8, 4), (9, 4)])
def test_few_steps(steps: int, calls: int) -> None:
    full, fast = sampled(steps=steps), sampled(steps=steps, budget=4)
    assert fast.calls == calls
    if steps < 8:
        assert torch.equal(full.latent, fast.latent)
        assert f"{steps} steps leave nothing to skip (from 8 steps on)" in fast.text


def test_two_nodes_in_a_chain() -> None:
    """The second replaces the first, and says so."""
    node = pack("nodes.accelerate").NODE
    model = Patcher(Model())
    (first,) = node.run("1", model, budget=12).values
    (second,) = node.run("2", first, budget=8).values
    (third,) = node.run("3", seam.without(second), budget=8).values
    for patcher, calls, replaced in ((first, 12, False), (second, 8, True), (third, 8, False)):
        model.model.sigmas.clear()
        Guider(patcher).sample(noise_like(), KSampler(fakes.euler), Flow().levels(20))
        assert model.model.calls == calls
        found = seam.accelerated(patcher)
        for text in (found.text, found.full):
            assert text.startswith("this node replaces the GeoShrink node before it") == replaced


def test_one_node_two_samplings() -> None:
    """As KSamplerAdvanced twice: each has its own run, and the text is the latest's."""
    model = Model()
    node = seam.Accelerated(options.Options(speedup=2.0), lambda text: None)
    patcher = node.attach(Patcher(model))
    sigmas = Flow().levels(40)
    for part, calls in ((sigmas[:21], 10), (sigmas[20:], 10), (sigmas[28:], 6)):
        model.sigmas.clear()
        Guider(patcher).sample(noise_like(), KSampler(fakes.euler), part)
        assert model.calls == calls
        assert f"{calls} of {len(part) - 1} stages exact" in node.text


def test_what_is_told(caplog: pytest.LogCaptureFixture) -> None:
    texts: list[str] = []
    node = seam.Accelerated(options.Options(budget=8), texts.append)
    assert node.text == node.full == "nothing was sampled yet"
    with caplog.at_level(logging.INFO, logger="geoshrink"):
        Guider(node.attach(Patcher(Model()))).sample(
            noise_like(), KSampler(fakes.euler), Flow().levels(20)
        )
    assert texts == [node.text] and f"GeoShrink: {node.text}" in caplog.messages
    for text in (node.text, node.full):
        assert text.startswith("8 of 20 stages exact, 12 predicted")
    assert "plan: 8 of 20 stages" in node.full and "plan:" not in node.text


@pytest.mark.parametrize("part", [slice(0, 13), slice(8, 21), slice(6, 19)])
@pytest.mark.parametrize("levels", [Flow, Variance])
@pytest.mark.parametrize("function", [fakes.euler, fakes.dpmpp_2m], ids=lambda f: f.__name__)
def test_parts_of_a_grid(part: slice, levels: Any, function: Any) -> None:
    """Leftover noise, denoise below 1: as close as on the whole grid, and exact with all steps."""
    sigmas = levels().levels(20)[part]
    full = sampled(function, model=Model(levels()), sigmas=sigmas)
    fast, whole = (
        sampled(function, model=Model(levels()), sigmas=sigmas, budget=budget) for budget in (6, 12)
    )
    assert fast.calls == 6 and "in the latents" in fast.text
    assert distance(fast.latent, full.latent) < 0.2
    assert torch.equal(whole.latent, full.latent)


@pytest.mark.parametrize("largest", [14.6, 80.0, 4518.0])
def test_large_levels(largest: float) -> None:
    sigmas = Variance().levels(20, largest)
    for function in (fakes.euler, fakes.dpmpp_2m):
        full = sampled(function, model=Model(Variance()), sigmas=sigmas)
        fast = sampled(function, model=Model(Variance()), sigmas=sigmas, budget=10)
        assert fast.calls == 10 and distance(fast.latent, full.latent) < 0.2


def test_levels() -> None:
    sigmas = Flow().levels(20).tolist()
    assert seam.levels_of(Flow(), sigmas) == {"prediction": "flow", "data": 0.0}
    large = Variance().levels(20).tolist()
    for some in (large, large[12:], [0.6, 0.4, 0.2, 0.0]):
        assert seam.levels_of(Variance(), some) == {"prediction": "epsilon", "alphas": "ve"}
    with pytest.raises(samplers.Refused, match="noise levels of Odd"):
        seam.levels_of(Odd(), large)
    with pytest.raises(samplers.Refused, match="noise levels of Flow"):
        seam.levels_of(Flow(), [2.0, 1.0, 0.0])

    class Scaled(Flow):  # like a flow at the first σ only
        def noise_scaling(self, sigma: Any, noise: Tensor, data: Tensor, _: bool = False) -> Tensor:
            return sigma * noise + (1 - sigma) ** 2 * data

    class Loud(Flow):
        def noise_scaling(self, sigma: Any, noise: Tensor, data: Tensor, _: bool = False) -> Tensor:
            return sigma**0.5 * noise + (1 - sigma) * data

    for levels in (Scaled(), Loud()):
        with pytest.raises(samplers.Refused):
            seam.levels_of(levels, sigmas)


def test_unknown_levels_are_left_exact() -> None:
    full, fast = sampled(model=Model(Odd())), sampled(model=Model(Odd()), budget=8)
    assert torch.equal(full.latent, fast.latent)
    assert fast.text == (
        "every call was exact: it is not known what the noise levels of Odd say about the data"
    )


@pytest.mark.parametrize("function", [fakes.euler, fakes.dpmpp_2m, fakes.dpmpp_2m_sde])
def test_a_mask(function: Any) -> None:
    """Inpainting: the budget is kept, and what is outside stays; only Euler is corrected."""
    mask = torch.zeros(2, 1, 4, 5)
    mask[..., :3] = 1
    full, fast = sampled(function, mask=mask), sampled(function, mask=mask, budget=8)
    assert fast.calls == 8 and distance(fast.latent, full.latent) < 0.5
    assert torch.equal(fast.latent[..., 3:], full.latent[..., 3:])
    off = sampled(function, mask=mask, budget=8, correct="off")
    assert torch.equal(off.latent, fast.latent) == (function is not fakes.euler)
    whole = sampled(function, mask=mask, budget=20)
    assert torch.equal(whole.latent, full.latent)


def test_a_mask_is_said() -> None:
    asked: dict[str, Any] = dict(mask=torch.ones(2, 1, 4, 5), budget=8, correct="on")
    assert "behind a mask" in sampled(fakes.dpmpp_2m, **asked).text
    assert "behind a mask" not in sampled(fakes.euler, **asked).text


def test_other_levels_than_in_the_trial() -> None:
    """A sampler that behaves otherwise than in its trial is found out."""

    @fakes.named("euler")
    def shifted(model, x, sigmas, extra_args=None, callback=None, disable=None):
        if len(x) == 2:
            sigmas = sigmas * 1.01
        return fakes.euler(model, x, sigmas, extra_args)

    assert "from step 0 on: the call is at σ = 1.01, not 1" in sampled(shifted, budget=8).text
    assert "the call is at" not in sampled(budget=8).text

    @fakes.named("euler")
    def later(model, x, sigmas, extra_args=None, callback=None, disable=None):
        if len(x) == 2:
            sigmas = torch.cat([sigmas[:1], sigmas[1:] * 0.99])
        return fakes.euler(model, x, sigmas, extra_args)

    said = "the sampler called at other σ than it did when it was tried out"
    assert said in sampled(later, budget=8).text
    assert said not in sampled(budget=8).text


def test_a_guider_without_cfg() -> None:
    class Basic(Guider):
        def __init__(self, *args: Any):
            super().__init__(*args)
            del self.cfg

    assert sampled(guider=Basic, budget=8).calls == 8


def test_arguments_by_name() -> None:
    """A wrapper outside ours may call us by keywords."""
    model = Model()
    node = seam.Accelerated(options.Options(budget=8), lambda text: None)
    guider = Guider(node.attach(Patcher(model)))

    def rename(
        run: Any, noise: Tensor, latent: Tensor, sampler: Any, sigmas: Tensor, *_: Any, **k: Any
    ):
        mask = torch.ones(2, 1, 4, 5)
        return run(noise, latent, sampler=sampler, sigmas=sigmas, denoise_mask=mask)

    own = guider.model_options["transformer_options"]["wrappers"]["outer_sample"]
    guider.model_options["transformer_options"]["wrappers"]["outer_sample"] = {"a": [rename], **own}
    guider.sample(noise_like(), KSampler(fakes.dpmpp_2m), Flow().levels(20))
    assert model.calls == 8


def test_no_grid() -> None:
    class Blind(Guider):
        def outer_sample(
            self, noise: Tensor, latent: Tensor, sampler: Any, sigmas: Any, *_: Any, **k: Any
        ):
            return super().outer_sample(noise, latent, sampler, torch.tensor(sigmas))

    fast = sampled(guider=Blind, sigmas=Flow().levels(20).tolist(), budget=8)  # type: ignore[arg-type]
    assert fast.calls == 20 and fast.text == "every call was exact: there is no grid of σ"
    assert fast.node.steps == 0


def test_a_run_that_failed_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    make = options.Options.run

    def kept(*arguments: Any) -> Any:
        runs.append(make(*arguments))
        return runs[-1]

    def fail(self: Any, n: int, *rest: Any) -> Any:
        raise FloatingPointError("as the test asked")

    monkeypatch.setattr(options.Options, "run", kept)
    monkeypatch.setattr(seam.Run, "predict", fail)
    sampled(fakes.dpmpp_2m, budget=8)
    assert len(runs) == 1 and not runs[0]._history.seen


def test_levels_in_another_precision() -> None:
    """σ in float32 for an x in half precision: what is predicted has x's precision."""

    @fakes.named("euler")
    def mixed(model, x, sigmas, extra_args, callback=None, disable=None):
        for sigma, after in itertools.pairwise(sigmas):
            denoised = model(x, sigma * torch.ones(len(x)), **extra_args)
            assert denoised.dtype == x.dtype
            x = x + (x - denoised) / sigma * (after - sigma)
        return x

    fast = sampled(mixed, noise=noise_like(dtype=torch.float16), budget=8)
    assert fast.calls == 8 and fast.latent.dtype == torch.float16


@pytest.mark.parametrize("kind", ["predict_noise", "sampler_sample"])
def test_wrappers_that_change_nothing(kind: str) -> None:
    """Euler is corrected all the same; a state that may have been copied is not moved."""

    def patch(model: Patcher) -> None:
        model.add_wrapper_with_key(kind, "another", lambda run, *a, **k: run(*a, **k))

    fast = sampled(patch=patch, budget=8)
    assert fast.calls == 8 and torch.equal(fast.latent, sampled(budget=8).latent)
    moved = sampled(fakes.dpmpp_2m, patch=patch, budget=8, correct="on")
    still = sampled(fakes.dpmpp_2m, budget=8, correct="off")
    assert moved.calls == 8 and torch.equal(moved.latent, still.latent)
    assert "cells are not corrected: another node wraps the outputs" in moved.text

    def empty(model: Patcher) -> None:
        patch(model)
        own = model.model_options["transformer_options"]["wrappers"]
        own[kind]["another"].clear()

    plain = sampled(fakes.dpmpp_2m, budget=8)
    assert torch.equal(sampled(fakes.dpmpp_2m, patch=empty, budget=8).latent, plain.latent)


@pytest.mark.parametrize("place", ["option", "module", "function"])
def test_teacache_by_each_of_its_marks(place: str) -> None:
    def teacache_forward(run: Any, words: Any) -> Any:
        return run(**words)

    def other(run: Any, words: Any) -> Any:
        return run(**words)

    def patch(model: Patcher) -> None:
        if place == "option":
            model.model_options["transformer_options"]["rel_l1_thresh"] = 0.4
            return
        function = other if place == "module" else teacache_forward
        if place == "module":
            other.__module__ = "/custom_nodes/ComfyUI-TeaCache.nodes"
        model.model_options["model_function_wrapper"] = function

    fast = sampled(patch=patch, budget=8)
    assert fast.calls == 20 and "is in the same chain" in fast.text
    assert "teacache" in fast.text.lower()


def test_another_function_around_the_model() -> None:
    """Of a node that is no cache: it is left where it is."""

    def patch(model: Patcher) -> None:
        model.model_options["model_function_wrapper"] = lambda run, words: run(**words)

    assert sampled(patch=patch, budget=8).calls == 8


def test_a_stopped_run_lets_its_tensors_go() -> None:
    sessions: list[Any] = []

    class Kept(seam.Session):
        def __init__(self, *args: Any):
            super().__init__(*args)
            sessions.append(self)

    def stop(n: int, result: Tensor) -> Tensor:
        if n == 4:
            raise KeyboardInterrupt
        return result

    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(seam, "Session", Kept)
        sampled(fakes.dpmpp_2m, model=Model(change=stop), budget=8)
    (session,) = sessions
    assert session.results == [] and not session.run._history.seen


def test_doubts_are_said() -> None:
    fast = sampled(budget=5)
    assert "direct step reduction is expected to have" in fast.text
    assert "direct step reduction is expected" not in sampled(budget=19, steps=20).text
