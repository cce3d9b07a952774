"""learn=…: the first run in a setting is exact and teaches, the others have its anchors.

The velocity of most tests changes quickly at one σ only, where the default has no anchors to spare.
"""

from __future__ import annotations

import copy
import itertools
import logging
import math
import os
import pickle
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import geoshrink
from geoshrink import Blocks, Grid, Learned, Learning, Plan, Run, sample
from geoshrink.correction import usual
from geoshrink.hosts import denoised
from geoshrink.hosts import odeint as ode
from geoshrink.learning import choosing, costs, files, fingerprint, growth
from geoshrink.learning import learning as home
from geoshrink.learning.recording import Recording
from geoshrink.learning.setting import Setting
from geoshrink.learning.sketch import Sketch
from geoshrink.meshes.corrected import SHARE
from geoshrink.plan import clock_of
from geoshrink.planning.cells import Pairs, Products
from geoshrink.planning.gains import perturbation
from geoshrink.planning.space import View
from toy import shifted

torch.set_num_threads(1)

STEPS, BUDGET, SIZE = 20, 6, 32
GRID = [1 - i / STEPS for i in range(STEPS + 1)]
LONG = [1 - i / 50 for i in range(51)]
TINY = shifted(7, 2.0)


class Stop(Exception):
    """A fault that a test raises."""


class Bump(nn.Module):
    """v = A·x + tanh(W·x), the second part around one σ only. Counts its calls.

    strange   what is done to the output of a call, by its number
    """

    def __init__(self, seed: int = 0, size: int = SIZE, at: float = 0.3, much: float = 2.0):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        both = torch.randn(2, size, size, generator=draw) / size**0.5
        self.A, self.W = (nn.Parameter(m, requires_grad=False) for m in (0.3 * both[0], both[1]))
        self.at, self.much, self.calls = at, much, 0
        self.strange: dict[int, Callable[[Tensor], Any]] = {}

    def forward(self, x: Tensor, sigma: Any) -> Any:
        self.calls += 1
        there = self.much * math.exp(-(((float(sigma) - self.at) / 0.05) ** 2))
        v = x @ self.A + there * torch.tanh(x @ self.W)
        return self.strange.get(self.calls, lambda v: v)(v)

    def counted(self, act: Callable[[], Any]) -> int:
        """The calls that something makes."""
        self.calls = 0
        act()
        return self.calls


class Each(nn.Module):
    """The same for every coordinate on its own: a·x + tanh(b·x) around its own σ."""

    def __init__(self, size: int, at: Tensor | float = 0.35):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.a, self.b = torch.rand(2, size, generator=draw)
        self.at = torch.as_tensor(at).expand(size)

    def forward(self, x: Tensor, sigma: Any) -> Tensor:
        n = x.shape[-1]
        there = 2 * torch.exp(-(((sigma - self.at[:n]) / 0.05) ** 2))
        return self.a[:n] * x + there * torch.tanh(self.b[:n] * x)


