"""Methods that run a part of the network between full stages: ToCa, SpeCa, DBCache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cases import calls_of, plain, small_case
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods.dbcache import DBCache, Middle
from geoshrink_bench.methods.speca import Draft, SpeCa
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.methods.toca import ToCa, Tokens, received

BRANCH = 2 * 2 * 4 * 32 * 4  # guidance × samples × tokens × width × bytes of a float
MLP = 8 * 32**2 / (12 * 32**2 + 2 * 4 * 32)  # its share of a block's multiplications
NEVER = 1e9  # as a threshold: no draft is rejected


@pytest.fixture
def case():
    return small_case()


def blocks_of(case: ZooCase) -> Any:
    return stack_of(case.network).blocks


def outputs_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """A list that grows with what a module returns, in float64."""
    outputs: list[torch.Tensor] = []
    module.register_forward_hook(lambda mod, args, out: outputs.append(out.double()))
    return outputs


def inputs_of(module: torch.nn.Module) -> list[tuple]:
    inputs: list[tuple] = []
    module.register_forward_pre_hook(lambda mod, args: inputs.append(args))
    return inputs


@pytest.mark.parametrize("method", [ToCa(1), SpeCa(most=0), DBCache(0.0), DBCache(1.0, warm_up=12)])
def test_every_stage_in_full_is_the_plain_run(case, method):
    outcome = method.run(case, 12)
    assert torch.equal(outcome.x, plain(case))
    assert outcome.evaluated == tuple(range(12)) and outcome.partial == 0


METHODS = [ToCa(100), ToCa(100, scores="random"), SpeCa(NEVER, most=100), DBCache(1.0, warm_up=1)]


@pytest.mark.parametrize("method", METHODS)
def test_another_batch_runs_in_full(method):
    case = small_case(interval=(0.4, 0.9))
    outcome = method.run(case, 4)
    switches = set(case.grid().regimes)
    assert len(switches) == 2 and switches <= set(outcome.evaluated)
    assert set(outcome.evaluated) - switches <= {0, 1, 2}
    assert torch.isfinite(outcome.x).all() and not torch.equal(outcome.x, plain(case))


SESSIONS = [(ToCa(5), Tokens), (SpeCa(), Draft), (DBCache(1.0), Middle)]


@pytest.mark.parametrize("method, session", SESSIONS)
def test_an_error_leaves_nothing_behind(case, method, session, monkeypatch):
    before = plain(case)
    method.run(case, 5)
    assert torch.equal(plain(case), before)
    monkeypatch.setattr(session, "predict", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        method.run(case, 5)
    assert torch.equal(plain(case), before)
    assert all("forward" not in vars(module) for module in case.network.modules())


# ToCa


def test_toca_has_the_stages_of_the_authors():
    case = small_case(steps=50, depth=1)
    assert ToCa(4).run(case, 0).evaluated == (0, 1, 2, *range(6, 47, 4))
    assert ToCa().run(case, 10).evaluated == (0, 1, 2, 8, 14, 20, 26, 32, 38, 44)


def test_toca_runs_the_mlps_of_a_share_of_the_tokens(case):
    """0.5 · (1.5 − l/2) of 4 tokens are 3, 2 and 1 in the three blocks."""
    attention = [calls_of(block.attention.out) for block in blocks_of(case)]
    mlp = [inputs_of(block.mlp[0]) for block in blocks_of(case)]
    outcome = ToCa(5, fresh=0.5, blocks=1.0).run(case, 0)
    assert outcome.evaluated == (0, 1, 2, 7)
    assert [len(calls) for calls in attention] == [4, 4, 4]
    for fresh, calls in zip([3, 2, 1], mlp):
        sizes = [x.shape[1] for (x,) in calls]
        assert sizes == [4, 4, 4, *[fresh] * 4, 4, *[fresh] * 4]
    assert outcome.partial == pytest.approx(8 * (3 + 2 + 1) / 4 * MLP / 3)
    scores = 2 * 2 * 4 * 4  # guidance × samples × tokens × bytes
    assert outcome.held == 6 * BRANCH + 3 * 2 * scores


def test_toca_runs_no_more_tokens_than_there_are(case):
    """The shares would be 2.16, 1.44 and 0.72 of 4 tokens; at 0.24 none runs."""
    outcome = ToCa(6, fresh=0.9).run(case, 0)
    assert outcome.partial == pytest.approx(8 * (4 + 4 + 2) / 4 * MLP / 3)
    few = ToCa(6, fresh=0.1).run(case, 0)
    assert few.partial == 0 and torch.isfinite(few.x).all()


def attention_received(attention, x: torch.Tensor) -> torch.Tensor:
    """Head by head and in float64."""
    weight, size = attention.qkv.weight.double(), x.shape[-1] // attention.heads
    qkv = (x.double() @ weight.T).split(x.shape[-1], -1)
    total = torch.zeros(x.shape[:2], dtype=torch.float64)
    for h in range(attention.heads):
        q, k = (part[..., h * size : (h + 1) * size] for part in qkv[:2])
        q = q / (q**2).mean(-1, keepdim=True).sqrt() * attention.q_norm.weight.double()
        k = k / (k**2).mean(-1, keepdim=True).sqrt() * attention.k_norm.weight.double()
        total += torch.softmax(q @ k.transpose(1, 2) / size**0.5, -1).sum(1) / attention.heads
    return total


class ByHand:
    """The blocks after one full stage, token by token."""

    def __init__(self, network, counts, staleness, interval):
        self.network, self.counts = network, counts
        self.staleness, self.interval = staleness, interval
        self.kept: dict = {}

    def full(self, velocity, x, sigma):
        seen: dict = {}
        modules = [m for b in self.network.blocks for m in (b.attention, b.mlp)]
        keep = lambda module, args, out: seen.update({module: (args[0], out)})  # noqa: E731
        hooks = [module.register_forward_hook(keep) for module in modules]
        output = velocity(x, sigma)
        for hook in hooks:
            hook.remove()
        for b in self.network.blocks:
            (x, a), (_, m) = seen[b.attention], seen[b.mlp]
            mass = attention_received(b.attention, x)
            score = mass / (mass**2).sum(1, keepdim=True).sqrt()
            self.kept[b] = a, m.clone(), score, torch.zeros_like(score)
        return output

    def between(self, velocity, x, sigma):
        blocks = list(self.network.blocks)
        hooks = [b.register_forward_hook(self.block) for b in blocks]
        output = velocity(x, sigma)
        for hook in hooks:
            hook.remove()
        return output

    def block(self, block, args, _):
        x, c, _, _ = args
        count = self.counts[list(self.network.blocks).index(block)]
        a, m, score, age = self.kept[block]
        _, _, gate1, shift2, scale2, gate2 = block.modulation(c).chunk(6, -1)
        x = x + gate1 * a
        z = block.norm2(x) * (1 + scale2) + shift2
        for row in range(len(x)):
            total = (score[row] + self.staleness * age[row] / self.interval).tolist()
            for token in range(len(total)):
                age[row, token] += 1
            for token in sorted(range(len(total)), key=lambda t: -total[t])[:count]:
                m[row, token] = block.mlp(z[row, token])
                age[row, token] = 0
        return x + gate2 * m


@pytest.mark.parametrize("staleness", [0.0, 0.25, 5.0])
def test_toca_scatters_the_chosen_tokens_into_the_kept_output(staleness):
    case = small_case(steps=5)
    hand = ByHand(case.network, [3, 2, 1], staleness, 5)
    velocity, sigmas, x, expected = case.velocity(), case.grid().tracks[0].sigmas, case.noise, []
    for n in range(5):
        step = hand.between if n else hand.full
        expected.append(step(velocity, x, sigmas[n]))
        x = x + (sigmas[n + 1] - sigmas[n]) * expected[-1]
    method = ToCa(5, fresh=0.5, staleness=staleness, blocks=1.0, warm_up=1)
    session, outputs = Tokens(case, method, 5), []
    session.inner, inner = lambda x, s: outputs.append(inner(x, s)) or outputs[-1], session.inner
    session.run()
    for output, truth in zip(outputs, expected):
        assert torch.allclose(output, truth, atol=1e-5)
    if staleness == 0.25:  # ages matter
        other = ToCa(5, fresh=0.5, staleness=0.0, blocks=1.0, warm_up=1).run(case, 0).x
        assert not torch.allclose(other, x, atol=1e-5)


def test_toca_scores_grow_with_age():
    """0.25 · age / 4, on top of attention received of norm 1."""
    session = Tokens(small_case(), ToCa(4), 4)
    session.mass[1] = torch.tensor([[3.0, 4.0, 0.0]])
    session.age[1] = torch.tensor([[0.0, 1.0, 3.0]])
    assert torch.allclose(session.score(1), torch.tensor([[0.6, 0.8625, 0.1875]]))


def test_toca_at_random_is_alike_in_both_branches_of_guidance(case):
    method = ToCa(6, fresh=0.25, scores="random")
    session = Tokens(case, method, 6)
    outcome = session.run()
    for age in session.age.values():
        assert torch.equal(age[:2], age[2:]) and age.any()
    assert session.mass == {}
    assert torch.equal(method.run(case, 0).x, outcome.x)
    assert not torch.equal(ToCa(6, fresh=0.25).run(case, 0).x, outcome.x)
    with pytest.raises(ValueError, match="norm"):
        ToCa(scores="norm")


def test_toca_measures_the_attention_a_token_receives():
    attention = blocks_of(small_case())[0].attention
    attention.q_norm.weight.mul_(40)  # a map far from uniform
    x, seen = torch.randn(2, 4, 32), torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]]).bool()
    mass = received(attention, x, None)
    assert torch.allclose(mass.double(), attention_received(attention, x), atol=1e-4)
    assert mass.max() > 1.2
    mass = received(attention, x, seen[:, None, None])
    assert torch.equal(mass > 0, seen) and torch.allclose(mass.sum(1), torch.tensor(4.0))


# SpeCa


@pytest.mark.parametrize(
    "threshold, stages",
    [(NEVER, (0, 2, 11, 20, 29, 38, 47)), (0.0, (0, 2, *range(6, 50, 4)))],
)
def test_speca_has_the_stages_of_the_authors(threshold, stages):
    assert SpeCa(threshold).run(small_case(steps=50), 0).evaluated == stages


def test_speca_verifies_with_the_last_block():
    """Drafts 3 to 8 of each run of eight are verified: 6 in 5 runs."""
    case = small_case(steps=50)
    calls = [calls_of(block.attention.out) for block in blocks_of(case)]
    outcome = SpeCa(NEVER).run(case, 0)
    assert [len(c) for c in calls] == [7, 7, 7 + 30]
    assert outcome.partial == 10
    assert outcome.held == 6 * 3 * BRANCH
    assert SpeCa(NEVER, order=1).run(case, 0).held == 6 * 2 * BRANCH


@pytest.mark.parametrize("branch", [0, 1])
def test_speca_drafts_are_taylor_sums(case, branch):
    """With the differences of the full stages 0, 2, 6; stage 8 is draft 2."""
    f = outputs_of(stack_of(case.network).branches[0][branch])
    assert SpeCa(NEVER, most=3).run(case, 0).evaluated == (0, 2, 6, 10)
    assert torch.allclose(f[1], f[0], atol=1e-6)
    assert torch.allclose(f[4], f[2] + 2 * (f[2] - f[0]) / 2, atol=1e-5)
    first, second = (f[2] - f[0]) / 2, (f[6] - f[2]) / 4
    curve = (second - first) / 4
    assert torch.allclose(f[8], f[6] + 2 * second + 4 / 2 * curve, atol=1e-5)
    assert not torch.allclose(f[8], f[6] + 2 * second, atol=1e-4)


def test_speca_measures_what_the_last_block_adds(case):
    last = blocks_of(case)[-1]
    inputs, outputs, errors = inputs_of(last), outputs_of(last), []
    session = Draft(case, SpeCa(NEVER))
    case.network.register_forward_hook(lambda *_: errors.append(session.error))
    session.run()
    assert session.evaluated == [0, 2, 11]
    assert [n for n, e in enumerate(errors) if e] == [5, 6, 7, 8, 9, 10]
    drafts = list(zip(inputs, outputs))
    for n in (5, 8, 10):
        args, out = drafts[n]
        x, real = args[0].double(), last(*args).double()
        ratio = (out - real).abs() / ((real - x).abs() + 1e-10)
        assert errors[n] == pytest.approx(ratio.mean().item(), rel=1e-2)


def test_speca_rejects_above_a_limit_that_falls():
    """7 · 0.3^(25/50) = 3.834, but never less than 0.1."""
    session = Draft(small_case(steps=50), SpeCa())
    session.stage = 25
    for drafts, error, full in [(4, 3.83, 0), (4, 3.84, 1), (8, 0.0, 1), (7, 0.0, 0), (0, 9.0, 0)]:
        session.drafts, session.error = drafts, error
        assert session.decide() == bool(full)
    session.method, session.drafts = SpeCa(0.01), 4
    for error, full in [(0.09, False), (0.11, True)]:
        session.error = error
        assert session.decide() == full


def test_speca_is_tuned_to_a_budget():
    cases = [small_case(steps=16, depth=1, seed=s) for s in (1, 2)]
    method = SpeCa.tune(cases, 4, order=1)
    assert isinstance(method, SpeCa) and method.order == 1
    runs = [len(method.run(c, 4).evaluated) for c in cases]
    assert abs(sum(runs) / 2 - 4) <= 0.5


# DBCache


@pytest.mark.parametrize(
    "method, stages",
    [
        (DBCache(1.0), tuple(range(8))),
        (DBCache(1.0, warm_up=4, most=4), (0, 1, 2, 3, *range(8, 50, 5))),
        (DBCache(0.0), tuple(range(50))),
    ],
)
def test_dbcache_runs_in_full_at_first_and_after_most_skips(method, stages):
    """With cache-dit itself: test_methods_libraries.py."""
    assert method.run(small_case(steps=50, depth=2), 0).evaluated == stages


@pytest.mark.parametrize("threshold, front", [(0.6, 1), (0.8, 2)])
def test_dbcache_compares_the_front_with_the_last_full_stage(threshold, front):
    case = small_case(steps=24)
    start = inputs_of(blocks_of(case)[0])
    after = outputs_of(blocks_of(case)[front - 1])
    outcome = DBCache(threshold, front=front, warm_up=2).run(case, 0)
    added = [out - args[0].double() for out, args in zip(after, start)]
    full = [0, 1]
    for n in range(2, 24):
        before = added[full[-1]]
        if (added[n] - before).abs().mean() / before.abs().mean() >= threshold:
            full.append(n)
    assert outcome.evaluated == tuple(full) and 2 < len(full) < 24


@pytest.mark.parametrize("order", [0, 1])
def test_dbcache_leaves_out_the_middle(order):
    """Blocks 1 and 2 of four; the last runs on the stream with what they added."""
    case = small_case(depth=4)
    calls = [calls_of(block.attention.out) for block in blocks_of(case)]
    first = outputs_of(blocks_of(case)[0])
    into = inputs_of(blocks_of(case)[3])
    outcome = DBCache(1.0, back=1, warm_up=3, most=3, order=order).run(case, 0)
    assert outcome.evaluated == (0, 1, 2, 6, 10)
    assert [len(c) for c in calls] == [12, 5, 5, 12]
    assert outcome.partial == 7 * 2 / 4 and outcome.held == (2 + order) * BRANCH
    added = [args[0].double() - f for args, f in zip(into, first)]
    assert not torch.allclose(added[6], added[2], atol=1e-3)
    for n in (7, 9):
        slope = (added[6] - added[2]) / 4 if order else 0.0
        assert torch.allclose(added[n], added[6] + (n - 6) * slope, atol=1e-5)


def test_dbcache_has_a_front_for_the_depth():
    heads = [Middle(small_case(depth=d), DBCache()).head for d in (3, 6, 12)]
    assert heads == [1, 1, 2]
    assert Middle(small_case(depth=3), DBCache(front=8)).head == 2
    assert Middle(small_case(depth=4), DBCache(front=8, back=2)).head == 1
    with pytest.raises(ValueError, match="2 blocks at the back of 3"):
        DBCache(back=2).run(small_case(depth=3), 0)


def test_dbcache_is_tuned_to_a_budget():
    cases = [small_case(depth=2, seed=s) for s in (1, 2)]
    method = DBCache.tune(cases, 6, warm_up=2)
    assert isinstance(method, DBCache) and method.warm_up == 2
    runs = [len(method.run(c, 6).evaluated) for c in cases]
    assert abs(sum(runs) / 2 - 6) <= 0.5
    with pytest.raises(ValueError, match="no threshold"):
        DBCache.tune(cases, 6)
