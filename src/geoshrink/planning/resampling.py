"""A profile carried over: to another grid of the same model, to fewer samples, to several models.

Along a run the outputs are smooth in σ, so their Gram matrix can be interpolated to other stages.
The trials are kept, to choose recipes by, and no prediction is called measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..grid import Grid
from .gains import gain_stages
from .runs import Batch, Kind, Runs
from .space import between


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


def subset(profile: Kind, samples: Sequence[int]) -> Kind:
    """The profile of some of its samples; the anchors that were tried stay those of all."""
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
    """One profile of several models for a grid, without trials.

    Each sample is scaled to energy 1. The gains are those of its model, at stages common to all.
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
