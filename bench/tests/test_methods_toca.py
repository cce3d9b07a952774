"""ToCa in the blocks of diffusers' FLUX, SD3 and HunyuanVideo transformers, at random weights."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from cases import small_case
from geoshrink import sample
from geoshrink_bench.methods.fora import Fora
from geoshrink_bench.methods.stack import stack_of
from geoshrink_bench.methods.toca import ToCa, Tokens

pytest.importorskip("diffusers")
from transformers_of import case_of, flux, hunyuan, sd3

STEPS = 8
FULL = (0, 1, 2, 6)  # with an interval of 4


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=[flux, sd3, hunyuan])
def case(request) -> Any:
    return case_of(request.param, STEPS, labels=["a cat"])


def plain(case) -> torch.Tensor:
    return sample(case.velocity(), case.noise, case.grid())


def shares(network, fresh: float) -> list[tuple[Any, float]]:
    """The last layer of every MLP and its share, as the authors' schedule has it."""
    doubles = list(network.transformer_blocks)
    singles = list(getattr(network, "single_transformer_blocks", ()))
    weight = 0.4 if singles else 1.6
    found = [
        (module, fresh * weight * (1.5 - i / 27))
        for i, block in enumerate(doubles)
        for module in (block.ff, block.ff_context)
        if module is not None
    ]
    found += [(b.proj_out, fresh * 1.6 * (1.5 - i / 27)) for i, b in enumerate(singles)]
    return [(module, min(1.0, share)) for module, share in found]


def test_every_stage_in_full_is_the_plain_run(case):
    outcome = ToCa(1).run(case, 0)
    assert torch.equal(outcome.x, plain(case))
    assert outcome.evaluated == tuple(range(STEPS)) and outcome.partial == 0


def test_without_fresh_tokens_it_is_plain_reuse(case):
    outcome, reuse = ToCa(4, fresh=0.0).run(case, 0), Fora().session(case, list(FULL)).run()
    assert torch.equal(outcome.x, reuse.x) and not torch.equal(outcome.x, plain(case))
    assert outcome.evaluated == reuse.evaluated == FULL and outcome.partial == 0


def drawn(stage: int, mlp: int, tokens: int) -> torch.Tensor:
    return torch.rand(tokens, generator=torch.Generator().manual_seed(100 * stage + mlp))


class Dense:
    """Every MLP over all tokens, given the attention of the last full stage, and then a mask.

    At a stage between, what an MLP returns counts for the chosen tokens alone.
    """

    def __init__(self, case, fresh):
        self.case, self.stage, self.kept = case, -1, {}
        self.mlps = shares(case.network, fresh)
        branches = [m for block in stack_of(case.network).branches for m in block]
        attention = [m for m in branches if hasattr(m, "to_q")]
        self.hooks = [m.register_forward_hook(self.reuse) for m in attention]
        for number, (module, share) in enumerate(self.mlps):
            self.hooks.append(module.register_forward_hook(self.masked(number, share)))

    def reuse(self, module, args, output):
        if self.stage in FULL:
            self.kept[module] = output
        return self.kept[module]

    def masked(self, number, share):
        def hook(module, args, output):
            if self.stage not in FULL:
                tokens = output.shape[1]
                order = drawn(self.stage, number, tokens).argsort(descending=True)
                chosen = torch.zeros(tokens).bool()
                chosen[order[: int(share * tokens)]] = True
                output = torch.where(chosen[:, None], output, self.kept[module])
            self.kept[module] = output
            return output

        return hook

    def run(self) -> torch.Tensor:
        inner = self.case.velocity()

        def velocity(x, sigma):
            self.stage += 1
            return inner(x, sigma)

        made = sample(velocity, self.case.noise, self.case.grid())
        for hook in self.hooks:
            hook.remove()
        return made


