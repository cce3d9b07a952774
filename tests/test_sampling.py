"""sample(): the plain solver at full budget, collapsed cells, bad input, callbacks, structures."""

import gc
import sys
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oracle
from geoshrink import Blocks, Grid, Plan, Rule, Run, register_output, sample
from geoshrink.meshes.corrected import corrected_anchors
from geoshrink.meshes.slow import slow_anchors
from geoshrink.solvers import SOLVERS

F64 = torch.float64


def shifted(steps: int, shift: float = 3.0) -> list[float]:
    times = [1 - i / steps for i in range(steps + 1)]
    return [shift * t / (1 + (shift - 1) * t) for t in times]


SIGMAS = shifted(24)
ANCHORS = (0, 1, 2, 3, 5, 8, 11, 15, 19)  # the last cell runs to the end
WEIGHT = torch.randn(6, 6, dtype=F64, generator=torch.Generator().manual_seed(7))


class Model:
    """A smooth nonlinear velocity that turns, and the σ at which it was asked."""

    def __init__(self):
        self.calls: list[float] = []

    def __call__(self, x: Tensor, sigma: float) -> Tensor:
        self.calls.append(sigma)
        wide = x.double()
        out = torch.tanh(wide @ WEIGHT + sigma) @ WEIGHT.T + np.sin(9 * sigma) * WEIGHT[0]
        return (out + np.cos(6 * sigma) * WEIGHT[1]).to(x.dtype)


def noise(dtype: torch.dtype = F64, samples: int = 3) -> Tensor:
    return torch.randn(samples, 6, dtype=F64, generator=torch.Generator().manual_seed(8)).to(dtype)


def close(a: Tensor, b: Tensor, tol: float) -> None:
    scale = float(b.abs().max())
    torch.testing.assert_close(a, b, rtol=tol, atol=tol * scale)


# --- every stage --------------------------------------------------------------------------------


def plain(solver: str, x: Tensor, sigmas: list[float], model) -> Tensor:
    """A textbook loop on a flow grid, in the order of operations of the formula."""
    last = None
    for n, (s, t) in enumerate(pairwise(sigmas)):
        h, v = t - s, model(x, s)
        if solver == "euler" or (solver == "ab2" and last is None):
            last, x = v, x + h * v
        elif solver == "ab2":
            assert last is not None
            x, last = x + h * (v + h / (2 * (s - sigmas[n - 1])) * (v - last)), v
        elif t == sigmas[-1]:
            x = x + h * v
        else:
            x = x + h * (v + model(x + h * v, t)) / 2
    return x


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.bfloat16])
@pytest.mark.parametrize("solver", list(SOLVERS))
@pytest.mark.parametrize("budget", [None, 24, 40])
def test_a_full_budget_is_the_plain_solver(budget, solver, dtype, space):
    x, model = noise(dtype), Model()
    out, report = sample(model, x, SIGMAS, budget, solver=solver, space=space, with_report=True)
    if solver == "dpm++2m":
        step = SOLVERS[solver](Grid.of(SIGMAS).tracks[0])
        wanted = x
        for n in range(24):
            wanted = step.step(n, wanted, model(wanted, SIGMAS[n]))
    else:
        wanted = plain(solver, x, SIGMAS, model)
    assert torch.equal(out, wanted) and out.dtype == dtype
    calls = "; 47 forwards" if solver == "heun" else ""
    assert report.summary() == f"24 of 24 stages exact, 0 predicted{calls}"
    assert ("budget 40 exceeds the 24 stages" in str(report)) == (budget == 40)
    assert bool(report.reasons) == (budget == 40)


def test_sample_is_the_oracles_run():
    x = noise()
    for space in ("output", "data"):
        for rule, signed in (("chordal", True), ("time", False), ("exp", False)):
            out = sample(
                Model(), x, SIGMAS, anchors=ANCHORS, rule=Rule(rule, signed=signed), space=space
            )
            wanted, _, _ = oracle.euler_run(
                lambda x, s: Model()(torch.from_numpy(x), s).numpy(),
                x.numpy(),
                SIGMAS,
                ANCHORS,
                rule,
                space,
                signed=signed,
            )
            close(out, torch.from_numpy(wanted), 1e-9)


