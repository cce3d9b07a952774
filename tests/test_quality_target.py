"""A run that holds a quality: target_db for Run, sample, odeint and accelerate; what is refused."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from geoshrink import Blocks, Correction, Plan, Report, Run, accelerate, odeint, sample
from geoshrink.aim import PRIOR, Aim, first_budget
from geoshrink.hosts import acestep
from geoshrink.quality import Goal
from watched import linear

STEPS = 50
SIGMAS = linear(STEPS)
BENT = [s**1.5 for s in SIGMAS]
WEIGHT = torch.randn(6, 6, generator=torch.Generator().manual_seed(0)).double() * 0.7
TARGETS = (10, 20, 30, 40, 50, 60)
torch.set_num_threads(1)


class Counted:
    """A smooth velocity that writes down where it was called, and does not let itself be called
    without end.
    """

    def __init__(self, rate: float = 1.0, most: int = STEPS):
        self.rate, self.most, self.at = rate, most, []

    def __call__(self, x: Any, sigma: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(self(t, s) for t, s in zip(x, sigma))
        assert len(self.at) < 2 * self.most, "more calls than stages"
        self.at.append(sigma)
        return self.rate * torch.tanh(x @ WEIGHT.to(x.dtype) * (1 + sigma)) + sigma * x

    @property
    def stages(self) -> tuple[int, ...]:
        return tuple(round((1 - s) * self.most) for s in self.at)


def noise(samples: int = 3, seed: int = 1) -> Tensor:
    return torch.randn(samples, 6, generator=torch.Generator().manual_seed(seed)).double()


def held(db: float, x: Any = None, velocity: Any = None, sigmas: Any = SIGMAS, **options: Any):
    """(x, report, velocity) of sample() with a target."""
    velocity = Counted() if velocity is None else velocity
    options = dict(dtype=torch.float64, with_report=True) | options
    found, report = sample(velocity, noise() if x is None else x, sigmas, target_db=db, **options)
    return found, report, velocity


def walked(run: Run, x: Tensor, velocity: Any, sigmas: Any = SIGMAS) -> Tensor:
    for n in range(run.steps):
        x = x + (sigmas[n + 1] - sigmas[n]) * run(n, partial(velocity, x, sigmas[n]), x)
    return x


def decibels(found: Tensor, full: Tensor) -> float:
    ends = [t.flatten(1).square().sum(1) for t in (full, found - full)]
    return float((10 * torch.log10(ends[0] / ends[1])).mean())


# --- more for more --------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["euler", "ab2", "dpm++2m"])
def test_a_higher_target_makes_more_calls_and_comes_closer(solver):
    full = sample(Counted(), noise(), SIGMAS, solver=solver)
    calls, close = [], []
    for db in TARGETS:
        x, report, velocity = held(db, solver=solver)
        assert report.queried == velocity.stages and report.extra == ()
        assert f"to hold {db} dB" in report.plan
        calls.append(len(velocity.at))
        close.append(decibels(x, full))
    assert calls == sorted(calls) and calls[0] < 8 and calls[-1] > 20
    apart = close[::2]  # twenty decibels: of close targets one may place its anchors better
    assert apart == sorted(apart) and apart[-1] > apart[0] + 20
    assert all(true > db - 5 for true, db in zip(close, TARGETS))


@pytest.mark.parametrize("options", [dict(correct=False), dict(space="data"), dict(rule="chordal")])
def test_other_methods_hold_a_quality_too(options):
    full, calls, close = sample(Counted(), noise(), SIGMAS), [], []
    for db in (15, 30, 45):
        x, report, velocity = held(db, **options)
        assert report.queried == velocity.stages
        calls.append(len(velocity.at))
        close.append(decibels(x, full))
    assert calls == sorted(calls) and calls[-1] > calls[0]
    assert close == sorted(close) and close[-1] > close[0] + 10


def test_a_model_that_turns_is_called_more_often_than_one_that_hardly_changes():
    class Turning(Counted):
        def __call__(self, x, sigma):
            self.at.append(sigma)
            return torch.cos(self.rate * sigma + x)

    slow, fast = (len(held(30, velocity=Turning(rate))[2].at) for rate in (0.01, 40.0))
    assert fast > slow


def test_thirty_toys_hold_it_on_average():
    off = []
    for seed in range(30):
        velocity, x = Counted(rate=0.2 + seed / 10), noise(2, seed)
        full = sample(Counted(velocity.rate), x, SIGMAS)
        off.append(decibels(held(30, x, velocity)[0], full) - 30)
    assert -3 < sum(off) / len(off) < 25


def test_the_first_guess_is_the_least_budget_that_the_prior_expects_to_do():
    for db, steps in itertools.product((15, 25, 35), (20, 50, 100)):
        budget = Plan.of(linear(steps), target_db=db).budget
        expected = [
            PRIOR.base
            + PRIOR.per_log * math.log(b)
            + PRIOR.per_stages * math.log(steps)
            + PRIOR.per_share * b / steps
            for b in range(4, steps)
        ]
        least = next((b for b, e in enumerate(expected, 4) if e >= db), steps - 1)
        assert budget == first_budget(db, steps, 4) == least


# --- most and judge -------------------------------------------------------------------------------


def test_most_caps_the_calls_and_the_report_says_so():
    _, report, velocity = held(60, most=10)
    assert len(velocity.at) <= 10
    told = [why for _, why in report.reasons]
    assert told == ["60 dB, 10 calls at most: more calls are expected to be needed"]
    assert told[0] in str(report)


def test_a_cap_that_is_not_needed_changes_nothing():
    free, capped = held(20), held(20, most=40)
    assert torch.equal(free[0], capped[0]) and free[1].queried == capped[1].queried
    assert capped[1].reasons == ()


@pytest.mark.parametrize("most", range(4, 20))
def test_no_cap_is_exceeded(most):
    assert len(held(55, most=most)[2].at) <= most
    assert len(held(12, most=most)[2].at) <= most


@pytest.mark.parametrize("db", [15, 30, 45])
def test_the_worst_sample_never_asks_for_fewer_calls_than_the_mean(db):
    x = noise(6) * torch.tensor([0.05, 0.3, 1, 1, 2, 6])[:, None].double()
    mean, worst = (len(held(db, x, judge=judge)[2].at) for judge in ("mean", "worst"))
    assert worst >= mean


def test_some_batch_asks_for_more_calls_by_its_worst_sample():
    x = noise(6) * torch.tensor([0.05, 0.3, 1, 1, 2, 6])[:, None].double()
    pairs = [[len(held(db, x, judge=j)[2].at) for j in ("mean", "worst")] for db in TARGETS]
    assert any(worst > mean for mean, worst in pairs)


# --- what a run with a target is ------------------------------------------------------------------


def test_a_loop_of_ones_own_is_sample():
    x, report, velocity = held(30)
    run, own = Run(SIGMAS, target_db=30, solver="euler", dtype=torch.float64), Counted()
    assert torch.allclose(walked(run, noise(), own), x, atol=1e-12)
    assert own.stages == velocity.stages == run.report.queried == report.queried
    assert run.report.estimated_db == pytest.approx(report.estimated_db, abs=1e-6)


def test_stage_by_stage_is_the_same():
    x, report, _ = held(30)
    found, told, _ = held(30, callback=lambda n, x: None)
    assert torch.allclose(found, x, atol=1e-12) and told.queried == report.queried


def test_a_second_run_starts_afresh():
    run = Run(SIGMAS, target_db=30, solver="euler")
    first = walked(run, noise(), Counted())
    report, plan = run.report, run.plan
    assert (
        run._guide is not None and report.queried != run._guide.first.anchors
    )  # it went on with others
    walked(run, noise(2, 7) * 9, Counted(3.0))
    assert run.report.queried != report.queried
    assert torch.equal(walked(run, noise(), Counted()), first)
    assert run.report == report and run.plan == plan


def test_a_run_that_was_left_starts_afresh():
    run = Run(SIGMAS, target_db=30, solver="euler")
    first, report, x = walked(run, noise(), Counted()), run.report, noise(3, 5) * 4
    for n in range(20):
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * run(n, partial(Counted(), x, SIGMAS[n]), x)
    assert torch.equal(walked(run, noise(), Counted()), first) and run.report == report


@pytest.mark.parametrize("db", [18, 33, 45])
@pytest.mark.parametrize(
    "correct", [False, "linear", 0.4, Correction("half", 0.0), Correction("half", 0.5)], ids=str
)
def test_the_result_is_that_of_the_anchors_it_ended_with(db, correct):
    """Of corrections that were asked for, whose caution is not the default's to choose."""
    x, report, _ = held(db, correct=correct)
    clock = "sigma" if correct is False else "mesh"
    options = dict(anchors=report.queried, correct=correct, clock=clock, dtype=torch.float64)
    again, told = sample(Counted(), noise(), SIGMAS, with_report=True, **options)
    assert torch.allclose(again, x, rtol=0, atol=1e-12)
    assert told.estimated_db == pytest.approx(report.estimated_db, abs=1e-6)


