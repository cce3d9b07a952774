"""Derivatives of sample, Run and odeint: those of the computation performed, by every way there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchdiffeq
from torch.autograd import forward_ad, gradcheck
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap

import geoshrink
from geoshrink import Blocks, Plan, Run, sample
from geoshrink.rules import RULES, Rule
from geoshrink.rules.retention import Statistics, retention, shared_retention

F64 = torch.float64
STEPS, BUDGET = 12, 6
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own, jvp

NAMED = [f"{sign}{name}" for name in RULES if name != "fixed" for sign in ("", "signed ")]
OPTIONS: dict[str, dict[str, Any]] = {
    **{rule: {"rule": rule} for rule in [*NAMED, "fixed(0.7)", "signed fixed(0.7)"]},
    "eps_p": {"rule": Rule("log", eps_p=0.1, eps_s=0.1)},
    "eps_a": {"rule": Rule("exp", eps_a=0.1)},
    "clamp": {"rule": Rule("time", clamp=True)},
    "data": {"space": "data"},
    "channels": {"blocks": Blocks((0, 1)), "rule": "chordal"},
    "one": {"blocks": Blocks(()), "rule": "log"},
    "groups": {"blocks": Blocks((0, 1), groups=(1, 3)), "rule": "chordal"},
    "shared": {"blocks": Blocks((0, 1), shared=True), "rule": "chordal"},
    "mask": {"mask": torch.tensor([True, True, False, True]), "rule": "chordal"},
    "coefficients": {"coefficients": [0.5 if n == 5 else None for n in range(STEPS)]},
    "refined": {"refine": 3, "rule": "chordal"},
    "refined in data space": {"refine": 3, "rule": "chordal", "space": "data"},
}


def matrix(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 0.5 * torch.randn(4, 4, dtype=F64, generator=generator)


def noise(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def field(w: torch.Tensor):
    return lambda x, s: torch.tanh(x @ w) * (1 + s) + torch.sin(3 * s * x)


def sampled(x, w, velocity=None, **options):
    return sample(velocity or field(w), x, SIGMAS, BUDGET, **options)


def looped(x, w, velocity=None, run=None, stages=STEPS, **options):
    run, velocity = run or Run(SIGMAS, BUDGET, **options), velocity or field(w)
    for n in range(stages):
        v = run(n, lambda n=n, x=x: velocity(x, SIGMAS[n]), x)
        x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
    return x


def integrated(x, w, velocity=None, **options):
    times, velocity = torch.tensor(SIGMAS, dtype=F64), velocity or field(w)
    return geoshrink.odeint(lambda t, y: velocity(y, t), x, times, budget=BUDGET, **options)[-1]


WAYS = {"sample": sampled, "run": looped, "odeint": integrated}
ALL_WAYS = pytest.mark.parametrize("way", list(WAYS))


def leaves():
    return noise(2, 4).requires_grad_(), matrix().requires_grad_()


@ALL_WAYS
@pytest.mark.parametrize("name", list(OPTIONS))
def test_gradients_are_those_of_the_computation(name, way):
    # Was: held outputs were detached, so that a gradient was off by 70 % and nobody was told.
    if way == "odeint" and "refine" in OPTIONS[name] and "space" in OPTIONS[name]:
        pytest.skip("odeint's times rise, so that its data is at the other end")
    fast = way != "sample"  # one random direction, not every coordinate
    assert gradcheck(lambda x, w: WAYS[way](x, w, **OPTIONS[name]), leaves(), fast_mode=fast)


@pytest.mark.parametrize("solver", ["euler", "ab2", "heun", "dpm++2m"])
@pytest.mark.parametrize("options", [{}, {"space": "data"}, {"rule": "chordal"}], ids=str)
def test_gradients_through_every_solver(solver, options):
    assert gradcheck(
        lambda x, w: sampled(x, w, solver=solver, data=0.0, **options), leaves(), fast_mode=True
    )


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v"])
@pytest.mark.parametrize("space", ["output", "data"])
def test_gradients_of_other_outputs(prediction, space):
    angles = torch.linspace(1.4, 0.1, STEPS + 1, dtype=F64)
    how: dict[str, Any] = dict(prediction=prediction, alphas=angles.cos().tolist(), space=space)
    sigmas = angles.sin().tolist()
    assert gradcheck(
        lambda x, w: sample(field(w), x, sigmas, BUDGET, **how), leaves(), fast_mode=True
    )


def test_gradients_of_several_slots():
    def velocity(w):
        return lambda x, s: {"a": field(w)(x["a"] + x["b"], s), "b": field(w)(x["b"], s)}

    def both(a, b, w):
        out = sample(
            velocity(w), {"a": a, "b": b}, SIGMAS, BUDGET, blocks=Blocks(shared=True), rule="time"
        )
        return out["a"], out["b"]

    x, w = leaves()
    assert gradcheck(both, (x, noise(2, 4, seed=5).requires_grad_(), w))


def test_gradients_where_only_the_model_or_only_the_state_wants_them():
    x, w = leaves()
    assert gradcheck(lambda w: sampled(x.detach(), w), w)
    assert gradcheck(lambda x: sampled(x, w.detach()), x)

    def stopped(x):
        return sample(lambda x, s: field(w)(x, s).detach(), x, SIGMAS, BUDGET)

    (gradient,) = torch.autograd.grad(stopped(x).sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))


def test_a_network_s_parameters_learn_through_predicted_stages():
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 4, dtype=F64)
    weights = dict(net.named_parameters())

    def loss(*values):
        named = dict(zip(weights, values))
        end = sample(
            lambda x, s: torch.tanh(functional_call(net, named, (x,))) * (1 + s),
            noise(2, 4),
            SIGMAS,
            BUDGET,
        )
        return end.square().sum()

    assert gradcheck(loss, tuple(weights.values()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@ALL_WAYS
def test_low_precision_gives_the_same_numbers_with_and_without_gradients(dtype, way):
    x, w = noise(2, 4).to(dtype), matrix().to(dtype)
    with torch.inference_mode():
        plain = WAYS[way](x, w)
    followed = WAYS[way](x, w.requires_grad_())
    assert followed.dtype == dtype and followed.requires_grad
    assert torch.equal(followed.detach(), plain)
    (gradient,) = torch.autograd.grad(followed.sum(), w)
    assert gradient.isfinite().all() and gradient.any()


# --- corners ------------------------------------------------------------------------------------

CORNERS = {
    "no innovation": ([0.0, 0.0], [1.0, 2.0]),
    "no previous innovation": ([1.0, 2.0], [0.0, 0.0]),
    "nothing": ([0.0, 0.0], [0.0, 0.0]),
    "parallel": ([1.0, 2.0], [2.0, 4.0]),
    "reversed": ([1.0, 2.0], [-2.0, -4.0]),
    "orthogonal": ([1.0, 0.0], [0.0, 1.0]),
    "tiny": ([1e-170, 0.0], [0.0, 1.0]),
}
FORMS = [{}, {"eps_p": 0.1}, {"eps_a": 0.1}, {"eps_s": 0.1}, {"signed": True, "clamp": True}]


@pytest.mark.parametrize("horizon", [0.0, 1.0, -2.5, 1e200, float("inf"), float("nan")])
@pytest.mark.parametrize("name", list(RULES))
def test_gradients_are_finite_in_every_corner(name, horizon):
    rho = torch.full((1, 1), horizon, dtype=F64)
    for (corner, pair), form in ((c, f) for c in CORNERS.items() for f in FORMS):
        rule = Rule(name, **form)
        for shared in (False, True) if name not in ("log", "exp") else (False,):
            dv, before = (torch.tensor([v], dtype=F64, requires_grad=True) for v in pair)
            stats = Statistics(dv.square().sum(1), before.square().sum(1), (dv * before).sum(1))
            omega = (
                shared_retention(rule, [stats], [rho], [rho])[0]
                if shared
                else retention(rule, stats, rho, rho)
            )
            kept = (omega.reshape(1, 1) * dv).sum()
            assert kept.isfinite()
            for gradient in torch.autograd.grad(kept, (dv, before), allow_unused=True):
                assert gradient is None or gradient.isfinite().all(), (corner, form, shared)


@ALL_WAYS
@pytest.mark.parametrize("rule", NAMED)
def test_a_model_that_stands_still_has_finite_gradients(rule, way):
    """Equal outputs at every anchor: Δv = 0, and the gradient is that of the plain sum."""
    w = torch.ones(4, dtype=F64, requires_grad=True)
    end = WAYS[way](noise(2, 4), w, rule=rule, velocity=lambda x, s: w.expand(2, 4))
    (gradient,) = torch.autograd.grad(end.sum(), w)
    assert torch.allclose(gradient, torch.full((4,), -2.0, dtype=F64))


def test_a_nan_behind_the_mask_does_not_reach_what_the_rest_depends_on():
    mask = torch.tensor([True, True, True, False])
    hidden = torch.where(mask, 0.0, float("nan"))

    def kept(w, spoil):
        run, table = Run(SIGMAS, BUDGET, mask=mask, rule="chordal"), noise(STEPS, 2, 4)
        outputs = [run(n, lambda n=n: torch.sin(w * table[n]) + spoil) for n in range(STEPS)]
        return torch.stack(outputs)[..., :3].square().sum()

    w = torch.tensor(0.7, dtype=F64)
    assert torch.allclose(grad(kept)(w, hidden), grad(kept)(w, 0.0))


# --- transforms ---------------------------------------------------------------------------------

FOLLOWED = ["chordal", "log", "exp", "signed time", "data", "groups", "shared", "mask", "refined"]


@pytest.mark.parametrize("way", ["sample", "run"])  # torchdiffeq's own loop has no vmap
@pytest.mark.parametrize("name", [*FOLLOWED, "coefficients"])
def test_torch_func(name, way):
    w, options = matrix(), OPTIONS[name]

    def run(x):
        return WAYS[way](x, w, **options)

    def loss(x):
        return run(x).square().sum()

    xs, tangent = noise(3, 2, 4), noise(2, 4, seed=7)
    each = torch.stack([run(x) for x in xs])
    assert torch.allclose(vmap(run)(xs), each, atol=1e-12)
    x = xs[0].clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(x), x)
    assert torch.allclose(grad(loss)(xs[0]), wanted)
    assert torch.allclose(jvp(loss, (xs[0],), (tangent,))[1], (wanted * tangent).sum())
    assert torch.allclose(jacrev(run)(xs[0]), jacfwd(run)(xs[0]))
    assert torch.allclose(vmap(grad(loss))(xs)[0], wanted)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(loss(forward_ad.make_dual(xs[0], tangent)))
    assert dual.tangent is not None
    assert torch.allclose(dual.tangent, (wanted * tangent).sum())


def test_the_grid_of_a_transform_may_be_a_tensor():
    x, w = noise(2, 4), matrix()
    grid = torch.tensor(SIGMAS, dtype=F64)

    def run(sigmas):
        return lambda x: sample(field(w), x, sigmas, BUDGET, dtype=F64)

    tangents = [jvp(run(sigmas), (x,), (x,))[1] for sigmas in (SIGMAS, grid)]
    assert torch.equal(*tangents)
    assert torch.equal(jacrev(run(grid))(x), jacrev(run(SIGMAS))(x))


@pytest.mark.parametrize("solver", ["euler", "ab2", "heun", "dpm++2m"])
def test_vmap_of_every_solver_in_low_precision(solver):
    xs, w = noise(3, 2, 4).bfloat16(), matrix().bfloat16()

    def run(x):
        corrected = dict(anchors="corrected", correct=True, clock="mesh")
        return sampled(x, w, solver=solver, data=0.0, **corrected)

    assert torch.equal(vmap(run)(xs), torch.stack([run(x) for x in xs]))


@pytest.mark.parametrize("transform", [vmap, lambda f: grad(lambda x: f(x).sum())])
def test_a_report_can_be_read_inside_a_transform_and_after_it(transform):
    xs, w, runs, reports = noise(3, 2, 4), matrix(), [], []

    def loop(x):
        runs.append(Run(SIGMAS, BUDGET))
        x = looped(x, w, run=runs[0])
        reports.append(str(runs[0].report))
        return x

    transform(loop)(xs)
    assert str(runs[0].report) == reports[0]
    whole = Run(SIGMAS, BUDGET)
    looped(xs.flatten(0, 1), w, run=whole)
    if transform is vmap:  # each of its samples is one of the batch's
        assert runs[0].self_check == pytest.approx(whole.self_check)


def test_a_reserve_sees_the_whole_batch_of_vmap():
    xs, w = noise(3, 2, 4), matrix()
    out = vmap(lambda x: sampled(x, w, reserve=1))(xs)
    assert torch.allclose(out.flatten(0, 1), sampled(xs.flatten(0, 1), w, reserve=1), atol=1e-12)


def test_a_plan_first_used_inside_a_transform_serves_outside():
    plan, x = Plan.of(SIGMAS, BUDGET), noise(2, 4)
    w = matrix()
    grad(lambda x: torch.sum(sample(field(w), x, plan=plan)))(x)
    assert torch.equal(sample(field(matrix()), x, plan=plan), sampled(x, matrix()))
    assert gradcheck(lambda x: sample(field(matrix()), x, plan=plan), leaves()[0])


@pytest.mark.parametrize("switch", [3, 7])
def test_gradients_switched_off_in_mid_run(switch):
    """Truncated back-propagation: later stages are constants of the earlier graph."""
    x, w = leaves()
    run, plain = Run(SIGMAS, BUDGET), []
    for n in range(STEPS):
        with torch.set_grad_enabled(n < switch):
            v = run(n, lambda n=n, x=x: field(w)(x, SIGMAS[n]))
            x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
        plain.append(x)
    (gradient,) = torch.autograd.grad(plain[switch - 1].sum(), w)

    early = grad(lambda w: looped(noise(2, 4), w, stages=switch).sum())
    assert torch.allclose(gradient, early(matrix()))


def test_torchdiffeq_s_gradients_at_a_full_budget():
    times, (x, w) = torch.tensor(SIGMAS, dtype=F64), leaves()

    def f(t, y):
        return field(w)(y, t)

    mine = geoshrink.odeint(f, x, times, budget=STEPS)[-1].sum()
    path: Any = torchdiffeq.odeint(f, x, times, method="euler")
    theirs = path[-1].sum()
    for a, b in zip(torch.autograd.grad(mine, (x, w)), torch.autograd.grad(theirs, (x, w))):
        assert torch.equal(a, b)