@pytest.mark.parametrize("fresh", [0.3, 1e9])
def test_the_chosen_tokens_are_as_with_all_given_the_attention_kept(case, fresh, monkeypatch):
    """1e9: every token runs, so that the MLPs are plain ones over reused attention."""
    truth = Dense(case, fresh).run()

    def score(session, mlp):
        return drawn(session.stage, mlp, session.age[mlp].shape[1]).repeat(2, 1)

    monkeypatch.setattr(Tokens, "score", score)
    outcome = ToCa(4, fresh=fresh).run(case, 0)
    assert outcome.evaluated == FULL and torch.allclose(outcome.x, truth, atol=1e-5)
    for other in (plain(case), Fora().session(case, list(FULL)).run().x):
        assert not torch.allclose(other, truth, atol=1e-3)


def test_partial_work_is_counted_as_the_profiler_does(case):
    """Multiplications above those of a stage that reuses all, in those of the blocks."""

    def counted(fresh):
        session, stages = Tokens(case, ToCa(4, fresh=fresh), 4), []
        inner = session.inner

        def velocity(x, sigma):
            with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
                output = inner(x, sigma)
            stages.append(counter.get_total_flops())
            return output

        session.inner = velocity
        return session.run(), stages

    (_, least), (outcome, stages) = counted(0.0), counted(0.3)
    blocks = stages[0] - least[3]
    above = sum(n - least[3] for i, n in enumerate(stages) if i not in FULL)
    assert outcome.partial == pytest.approx(above / blocks) and above > 0
    assert [n for i, n in enumerate(stages) if i in FULL] == [stages[0]] * len(FULL)


def test_held_are_attention_the_last_layers_and_ages(case):
    """Of a single block nothing inside the MLP."""
    sizes = []

    def count(module, args, output):
        parts = output if isinstance(output, tuple) else (output,)
        sizes.extend(part.numel() * part.element_size() for part in parts)

    branches = [m for block in stack_of(case.network).branches for m in block]
    last = {module for module, _ in shares(case.network, 0.1)}
    kept = [m for m in branches if hasattr(m, "to_q") or m in last]
    hooks = [m.register_forward_hook(count) for m in kept]
    ages = [m.register_forward_hook(lambda m, a, o: sizes.append(4 * math.prod(o.shape[:2])))
            for m in last]  # fmt: skip
    case.velocity()(case.noise, 1.0)
    for hook in hooks + ages:
        hook.remove()
    assert ToCa(4).run(case, 0).held == sum(sizes)


def test_choices_are_alike_in_both_branches_of_guidance_and_repeat(case):
    method = ToCa(4, fresh=0.3)
    session = Tokens(case, method, 4)
    outcome = session.run()
    assert len(session.age) == len(shares(case.network, 0.3))
    assert all(torch.equal(*age) for age in session.age.values())
    assert any(age.any() for age in session.age.values())
    assert torch.equal(method.run(case, 0).x, outcome.x)


def test_staleness_brings_every_token_round(case):
    session = Tokens(case, ToCa(100, fresh=0.4, staleness=1e6, blocks=1.0, warm_up=1), 100)
    session.run()
    for mlp, age in session.age.items():
        tokens = age.shape[1]
        count = int(session.share(mlp) * tokens)
        assert 0 < count < tokens and age.max() == math.ceil(tokens / count) - 1


def test_nothing_is_left_behind(case, monkeypatch):
    before = plain(case)
    ToCa(4).run(case, 0)
    assert torch.equal(plain(case), before)
    monkeypatch.setattr(Tokens, "choose", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ToCa(4).run(case, 0)
    assert torch.equal(plain(case), before)
    assert all("forward" not in vars(module) for module in case.network.modules())


def test_scores_by_attention_need_its_maps(case):
    kind = type(case.network).__name__
    with pytest.raises(ValueError, match=f'a {kind} gives no maps of attention: take scores="ran'):
        ToCa(4, scores="attention").run(case, 0)
    assert Tokens(case, ToCa(), 4).scores == "random"
    assert Tokens(small_case(), ToCa(), 4).scores == "attention"


def test_shares_are_those_of_the_authors(case):
    session = Tokens(case, ToCa(4, fresh=0.07), 4)
    found = [session.share(mlp) for mlp in range(len(session.mlps))]
    assert found == pytest.approx([share for _, share in shares(case.network, 0.07)])
