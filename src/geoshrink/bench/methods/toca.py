"""ToCa (Zou et al., ICLR 2025): between full stages only the MLPs of a few tokens run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Case, Method, Outcome, bytes_of, every, interval_for
from .caching import BranchSession


class ToCa(Method):
    """As in the authors' code for FLUX: stages 0, 1, 2 in full, then every N-th; last not forced.

    Between, attention is reused (gated anew), and in block l the MLP runs for the share

        fresh · blocks · (1.5 − l / (L − 1))

    of the tokens, those of the highest score (attention they receive) + staleness · age / N, and
    its outputs replace theirs in the one kept; age counts the stages since a token was last run.

    The authors write 27 for L − 1, the depth of their DiT, whatever the network. `blocks` is 0.4 in
    FLUX's double blocks and 1.6 in its single ones; with one kind of block we take 1.6, which is
    near the DiT code's 0.07 · 2.5. scores="random" is their variant without attention maps.
    """

    name = "ToCa"

    def __init__(
        self,
        interval: int | None = None,
        fresh: float = 0.1,
        staleness: float = 0.25,
        scores: str = "attention",
        blocks: float = 1.6,
        warm_up: int = 3,
    ):
        if scores not in ("attention", "random"):
            raise ValueError(f'scores are "attention" or "random", not {scores!r}')
        self.interval, self.fresh, self.staleness = interval, fresh, staleness
        self.scores, self.blocks, self.warm_up = scores, blocks, warm_up

    def run(self, case: Case, budget: int) -> Outcome:
        steps = case.grid().steps
        interval = self.interval or interval_for(budget, steps, self.warm_up)
        return Tokens(case, self, interval).run()


class Tokens(BranchSession):
    def __init__(self, case: Case, method: ToCa, interval: int):
        super().__init__(case)
        self.method, self.interval = method, interval
        self.stages = frozenset(every(interval, self.steps, method.warm_up))
        self.random = torch.Generator().manual_seed(0)
        self.kept: dict[int, Tensor] = {}
        self.mass: dict[int, Tensor] = {}
        self.age: dict[int, Tensor] = {}
        self.partial = 0.0

    def decide(self) -> bool:
        return self.stage in self.stages

    def call(self, branch: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        self.forward, self.args = forward, args
        return super().call(branch, forward, args, kwargs)

    def observe(self, branch: int, output: Tensor) -> None:
        block, mlp = divmod(branch, 2)
        self.kept[branch] = output
        if mlp:
            self.age[block] = torch.zeros(output.shape[:2], device=output.device)
        elif self.method.scores == "attention":
            self.mass[block] = received(self.modules[branch], *self.args)
        parts = (self.kept, self.mass, self.age)
        self.held = max(self.held, bytes_of(*(t for part in parts for t in part.values())))

    def predict(self, branch: int, args: tuple) -> Tensor:
        block, mlp = divmod(branch, 2)
        if not mlp:
            return self.kept[branch]
        (x,), tokens = args, args[0].shape[1]
        count = int(self.share(block) * tokens)
        chosen = self.score(block).argsort(-1, descending=True)[:, :count]
        self.age[block] = (self.age[block] + 1).scatter(1, chosen, 0)
        if count:
            rows = chosen[..., None].expand(-1, -1, x.shape[-1])
            self.kept[branch] = self.kept[branch].scatter(1, rows, self.forward(x.gather(1, rows)))
        self.partial += count / tokens * self.work(block, x) / len(self.stack.blocks)
        return self.kept[branch]

    def share(self, block: int) -> float:
        depth = block / max(1, len(self.stack.blocks) - 1)
        return min(1.0, max(0.0, self.method.fresh * self.method.blocks * (1.5 - depth)))

    def score(self, block: int) -> Tensor:
        """Of every token; random ones are alike for both branches of guidance, as the authors'."""
        age = self.age[block]
        if self.method.scores == "attention":
            score = F.normalize(self.mass[block], dim=1)
        else:
            samples = len(self.case.labels)
            score = torch.rand(samples, age.shape[1], generator=self.random).to(age.device)
            score = score.repeat(len(age) // samples, 1)
        return score + self.method.staleness * age / self.interval

    def work(self, block: int, x: Tensor) -> float:
        """The MLP's share of a block's multiplications, of which the map has 2 · tokens · width."""
        attention, mlp = (weights(module) for module in self.stack.branches[block])
        return mlp / (attention + mlp + 2 * x.shape[1] * x.shape[2])

    def run(self) -> Outcome:
        return dataclasses.replace(super().run(), partial=self.partial)


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


def weights(module: nn.Module) -> int:
    return sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear))
