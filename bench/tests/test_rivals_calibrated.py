"""SeaCache, L2P-Cache, BudCache and DPCache, beside their formulas written out once more.

SeaCache is also beside diffusers' own hook, on a tiny FLUX.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations, pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cases import calls_of, plain, small_case
from geoshrink import sample
from geoshrink.grid import Grid
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods.budcache import BudCache, Search, off
from geoshrink_bench.methods.dpcache import DPCache, cheapest, features_of, path_costs
from geoshrink_bench.methods.l2p import L2P, gram_matrices, learn, schedules, solve
from geoshrink_bench.methods.registry import METHODS
from geoshrink_bench.methods.seacache import Filtered, SeaCache, token_grids, wiener
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.methods.teacache import modulated
from geoshrink_bench.zoo.model import Model
from geoshrink_bench.zoo.recipes import RECIPES, Recipe

STEPS, BUDGET, FOREVER = 12, 6, 1e9
NAMES = ("SeaCache", "L2P-Cache", "BudCache", "DPCache")
QUICK: dict[str, Any] = {"BudCache": {"heats": 6, "climbs": 1, "order": 0}}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def made(name: str, case: ZooCase, budget: int = BUDGET, **options: Any):
    """The method as the registry makes it, calibrated on other noise."""
    other = dataclasses.replace(case, noise=case.model.noise(2, seed=7), costs={})
    return METHODS[name]({**QUICK.get(name, {}), **options}, lambda: [other], budget)


def other_case(name: str) -> ZooCase:
    """The small network as one that predicts noise or data."""
    case = small_case(STEPS)
    small = case.model.recipe
    assert isinstance(small, Recipe)
    recipe = dataclasses.replace(RECIPES[name], network=small.network)
    return dataclasses.replace(case, model=dataclasses.replace(case.model, recipe=recipe))


def joint_case() -> ZooCase:
    """Two tensors, each on its own σ-grid."""
    torch.manual_seed(0)
    shapes = dict(shapes=((1, 4, 4), (1, 64)), patches=((2, 2), (16,)))
    size = dict(width=32, depth=2, heads=2, condition=16)
    recipe = dataclasses.replace(RECIPES["digits-av"], network=shapes | size)
    network = recipe.build(5)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    facts = {"classes": list("abcde"), "data": {}}
    model = Model(recipe, network.eval().requires_grad_(False), facts, "")
    return ZooCase(model, [0, 3], model.noise(2), 2.0, STEPS, (12.0, 3.0))


# --- what all of them keep ---------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_is_kept_and_only_evaluated_stages_run(name):
    case = small_case(STEPS)
    method = made(name, case)
    calls = calls_of(stack_of(case.network).branches[1][0])
    outcome = method.run(case, BUDGET)
    assert len(calls) == len(outcome.evaluated) == BUDGET and outcome.partial == 0
    assert torch.isfinite(outcome.x).all() and not torch.equal(outcome.x, plain(case))
    assert method.calibrated == (name != "SeaCache") and method.name == name
    assert outcome.held > 0 and "forward" not in vars(case.network)


@pytest.mark.parametrize("name", NAMES)
def test_with_every_stage_each_is_the_plain_run(name):
    case = small_case(STEPS)
    outcome = made(name, case, STEPS).run(case, STEPS)
    assert outcome.evaluated == tuple(range(STEPS)) and torch.equal(outcome.x, plain(case))


@pytest.mark.parametrize("name", NAMES)
def test_a_switch_of_guidance_runs_in_full(name):
    case = small_case(STEPS, interval=(0.4, 0.9))
    switches = {0, *case.grid().regimes}
    assert len(switches) == 3
    outcome = made(name, case, 8).run(case, 8)
    assert switches <= set(outcome.evaluated) and len(outcome.evaluated) <= 8
    assert torch.isfinite(outcome.x).all()


class Switching(ZooCase):
    """A regime that begins at stage 6, where the batch stays as it was."""

    def grid(self, steps: int | None = None) -> Grid:
        return dataclasses.replace(super().grid(steps), regimes=(6,))


@pytest.mark.parametrize(
    "method",
    [
        BudCache((0, 2, 6), order=1),
        SeaCache(FOREVER, order=1, warm_up=3),
        DPCache((0, 2, 6)),
    ],
    ids=lambda m: m.name,
)
def test_nothing_from_before_a_switch_is_used(method):
    """What is forecast after it does not change with what was there before."""
    case = small_case(STEPS)
    case = Switching(**{f.name: getattr(case, f.name) for f in dataclasses.fields(case)})
    blocks, now, seen = stack_of(case.network).blocks, {}, {}

    def last(block, args, output):
        kept = output if method.name == "DPCache" else output - now["in"]
        seen.setdefault(len(seen), kept)

    hooks = [
        blocks[0].register_forward_pre_hook(lambda m, args: now.update({"in": args[0]})),
        blocks[-1].register_forward_hook(last),
    ]
    outcome = method.run(case, 3)
    for hook in hooks:
        hook.remove()
    assert {0, 2, 6} <= set(outcome.evaluated)
    assert torch.allclose(seen[6], seen[9], atol=1e-5)
    assert not torch.allclose(seen[2], seen[4], atol=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_parts_and_other_predictions(name):
    case = joint_case()
    outcome = made(name, case).run(case, BUDGET)
    assert [part.shape for part in outcome.x] == [part.shape for part in case.noise]
    assert all(torch.isfinite(part).all() for part in outcome.x)
    assert len(outcome.evaluated) <= BUDGET
    for prediction in ("fruit-epsilon", "fruit-x0"):
        case = other_case(prediction)
        outcome = made(name, case).run(case, BUDGET)
        assert torch.isfinite(outcome.x).all() and len(outcome.evaluated) <= BUDGET


@pytest.mark.parametrize("name", ["L2P-Cache", "BudCache", "DPCache"])
def test_a_budget_that_cannot_be_kept_is_refused(name):
    with pytest.raises(ValueError, match=r"budget of 2|no 2 stages"):
        made(name, small_case(STEPS, interval=(0.4, 0.9)), 2)


# --- SeaCache ----------------------------------------------------------------------------------


def filtered_by_hand(x: np.ndarray, signal: float, noise: float, power: float) -> np.ndarray:
    """The filter of one sample (rows, columns, features), by sums over all frequencies."""
    gains = []
    for side in x.shape[:2]:
        f = np.minimum(np.arange(side), side - np.arange(side)) / side
        with np.errstate(divide="ignore"):
            s = np.where(f > 0, f**-power, 1e16)
        gains.append(signal * s / (signal**2 * s + noise**2))
    gain = np.outer(*gains)
    gain /= gain.mean()
    waves = [np.exp(-2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n) for n in x.shape[:2]]
    spectrum = np.einsum("ra,cb,abf->rcf", *waves, x) * gain[..., None]
    back = np.einsum("ra,cb,abf->rcf", *(w.conj() for w in waves), spectrum)
    return back.real / x[..., 0].size


@pytest.mark.parametrize("sigma", [0.05, 0.6, 0.95])
def test_the_filter_of_seacache(sigma):
    x = torch.randn(2, 4, 6, 3, generator=torch.Generator().manual_seed(0))
    found = wiener(x, 1 - sigma, sigma)
    for one, expected in zip(found, x):
        hand = filtered_by_hand(expected.double().numpy(), 1 - sigma, sigma, 2.0)
        assert np.allclose(one.numpy(), hand, atol=2e-5 * np.abs(hand).max())
    constant = torch.ones(1, 4, 4, 1)
    assert wiener(constant, 0.0, 1.0).std() < 1e-3 * wiener(constant, 0.0, 1.0).mean()
    video = x.reshape(2, 2, 2, 6, 3)
    assert torch.allclose(wiener(video, 0.3, 0.7), wiener(video, 0.3, 0.7, 3.0))
    assert not torch.allclose(wiener(video, 0.3, 0.7), wiener(video, 0.3, 0.7, 2.0))


@pytest.mark.parametrize("order", [0, 1])
def test_seacache_by_hand(order):
    """The rule and the residuals, in a loop over the zoo's network."""
    case, threshold = small_case(STEPS), 0.5
    outcome = SeaCache(threshold, order).run(case, 0)
    sigmas, blocks = case.grid().tracks[0].sigmas, stack_of(case.network).blocks
    total, before, full, kept = 0.0, None, [], []
    inner = case.velocity()
    hooks = []

    def first(block, args):
        nonlocal total, before
        n = state["n"]
        tokens = modulated(block, args, {})
        grid = tokens.reshape(len(tokens), 2, 2, -1)
        now = wiener(grid, 1 - sigmas[n], sigmas[n], 2.0)
        change = math.inf if before is None else float((now - before).abs().sum())
        change = change / float(before.abs().sum()) if before is not None else change
        total, before = total + change, now
        if n in (0, STEPS - 1) or total >= threshold:
            full.append(n)
            total = 0.0
        state["in"] = args[0]

    def last(block, args, output):
        n = state["n"]
        if full[-1] == n:
            kept.append((n, output - state["in"]))
            return None
        (j, r) = kept[-1]
        if order and len(kept) > 1:
            i, q = kept[-2]
            r = r + (r - q) * (n - j) / (j - i)
        return state["in"] + r

    state: dict[str, Any] = {}
    hooks = [blocks[0].register_forward_pre_hook(first), blocks[-1].register_forward_hook(last)]
    x = case.noise
    for n in range(STEPS):
        state["n"] = n
        x = x + (sigmas[n + 1] - sigmas[n]) * inner(x, sigmas[n])
    for hook in hooks:
        hook.remove()
    assert outcome.evaluated == tuple(full) and 2 < len(full) < STEPS
    assert torch.allclose(outcome.x, x, atol=1e-5)
    rows = 4  # two samples, two branches
    stream = rows * 4 * 32 * 4
    assert outcome.held == (order + 1) * stream + stream