@pytest.mark.parametrize("db", [90, 120, 300])
@pytest.mark.parametrize("way", ["leaps", "stages", "run"])
def test_an_absurd_target_is_the_full_run_or_nearly(db, way):
    full, velocity = sample(Counted(), noise(), SIGMAS), Counted()
    if way == "run":
        run = Run(SIGMAS, target_db=db, solver="euler")
        x, report = walked(run, noise(), velocity), run.report
    else:
        more = {} if way == "leaps" else {"callback": lambda n, x: None}
        x, report, _ = held(db, velocity=velocity, **more)
    assert x.isfinite().all() and decibels(x, full) > 70
    assert velocity.stages == report.queried and len(velocity.at) <= STEPS
    assert len(velocity.at) >= 45 and not report.extra


@pytest.mark.parametrize("db", [5, 30, 300])
@pytest.mark.parametrize("steps", range(1, 9))
def test_short_grids(steps, db):
    velocity = Counted(most=steps)
    x, report, _ = held(db, velocity=velocity, sigmas=linear(steps))
    assert velocity.stages == report.queried and min(4, steps) <= len(velocity.at) <= steps
    assert x.isfinite().all()
    if len(velocity.at) == steps:
        assert torch.equal(x, sample(Counted(), noise(), linear(steps)))
        assert report.estimated_db == math.inf


