"""Hosts with loops of their own: torchdiffeq (real), doubles of TRELLIS, HY-Motion, F5-TTS and
ACE-Step v1, denoisers in the style of k-diffusion.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

import geoshrink
from geoshrink import Plan, accelerate
from geoshrink.hosts import denoised
from geoshrink.hosts import odeint as ode
from hosts import music, sparse
from hosts.loops import Case, problems

torchdiffeq: Any = pytest.importorskip("torchdiffeq")
odes: Any = pytest.importorskip("hosts.odes")
torch.set_num_threads(1)

TIMES = torch.linspace(0, 1, 21)
EARLY = (0, 1, 2, 3, 5, 8, 13, 19)


def field(t: Any, y: Tensor) -> Tensor:
    return torch.sin(3 * y + 2 * t) - 0.5 * y


class Counting:
    """A function of (t, y) that counts its calls and fails at one of them."""

    def __init__(self, fail_at: int = 0):
        self.calls, self.fail_at = 0, fail_at

    def __call__(self, t: Tensor, y: Any) -> Any:
        self.calls += 1
        if self.calls == self.fail_at:
            raise RuntimeError("in mid-run")
        return field(t, y) if isinstance(y, Tensor) else tuple(field(t, part) for part in y)


def start(n: int = 2) -> Tensor:
    return torch.randn(n, 5, generator=torch.Generator().manual_seed(0))


# -- odeint


@pytest.mark.parametrize("times", [TIMES, TIMES.flip(0), TIMES**2, torch.tensor([0.0, 0.4, 1.0])])
def test_euler_at_full_budget_is_torchdiffeqs(times):
    plain = torchdiffeq.odeint(field, start(), times, method="euler")
    for budget in (len(times) - 1, None):
        assert torch.equal(geoshrink.odeint(field, start(), times, budget=budget), plain)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_euler_in_other_precisions(dtype):
    y, count = start().to(dtype), Counting()
    plain = torchdiffeq.odeint(field, y, TIMES, method="euler")
    assert torch.equal(geoshrink.odeint(field, y, TIMES, budget=20), plain)
    made, report = geoshrink.odeint(count, y, TIMES, budget=8, with_report=True)
    assert made.dtype == dtype and count.calls == report.evaluations == 8 and not report.reasons


@pytest.mark.parametrize("refine", [1, 3])
def test_the_trajectory_is_that_of_run_in_a_loop(refine):
    count = Counting()
    how: dict[str, Any] = dict(anchors=EARLY, refine=refine)
    made, report = geoshrink.odeint(count, start(), TIMES, **how, with_report=True)
    assert made.shape == (21, 2, 5) and count.calls == 8 and report.queried == EARLY
    run, x = geoshrink.Run(TIMES, **how), start()
    for n in range(20):
        v = run(n, lambda n=n, x=x: field(TIMES[n], x))
        x = x + (TIMES[n + 1] - TIMES[n]) * v
        assert torch.equal(made[n + 1], x)


def test_a_budget_of_all_stages_has_their_gradients():
    y = start().requires_grad_()
    exact, report = geoshrink.odeint(field, y, TIMES, budget=20, with_report=True)
    assert not report.reasons
    (mine,) = torch.autograd.grad(exact[-1].sum(), y)
    (theirs,) = torch.autograd.grad(
        torchdiffeq.odeint(field, y, TIMES, method="euler")[-1].sum(), y
    )
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("method", ["midpoint", "rk4", "heun3", "explicit_adams", "dopri5", None])
def test_other_methods_run_exactly_and_say_so(method, caplog):
    plain = torchdiffeq.odeint(field, start(), TIMES, method=method)
    count = Counting()
    made, report = geoshrink.odeint(
        count, start(), TIMES, budget=8, method=method, with_report=True
    )
    assert torch.equal(made, plain)
    assert report.evaluations == count.calls and not report.predicted
    assert "every call is run" in caplog.text and "every call" in report.reasons[0][1]


@pytest.mark.parametrize("times", [TIMES[[0, -1]], TIMES[[-1, 0]]])
@pytest.mark.parametrize("step", [0.05, 0.03])
def test_a_step_size_is_the_grid(times, step):
    options = {"step_size": step}
    plain = torchdiffeq.odeint(field, start(), times, method="euler", options=options)
    made = geoshrink.odeint(field, start(), times, budget=40, options=options)
    assert torch.equal(made, plain)
    count = Counting()
    _, report = geoshrink.odeint(count, start(), times, budget=8, options=options, with_report=True)
    assert count.calls == report.evaluations == 8 and not report.extra
    assert report.steps == (20 if step == 0.05 else 34)


def test_a_grid_constructor_and_callbacks():
    seen = []

    class Watched(Counting):
        def callback_step(self, t, y, dt):
            seen.append(float(t))

    count, options = Watched(), {"grid_constructor": lambda f, y, t: TIMES}
    ends = TIMES[[0, -1]]
    _, report = geoshrink.odeint(count, start(), ends, budget=8, options=options, with_report=True)
    assert count.calls == report.evaluations == 8 and len(seen) == 20


def test_a_state_of_several_tensors():
    y, count = (start(), start(3)), Counting()
    plain = torchdiffeq.odeint(Counting(), y, TIMES, method="euler")
    exact = geoshrink.odeint(count, y, TIMES, budget=20)
    assert all(torch.equal(a, b) for a, b in zip(exact, plain))
    _, report = geoshrink.odeint(Counting(), y, TIMES, budget=8, with_report=True)
    assert {stage.slot for stage in report.stages} == {0, 1}


def test_a_mask_decides_what_the_statistics_see():
    mask = torch.tensor([True, True, True, False, False])

    def padded(t, y):
        return torch.where(mask, field(t, y), torch.sin(40 * t) * y)

    def last(**more):
        return geoshrink.odeint(padded, start(), TIMES, anchors=EARLY, **more)[-1]

    inner = geoshrink.odeint(field, start()[:, :3], TIMES, anchors=EARLY)[-1]
    assert torch.allclose(last(mask=mask)[:, :3], inner, atol=1e-6)
    assert not torch.allclose(last()[:, :3], inner, atol=1e-3)


def test_wrap_for_torchdiffeq_itself():
    count = Counting()
    wrapped = ode.wrap(count, TIMES, budget=8)
    first = torchdiffeq.odeint(wrapped, start(), TIMES, method="euler")
    second = torchdiffeq.odeint(wrapped, start(), TIMES, method="euler")
    assert torch.equal(first, second) and count.calls == 16
    assert wrapped.report.evaluations == 8 and not wrapped.report.extra


def test_wrap_after_an_exception():
    wrapped = ode.wrap(Counting(fail_at=4), TIMES, budget=8)
    with pytest.raises(RuntimeError, match="mid-run"):
        torchdiffeq.odeint(wrapped, start(), TIMES, method="euler")
    made = torchdiffeq.odeint(wrapped, start(), TIMES, method="euler")
    assert torch.equal(made, geoshrink.odeint(field, start(), TIMES, budget=8))


def test_wrap_off_the_grid_runs_the_model():
    count = Counting()
    wrapped = ode.wrap(count, TIMES, budget=8)
    made = torchdiffeq.odeint(wrapped, start(), TIMES, method="midpoint")
    assert torch.equal(made, torchdiffeq.odeint(field, start(), TIMES, method="midpoint"))
    assert count.calls == wrapped.report.evaluations == 40
    assert "called at 0.025 where 0.05 was due" in wrapped.report.reasons[0][1]


def test_bad_input_of_odeint():
    with pytest.raises(TypeError, match="unknown option 'bugdet'"):
        geoshrink.odeint(field, start(), TIMES, bugdet=8)
    with pytest.raises(ValueError, match="a plan decides everything"):
        ode.wrap(field, TIMES, budget=8, plan=Plan.of(TIMES, 8))
    with pytest.raises(ValueError, match="made for 10 stages"):
        ode.wrap(field, TIMES, plan=Plan.of(TIMES[::2], 8))
    with pytest.raises(ValueError, match="budget 2 is too small"):
        geoshrink.odeint(field, start(), TIMES, budget=2)


# -- the hosts


def motion(steps: int = 20) -> Case:
    host = odes.MotionFlowMatching(steps)
    return Case(
        host, lambda: host.generate([3, 4], 5), host.motion_transformer, steps, steps, (), [odes]
    )


def speech() -> Case:
    host = odes.CFM()
    return Case(host, lambda: host.sample([6, 9], 3)[1], host.transformer, 16, 16, (), [odes])


SETTING: dict[str, Any] = dict(steps=25, rescale_t=3.0, cfg_strength=2.0, cfg_interval=(0.5, 0.95))
SECOND: dict[str, Any] = dict(
    steps=25, rescale_t=3.0, guidance_strength=3.0, guidance_interval=(0.5, 0.95)
)
COORDS = torch.argwhere(torch.arange(54).reshape(2, 3, 3, 3) % 5 < 3)
CONDITION = dict(cond=torch.tensor(0.3), neg_cond=torch.tensor(-0.2))


def structured(kind: type, setting: dict[str, Any]) -> Case:
    pipe = sparse.TrellisTextTo3DPipeline(kind)
    run = lambda: pipe.fill(COORDS, **CONDITION, **setting).feats  # noqa: E731
    probe = pipe.models["slat_flow_model"].probe
    return Case(pipe, run, probe, 25, 40, (4, 19), [pipe.slat_sampler])


def sampler() -> Case:
    host, net = sparse.FlowEulerGuidanceIntervalSampler(), sparse.Net()
    noise = torch.randn(2, 4, 3, 3, 3, generator=torch.Generator().manual_seed(2))

    def run() -> Tensor:
        return host.sample(net, noise, **CONDITION, **SETTING).samples

    return Case(host, run, net.probe, 25, 40, (4, 19))


def song(**arguments: Any) -> Case:
    host = music.ACEStepPipeline()
    model = host.ace_step_transformer
    forwards = {False: 30, True: 40}[arguments.get("lyrics", False)]
    return Case(host, lambda: host(**arguments), model.probe, 20, forwards, (5, 15), [model])


CASES = {
    "HY-Motion": motion,
    "F5-TTS": speech,
    "TRELLIS, sparse": lambda: structured(sparse.FlowEulerGuidanceIntervalSampler, SETTING),
    "TRELLIS.2, sparse": lambda: structured(sparse.SecondSampler, SECOND),
    "TRELLIS, a dense sampler": sampler,
    "ACE-Step": song,
    "ACE-Step, three branches": lambda: song(lyrics=True),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("budget", [8, 12])
def test_a_host_with_its_own_loop(name, budget):
    assert problems(CASES[name](), budget) == []


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("name", CASES)
def test_the_options_of_a_plan(name, space):
    case = CASES[name]()
    options = {**case.options, "rule": "time", "anchors": "uniform", "space": space}
    with accelerate(case.host, budget=10, **options) as handle:
        assert case.run().isfinite().all()
        assert handle.report is not None and f"time, {space} space" in handle.report.plan


@pytest.mark.parametrize("name", CASES)
def test_bad_options_leave_nothing_behind(name):
    case = CASES[name]()
    before = dict(vars(case.host))
    with pytest.raises(TypeError, match="unknown option 'bugdet'"):
        accelerate(case.host, bugdet=8)
    with pytest.raises(ValueError, match="budget 2 is too small"):
        accelerate(case.host, budget=2)
    assert vars(case.host) == before


# -- torchdiffeq's hosts


def test_only_the_host_that_was_given_is_accelerated():
    mine, other = motion(), motion()
    with accelerate(mine.host, budget=8) as handle:
        plain = other.run()
        assert not handle.reports
        with accelerate(other.host, budget=12) as second:
            mine.run()
            other.run()
            assert handle.report is not None and handle.report.evaluations == 8
            assert second.report is not None and second.report.evaluations == 12
        assert torch.equal(other.run(), plain) and len(second.reports) == 1
    assert odes.odeint is torchdiffeq.odeint


def test_the_padding_of_a_motion_is_not_seen():
    """Frames beyond the length change nothing, whatever is in them."""
    case, lengths = motion(), (5, odes.FRAMES)
    found = []
    for length in lengths:
        with accelerate(case.host, anchors=EARLY) as handle:
            case.host.generate([3], length)
        assert handle.report is not None
        found.append([s.turning for s in handle.report.stages if s.exact])
    run, x = geoshrink.Run(TIMES, anchors=EARLY, mask=torch.arange(12)[:, None] < 5), None
    assert found[0] != found[1]

    def evaluate(n: int, x: Tensor) -> Tensor:
        mask = (torch.arange(12) < 5).expand(2, 12)
        text = torch.tensor([0.0, 0.7])[:, None, None]
        both = case.host.motion_transformer(torch.cat([x, x]), TIMES[n], text, mask)
        return both[:1] + 3.0 * (both[1:] - both[:1])

    x = torch.randn(1, 12, 3, generator=torch.Generator().manual_seed(3))
    for n in range(20):
        v = run(n, lambda n=n, x=x: evaluate(n, x))
        x = x + (TIMES[n + 1] - TIMES[n]) * v
    assert found[0] == [s.turning for s in run.report.stages if s.exact]


def test_given_frames_of_speech_are_not_seen():
    host = odes.CFM()
    with accelerate(host, budget=8) as handle:
        host.sample([9], 3)
        host.sample([9], 0)
    turnings = [[s.turning for s in report.stages if s.exact] for report in handle.reports]
    assert turnings[0] != turnings[1]


def test_a_host_whose_method_calls_off_the_grid():
    host = odes.MotionFlowMatching(20, method="midpoint")
    plain = host.generate([1], 5)
    with accelerate(host, budget=8) as handle:
        assert torch.equal(host.generate([1], 5), plain)
    assert handle.report is not None
    assert "midpoint calls func between" in handle.report.reasons[0][1]


def test_few_steps_run_exactly():
    case = motion(steps=5)
    plain = case.run()
    with accelerate(case.host, budget=4) as handle:
        assert torch.equal(case.run(), plain)
    assert handle.report is not None and "5 stages leave nothing" in handle.report.reasons[0][1]


def test_a_motion_pipeline_that_changed_is_refused():
    class MotionFlowMatching(torch.nn.Module):
        def generate(self):
            return solve(self)

    solve = odes.odeint
    with pytest.raises(TypeError, match="expected generate to call torchdiffeq's odeint, found no"):
        accelerate(MotionFlowMatching(), budget=8)
    assert odes.odeint is torchdiffeq.odeint


# -- TRELLIS


def test_the_stage_of_a_3d_pipeline():
    pipe = sparse.TrellisTextTo3DPipeline()
    plain = pipe.run(**SETTING)
    for stage, runs in (("slat", 1), ("sparse_structure", 1), ("all", 2)):
        with accelerate(pipe, budget=12, stage=stage) as handle:
            pipe.run(**SETTING)
            assert [report.evaluations for report in handle.reports] == [12] * runs
    assert torch.equal(pipe.run(**SETTING).feats, plain.feats)
    with pytest.raises(ValueError, match="unknown stage 'mesh'; choose one of slat"):
        accelerate(pipe, budget=12, stage="mesh")


def test_the_report_shows_regimes_and_forwards():
    case = CASES["TRELLIS, sparse"]()
    with accelerate(case.host, budget=10) as handle:
        case.run()
    report = handle.report
    assert report is not None
    guided = sum(4 <= n < 19 for n in report.queried)
    assert report.forwards == 10 + guided and {0, 4, 19} <= set(report.queried)
    assert f"{10 + guided} forwards" in str(report)
    assert "regimes: stages 0–3, 4–18, 19–24" in str(report)


@pytest.mark.parametrize(
    "kind, setting, nothing",
    [
        (sparse.FlowEulerGuidanceIntervalSampler, SETTING, {"cfg_strength": 0}),
        (sparse.SecondSampler, SECOND, {"guidance_strength": 1}),
    ],
)
def test_guidance_that_guides_nothing_makes_no_regimes(kind, setting, nothing):
    case = structured(kind, {**setting, **nothing})
    with accelerate(case.host, budget=10) as handle:
        case.run()
    assert handle.report is not None and handle.report.regimes == ()


def test_a_sparse_sample_does_not_depend_on_its_company():
    """Statistics are per sample: alone or beside another, a sample comes out the same."""
    pipe = sparse.TrellisTextTo3DPipeline()
    model, rows = pipe.models["slat_flow_model"], len(COORDS[COORDS[:, 0] == 0])
    feats = torch.randn(len(COORDS), 4, generator=torch.Generator().manual_seed(1))
    feats[rows:] *= 5
    both = sparse.Sparse(feats, COORDS)
    alone = sparse.Sparse(feats[:rows], COORDS[:rows])
    with accelerate(pipe, budget=8) as handle:
        made = [
            pipe.slat_sampler.sample(model, noise, **CONDITION, **SETTING).samples
            for noise in (both, alone)
        ]
    assert torch.allclose(made[0].feats[:rows], made[1].feats, atol=1e-6)
    assert {stage.slot for stage in handle.reports[0].stages} == {0, 1}


def test_a_tensor_of_spconv():
    pytest.importorskip("spconv.pytorch")
    pipe = sparse.TrellisTextTo3DPipeline()
    model, feats = pipe.models["slat_flow_model"], torch.randn(len(COORDS), 4)
    with accelerate(pipe, budget=8) as handle:
        made = [
            pipe.slat_sampler.sample(model, kind(feats, COORDS), **CONDITION, **SETTING).samples
            for kind in (sparse.Sparse, sparse.Voxels)
        ]
    assert isinstance(made[1], sparse.Voxels)
    assert torch.equal(made[0].feats, made[1].data.features)
    assert [report.evaluations for report in handle.reports] == [8, 8]


def test_a_regime_that_no_setting_tells_is_seen():
    """A sampler of the user's own that guides the first ten stages only."""

    class Early(sparse.Base):
        def _inference_model(self, model, x_t, t, cond=None, **kwargs):
            given = super()._inference_model(model, x_t, t, cond)
            if t <= 0.6:
                return given
            return 3 * given - 2 * super()._inference_model(model, x_t, t, -0.3)

    host, net = Early(), sparse.Net()
    noise = torch.randn(1, 4, 3, 3, 3, generator=torch.Generator().manual_seed(2))
    with accelerate(host, budget=10) as handle:
        host.sample(net, noise, cond=torch.tensor(0.3), steps=25)
    assert handle.report is not None
    assert [r for _, r in handle.report.reasons] == [
        "the regime changed from 0 to 1: a regime begins"
    ]