def test_the_input_is_left_alone():
    for solver in SOLVERS:
        x, seen = noise(), []
        out = sample(lambda x, s: x * s, x, SIGMAS, 8, solver=solver)
        assert torch.equal(x, noise()) and out.data_ptr() != x.data_ptr()
        assert not seen


def test_speedup_and_defaults():
    _, report = sample(Model(), noise(), SIGMAS, speedup=3, with_report=True)
    usual = corrected_anchors(Grid.of(SIGMAS), 8) or ()
    assert report.queried == slow_anchors(Grid.of(SIGMAS), usual) and len(report.queried) == 8
    assert "signed time" in report.plan and "corrected (half, caution 0.5)" in report.plan


# --- collapsed cells ----------------------------------------------------------------------------

LEVELS: dict[str, tuple[dict[str, Any], list[float]]] = {
    "flow": ({}, SIGMAS),
    "flow from above": (dict(data=0.0), [0.3 + 0.7 * s for s in SIGMAS]),
    "flow up": (dict(data=1.0), [1 - s for s in SIGMAS]),
}
for _prediction in ("epsilon", "sample", "v"):
    for _alphas in ("vp", "ve", "flow"):
        _scale = 12.0 if _alphas == "ve" else 0.98 if _prediction == "epsilon" else 1.0
        LEVELS[f"{_prediction} {_alphas}"] = (
            dict(prediction=_prediction, alphas=_alphas),
            [_scale * s for s in SIGMAS],
        )


def ignore(n: int, x: Any) -> None:
    pass


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("name", list(LEVELS))
def test_a_collapsed_cell_is_the_stage_by_stage_result(name, space):
    levels, sigmas = LEVELS[name]
    options: dict[str, Any] = dict(anchors=ANCHORS, space=space, rule="chordal", with_report=True)
    options |= levels
    for dtype, tol in ((F64, 1e-12), (torch.float32, 2e-5)):
        out, report = sample(Model(), noise(dtype), sigmas, **options)
        slow, other = sample(Model(), noise(dtype), sigmas, callback=ignore, **options)
        assert bool(out.isfinite().all())
        close(out, slow, tol)
        assert report.queried == other.queried and report.predicted == other.predicted
        omegas = [[row.omega or 0.0 for row in r.stages] for r in (report, other)]
        assert omegas[0] == pytest.approx(omegas[1], rel=1e-6, abs=1e-6)
        assert any(0.01 < w < 0.99 for w in omegas[0])


@pytest.mark.parametrize(
    "options",
    [
        dict(blocks=Blocks(dims=(0, 1), groups=(2, 4))),
        dict(blocks=Blocks(dims=())),
        dict(blocks=Blocks(dims=(0, 1), shared=True)),
        dict(mask=torch.tensor([1, 0, 1, 1, 0, 1], dtype=torch.bool)),
        dict(rule=["time"] * 5 + ["hold", "linear", "chordal", "fixed(0.3)"]),
        dict(coefficients=[None, 0.5] * 12),
        dict(regimes=(5, 15)),
        dict(dtype=F64),
    ],
    ids=lambda o: next(iter(o)),
)
@pytest.mark.parametrize("space", ["output", "data"])
def test_collapsed_cells_with_every_option(options, space):
    out = sample(Model(), noise(), SIGMAS, anchors=ANCHORS, space=space, **options)
    slow = sample(
        Model(), noise(), SIGMAS, anchors=ANCHORS, space=space, callback=ignore, **options
    )
    close(out, slow, 1e-12)


def test_collapsed_cells_of_two_slots_and_zero_lengths():
    one, two = [*SIGMAS[:7], *SIGMAS[6:]], [*shifted(24, 6.0)[:7], *shifted(24, 6.0)[6:]]
    two[8] = two[7]  # a second stage at which only this slot stands still

    def velocity(x, sigma):
        return {k: Model()(x[k], sigma[k]) for k in x}

    for space in ("output", "data"):
        options: dict[str, Any] = dict(anchors=ANCHORS, space=space, rule="time")
        x = {"a": noise(), "b": 2 * noise()}
        sigmas = {"a": one, "b": two}
        out = sample(velocity, x, sigmas, **options)
        slow = sample(velocity, x, sigmas, callback=ignore, **options)
        for key in x:
            close(out[key], slow[key], 1e-12)