def test_two_slots_on_two_grids():
    calls, full = [], sample(Counted(), (noise(), 2 * noise()), (SIGMAS, BENT))
    for db in (10, 25, 40):
        velocity = Counted(most=2 * STEPS)
        x, report, _ = held(db, (noise(), 2 * noise()), velocity, (SIGMAS, BENT))
        assert len(velocity.at) == 2 * report.evaluations and report.extra == ()
        assert {row.slot for row in report.stages} == {0, 1}
        calls.append(report.evaluations)
    assert calls == sorted(calls) and calls[0] < calls[-1]
    assert min(decibels(a, b) for a, b in zip(x, full)) > 30


@pytest.mark.parametrize("regimes", [(20,), (7, 8, 33), (1, 49)])
def test_every_regime_begins_with_a_call(regimes):
    for db in (10, 30, 60):
        x, report, velocity = held(db, regimes=regimes)
        assert {0, *regimes} <= set(velocity.stages) and report.queried == velocity.stages
        assert x.isfinite().all() and report.regimes == regimes


def test_stages_of_zero_length_change_nothing():
    x, report, _ = held(30)
    for sigmas in ([1.0, *SIGMAS], [*SIGMAS, 0.0]):
        found, told, _ = held(30, sigmas=sigmas)
        assert torch.equal(found, x) and told.queried == report.queried