def test_another_grid_than_expected_runs_exactly():
    class Squared(sparse.Base):
        def sample_once(self, model, x_t, t, t_prev, cond=None, **kwargs):
            return super().sample_once(model, x_t, t * t, t_prev * t_prev, cond, **kwargs)

    host, net = Squared(), sparse.Net()
    noise = torch.randn(1, 4, 3, 3, 3, generator=torch.Generator().manual_seed(2))
    arguments = dict(cond=torch.tensor(0.3), steps=25)
    plain = host.sample(net, noise, **arguments).samples
    with accelerate(host, budget=8) as handle:
        assert torch.equal(host.sample(net, noise, **arguments).samples, plain)
    report = handle.report
    assert report is not None and report.forwards == report.evaluations == 25
    assert "from here on every call is run" in report.reasons[0][1]


def test_a_sampler_outside_its_loop_is_its_own():
    case = sampler()
    x, net = torch.ones(1, 4, 3, 3, 3), sparse.Net()
    arguments = dict(neg_cond=torch.tensor(0.0), cfg_strength=2.0, cfg_interval=(0, 1))
    with accelerate(case.host, budget=8):
        for _ in range(2):
            case.host.sample_once(net, x, 0.5, 0.4, torch.tensor(0.1), **arguments)
        with_us = case.host.sample_once(net, x, 0.5, 0.4, torch.tensor(0.1), **arguments)
    without = case.host.sample_once(net, x, 0.5, 0.4, torch.tensor(0.1), **arguments)
    assert torch.equal(with_us.pred_x_prev, without.pred_x_prev)


