"""A small case for the methods (a network with weights at random, fixed) and a small method."""

from __future__ import annotations

import dataclasses

import torch

from geoshrink import sample
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.methods.caching import StackSession
from geoshrink_bench.zoo.model import Model
from geoshrink_bench.zoo.recipes import RECIPES, Recipe


def small_case(steps=12, guidance=2.0, interval=None, depth=3, seed=0) -> ZooCase:
    torch.manual_seed(seed)
    shape = dict(shape=(3, 8, 8), patch=(4, 4), width=32, depth=depth, heads=2, condition=16)
    recipe = dataclasses.replace(RECIPES["fruit"], network=shape)
    network = recipe.build(5)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    facts = {"classes": list("abcde"), "data": {}}
    model = Model(recipe, network.eval().requires_grad_(False), facts, "")
    return ZooCase(model, [0, 3], model.noise(2), guidance, steps, 3.0, interval)


def joint_case(steps=12) -> ZooCase:
    """Two tensors, each on its own σ-grid."""
    torch.manual_seed(0)
    shape = dict(
        shapes=((1, 4, 4), (1, 64)), patches=((2, 2), (16,)), width=32, depth=2, heads=2,
        condition=16,
    )  # fmt: skip
    recipe = dataclasses.replace(RECIPES["digits-av"], network=shape)
    network = recipe.build(5)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    facts = {"classes": list("abcde"), "data": {}}
    model = Model(recipe, network.eval().requires_grad_(False), facts, "")
    return ZooCase(model, [0, 3], model.noise(2), 2.0, steps, (12.0, 3.0))


def other_case(name: str, steps=12) -> ZooCase:
    """The small network as one that predicts noise or data."""
    case = small_case(steps)
    small = case.model.recipe
    assert isinstance(small, Recipe)
    recipe = dataclasses.replace(RECIPES[name], network=small.network)
    return dataclasses.replace(case, model=dataclasses.replace(case.model, recipe=recipe))


def sigmas_of(case: ZooCase) -> tuple[float, ...]:
    return case.grid().tracks[0].sigmas


def euler(case: ZooCase, output) -> torch.Tensor:
    """Euler with output(n, x) in place of the velocity."""
    x, sigmas = case.noise, sigmas_of(case)
    for n in range(len(sigmas) - 1):
        x = x + (sigmas[n + 1] - sigmas[n]) * output(n, x)
    return x


def plain(case: ZooCase) -> torch.Tensor:
    return sample(case.velocity(), case.noise, case.grid())


def calls_of(module: torch.nn.Module) -> list[int]:
    """A list that grows with every call of a module."""
    calls: list[int] = []
    module.register_forward_pre_hook(lambda *_: calls.append(1))
    return calls


class Hold(StackSession):
    """The residual of the last full stage."""

    def __init__(self, case, stages, head=0):
        super().__init__(case)
        self.stages, self.head = stages, head

    def decide(self, streams, args, kwargs):
        return self.stage in self.stages

    def observe(self, residual):
        self.kept = residual

    def predict(self):
        return self.kept
