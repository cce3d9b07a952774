"""TeaCache (Liu et al., CVPR 2025): skip while the input, as time modulates it, hardly changes.

    m_i = norm(h)·(1 + scale) + shift  in the first block
    d_i = mean|m_i − m_{i−1}| / mean|m_{i−1}|
    S ← S + p(d_i);  skip while S < threshold, else run in full and S ← 0

p, of degree 4, turns a change of m into one of the model's output: it is fitted to full runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoshrink.outputs import flatten

from .base import Case, Method, Outcome, rows
from .residual import LastResidual, relative_change
from .stack import Streams
from .tuning import tuned

IDENTITY = (1.0, 0.0)


class TeaCache(Method):
    """The rule of the authors' code, with the threshold of theirs for FLUX.

    The first and the last stage are full; m_{i−1} is of the stage before, full or not; the whole
    stack's residual is reused.

    coefficients    of p, highest power first, from `calibrate`; without them p(d) = d
    """

    adaptive = True

    def __init__(self, threshold: float = 0.6, coefficients: Sequence[float] | None = None):
        self.threshold, self.coefficients = threshold, coefficients
        self.calibrated = coefficients is not None
        self.name = "TeaCache" if self.calibrated else "TeaCache (uncalibrated)"

    @classmethod
    def tune(
        cls, cases: Sequence[Case], budget: int, coefficients: Sequence[float] | None = None
    ) -> TeaCache:
        """With the threshold that keeps the budget on these cases."""
        high = float(cases[0].grid().steps)
        return cls(tuned(lambda t: cls(t, coefficients), cases, budget, 0.0, high), coefficients)

    def run(self, case: Case, budget: int) -> Outcome:
        return Modulated(case, self.threshold, self.coefficients or IDENTITY).run()


class Modulated(LastResidual):
    def __init__(self, case: Case, threshold: float, coefficients: Sequence[float]):
        super().__init__(case)
        self.threshold, self.coefficients = threshold, coefficients
        self.sum = 0.0

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        before, self.probe = self.probe, modulated(self.stack.blocks[0], args, kwargs)
        self.sum += float(np.polyval(self.coefficients, relative_change(self.probe, before)))
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


def calibrate(cases: Sequence[Case], of: str = "output", degree: int = 4) -> tuple[float, ...]:
    """The coefficients of p: least squares over all stages of full runs of the cases.

    of    "output", the network's, as the authors say; or "residual", what is reused
    """
    sessions = [Changes(case, of) for case in cases]
    for session in sessions:
        session.run()
    x, y = np.array([pair for session in sessions for pair in session.pairs]).T
    return tuple(float(c) for c in np.polyfit(x, y, degree))


class Changes(LastResidual):
    """A full run that notes d_i and the relative change of the output, or of the residual."""

    def __init__(self, case: Case, of: str):
        super().__init__(case)
        if of not in ("output", "residual"):
            raise ValueError(f"of must be 'output' or 'residual', got {of!r}")
        self.of = of
        self.last: Tensor | None = None
        self.d = math.nan
        self.pairs: list[tuple[float, float]] = []

    def decide(self, streams: Streams, args: tuple, kwargs: dict) -> bool:
        before, self.probe = self.probe, modulated(self.stack.blocks[0], args, kwargs)
        self.d = relative_change(self.probe, before)
        return True

    def observe(self, residual: Streams) -> None:
        if self.of == "residual":
            self.note(residual[0])

    def note(self, value: Tensor) -> None:
        if not math.isnan(self.d):
            self.pairs.append((self.d, relative_change(value, self.last)))
        self.last = value

    def run(self) -> Outcome:
        if self.of == "residual":
            return super().run()
        hook = self.case.network.register_forward_hook(lambda _, args, out: self.note(joined(out)))
        try:
            return super().run()
        finally:
            hook.remove()


def joined(output: Any) -> Tensor:
    """All parts of an output, one row per sample."""
    return torch.cat([rows(part) for part in flatten(output)[0]], 1)