def test_a_run_is_announced_in_the_log(caplog):
    for name in ("HY-Motion", "TRELLIS, sparse", "ACE-Step"):
        case = CASES[name]()
        with caplog.at_level("INFO", "geoshrink"), accelerate(case.host, budget=10):
            case.run()
        assert "geoshrink: 10 of" in caplog.text
        caplog.clear()


def runs_exactly(case: Case, reason: str, **options: Any) -> None:
    """Options that do not fit the run are no reason to break it off."""
    plain = case.run()
    with accelerate(case.host, **options) as handle:
        assert torch.equal(case.run(), plain)
    report = handle.report
    assert report is not None and report.evaluations == report.steps
    assert any(reason in why and "every stage is queried" in why for _, why in report.reasons)


def test_a_budget_below_the_number_of_regimes_runs_exactly():
    reason = "smaller than the number of regimes, 3"
    runs_exactly(CASES["TRELLIS, sparse"](), reason, budget=2, rule="hold")


@pytest.mark.parametrize("name", CASES)
def test_a_plan_for_another_grid_runs_exactly(name, caplog):
    plan = Plan.of([1 - i / 11 for i in range(12)], 6)
    runs_exactly(CASES[name](), "the plan was made for 11 stages", plan=plan)
    assert "this run is not accelerated" in caplog.text


