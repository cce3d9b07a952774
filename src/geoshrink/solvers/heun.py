"""heun: the slopes at both ends of a stage."""

from __future__ import annotations

from torch import Tensor

from .euler import Euler
from .noise import noise_of, ratios
from .registry import Solver


class Heun(Solver):
    """The mean of the slopes at both ends (Karras et al., 2022): two evaluations a stage, one in
    the last.
    """

    name, order, evaluations = "heun", 2, 2

    def first(self, n: int, x: Tensor, output: Tensor) -> Tensor:
        return Euler(self.track).step(n, x, output)

    def second(self, n: int, x: Tensor, output: Tensor, ahead: Tensor, there: Tensor) -> Tensor:
        """x' from the output at (x, σ_n) and the output `there` at (ahead, σ_{n+1})."""
        if not self.track.moves(n):
            return x
        if self.track.prediction == "flow":
            h = self.track.sigmas[n + 1] - self.track.sigmas[n]
            return (x + h * (output + there) / 2).to(x.dtype)
        alpha, alpha1 = self.track.alphas[n], self.track.alphas[n + 1]  # type: ignore[index]
        if alpha == 0 or self.track.sigmas[n + 1] == 0:  # no slope at one of the ends
            return ahead
        slopes = noise_of(self.track, n, x, output), noise_of(self.track, n + 1, ahead, there)
        s = ratios(self.track)
        return ((alpha1 / alpha) * x + alpha1 * (s[n + 1] - s[n]) * (slopes[0] + slopes[1]) / 2).to(
            x.dtype
        )