class Two(nn.Module):
    """Two parts on σ-grids of their own, or on one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = Bump(), Bump(1, 8, at=0.6)

    def forward(self, x: Any, sigma: Any) -> Any:
        if isinstance(x, dict):
            return dict(zip(x, self([*x.values()], [*sigma.values()])))
        levels = sigma if isinstance(sigma, (list, tuple)) else (sigma, sigma)
        made = self.one(x[0], levels[0]), self.other(x[1], levels[1])
        return made if isinstance(x, tuple) else [*made]


def noise(samples: int = 1, size: int = SIZE, seed: int = 1) -> Tensor:
    return torch.randn(samples, size, generator=torch.Generator().manual_seed(seed))


def decibels(made: Tensor, full: Tensor) -> float:
    return float(10 * torch.log10(full.square().sum() / (made - full).square().sum()))


def looped(run: Run, velocity: Callable, x: Tensor, grid: Sequence[float] = GRID) -> Tensor:
    for n in range(run.steps):
        v = run(n, lambda n=n, x=x: velocity(x, grid[n]), x)
        x = x + (grid[n + 1] - grid[n]) * v
    return x


def reported(*args: Any, **options: Any) -> geoshrink.Report:
    return sample(*args, with_report=True, **options)[1]


def taught(net: Any, x: Any = None, grid: Any = GRID, **options: Any) -> Learned:
    """What one exact run teaches."""
    learning = Learning()
    sample(net, noise() if x is None else x, grid, BUDGET, learn=learning, **options)
    assert learning.learned is not None
    return learning.learned


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "COMMON", {})


# --- the first run, and those after it -----------------------------------------------------------


def by_sample(net: Bump, **options: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: sample(net, x, GRID, **options)


def by_run(net: Bump, **options: Any) -> Callable[[Tensor], Tensor]:
    run = Run(GRID, solver="euler", **options)
    return lambda x: looped(run, net, x)


def by_odeint(net: Bump, **options: Any) -> Callable[[Tensor], Tensor]:
    pytest.importorskip("torchdiffeq")
    return lambda x: geoshrink.odeint(flipped(net), x, torch.tensor(GRID), **options)[-1]


def by_wrapped_ode(net: Bump, **options: Any) -> Callable[[Tensor], Tensor]:
    torchdiffeq: Any = pytest.importorskip("torchdiffeq")
    times = torch.tensor(GRID)
    func = ode.wrap(flipped(net), times, solver="euler", **options)
    return lambda x: torchdiffeq.odeint(func, x, times, method="euler")[-1]


def by_denoiser(net: Bump, **options: Any) -> Callable[[Tensor], Tensor]:
    def model(x: Tensor, sigma: Tensor) -> Tensor:
        return x - sigma * net(x, sigma)

    wrapped = denoised.wrap(model, GRID, solver="euler", **options)

    def go(x: Tensor) -> Tensor:
        for a, b in itertools.pairwise(torch.tensor(GRID)):
            x = x + (b - a) * (x - wrapped(x, a)) / a
        return x

    return go


def flipped(net: Bump) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda t, x: net(x, t)


WAYS = [by_sample, by_run, by_odeint, by_wrapped_ode, by_denoiser]


@pytest.mark.parametrize("way", WAYS)
def test_the_first_run_is_the_plain_one_and_the_second_saves_calls(way):
    net = Bump()
    plain, usual = way(net)(noise()), way(net, budget=BUDGET)(noise())
    go = way(net, budget=BUDGET, learn=Learning())
    made: list[Tensor] = []
    assert net.counted(lambda: made.append(go(noise()))) == STEPS
    assert torch.equal(made[0], plain)
    assert net.counted(lambda: made.append(go(noise()))) == BUDGET
    assert decibels(made[1], plain) > decibels(usual, plain) + 3
    assert torch.equal(way(net, budget=BUDGET)(noise()), usual)


@pytest.mark.parametrize("off", [None, False])
def test_it_is_off_by_default(off):
    net = Bump()
    usual = sample(net, noise(), GRID, BUDGET)
    made = sample(net, noise(), GRID, BUDGET, learn=off)
    assert torch.equal(made, usual) and net.calls == 2 * BUDGET


@pytest.mark.parametrize("solver", ["euler", "ab2", "dpm++2m"])
def test_every_solver_of_ours(solver):
    net, learning = Bump(), Learning()
    plain = sample(net, noise(), GRID, solver=solver)
    first = sample(net, noise(), GRID, BUDGET, solver=solver, learn=learning)
    assert torch.equal(first, plain)
    made = sample(net, noise(), GRID, BUDGET, solver=solver, learn=learning)
    usual = sample(net, noise(), GRID, BUDGET, solver=solver)
    assert decibels(made, plain) > decibels(usual, plain) + 3


def test_learning_helps():
    """On noise that nothing was learned from."""
    net, learning, gained = Bump(), Learning(), []
    sample(net, noise(), LONG, 10, learn=learning)
    for seed in range(20, 26):
        x = noise(seed=seed)
        full = sample(net, x, LONG)
        made = sample(net, x, LONG, 10, learn=learning)
        gained.append(decibels(made, full) - decibels(sample(net, x, LONG, 10), full))
    assert np.mean(gained) > 15 and min(gained) > 5


def test_the_second_run_is_that_of_its_plan():
    """The teacher decides on the plan, and on nothing else."""
    net, run = Bump(), Run(GRID, BUDGET, solver="euler", learn=True)
    looped(run, net, noise())
    made = looped(run, net, noise(seed=2))
    again = Run(plan=run.plan, solver="euler")
    assert torch.equal(looped(again, net, noise(seed=2)), made)
    assert run.report.queried == run.plan.anchors == again.report.queried
    assert run.report.estimate.db == again.report.estimate.db


def test_sample_leaps_over_the_cells_of_the_learned_plan():
    """With a callback every stage is stepped: the same up to rounding."""
    net, learning = Bump(), Learning()
    sample(net, noise(), GRID, BUDGET, learn=learning)
    leapt = sample(net, noise(), GRID, BUDGET, learn=learning)
    stages: list[int] = []
    options: dict[str, Any] = dict(learn=learning, callback=lambda n, x: stages.append(n))
    assert decibels(sample(net, noise(), GRID, BUDGET, **options), leapt) > 100
    assert stages == [*range(STEPS)]


@pytest.mark.parametrize("every, exact", [(3, (0, 3, 6)), (2, (0, 2, 4, 6)), (None, (0,))])
def test_every_nth_run_is_exact_and_adds_to_what_is_known(every, exact):
    net, learning = Bump(), Learning(every)
    for i in range(7):
        x = noise(seed=i)
        made: list[Tensor] = []
        calls = net.counted(
            lambda x=x, made=made: made.append(sample(net, x, GRID, BUDGET, learn=learning))
        )
        assert calls == (STEPS if i in exact else BUDGET)
        assert torch.equal(made[0], sample(net, x, GRID)) == (i in exact)
        learned = learning.learned
        assert learned is not None
        assert learned.pictures == learned.runs == sum(n <= i for n in exact)


def test_a_number_is_every_nth_run():
    net = Bump()
    calls = [net.counted(lambda: sample(net, noise(), GRID, BUDGET, learn=2)) for _ in range(5)]
    assert calls == [STEPS, BUDGET, STEPS, BUDGET, STEPS]


def test_a_batch_is_as_many_pictures():
    net, learning = Bump(), Learning()
    assert net.counted(lambda: sample(net, noise(4), GRID, BUDGET, learn=learning)) == STEPS
    assert learning.learned is not None
    assert (learning.learned.pictures, learning.learned.runs) == (4, 1)
    for samples in (1, 3):  # the same setting
        x = noise(samples)
        assert net.counted(lambda x=x: sample(net, x, GRID, BUDGET, learn=learning)) == BUDGET


def test_a_state_without_a_batch_is_one_picture():
    assert taught(Bump(), noise()[0]).pictures == 1


# --- what is said --------------------------------------------------------------------------------


def test_the_report_says_what_was_learned_and_from_how_much():
    net, learning = Bump(), Learning()
    first = reported(net, noise(4), GRID, BUDGET, learn=learning)
    assert first.evaluations == STEPS and not first.predicted
    assert first.reasons == ((0, "exact, to learn from it, so all are queried"),)
    second = reported(net, noise(), GRID, BUDGET, learn=learning)
    assert re.search(r"learned \(4 exact pictures, \d+\.\d dB more expected\)", second.plan)
    assert not second.reasons and second.evaluations == BUDGET


def test_the_log_says_once_why_a_run_is_slow(caplog):
    net, learning = Bump(), Learning()
    for grid in (GRID, GRID, LONG, LONG):
        sample(net, noise(), grid, BUDGET, learn=learning)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "is exact: it teaches" in caplog.text


def test_what_was_learned_in_words():
    net = Bump()
    assert str(taught(net)) == "learned from 1 exact picture: 20 stages"
    assert str(taught(net, noise(3))) == "learned from 3 exact pictures: 20 stages"


def test_settings_and_forget():
    net, learning = Bump(), Learning()
    assert learning.learned is None and learning.settings == []
    for grid in (GRID, LONG):
        sample(net, noise(), grid, BUDGET, learn=learning)
    assert [known.setting.grid.steps for known in learning.settings] == [50, 20]
    assert learning.learned is learning.settings[0]
    learning.forget()
    assert learning.learned is None and learning.settings == []
    assert net.counted(lambda: sample(net, noise(), GRID, BUDGET, learn=learning)) == STEPS


# --- where nothing is gained ---------------------------------------------------------------------


@pytest.mark.parametrize("correct", [None, False])
def test_the_default_stays_where_little_is_promised(correct):
    net, learning = Bump(much=0.0), Learning()
    options: dict[str, Any] = {} if correct is None else {"correct": correct}
    usual, plain = sample(net, noise(), GRID, BUDGET, with_report=True, **options)
    reported(net, noise(), GRID, BUDGET, learn=learning, **options)
    made, report = sample(net, noise(), GRID, BUDGET, learn=learning, with_report=True, **options)
    assert torch.equal(made, usual) and report.queried == plain.queried
    assert re.search(
        r"\(1 exact picture: \d\.\d dB more expected of others, too little\)", report.plan
    )


@pytest.mark.parametrize("correct, margin", [(None, 3.0), (False, 6.0)])
def test_more_pictures_need_to_promise_less(correct, margin):
    """One picture is one draw: MARGIN/√pictures dB."""
    learned = taught(Bump(at=0.35, much=0.003))
    default = Plan.of(GRID, BUDGET, correct=correct)
    found = [
        choosing.plan_from(replace(learned, pictures=n), default, ["output"], "euler")
        for n in (1, 10_000)
    ]
    assert found[0].anchors == default.anchors != found[1].anchors
    (gain,) = map(float, re.findall(r"(\d+\.\d) dB more expected", found[1].mesh))
    assert 0 < gain < margin
    enough = math.ceil((margin / gain) ** 2)
    for pictures, taken in ((0.8 * enough, False), (1.25 * enough, True)):
        more = replace(learned, pictures=round(pictures))
        plan = choosing.plan_from(more, default, ["output"], "euler")
        assert plan.mesh.startswith("learned") == taken


def test_what_is_gained_must_be_gained_however_errors_grow():
    """The promise is the lesser of two: as on our models, and if errors stay as they are."""
    learned, default = taught(Bump()), Plan.of(GRID, BUDGET)
    plan = choosing.plan_from(learned, default, ["output"], "euler")
    tables = choosing.tables_of(learned, default, "output")
    tau = default.grid.tracks[0].noise
    assert tau is not None
    gains = [
        choosing.decibels(default, tables, g) - choosing.decibels(plan, tables, g)
        for g in (growth.zoo(tau), np.ones(len(tau)))
    ]
    assert f"{min(gains):.1f} dB more expected" in plan.mesh
    assert abs(gains[0] - gains[1]) > 0.2


@pytest.mark.parametrize("budget", [STEPS, None])
def test_a_budget_of_all_stages_is_exact_anyway(budget, caplog):
    net, learning = Bump(), Learning()
    made, report = sample(net, noise(), GRID, budget, learn=learning, with_report=True)
    assert torch.equal(made, sample(net, noise(), GRID))
    why = "nothing is learned: every stage is queried anyway"
    assert why in report.plan and caplog.messages == [f"geoshrink: {why}"]
    assert learning.learned is None and not learning.settings


def test_unknown_noise_levels_cost_no_exact_run(caplog):
    net, learning, grid = Bump(), Learning(), [0.9 - 0.04 * i for i in range(21)]
    why = "nothing is learned: it is not known what the outputs say about the data"
    for _ in range(2):
        net.calls = 0
        made, report = sample(net, noise(), grid, BUDGET, learn=learning, with_report=True)
        assert net.calls == BUDGET and why in report.plan
        assert torch.equal(made, sample(net, noise(), grid, BUDGET))
    assert learning.learned is None and caplog.messages == [f"geoshrink: {why}"]
    sample(net, noise(), grid, BUDGET, learn=learning, data=0.0)
    assert learning.learned is not None


def test_noise_levels_that_rise_cost_no_exact_run():
    """From data to noise."""
    net, learning = Bump(), Learning()
    run = Run(GRID[::-1], BUDGET, solver="euler", learn=learning, data=0.0)
    assert net.counted(lambda: looped(run, net, noise(), GRID[::-1])) == BUDGET
    assert "nothing is learned: the noise levels" in run.plan.mesh and learning.learned is None


def test_regimes_without_corrected_cells_cost_no_exact_run():
    net, learning = Bump(), Learning()
    options: dict[str, Any] = dict(regimes=(9,), correct=False)
    made, report = sample(net, noise(), GRID, BUDGET, learn=learning, with_report=True, **options)
    assert net.calls == BUDGET and "nothing is learned: with regimes" in report.plan
    assert torch.equal(made, sample(net, noise(), GRID, BUDGET, **options))


def test_the_first_run_has_the_gradients_of_the_plain_one():
    net, learning = Bump(), Learning()
    x = noise().requires_grad_()
    runs = [sample(net, x, GRID, BUDGET, learn=learning), sample(net, x, GRID)]
    ours, plain = (torch.autograd.grad(made.sum(), x)[0] for made in runs)
    assert torch.equal(*runs) and torch.equal(ours, plain) and learning.learned is not None
    assert net.counted(lambda: sample(net, x, GRID, BUDGET, learn=learning)) == BUDGET


def test_a_run_under_a_transform_is_as_without():
    """Whatever the run before it has learned."""
    net, run = Bump(), Run(GRID, BUDGET, solver="euler", learn=True)
    asked = run.plan
    for _ in range(2):
        looped(run, net, noise())
    assert run.plan.anchors != asked.anchors
    torch.func.vmap(lambda x: looped(run, net, x))(noise(2))
    assert run.report.queried == run.plan.anchors == asked.anchors
    assert "nothing is learned: the run is compiled, or under a transform" in run.plan.mesh


# --- what is refused -----------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    (dict(anchors=[0, 1, 5]), r"anchors=\[0, 1, 5\]"),
    (dict(anchors="auto"), "anchors='auto'"),
    (dict(rule="chordal"), "rule='chordal'"),
    (dict(rule=["signed time", "hold"]), r"rule=\['signed time', 'hold'\]"),
    (dict(coefficients=[None] * STEPS), r"coefficients=\[None, "),
    (dict(refine=2), "refine=2"),
    (dict(target="flow"), "'flow'"),
    (dict(blocks=Blocks(dims=(0, 1))), r"blocks=Blocks\(dims=\(0, 1\)"),
    (dict(reserve=2), "learn=True.*reserve"),
    (dict(group=True), "learn=True.*group"),
]


@pytest.mark.parametrize("options, quoted", REFUSED)
def test_options_that_leave_nothing_to_learn(options, quoted):
    net = Bump()
    for go in (
        lambda: sample(net, noise(), GRID, BUDGET, learn=True, **options),
        lambda: Run(GRID, BUDGET, learn=True, **options),
    ):
        with pytest.raises(ValueError, match=quoted) as raised:
            go()
        assert "learn" in str(raised.value)
    assert not net.calls


def test_a_plan_leaves_nothing_to_learn():
    for go in (partial(sample, Bump(), noise()), Run):
        with pytest.raises(ValueError, match=r"learn=3.*plan"):
            go(plan=Plan.of(GRID, BUDGET), learn=3)


def test_two_evaluations_a_stage():
    with pytest.raises(ValueError, match=r"learn.*'heun'"):
        sample(Bump(), noise(), GRID, BUDGET, learn=True, solver="heun")


@pytest.mark.parametrize("learn", [0, 1, -3, 2.5, object(), [], b"x"])
def test_what_is_no_way_to_learn(learn):
    for go in (
        lambda: sample(Bump(), noise(), GRID, BUDGET, learn=learn),
        lambda: Run(GRID, learn=learn),
    ):
        with pytest.raises(TypeError, match=re.escape(f"learn={learn!r}")):
            go()


@pytest.mark.parametrize("every", [1, 0, -2])
def test_every_run_cannot_be_exact(every):
    with pytest.raises(ValueError, match=f"every={every}"):
        Learning(every)
    with pytest.raises(TypeError, match=r"name.*3"):
        Learning(name=3)  # type: ignore[arg-type]


def test_a_state_unlike_the_output_costs_no_exact_run():
    """More channels than the output, as where a mask is handed over beside the picture."""
    net, learning = Bump(), Learning()
    run, x = Run(GRID, BUDGET, solver="euler", learn=learning), noise()
    for n in range(STEPS):
        v = run(n, lambda n=n, x=x: net(x, GRID[n]), torch.cat([x, x], 1))
        x = x + (GRID[n + 1] - GRID[n]) * v
    assert run.report.evaluations == BUDGET and learning.learned is None
    assert "nothing is learned: x does not mirror the model's output" in run.report.plan


def test_a_loop_of_ones_own_must_hand_over_its_state():
    run, net = Run(GRID, BUDGET, learn=True), Bump()
    with pytest.raises(ValueError, match=r"learn=… needs the state: run\(n, evaluate, x\)"):
        run(0, lambda: net(noise(), 1.0))


def test_a_callable_without_modules_needs_a_learning_of_its_own():
    def velocity(x: Tensor, sigma: float) -> Tensor:
        seen.append(sigma)
        return -x * sigma

    seen: list[float] = []
    with pytest.raises(ValueError, match=r"learn=True.*velocity.*no torch.nn.Module.*Learning\(\)"):
        sample(velocity, noise(), GRID, BUDGET, learn=True)
    learning = Learning()
    for calls in (STEPS, BUDGET):
        seen.clear()
        sample(velocity, noise(), GRID, BUDGET, learn=learning)
        assert len(seen) == calls


# --- runs that teach nothing ---------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", [Stop, KeyboardInterrupt])
def test_an_interrupted_run_teaches_nothing(way, fault):
    def fail(v: Tensor) -> Tensor:
        raise fault

    net, learning = Bump(), Learning()
    plain = way(net)(noise())
    go = way(net, budget=BUDGET, learn=learning)
    net.calls, net.strange = 0, {6: fail}
    with pytest.raises(fault):
        go(noise())
    assert learning.learned is None
    net.strange = {}
    made: list[Tensor] = []
    assert net.counted(lambda: made.append(go(noise()))) == STEPS
    assert torch.equal(made[0], plain) and learning.learned is not None
    assert net.counted(lambda: go(noise())) == BUDGET


def test_runs_that_never_end_are_not_exact_for_ever():
    """A loop that is always left: after three tries it is as without."""
    net, learning = Bump(), Learning()
    run, calls = Run(GRID, BUDGET, solver="euler", learn=learning), []
    for _ in range(5):
        calls.append(net.counted(lambda: broken(run, net, "left")))
    usual = Run(GRID, BUDGET, solver="euler")
    assert calls == [5, 5, 5, *[net.counted(lambda: broken(usual, net, "left"))] * 2]
    assert "nothing was learned: 3 exact runs were begun, and none came to its end" in run.plan.mesh


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_output_that_is_not_finite_teaches_nothing(bad, caplog):
    net, learning = Bump(), Learning()
    usual = sample(net, noise(), GRID, BUDGET)
    net.calls, net.strange = 0, {8: lambda v: v * bad}
    sample(net, noise(), GRID, BUDGET, learn=learning)
    why = "nothing was learned: an output of the exact run is not finite"
    assert net.calls == STEPS and learning.learned is None
    assert caplog.messages[1:] == [f"geoshrink: {why}"]
    for _ in range(3):
        net.calls = 0
        made, report = sample(net, noise(), GRID, BUDGET, learn=learning, with_report=True)
        assert net.calls == BUDGET and torch.equal(made, usual) and why in report.plan


def test_one_bad_run_does_not_undo_what_others_taught():
    net, learning, calls = Bump(), Learning(every=3), []
    for i in range(8):
        net.strange = {8: lambda v: v * float("nan")} if i == 3 else {}
        calls.append(net.counted(lambda: sample(net, noise(), GRID, BUDGET, learn=learning)))
        assert learning.learned is not None and learning.learned.pictures == 1 + (i > 5)
    assert calls == [STEPS if i in (0, 3, 6) else BUDGET for i in range(8)]


def test_a_run_that_ends_in_zeros_teaches_nothing(caplog):
    learning = Learning()
    sample(lambda x, sigma: 0 * x, 0 * noise(), GRID, BUDGET, learn=learning)
    assert learning.learned is None and "ended in zeros" in caplog.text


def broken(run: Run, net: Bump, how: str) -> None:
    """A loop that goes wrong at stage 5."""
    x = noise()
    for n in range(STEPS):
        if n == 5 and how == "left":
            return
        grown = torch.cat([x, x]) if n >= 5 and how == "shape" else x
        state = None if n == 5 and how == "no state" else grown
        v = run(n, lambda n=n, grown=grown: net(grown, GRID[n]), state)
        if n == 5 and how == "twice":
            v = run(n, lambda n=n, x=x: net(x, GRID[n]), x)
        x = x + (GRID[n + 1] - GRID[n]) * v[:1]


@pytest.mark.parametrize("how", ["shape", "twice", "left", "no state"])
def test_a_loop_that_goes_wrong_teaches_nothing(how):
    net, learning = Bump(), Learning()
    run = Run(GRID, BUDGET, solver="euler", learn=learning)
    broken(run, net, how)
    assert learning.learned is None
    told = [why for _, why in run.report.reasons if "nothing is learned from this run" in why]
    assert len(told) == (how != "left")
    assert torch.equal(looped(run, net, noise()), sample(net, noise(), GRID))
    assert learning.learned is not None
    assert net.counted(lambda: looped(run, net, noise())) == BUDGET


def test_two_halves_of_runs_are_no_run():
    """Nor is the second half exact."""
    net, learning = Bump(), Learning()
    run = Run(GRID, BUDGET, solver="euler", learn=learning)
    asked = run.plan
    broken(run, net, "left")
    run.reset()
    net.calls = 0
    for n in range(5, STEPS):
        run(n, lambda n=n: net(noise(), GRID[n]), noise())
    assert learning.learned is None and run.plan == asked and net.calls < STEPS - 5


def test_a_recording_ends_with_the_last_stage():
    told: list[Any] = []
    recording = Recording(Setting(Grid.of(TINY), (SIZE,)), 1, told.append)
    levels = Grid.of(TINY).tracks
    recording.end()
    for n in range(7):
        assert recording.keep(n, [noise(seed=n)], [noise()], levels) is None
        if n == 5:
            recording.end()
            assert not told
    recording.end()
    assert isinstance(told[0], Learned) and len(told) == 1


# --- settings ------------------------------------------------------------------------------------


def test_numbers_of_steps_do_not_mix():
    net, learning = Bump(), Learning()
    grids = [GRID, [1 - i / 24 for i in range(25)]]
    for calls in ([20, 24], [BUDGET, BUDGET]):
        for grid, want in zip(grids, calls):
            assert (
                net.counted(lambda g=grid: sample(net, noise(), g, BUDGET, learn=learning)) == want
            )


def test_grids_solvers_and_regimes_do_not_mix():
    net, learning = Bump(), Learning()
    ways: list[dict[str, Any]] = [
        dict(sigmas=GRID),
        dict(sigmas=shifted(STEPS)),
        dict(sigmas=GRID, solver="ab2"),
        dict(sigmas=GRID, regimes=(9,)),
        dict(sigmas=GRID[:1] + GRID[2:]),
    ]
    for first in (True, False):
        for way in ways:
            options: dict[str, Any] = dict(budget=BUDGET, learn=learning, **way)
            calls = net.counted(lambda o=options: sample(net, noise(), **o))
            assert calls == (len(way["sigmas"]) - 1 if first else BUDGET)


def test_what_the_outputs_are_does_not_mix():
    net, learning = Bump(), Learning()
    grid = [0.98 * s for s in GRID]
    for kind in ("epsilon", "sample", "v"):
        options: dict[str, Any] = dict(prediction=kind, alphas="vp", learn=learning)
        assert net.counted(lambda o=options: sample(net, noise(), grid, BUDGET, **o)) == STEPS


def hidden(net: nn.Module) -> Callable[..., Any]:
    """A callable of which nobody sees what module it holds."""
    held = {"net": net}
    return lambda x, sigma: held["net"](x, sigma)


@pytest.mark.parametrize("times, same", [(1, True), (1.25, True), (4, False), (0.25, False)])
def test_sizes_do_not_mix(times, same):
    net, other, learning = Bump(), Bump(size=round(times * SIZE)), Learning()
    sample(hidden(net), noise(), GRID, BUDGET, learn=learning)
    x = noise(size=round(times * SIZE))
    calls = other.counted(lambda: sample(hidden(other), x, GRID, BUDGET, learn=learning))
    assert calls == (BUDGET if same else STEPS)
    assert net.counted(lambda: sample(hidden(net), noise(), GRID, BUDGET, learn=learning)) == BUDGET


def test_dtypes_do_not_mix():
    learning = Learning()
    for calls in (STEPS, BUDGET):
        for dtype in (torch.float32, torch.float64):
            net, x = Bump().to(dtype), noise().to(dtype)
            sample(hidden(net), x, GRID, BUDGET, learn=learning)
            assert net.calls == calls
    assert [known.setting.dtype for known in learning.settings] == ["float64", "float32"]


def test_names_do_not_mix():
    net, learning = Bump(), Learning(name="strong")
    for name, calls in [("strong", STEPS), ("weak", STEPS), ("strong", BUDGET), ("weak", BUDGET)]:
        learning.name = name
        assert net.counted(lambda: sample(net, noise(), GRID, BUDGET, learn=learning)) == calls


@pytest.mark.parametrize("write", [Tensor.copy_, lambda old, new: old.data.copy_(new)])
def test_weights_that_change_in_place_are_another_model(write):
    net = Bump()
    first = net.A.clone()
    for times, calls in [(1, STEPS), (2, STEPS), (2, BUDGET), (1, BUDGET)]:
        write(net.A, times * first)
        assert net.counted(lambda: sample(net, noise(), GRID, BUDGET, learn=True)) == calls


@pytest.mark.parametrize("way", [by_wrapped_ode, by_denoiser])
def test_a_wrapped_model_whose_weights_change_is_another(way):
    net = Bump()
    go = way(net, budget=BUDGET, learn=Learning())
    calls = [net.counted(lambda: go(noise())) for _ in range(2)]
    net.A.mul_(1.5)
    assert [*calls, net.counted(lambda: go(noise()))] == [STEPS, BUDGET, STEPS]


def test_only_so_many_settings_are_kept():
    learning, grid = Learning(), Grid.of(GRID)
    settings = [Setting(grid, (4**i,)) for i in range(home.KEPT + 5)]
    for setting in settings:
        learning.find(setting)
    assert [known.setting for known in learning.known] == settings[5:]
    learning.find(settings[5])
    learning.find(Setting(grid, (3,), name="new"))
    assert learning.known[-2].setting is settings[5]  # the latest used is kept longest
    assert len(learning.known) == home.KEPT


OTHERS: list[tuple[dict[str, Any], str]] = [
    (dict(dtype="float16"), "dtype 'float32', not 'float16'"),
    (dict(model="abc"), "model"),
    (dict(name="mine"), "name '', not 'mine'"),
    (dict(words="g=7"), "words '', not 'g=7'"),
    (dict(solver="ab2"), "solver"),
    (dict(sizes=(160,)), "(100,) coordinates, not (160,)"),
    (dict(sizes=(60,)), "(100,) coordinates, not (60,)"),
    (dict(sizes=(100, 100)), "coordinates"),
    (dict(grid=Grid.of(LONG)), "20 stages, not 50"),
    (dict(grid=Grid.of(GRID, regimes=(3,))), "regimes"),
    (dict(grid=Grid.of(shifted(STEPS))), "noise levels"),
    (dict(grid=Grid.of(GRID, prediction="v", alphas="flow")), "flow outputs, not v"),
]


@pytest.mark.parametrize("change, said", OTHERS)
def test_what_is_not_alike_is_said(change, said):
    mine = Setting(Grid.of(GRID), (100,))
    assert said in (mine.difference(replace(mine, **change)) or "")


def test_what_is_nearly_the_same_is_alike():
    mine = Setting(Grid.of(GRID), (100,))
    assert mine.difference(Setting(Grid.of([0.99 * s for s in GRID]), (140,))) is None


# --- models, told by their weights ---------------------------------------------------------------


def test_a_closure_made_anew_is_known_by_its_weights():
    def guided(net: Bump, scale: float) -> Callable[[Tensor, float], Tensor]:
        return lambda x, sigma: scale * net(x, sigma)

    net = Bump()
    for own, calls in [(net, STEPS), (net, BUDGET), (copy.deepcopy(net), BUDGET), (Bump(7), STEPS)]:
        own.calls = 0
        sample(guided(own, 1.0), noise(), GRID, BUDGET, learn=True)
        assert own.calls == calls


class Holder:
    def __init__(self, net: nn.Module):
        self.net, self.number = net, 3

    def velocity(self, x: Tensor, sigma: float) -> Tensor:
        return self.net(x, sigma)

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        return self.velocity(x, sigma)


LOOSE = nn.Linear(2, 2)


def by_a_global(x: Tensor, sigma: float) -> Tensor:
    return LOOSE(x)


HOLDING: list[Callable[[nn.Module], Any]] = [
    lambda net: net,
    lambda net: net.forward,
    lambda net: lambda x, sigma: net(x, sigma),
    lambda net: lambda x, sigma, own=net: own(x, sigma),
    lambda net: partial(lambda net, x, sigma: net(x, sigma), net),
    lambda net: partial(lambda x, sigma, net: net(x, sigma), net=net),
    lambda net: Holder(net),
    lambda net: Holder(net).velocity,
    lambda net: partial(lambda of, x, sigma: of[0](x, sigma), [Holder(net)]),
]


@pytest.mark.parametrize("hold", HOLDING)
def test_the_modules_that_a_callable_holds(hold):
    net = nn.Linear(2, 2)
    assert fingerprint.modules_in(hold(net)) == [net]


def test_a_module_among_the_globals_and_none_at_all():
    assert fingerprint.modules_in(by_a_global) == [LOOSE]
    assert fingerprint.modules_in(lambda x, sigma: -x) == []
    assert fingerprint.modules_in(hidden(LOOSE)) == []


CHANGES: list[Callable[[Any], Any]] = [
    lambda net: net.weight.mul_(1.01),
    lambda net: net.weight.data.mul_(1.01),
    lambda net: net.bias[:1].add_(1e-3),
    lambda net: net.double(),
    lambda net: setattr(net, "scale", 0.5),
    lambda net: net.register_buffer("mean", torch.zeros(2)),
    lambda net: setattr(net, "peft_config", {"r": 4}),
]


@pytest.mark.parametrize("change", CHANGES)
def test_the_fingerprint_of_a_model(change):
    """Of names, shapes, types and numbers, whatever object has them."""
    net = nn.Linear(3, 3)
    own = fingerprint.fingerprint([net])
    assert own == fingerprint.fingerprint([copy.deepcopy(net)]) != fingerprint.fingerprint([]) == ""
    with torch.no_grad():
        change(net)
    assert fingerprint.fingerprint([net]) != own


@pytest.mark.parametrize("count", [1, 2, 3, 2**24 + 4])
def test_the_last_number_of_a_weight_counts(count):
    """However many there are: float32 does not know all whole numbers."""
    net = nn.Module()
    net.weight = nn.Parameter(torch.zeros(count, dtype=torch.int8), requires_grad=False)
    own = fingerprint.fingerprint([net])
    net.weight[-1] = 1
    assert fingerprint.fingerprint([net]) != own


def test_what_a_model_counts_as_it_runs_is_no_weight():
    class Counting(Bump):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))
            self.register_buffer("cache", torch.zeros(2, 2), persistent=False)

        def forward(self, x: Tensor, sigma: Any) -> Any:
            self.seen += 1
            self.cache += 1
            return super().forward(x, sigma)

    net = Counting()
    for calls in (STEPS, BUDGET):
        assert net.counted(lambda: sample(net, noise(), GRID, BUDGET, learn=True)) == calls


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
@pytest.mark.parametrize("wrap", [torch.compile, nn.DataParallel])
def test_a_wrapped_model_has_the_same_fingerprint(wrap):
    """A word stands before every name."""
    net = nn.Sequential(nn.Linear(3, 3))
    net[0].register_buffer("table", torch.ones(2, 2))
    assert fingerprint.fingerprint([wrap(net)]) == fingerprint.fingerprint([net])


# --- threads and copies --------------------------------------------------------------------------


def test_threads_share_what_is_learned():
    net, learning, ready = Bump(), Learning(), threading.Barrier(8)
    made: list[tuple[int, Tensor, Tensor, geoshrink.Report]] = []
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        x = noise(16, seed=seed)
        try:
            ready.wait()
            for i in range(3):
                result, report = sample(net, x, GRID, BUDGET, learn=learning, with_report=True)
                made.append((i, x, result, report))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(made) == 24 and len(learning.known) == 1
    exact = [report for *_, report in made if report.evaluations == STEPS]
    learned = learning.learned
    assert learned is not None and learned.runs == len(exact) <= 8
    assert learned.pictures == 16 * learned.runs
    assert {report.evaluations for i, *_, report in made if i} == {BUDGET}
    for _, x, result, report in made:
        assert torch.equal(result, sample(net, x, GRID)) == (report.evaluations == STEPS)


def test_what_threads_add_is_not_lost(monkeypatch):
    """Adding takes its time, so that without a lock one would undo the other."""
    plain, learned, learning = Learned.and_then, taught(Bump()), Learning()

    def slowly(self: Learned, newer: Learned) -> Learned:
        time.sleep(0.01)
        return plain(self, newer)

    monkeypatch.setattr(Learned, "and_then", slowly)
    learning.add(learned.setting, learned)
    threads = [
        threading.Thread(target=learning.add, args=(learned.setting, learned)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert learning.learned is not None and learning.learned.pictures == 9


def test_threads_find_one_setting(monkeypatch, tmp_path):
    """Looking into a folder takes its time, so that without a lock each would make its own."""
    learning, asked = Learning(folder=tmp_path), Plan.of(GRID, BUDGET)
    setting = Setting(asked.grid, (SIZE,))
    monkeypatch.setattr(home, "found_in", lambda *args: time.sleep(0.01))
    work = partial(learning.decide, asked, setting, [noise()], ["output"])
    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [known.setting for known in learning.known] == [setting]


def test_a_wrapped_function_learns_over_threads():
    """Each thread has runs of its own, and all of them one teacher."""
    net = Bump()
    go = by_denoiser(net, budget=BUDGET, learn=Learning())
    go(noise())
    calls: list[int] = []
    thread = threading.Thread(target=lambda: calls.append(net.counted(lambda: go(noise()))))
    thread.start()
    thread.join()
    assert calls == [BUDGET]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_know_what_was_learned(copied):
    net, learning = Bump(), Learning(every=50, name="mine")
    want = [sample(net, noise(), GRID, BUDGET, learn=learning) for _ in range(2)][1]
    other = copied(learning)
    assert (other.every, other.name) == (50, "mine")
    net.calls = 0
    assert torch.equal(sample(net, noise(), GRID, BUDGET, learn=other), want)
    assert net.calls == BUDGET
    other.forget()
    assert learning.learned is not None


# --- files ---------------------------------------------------------------------------------------


def test_what_was_learned_as_a_file(tmp_path):
    net, learned = Bump(), taught(Bump(), noise(3))
    file = learned.save(tmp_path / "mine.json")
    found = Learned.load(file)
    assert found.setting == learned.setting
    assert all(map(torch.equal, found.grams, learned.grams))
    for name in ("spread", "first", "pictures", "runs"):
        assert getattr(found, name) == getattr(learned, name)
    for learn in (found, file, str(file)):
        net.calls = 0
        sample(net, noise(), GRID, BUDGET, learn=learn)
        assert net.calls == BUDGET


DAMAGES = [lambda text: text[:-20], lambda text: text.replace("1", "2", 40), lambda text: "{}"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(tmp_path, damage):
    file = taught(Bump()).save(tmp_path / "mine.json")
    file.write_text(damage(file.read_text()))
    with pytest.raises(ValueError, match=r"mine\.json"):
        Learned.load(file)


def test_what_another_model_has_taught_is_not_used(caplog):
    """Where the models cannot be told apart, the first output can."""
    net = Bump()
    learned = taught(hidden(net))
    learning = Learning.of(replace(learned, first=(9 * learned.first[0],)))
    for calls in (STEPS, BUDGET):
        net.calls = 0
        sample(hidden(net), noise(), GRID, BUDGET, learn=learning)
        assert net.calls == calls
    assert "its first output is unlike this one's" in caplog.text
    assert learning.learned is not None and learning.learned.pictures == 1


@pytest.mark.parametrize("kind", [str, lambda path: Learning(every=3, folder=path)])
def test_a_folder_is_shared(tmp_path, kind, caplog):
    net = Bump()

    def another_process() -> int:
        home.COMMON.clear()
        return net.counted(lambda: sample(net, noise(), GRID, BUDGET, learn=kind(tmp_path)))

    assert [another_process() for _ in range(3)] == [STEPS, BUDGET, BUDGET]
    (file,) = tmp_path.glob("*.learned.json")
    assert Learned.load(file).pictures == 1
    one = Learning(every=2, folder=tmp_path)
    for _ in range(2):
        sample(net, noise(2), GRID, BUDGET, learn=one)
    assert Learned.load(file).pictures == 3
    file.write_text("nonsense")
    assert another_process() == STEPS
    assert "holds nothing that was learned, or is damaged" in caplog.text


def test_a_mask_does_not_make_it_another_model(tmp_path):
    """The first outputs are compared where the mask shows them."""
    net, options = Bump(), dict[str, Any](mask=torch.arange(SIZE) < SIZE // 4)
    for calls in (STEPS, BUDGET):
        net.calls = 0
        sample(net, noise(), GRID, BUDGET, learn=Learning(folder=tmp_path), **options)
        assert net.calls == calls


def test_a_full_folder_forgets_what_was_used_least(tmp_path):
    for i in range(4):
        file = tmp_path / f"{i}{files.ENDING}"
        file.write_text("x" * 10)
        os.utime(file, (100 - i, 100 - i))
    files.used(tmp_path / f"3{files.ENDING}")
    files.bound(tmp_path, 25)
    assert [file.name[0] for file in files.entries(tmp_path)] == ["3", "0"]


# --- what is learned -----------------------------------------------------------------------------


def run_of(net: Callable, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """(states, outputs) of Euler's run."""
    states, outputs = [x], []
    for a, b in itertools.pairwise(GRID):
        outputs.append(net(states[-1], a))
        states.append(states[-1] + (b - a) * outputs[-1])
    return states, outputs