def test_a_plan_must_know_the_regimes():
    case, times = (
        CASES["TRELLIS, sparse"](),
        [3 * u / (1 + 2 * u) for u in torch.linspace(1, 0, 26)],
    )
    with accelerate(case.host, plan=Plan.of(times, 10, regimes=(4, 19))) as handle:
        case.run()
    assert handle.report is not None and handle.report.evaluations == 10
    runs_exactly(case, "guidance switches at stage 4", plan=Plan.of(times, 10))


def test_samplers_that_changed_are_refused():
    class Renamed(sparse.Base):
        _inference_model = None

    class Other(sparse.Base):
        def sample(self, model, noise, cond=None, num_steps=50, **kwargs):
            return noise

    for host, found in (
        (Renamed(), r"a method _inference_model\(model, x_t, t, …\), found none"),
        (
            Other(),
            r"sample\(model, noise, steps.*found sample\(model, noise, cond, num_",
        ),
    ):
        with pytest.raises(TypeError, match=found):
            accelerate(host, budget=8)
        assert vars(host) == {}
    pipe = sparse.TrellisTextTo3DPipeline()
    pipe.__dict__["latent_sampler"] = pipe.__dict__.pop("slat_sampler")
    before = dict(vars(pipe))
    with pytest.raises(TypeError, match="slat_sampler, found sparse_structure_sampler, latent_sa"):
        accelerate(pipe, budget=8)
    assert vars(pipe) == before


