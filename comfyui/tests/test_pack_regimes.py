"""Prompts, ControlNets, hooks and guidance that change in the middle of a sampling."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import fakes
from support.fakes import Flow, Guider, Model, Patcher, distance, pack, sampled

import geoshrink

regimes = pack("regimes")
SIGMAS = Flow().levels(20)
EARLY, LATE = float(SIGMAS[7] + SIGMAS[8]) / 2, float(SIGMAS[13] + SIGMAS[14]) / 2


def prompts(**limits: Any) -> dict[str, Any]:
    return {"positive": [{"prompt": 1.0}, {"prompt": -1.0, **limits}], "negative": []}


@pytest.mark.parametrize(
    ("limits", "switches"),
    [
        ({"timestep_start": EARLY}, (8,)),
        ({"timestep_end": EARLY}, (8,)),
        ({"timestep_start": EARLY, "timestep_end": LATE}, (8, 14)),
        ({"timestep_start": 2.0, "timestep_end": -1.0}, ()),
        ({"timestep_start": None, "timestep_end": LATE}, (14,)),
        ({"timestep_start": float(SIGMAS[8])}, (8,)),
        ({"timestep_end": float(SIGMAS[8])}, (9,)),
        ({"timestep_start": float(SIGMAS[1])}, (1,)),
        ({"timestep_start": float(SIGMAS[19])}, (19,)),
        ({}, ()),
    ],
    ids=str,
)
def test_prompts_in_a_range(limits: dict[str, Any], switches: tuple[int, ...]) -> None:
    guider = SimpleNamespace(conds=prompts(**limits))
    assert regimes.switches(guider, SIGMAS.tolist()[:-1]) == switches
    for function in (fakes.euler, fakes.dpmpp_2m):
        full = sampled(function, conds=prompts(**limits))
        fast = sampled(function, conds=prompts(**limits), budget=9)
        assert fast.calls == 9 and set(switches) <= set(fast.node.anchors)
        assert distance(fast.latent, full.latent) < 0.5


def test_a_switch_is_worth_its_call() -> None:
    """Without it, the outputs of the other prompt would be carried on."""
    conds = {
        "positive": [
            {"prompt": 2.0, "timestep_end": LATE},
            {"prompt": -2.0, "timestep_start": LATE},
        ]
    }
    noise = fakes.noise_like(16, 3, 4, 4)
    full = sampled(conds=conds, noise=noise)
    fast = sampled(conds=conds, noise=noise, budget=9)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(regimes, "switches", lambda *_: ())
        blind = sampled(conds=conds, noise=noise, budget=9)
    assert distance(fast.latent, full.latent) < distance(blind.latent, full.latent)


def control(*limits: Any, before: Any = None) -> Any:
    return SimpleNamespace(timestep_range=limits or None, previous_controlnet=before)


def test_control() -> None:
    chain = control(EARLY, LATE, before=control(before=control(9.9, float(SIGMAS[3]) - 1e-4)))
    guider = SimpleNamespace(conds={"a": [{"control": chain}], "b": None, "c": [{"control": None}]})
    assert regimes.switches(guider, SIGMAS.tolist()[:-1]) == (4, 8, 14)
    assert list(regimes.windows_of(guider)) == [
        (regimes.single(EARLY), regimes.single(LATE)),
        (regimes.single(9.9), regimes.single(float(SIGMAS[3]) - 1e-4)),
    ]


def test_hooks() -> None:
    """The first keyframe begins the run; each of the others begins something."""
    frames = [SimpleNamespace(start_t=t) for t in (EARLY + 0.1, EARLY, LATE)]
    hook = SimpleNamespace(hook_keyframe=SimpleNamespace(keyframes=frames))
    bare = SimpleNamespace(hook_keyframe=None)
    hooks = SimpleNamespace(hooks=[bare, hook])
    guider = SimpleNamespace(conds={"positive": [{"hooks": hooks}, {"hooks": None}]})
    assert regimes.switches(guider, SIGMAS.tolist()[:-1]) == (8, 14)


def test_nothing_to_switch() -> None:
    for guider in (SimpleNamespace(), SimpleNamespace(conds=None), SimpleNamespace(conds={})):
        assert regimes.switches(guider, SIGMAS.tolist()) == ()


def test_guidance() -> None:
    def told(**scales: Any) -> Any:
        return regimes.guidance(SimpleNamespace(**scales))

    assert told(cfg=3.0) == told(cfg=3) != told(cfg=3.5)
    assert told() == told(cfg=None) == told(cfg="by a curve")
    for name in ("cfg1", "cfg2", "cfg_cond2_negative"):
        assert told(cfg=1.0, **{name: 2.0}) != told(cfg=1.0, **{name: 2.5})
    hash(told(cfg=3.0))


def override(first: float, last: float, cfg: float) -> Any:
    """As CFGOverride: another cfg within a range of σ."""

    def patch(model: Patcher) -> None:
        def wrapped(run: Any, x: Any, sigma: Any, *rest: Any) -> Any:
            guider, level = run.class_obj, float(sigma[0])
            own = guider.cfg
            guider.cfg = cfg if last <= level <= first else own
            try:
                return run(x, sigma, *rest)
            finally:
                guider.cfg = own

        model.add_wrapper_with_key("predict_noise", "cfg_override", wrapped)

    return patch


@pytest.mark.parametrize("function", [fakes.euler, fakes.dpmpp_2m], ids=lambda f: f.__name__)
def test_guidance_in_a_range(function: Any) -> None:
    """The steps at which it changes are exact, whatever was planned."""
    patch = override(EARLY, LATE, 5.0)
    full, fast = sampled(function, patch=patch), sampled(function, patch=patch, budget=8)
    assert {8, 14} <= set(fast.node.anchors) and 8 <= fast.calls <= 10
    assert "the regime changed" in fast.text
    assert distance(fast.latent, full.latent) < 0.5
    whole = sampled(function, patch=patch, budget=20)
    assert torch.equal(whole.latent, full.latent)


def test_a_plan_does_not_know_the_prompts() -> None:
    """The steps at which a prompt begins or ends are exact with a plan from elsewhere, too."""
    numbers = SIGMAS.double().tolist()
    plan = geoshrink.Plan.of(numbers, anchors=[0, 1, 2, 5, 10, 16, 19], prediction="flow", data=0.0)
    conds = prompts(timestep_start=EARLY, timestep_end=LATE)
    fast = sampled(conds=conds, plan=plan.to_json())
    assert {8, 14} <= set(fast.node.anchors) and set(plan.anchors) <= set(fast.node.anchors)
    assert fast.calls == 9 and "the regime changed" in fast.text
    plain = sampled(plan=plan.to_json())
    assert plain.node.anchors == plan.anchors


def test_a_guider_of_its_own() -> None:
    """Two scales, as DualCFGGuider has them."""

    class Dual(Guider):
        def __init__(self, *args: Any):
            super().__init__(*args)
            self.cfg1, self.cfg2 = 2.0, 3.0

        def predict_noise(self, x: Any, sigma: Any, model_options: Any, seed: Any = None) -> Any:
            return self.inner_model(x, sigma, [1.0, 0.5], self.cfg1 + self.cfg2)

    assert sampled(guider=Dual, budget=8).calls == 8


def test_a_model_of_a_film() -> None:
    fast = sampled(fakes.dpmpp_2m, model=Model(), noise=fakes.noise_like(1, 3, 2, 4, 4), budget=8)
    assert fast.calls == 8 and fast.latent.shape == (1, 3, 2, 4, 4)