@pytest.mark.parametrize("options", [dict(blocks=Blocks((0, 1))), dict(mask=noise()[:1] > -0.5)])
def test_blocks_and_masks(options):
    _, report, velocity = held(30, **options)
    assert report.queried == velocity.stages and report.estimated_db > 22


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(dtype):
    x, report, velocity = held(25, noise().to(dtype), dtype=torch.float32)
    assert x.dtype == dtype and report.queried == velocity.stages and len(velocity.at) < 20


def test_noise_predictions():
    low = [0.98 * s for s in SIGMAS]
    counts = []
    for db in (10, 30, 50):
        velocity = Counted()
        _, report, _ = held(db, velocity=velocity, sigmas=low, prediction="epsilon", alphas="vp")
        counts.append(len(velocity.at))
        assert counts[-1] == report.evaluations
    assert counts == sorted(counts) and counts[0] < counts[-1]


def test_rules_of_single_anchors_go_on_with_the_last():
    plan = Plan.of(SIGMAS, target_db=20)
    rules = (*plan.rules[:-1], replace(plan.rules[-1], name="chordal", signed=False))
    run = Run(replace(plan, rules=rules), solver="euler")
    walked(run, noise(), Counted())
    assert len(run.plan.rules) == run.plan.budget


# --- what can happen to it ------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("call", [0, 1, 2, 5])
@pytest.mark.parametrize("correct", [None, False])
def test_an_output_that_is_not_finite_is_reported_and_does_not_crash(call, value, correct):
    class Spoilt(Counted):
        def __call__(self, x, sigma):
            out = super().__call__(x, sigma)
            return torch.where(torch.tensor(len(self.at) == call + 1), value, out)

    _, report, velocity = held(30, velocity=Spoilt(), correct=correct)
    assert report.queried == velocity.stages and report.estimated_db is None
    assert report.doubtful and any("not finite" in why for _, why in report.reasons)
    assert len(velocity.at) <= STEPS


def test_an_empty_batch_runs_through():
    assert held(30, noise(0))[0].shape == (0, 6)


def test_data_that_is_zero_does_not_crash():
    velocity = lambda x, s: torch.zeros_like(x)  # noqa: E731
    x, report, _ = held(30, torch.zeros(2, 6).double(), velocity)
    assert not x.any() and report.evaluations <= STEPS


def test_an_exception_of_the_model_comes_through_and_the_next_run_is_whole():
    run = Run(SIGMAS, target_db=30, solver="euler")
    first = walked(run, noise(), Counted())

    def broken(x, sigma):
        if sigma < 0.8:
            raise RuntimeError("broken")
        return Counted()(x, sigma)

    with pytest.raises(RuntimeError, match="broken"):
        walked(run, noise(), broken)
    assert torch.equal(walked(run, noise(), Counted()), first)


def test_a_regime_that_nobody_planned():
    run, velocity, x = Run(SIGMAS, target_db=30, solver="euler"), Counted(), noise()
    for n in range(STEPS):
        v = run(n, partial(velocity, x, SIGMAS[n]), x, regime=n >= 23)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
    report = run.report
    assert sorted((*report.queried, *report.extra)) == [*velocity.stages] and 23 in velocity.stages
    assert x.isfinite().all()


def test_another_batch_on_the_way_does_not_crash():
    run, velocity, x = Run(SIGMAS, target_db=30, solver="euler"), Counted(), noise(4)
    for n in range(STEPS):
        x = x[:2] if n == 20 else x
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * run(n, partial(velocity, x, SIGMAS[n]), x)
    assert x.shape == (2, 6) and x.isfinite().all() and run.report.estimated_db is None


@pytest.mark.parametrize("back", [1, 5, 15])
def test_a_loop_that_goes_back_is_told_and_goes_on(back):
    run, x, n, turned = Run(SIGMAS, target_db=30, solver="euler"), noise(), 0, False
    while n < STEPS:
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * run(n, partial(Counted(), x, SIGMAS[n]), x)
        n += 1
        if n == 30 and not turned:
            n, turned = n - back, True
    assert any("called again" in why for _, why in run.report.reasons) and x.isfinite().all()