# -- ACE-Step v1


def test_guidance_runs_at_every_step_of_a_song():
    """Each branch is v¹ + Δv at a skipped stage; momentum and scale are then the loop's own."""
    host = music.ACEStepPipeline()
    anchors = (0, 1, 2, 5, 6, 7, 12, 19)
    with accelerate(host, anchors=anchors, rule="fixed(1)") as handle:
        made = host()
    assert handle.report is not None
    assert handle.report.forwards == 8 + sum(5 <= n < 15 for n in anchors)

    net, kept = music.Transformer(), {}

    def decode(hidden_states, encoder_hidden_states, timestep):
        kept.setdefault("x", []).append(hidden_states)
        key, n = float(encoder_hidden_states.flatten()[0]), len({id(x) for x in kept["x"]}) - 1
        seen = kept.setdefault(key, [])
        if n in anchors:
            seen.append(net.decode(hidden_states, encoder_hidden_states, timestep).sample)
            return music.Output(sample=seen[-1])
        return music.Output(sample=seen[-1] + (seen[-1] - seen[-2] if len(seen) > 1 else 0))

    host.ace_step_transformer.__dict__["decode"] = decode
    assert torch.allclose(host(), made, atol=1e-6)


@pytest.mark.parametrize("scheduler", ["heun", "pingpong"])
def test_other_schedulers_of_a_song_run_exactly(scheduler):
    host = music.ACEStepPipeline()
    plain = host(scheduler_type=scheduler)
    with accelerate(host, budget=8) as handle:
        assert torch.equal(host(scheduler_type=scheduler), plain)
    assert handle.report is not None
    assert f"the {scheduler.replace('heun', 'Heun')} scheduler" in handle.report.reasons[0][1]


