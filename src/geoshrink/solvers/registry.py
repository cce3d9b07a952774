"""The registry of solvers, open to others, and what a solver is given."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..registry import Registry
from ..track import Track


class Solver:
    """What x_{n+1} becomes, given x_n and the output of stage n. One per slot and run.

    A solver sees a Track, so it works for flow, noise, data and v outputs alike. Planning takes it
    to be linear in x and the outputs.

    name         as it is written in solver="…"
    order        of convergence
    evaluations  outputs per stage: 1, or 2 for solvers that have first() and second() like Heun
    """

    name: str
    order: int
    evaluations = 1

    def __init__(self, track: Track):
        self.track = track

    def step(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        """x after stage n."""
        raise NotImplementedError(f"solver {self.name!r} has no step()")


#: Every solver that is known, by its name.
SOLVERS: Registry[Any] = Registry("solver", Solver)


def register_solver(solver: type[Solver]) -> None:
    """Teaches geoshrink a solver, for sample(), profile() and their plans.

    solver    a subclass of geoshrink.solvers.Solver with a name and a step() of its own

    >>> class Half(Solver):
    ...     name, order = "half", 1
    ...     def step(self, n, x, output):
    ...         return x + (self.track.sigmas[n + 1] - self.track.sigmas[n]) * output / 2
    >>> register_solver(Half)
    >>> from geoshrink import sample
    >>> import torch
    >>> sample(lambda x, sigma: x, torch.ones(1, 1), [1.0, 0.0], solver="half").item()
    0.5
    >>> del SOLVERS["half"]
    """
    SOLVERS.add(solver)
