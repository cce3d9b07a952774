"""The words of the node: how many calls, plans, learning, and what is refused before sampling."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import fakes
from support.fakes import (
    Flow,
    Guider,
    KSampler,
    Model,
    Patcher,
    distance,
    noise_like,
    pack,
    sampled,
)

import geoshrink

options, seam = pack("options"), pack("seam")
Options = options.Options
SIGMAS = Flow().levels(20)
LEVELS: dict[str, Any] = {"prediction": "flow", "data": 0.0}


def plan_of(**asked: Any) -> geoshrink.Plan:
    return geoshrink.Plan.of(SIGMAS.double().tolist(), **{**LEVELS, "budget": 7, **asked})


@pytest.fixture(autouse=True)
def nothing_learned() -> None:
    options.LEARNED.forget()


@pytest.mark.parametrize(
    ("asked", "calls"),
    [
        ({"speedup": 2.0}, 10),
        ({"speedup": 4.0}, 5),
        ({"speedup": 3.0}, 7),
        ({"speedup": 1.0}, 20),
        ({"speedup": 20.0}, 4),
        ({"budget": 9}, 9),
        ({"budget": 9, "speedup": 2.0}, 9),
    ],
    ids=str,
)
def test_how_many_calls(asked: dict[str, Any], calls: int) -> None:
    assert sampled(**asked).calls == calls


def test_a_quality() -> None:
    low, high = sampled(target_db=15.0), sampled(target_db=45.0)
    assert 4 <= low.calls < high.calls <= 20
    assert sampled(target_db=15.0, speedup=1.0).calls == low.calls


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"budget": 8, "target_db": 30.0}, "budget=8 and target_db=30 both say how many calls"),
        ({"budget": 1}, "1"),
        ({"speedup": 0.5}, "0.5"),
        ({"rule": "no such rule"}, "no such rule"),
        ({"space": "nowhere"}, "nowhere"),
        ({"plan": "/no/such.json"}, "plan='/no/such.json': there is no such file"),
        ({"plan": '{"a": 1}'}, ""),
        ({"plan": "{"}, "not a geoshrink plan"),
        ({"plan": "{}", "learn": True}, "learn and plan='{}' both place the calls"),
        ({"learn": True, "rule": "hold"}, "leave rule='hold' at auto"),
    ],
    ids=str,
)
def test_what_is_refused_at_once(asked: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, KeyError)) as refused:
        Options(**asked)
    assert said in str(refused.value)


def test_what_is_not_refused() -> None:
    assert Options() == Options(3.0, False, 0, 0.0, "", "auto", "auto", "auto")
    assert Options(budget=10000).counted(20) == {"budget": 20}
    assert Options(plan="  ").counted(20) == {"speedup": 3.0}
    assert Options(space="data", rule="linear", correct="on").asked() == {
        "space": "data",
        "rule": "linear",
        "correct": True,
    }
    assert Options().asked() == {} and Options(correct="off").asked() == {"correct": False}
    with pytest.raises(AttributeError):
        Options().speedup = 2.0


@pytest.mark.parametrize(
    "asked", [{"space": "data"}, {"rule": "linear"}, {"correct": "off"}], ids=str
)
def test_options_change_the_run(asked: dict[str, Any]) -> None:
    default, other = sampled(budget=8), sampled(budget=8, **asked)
    assert other.calls == 8 and not torch.equal(other.latent, default.latent)


def test_a_space_of_the_sampler() -> None:
    """Noise between the steps asks for data space, unless the user asks for another."""
    for function in (fakes.dpmpp_2m_sde, fakes.euler_ancestral):
        auto, data, output = (
            sampled(function, budget=8, space=space) for space in ("auto", "data", "output")
        )
        name = function.__name__.removeprefix("sample_")
        assert f"{name} adds noise at every step: predicted in data space" in auto.text
        assert torch.equal(auto.latent, data.latent)
        assert not torch.equal(auto.latent, output.latent)
    assert "adds noise" not in sampled(budget=8).text


def test_noise_is_not_corrected_by_default() -> None:
    auto, on, off = (
        sampled(fakes.dpmpp_2m_sde, budget=8, correct=correct) for correct in ("auto", "on", "off")
    )
    assert torch.equal(auto.latent, off.latent) and not torch.equal(auto.latent, on.latent)


def test_noise_in_output_space() -> None:
    auto, on, off = (
        sampled(fakes.dpmpp_2m_sde, budget=8, space="output", correct=correct)
        for correct in ("auto", "on", "off")
    )
    assert torch.equal(auto.latent, off.latent) and not torch.equal(auto.latent, on.latent)
    assert "predicted in output space" in auto.text


@pytest.mark.parametrize("function", [fakes.euler, fakes.dpmpp_2m], ids=lambda f: f.__name__)
@pytest.mark.parametrize("space", ["output", "data"])
def test_a_plan_is_what_the_options_make(function: Any, space: str) -> None:
    """The plan of the same options, given as text, makes the same run."""
    sigmas = SIGMAS[:17]
    plan = geoshrink.Plan.of(sigmas.double().tolist(), 7, space=space, correct=True, **LEVELS)
    given = sampled(function, sigmas=sigmas, plan=plan.to_json())
    asked = sampled(function, sigmas=sigmas, budget=7, space=space, correct="on")
    off = sampled(function, sigmas=sigmas, budget=7, space=space, correct="off")
    assert torch.equal(given.latent, asked.latent) and not torch.equal(given.latent, off.latent)


def test_nothing_is_learned_from_noise() -> None:
    for _ in range(2):
        fast = learning(function=fakes.dpmpp_2m_sde)
        assert fast.calls == 7 and "nothing is learned from samplers that add noise" in fast.text


def test_corrections_that_cannot_be() -> None:
    for function, why in (
        (fakes.ipndm, "cells are not corrected: ipndm: it keeps its past"),
        (fakes.clipped, "cells are not corrected: deis: its state is not linear"),
    ):
        asked, auto = sampled(function, budget=8, correct="on"), sampled(function, budget=8)
        assert torch.equal(asked.latent, auto.latent)
        assert why in asked.text and why not in auto.text
    assert "not corrected" not in sampled(budget=8, correct="on").text
    assert "not corrected" not in sampled(fakes.dpmpp_2m, budget=8, correct="on").text


def test_a_plan_as_text_and_as_a_file(tmp_path: Path) -> None:
    plan = plan_of(anchors=[0, 1, 3, 6, 10, 15, 19], budget=None)
    file = tmp_path / "π.plan.json"
    file.write_text(plan.to_json() + "\n", encoding="utf-8")
    runs = [
        sampled(plan=given)
        for given in (plan.to_json(), f" {plan.to_json()} ", str(file), f"{file}\n")
    ]
    for run in runs:
        assert run.node.anchors == plan.anchors
        assert torch.equal(run.latent, runs[0].latent)
    assert sampled(plan=plan.to_json(), speedup=2.0).calls == 7


def test_a_plan_is_followed_and_corrected() -> None:
    plan = plan_of(correct=True)
    noise = noise_like(dtype=torch.float64)

    def velocity(x: torch.Tensor, sigma: Any) -> torch.Tensor:
        level = torch.full((len(x),), float(sigma), dtype=x.dtype)
        return (x - Model()(x, level, [1.0], 2.0)) / float(sigma)

    expected = geoshrink.sample(velocity, noise, plan=plan, callback=lambda *_: None)
    fast = sampled(plan=plan.to_json(), noise=noise)
    assert distance(fast.latent, expected) < 1e-9
    masked = sampled(fakes.dpmpp_2m, plan=plan.to_json(), mask=torch.ones(2, 1, 4, 5))
    assert masked.calls == 7 and "the sampler's state is behind a mask" in masked.node.full
    ipndm = sampled(fakes.ipndm, plan=plan.to_json())
    assert ipndm.calls == 7 and "it keeps its past" in ipndm.node.full


@pytest.mark.parametrize("steps", [19, 21, 20])
def test_a_plan_of_another_grid(steps: int) -> None:
    sigmas = Flow().levels(steps) * (0.9 if steps == 20 else 1.0)
    full, fast = sampled(sigmas=sigmas), sampled(sigmas=sigmas, plan=plan_of().to_json())
    assert torch.equal(full.latent, fast.latent)
    assert fast.text.startswith("every call was exact: the plan was made for")


def test_a_plan_is_read_again(tmp_path: Path) -> None:
    """A file that is gone when the sampling begins costs no picture."""
    file = tmp_path / "a.json"
    file.write_text(plan_of().to_json())
    node = seam.Accelerated(Options(plan=str(file)), lambda text: None)
    file.unlink()
    model = Model()
    Guider(node.attach(Patcher(model))).sample(noise_like(), KSampler(fakes.euler), SIGMAS)
    assert model.calls == 20 and "there is no such file" in node.text


def learning(model: Model | None = None, patch: Any = None, **more: Any) -> fakes.Sampled:
    return sampled(model=model or Model(), patch=patch, budget=7, learn=True, **more)


@pytest.mark.parametrize("function", [fakes.euler, fakes.dpmpp_2m], ids=lambda f: f.__name__)
def test_learning(function: Any) -> None:
    """The first picture is exact, the next has the budget."""
    first = learning(function=function)
    assert first.calls == 20 and torch.equal(first.latent, sampled(function).latent)
    assert "every call was exact: the samplings after it are placed by this one" in first.text
    for seed in (1, 2):
        noise = noise_like(seed=seed)
        after = learning(function=function, noise=noise)
        assert after.calls == 7 and "are placed by this one" not in after.text
        assert distance(after.latent, sampled(function, noise=noise).latent) < 0.5


def lora(strength: float) -> Any:
    def patch(model: Patcher) -> None:
        model.patches = {"weight": [(strength, "a tensor", 1.0, None, None)]}

    return patch


class Named(Guider):
    pass


def other_weights() -> Model:
    model = Model()
    with torch.no_grad():
        next(iter(model.diffusion_model.parameters())).mul_(2.0)
    return model


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"patch": lora(0.5)}, {"patch": lora(0.7)}),
        ({}, {"patch": lora(0.7)}),
        ({"cfg": 2.0}, {"cfg": 3.0}),
        ({}, {"guider": Named}),
        ({}, {"function": fakes.dpmpp_2m}),
        ({"function": fakes.dpmpp_2m}, {"function": fakes.remembering(1)}),
        ({}, {"model": other_weights()}),
        ({}, {"sigmas": Flow().levels(24)}),
        ({}, {"conds": {"positive": [{"prompt": 1.0, "control": SimpleNamespace()}]}}),
        ({}, {"conds": {"positive": [{"prompt": 1.0}], "negative": [{"prompt": 0.0}]}}),
    ],
    ids=["lora", "none", "cfg", "guider", "sampler", "name", "weights", "grid", "control", "two"],
)
def test_other_settings_are_learned_anew(one: dict[str, Any], other: dict[str, Any]) -> None:
    steps = len(other.get("sigmas", SIGMAS)) - 1
    assert [learning(**one).calls, learning(**one).calls] == [20, 7]
    other.get("model", Model()).sigmas.clear()
    assert learning(**other).calls == steps
    assert learning(**one).calls == 7


def test_learning_from_a_run_that_was_stopped() -> None:
    def stop(n: int, result: torch.Tensor) -> torch.Tensor:
        if n == 10:
            raise KeyboardInterrupt
        return result

    with pytest.raises(KeyboardInterrupt):
        learning(Model(change=stop))
    assert [learning().calls, learning().calls] == [20, 7]


def test_what_tells_settings_apart() -> None:
    guider = SimpleNamespace(conds={"positive": [{"mask": 1, "prompt": 1}, {}], "negative": None})
    assert options.kinds_of(guider) == [("positive", ("mask",), ()), ("negative",)]
    assert options.kinds_of(SimpleNamespace()) == []
    assert options.patches_of(SimpleNamespace()) == ""

    def patches(**some: Any) -> str:
        return options.patches_of(SimpleNamespace(model_patcher=SimpleNamespace(patches=some)))

    assert patches() == "" != patches(a=[(1.0, "t", 1.0)])
    assert patches(a=[(1.0, "t", 1.0)]) == patches(a=[(1.0, "u", 1.0)])
    assert patches(a=[(1.0, "t", 1.0)]) != patches(a=[(1.0, "t", 0.5)])
    assert patches(a=[(1.0, "t", 1.0)]) != patches(b=[(1.0, "t", 1.0)])
    both = {"a": [(1.0, "t", 1.0)], "b": [(2.0, "t", 1.0)]}
    assert patches(**both) == patches(**dict(reversed(both.items())))
