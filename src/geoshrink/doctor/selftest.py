"""A self-test in a few seconds: a flow whose velocity is known, sampled in every way."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..hosts import accelerate
from ..sampling import sample
from .found import is_there

STEPS, CALLS = 50, 10
#: What may be a path: quoted words with a slash in them, else a word with one.
PATH = re.compile(r"(['\"])[^'\"\n]*[\\/][^'\"\n]*\1|\S*[\\/]\S*")
MEANS, SPREAD = (-1.0, 1.0), 0.8  # the data: two Gaussians


@dataclass(frozen=True)
class Check:
    """
    ok   None: it could not be made
    """

    name: str
    ok: bool | None
    words: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def velocity(x: Tensor, sigma: Any) -> Tensor:
    """dx/dσ of x = (1 − σ)·x₀ + σ·ε, exactly: (x − E[x₀ | x])/σ."""
    alpha, means = 1 - sigma, torch.tensor(MEANS, dtype=x.dtype)
    variance = (alpha * SPREAD) ** 2 + sigma**2
    off = x[..., None] - alpha * means
    weights = torch.softmax(-(off**2) / (2 * variance), -1)
    data = (weights * (means + alpha * SPREAD**2 / variance * off)).sum(-1)
    return (x - data) / sigma


def grid(steps: int) -> list[float]:
    """With a shift of 3."""
    even = [1 - n / steps for n in range(steps + 1)]
    return [3 * s / (1 + 2 * s) for s in even]


def noise() -> Tensor:
    return torch.randn(8, 64, generator=torch.Generator().manual_seed(0))


def euler(x: Tensor, sigmas: list[float]) -> Tensor:
    """The loop that geoshrink leaves alone."""
    for now, then in pairwise(sigmas):
        x = x + (then - now) * velocity(x, now)
    return x


def all_steps() -> tuple[bool, str]:
    full = euler(noise(), grid(STEPS))
    same = torch.equal(sample(velocity, noise(), grid(STEPS), budget=STEPS), full)
    return (
        same,
        f"a budget of all {STEPS} steps is {'' if same else 'NOT '}the plain run, bit by bit",
    )


def few_steps() -> tuple[bool, str]:
    full = euler(noise(), grid(STEPS))
    ours = (sample(velocity, noise(), grid(STEPS), budget=CALLS) - full).norm()
    direct = (euler(noise(), grid(CALLS)) - full).norm()
    ratio = float(direct / ours)
    words = f"{CALLS} of {STEPS} calls come {ratio:.1f} times as close as {CALLS} plain steps"
    return ratio > 1, words


def pipeline() -> tuple[bool | None, str]:
    if not is_there("diffusers"):
        return None, "accelerate() was not tried: diffusers is not installed"
    pipe = Toy(scheduler(shift=3.0))
    plain = pipe()
    with accelerate(pipe, budget=CALLS, denoisers=[pipe.network]):
        pipe.network.calls = 0
        pipe()
        calls = pipe.network.calls
    again = torch.equal(pipe(), plain)
    words = f"accelerate() made {calls} of {STEPS} calls; after remove() the run is the plain one"
    return (
        calls == CALLS and again,
        words if again else "remove() did NOT leave the pipeline as it was",
    )


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor, sigma: float) -> Tensor:
        self.calls += 1
        return velocity(x, sigma)


class Toy:
    """A pipeline as small as one can be."""

    def __init__(self, scheduler: Any):
        self.scheduler, self.network = scheduler, Network()

    def __call__(self) -> Tensor:
        self.scheduler.set_timesteps(STEPS)
        x = noise()
        for i, t in enumerate(self.scheduler.timesteps):
            output = self.network(x, float(self.scheduler.sigmas[i]))
            x = self.scheduler.step(output, t, x, return_dict=False)[0]
        return x


TESTS: dict[str, Callable[[], tuple[bool | None, str]]] = {
    "all steps": all_steps,
    "few calls": few_steps,
    "pipeline": pipeline,
}


def scheduler(**options: Any) -> Any:
    home: Any = import_module("diffusers.schedulers.scheduling_flow_match_euler_discrete")
    return home.FlowMatchEulerDiscreteScheduler(**options)


@contextmanager
def quiet() -> Iterator[None]:
    """What the toy's runs would say is of no use to anybody."""
    logger = logging.getLogger("geoshrink")
    level = logger.level
    try:
        logger.setLevel(logging.CRITICAL)
        yield
    finally:
        logger.setLevel(level)


def checks() -> list[Check]:
    """Every test; one that raises has failed, with its error in words. The seconds do not count
    the import of diffusers.
    """
    if is_there("diffusers"):
        with suppress(Exception):  # the test will tell
            scheduler()
    with quiet():
        return [checked(name, test) for name, test in TESTS.items()]


def masked(words: str) -> str:
    """An error's words without paths, which may tell names.

    >>> masked("no file '/home/ann lee/x' or C:\\\\ann for 50 steps")
    'no file … or … for 50 steps'
    """
    return PATH.sub("…", words)


def checked(name: str, test: Callable[[], tuple[bool | None, str]]) -> Check:
    began = time.perf_counter()
    try:
        ok, words = test()
    except Exception as error:
        ok, words = False, f"{name} failed: {type(error).__name__}: {masked(str(error))}"
    return Check(name, ok, words, round(time.perf_counter() - began, 2))