def test_a_target_reads_the_device_once_for_every_anchor(monkeypatch):
    run, read, x, velocity = Run(SIGMAS, target_db=30, solver="euler"), [], noise(), Counted()
    for name in ("tolist", "item", "__bool__"):
        plain = getattr(Tensor, name)
        spy = lambda t, plain=plain: (read.append(stage), plain(t))[1]  # noqa: E731
        monkeypatch.setattr(Tensor, name, spy)
    for stage in range(STEPS):
        v = run(stage, partial(velocity, x, SIGMAS[stage]), x)
        x = x + (SIGMAS[stage + 1] - SIGMAS[stage]) * v
    assert read and len(set(read)) <= len(velocity.at)


def test_with_anchors_of_its_own_nothing_is_read_on_the_way(monkeypatch):
    run = Run(replace(Plan.of(SIGMAS, 8), slow=()), solver="euler")
    velocity, x = Counted(), noise()
    monkeypatch.setattr(Tensor, "tolist", lambda self: pytest.fail("the device was asked"))
    monkeypatch.setattr(Tensor, "item", lambda self: pytest.fail("the device was asked"))
    assert walked(run, x, velocity).isfinite().all()


def test_two_threads_do_not_disturb_each_other():
    cases = [(20, 1.0), (40, 1.0), (30, 3.0), (25, 0.3)] * 2
    alone = [held(db, velocity=Counted(rate))[:2] for db, rate in cases]
    found: dict[int, Any] = {}
    wait = threading.Barrier(len(cases))

    def work(i: int) -> None:
        db, rate = cases[i]
        wait.wait()
        found[i] = held(db, velocity=Counted(rate))[:2]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(cases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (x, report) in enumerate(alone):
        assert torch.equal(found[i][0], x) and found[i][1].queried == report.queried


# --- plans as data --------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, dict(most=20), dict(judge="worst", correct=False)])
def test_a_plan_with_an_aim_goes_to_json_and_back(more):
    plan = Plan.of(SIGMAS, target_db=30, **more)
    body = json.loads(plan.to_json())
    assert body["aim"]["db"] == 30.0 and body["aim"]["most"] == more.get("most")
    back = Plan.from_json(plan.to_json())
    assert back == plan and hash(back) == hash(plan) and isinstance(back.aim, Aim)
    assert "aim" not in json.loads(Plan.of(SIGMAS, 8).to_json())
    ours, theirs = (sample(Counted(), noise(), plan=p, with_report=True) for p in (plan, back))
    assert torch.equal(ours[0], theirs[0]) and ours[1] == theirs[1]
    own = held(30, dtype=torch.float32, **more)
    assert torch.equal(own[0], ours[0])


def test_a_damaged_aim_is_refused():
    body = json.loads(Plan.of(SIGMAS, target_db=30).to_json())
    for aim in ({"db": -3}, {"db": 30, "judge": "nobody"}, {"decibels": 30}, 30):
        with pytest.raises(ValueError, match="damaged"):
            Plan.from_json(json.dumps(body | {"aim": aim}))


def pickled(run: Run) -> Run:
    return pickle.loads(pickle.dumps(run))


@pytest.mark.parametrize(
    "copied, until", [(pickled, 0), *((copy.deepcopy, until) for until in (0, 12, STEPS))]
)
def test_a_copy_of_a_run_goes_on_like_the_run(copied, until):
    run, velocity, x = Run(SIGMAS, target_db=30, solver="euler"), Counted(), noise()
    expected = walked(Run(SIGMAS, target_db=30, solver="euler"), x, Counted())
    for n in range(until):
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * run(n, partial(velocity, x, SIGMAS[n]), x)
    twin = copied(run)
    for n in range(until, STEPS):
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * twin(n, partial(velocity, x, SIGMAS[n]), x)
    assert torch.equal(x, expected) and twin.report.queried == velocity.stages
    assert torch.equal(walked(twin, noise(), Counted()), expected)


def test_what_an_aim_says():
    assert str(Aim(30)) == "30 dB" and str(Aim(27.5, most=12)) == "27.5 dB, 12 calls at most"
    assert str(Aim(30, judge="worst")) == "30 dB of the worst sample"


# --- odeint and pipelines -------------------------------------------------------------------------


def test_odeint_holds_a_quality():
    pytest.importorskip("torchdiffeq")
    grid, calls = torch.tensor(SIGMAS, dtype=torch.float64), []
    for db in (10, 30, 50):
        velocity = Counted()
        func = lambda t, y, velocity=velocity: velocity(y, float(t))  # noqa: E731
        options: Any = dict(target_db=db, with_report=True, dtype=torch.float64)
        found, report = odeint(func, noise(), grid, **options)
        assert report.queried == velocity.stages
        assert torch.allclose(found[-1], held(db)[0], atol=1e-12)
        calls.append(len(velocity.at))
    assert calls == sorted(calls) and calls[0] < calls[-1]


def pipeline(name: str) -> tuple[Any, dict[str, Any], nn.Module]:
    """A tiny pipeline, its arguments, its denoiser."""
    image = pytest.importorskip("hosts.image")
    pipe, kwargs = image.PIPELINES[name]()
    return pipe, kwargs, pipe.unet if hasattr(pipe, "unet") else pipe.transformer


def made(pipe: Any, kwargs: dict[str, Any], **options: Any) -> tuple[Tensor, Report | None]:
    image = pytest.importorskip("hosts.image")
    if not options:
        return image.run(pipe, kwargs, steps=30), None
    with accelerate(pipe, **options) as handle:
        return image.run(pipe, kwargs, steps=30), handle.report


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["FluxPipeline", "StableDiffusionPipeline"])
def test_a_pipeline_holds_a_quality(name):
    pipe, kwargs, net = pipeline(name)
    full, calls, close = made(pipe, kwargs)[0], [], []
    count: list[int] = []
    net.register_forward_pre_hook(lambda module, args: count.append(1))
    for db in (15, 30, 50):
        count.clear()
        x, report = made(pipe, kwargs, target_db=db)
        assert report is not None and len(count) == report.evaluations == report.forwards
        assert report.estimate.psnr is None and f"to hold {db} dB" in report.plan
        calls.append(report.evaluations)
        close.append(decibels(x.double(), full.double()))
    assert calls == sorted(calls) and 4 <= calls[0] < calls[-1] <= 30
    assert close == sorted(close) and close[-1] > 40
    x, report = made(pipe, kwargs, target_db=50, most=7)
    assert report is not None and report.evaluations <= 7
    assert any("more calls are expected to be needed" in why for _, why in report.reasons)


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_of_pixels_has_a_psnr():
    d = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    blocks = dict(down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",))
    sizes = dict(sample_size=8, block_out_channels=(8,), layers_per_block=1, norm_num_groups=4)
    net = d.UNet2DModel(in_channels=3, out_channels=3, **sizes, **blocks).eval()
    pipe = d.DDIMPipeline(net, d.DDIMScheduler(clip_sample=False))
    pipe.set_progress_bar_config(disable=True)
    for options in (dict(budget=8), dict(target_db=20)):
        with accelerate(pipe, **options) as handle:
            pipe(batch_size=2, num_inference_steps=20, generator=torch.Generator().manual_seed(0))
            e: Any = handle.report and handle.report.estimate
        assert e.psnr == pytest.approx(e.db + 6.0206 - e.energy, abs=1e-3)
        assert str(e).endswith(f", PSNR of the pictures about {e.psnr:.0f}")


class Two:
    """A loop whose denoiser says two things, for a scheduler each."""

    def __init__(self) -> None:
        d = pytest.importorskip("diffusers")
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12))
        self.scheduler = d.FlowMatchEulerDiscreteScheduler()
        self.other = d.FlowMatchEulerDiscreteScheduler(shift=3.0)

    def __call__(self) -> Tensor:
        self.scheduler.set_timesteps(30)
        self.other.set_timesteps(30)
        a, b = noise().float(), noise(3, 2).float()
        with torch.no_grad():
            for t, u in zip(self.scheduler.timesteps, self.other.timesteps):
                v, w = self.net(a + b).chunk(2, -1)
                a, b = self.scheduler.step(v, t, a)[0], self.other.step(w, u, b)[0]
        return torch.cat([a, b], -1)