# A matrix product would run in bfloat16 there, and the coefficients have two digits.
@pytest.mark.parametrize("space", ["output", "data"])
def test_collapsed_cells_under_autocast(space):
    x = noise(torch.float32)

    def velocity(x, sigma):  # element by element: autocast does not touch it
        return torch.tanh(x + sigma) + torch.sin(9 * sigma * x)

    options: dict[str, Any] = dict(anchors=(0, 1, 2, 4, 12, 20), rule="linear", space=space)
    wanted = sample(velocity, x, SIGMAS, **options)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        slow = sample(velocity, x, SIGMAS, callback=ignore, **options)
        out = sample(velocity, x, SIGMAS, **options)
    close(slow, wanted, 1e-5)
    close(out, wanted, 1e-5)


def test_a_leap_asks_no_more_and_no_less():
    for callback in (None, ignore):
        model = Model()
        sample(model, noise(), SIGMAS, anchors=ANCHORS, callback=callback)
        assert model.calls == [SIGMAS[a] for a in ANCHORS]


# --- callback and progress ----------------------------------------------------------------------


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_the_callback_sees_every_stage_in_order(solver):
    seen: list[tuple[int, Tensor]] = []
    out = sample(
        Model(),
        noise(),
        SIGMAS,
        anchors=ANCHORS,
        solver=solver,
        callback=lambda n, x: seen.append((n, x.clone())),
    )
    assert [n for n, _ in seen] == list(range(24)) and torch.equal(seen[-1][1], out)
    assert len({x.sum().item() for _, x in seen}) == 24


def test_the_callback_sees_the_states_of_your_own_loop():
    run, x, wanted = Run(SIGMAS, anchors=ANCHORS), noise(), []
    for n in range(24):
        v = run(n, lambda x=x, n=n: Model()(x, SIGMAS[n]))
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
        wanted.append(x)
    seen: list[Tensor] = []
    sample(Model(), noise(), SIGMAS, anchors=ANCHORS, callback=lambda n, x: seen.append(x))
    assert len(seen) == 24 and all(torch.equal(a, b) for a, b in zip(seen, wanted))


def test_the_callback_sees_the_structure_of_x():
    kinds = []
    x = {"a": noise(), "b": [noise(), (noise(),)]}
    out = sample(
        lambda x, s: x, x, SIGMAS, 8, callback=lambda n, x: kinds.append((type(x), type(x["b"])))
    )
    assert set(kinds) == {(dict, list)} and isinstance(out["b"][1], tuple)


def test_a_callback_that_raises_stops_the_run():
    def stop(n, x):
        if n == 6:
            raise KeyboardInterrupt

    model = Model()
    with pytest.raises(KeyboardInterrupt):
        sample(model, noise(), SIGMAS, anchors=ANCHORS, callback=stop)
    assert len(model.calls) == 5


def test_progress(capsys):
    out = sample(Model(), noise(), SIGMAS, 8, progress=True)
    printed = capsys.readouterr()
    assert "24/24" in printed.err and "stage" in printed.err and not printed.out
    assert torch.equal(out, sample(Model(), noise(), SIGMAS, 8))
    assert not capsys.readouterr().err


def test_the_bar_is_closed_when_the_model_raises(capsys):
    from tqdm import tqdm

    def velocity(x, sigma):
        if sigma < 0.5:
            raise RuntimeError("out of memory")
        return x

    with pytest.raises(RuntimeError, match="out of memory"):
        sample(velocity, noise(), SIGMAS, 8, progress=True)
    assert not tqdm._instances  # type: ignore[attr-defined]
    capsys.readouterr()


def test_progress_without_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    model = Model()
    with pytest.raises(ImportError, match=r"pip install 'geoshrink\[compare\]'"):
        sample(model, noise(), SIGMAS, 8, progress=True)
    assert not model.calls


# --- bad input ----------------------------------------------------------------------------------

PLAN = Plan.of(SIGMAS, 8)
BAD_MODELS = {
    "shape": (lambda x, s: x[:, :3], ValueError, r"\(3, 3\).*\(3, 6\)"),
    "broadcast": (lambda x, s: x[:1], ValueError, r"\(1, 6\).*\(3, 6\)"),
    "scalar": (lambda x, s: x.mean(), ValueError, r"\(\).*\(3, 6\)"),
    "integers": (lambda x, s: x.long(), TypeError, "int64.*floating-point"),
    "complex": (lambda x, s: x + 0j, TypeError, "complex128.*floating-point"),
    "numpy": (lambda x, s: x.numpy(), TypeError, "ndarray"),
    "nothing": (lambda x, s: None, TypeError, "NoneType"),
    "number": (lambda x, s: 0.5, TypeError, "float"),
    "two": (lambda x, s: (x, x), ValueError, r"\(3, 6\), \(3, 6\)"),
    "empty": (lambda x, s: [], ValueError, "empty list"),
    "device": (lambda x, s: x.to("meta"), ValueError, "meta.*cpu"),
}