def test_the_matrix_of_an_exact_run():
    """Over the energy of the last data prediction, which is the end of the run."""
    net, x = Bump(), noise(2)
    learned, (states, outputs) = taught(net, x), run_of(net, x)
    flat = torch.stack([x, *outputs]).flatten(1).double()
    want = flat @ flat.T / states[-1].double().square().sum()
    assert torch.allclose(learned.grams[0], want, rtol=1e-4, atol=1e-5)
    assert learned.first == pytest.approx([float(outputs[0].square().mean())])
    assert learned.setting.sizes == (SIZE,)


def test_runs_are_weighed_by_their_pictures():
    net = Bump()
    one, three = taught(net), taught(net, noise(3, seed=3))
    both = one.and_then(three)
    assert (both.pictures, both.runs) == (4, 2)
    assert torch.allclose(both.grams[0], (one.grams[0] + 3 * three.grams[0]) / 4)
    assert both.first == pytest.approx([(one.first[0] + 3 * three.first[0]) / 4])
    assert one.spread and three.spread and both.spread
    assert both.spread**2 == pytest.approx((one.spread**2 + 3 * three.spread**2) / 4)
    assert replace(one, spread=None).and_then(three).spread == three.spread
    assert one.and_then(replace(three, spread=None)).spread == one.spread


