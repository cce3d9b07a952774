"""What many samples say together."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

IDENTICAL = 999.0  # in a cell: equal to the reference to the last bit, JSON knows no infinity


@dataclass(frozen=True)
class Score:
    """Mean over samples and the standard deviation over seeds of the seeds' means.

    What is identical to the reference has no finite PSNR or SI-SDR: it is counted apart, and the
    mean is that of the others, or infinite where there are none.
    """

    mean: float
    sd: float | None = None
    identical: int = 0
    count: int = 1

    @classmethod
    def of(cls, each: Sequence[float] | float, seeds: int, higher: bool = True) -> Score:
        """From one number per sample, seed after seed; a single number is one of a whole set.

        >>> Score.of([30.0, 32.0, 999.0, 35.0], seeds=2)
        Score(mean=33.0, sd=2.8284271247461903, identical=1, count=4)
        """
        if isinstance(each, (int, float)):
            return cls(float(each))
        if not each or len(each) % seeds:
            raise ValueError(f"{len(each)} samples are not {seeds} seeds of as many each")
        size = len(each) // seeds
        parts = [each[i : i + size] for i in range(0, len(each), size)]
        if higher:
            parts = [[v for v in part if v != IDENTICAL] for part in parts]
        means = [statistics.fmean(part) for part in parts if part]
        identical = len(each) - sum(map(len, parts))
        if not means:
            return cls(math.inf, None, identical, len(each))
        sd = statistics.stdev(means) if len(means) > 1 else None
        return cls(statistics.fmean(means), sd, identical, len(each))

    def text(self, digits: int = 2) -> str:
        """ "31.25 ± 0.40", "identical", or how many are."""
        if math.isinf(self.mean):
            return "identical"
        text = f"{self.mean:.{digits}f}"
        if self.sd is not None:
            text += f" ± {self.sd:.{digits}f}"
        return f"{text}, {self.identical} of {self.count} identical" if self.identical else text
