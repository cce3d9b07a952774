"""How much an error of the state at a stage has grown or shrunk at the end of the run.

Nobody knows it from one exact run, so anchors are sought that are good whichever of two holds:

zoo       (1 − τ + a)^−p, as on our own models (meshes/auto.py)
picture   s/√((1 − τ)²s² + τ²): what it is where the data are Gaussian with deviation s in the
          direction of the error. s is read off the exact run: how far the data prediction still
          moved along the errors that held outputs would have made, over the number of pictures. The
          movement has few directions, so this is too much: about three times in the mean, and more
          on single models (benchmarks/learning.md). 3 was chosen among 1, 3 and 10.

What is gained must also be gained if errors stay as they are (flat).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..grid import Grid
from ..meshes.auto import believed
from ..planning.gains import hold_cell

ALONG = 3.0  # times the deviation: what is seen of it along one run
EARLY = 0.5  # τ down to which it is looked for


def zoo(tau: Sequence[float]) -> np.ndarray:
    return np.asarray(believed(tau).growth)


def picture(tau: Sequence[float], spread: float | None) -> np.ndarray:
    """Without a spread: errors stay as they are."""
    noise = np.asarray(tau)
    if not spread:
        return np.ones(len(noise))
    s = spread / ALONG
    return s / np.sqrt(np.square(1 - noise) * s**2 + np.square(noise))


def movement(gram: Tensor) -> Tensor:
    """⟨h, ·⟩ of every row, h the last one, which is the data, less the one before it, the data
    prediction at the first stage, shortened to the data's length where it is longer.

    What a model knows of the data is no longer than they are. x̂₀ = (x − σ·ε)/α can be: where α is
    near 0 it is the error of ε, magnified.
    """
    first, last = gram[-2], gram[-1]
    return last - first * min(1.0, math.sqrt(float(last[-1] / first[-2]))) if first[-2] else last


def spread_of(grid: Grid, slot: int, gram: Tensor, moved: Tensor, pictures: int) -> float | None:
    """√ of the mean of ⟨h, û⟩²/pictures, û the errors that held outputs would have made.

    gram    of x_0, v_0 … v_{T−1}
    moved   ⟨h, ·⟩ of the same (movement)
    """
    track, tau = grid.track(slot), grid.tracks[grid.lead].noise
    basis, found = torch.eye(len(gram), dtype=torch.float64), []
    early = [n for a, b in grid.spans() for n in range(a + 2, b) if tau and tau[n] > EARLY]
    for n in early:
        k, *skipped = hold_cell(grid, n)
        error = torch.zeros(len(gram), dtype=torch.float64)
        for m in skipped:
            p, g = track.euler(m)
            error = p * error + g * (basis[k + 1] - basis[m + 1])
        length = float(error @ gram @ error)
        if length > 0:
            found.append(float(moved @ error) ** 2 / length)
    mean = float(np.mean(found)) / pictures if found else 0.0
    return float(np.sqrt(mean)) if mean > 0 else None