@pytest.mark.parametrize(
    "old, new, share", [(10_000, 1, 1 / 65), (64, 64, 1 / 2), (1, 200, 64 / 65)]
)
def test_what_is_new_is_never_less_than_a_share(old, new, share):
    """Of very many pictures 64 count."""
    one = taught(Bump())
    newer = replace(one, grams=(2 * one.grams[0],), pictures=new)
    both = replace(one, pictures=old).and_then(newer)
    assert torch.allclose(both.grams[0], one.grams[0] * (1 + share)) and both.pictures == old + new


@pytest.mark.parametrize("times, same", [(1.9, True), (0.6, True), (2.1, False), (0.4, False)])
def test_a_first_output_that_is_unlike_starts_anew(times, same):
    old = replace(taught(Bump()), pictures=5)
    new = replace(old, first=(times * old.first[0],), pictures=1)
    assert old.and_then(new).pictures == (6 if same else 1)
    assert old.differs(new.first) != same and old.differs((*old.first, 1.0))


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    (dict(pictures=0), "0 pictures"),
    (dict(first=(1.0, 1.0)), "1 outputs"),
    (dict(spread=-1.0), "spread of -1.0"),
    (dict(first=(float("nan"),)), "finite"),
    (dict(grams=(torch.full((21, 21), float("inf")),)), "finite"),
    (dict(grams=(torch.eye(4),)), "20 stages"),
]


