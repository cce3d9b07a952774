"""Response: what a linear solver's state at stage l owes to the output of each stage before it.

A solver's state is x and whatever it stores (outputs, data predictions, an older x). Where all of
it is linear in the outputs, the state under other outputs is known without a second run. The
response of any such solver is read off by running it on unit impulses, all at once.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..track import Track
from .registry import SOLVERS

Path = tuple[str | int, ...]  # the way from a solver to a tensor that it stores
ROUNDING = 1e-4  # solvers may work in float32
STEEP = 1e4  # an output that carries more than this many times d may overflow
LOUD = 1e4  # so large that whatever clips shows it


class NotLinear(ValueError):
    """The solver's state is not a linear function of the outputs."""


@dataclass(frozen=True)
class EulerResponse:
    """Euler and DDIM: x is all there is, x_{n+1} = p·x_n + g·output_n."""

    track: Track
    data_space: bool
    stored: tuple[Path, ...] = ()

    def weights(self, cell: range) -> list[list[float]]:
        """c_n of every stage n of the cell, for x at the cell's end: x_l = … + Σ c_n·z_n."""
        return [self.track.euler_weights(cell, self.data_space)[1]]

    def carry(self, n: int) -> float | None:
        """p/g: by how much more output a step ends where it would from another x."""
        p, g = self.track.euler(n)
        return p / g if g and abs(p / g) < STEEP else None


class ProbedResponse:
    """Of a solver that was run on impulses: the same for x, then for every stored tensor."""

    def __init__(self, stored: Sequence[Path], table: np.ndarray):
        self.stored, self.table = tuple(stored), table  # (1 + stored, l, n)

    def weights(self, cell: range) -> list[list[float]]:
        return self.table[:, cell.stop, cell.start : cell.stop].tolist()

    def carry(self, n: int) -> float | None:
        return None


Response = EulerResponse | ProbedResponse


def response_of(solver: str, track: Track, data_space: bool) -> Response:
    """The response of one of our solvers along a track."""
    if solver == "euler":
        return EulerResponse(track, data_space)
    if torch.compiler.is_compiling():
        raise NotLinear(f"{solver!r} cannot be tried out while torch.compile traces it")
    return probed(SOLVERS[solver], track, data_space)


@lru_cache(maxsize=64)
def probed(kind: Any, track: Track, data_space: bool) -> ProbedResponse:
    if kind.evaluations > 1:
        raise NotLinear(f"{kind.name!r} has more than one output a stage")
    maps = [track.data_map(n) for n in range(track.steps)] if data_space else None

    def make() -> tuple[Any, Callable[[int, Tensor, Tensor], Tensor]]:
        solver = kind(track)
        return solver, solver.step

    return probe(make, track.steps, maps)


def probe(
    make: Callable[[], tuple[Any, Callable[[int, Tensor, Tensor], Tensor]]],
    steps: int,
    maps: Sequence[tuple[float, float]] | None = None,
) -> ProbedResponse:
    """Runs a fresh solver on a unit impulse at every stage; one more row checks that it is linear.

    make     make() is a fresh solver and its step: step(n, x, output) is x after stage n
    maps     (a, b) of every stage where z is the data prediction a·x + b·output; else z is the
             output
    """
    (solver, step), (twin, follow) = make(), make()
    mix = LOUD * torch.cos(torch.arange(steps, dtype=torch.float64, device="cpu"))
    x = torch.zeros(steps + 1, 1, 1, 1, dtype=torch.float64, device="cpu")
    y, middle, seen = x, steps // 2, []
    for n in range(steps):
        stored = stored_in(solver, x)
        seen.append({path: flat(t) for path, t in ({(): x} | stored).items()})
        if n == middle:  # the twin has seen nothing but zeros; with this state it must go on alike
            for path, tensor in stored.items():
                store(twin, path, tensor.clone())
            y = x.clone()
        z = torch.zeros_like(x)
        z[n], z[steps] = 1.0, mix[n]
        a, b = (0.0, 1.0) if maps is None else maps[n]
        output = (z - a * x) / b if b else torch.zeros_like(x)
        y = follow(n, y, output if n >= middle else torch.zeros_like(x))
        x = step(n, x, output)
        alike = torch.allclose(x, y, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
        if n >= middle and not alike:
            raise NotLinear("it keeps its past where it cannot be reached")
    paths = list(dict.fromkeys(path for one in seen for path in one))
    none = np.zeros(steps + 1)
    table = np.array([[one.get(path, none) for one in seen] for path in paths])
    wrong = np.abs(table[..., :steps] @ mix.numpy() - table[..., steps])
    scale = LOUD * (np.abs(table[..., :steps]).sum(-1) + 1e-12)
    if not (np.isfinite(table).all() and (wrong <= ROUNDING * scale).all()):
        raise NotLinear("its state is not linear in the outputs")
    return ProbedResponse(paths[1:], table[..., :steps])


def flat(t: Tensor) -> np.ndarray:
    return t.detach().double().flatten().numpy().copy()


def stored_in(solver: Any, like: Tensor) -> dict[Path, Tensor]:
    """The tensors of the shape of x among a solver's attributes, and in lists and dicts there."""
    found: dict[Path, Tensor] = {}
    for name, value in vars(solver).items():
        parts = enumerate(value) if isinstance(value, (list, tuple, deque)) else [(None, value)]
        parts = value.items() if isinstance(value, dict) else parts
        for i, part in parts:
            if isinstance(part, Tensor) and part.shape == like.shape:
                found[(name,) if i is None else (name, i)] = part
    return found


def store(solver: Any, path: Path, tensor: Tensor) -> None:
    """Puts another tensor in the place of a stored one."""
    name, *index = path
    if not index:
        setattr(solver, str(name), tensor)
        return
    parts = getattr(solver, str(name))
    if isinstance(parts, tuple):
        parts = tuple(tensor if i == index[0] else part for i, part in enumerate(parts))
    else:
        parts = copy.copy(parts)
        parts[index[0]] = tensor
    setattr(solver, str(name), parts)
