"""profile(): full runs on calibration samples, the gains, and a first tournament of plans.

Every output is copied to host memory at once, so the device holds no more than in a plain run. The
host holds the noise and the T outputs of one batch, T + 1 times the size of x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..grid import Grid
from ..outputs import flatten
from ..sampling import check_state, sample
from ..solvers import SOLVERS
from .files import read
from .gains import STAGES, check_stages, gain_stages, measure_gain, perturbation, remainder
from .profiles import Profile, check_guidance, grid_misfit
from .runs import FEWEST, RUN, Batch, check_target
from .space import gram
from .tournament import (
    Counter,
    Velocity,
    affordable,
    batches_of,
    begin,
    changed,
    default_budgets,
    full_run,
    hold_tournaments,
    reference_calls,
)

#: The fields of a profile that must be the same for profiling to go on from a file.
FACTS = ("model", "guidance", "dtype", "stages", "solver")
RUNS = 10  # full runs that a profile costs at most, if no budgets are given


def profile(
    velocity: Velocity | Sequence[Velocity],
    noise: Any,
    sigmas: Any,
    *,
    budgets: Sequence[int] | None = None,
    model: str = "",
    guidance: float | tuple[float, float] | None = None,
    file: str | Path | None = None,
    perturbed: int = STAGES,
    target: str = RUN,
    solver: str = "euler",
    quiet: bool = False,
    **options: Any,
) -> Profile:
    """Profiles a model on a few samples; the result plans any budget.

        profile = geoshrink.profile(model.velocity(labels), model.noise(16), model.grid(50))

    velocity, noise   as in sample(), for at least 4 samples; or a list of each, one per batch
    sigmas            σ_0 … σ_T, or a Grid
    budgets           budgets at which plans are tried in real runs; () tries none; default: at most
                      three, within ten full runs for everything
    model, guidance   kept with the profile, to tell whether it fits a run; guidance may be a range
    file              written after every batch; if it exists, profiling goes on from it. One model
                      call per batch in it tells whether it is of this model
    perturbed         the number of stages at which the gains are measured
    target            "run": plans are tried for closeness to the full run. "flow": to the exact
                      flow, for four more full runs and without the limit of ten
    solver            "euler", "ab2", "dpm++2m" or one that you registered: what the plans are for
    quiet             print neither the cost nor a progress bar
    prediction        what the model returns: "flow" (dx/dσ), "epsilon", "sample" or "v"
    alphas            α of x = α·x₀ + σ·ε, unless it is a flow: "vp", "ve", "flow", or one per σ
    data              the σ at which x is data, for flows that do not end at 0
    regimes           stages at which the model changes: each is queried
    """
    grid = Grid.of(sigmas, **options)
    pairs = batches_of(velocity, noise)
    samples = sum(len(flatten(x)[0][0]) for _, x in pairs)
    if samples < FEWEST:
        raise ValueError(f"{samples} samples are too few to plan from: give at least {FEWEST}")
    check_stages(perturbed)
    single = [name for name, kind in SOLVERS.items() if kind.evaluations == 1]
    if solver not in single:
        raise ValueError(f"plans are made for {', '.join(single)}, got solver={solver!r}")
    check_target(target, None, solver)
    stages = gain_stages(grid, perturbed)
    kind = str(flatten(pairs[0][1])[0][0].dtype).removeprefix("torch.")
    start = Profile(
        grid, (), stages, model, check_guidance(guidance), kind, complete=False, solver=solver
    )
    found = start
    if file is not None:
        found = resumed(start, file, len(pairs), lambda i: begin(*pairs[i], grid))
    wanted = default_budgets(grid) if budgets is None else tuple(budgets)
    tried_before = found.tried(target)
    if found.complete and (tried_before if budgets is None else not {*budgets} - tried_before):
        return found
    restarts = 1 if solver == "euler" else 2
    calls = grid.steps + restarts * sum(grid.steps - n for n in stages)
    cut = budgets is None and target == RUN
    tried = affordable(found, wanted, RUNS * grid.steps - calls if cut else None, target)
    known, runs = len(found.batches), sum(tried.values())
    runs += reference_calls(grid.steps, target) if tried else 0
    total = calls * (len(pairs) - known) + grid.steps * known + len(pairs) * runs
    with Counter(total, grid, pairs, quiet) as counter:
        ends = [full_run(found, counter.counted(v), x) for v, x in pairs[:known]] if tried else []
        for v, x in pairs[known:]:
            batch, end = profile_batch(counter.counted(v), x, grid, stages, solver)
            found, ends = replace(found, batches=(*found.batches, batch)), [*ends, end]
            if file is not None:
                found.save(file)
        found = replace(found, complete=True)
        found = hold_tournaments(found, pairs, ends, [*tried], counter, target)
    if file is not None:
        found.save(file)
    return found


def profile_batch(
    velocity: Velocity, noise: Any, grid: Grid, stages: Sequence[int], solver: str = "euler"
) -> tuple[Batch, Any]:
    """(the batch's numbers, x at the end of its full runs)."""
    outputs: list[list[Tensor]] = []
    states: dict[int, list[Tensor]] = {}

    def spilling(x: Any, sigma: Any) -> Any:
        n, v = len(outputs), velocity(x, sigma)
        leaves = flatten(v)[0]
        check_finite(leaves, f"stage {n}")
        outputs.append([leaf.detach().cpu() for leaf in leaves])
        if n in stages:
            states[n] = [leaf.detach().cpu() for leaf in flatten(x)[0]]
        return v

    with torch.no_grad():
        end = sample(spilling, noise, grid, solver=solver)
        leaves, unflatten = check_state(noise)
        first = [leaf.detach().cpu() for leaf in leaves]
        grams = tuple(gram([x, *slot]) for x, slot in zip(first, zip(*outputs)))
        gains: list[list[Tensor]] = []
        for n in stages:
            error = perturbation(grid, n, lambda m: outputs[m])
            x = unflatten([s.to(leaf) for s, leaf in zip(states[n], leaves)])
            moved = [e.to(leaf.device) for e, leaf in zip(error, leaves)]
            plain = end  # what the remainder alone gives; multistep solvers restart there
            if solver != "euler":
                plain = sample(velocity, x, remainder(grid, n), solver=solver)
            gains.append(measure_gain(velocity, grid, n, x, moved, plain, solver))
    ends = flatten(end)[0]
    check_finite(ends, "the end")
    energies = tuple(x.double().flatten(1).square().sum(1).cpu() for x in ends)
    empty = [torch.zeros(0, len(e), dtype=torch.float64) for e in energies]
    by_slot = tuple(torch.stack(slot) for slot in zip(*gains)) if gains else tuple(empty)
    return Batch(grams, energies, by_slot), unflatten([x.cpu() for x in ends])


def check_finite(leaves: Sequence[Tensor], where: str) -> None:
    for slot, leaf in enumerate(leaves):
        bad = ~leaf.detach().flatten(1).isfinite().all(1)
        if bad.any():
            sample_ = int(bad.nonzero()[0, 0])
            raise ValueError(
                f"the model's output is not finite at {where} (slot {slot}, sample {sample_}): "
                "nothing can be planned from it; try a wider dtype or other samples"
            )


def resumed(
    start: Profile,
    file: str | Path,
    batches: int,
    begun: Callable[[int], Iterable[list[list[Tensor]]]],
    same: Sequence[str] = FACTS,
) -> Profile:
    """What the file has of this very profile; `start` where there is no file.

    batches   how many are profiled; begun(i) yields how batch i begins, for changed()
    """
    if not Path(file).exists():
        return start
    found = read(Profile, file, whole=False)
    other = [name for name in same if getattr(found, name) != getattr(start, name)]
    if grid_misfit(found.grid, start.grid):
        other.append("σ-grid")
    if len(found.batches) > batches:
        other.append("number of batches")
    elif not other and (strange := changed(found, begun)):
        other.append(strange)
    if other:
        raise ValueError(
            f"{file} is of another profile (its {', '.join(other)} differ): "
            "give another file, or remove it"
        )
    if len(found.batches) < batches:  # what was tried, was tried on fewer samples
        return replace(found, complete=False, trials=())
    return found