@pytest.mark.parametrize("change, said", IMPOSSIBLE)
def test_what_cannot_have_been_learned(change, said):
    with pytest.raises(ValueError, match=said):
        replace(taught(Bump()), **change)


def test_only_what_the_mask_shows_is_learned_from():
    """Coordinates on their own, the hidden ones with a change elsewhere."""
    seen = torch.arange(SIZE) < SIZE // 2
    net = Each(SIZE, torch.where(seen, 0.35, 0.8))
    masked = taught(net, noise(2), mask=seen)
    alone = taught(net, noise(2)[:, seen])
    assert torch.allclose(masked.grams[0], alone.grams[0], rtol=1e-4, atol=1e-6)
    assert masked.spread == pytest.approx(alone.spread, rel=1e-3)
    assert not torch.allclose(masked.grams[0], taught(net, noise(2)).grams[0], rtol=0.05)


# --- how errors grow -----------------------------------------------------------------------------


@pytest.mark.parametrize("pictures", [1, 3])
@pytest.mark.parametrize("regimes, looked_at", [((), (2, 10)), ((4,), (2, 3, 6, 7, 8, 9))])
def test_how_far_the_data_prediction_moved_along_possible_errors(pictures, regimes, looked_at):
    """⟨h, û⟩² over errors of held outputs that end in the noisy half of the run."""
    net, grid, x = Bump(at=0.8), Grid.of(GRID, regimes=regimes), noise(pictures)
    states, outputs = run_of(net, x)
    first, last = x - GRID[0] * outputs[0], states[-1]
    h = last - first * min(1.0, float(last.norm() / first.norm()))
    stages = range(*looked_at) if not regimes else looked_at
    found = []
    for n in stages:
        (error,) = perturbation(grid, n, lambda m: [outputs[m]])
        found.append(float((h * error).sum() ** 2 / error.square().sum()))
    spread = math.sqrt(np.mean(found) / pictures)
    assert taught(net, x, grid).spread == pytest.approx(spread, rel=1e-3)


