"""A scheduler's grid, read after its first step: σ at every stage, and whether it can be planned.

A scheduler is planned in its own σ. One that has none is planned in τ = σ/(α + σ), the flow time
with the same ratio of noise to signal, or in its timesteps.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ..grid import Grid

FEW_STEPS = 5
#: Samplers that are no ODE solvers, or need every one of their few steps.
NOT_SOLVERS = (
    "Amused", "BlockRefinement", "CMStochastic", "Consistency", "DDPMWuerstchen", "FlowMatchLCM",
    "HeliosDMD", "LCM", "SCM", "TCD", "UnCLIP", "VQDiffusion",
)  # fmt: skip
#: Solvers in σ whose x is x₀ + σ·ε.
EXPLODING = ("Euler", "Heun", "KDPM2", "LMS")
EULER = ("EulerDiscreteScheduler", "FlowMatchEulerDiscreteScheduler")  # x' = x + h·output
PREDICTIONS = {"v_prediction": "v", "sample": "sample"}
#: (σ on the host, when they are there, the version they are of) of σ on a device.
AHEAD: Any = WeakIdKeyDictionary()


def check_step(scheduler: Any) -> None:
    """Refuses a scheduler whose step does not take what is predicted first."""
    names = list(inspect.signature(scheduler.step).parameters)
    if names[:1] != ["model_output"] or "sample" not in names:
        raise TypeError(
            f"{type(scheduler).__name__}.step({', '.join(names)}) is not the one that geoshrink "
            "knows: expected step(model_output, timestep, sample, …); if yours takes the output "
            "first by another name, say so: accelerate(host, scheduler=…, denoisers=[…])"
        )


def read_grid(
    scheduler: Any,
    order: int,
    timestep: Any,
    *,
    counted: Any = None,
    reason: str | None = None,
    regimes: Sequence[int] = (),
) -> tuple[Grid, str | None]:
    """(grid of the loop whose first step was just made, why it must run exactly or None).

    counted  how many rounds the host says it makes, where it does
    reason   why the host must run exactly, where it must
    regimes  indices of the timesteps at which guidance switches
    """
    name = type(scheduler).__name__
    start = first_index(scheduler, timestep, counted)
    rounds = len(scheduler.timesteps) - start
    if isinstance(counted, int) and 0 < counted < rounds:
        rounds = counted
    stages = (rounds + order - 1) // order
    times, flow = coordinate(scheduler)
    points = times[start : start + rounds + 1]
    if order > 1:
        points = [points[0], *points[1::order]]
    elif start and points[0] == points[1]:  # the first stage is queried, so it must have a length
        points[0] = times[start - 1]
    if name.startswith(NOT_SOLVERS):
        reason = f"{name} is no ODE solver"
    elif reason is None and stages <= FEW_STEPS:
        reason = f"{stages} stages leave nothing to skip"
    try:
        if len(points) != stages + 1:
            raise ValueError(f"{len(points)} σ for {stages} stages")
        switches = [(i - start) // order for i in regimes if start < i < start + rounds]
        if flow:
            ends_in_data = points[0] < points[-1] == 1  # σ from noise at 0 to data at 1
            data = 1.0 if ends_in_data else None
            return Grid.of(points, data=data, regimes=switches), reason
        prediction = prediction_of(scheduler)
        return Grid.of(points, prediction=prediction, alphas="ve", regimes=switches), reason
    except ValueError as error:
        line = [float(stages - i) for i in range(stages + 1)]
        return Grid.of(line), reason or f"the grid of {name} cannot be read ({error})"


def first_index(scheduler: Any, timestep: Any, counted: Any = None) -> int:
    """The index of the step that was just made; of two at one time the one that leaves as many
    rounds as the host has counted.
    """
    index = getattr(scheduler, "_step_index", None)
    if isinstance(index, int):
        return max(0, index - 1)
    times = torch.as_tensor(scheduler.timesteps).double().cpu()
    if timestep is None:
        return 0
    time = torch.as_tensor(timestep).double().cpu().flatten()[:1]
    found = (times == time).nonzero().flatten().tolist() or [0]
    return next((i for i in found if len(times) - i == counted), found[0])


def read_ahead(scheduler: Any) -> None:
    """Sends σ to the host before the model is called, so that nobody waits for it to read them."""
    sigmas = getattr(scheduler, "sigmas", None)
    if isinstance(sigmas, Tensor) and sigmas.is_cuda and not sigmas.is_inference():
        host, there = sigmas.to("cpu", non_blocking=True), torch.cuda.Event()
        there.record(torch.cuda.current_stream(sigmas.device))
        AHEAD[sigmas] = host, there, sigmas._version


def numbers(times: Any) -> list[float]:
    """The values of a tensor, from the copy that was sent ahead where it is still true."""
    if times in AHEAD:
        host, there, version = AHEAD[times]
        if times._version == version:
            there.synchronize()
            times = host
    return torch.as_tensor(times).double().tolist()


def said(scheduler: Any) -> str:
    """What a scheduler's config says of the model's outputs."""
    return getattr(scheduler, "config", {}).get("prediction_type", "")


def prediction_of(scheduler: Any) -> str:
    """What the outputs are, in our words."""
    return "flow" if is_flow(scheduler) else PREDICTIONS.get(said(scheduler), "epsilon")


def is_flow(scheduler: Any) -> bool:
    return (
        type(scheduler).__name__.startswith(("FlowMatch", "MiniMaxH3"))
        or said(scheduler) == "flow_prediction"
        or bool(getattr(scheduler, "config", {}).get("use_flow_sigmas"))
    )


def is_euler(scheduler: Any) -> bool:
    """Whether a step is x + h·output, and nothing else."""
    noisy = getattr(scheduler, "config", {}).get("stochastic_sampling", False)
    return type(scheduler).__name__.startswith(EULER) and not noisy


def knows_data(scheduler: Any) -> bool:
    """Whether the data are known from x and the output of a stage of this scheduler."""
    name = type(scheduler).__name__
    if name.startswith((*NOT_SOLVERS, "MiniMaxH3")):  # whose velocity points from noise to data
        return False
    return name.startswith(EXPLODING) or (hasattr(scheduler, "sigmas") and is_flow(scheduler))


def coordinate(scheduler: Any) -> tuple[list[float], bool]:
    """(time at every timestep and at the end, whether it is a flow's σ)."""
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is not None and len(sigmas) == len(scheduler.timesteps) + 1:
        return numbers(sigmas), is_flow(scheduler)
    times = torch.as_tensor(scheduler.timesteps).double()
    products = getattr(scheduler, "alphas_cumprod", None)
    if products is not None and times.max() < len(products):
        kept = products.double()[times.long().cpu()]
        noise = (1 - kept).sqrt()
        return [*(noise / (kept.sqrt() + noise)).tolist(), 0.0], True
    return [*times.tolist(), 0.0], True
