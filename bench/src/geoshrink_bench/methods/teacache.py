"""TeaCache (Liu et al., CVPR 2025): skip while the input, as time modulates it, hardly changes.

    m_i = norm(h)·(1 + scale) + shift  in the first block
    d_i = mean|m_i − m_{i−1}| / mean|m_{i−1}|
    S ← S + p(d_i);  skip while S < threshold, else run in full and S ← 0

p, of degree 4, turns a change of m into one of the model's output: it is fitted to full runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoshrink.outputs import flatten

from .base import Case, Outcome, rows
from .residual import LastResidual, relative_change
from .stack import Streams
from .tuning import Thresholded

IDENTITY = (1.0, 0.0)


@dataclass(eq=False)
class TeaCache(Thresholded):
    """The rule of the authors' code, with the threshold of theirs for FLUX.

    The first and the last stage are full; m_{i−1} is of the stage before, full or not; the whole
    stack's residual is reused.

    coefficients    of p, highest power first, from `calibrate`; without them p(d) = d
    """

    reach = 0.0, None
    threshold: float = 0.6
    coefficients: Sequence[float] | None = None

    def __post_init__(self) -> None:
        self.calibrated = self.coefficients is not None
        self.name = "TeaCache" if self.calibrated else "TeaCache (uncalibrated)"

    def run(self, case: Case, budget: int) -> Outcome:
        return Modulated(case, self.threshold, self.coefficients or IDENTITY).run()


class Modulated(LastResidual):
    def __init__(self, case: Case, threshold: float, coefficients: Sequence[float]):
        super().__init__(case)
        self.threshold, self.coefficients = threshold, coefficients
        self.sum, self.change = 0.0, math.nan

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        before, self.probe = self.probe, modulated(self.stack.blocks[0], args, kwargs)
        self.change = relative_change(self.probe, before)
        self.sum += float(np.polyval(self.coefficients, self.change))
        if self.sum < self.threshold and self.stage < self.steps - 1:
            return False
        self.sum = 0.0
        return True


def modulated(block: Any, args: tuple, kwargs: dict) -> Tensor:
    """What goes into the attention of a block of the zoo, or of diffusers' transformers."""
    if not hasattr(block, "modulation"):
        given = dict(zip(("hidden_states", "encoder_hidden_states", "temb"), args)) | kwargs
        return block.norm1(given["hidden_states"], emb=given["temb"])[0]
    h, c, spread = args[:3]
    shift, scale, *_ = spread(block.modulation(c)).chunk(6, -1)
    return block.norm1(h) * (1 + scale) + shift


def calibrate(cases: Sequence[Case], degree: int = 4) -> tuple[float, ...]:
    """The coefficients of p: least squares over all stages of full runs of the cases."""
    sessions = [Changes(case) for case in cases]
    for session in sessions:
        session.run()
    x, y = np.array([pair for session in sessions for pair in session.pairs]).T
    return tuple(float(c) for c in np.polyfit(x, y, degree))


class Changes(Modulated):
    """A full run that notes d_i and the relative change of the network's output."""

    def __init__(self, case: Case):
        super().__init__(case, threshold=0.0, coefficients=IDENTITY)
        self.modules = (*self.stack.blocks, case.network)
        self.last: Tensor | None = None
        self.pairs: list[tuple[float, float]] = []

    def call(self, i: int, forward: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if i < len(self.stack.blocks):
            return super().call(i, forward, args, kwargs)
        output = forward(*args, **kwargs)
        value = joined(output)
        if not math.isnan(self.change):
            self.pairs.append((self.change, relative_change(value, self.last)))
        self.last = value
        return output


def joined(output: Any) -> Tensor:
    """All parts of an output, one row per sample."""
    return torch.cat([rows(part) for part in flatten(output)[0]], 1)
