"""Profiles of some samples, and of several models, to see how far a plan carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from geoshrink.grid import Grid
from geoshrink.planning import Profile
from geoshrink.planning.gains import gain_stages
from geoshrink.planning.runs import Batch
from geoshrink.planning.space import resampled


def subset(profile: Profile, samples: Sequence[int]) -> Profile:
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


def pooled(profiles: Sequence[Profile], grid: Grid) -> Profile:
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