def test_a_song_without_guidance_or_guided_throughout():
    host = music.ACEStepPipeline()
    for arguments, forwards in (
        (dict(guidance_scale=1.0), 8),
        (dict(guidance_interval=1.0), 16),
    ):
        with accelerate(host, budget=8) as handle:
            host(**arguments)
        assert handle.report is not None
        assert handle.report.regimes == () and handle.report.forwards == forwards
        assert "auto (cells are not corrected: ACE-Step mixes branches" in handle.report.plan


def test_repainting_a_song():
    """The loop begins late and goes around the scheduler; only the new part is seen."""
    host = music.ACEStepPipeline()
    arguments = dict(retake_variance=0.875, repaint=(2, 6))
    plain = host(**arguments)
    with accelerate(host, budget=18):
        assert torch.equal(host(**arguments), plain)
    with accelerate(host, budget=8) as handle:
        made = host(**arguments)
    report = handle.report
    assert report is not None and (report.steps, report.evaluations) == (18, 8)
    assert report.regimes == (3, 13)
    assert torch.equal(made[..., 6:], plain[..., 6:]) and not torch.equal(made, plain)
    assert torch.equal(host(**arguments), plain)


def test_editing_a_song_is_left_alone(caplog):
    host = music.ACEStepPipeline()
    with accelerate(host, budget=8) as handle:
        host.flowedit_diffusion_process()
    assert not handle.reports and "it runs as it is" in caplog.text