def test_a_second_scheduler_follows_the_anchors_of_the_first():
    pipe, calls, close = Two(), [], []
    full, count = pipe(), []
    pipe.net.register_forward_pre_hook(lambda module, args: count.append(1))
    for db in (10, 30, 60):
        count.clear()
        with accelerate(pipe, denoisers=["net"], target_db=db) as handle:
            x = pipe()
            report = handle.report
        assert report is not None and len(count) == report.evaluations and report.extra == ()
        calls.append(len(count))
        close.append(decibels(x, full))
    assert calls == sorted(calls) and calls[0] < calls[-1] and max(close) == close[-1]


def test_a_state_that_is_changed_between_the_steps_is_not_corrected_and_that_is_said():
    d, corrected = pytest.importorskip("diffusers"), pytest.importorskip("corrected")
    make, between = d.FlowMatchEulerDiscreteScheduler, lambda n, x: x + 0.0
    for options in (dict(budget=5), dict(target_db=10)):
        _, report = corrected.run(make, between, **options)
        assert "(cells are not corrected: the state was changed between the steps)" in report.plan
        assert "corrected (half" not in report.plan and "clock" not in report.plan
        assert all(row.correction is None for row in report.stages)


@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_runs_again_and_again_with_its_target():
    pipe, kwargs, _ = pipeline("FluxPipeline")
    with accelerate(pipe, target_db=30) as handle:
        image = pytest.importorskip("hosts.image")
        found = [image.run(pipe, kwargs, steps=30) for _ in range(2)]
        assert torch.equal(*found) and len({report.queried for report in handle.reports}) == 1


