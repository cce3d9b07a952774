"""ToCa (Zou et al., ICLR 2025): between full stages only the MLPs of a few tokens run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..zoo.network import Trunk
from .base import Case, Outcome, Scheduled, every
from .caching import BranchSession
from .toca_blocks import mlps_of, multiplications


@dataclass(eq=False)
class ToCa(Scheduled):
    """As in the authors' code for FLUX.

    Between full stages, attention is reused (gated anew), and in block l the MLP runs for the share

        fresh · blocks · (1.5 − l / (L − 1))

    of the tokens, those of the highest score (attention they receive) + staleness · age / N, and
    its outputs replace theirs in the one kept; age counts the stages since a token was last run.

    The authors write 27 for L − 1, the depth of their DiT, whatever the network; so do we outside
    the zoo. `blocks` is 0.4 in FLUX's double blocks and 1.6 in its single ones; with one kind of
    block (the zoo, SD3) we take 1.6, which is near the DiT code's 0.07 · 2.5. scores="random" is
    their variant without attention maps, the default where the network does not give them.

    In a double block tokens and text are chosen apart, by the same share. In a single one they are
    chosen together, and its last layer runs for the chosen alone, with the attention kept of them;
    diffusers' norm before it has seen all tokens by then, the authors' only these. SD3 is not in
    their code: its second attention is reused like the first, and both branches of guidance choose
    alike, as in their DiT. Their HunyuanVideo (in TaylorSeer's repository) has random scores,
    warm_up=1 and staleness=0, and drops what single blocks ran; we keep it, as they do for FLUX.
    """

    name = "ToCa"
    fresh: float = 0.1
    staleness: float = 0.25
    scores: str | None = None
    blocks: float = 1.6

    def __post_init__(self) -> None:
        if self.scores not in (None, "attention", "random"):
            raise ValueError(f'scores are "attention" or "random", not {self.scores!r}')

    def run(self, case: Case, budget: int) -> Outcome:
        return Tokens(case, self, self.gap(case, budget)).run()


class Tokens(BranchSession):
    """Ages and scores go by the number of an MLP, what is kept and what it costs by a branch's."""

    def __init__(self, case: Case, method: ToCa, interval: int):
        super().__init__(case, every(interval, case.grid().steps, method.warm_up))
        self.method, self.interval = method, interval
        self.scores = scores_in(case.network, method.scores)
        self.random = torch.Generator().manual_seed(0)
        self.mlps = mlps_of(self.stack, method.blocks)
        self.enter = {mlp.enter: i for i, mlp in enumerate(self.mlps)}
        self.leave = {mlp.leave: i for i, mlp in enumerate(self.mlps)}
        self.beside = {mlp.beside for mlp in self.mlps}
        self.kept: dict[int, Tensor] = {}
        self.mass: dict[int, Tensor] = {}
        self.age: dict[int, Tensor] = {}
        self.cost: dict[int, int] = {}
        self.ran = 0.0  # at skipped stages, in whole runs

    def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        self.forward, self.args = forward, args
        output = super().call(i, forward, args, kwargs)
        if self.full:
            x = args[0] if args else kwargs["hidden_states"]
            text = kwargs.get("encoder_hidden_states")
            attends = i not in self.enter and i not in self.leave
            self.cost[i] = multiplications(self.modules[i], x, text, attends)
        return output

    def observe(self, branch: int, output: Tensor) -> None:
        module = branch % len(self.modules)
        if module in self.enter and module not in self.leave:
            return  # inside the MLP of a single block: nothing reads it again
        if module in self.leave:
            self.age[self.leave[module]] = torch.zeros(output.shape[:2], device=output.device)
        elif self.scores == "attention":
            self.mass[branch // 2] = received(self.modules[branch], *self.args)
        if module in self.beside and branch != module:  # of the text, after that of the tokens
            branch, output = module, torch.cat([self.kept[module], output], 1)
        self.kept[branch] = output
        if module == len(self.modules) - 1:
            self.keeps(*self.kept.values(), *self.mass.values(), *self.age.values())

    def predict(self, branch: int, args: tuple) -> Tensor:
        module = branch % len(self.modules)
        if module in self.beside:  # the block joins them again
            return rows_of(self.kept[module], self.chosen[:, : None if branch == module else 0])
        if module not in self.enter and module not in self.leave:
            return self.kept[branch]
        (x,) = args
        if module in self.enter:
            self.chosen = self.choose(self.enter[module])
            x = rows_of(x, self.chosen)
        if module not in self.leave:
            return self.forward(x)
        if x.shape[1]:
            kept = self.kept[branch]
            rows = self.chosen[..., None].expand(-1, -1, kept.shape[-1])
            self.kept[branch] = kept.scatter(1, rows, self.forward(x))
        return self.kept[branch]

    def choose(self, mlp: int) -> Tensor:
        """The tokens that run, of every sample; all others age."""
        tokens = self.age[mlp].shape[1]
        count = int(self.share(mlp) * tokens)
        chosen = self.score(mlp).argsort(-1, descending=True)[:, :count]
        self.age[mlp] = (self.age[mlp] + 1).scatter(1, chosen, 0)
        self.ran += count / tokens * self.work(mlp) / len(self.stack.blocks)
        return chosen

    def share(self, mlp: int) -> float:
        blocks, depth = self.mlps[mlp].blocks, self.mlps[mlp].depth
        return min(1.0, max(0.0, self.method.fresh * blocks * (1.5 - depth)))

    def score(self, mlp: int) -> Tensor:
        """Of every token; random ones are alike for both branches of guidance, as the authors'."""
        age = self.age[mlp]
        if self.scores == "attention":
            score = F.normalize(self.mass[mlp], dim=1)
        else:
            samples = len(self.case.labels)
            score = torch.rand(samples, age.shape[1], generator=self.random).to(age.device)
            score = score.repeat(len(age) // samples, 1)
        return score + self.method.staleness * age / self.interval

    def work(self, mlp: int) -> float:
        """The multiplications of an MLP over all its tokens, in those of a mean block."""
        branches = {self.mlps[mlp].enter, self.mlps[mlp].leave}
        mean = sum(self.cost.values()) / len(self.stack.blocks)
        return sum(self.cost[branch] for branch in branches) / mean

    def partial(self) -> float:
        return self.ran


def scores_in(network: nn.Module, asked: str | None) -> str:
    """What tokens are chosen by: in the zoo the maps of attention can be had."""
    maps = isinstance(network, Trunk)
    if asked == "attention" and not maps:
        kind = type(network).__name__
        raise ValueError(f'a {kind} gives no maps of attention: take scores="random"')
    return asked or ("attention" if maps else "random")


def rows_of(x: Tensor, chosen: Tensor) -> Tensor:
    return x.gather(1, chosen[..., None].expand(-1, -1, x.shape[-1]))


def received(attention: Any, x: Tensor, seen: Tensor | None) -> Tensor:
    """(batch, tokens): the attention each token receives, the mean over heads of the columns' sums.

    The authors keep the whole map, tokens × tokens; this is all they use of it.
    """
    batch, tokens, _ = x.shape
    q, k, _ = attention.qkv(x).reshape(batch, tokens, 3, attention.heads, -1).permute(2, 0, 3, 1, 4)
    q, k = attention.q_norm(q), attention.k_norm(k)
    logits = q @ k.mT * q.shape[-1] ** -0.5
    if seen is not None:
        logits = logits.masked_fill(~seen, -torch.inf)
    return logits.softmax(-1).mean(1).sum(1)
