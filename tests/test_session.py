"""A session is told what a seam finds out: over any scheduler both do the same, bit for bit."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from geoshrink import Learning, accelerate
from geoshrink.hosts import responses
from geoshrink.hosts.hooks import hooks_in
from geoshrink.hosts.options import check_options
from geoshrink.hosts.seats import seat_of
from geoshrink.hosts.session import Session

schedulers: Any = pytest.importorskip("schedulers")
pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 24
MAKERS = schedulers.ORDER_1 | schedulers.FLOW | schedulers.NO_SOLVER | schedulers.PNDM
OPTIONS = ({"budget": 9}, {"speedup": 2.0, "correct": False}, {"target_db": 25}, {"budget": 8})


class Net(nn.Module):
    """Counts its calls. The second half of a run may have another one."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.calls = nn.Linear(6, 6), 0

    def forward(self, x: Tensor, *_: Any) -> Tensor:
        self.calls += 1
        return torch.sin(self.inner(x))


class Pipe:
    """What the seam runs: a pipeline of nobody's, step by step."""

    def __init__(self, scheduler: Any, net: nn.Module):
        self.scheduler, self.net = scheduler, net

    def __call__(self, change: Callable[[Tensor], Tensor] = lambda x: x) -> Tensor:
        self.scheduler.set_timesteps(STEPS)
        x, drawn = noise(), torch.Generator().manual_seed(3)
        more = {"generator": drawn} if takes_generator(self.scheduler) else {}
        with torch.no_grad():
            for t in self.scheduler.timesteps:
                x = change(self.scheduler.step(self.net(x), t, x, **more).prev_sample)
        return x


def noise() -> Tensor:
    return torch.randn(3, 6, generator=torch.Generator().manual_seed(1)) * 2


def takes_generator(scheduler: Any) -> bool:
    return "generator" in type(scheduler).step.__code__.co_varnames


def served(
    scheduler: Any,
    net: nn.Module,
    options: dict[str, Any],
    change: Callable[[Tensor], Tensor] = lambda x: x,
    **more: Any,
) -> tuple[Tensor, Any]:
    """The same loop with a session."""
    scheduler.set_timesteps(STEPS)
    x, drawn = noise(), torch.Generator().manual_seed(3)
    given = {"generator": drawn} if takes_generator(scheduler) else {}
    options = check_options(None, dict(options))
    session = Session(scheduler, scheduler.timesteps, options, settings=given, **more)
    with torch.no_grad(), session.hooks:
        for n, t in enumerate(scheduler.timesteps):
            output = session.output(n, lambda x=x: net(x), x)
            x = change(scheduler.step(output, t, x, **given).prev_sample)
        report = session.close()
    assert not hooks_in(scheduler)
    return x, report


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", MAKERS)
def test_a_session_does_what_a_seam_does(name: str, options: dict[str, Any]):
    net = Net()
    pipe = Pipe(MAKERS[name](), net)
    with accelerate(pipe, scheduler=pipe.scheduler, denoisers=[net], **options) as handle:
        wanted, known = pipe(), handle.report
    seam_calls, net.calls = net.calls, 0
    assert known is not None
    made, report = served(MAKERS[name](), net, options)
    assert torch.equal(made, wanted)
    assert net.calls == seam_calls == report.evaluations == report.forwards
    assert report.queried == known.queried and report.stages == known.stages
    assert report.estimate == known.estimate


def test_every_stage_is_the_plain_run():
    net = Net()
    plain = Pipe(schedulers.FLOW["flow, shift"](), net)()
    made, report = served(schedulers.FLOW["flow, shift"](), net, {"budget": STEPS})
    assert torch.equal(made, plain) and report.evaluations == STEPS and not report.predicted


def test_two_outputs_a_stage_are_exact():
    scheduler, net = schedulers.ORDER_2["Heun"](), Net()
    scheduler.set_timesteps(STEPS)
    session = Session(scheduler, scheduler.timesteps, check_options(None, {"budget": 8}))
    x = noise()
    for n, t in enumerate(scheduler.timesteps):
        x = scheduler.step(session.output(n, lambda x=x: net(x), x), t, x).prev_sample
    report = session.close()
    assert net.calls == len(scheduler.timesteps) == report.evaluations
    assert any("takes two outputs a stage" in why for _, why in report.reasons)


def test_a_host_that_changes_the_state_is_not_corrected():
    net, options = Net(), {"budget": 9}

    def change(x: Tensor) -> Tensor:
        return x + 0.0

    pipe = Pipe(schedulers.FLOW["flow, shift"](), net)
    with accelerate(pipe, scheduler=pipe.scheduler, denoisers=[net], **options) as handle:
        wanted, known = pipe(change), handle.report
    made, report = served(schedulers.FLOW["flow, shift"](), net, options, change)
    assert known is not None and torch.equal(made, wanted) and report.queried == known.queried
    assert not any(stage.correction for stage in report.stages)
    assert "the state was changed" in report.plan