@pytest.mark.parametrize("solver", ["euler", "heun"])
@pytest.mark.parametrize("name", list(BAD_MODELS))
def test_bad_models(name, solver):
    velocity, error, message = BAD_MODELS[name]
    for budget in (8, None):
        with pytest.raises(error, match=message):
            sample(velocity, noise(), SIGMAS, budget, solver=solver)


@pytest.mark.parametrize("name", list(BAD_MODELS))
def test_models_that_turn_bad_in_mid_run(name):
    velocity, error, message = BAD_MODELS[name]
    for budget in (8, None):
        with pytest.raises(error, match=message):
            sample(lambda x, s, v=velocity: x if s > 0.6 else v(x, s), noise(), SIGMAS, budget)


NAN = float("nan")
BAD_CALLS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "solver": (dict(solver="rk4"), ValueError, "'rk4'.*euler, ab2, heun, dpm"),
    "no grid": (dict(sigmas=None), ValueError, r"sample\(velocity, x, sigmas, budget=10\)"),
    "another grid": (dict(plan=Plan.of(shifted(30), 8)), ValueError, r"made for 30 stages, not 24"),
    "plan and budget": (dict(plan=PLAN, budget=8), ValueError, "leave out budget"),
    "plan and rule": (dict(plan=PLAN, rule="hold"), ValueError, "leave out rule"),
    "mask": (dict(mask=torch.ones(3, 5, dtype=torch.bool)), ValueError, r"\(3, 5\).*\(3, 6\)"),
    "mask count": (dict(mask=[None, None]), ValueError, "2 masks for 1"),
    "rule": (dict(rule="chordale"), ValueError, "'chordale'.*chordal, log"),
    "rule argument": (dict(rule="fixed"), ValueError, r"fixed\(value\)"),
    "rules": (dict(rule=["hold", "chordal"]), ValueError, "2 rules for 8 cells"),
    "anchors": (dict(anchors="geo"), ValueError, "'geo'.*sigma, geometric, uniform"),
    "anchor order": (dict(budget=None, anchors=(0, 5, 3)), ValueError, r"\(0, 5, 3\)"),
    "anchor range": (dict(budget=None, anchors=(0, 24)), ValueError, "24 .* 0 … 23"),
    "no first anchor": (dict(budget=None, anchors=(1, 5)), ValueError, "stage 0"),
    "anchors and budget": (dict(anchors=(0, 5)), ValueError, "leave out budget"),
    "budget and speedup": (dict(speedup=3), ValueError, "not both"),
    "space": (dict(space="latent"), ValueError, "'latent'.*output, data"),
    "small budget": (dict(budget=3), ValueError, "budget 3 .* 4"),
    "float budget": (dict(budget=8.0), TypeError, "8.0"),
    "boolean budget": (dict(budget=True), TypeError, "True"),
    "text budget": (dict(budget="8"), TypeError, "'8'"),
    "zero budget": (dict(budget=0), ValueError, "budget 0"),
    "slow down": (dict(budget=None, speedup=0.5), ValueError, "0.5"),
    "NaN": (dict(sigmas=[1.0, NAN, 0.0]), ValueError, "value 1 is nan"),
    "infinite": (dict(sigmas=[float("inf"), 1.0, 0.0]), ValueError, "value 0 is inf"),
    "one value": (dict(sigmas=[1.0]), ValueError, "at least two"),
    "empty": (dict(sigmas=[]), ValueError, "at least two"),
    "turns": (dict(sigmas=[1.0, 0.5, 0.7, 0.0]), ValueError, "one direction.* 0.5, 0.7"),
    "no length": (dict(sigmas=[1.0, 1.0]), ValueError, "zero length"),
    "two dimensional": (dict(sigmas=torch.ones(2, 5)), ValueError, r"\(2, 5\)"),
    "a number": (dict(sigmas=50), TypeError, "50"),
    "two grids": (dict(sigmas=(SIGMAS, SIGMAS)), ValueError, "2 σ-grids for an x of 1"),
    "unequal grids": (dict(sigmas=(SIGMAS, shifted(9))), ValueError, "same length"),
    "data end": (dict(sigmas=SIGMAS[::-1], space="data"), ValueError, "data=0.0.*data=1.0"),
    "no alphas": (dict(prediction="epsilon"), ValueError, "alphas='vp'"),
    "flow alphas": (dict(alphas="vp"), ValueError, "prediction='epsilon'"),
    "prediction": (dict(prediction="noise"), ValueError, "'noise'.*epsilon"),
    "schedule": (dict(prediction="v", alphas="edm"), ValueError, "'edm'.*flow, vp, ve"),
    "regimes": (dict(regimes=(30,)), ValueError, "30 .* 0 … 23"),
    "dtype": (dict(dtype=torch.float16), ValueError, "float16"),
    "groups": (dict(blocks=Blocks((0, 1), (2, 3))), ValueError, r"\(2, 3\).* 5.* 6"),
    "axis": (dict(blocks=Blocks((0, 4))), ValueError, "axis 4.* 2 axes"),
    "coefficients": (dict(coefficients=[0.5]), ValueError, "1 coefficients for 24"),
    "shared exp": (dict(rule="exp", blocks=Blocks(shared=True)), ValueError, "'exp'.*shared"),
    "option": (dict(budgett=8), TypeError, "(?s)(?=.*budgett)(?=.*speedup)(?!.*Plan.of)"),
    "x is a number": (dict(x=0.5), TypeError, "^x|x is|x must"),
    "x is an array": (dict(x=np.ones((3, 6))), TypeError, "^x|x is|x must"),
    "x is integer": (dict(x=torch.ones(3, 6, dtype=torch.int64)), TypeError, "int64"),
    "mask is an array": (dict(mask=np.ones((3, 6), dtype=bool)), TypeError, "boolean tensor"),
}


