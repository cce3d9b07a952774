"""What a plan was made for: kept in its file, and compared with the run that it is given to."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import geoshrink
from geoshrink import Plan, accelerate
from geoshrink.hosts.facts import check_purpose, facts_of, guidance_of, model_id, settings_of
from geoshrink.pointers import notes_of, page_of
from geoshrink.purpose import Purpose

EULER = "FlowMatchEulerDiscreteScheduler"
MADE = Purpose("owner/model", "Net", EULER, (("shift", 3.0),), 50, 4.5)


def grid(steps: int, shift: float = 3.0) -> list[float]:
    return [shift * s / (1 + (shift - 1) * s) for s in (1 - n / steps for n in range(steps + 1))]


# --- words ------------------------------------------------------------------------------------


def test_the_difference_is_told_in_words():
    run = replace(MADE, steps=28, guidance=None, model="", network="")
    assert MADE.difference(run) == (
        f"this plan is for 50 steps of {EULER} with shift 3; this run has 28 steps with shift 3"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scheduler": "UniPC"}, "this run has 50 steps of UniPC with shift 3"),
        ({"settings": (("shift", 1.0),)}, "this run has 50 steps with shift 1"),
        ({"guidance": 2.0}, "this run has 50 steps with shift 3, guidance 2, a Net"),
        ({"guidance": 7.0}, "guidance 4.5, a Net, the model owner/model; this run has"),
        ({"network": "Other"}, "guidance 4.5, a Other, the model owner/model"),
        ({"model": "owner/other"}, "the model owner/other"),
    ],
)
def test_every_fact_is_compared(change, words):
    told = MADE.difference(replace(MADE, **change))
    assert told is not None and words in told


@pytest.mark.parametrize(
    "run",
    [
        Purpose(),
        MADE,
        Purpose(steps=50),
        replace(MADE, model="my-finetune"),  # a name is nobody's id
        replace(MADE, settings=(("shift", 3.0), ("use_karras_sigmas", True))),
        replace(MADE, guidance=4.5 + 1e-9),
    ],
)
def test_what_only_one_knows_is_no_difference(run):
    assert MADE.difference(run) is None


def test_a_range_of_guidance_holds_what_is_in_it():
    wide = replace(MADE, guidance=(3.0, 5.0))
    assert wide.difference(MADE) is None
    assert "guidance 3 to 5" in str(wide.difference(replace(MADE, guidance=6.0)))
    assert wide.difference(replace(MADE, guidance=(3.5, 5.0))) is None
    assert "guidance 4 to 6" in str(wide.difference(replace(MADE, guidance=(4.0, 6.0))))


def test_a_setting_that_differs_is_named_and_one_that_does_not_is_not():
    mine = replace(MADE, settings=(("beta_schedule", "linear"), ("use_karras_sigmas", True)))
    run = replace(mine, settings=(("beta_schedule", "linear"), ("use_karras_sigmas", False)))
    told = str(mine.difference(run))
    assert "with use_karras_sigmas True" in told and "with use_karras_sigmas False" in told
    assert "linear" not in told and mine.difference(mine) is None


def test_what_is_known_already_is_kept():
    assert MADE.filled(Purpose("other/one", "Other", "UniPC", (("shift", 1.0),), 28, 7.0)) == MADE
    assert Purpose(steps=28).filled(MADE) == replace(MADE, steps=28)


def test_the_grid_knows_neither_the_model_nor_its_guidance():
    assert MADE.of_grid() == Purpose("", "", EULER, (("shift", 3.0),), 50)


def test_settings_in_another_order_are_the_same():
    both = Purpose.of({"settings": {"shift": 3.0, "beta_schedule": "linear"}})
    assert both == Purpose.of({"settings": {"beta_schedule": "linear", "shift": 3.0}})


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": "x" * 201},
        {"model": "\x1b[31mred"},
        {"scheduler": 5},
        {"steps": 0},
        {"steps": True},
        {"steps": 2.5},
        {"steps": 10**6 + 1},
        {"guidance": 10**400},
        {"settings": {"shift": 10**400}},
        {"guidance": float("nan")},
        {"guidance": [5, 3]},
        {"guidance": [1, 2, 3]},
        {"guidance": "3"},
        {"settings": {"shift": [1]}},
        {"settings": {"shift": float("inf")}},
        {"settings": {"beta_schedule": "x" * 201}},
        {"settings": {"beta_schedule": "\x1b[31mred"}},
        {"settings": {"\x1b[31mred": 1}},
        {"settings": {str(i): i for i in range(33)}},
        {"settings": [1]},
        {"path": "/home"},
        "purpose",
    ],
)
def test_what_is_no_purpose_is_refused(wrong):
    with pytest.raises(ValueError):
        Purpose.of(wrong)


def test_a_guidance_that_does_not_act_is_none():
    none = replace(MADE, guidance=1.0)
    assert none.difference(replace(MADE, guidance=0.0)) is None
    assert "guidance 1" in str(none.difference(MADE)) and MADE.difference(none) is not None


@pytest.mark.parametrize(
    "wrong",
    [
        ["x" * 9000],
        {"x" * 9000: 1},
        {"guidance": "x" * 9000},
        {"settings": "x" * 9000},
        {"settings": {"shift": ["x" * 9000]}},
        {"steps": 10**4000},
    ],
)
def test_strangers_are_quoted_in_short(wrong):
    with pytest.raises(ValueError) as caught:
        Purpose.of(wrong)
    assert len(str(caught.value)) < 300
    with pytest.raises(ValueError) as caught:
        Plan.from_body(json.loads(planned().to_json()) | {"purpose": wrong})
    assert len(str(caught.value)) < 400


# --- in a plan --------------------------------------------------------------------------------


def planned(steps: int = 50, purpose: Purpose | None = MADE) -> Plan:
    return replace(Plan.of(grid(steps), 10), purpose=purpose)


def test_a_plan_keeps_its_purpose_and_equals_one_without(tmp_path):
    plan = planned()
    again = Plan.from_json(plan.to_json())
    assert again.purpose == MADE and again == plan == Plan.of(grid(50), 10)
    assert Plan.load(plan.save(tmp_path / "plan.json")).purpose == MADE
    wide = planned(purpose=replace(MADE, guidance=(1.0, 2.0)))
    assert Plan.from_json(wide.to_json()).purpose == wide.purpose


def test_a_saved_plan_says_who_wrote_it_and_is_refused_when_changed(tmp_path):
    file = planned().save(tmp_path / "plan.json")
    body = json.loads(file.read_text("utf-8"))
    assert body["geoshrink"] == geoshrink.__version__ and len(body["sha256"]) == 64
    file.write_text(json.dumps(body | {"anchors": [*range(10)]}), encoding="utf-8")
    with pytest.raises(ValueError, match="its sha256 is another one"):
        Plan.load(file)
    del body["sha256"]
    assert Plan.from_body(body) == planned()  # changed on purpose


def test_a_plan_of_before_has_no_purpose():
    body = json.loads(Plan.of(grid(50), 10).to_json())
    assert not {"purpose", "sha256", "geoshrink"} & set(body)
    assert Plan.from_body(body).purpose is None


def test_a_damaged_purpose_is_quoted():
    body = json.loads(planned().to_json())
    with pytest.raises(ValueError, match="damaged: a purpose has no 'colour'"):
        Plan.from_body(body | {"purpose": {"colour": "red"}})


def test_numbers_that_no_float_holds_are_damage(tmp_path):
    body = json.loads(planned().to_json())
    (tmp_path / "plan.json").write_text(json.dumps(body | {"coefficients": [10**400] * 50}))
    with pytest.raises(ValueError, match="this plan is damaged"):
        Plan.load(tmp_path / "plan.json")
    with pytest.raises(ValueError, match="this plan is damaged: mesh says") as caught:
        Plan.from_body(body | {"mesh": ["x" * 5000]})
    assert len(str(caught.value)) < 400
    with pytest.raises(ValueError, match="has version '9") as caught:
        Plan.from_body(body | {"version": "9" * 5000})
    assert len(str(caught.value)) < 200
    with pytest.raises(ValueError, match="not a geoshrink plan") as caught:
        Plan.from_body(["x" * 5000])
    assert len(str(caught.value)) < 200


# --- at a host --------------------------------------------------------------------------------


class Net(nn.Module):
    def forward(self, x: Any, sigma: float) -> Any:
        return torch.cos(3 * x + 9 * sigma) * sigma


class Toy:
    """A loop over a scheduler, with a guidance scale in its call."""

    def __init__(self, scheduler: Any):
        self.scheduler, self.network, self.config = scheduler, Net(), {}

    def __call__(self, steps: int = 50, guidance_scale: float = 4.5) -> Any:
        self.scheduler.set_timesteps(steps)
        x = torch.ones(1, 4)
        for i, t in enumerate(self.scheduler.timesteps):
            v = self.network(x, float(self.scheduler.sigmas[i]))
            x = self.scheduler.step(v, t, x, return_dict=False)[0]
        return x


def toy(shift: float = 3.0) -> Toy:
    diffusers = pytest.importorskip("diffusers")
    return Toy(diffusers.FlowMatchEulerDiscreteScheduler(shift=shift))


def hooked(pipe: Toy, plan: Any) -> Any:
    return accelerate(pipe, plan=plan, denoisers=[pipe.network])


def plan_of(pipe: Toy, **call: Any) -> Plan:
    with accelerate(pipe, budget=10, denoisers=[pipe.network]) as handle:
        pipe(**call)
    assert handle.plan is not None
    return handle.plan


def test_the_plan_of_a_run_knows_that_run_and_fits_the_next():
    pipe = toy()
    plan = plan_of(pipe)
    wanted = Purpose("", "", EULER, settings_of(pipe.scheduler), 50)
    assert plan.purpose == wanted and ("shift", 3.0) in wanted.settings
    with hooked(pipe, json.loads(plan.to_json())) as handle:
        pipe()
    assert handle.report.evaluations == 10 and handle.plan.purpose == plan.purpose


def test_a_plan_of_the_grid_alone_fits_any_guidance_and_network():
    pipe, other = toy(), toy()
    plan, other.network = plan_of(pipe), nn.Sequential()  # type: ignore[assignment]
    other.network.forward = Net().forward  # type: ignore[method-assign]
    with hooked(other, plan) as handle:
        other(guidance_scale=7.0)
    assert handle.report.evaluations == 10


def test_a_learned_plan_is_for_its_model_and_guidance(monkeypatch):
    from geoshrink.learning import choosing

    monkeypatch.setattr(choosing, "MARGIN", -100.0)  # dB: whatever was learned is taken
    pipe = toy()
    with accelerate(pipe, budget=10, denoisers=[pipe.network], learn=True) as handle:
        pipe()
        pipe()
    assert handle.plan is not None and handle.plan.mesh.startswith("learned")
    assert handle.plan.budget == 10
    wanted = Purpose("", "Net", EULER, settings_of(pipe.scheduler), 50, 4.5)
    assert handle.plan.purpose == wanted


def test_a_plan_for_outputs_that_move_slowly_is_for_their_model_and_guidance():
    pipe = toy()
    pipe.network.forward = lambda x, sigma: torch.ones_like(x) + 1e-3 * torch.sin(x)
    plan, usual = plan_of(pipe), Plan.of(pipe.scheduler.sigmas, 10)
    assert plan.anchors == usual.slow and plan.slow == ()
    assert plan.purpose == Purpose("", "Net", EULER, settings_of(pipe.scheduler), 50, 4.5)


def test_a_refused_run_leaves_the_plan_of_the_one_before():
    pipe = toy()
    plan = plan_of(pipe)
    with hooked(pipe, plan) as handle:
        pipe(steps=28)
        assert handle.plan is None
        pipe()
        pipe(steps=28)
    assert handle.report.evaluations == 28 and handle.plan == plan


def test_another_scheduler_or_shift_is_refused_before_anything_is_touched():
    diffusers: Any = pytest.importorskip("diffusers")
    plan, other = plan_of(toy()), toy(1.0)
    with pytest.raises(ValueError, match=f"for {EULER} with shift 3.*has {EULER} with shift 1"):
        hooked(other, plan)
    assert "step" not in vars(other.scheduler)
    heun = Toy(diffusers.FlowMatchHeunDiscreteScheduler(shift=3.0))
    with pytest.raises(ValueError, match="this run has FlowMatchHeunDiscreteScheduler"):
        hooked(heun, plan)
    assert hooked(other, replace(plan, purpose=None)).remove() is None  # who insists may


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({"steps": 28}, "this plan is for 50 steps of .*; this run has 28 steps with shift 3"),
        ({"guidance_scale": 7.0}, "guidance 4.5.*this run has 50 steps.*guidance 7"),
    ],
)
def test_another_run_is_exact_and_says_why(call, words):
    pipe = toy()
    plan = plan_of(pipe)
    assert plan.purpose is not None
    plan = replace(plan, purpose=replace(plan.purpose, guidance=4.5))
    with hooked(pipe, plan) as handle:
        pipe(**call)
    report = handle.report
    assert report.evaluations == report.steps == call.get("steps", 50)
    assert any(re.search(words, why) for _, why in report.reasons)


def test_ids_are_told_and_paths_are_not(tmp_path, monkeypatch):
    class Config:
        _name_or_path = "black-forest-labs/FLUX.1-dev"

    class Host:
        config = Config()

    assert model_id(Host()) == "black-forest-labs/FLUX.1-dev"
    near = ("../models/x", "../models", "./models", ".cache/models")
    for path in (*near, str(tmp_path), "C:\\models\\x", "flux", None, 5):
        Config._name_or_path = path  # type: ignore[assignment]
        assert model_id(Host()) == ""
    (tmp_path / "models" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    Config._name_or_path = "models/x"
    assert model_id(Host()) == "" == facts_of(Host()).model


def test_a_shift_that_is_not_used_does_not_count():
    diffusers = pytest.importorskip("diffusers")
    made: Any = diffusers.FlowMatchEulerDiscreteScheduler
    fixed = dict(settings_of(made(shift=3.0, base_shift=0.1)))
    moving = dict(settings_of(made(shift=3.0, base_shift=0.1, use_dynamic_shifting=True)))
    assert fixed["shift"] == 3.0 and "base_shift" not in fixed
    assert moving["base_shift"] == 0.1 and "shift" not in moving
    turned = made(shift=3.0)
    turned.set_shift(5.0)
    assert dict(settings_of(turned))["shift"] == 5.0
    multi: Any = diffusers.UniPCMultistepScheduler
    assert "flow_shift" not in dict(settings_of(multi(flow_shift=3.0)))
    flow = multi(flow_shift=3.0, use_flow_sigmas=True, prediction_type="flow_prediction")
    assert dict(settings_of(flow))["flow_shift"] == 3.0


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ({"guidance_scale": None, "true_cfg_scale": 4.0}, 4.0),
        ({"guidance_scale": 3.5, "true_cfg_scale": 4.0}, 4.0),
        ({"guidance_scale": 3.5, "true_cfg_scale": 1.0}, 3.5),
        ({"guidance_scale": 3.5, "true_cfg_scale": None}, 3.5),
        ({"guidance_scale": True}, None),
        ({}, None),
    ],
)
def test_the_guidance_is_the_one_that_acts(call, wanted):
    assert facts_of(object(), variables=call).guidance == wanted


def test_the_guidance_of_calls_is_as_given_or_by_default():
    class Pipe:
        def __call__(self, guidance_scale: Any = None, true_cfg_scale: float = 4.0) -> None: ...

    assert guidance_of(Pipe(), [{}, {"true_cfg_scale": 4.0}]) == 4.0
    assert guidance_of(Pipe(), [{"true_cfg_scale": 1.0, "guidance_scale": 2.0}]) == 2.0
    assert guidance_of(Pipe(), [{}, {"true_cfg_scale": 2.0}]) is None


class Told:
    """A scheduler, or a network, that says this of itself."""

    def __init__(self, **config: Any):
        self.config = config


def test_every_setting_that_shapes_a_grid_counts_where_it_is_plain():
    names = [
        "beta_schedule", "prediction_type", "shift", "timestep_spacing", "use_beta_sigmas",
        "use_dynamic_shifting", "use_exponential_sigmas", "use_karras_sigmas",
    ]  # fmt: skip
    found = settings_of(Told(**dict.fromkeys(names, 0.0), order=2))
    assert [name for name, _ in found] == names
    for word in ("a\nb", "x" * 201):
        odd = Told(beta_schedule=[1.0], prediction_type=word, timestep_spacing=None, shift=3.0)
        assert settings_of(odd) == (("shift", 3.0),) == facts_of(object(), odd).settings


def test_networks_are_called_by_their_own_class_in_whatever_wrapping():
    wrapped: Any = nn.Module()
    wrapped.module = Net()
    compiled: Any = nn.Module()
    compiled._orig_mod = wrapped
    named = Told(_class_name="FluxTransformer2DModel")
    assert facts_of(object(), networks=[compiled]).network == "Net"
    for networks in ([wrapped, named], [named, Net(), compiled]):
        assert facts_of(object(), networks=networks).network == "FluxTransformer2DModel+Net"


def test_a_plan_for_another_run_leads_to_the_page_on_fitting():
    with pytest.raises(ValueError) as caught:
        hooked(toy(1.0), plan_of(toy()))
    assert notes_of(caught.value) == [f"See {page_of('fit')}"]


def test_one_scheduler_of_several_is_enough():
    other = replace(MADE, scheduler="UniPC")
    check_purpose(planned(), [other, MADE])
    with pytest.raises(ValueError, match="this run has 50 steps of UniPC"):
        check_purpose(planned(), [other, other])


def test_a_profile_tells_its_plans_what_it_knows(tmp_path):
    noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    told = {"model": "m", "guidance": 2.0, "budgets": (), "quiet": True}
    made = geoshrink.profile(lambda x, sigma: torch.cos(3 * x), noise, grid(12), **told)
    made.save(tmp_path / "profile.json")
    found = geoshrink.Profile.load(tmp_path / "profile.json")
    assert found.plan(5).purpose == Purpose("m", steps=12, guidance=2.0)
    own = replace(made, purpose=Purpose("a/b", "Net", EULER, (("shift", 3.0),), 12))
    own.save(tmp_path / "own.json")
    own = geoshrink.Profile.load(tmp_path / "own.json")
    assert own.plan(5).purpose == own.purpose
    moved = own.resample(grid(20))
    assert moved.plan(5).purpose == Purpose("a/b", "Net", EULER, (), 20)


def test_a_guidance_for_each_stage_is_not_one_number():
    class Host:
        def __call__(self, guidance_scale: float = 3.0): ...

    assert guidance_of(Host(), [{}, {"guidance_scale": 3.0}]) == 3.0
    assert guidance_of(Host(), [{}, {"guidance_scale": [1.0, 3.0]}]) is None
    assert facts_of(Host(), variables={"guidance_scale": [1.0, 3.0]}).guidance is None