@pytest.mark.parametrize("planned", [False, True])
def test_another_expert_is_another_regime(planned: bool):
    first, second, switch = Net(0), Net(1), 10
    scheduler = schedulers.FLOW["flow, shift"]()
    scheduler.set_timesteps(STEPS)
    options = check_options(None, {"budget": 8})
    regimes = [switch] if planned else []
    session = Session(scheduler, scheduler.timesteps, options, regimes=regimes)
    x = noise()
    with torch.no_grad():
        for n, t in enumerate(scheduler.timesteps):
            net = first if n < switch else second
            output = session.output(n, lambda net=net, x=x: net(x), x, id(net))
            x = scheduler.step(output, t, x).prev_sample
    report = session.close()
    assert switch in (*report.queried, *report.extra)
    assert (report.regimes == (switch,)) is planned
    assert any("regime changed" in why for _, why in report.reasons) is not planned
    assert first.calls + second.calls == report.evaluations <= 10


@pytest.mark.parametrize(
    "output, said",
    [
        (lambda x: (x, x), "the output is a tuple, not one tensor"),
        (lambda x: x[:, :3], r"the output is \(3, 3\), and x is \(3, 6\)"),
        (lambda x: x.long(), "only floating-point outputs"),
    ],
)
def test_outputs_that_cannot_be_predicted_are_exact(output: Any, said: str):
    scheduler = schedulers.FLOW["flow"]()
    scheduler.set_timesteps(STEPS)
    options = check_options(None, {"budget": 8})
    session = Session(scheduler, scheduler.timesteps, options)
    x, made = noise(), []
    for n in range(STEPS):
        made.append(session.output(n, lambda: output(x), x))
    report = session.close()
    assert len(made) == report.evaluations == STEPS
    assert report.reasons and pytest.importorskip("re").search(said, report.reasons[0][1])


def test_a_stage_out_of_order_makes_the_rest_exact():
    scheduler, net = schedulers.FLOW["flow"](), Net()
    scheduler.set_timesteps(STEPS)
    session = Session(scheduler, scheduler.timesteps, check_options(None, {"budget": 8}))
    x = noise()
    for n in (0, 1, 2, 3, 4, 2, 3, 4):
        session.output(n, lambda: net(x), x)
    before = net.calls
    for n in range(5, STEPS):
        session.output(n, lambda: net(x), x)
    assert net.calls == before + STEPS - 5
    assert any("stage 2 was called where 5 was due" in why for _, why in session.close().reasons)


def test_another_number_of_steps_than_the_scheduler_has_is_exact():
    scheduler = schedulers.FLOW["flow"]()
    scheduler.set_timesteps(STEPS)
    times = [*scheduler.timesteps, scheduler.timesteps[-1]]
    session = Session(scheduler, times, check_options(None, {"budget": 8}))
    assert session.forced and f"the host makes {STEPS + 1} steps" in session.notes[0][1]


def test_a_step_from_another_state_is_told():
    scheduler, net = schedulers.ORDER_1["DPM++"](), Net()
    scheduler.set_timesteps(STEPS)
    session = Session(scheduler, scheduler.timesteps, check_options(None, {"budget": 8}))
    x = noise()
    with torch.no_grad():
        for n, t in enumerate(scheduler.timesteps):
            output = session.output(n, lambda x=x: net(x), x)
            x = scheduler.step(output, t, x if session.moved is None else x.clone()).prev_sample
    reasons = [why for _, why in session.close().reasons]
    assert any("another x than the output was made from" in why for why in reasons)


def test_it_learns_where_it_has_a_seat():
    net, learning = Net(), Learning()
    options = check_options(None, {"budget": 8, "learn": learning})
    calls = []
    for _ in range(3):
        net.calls, scheduler = 0, schedulers.FLOW["flow, shift"]()
        served(scheduler, net, options, seat=seat_of(options, [net], "flow"))
        calls.append(net.calls)
    assert calls == [STEPS, 8, 8]


def test_a_loop_that_breaks_off_leaves_no_trace():
    scheduler, net = schedulers.ORDER_1["UniPC"](), Net()
    scheduler.set_timesteps(STEPS)
    before = copy.deepcopy(vars(scheduler))
    with pytest.raises(KeyError):
        session = Session(scheduler, scheduler.timesteps, check_options(None, {"budget": 8}))
        with session.hooks:
            session.output(0, lambda: net(noise()), noise())
            raise KeyError
    assert vars(scheduler).keys() == before.keys() and not hooks_in(scheduler)