@pytest.mark.parametrize("name", list(BAD_CALLS))
def test_bad_calls(name):
    given, error, message = BAD_CALLS[name]
    call: dict[str, Any] = dict(x=noise(), sigmas=SIGMAS, budget=8)
    if "plan" in given:
        call["budget"] = None
    call |= given
    model = Model()

    def velocity(x, sigma):
        model.calls.append(sigma)
        return x * 0.5

    with pytest.raises(error, match=message):
        sample(velocity, **call)
    assert len(model.calls) <= 2  # whatever needs the model to be seen is seen at once


def test_a_plan_with_its_own_grid():
    a = sample(Model(), noise(), SIGMAS, plan=PLAN)
    assert torch.equal(a, sample(Model(), noise(), plan=PLAN))
    assert torch.equal(a, sample(Model(), noise(), torch.tensor(SIGMAS, dtype=F64), plan=PLAN))
    assert torch.equal(a, sample(Model(), noise(), np.array(SIGMAS), 8))
    assert torch.equal(a, sample(Model(), noise(), Grid.of(SIGMAS), 8))
    assert torch.equal(a, sample(Model(), noise(), Grid.of(SIGMAS), plan=PLAN))


# --- what is left behind ------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_a_model_that_raises_leaves_nothing(solver, error):
    refs = []

    def velocity(x, sigma):
        if sigma < 0.4:
            raise error("stop")
        out = x * 0.5
        refs.append(weakref.ref(out))
        return out

    def attempt():
        try:
            sample(velocity, noise(), SIGMAS, 10, solver=solver)
        except error:
            return True
        return False

    assert attempt() and len(refs) > 3
    gc.collect()
    assert all(ref() is None for ref in refs)
    clean = sample(Model(), noise(), SIGMAS, 10, solver=solver)
    assert torch.equal(clean, sample(Model(), noise(), SIGMAS, 10, solver=solver))


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes_of_autograd(mode, space):
    weight = torch.ones(6, dtype=F64, requires_grad=True)
    wanted = sample(Model(), noise(), SIGMAS, 8, space=space)
    with mode():
        out, report = sample(
            lambda x, s: Model()(x, s) * weight,
            noise(),
            SIGMAS,
            8,
            space=space,
            with_report=True,
        )
    close(out.detach(), wanted, 1e-12)
    assert out.requires_grad == (mode is torch.enable_grad)
    assert report.evaluations == 8