def test_seacache_has_a_warm_up_and_a_longest_row():
    case = small_case(STEPS)
    run = SeaCache(FOREVER, warm_up=3).run(case, 0)
    assert run.evaluated == (0, 1, 2, 11)
    assert SeaCache(FOREVER, longest=2).run(case, 0).evaluated == (0, 3, 6, 9, 11)
    assert SeaCache(0.0).run(case, 0).evaluated == tuple(range(STEPS))
    with pytest.raises(ValueError, match="order 0 to 1, got 2"):
        SeaCache(0.3, order=2).run(case, 0)
    with pytest.raises(ValueError, match="not 'pixels'"):
        SeaCache(0.3, filtered="pixels").run(case, 0)


def tiny(name: str) -> Any:
    """A tiny transformer of diffusers as a case; the tokens of FLUX are in two rows of three."""
    pytest.importorskip("diffusers")
    from transformers_of import case_of, flux, hunyuan, sd3

    def placed():
        net, x, text = {"flux": flux, "sd3": sd3, "hunyuan": hunyuan}[name]()
        places = [[0.0, n // 3, n % 3] for n in range(6)]
        return net, x, text | ({"img_ids": torch.tensor(places)} if name == "flux" else {})

    return case_of(placed)


@pytest.mark.parametrize("name", ["flux", "sd3", "hunyuan"])
@pytest.mark.parametrize("filtered", ["modulated", "latents"])
def test_seacache_on_diffusers_transformers(name, filtered):
    case = tiny(name)
    full = SeaCache(0.0, filtered=filtered).run(case, 0)
    assert torch.equal(full.x, case.solve(case.velocity()))
    few = SeaCache(FOREVER, filtered=filtered).run(case, 0)
    assert few.evaluated == (0, 5) and torch.isfinite(few.x).all()


@pytest.mark.parametrize(("name", "told"), [("flux", 0.25), ("sd3", 250.0), ("hunyuan", 250.0)])
def test_in_a_pipeline_the_transformer_is_told_the_noise(name, told):
    """There the grid is the numbers of the stages."""
    case = tiny(name)
    numbers = Grid.of([float(6 - n) for n in range(7)])
    case.grid = lambda steps=None: numbers
    session = Filtered(case, SeaCache())
    session.given = {"timestep": torch.tensor([told, told])}
    assert session.levels(0) == (0.75, 0.25)


def test_a_network_whose_tokens_lie_nowhere_is_refused():
    class Other(torch.nn.Module):
        config = type("config", (), {"patch_size": 1})

    with pytest.raises(TypeError, match="tokens of a Other"):
        token_grids(Other(), {"hidden_states": torch.zeros(1, 1, 2, 2)})


@pytest.mark.parametrize(
    ("threshold", "order", "longest", "warm_up"),
    [(0.25, 1, 2, 1), (0.6, 0, None, 3), (0.35, 1, None, 1)],
)
def test_seacache_is_that_of_diffusers(threshold, order, longest, warm_up):
    """The same stages in full and the same latents, from diffusers' hook on a tiny FLUX."""
    diffusers: Any = pytest.importorskip("diffusers")
    steps, rows, columns = 14, 4, 6
    torch.manual_seed(0)
    net = diffusers.FluxTransformer2DModel(
        in_channels=4, num_layers=2, num_single_layers=2, joint_attention_dim=8,
        attention_head_dim=16, num_attention_heads=2, axes_dims_rope=(4, 4, 8),
        pooled_projection_dim=8, guidance_embeds=False,
    ).eval().requires_grad_(False)  # fmt: skip
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    noise = torch.randn(1, rows * columns, 4)
    ids = torch.zeros(rows * columns, 3)
    ids[:, 1] = torch.arange(rows * columns) // columns
    ids[:, 2] = torch.arange(rows * columns) % columns
    text = dict(
        encoder_hidden_states=torch.randn(1, 5, 8), pooled_projections=torch.randn(1, 8),
        txt_ids=torch.zeros(5, 3), img_ids=ids,
    )  # fmt: skip
    sigmas = [1 - n / steps for n in range(steps + 1)]

    def velocity(x, sigma):
        return net(hidden_states=x, timestep=torch.full((1,), float(sigma)), **text)[0]

    def latents(module, args, kwargs):
        x = kwargs["hidden_states"][0]
        return [x.T.reshape(4, 1, rows, columns)]

    full: list[int] = []
    watching = net.single_transformer_blocks[0].attn.register_forward_pre_hook(
        lambda *_: full.append(n)
    )
    net.enable_cache(
        diffusers.SeaCacheConfig(
            threshold=threshold, residual_order=order, retention_steps=warm_up, power_exp=3.0,
            max_consecutive_cached=longest or 0, raw_vision_callback=latents,
        )
    )  # fmt: skip
    x, n = noise, 0
    with torch.no_grad():
        for n in range(steps):
            about = dict(step_index=n, sigma=sigmas[n], num_inference_steps=steps)
            with net.cache_context("cond", **about):
                x = x + (sigmas[n + 1] - sigmas[n]) * velocity(x, sigmas[n])
    net.disable_cache()
    watching.remove()
    grid = Grid.of(sigmas)
    case: Any = SimpleNamespace(
        network=net, grid=lambda: grid, stepping=lambda: velocity,
        solve=lambda velocity: sample(velocity, noise, grid),
    )  # fmt: skip
    ours = SeaCache(threshold, order, "latents", 3.0, warm_up, longest).run(case, 0)
    assert ours.evaluated == tuple(full) and 2 < len(full) < steps
    assert torch.allclose(ours.x, x, atol=1e-5)
    assert not torch.allclose(sample(velocity, noise, grid), x, atol=1e-3)


# --- L2P-Cache ---------------------------------------------------------------------------------


def true_outputs(case: ZooCase) -> list[torch.Tensor]:
    seen, inner = [], case.velocity()
    case.solve(lambda x, sigma: seen.append(inner(x, sigma)) or seen[-1])
    return seen


def test_what_l2p_learns_is_the_authors_training():
    """Adam on the mean squared error over tensors, row by row from true outputs."""
    case = small_case(STEPS)
    x = torch.stack([v.flatten() for v in true_outputs(case)]).double()
    weights = torch.eye(STEPS, dtype=x.dtype).requires_grad_()
    mask = torch.ones(STEPS, STEPS, dtype=x.dtype).tril()
    optimizer = torch.optim.Adam([weights], lr=0.01)
    for _ in range(201):
        optimizer.zero_grad()
        ((weights * mask @ x)[:-1] - x[1:]).square().mean().backward()
        optimizer.step()
    ours = learn(gram_matrices([case])[0], case.grid())
    theirs = (weights * mask).detach()[:-1, :-1]  # row n there is for stage n + 1
    assert torch.allclose(ours[1:, :-1], theirs, atol=1e-5)
    assert ours.triu().abs().max() == 0


@pytest.mark.parametrize("way", ["learnt", "solved"])
def test_l2p_by_hand(way):
    """Predicted outputs are among the earlier ones, as in the authors' code."""
    case, stages = small_case(STEPS), (0, 1, 4, 8)
    method = L2P.fit([case], 4, stages, way)
    sigmas, inner, past = case.grid().tracks[0].sigmas, case.velocity(), []
    weights, x = method.weights[0], case.noise
    for n in range(STEPS):
        row = [float(w) for w in weights[n]]
        full = inner(x, sigmas[n]) if n in stages else None
        past.append(full if full is not None else sum(w * v for w, v in zip(row, past)))
        x = x + (sigmas[n + 1] - sigmas[n]) * past[-1]
    outcome = method.run(case, 4)
    assert torch.allclose(outcome.x, x, atol=2e-5) and outcome.evaluated == stages
    assert outcome.held == 4 * case.noise.nbytes


def test_what_l2p_solves_is_least_squares_on_the_full_stages():
    case, stages = small_case(STEPS), (0, 2, 5, 9)
    x = torch.stack([v.flatten() for v in true_outputs(case)]).double().numpy()
    weights = solve(gram_matrices([case])[0], stages, case.grid())
    for n in (3, 7, 11):
        past = [j for j in stages if j < n]
        exact = np.linalg.lstsq(x[past].T, x[n], rcond=None)[0] @ x[past]
        ours = weights[n].numpy() @ x
        near, best = np.linalg.norm(ours - x[n]), np.linalg.norm(exact - x[n])
        assert best <= near < 1.02 * best + 0.01 * np.linalg.norm(x[n])
        assert set(np.flatnonzero(weights[n])) <= set(past)


def test_l2p_learns_nothing_over_a_switch():
    case = small_case(STEPS, interval=(0.4, 0.9))
    gram, grid = gram_matrices([case])[0], case.grid()
    for weights in (learn(gram, grid), solve(gram, (0, 1, 5), grid)):
        for first, last in grid.spans():
            outside = [n for n in range(STEPS) if not first <= n < last]
            assert weights[first:last, outside].abs().max() == 0
            assert weights[first].abs().max() == 0


def test_l2p_takes_the_best_of_its_schedules_and_ways():
    case = small_case(STEPS)
    best = L2P.fit([case], BUDGET)
    full = case.full

    def error(method):
        gap = (method.run(case, BUDGET).x - full).flatten(1).norm(dim=1)
        return float((gap / full.flatten(1).norm(dim=1)).log().mean())

    every = [
        L2P.fit([case], BUDGET, stages, way)
        for stages in schedules(BUDGET, case.grid())
        for way in ("learnt", "solved")
    ]
    assert len(every) >= 10 and error(best) == min(map(error, every))
    plans = list(schedules(10, small_case(50, depth=1).grid()))
    assert (0, 1, 2, 4, 7, 14, 23, 31, 38, 45) in plans and all(len(p) <= 10 for p in plans)
    switching = small_case(50, depth=1, interval=(0.4, 0.9)).grid()
    assert all({*switching.regimes} <= {*p} and len(p) <= 10 for p in schedules(10, switching))
    with pytest.raises(ValueError, match="learnt or solved, got 'guessed'"):
        L2P.fit([case], BUDGET, way="guessed")


# --- BudCache ----------------------------------------------------------------------------------


def test_budcache_reuses_the_residual_of_the_stack():
    case, stages = small_case(STEPS), (0, 1, 5, 9)
    sigmas, blocks = case.grid().tracks[0].sigmas, stack_of(case.network).blocks
    state: dict[str, Any] = {}

    def last(block, args, output):
        if state["n"] in stages:
            state["r"] = output - state["in"]
            return None
        return state["in"] + state["r"]

    hooks = [
        blocks[0].register_forward_pre_hook(lambda m, args: state.update({"in": args[0]})),
        blocks[-1].register_forward_hook(last),
    ]
    x, inner = case.noise, case.velocity()
    for n in range(STEPS):
        state["n"] = n
        x = x + (sigmas[n + 1] - sigmas[n]) * inner(x, sigmas[n])
    for hook in hooks:
        hook.remove()
    outcome = BudCache(stages).run(case, 4)
    assert outcome.evaluated == stages and torch.allclose(outcome.x, x, atol=1e-5)
    expected = float((x - case.full).square().mean() / case.full.square().mean())
    assert off(BudCache(stages), [case], 4) == pytest.approx(expected, rel=1e-4)


def test_the_search_finds_the_best_of_all():
    """On a loss whose best schedule is known, in fewer tries than there are schedules."""
    steps, budget, fixed = 24, 6, frozenset({0, 9})
    goal = {0, 2, 9, 13, 20, 23}

    def loss(stages):
        return sum(min(abs(n - g) for n in stages) for g in goal) / 100

    search = Search(steps, budget, fixed, loss, Random(1))
    stages, least = search.run(200, 20)
    assert set(stages) == goal and least == 0
    assert len(search.known) < math.comb(22, 4) / 5
    assert all(len(s) == budget and fixed <= set(s) for s in search.known)
    assert all(s == tuple(sorted(set(s))) for s in search.known)


def test_the_climb_goes_on_while_it_gets_better():
    def loss(stages):
        return sum(abs(n - goal) for n, goal in zip(stages, (0, 28, 29)))

    def found(climbs):
        search = Search(30, 3, frozenset({0}), loss, Random(0))
        search.cost((0, 1, 2))
        search.climb(climbs)
        return min(search.known.values())

    assert found(1) > found(2) > 0 == found(40)
    near = set(Search(30, 3, frozenset({0}), loss, Random(0)).neighbours((0, 10, 20)))
    assert {(0, n, 20) for n in (7, 8, 9, 11, 12, 13)} <= near and all(s[0] == 0 for s in near)


def test_the_annealing_takes_worse_steps_while_it_is_hot(monkeypatch):
    """Over a ridge, where every step is the next stage; far worse is never taken."""

    def reached(ridge):
        search = Search(12, 2, frozenset({0}), lambda s: ridge * (s[1] == 4), Random(0))
        monkeypatch.setattr(search, "moved", lambda s: (0, min(s[1] + 1, 11)))
        search.anneal((0, 3), 60)
        return max(s[1] for s in search.known)

    assert reached(0.02) > 5 and reached(100.0) == 4


def test_budcache_keeps_the_better_order_and_its_warm_up(monkeypatch):
    case = small_case(8, depth=1)
    every = [BudCache((0, *rest)) for rest in combinations(range(1, 8), 3)]
    found = BudCache.fit([case], 4, 0, heats=100)
    assert off(found, [case], 4) == min(off(method, [case], 4) for method in every)
    again = BudCache.fit([case], 4, 0, heats=100)
    assert again.stages == found.stages and again.order == 0

    def late(method, cases, budget):
        """As if late stages were better, and the line was better than reuse."""
        return -sum(method.stages) - method.order

    monkeypatch.setattr("geoshrink_bench.methods.budcache.off", late)
    case = small_case(STEPS)
    found = BudCache.fit([case], 8)
    assert found.stages == (0, 1, *range(6, STEPS)) and found.order == 1
    assert BudCache.fit([case], 8, 0, prefix=4).stages == (*range(4), *range(8, STEPS))
    assert BudCache.fit([case], 8, 0, prefix=8).stages == tuple(range(8))


# --- DPCache -----------------------------------------------------------------------------------


def forecast(h: list[np.ndarray], stages: list[int], n: int, order: int) -> np.ndarray:
    """TaylorSeer's recursion over the given stages, newest last, at stage n."""
    table = [[h[m] for m in stages]]
    for depth in range(1, order + 1):
        row = table[-1]
        if len(row) < 2:
            break
        gaps = [b - a for a, b in pairwise(stages)][depth - 1 :]
        table.append([(b - a) / g for a, b, g in zip(row, row[1:], gaps)])
    k = n - stages[-1]
    terms = [row[-1] * k**j / math.factorial(j) for j, row in enumerate(table)]
    return np.sum(terms, axis=0)


@pytest.mark.parametrize("order", [1, 2])
def test_the_cost_tensor_of_dpcache(order):
    case = small_case(STEPS)
    features = features_of(case)
    costs = path_costs(features, order, case.grid())
    h = [f.double().numpy() for f in features]
    assert len(h) == STEPS and costs.shape == (STEPS, STEPS, STEPS + 1)
    for i, j, k in ((0, 1, 4), (1, 2, 3), (3, 6, 10), (2, 9, 11), (4, 5, 11)):
        past = [*range(max(0, i - order + 1), i + 1), j]
        errors = [np.abs(forecast(h, past, n, order) - h[n]).mean() for n in range(j + 1, k + 1)]
        assert costs[i, j, k] == pytest.approx(sum(errors), rel=1e-4)
    held = sum(np.abs(h[0] - h[n]).mean() for n in (1, 2, 3))
    assert costs[0, 0, 3] == pytest.approx(held, rel=1e-4)
    tail = [*range(STEPS - order - 1, STEPS)]
    ahead = forecast(h, tail, STEPS, order)
    end = 0.8 * ahead + 0.2 * np.mean([h[n] for n in tail], 0)
    last = np.abs(forecast(h, [*range(10 - order, 10), 11], 12, order) - end).mean()
    assert costs[9, 11, 12] == pytest.approx(last, rel=1e-4)
    assert np.isinf(costs[5, 4, 6]) and np.isinf(costs[5, 6, 6])


def test_dpcache_measures_on_some_of_all_features(monkeypatch):
    case = small_case(3)
    whole = features_of(case)[1]
    monkeypatch.setattr("geoshrink_bench.methods.dpcache.ENTRIES", 128)
    some = features_of(case)[1]
    assert whole.numel() == 512 and torch.equal(some, whole[::5])
    assert {5 * n % 32 for n in range(len(some))} == set(range(32))


def test_the_stages_of_dpcache_are_the_cheapest_of_all():
    case = small_case(9)
    costs = path_costs(features_of(case), 2, case.grid())

    def total(stages):
        path = [*stages, 9]
        triples = zip([0, *path], path, path[1:])
        return sum(costs[i, j, k] for i, j, k in triples)

    sets = [(0, 1, 2, *rest) for rest in combinations(range(3, 9), 2)]
    best = min(sets, key=total)
    found = cheapest(costs, 5, 3, case.grid())
    assert found == best and DPCache.fit([case], 5).stages == best
    one = [(0, *rest) for rest in combinations(range(1, 9), 4)]
    assert cheapest(costs, 5, 1, case.grid()) == min(one, key=total)


def test_dpcache_measures_a_case_once_for_all_budgets_and_warm_ups(monkeypatch):
    asked: list[ZooCase] = []
    monkeypatch.setattr(
        "geoshrink_bench.methods.dpcache.features_of",
        lambda case: asked.append(case) or features_of(case),
    )
    case, other = small_case(STEPS), small_case(STEPS)
    first = [DPCache.fit([case], b, o, w).stages for b in (5, 7) for o in (1, 2) for w in (1, 3)]
    assert len(asked) == 1 and asked[0] is case
    DPCache.fit([case, other], 5)
    assert len(asked) == 2 and asked[1] is other
    anew = [small_case(STEPS) for _ in first]
    again = [(b, o, w) for b in (5, 7) for o in (1, 2) for w in (1, 3)]
    assert first == [DPCache.fit([c], *each).stages for c, each in zip(anew, again)]


def test_dpcache_by_hand():
    """The streams after the last block by TaylorSeer's recursion over the full stages."""
    case, stages = small_case(STEPS), (0, 1, 2, 5, 9)
    sigmas, blocks = case.grid().tracks[0].sigmas, stack_of(case.network).blocks
    kept: dict[int, np.ndarray] = {}
    now = [0]

    def last(block, args, output):
        n = now[0]
        if n in stages:
            kept[n] = output.double().numpy()
            return None
        past = [m for m in stages if 1 <= m < n]  # differences begin with stage 2
        history = [kept.get(m, np.zeros(1)) for m in range(STEPS)]
        value = forecast(history, past[-3:], n, 2)
        return torch.from_numpy(value).to(output.dtype)

    hook = blocks[-1].register_forward_hook(last)
    x, inner = case.noise, case.velocity()
    for n in range(STEPS):
        now[0] = n
        x = x + (sigmas[n + 1] - sigmas[n]) * inner(x, sigmas[n])
    hook.remove()
    outcome = DPCache(stages).run(case, 5)
    assert outcome.evaluated == stages and torch.allclose(outcome.x, x, atol=1e-4)


def test_dpcache_never_forecasts_over_a_switch():
    case = small_case(STEPS, interval=(0.4, 0.9))
    grid = case.grid()
    costs = path_costs(features_of(case), 2, grid)
    first, second = grid.regimes
    assert (
        np.isinf(costs[0, 1, first + 1 :]).all() and np.isfinite(costs[0, 1, 2 : first + 1]).all()
    )
    assert np.isfinite(costs[:, first, first + 1 : second + 1]).all()
    assert np.isinf(costs[:first, first + 1]).all()