def test_music_of_acestep_refuses_it():
    with pytest.raises(ValueError, match=r"target_db=30 cannot be held.*give a budget"):
        acestep.attach(object(), target_db=30)
    with pytest.raises(ValueError, match=r"target_db=30\.0 cannot be held.*give a budget"):
        acestep.attach(object(), plan=Plan.of(SIGMAS, target_db=30))


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # diffusers' own
def test_a_scheduler_with_two_outputs_a_stage_runs_exactly_and_says_why():
    d = pytest.importorskip("diffusers")
    from tiny_pipelines import call, tiny

    pipe, kwargs = tiny("StableDiffusionPipeline")
    pipe.scheduler = d.HeunDiscreteScheduler()
    with accelerate(pipe, target_db=30) as handle:
        call(pipe, kwargs)
        report = handle.report
    assert report is not None and not report.predicted and report.estimated_db == math.inf
    assert any("needs one output a stage" in why for _, why in report.reasons)


# --- bad input ------------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], str]] = [
    (dict(target_db=math.nan), "target_db is a positive number of decibels, got nan"),
    (dict(target_db=math.inf), "got inf"),
    (dict(target_db=0), "got 0"),
    (dict(target_db=-3.5), r"got -3\.5"),
    (dict(target_db=True), "got True"),
    (dict(target_db="30"), "got '30'"),
    (dict(target_db=[30]), r"got \[30\]"),
    (dict(target_db=30, budget=8), r"target_db=30 .*leave out budget or speedup \(8\); most=8"),
    (dict(target_db=30, speedup=3.0), r"target_db=30 .*leave out budget or speedup \(3\.0\)"),
    (dict(target_db=30, anchors=(0, 3, 9)), r"places the anchors itself: leave out \(0, 3, 9\)"),
    (dict(target_db=30, anchors=[0, 3, 9]), r"places the anchors itself: leave out \[0, 3, 9\]"),
    (
        dict(target_db=30, target="flow"),
        "target_db=30 is a distance to the full run; target='fl",
    ),
    (dict(target_db=30, refine=4), "refine=4 aim at the exact flow: give a budget"),
    (dict(target_db=30, anchors="nowhere"), "nowhere"),
    (dict(target_db=30, most=3), "most=3 is too few: a run needs at least 4 calls"),
    (dict(target_db=30, most=1), "most is a number of calls, 2 or more, got 1"),
    (dict(target_db=30, most=2.5), r"most.*2\.5"),
    (dict(target_db=30, most=True), "most.*True"),
    (dict(target_db=30, most="9"), "most.*'9'"),
    (dict(target_db=30, judge="best"), "unknown judge 'best'; choose one of mean, worst"),
    (dict(target_db=30, judge=None), "unknown judge None"),
    (dict(most=9), "most=9 and judge='mean' go with target_db"),
    (dict(most=9, budget=8), "most=9 .*go with target_db: give the dB to reach, or a budget alone"),
    (dict(judge="worst", budget=8), "judge='worst' go with target_db"),
]