@pytest.mark.parametrize("length", [0.0, 0.5, 1.0, 7.0])
def test_the_data_begin_to_move_at_a_prediction_no_longer_than_they_are(length):
    rows = noise(5)
    rows[-2] *= length * rows[-1].norm() / rows[-2].norm()
    moved = rows[-1] - rows[-2] / max(1.0, length)
    assert torch.allclose(growth.movement(rows @ rows.T), rows @ moved, atol=1e-4)


class Noisy(nn.Module):
    """ε of data with deviation 1, wrong by so much in a direction of its own."""

    def __init__(self, wrong: float):
        super().__init__()
        self.wrong = nn.Parameter(wrong * noise(seed=5), requires_grad=False)

    def forward(self, x: Tensor, sigma: Any) -> Tensor:
        return float(sigma) * x + self.wrong


def test_a_wrong_output_at_high_noise_does_not_hide_how_errors_grow():
    """At the first stage α is 0.005, and x̂₀ wrong by six deviations of the data."""
    alphas = [200 ** (n / STEPS - 1) for n in range(STEPS + 1)]
    grid = Grid.of([math.sqrt(1 - a * a) for a in alphas], prediction="epsilon", alphas=alphas)
    right, wrong = (taught(Noisy(much), grid=grid).spread for much in (0.0, 0.03))
    assert right and wrong and right / 2 < wrong < 2 * right


def test_growth_where_data_are_gaussian():
    tau, s = [1.0, 0.6, 0.0], 2.0
    want = [s, s / math.sqrt((0.4 * s) ** 2 + 0.6**2), 1.0]
    assert growth.picture(tau, growth.ALONG * s) == pytest.approx(want)
    for unknown in (None, 0.0):
        assert growth.picture(tau, unknown).tolist() == [1.0] * 3