def test_a_music_pipeline_that_changed_is_refused():
    class Renamed(music.ACEStepPipeline):
        text2music_diffusion_process: Any = None

    class Other(music.ACEStepPipeline):
        def text2music_diffusion_process(self, scheduler_type="euler", guidance_interval=0.5):
            return torch.zeros(1)

    for host, found in (
        (Renamed(), "expected a method text2music_diffusion_process"),
        (Other(), "found no i, timesteps, scheduler, start_idx"),
    ):
        before = dict(vars(host))
        with pytest.raises(TypeError, match=found):
            accelerate(host, budget=8)
        assert vars(host) == before

    host = music.ACEStepPipeline()
    host.ace_step_transformer.__dict__["decode"] = lambda x, prompt: x
    with (
        accelerate(host, budget=8),
        pytest.raises(TypeError, match=r"decode\(hidden_states.*found decode\(x, prompt\)"),
    ):
        host()


# -- denoisers


def denoiser(x: Tensor, sigma: Tensor, scale: float = 1.0) -> Tensor:
    """The data behind x, for data that are a mixture of two points."""
    level = sigma.reshape(-1, 1)
    return scale * torch.tanh(x / (level**2 + 0.1)) * 0.8


def k_euler(model, x, sigmas, **more):
    for now, then in pairwise(sigmas):
        d = (x - model(x, now.expand(len(x)), **more)) / now
        x = x + (then - now) * d
    return x


def k_heun(model, x, sigmas):
    for now, then in pairwise(sigmas):
        d = (x - model(x, now.expand(len(x)))) / now
        ahead = x + (then - now) * d
        if then > 0:
            d = (d + (ahead - model(ahead, then.expand(len(x)))) / then) / 2
        x = x + (then - now) * d
    return x


def k_dpmpp_2m(model, x, sigmas):
    before = None
    for n in range(len(sigmas) - 1):
        now, then = sigmas[n], sigmas[n + 1]
        data = model(x, now.expand(len(x)))
        h = now.log() - then.log()
        mixed = data
        if before is not None and then > 0:
            r = (sigmas[n - 1].log() - now.log()) / h
            mixed = (1 + 1 / (2 * r)) * data - before / (2 * r)
        x = then / now * x - torch.expm1(-h) * mixed
        before = data
    return x


LEVELS = torch.cat([torch.logspace(1, -1.5, 24), torch.zeros(1)])
FLOW = torch.linspace(1, 0, 25)


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("sampler", [k_euler, k_dpmpp_2m])
@pytest.mark.parametrize("levels", [LEVELS, FLOW])
def test_a_denoiser(sampler, levels, space):
    noise = levels[0] * torch.randn(3, 5, generator=torch.Generator().manual_seed(4))
    calls = []

    def model(x, sigma):
        calls.append(1)
        return denoiser(x, sigma)

    plain = sampler(denoiser, noise, levels)
    assert torch.equal(sampler(denoised.wrap(model, levels, budget=24), noise, levels), plain)
    calls.clear()
    wrapped = denoised.wrap(model, levels, budget=12, space=space)
    made = [sampler(wrapped, noise, levels) for _ in range(2)]
    assert torch.equal(*made) and len(calls) == 24 and wrapped.report.evaluations == 12
    assert not wrapped.report.extra
    assert (made[0] - plain).norm() < 0.2 * plain.norm()