def test_many_interleaved_sessions_are_each_as_alone():
    """64 of them over one network, stage by stage in any order."""
    net, makers = Net(), list(MAKERS.values())
    asked = [{"budget": 6 + i % 9} if i % 5 else {"budget": STEPS} for i in range(64)]
    alone = [served(makers[i % len(makers)](), net, asked[i])[0] for i in range(64)]

    def loop(i: int) -> Any:
        scheduler = makers[i % len(makers)]()
        scheduler.set_timesteps(STEPS)
        x, drawn = noise(), torch.Generator().manual_seed(3)
        given = {"generator": drawn} if takes_generator(scheduler) else {}
        session = Session(
            scheduler, scheduler.timesteps, check_options(None, asked[i]), settings=given
        )
        for n, t in enumerate(scheduler.timesteps):
            with torch.no_grad():
                output = session.output(n, lambda x=x: net(x), x)
                x = scheduler.step(output, t, x, **given).prev_sample
            yield None
        session.close()
        yield x

    order = torch.Generator().manual_seed(0)
    loops, made = {i: loop(i) for i in range(64)}, {}
    while loops:
        i = list(loops)[int(torch.randint(len(loops), (), generator=order))]
        step = next(loops[i], None)
        if step is not None:
            made[i] = step
            del loops[i]
    assert all(torch.equal(made[i], alone[i]) for i in range(64))


def test_what_a_session_holds_goes_with_it():
    gc.collect()
    before = sum(isinstance(o, Session) for o in gc.get_objects())
    for _ in range(5):
        served(schedulers.FLOW["flow, shift"](), Net(), {"budget": 8})
    gc.collect()
    assert sum(isinstance(o, Session) for o in gc.get_objects()) == before


# --- schedulers that are remembered


def planned(scheduler: Any) -> Any:
    scheduler.set_timesteps(STEPS)
    session = Session(scheduler, scheduler.timesteps, check_options(None, {"budget": 8}))
    session.hooks.lift()
    return session.run


def table_of(scheduler: Any) -> Any:
    return responses.run_on_impulses(scheduler, planned(scheduler).plan, 0, {}).table


def test_a_scheduler_is_tried_out_once_for_every_state():
    responses.tried.cache_clear()
    first, second = (table_of(schedulers.ORDER_1["UniPC"]()) for _ in range(2))
    assert second is first
    assert table_of(schedulers.ORDER_1["DPM++"]()) is not first
    assert table_of(schedulers.vp("UniPCMultistepScheduler", solver_order=3)()) is not first


def test_a_class_that_was_changed_is_tried_out_anew():
    kind: Any = type("Mine", (type(schedulers.ORDER_1["DPM++"]()),), {"gain": 1.0})
    plain_step = kind.step

    def step(self: Any, output: Tensor, *args: Any, **kwargs: Any) -> Any:
        return plain_step(self, self.gain * output, *args, **kwargs)

    kind.step = step
    first = table_of(kind(**schedulers.BETAS))
    kind.gain = 0.5
    halved = table_of(kind(**schedulers.BETAS))
    assert not np.allclose(first[0], halved[0])
    kind.gain = 1.0
    assert np.allclose(table_of(kind(**schedulers.BETAS)), first)


@pytest.mark.parametrize("given", [[0.5], np.float32(0.5), {"a": 1}])
def test_a_setting_that_cannot_be_tried_out_is_refused(given: Any):
    scheduler = schedulers.ORDER_1["DPM++"]()
    run = planned(scheduler)
    with pytest.raises(ValueError, match="step is given scale"):
        responses.run_on_impulses(scheduler, run.plan, 0, {"scale": given})
    generators = [torch.Generator(), torch.Generator()]
    responses.run_on_impulses(scheduler, run.plan, 0, {"generator": generators, "eta": None})


def test_a_scheduler_that_begins_elsewhere_is_exact():
    scheduler = schedulers.FLOW["flow"]()
    scheduler.set_timesteps(STEPS)
    scheduler.set_begin_index(0)
    session = Session(scheduler, scheduler.timesteps[8:], check_options(None, {"budget": 8}))
    assert session.forced and "begins at another timestep" in session.notes[0][1]


def test_outputs_that_overflow_are_doubtful():
    scheduler, net = schedulers.FLOW["flow"](), Net()
    scheduler.set_timesteps(STEPS)
    session = Session(scheduler, scheduler.timesteps, check_options(None, {"budget": 8}))
    x = noise()
    with torch.no_grad():
        for n, t in enumerate(scheduler.timesteps):
            output = session.output(n, lambda x=x: 1e25 * net(x / 1e25), x)
            x = scheduler.step(output, t, x).prev_sample
    assert session.close().doubtful
