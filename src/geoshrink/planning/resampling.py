"""A profile carried over: to another grid of the same model, to fewer samples, to several models.

Along a run the outputs are smooth in σ, so their Gram matrix can be interpolated to other stages.
What was tried in real runs is kept to choose recipes by, and no prediction is called measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..grid import Grid
from .gains import gain_stages, track_of
from .runs import Batch, Kind, Runs
from .space import between


def resampled(profile: Kind, grid: Grid) -> Kind:
    """The profile on another grid: another number of steps, another shift."""
    kinds = [[t.prediction for t in g.tracks] for g in (profile.grid, grid)]
    if kinds[0] != kinds[1] or bool(profile.grid.regimes) != bool(grid.regimes):
        raise ValueError(
            f"a profile of {kinds[0]} outputs and {len(profile.grid.regimes)} switches cannot be "
            f"resampled to {kinds[1]} and {len(grid.regimes)}: profile the model on that grid"
        )
    if grid.steps < 2:
        raise ValueError(f"a profile is resampled to two stages or more, got {grid.steps}")
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


def rows_between(old: Grid, new: Grid, slot: int) -> Tensor:
    """(T' + 1, T + 1): the noise, then the outputs at the new stages; regimes do not mix."""
    steps = old.steps
    rows = torch.zeros(new.steps + 1, steps + 1, dtype=torch.float64)
    rows[0, 0] = 1.0
    was, now = (track_of(g, slot).sigmas for g in (old, new))
    if len(old.regimes) != len(new.regimes):
        raise ValueError(f"regimes {new.regimes} cannot be made of {old.regimes}: profile anew")
    for (a, b), (c, d) in zip(old.spans(), new.spans()):
        rows[c + 1 : d + 1, a + 1 : b + 1] = between(was[a:b], now[c:d])
    return rows


def nearest_stages(profile: Runs, grid: Grid) -> dict[int, int]:
    """{place among the measured stages: the new stage as far along}, each new stage once."""
    far = [np.asarray(g.tracks[g.lead].tau) for g in (profile.grid, grid)]
    was, now = (np.abs(tau - tau[0]) for tau in far)
    found: dict[int, int] = {}
    for place, n in enumerate(profile.stages):
        near = 1 + int(np.abs(now[1:-1] - was[n]).argmin())
        if near not in found.values():
            found[place] = near
    return found


def subset(profile: Kind, samples: Sequence[int]) -> Kind:
    """The profile as these of its samples alone would have given it, but for the tried anchors."""
    chosen = list(samples)
    batch = Batch(
        tuple(g[chosen] for g in profile.grams),
        tuple(torch.cat(part)[chosen] for part in zip(*(b.energies for b in profile.batches))),
        tuple(torch.cat(part, 1)[:, chosen] for part in zip(*(b.gains for b in profile.batches))),
    )
    trials = tuple(replace(t, db=tuple(t.db[i] for i in chosen)) for t in profile.trials)
    origin = f"{len(chosen)} of {profile.samples} samples"
    return replace(profile, batches=(batch,), trials=trials, origin=origin, _planners={})


def pooled(profiles: Sequence[Kind], grid: Grid) -> Kind:
    """One profile of several models for a grid: each sample by its own scale, the gain of its model
    at stages common to all; nothing tried.
    """
    batches, stages = [], gain_stages(grid)
    carried = [resampled(profile, grid) for profile in profiles]
    for here in carried:
        curves = [torch.from_numpy(here.gains(i)[[*stages]]) for i in range(here.slots)]
        for batch in here.batches:
            energy = batch.energies[0]
            grams = tuple(g / energy[:, None, None] for g in batch.grams)
            gains = tuple(curve[:, None].expand(-1, len(energy)) for curve in curves)
            batches.append(Batch(grams, (torch.ones_like(energy),), gains))
    return replace(
        carried[0],
        batches=tuple(batches),
        stages=stages,
        model="",
        guidance=None,
        trials=(),
        origin="pooled",
    )
