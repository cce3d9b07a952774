"""Full runs as numbers: the Gram matrix of a run, seen in output or data space, or on another grid.

A run under Euler (DDIM off flow grids), AB2 or DPM++(2M) is linear in its noise x_0 and its outputs
v_0 … v_{T−1}, and so are the errors of predictions. So the (T + 1)×(T + 1) Gram matrix of noise and
outputs, one per sample and slot, holds all that planning needs of the tensors.

Along a run the outputs are smooth in σ, so the matrix can be interpolated to the stages of another
grid of the same model. Trials are kept, to choose recipes by; no prediction is called measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..grid import Grid, Track
from ..history.refinement import refined_track
from ..plan import clock_of
from ..solvers import SOLVERS
from .runs import Batch, Kind, Runs

BLOCK = 1 << 16  # coordinates in double precision at a time


def gram(rows: list[Tensor]) -> Tensor:
    """⟨r_a, r_b⟩ of every sample, (samples, rows, rows) in float64, from rows (samples, …)."""
    flat = [row.flatten(1) for row in rows]
    samples, size = flat[0].shape
    total = torch.zeros(samples, len(rows), len(rows), dtype=torch.float64)
    for s in range(samples):
        for start in range(0, size, BLOCK):
            part = torch.stack([row[s, start : start + BLOCK] for row in flat]).double()
            total[s] += part @ part.T
    return (total + total.transpose(1, 2)) / 2


@dataclass(frozen=True)
class View:
    """One slot's stages first … last − 1 in one space, z_n = output or data prediction.

    products   Gram matrix of z at the L stages, then at the nodes where these are others
    weights    (L + 1, nodes): errors of z move x at stage l by Σ weights[l, n]·(error at node n)
    parts      0: the nodes are the stages, as the solver runs, and an anchor's own is exact. Else
               the nodes are the middles of so many parts of each stage, interpolated, as the exact
               flow runs
    clock      in what ρ, λ and s are measured, as in a Plan
    """

    products: Tensor
    weights: Tensor
    track: Track
    parts: int = 0
    clock: str = "sigma"

    @classmethod
    def of(
        cls,
        track: Track,
        products: Tensor,
        space: str,
        first: int,
        last: int,
        parts: int = 0,
        solver: str = "euler",
        clock: str = "sigma",
    ) -> View:
        """From the Gram matrix of x_0, v_0 … v_{T−1}."""
        rows = rows_of(track, space, solver)[first:last]
        own = track.at(range(first, last + 1))
        weights = weights_of(own, space, solver)
        if parts:
            cut = refined_track(own, parts)
            weights = weights_of(cut, space)[::parts]
            rows = torch.cat([rows, between(own.sigmas[:-1], middles(cut.sigmas)) @ rows])
        return cls(rows @ products @ rows.T, weights, own, parts, clock)

    @property
    def stages(self) -> int:
        return self.track.steps

    def nodes(self, k: int, end: int) -> slice:
        """The nodes that are predicted from anchor k up to stage `end`, among the weights."""
        parts = max(1, self.parts)
        return slice(k * parts if self.parts else k + 1, end * parts)

    def rows(self, k: int, end: int) -> slice:
        """The same nodes among the products."""
        nodes, before = self.nodes(k, end), self.stages if self.parts else 0
        return slice(before + nodes.start, before + nodes.stop)

    @cached_property
    def times(self) -> tuple[Tensor, Tensor]:
        """Of every node: the middle of its step, which ρ is taken at, and its own time, for λ."""
        cut = clock_of(refined_track(self.track, max(1, self.parts)), self.clock).times
        centres = torch.tensor(middles(cut), dtype=torch.float64)
        return centres, centres if self.parts else self.points[:-1]

    @cached_property
    def points(self) -> Tensor:
        """The time of every grid point."""
        return torch.tensor(clock_of(self.track, self.clock).times, dtype=torch.float64)

    def horizons(self, k: int, past: list[int], end: int) -> tuple[Tensor, Tensor]:
        """ρ and λ of the nodes from k to `end`, from anchors j of `past` and k; (n, j)."""
        span = self.points[k] - self.points[past]
        ahead = torch.stack([t[self.nodes(k, end)] for t in self.times]) - self.points[k]
        rho, lam = ahead[:, :, None] / torch.where(span == 0, torch.inf, span)
        return rho, lam

    def shares(self, k: int, ends: list[int], end: int) -> Tensor:
        """s of the nodes from k to `end`, on their way from anchor k to each of `ends`; (l, n)."""
        ahead = self.times[1][self.nodes(k, end)] - self.points[k]
        span = self.points[ends] - self.points[k]
        return ahead / torch.where(span == 0, torch.inf, span)[:, None]


def middles(sigmas: Sequence[float]) -> list[float]:
    return [(a + b) / 2 for a, b in pairwise(sigmas)]


def between(points: Sequence[float], times: Sequence[float]) -> Tensor:
    """(times, points): interpolation by the cubic through the four nearest points, and beyond the
    ends by the line through the two nearest.
    """
    rows = torch.zeros(len(times), len(points), dtype=torch.float64)
    low, high = min(points), max(points)
    for row, t in zip(rows, times):
        near: list[int] = []
        for i in sorted(range(len(points)), key=lambda i: abs(points[i] - t)):
            new = all(points[i] != points[j] for j in near)
            if len(near) < (4 if low <= t <= high else 2) and new:
                near.append(i)
        for i in near:
            others = [points[j] for j in near if j != i]
            row[i] = math.prod((t - s) / (points[i] - s) for s in others)
    return rows


def rows_of(track: Track, space: str, solver: str = "euler") -> Tensor:
    """(T, T + 1): every z_n in terms of x_0, v_0 … v_{T−1}."""
    basis = torch.eye(track.steps + 1, dtype=torch.float64)
    if space == "output":
        return basis[1:]
    stepping: Any = SOLVERS[solver](track)
    rows, x = [], basis[0]
    for n in range(track.steps):
        a, b = track.data_map(n)
        rows.append(a * x + b * basis[n + 1])
        x = stepping.step(n, x, basis[n + 1])
    return torch.stack(rows)


def weights_of(track: Track, space: str, solver: str = "euler") -> Tensor:
    """(L + 1, L): what errors of z_0 … z_{L−1} do to x at every grid point, by the solver itself.

    The history that a multistep solver carries past a grid point is left out.
    """
    stepping: Any = SOLVERS[solver](track)
    basis = torch.eye(track.steps, dtype=torch.float64)
    states = [torch.zeros(track.steps, dtype=torch.float64)]
    for n, (x, error) in enumerate(zip(states, basis)):
        if space == "data":
            a, b = track.data_map(n)
            error = (error - a * x) / b if b else torch.zeros_like(x)
        states.append(stepping.step(n, x, error))
    return torch.stack(states)


def resampled(profile: Kind, grid: Grid) -> Kind:
    """The profile on another grid: another number of steps, another shift."""
    check_kind(profile.grid, grid)
    rows = [rows_between(profile.grid, grid, i) for i in range(profile.slots)]
    places = nearest_stages(profile, grid)
    batches = tuple(
        Batch(
            tuple(r @ g @ r.T for r, g in zip(rows, batch.grams)),
            batch.energies,
            tuple(g[[*places]] for g in batch.gains),
        )
        for batch in profile.batches
    )
    origin = f"resampled from {profile.grid.steps} stages"
    stages = tuple(places.values())
    return replace(profile, grid=grid, batches=batches, stages=stages, origin=origin, _planners={})


def check_kind(old: Grid, new: Grid) -> None:
    """Refuses a grid on which the profiled outputs say nothing."""
    reason = None
    if new.steps < 2:
        reason = f"{new.steps} stage, and two are the fewest"
    elif len(new.tracks) != len(old.tracks):
        reason = f"{len(new.tracks)} σ-grids, not {len(old.tracks)}"
    elif len(new.regimes) != len(old.regimes):
        reason = f"{len(new.regimes)} regimes beside the first, not {len(old.regimes)}"
    for was, now in zip(old.tracks, new.tracks):
        if was.prediction != now.prediction:
            reason = f"{now.prediction} outputs, not {was.prediction}"
        (a, b), (c, d) = ((t.sigmas[0], t.sigmas[-1]) for t in (was, now))
        spare = abs(a - b) / 10  # other numbers of steps may begin and end a little elsewhere
        inside = min(a, b) - spare <= min(c, d) and max(c, d) <= max(a, b) + spare
        if not inside or (a > b) != (c > d):
            reason = f"σ from {c:g} to {d:g}, and the model was profiled from {a:g} to {b:g}"
    if reason is not None:
        raise ValueError(
            f"this profile cannot be resampled: the new grid has {reason}; profile the model on "
            "that grid"
        )


def rows_between(old: Grid, new: Grid, slot: int) -> Tensor:
    """(T' + 1, T + 1): the noise, then the outputs at the new stages; regimes do not mix."""
    steps = old.steps
    rows = torch.zeros(new.steps + 1, steps + 1, dtype=torch.float64)
    rows[0, 0] = 1.0
    was, now = (g.track(slot).sigmas for g in (old, new))
    for (a, b), (c, d) in zip(old.spans(), new.spans()):
        rows[c + 1 : d + 1, a + 1 : b + 1] = between(was[a:b], now[c:d])
    return rows


def nearest_stages(profile: Runs, grid: Grid) -> dict[int, int]:
    """{place among the measured stages: the nearest new stage by τ}, each new stage once."""
    far = [np.asarray(g.tracks[g.lead].tau) for g in (profile.grid, grid)]
    was, now = (np.abs(tau - tau[0]) for tau in far)
    found: dict[int, int] = {}
    for place, n in enumerate(profile.stages):
        near = 1 + int(np.abs(now[1:-1] - was[n]).argmin())
        if near not in found.values():
            found[place] = near
    return found