def test_growth_as_on_our_models():
    zoo = growth.zoo(GRID)
    assert zoo[0] > 10 and zoo[-1] == pytest.approx(1, abs=0.05) and (np.diff(zoo) < 0).all()


# --- sketches ------------------------------------------------------------------------------------

CPU = torch.device("cpu")


def test_what_fits_is_kept_as_it_is():
    sketch, rows = Sketch(3, [6, 4], CPU), noise(3, 10)
    for i, row in enumerate(rows):
        sketch.keep(i, [row[:6].view(2, 3).bfloat16(), row[6:]])
    for made, own in zip(sketch.grams(), (rows[:, :6].bfloat16(), rows[:, 6:])):
        assert torch.allclose(made, own.double() @ own.double().T)


@pytest.mark.parametrize("sizes, most", [([5000], 9200), ([5000, 70], 9999), ([30], 2760)])
def test_a_sketch_is_bounded(sizes, most):
    sketch = Sketch(23, sizes, CPU, most)
    assert most - 8 * 23 * len(sizes) < sketch.bytes <= most or sketch.widths == (*sizes,)
    sketch.keep(22, [torch.ones(size) for size in sizes])
    assert all(made.shape == (23, 23) and made[22, 22] > 0 for made in sketch.grams())


@pytest.mark.parametrize("width", [2001, 4001])
def test_a_projection_keeps_the_plan(width):
    """65536 coordinates with changes at two σ, in 2 and 4 thousand sums."""
    x = noise(size=1 << 16)
    net = Each(x.numel(), torch.where(torch.arange(x.numel()) % 3 > 0, 0.35, 0.7))
    states, outputs = run_of(net, x)
    rows = [x, *outputs, x - GRID[0] * outputs[0], states[-1]]
    default, found = Plan.of(GRID, BUDGET), list[Learned]()
    for most in (4 * len(rows) * width, 1 << 30):
        sketch = Sketch(len(rows), [x.numel()], CPU, most)
        for i, row in enumerate(rows):
            sketch.keep(i, [row])
        assert sketch.bytes <= most
        setting = Setting(default.grid, (x.numel(),))
        found.append(Learned.of(setting, sketch.grams(), 1))
    few, whole = found
    plans = [choosing.plan_from(known, default, ["output"], "euler") for known in found]
    assert plans[1].mesh.startswith("learned") and plans[1].anchors != default.anchors
    tables = choosing.tables_of(whole, default, "output")
    for belief in choosing.believed(whole, GRID):
        own, best = (tables.price(plan.anchors, belief) for plan in plans)
        assert own == pytest.approx(best, rel=0.01)
    assert few.first == pytest.approx(whole.first, rel=5 * (2 / width) ** 0.5)


def test_signs_keep_sums_from_adding_up():
    """Equal coordinates: without signs a group would be as long as its number of them, squared."""
    sketch = Sketch(1, [100_000], CPU, 4 * 1001)
    sketch.keep(0, [torch.ones(100_000)])
    assert float(sketch.grams()[0]) == pytest.approx(100_000, rel=0.2)


# --- what cells cost -----------------------------------------------------------------------------


class Literal:
    """The state's error at the end of cells, by stepping them.

    rows   x_0 and the outputs, for every slot
    """

    def __init__(self, rows: list[Tensor], grid: Grid, space: str, clock: str, correct: bool):
        self.rows, self.grid, self.space, self.correct = rows, grid, space, correct
        self.times = [clock_of(grid.track(i), clock).times for i in range(len(rows))]

    def z(self, slot: int) -> list[Tensor]:
        x, *outputs = self.rows[slot]
        sigmas, found = self.grid.track(slot).sigmas, []
        for n, v in enumerate(outputs):
            found.append(v if self.space == "output" else x - sigmas[n] * v)
            x = x + (sigmas[n + 1] - sigmas[n]) * v
        return found

    def stepped(self, slot: int, k: int, end: int, guess: Callable[[int], Tensor]) -> float:
        """‖·‖² of the state's error at the end of a cell whose outputs are guessed."""
        z, sigmas = self.z(slot), self.grid.track(slot).sigmas
        error = torch.zeros_like(z[0])
        for n in range(k + 1, end):
            wrong = guess(n) - z[n]
            wrong = (error - wrong) / sigmas[n] if self.space == "data" else wrong
            error = error + (sigmas[n + 1] - sigmas[n]) * wrong
        return float(error.square().sum())

    def cell(self, slot: int, j: int | None, k: int, end: int) -> float:
        z, t = self.z(slot), self.times[slot]
        slope = torch.zeros(()) if j is None else (z[k] - z[j]) / (t[k] - t[j])
        plain = self.stepped(slot, k, end, lambda n: z[k] + (t[n] - t[k]) * slope)
        if not self.correct or end == self.grid.steps or end in self.grid.regimes:
            return plain
        chord = (z[end] - z[k]) / (t[end] - t[k])
        inside = self.stepped(slot, k, end, lambda n: z[k] + (t[n] - t[k]) * chord)
        return inside + SHARE**2 * plain

    def price(self, anchors: Sequence[int], much: np.ndarray) -> float:
        cells = [*zip((None, *anchors), anchors, (*anchors[1:], self.grid.steps))]
        slots = range(len(self.rows))
        found = [much[cell[2]] ** 2 * self.cell(i, *cell) for i in slots for cell in cells]
        return sum(found) / len(slots)


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("regimes", [(), (3,)])
@pytest.mark.parametrize("correct", [True, False])
@pytest.mark.parametrize(
    "space, clock", [("output", "sigma"), ("output", "mesh"), ("data", "mesh")]
)
def test_prices_against_every_set_of_anchors(space, clock, correct, regimes, slots):
    rows = [noise(8, 5, seed).double() for seed in range(slots)]
    grid = Grid.of(TINY if slots == 1 else (TINY, shifted(7, 4.0)), regimes=regimes)
    tables = costs.Tables([own @ own.T for own in rows], grid, space, clock, correct)
    literal, much = Literal(rows, grid, space, clock, correct), np.linspace(3.0, 1.0, 8)
    for count, (cost, anchors) in enumerate(tables.cheapest(tables.grown(much), 5), 1):
        sets = [(0, *rest) for rest in itertools.combinations(range(1, 7), count - 1)]
        prices = {own: literal.price(own, much) for own in sets if {*regimes} <= {*own}}
        for own, price in prices.items():
            assert tables.price(own, much) == pytest.approx(price, rel=1e-6, abs=1e-9)
        assert cost == pytest.approx(min(prices.values(), default=math.inf), rel=1e-6)
        assert not prices or prices[anchors] == pytest.approx(cost, rel=1e-6)


def test_no_cell_goes_beyond_the_beginning_of_a_regime():
    rows = noise(8, 5).double()
    tables = costs.Tables([rows @ rows.T], Grid.of(TINY, regimes=(3,)), "output", "sigma", True)
    assert math.isinf(tables.price((0, 2, 5), np.ones(8)))


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("clock", ["sigma", "mesh"])
def test_interpolated_cells_from_two_anchors_are_those_of_all(space, clock):
    """planning/cells.py has them twice: of every sample, and of the mean matrix."""
    rows = torch.stack([noise(8, 5, seed) for seed in range(3)]).double()
    view = View.of(Grid.of(TINY).track(0), rows @ rows.mT, space, 0, 7, clock=clock)
    price = torch.linspace(1, 2, 8, dtype=torch.float64)
    pairs = Pairs(view, price)
    for k in range(6):
        between = Products(view, range(7), k).between.mean(1)
        assert torch.allclose(pairs.between(k)[:-1], between * price[k + 1 : 7])
        assert torch.allclose(pairs.between(k)[-1], pairs.costs(k, "hold")[0, -1])


def test_of_very_many_stages_some_are_searched():
    grid = Grid.of([1 - i / 400 for i in range(401)], regimes=(171,))
    allowed = costs.allowed_stages(grid)
    assert allowed[0] == 0 and 171 in allowed and 64 <= len(allowed) <= costs.SEARCHED
    assert costs.allowed_stages(Grid.of(GRID)) == tuple(range(STEPS))
    odd = tuple(n for n in range(200) if n not in allowed)[:5]
    assert {*odd, *allowed} <= {*costs.allowed_stages(grid, odd)}