def test_a_model_in_inference_mode_inside_a_loop_that_is_not():
    @torch.inference_mode()
    def velocity(x, sigma):
        return Model()(x, sigma)

    for space in ("output", "data"):
        out = sample(velocity, noise(), SIGMAS, 8, space=space)
        close(out, sample(Model(), noise(), SIGMAS, 8, space=space), 1e-12)


# --- structures ---------------------------------------------------------------------------------

OTHER = shifted(24, 6.0)


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_two_modalities_are_two_samples(solver, space):
    def both(x, sigma):
        return {key: Model()(x[key], sigma[key]) for key in x}

    x, sigmas = {"video": noise(), "audio": 2 * noise()}, {"video": SIGMAS, "audio": OTHER}
    options: dict[str, Any] = dict(anchors=ANCHORS, solver=solver, space=space)
    out = sample(both, x, sigmas, **options)
    close(out["video"], sample(Model(), x["video"], SIGMAS, **options), 1e-12)
    close(out["audio"], sample(Model(), x["audio"], OTHER, **options), 1e-12)


def test_one_grid_for_several_tensors_gives_one_sigma():
    seen = set()

    def velocity(x, sigma):
        seen.add(type(sigma))
        return [part * sigma for part in x]

    out = sample(velocity, [noise(), noise()[:, :2]], SIGMAS, 8)
    assert seen == {float} and [part.shape for part in out] == [(3, 6), (3, 2)]


class Cloud:
    def __init__(self, coords: Tensor, feats: Tensor):
        self.coords, self.feats = coords, feats


register_output(Cloud, lambda o: [o.feats], lambda o, parts: Cloud(o.coords, parts[0]))


def test_a_registered_type_all_the_way():
    coords = torch.arange(3)

    def velocity(x, sigma):
        assert x.coords is coords
        return Cloud(x.coords, Model()(x.feats, sigma))

    for callback in (None, ignore):
        out = sample(velocity, Cloud(coords, noise()), SIGMAS, 8, callback=callback)
        assert isinstance(out, Cloud) and out.coords is coords
        close(out.feats, sample(Model(), noise(), SIGMAS, 8), 1e-12)


@pytest.mark.parametrize("which", ["velocity", "sigmas"])
def test_keys_in_another_order_are_matched(which):
    def velocity(x, sigma):
        order = "ba" if which == "velocity" else "ab"
        return {key: Model()(x[key], sigma[key]) for key in order}

    x = {"a": noise(), "b": 2 * noise()}
    sigmas = {"b": OTHER, "a": SIGMAS} if which == "sigmas" else {"a": SIGMAS, "b": OTHER}
    out = sample(velocity, x, sigmas, anchors=ANCHORS)
    close(out["a"], sample(Model(), x["a"], SIGMAS, anchors=ANCHORS), 1e-12)
    close(out["b"], sample(Model(), x["b"], OTHER, anchors=ANCHORS), 1e-12)


def test_a_velocity_with_another_structure_is_refused():
    x = {"b": noise(), "a": 2 * noise()}
    for answer, said in (
        (lambda x, sigma: {"b": x["b"], "c": x["a"]}, r"dict that .*: parts \('b', 'c'\)"),
        (lambda x, sigma: (x["b"], x["a"]), "tuple that .*: parts 2"),
    ):
        with pytest.raises(ValueError, match=f"velocity returned a {said} for \\('a', 'b'\\)"):
            sample(answer, x, SIGMAS, anchors=ANCHORS)


def test_a_velocity_may_answer_a_tuple_with_a_list():
    def velocity(x, sigma):
        return [Model()(part, sigma) for part in x]

    out = sample(velocity, (noise(), 2 * noise()), SIGMAS, anchors=ANCHORS)
    assert isinstance(out, tuple)
    for part, x in zip(out, (noise(), 2 * noise()), strict=True):
        close(part, sample(Model(), x, SIGMAS, anchors=ANCHORS), 1e-12)


