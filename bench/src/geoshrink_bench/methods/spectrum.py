"""Spectrum (Han et al., 2026): the last feature by a Chebyshev fit over all full stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from .base import Case, Method, Outcome
from .weighted import Weighted

TRIED = (0.75, 3.0)  # the authors' α: 14 and 10 runs of 50


@dataclass(eq=False)
class Spectrum(Method):
    """The streams after the last block, w·(ridge Chebyshev fit) + (1 − w)·(line through two).

    Full at the first `warm_up` stages, then after a window of N stages which grows by α each time;
    the last stage is not forced. Without α the budget chooses it. w = 0.5 is in all the authors'
    commands (1 is the paper's; they advise 0.5 to 1). Unlike their code, time runs over the case's
    own T stages where they write 50, and all sums are in the model's precision, not bfloat16.
    """

    name = "Spectrum"
    alpha: float | None = None
    window: float = 2
    w: float = 0.5
    degree: int = 4
    ridge: float = 0.1
    warm_up: int = 5

    def run(self, case: Case, budget: int) -> Outcome:
        steps = case.grid().steps
        alpha = self.alpha
        if alpha is None:
            alpha = alpha_for(budget, steps, self.window, self.warm_up)
        stages = growing(alpha, steps, self.window, self.warm_up)

        def weights(anchors: Sequence[int], n: int) -> Sequence[float]:
            line = line_weights(anchors, n)
            if len(anchors) < min(self.warm_up, steps):  # another batch: too few for a fit
                return line.tolist()
            fit = fit_weights(anchors, n, steps, self.degree, self.ridge)
            return (self.w * fit + (1 - self.w) * line).tolist()

        return Weighted(case, stages, weights, feature=True).run()


def growing(alpha: float, steps: int, window: float = 2, warm_up: int = 5) -> list[int]:
    """The warm-up, then stages ⌊N⌋, ⌊N + α⌋, ⌊N + 2α⌋ … apart.

    >>> growing(3.0, 50)
    [0, 1, 2, 3, 4, 6, 11, 19, 30, 44]
    """
    stages = list(range(min(warm_up, steps)))
    n = warm_up - 1 + int(window)
    while n < steps:
        stages.append(n)
        window = round(window + alpha, 3)
        n += int(window)
    return stages


def alpha_for(budget: int, steps: int, window: float = 2, warm_up: int = 5) -> float:
    """The α of most runs within the budget; of several, the nearest to one the authors tried.

    >>> alpha_for(14, 50), alpha_for(10, 50)
    (0.75, 3.0)
    """
    grid = [i / 100 for i in range(100 * steps)]
    runs = {alpha: len(growing(alpha, steps, window, warm_up)) for alpha in grid}
    fits = [alpha for alpha, n in runs.items() if n <= budget]
    if not fits:
        raise ValueError(f"a budget of {budget} is less than the {warm_up} stages of the warm-up")
    return min(fits, key=lambda a: (-runs[a], min(abs(a - tried) for tried in TRIED)))


def fit_weights(
    anchors: Sequence[int], n: int, steps: int, degree: int = 4, ridge: float = 0.1
) -> np.ndarray:
    """w with Σ_j w_j·F_j = t(n)·C for C = argmin |X·C − F|² + λ·|C|²; X are the rows t(anchor).

    t(i) = T_0(τ) … T_M(τ) at τ = (i − T/2)/(T/2).
    """
    tau = (2 * np.array([*anchors, n], dtype=float) - steps) / steps
    *rows, target = chebvander(tau, degree)
    x = np.array(rows)
    return x @ np.linalg.solve(x.T @ x + ridge * np.eye(degree + 1), target)


def line_weights(anchors: Sequence[int], n: int) -> np.ndarray:
    """The line through the last two anchors; the last alone where there is one."""
    weights = np.zeros(len(anchors))
    weights[-1] = 1
    if len(anchors) > 1:
        k = (n - anchors[-1]) / (anchors[-1] - anchors[-2])
        weights[-2:] = -k, 1 + k
    return weights