# --- a quality to hold ---------------------------------------------------------------------------


def test_a_quality_is_held_with_what_was_learned():
    net, run = Bump(), Run(LONG, target_db=35, most=14, solver="euler", learn=True)
    assert net.counted(lambda: looped(run, net, noise(), LONG)) == 50
    calls = net.counted(lambda: looped(run, net, noise(seed=4), LONG))
    assert 4 <= calls <= 14 and "learned (1 exact picture)" in run.report.plan
    assert run.plan.aim is not None
    budgets = [len(anchors) for anchors, _ in run.plan.aim.rungs]
    dbs = [db for _, db in run.plan.aim.rungs]
    assert budgets == [*range(4, 13), 14] and dbs == sorted(dbs) and dbs[-1] > dbs[0] + 10


def test_the_rungs_are_the_best_anchors_of_each_budget():
    learned, default = taught(Bump()), Plan.of(GRID, target_db=30, most=10)
    plan = choosing.plan_from(learned, default, ["output"], "euler")
    assert plan.aim is not None
    beliefs, tables = choosing.believed(learned, GRID), choosing.tables_of(learned, plan, "output")
    for anchors, db in plan.aim.rungs:
        assert anchors == choosing.cheapest(tables, len(anchors), beliefs)
        expected = [-10 * math.log10(tables.price(anchors, belief)) for belief in beliefs]
        assert db >= round(sum(expected) / 2, 2)
    assert plan.anchors == next(anchors for anchors, db in plan.aim.rungs if db >= 30)


@pytest.mark.parametrize("target, most", [(10, 5), (200, 12)])
def test_the_default_is_as_cautious_as_its_number_of_anchors(target, most):
    learned, default = taught(Bump()), Plan.of(GRID, target_db=target, most=most)
    for asked in (default, replace(default, correct=usual(17 - most))):
        plan = choosing.plan_from(learned, asked, ["output"], "euler")
        assert plan.correct == usual(plan.budget)
    other = replace(default, correct=0.3, aim=replace(default.aim, usual=False))  # type: ignore
    assert choosing.plan_from(learned, other, ["output"], "euler").correct == other.correct


def test_the_most_calls_are_kept_to():
    net, options = Bump(), dict[str, Any](target_db=200, most=7, learn=Learning())
    assert net.counted(lambda: sample(net, noise(), GRID, **options)) == STEPS
    assert net.counted(lambda: sample(net, noise(), GRID, **options)) == 7


# --- other outputs -------------------------------------------------------------------------------


def parts(x: Any) -> list[Tensor]:
    return [*x.values()] if isinstance(x, dict) else [*x]


def named(pair: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(("b", "a"), pair))


@pytest.mark.parametrize("kind, grids", [(tuple, 1), (tuple, 2), (list, 2), (named, 2)])
def test_structured_outputs(kind, grids):
    net, learning = Two(), Learning()
    x = kind((noise(), noise(size=8)))
    sigmas = GRID if grids == 1 else kind((GRID, shifted(STEPS)))
    plain = sample(net, x, sigmas)
    net.one.calls = 0
    first = sample(net, x, sigmas, BUDGET, learn=learning)
    assert all(map(torch.equal, parts(first), parts(plain))) and net.one.calls == STEPS
    assert learning.learned is not None and len(learning.learned.grams) == 2
    assert sorted(learning.learned.setting.sizes) == [8, 32]
    made, report = sample(net, x, sigmas, BUDGET, learn=learning, with_report=True)
    assert net.one.calls == STEPS + BUDGET and "learned (1 exact picture" in report.plan
    assert all(part.isfinite().all() for part in parts(made))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions(dtype):
    net, learning, x = Bump().to(dtype), Learning(), noise().to(dtype)
    assert torch.equal(sample(net, x, GRID, BUDGET, learn=learning), sample(net, x, GRID))
    assert learning.learned is not None and learning.learned.setting.dtype == str(dtype)[6:]
    net.calls = 0
    made = sample(net, x, GRID, BUDGET, learn=learning)
    assert net.calls == BUDGET and made.dtype == dtype and made.isfinite().all()


def test_regimes_are_queried_all_the_same():
    net, options = Bump(), dict[str, Any](regimes=(7, 12), learn=Learning())
    first = sample(net, noise(), GRID, BUDGET, **options)
    assert torch.equal(first, sample(net, noise(), GRID))
    report = reported(net, noise(), GRID, BUDGET, **options)
    assert {0, 7, 12} < set(report.queried) and report.evaluations == BUDGET
    assert "learned (1 exact picture" in report.plan


def test_stages_of_zero_length():
    net, learning, grid = Bump(), Learning(), [*GRID[:6], *GRID[5:], 0.0]
    plain = sample(net, noise(), grid)
    assert torch.equal(sample(net, noise(), grid, BUDGET, learn=learning), plain)
    assert net.counted(lambda: sample(net, noise(), grid, BUDGET, learn=learning)) == BUDGET
    assert learning.learned is not None and learning.learned.setting.grid.steps == STEPS


@pytest.mark.parametrize("kind", ["epsilon", "sample", "v"])
def test_other_predictions(kind):
    net, learning, grid = Bump(), Learning(), [0.98 * s for s in GRID]
    options: dict[str, Any] = dict(prediction=kind, alphas="vp")
    first = sample(net, noise(), grid, BUDGET, learn=learning, **options)
    assert torch.equal(first, sample(net, noise(), grid, **options))
    report = reported(net, noise(), grid, BUDGET, learn=learning, **options)
    assert report.evaluations == BUDGET and "1 exact picture" in report.plan


@pytest.mark.parametrize("solver, spaces", [("euler", {"output", "data"}), ("ab2", {"output"})])
def test_the_data_are_predicted_where_that_is_cheaper(solver, spaces):
    """Only Euler's states are known."""
    found, default = set[str](), Plan.of(GRID, BUDGET)
    for much in (0.3, 1.0):
        learned = taught(Bump(much=much))
        found.add(choosing.plan_from(learned, default, ["output", "data"], solver).space)
    assert found == spaces


OPTIONS: list[dict[str, Any]] = [
    dict(correct=False),
    dict(correct=0.3),
    dict(clock="sigma"),
    dict(rule="time"),
    dict(rule="linear", correct=True),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_only_the_anchors_and_the_space_are_others(options):
    net, run = Bump(), Run(GRID, BUDGET, solver="euler", learn=True, **options)
    asked = run.plan
    for _ in range(2):
        looped(run, net, noise())
    assert run.plan.anchors != asked.anchors and run.plan.mesh.startswith("learned")
    same = replace(run.plan, anchors=asked.anchors, space=asked.space, mesh=asked.mesh)
    assert same == replace(asked, slow=())


# --- a recording that fails ----------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyError, RuntimeError])
def test_a_recording_that_fails_loses_no_output(monkeypatch, error):
    def broken(self, *args):
        raise error("no room")

    net, learning = Bump(), Learning()
    plain = looped(Run(GRID, solver="euler"), net, noise())
    monkeypatch.setattr(Recording, "keep", broken)
    run = Run(GRID, BUDGET, solver="euler", learn=learning)
    assert torch.equal(looped(run, net, noise()), plain) and learning.learned is None
    why = f"nothing is learned from this run: {error.__name__}: "
    assert [n for n, told in run.report.reasons if told.startswith(why)] == [0]
    assert not run.teaches


def test_a_recording_that_cannot_end_is_let_go(monkeypatch):
    def broken(self):
        raise OSError("no room")

    monkeypatch.setattr(Recording, "end", broken)
    run = Run(GRID, BUDGET, solver="euler", learn=Learning())
    with pytest.raises(OSError, match="no room"):
        looped(run, Bump(), noise())
    assert not run.teaches


def test_a_reset_lets_go_of_the_recording():
    run, x, net = Run(GRID, BUDGET, solver="euler", learn=Learning()), noise(), Bump()
    run(0, lambda: net(x, 1.0), x)
    assert run.teaches
    run.reset()
    assert not run.teaches


def test_a_copy_that_begins_anew_leaves_the_recording_alone():
    run, x, net = Run(GRID, BUDGET, solver="euler", learn=Learning()), noise(), Bump()
    run(0, lambda: net(x, 1.0), x)
    copy.copy(run).reset()
    assert run.teaches