# --- odds and ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_samples_do_not_see_each_other(solver):
    many = sample(Model(), noise(samples=5), SIGMAS, anchors=ANCHORS, solver=solver)
    for i in range(5):
        x = noise(samples=5)[i : i + 1]
        close(sample(Model(), x, SIGMAS, anchors=ANCHORS, solver=solver), many[i : i + 1], 1e-12)


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_a_bad_sample_spoils_only_itself(solver):
    def velocity(x, sigma):
        out = Model()(x, sigma)
        if 0.5 < sigma < 0.8:
            out[1] = float("nan")
        return out

    out, report = sample(
        velocity, noise(), SIGMAS, anchors=ANCHORS, solver=solver, with_report=True
    )
    clean = sample(Model(), noise(), SIGMAS, anchors=ANCHORS, solver=solver)
    assert torch.equal(out[[0, 2]], clean[[0, 2]]) and bool(out[1].isnan().all())
    assert any("not finite" in reason for _, reason in report.reasons)


# Heun's second outputs have a history of their own.
def test_the_report_of_heun_covers_both_outputs():
    calls = []

    def velocity(x, sigma):
        calls.append(sigma)
        return x * (float("nan") if len(calls) == 4 else 0.5)  # the second output of stage 1

    _, report = sample(
        velocity, noise(), SIGMAS, anchors=(*ANCHORS, 23), solver="heun", with_report=True
    )
    assert any("not finite" in reason and stage == 1 for stage, reason in report.reasons)


def test_heun_reports_the_memory_of_both_histories():
    _, report = sample(Model(), noise(), SIGMAS, 8, solver="heun", with_report=True)
    assert report.bytes_held == 4 * noise().nbytes


def test_stages_of_zero_length_are_never_asked():
    sigmas = [SIGMAS[0], *SIGMAS[:9], SIGMAS[8], *SIGMAS[9:], SIGMAS[-1]]
    for solver in SOLVERS:
        model, seen = Model(), []
        out, report = sample(
            model,
            noise(),
            sigmas,
            anchors=ANCHORS,
            solver=solver,
            callback=lambda n, x, seen=seen: seen.append(n),
            with_report=True,
        )
        plain_out = sample(
            Model(), noise(), SIGMAS, anchors=ANCHORS, solver=solver, callback=ignore
        )
        assert torch.equal(out, plain_out) and len(seen) == 24
        assert report.queried == ANCHORS and not report.extra and not report.reasons


def test_half_precision_outputs_for_a_float32_state():
    x = noise(torch.float32)
    out, report = sample(
        lambda x, s: Model()(x, s).bfloat16(), x, SIGMAS, anchors=ANCHORS, with_report=True
    )
    wanted = sample(Model(), x, SIGMAS, anchors=ANCHORS)
    assert out.dtype == torch.float32 and report.bytes_held == 2 * x.numel() * 2
    close(out, wanted, 2e-2)


@pytest.mark.parametrize("space", ["output", "data"])
def test_a_velocity_that_changes_its_dtype(space):
    """The history restarts, which the report says; the state keeps its own dtype."""
    x = noise(torch.float32)

    def velocity(x, sigma):
        return Model()(x, sigma).to(torch.bfloat16 if sigma > 0.9 else torch.float32)

    out, report = sample(velocity, x, SIGMAS, anchors=ANCHORS, space=space, with_report=True)
    assert out.dtype == torch.float32 and report.evaluations == len(ANCHORS)
    assert [n for n, _ in report.reasons] == [8] and "dtype" in report.reasons[0][1]
    held = [0.0 if n in (9, 10, 12, 13, 14) else None for n in range(len(SIGMAS) - 1)]
    wanted = sample(Model(), x, SIGMAS, anchors=ANCHORS, space=space, coefficients=held)
    close(out, wanted, 5e-2)  # one output is held, and two have no line before


@pytest.mark.parametrize("space", ["output", "data"])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 4, 5)])
def test_every_number_of_axes(shape, space):
    """One number is one sample; with one axis every number is a sample."""
    x = torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(3))

    def velocity(x, sigma):
        return torch.sin(3 * x + 5 * sigma)

    options: dict[str, Any] = dict(anchors=ANCHORS, space=space, rule="time")
    out = sample(velocity, x, SIGMAS, **options)
    rows = x.reshape(x.shape[0] if shape else 1, -1).numpy()
    wanted, _, _ = oracle.euler_run(
        lambda x, s: np.sin(3 * x + 5 * s), rows, SIGMAS, ANCHORS, "time", space
    )
    close(out, torch.from_numpy(wanted).reshape(shape), 1e-9)