def rejected(message: str, act: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        act()


@pytest.mark.parametrize("options, message", BAD)
def test_bad_input_is_quoted(options, message):
    rejected(message, lambda: Plan.of(SIGMAS, **options))
    rejected(message, lambda: Run(SIGMAS, solver="euler", **options))
    rejected(message, lambda: sample(Counted(), noise(), SIGMAS, **options))
    rejected(message, lambda: accelerate(nothing(), denoisers=["net"], **options))


def nothing() -> Any:
    return Two()


def test_most_must_leave_a_call_for_every_regime():
    message = "most=5 is too few: a run needs at least 6 calls"
    rejected(message, lambda: held(30, most=5, regimes=(5, 10, 15, 20, 25)))


def test_a_target_needs_the_noise_levels():
    grid = [3 - s for s in SIGMAS]
    rejected("target_db=30 needs the noise levels", lambda: Run(grid, target_db=30))
    rejected("target_db=30 needs the noise levels", lambda: held(30, sigmas=grid))


def test_a_target_needs_the_state():
    run = Run(SIGMAS, target_db=30, solver="euler")
    rejected(r"target_db=30 needs the state: run\(n, evaluate, x\)", lambda: run(0, noise))


def test_a_target_goes_with_no_reserve():
    message = "reserve=2 and target_db=30 both decide on further queries"
    rejected(message, lambda: held(30, reserve=2))
    rejected(message, lambda: Run(Plan.of(SIGMAS, target_db=30), reserve=2))


def test_a_target_goes_with_no_heun():
    rejected("target_db needs one evaluation a stage, not 'heun'", lambda: held(30, solver="heun"))


def test_a_plan_leaves_no_target_to_choose():
    plan = Plan.of(SIGMAS, 8)
    message = "a plan decides everything: leave out target_db"
    rejected(message, lambda: Run(plan=plan, target_db=30))
    rejected(message, lambda: sample(Counted(), noise(), plan=plan, target_db=30))
    rejected(message, lambda: accelerate(nothing(), denoisers=["net"], plan=plan, target_db=30))


def test_blocks_over_the_samples_are_refused():
    rejected("blocks=Blocks", lambda: held(30, blocks=Blocks((1,))))


def test_a_regime_of_the_loops_own_keeps_what_was_seen():
    run, x, velocity = Run(SIGMAS, target_db=30, solver="euler"), noise(), Counted()
    for n in range(20):
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * run(n, partial(velocity, x, SIGMAS[n]), x, regime=0)
    goal = run._guide
    assert isinstance(goal, Goal) and goal.slots
    seen = goal.slots
    run.queries(20, x, regime=1)
    assert goal.slots is seen


def test_who_follows_another_plan_still_holds_its_own_quality():
    run, velocity, x = Run(SIGMAS, target_db=20, solver="euler"), Counted(), noise()
    run(0, partial(velocity, x, SIGMAS[0]), x)
    run.follow(Plan.of(SIGMAS, anchors=[0, 1, 2, 4, 8], correct=True))
    with pytest.raises(ValueError, match="target_db=20 needs the state"):
        run(1, partial(velocity, x, SIGMAS[1]))