def test_a_denoiser_predicts_d_or_the_data():
    """With ω = 1 a skipped stage is d¹ + Δd, or the data prediction likewise."""
    anchors = (0, 1, 2, 23)
    noise = 10 * torch.randn(2, 5, generator=torch.Generator().manual_seed(4))
    x = [noise]
    for n in range(3):
        x.append(k_euler(denoiser, x[-1], LEVELS[n : n + 2]))
    data = [denoiser(x[n], LEVELS[n].expand(2)) for n in range(3)]
    d = [(x[n] - data[n]) / LEVELS[n] for n in range(3)]
    expected = {"output": x[3] - LEVELS[3] * (2 * d[2] - d[1]), "data": 2 * data[2] - data[1]}
    for space, wanted in expected.items():
        wrapped = denoised.wrap(denoiser, LEVELS, anchors=anchors, rule="fixed(1)", space=space)
        for n in range(3):
            assert torch.equal(wrapped(x[n], LEVELS[n].expand(2)), data[n])
        assert torch.allclose(wrapped(x[3], LEVELS[3].expand(2)), wanted, atol=1e-5)


@pytest.mark.parametrize("level", [torch.float32, torch.float64])
def test_a_denoiser_keeps_its_dtype(level):
    def half(x, sigma):
        return denoiser(x, sigma).half()

    wrapped, x = denoised.wrap(half, LEVELS, budget=8), 10 * torch.ones(2, 5).half()
    for sigma in LEVELS[:-1]:
        assert wrapped(x, sigma.to(level).expand(2)).dtype == torch.float16
        assert wrapped.report.evaluations <= 8
    scalar = denoised.wrap(lambda x, s: denoiser(x, torch.tensor([s])), LEVELS, budget=8)
    assert all(scalar(x, float(sigma)).isfinite().all() for sigma in LEVELS[:-1])
    assert scalar.report.evaluations == wrapped.report.evaluations == 8


@pytest.mark.parametrize("kind", ["odeint", "denoised"])
def test_one_wrapped_function_in_two_threads(kind):
    """Their calls are interleaved one by one; each has its own runs and its own report."""
    turn = threading.Barrier(2)
    if kind == "odeint":
        times, wrapped = TIMES, ode.wrap(field, TIMES, budget=8)
        call, starts = wrapped, [start(), 2 * start()]
    else:
        times, wrapped = LEVELS, denoised.wrap(lambda x, s: denoiser(x, s).to(x), LEVELS, budget=8)
        call, starts = (lambda t, x: wrapped(x, t.expand(2))), [torch.ones(2, 5), torch.ones(2, 5)]
        starts[1] = starts[1].double()

    def run(x: Tensor, wait: bool) -> list[Tensor]:
        made = []
        for t in times[:-1]:
            made.append(call(t, x))
            x = x + 0.01 * made[-1]
            if wait:
                turn.wait(20)
        assert wrapped.report.evaluations == 8 and not wrapped.report.reasons
        return made

    alone = [run(x, False) for x in starts]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda x: run(x, True), starts))
    for one, other in zip(alone, together):
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other))


def test_the_report_of_another_thread():
    wrapped = ode.wrap(field, TIMES, budget=8)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(torchdiffeq.odeint, wrapped, start(), TIMES, method="euler").result()
        assert pool.submit(lambda: wrapped.report.evaluations).result() == 8
    assert wrapped.report.evaluations == copy.deepcopy(wrapped).report.evaluations == 8


def test_a_solver_that_calls_twice_runs_the_model():
    noise, wrapped = 10 * torch.ones(1, 5), denoised.wrap(denoiser, LEVELS, budget=8)
    assert torch.equal(k_heun(wrapped, noise, LEVELS), k_heun(denoiser, noise, LEVELS))
    report = wrapped.report
    assert report.evaluations == 47 and "where" in report.reasons[0][1]


def test_a_denoiser_passes_arguments_and_attributes_on():
    class Model:
        sigma_max = 10.0

        def __call__(self, x, sigma, scale):
            return denoiser(x, sigma, scale)

    wrapped = denoised.wrap(Model(), LEVELS, budget=24)
    assert wrapped.sigma_max == 10.0 and not hasattr(wrapped, "sigma_min")
    noise = 10 * torch.ones(1, 5)
    made = k_euler(wrapped, noise, LEVELS, scale=0.5)
    assert torch.equal(made, k_euler(denoiser, noise, LEVELS, scale=0.5))


def test_a_denoiser_needs_a_grid():
    with pytest.raises(ValueError, match="at least two values"):
        denoised.wrap(lambda x, sigma: x, [], budget=4)


def test_the_wrapper_is_there_as_documented():
    code = "import geoshrink; geoshrink.hosts.denoised.wrap(lambda x, s: x, [2, 1, 0], 2)"
    subprocess.run([sys.executable, "-c", code], check=True)
