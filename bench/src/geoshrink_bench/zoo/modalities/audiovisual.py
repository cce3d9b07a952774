"""A spoken digit and a handwritten one: the pair (picture (1, 8, 8), waveform (1, samples)).

The pictures are scikit-learn's; which picture goes with which recording is drawn anew each time,
so that the digit is all that the two share.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from geoshrink.compare.kinds import Made, kind_of

from ...metrics.measured import Measured
from ...metrics.video import PSNR
from ..drawing import draw_pair
from .base import Data, Facts, Lengths
from .pictures import Pictures, picture_of
from .sound import LEGEND, Sound, Speech, spoken

PIXEL = 24  # as large is each of the 8×8 drawn; PSNR stays, SSIM needs more than 8


class Audiovisual(Speech):
    sound = Sound()
    axes, legend = 4, f"8×8 picture and sound. {LEGEND}"

    def read(self, path: Path) -> Data:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise ImportError("the handwritten digits are scikit-learn's: install it") from None
        heard, seen = self.sound.read(path), cast(Any, load_digits())
        order = np.argsort(seen.target, kind="stable")
        pictures = torch.from_numpy(seen.images[order].astype(np.float32))
        counts = torch.from_numpy(np.bincount(seen.target, minlength=10))
        return Data((heard.parts[0], pictures, counts), heard.labels, heard.classes, heard.facts)

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], None]:
        waves, pictures, counts = data.parts
        digit = data.labels[pick] // (len(data.classes) // 10)
        first = (counts.cumsum(0) - counts)[digit]
        drawn = (torch.rand(len(pick), device=pick.device) * counts[digit]).long()
        return (pictures[first + drawn][:, None] / 8 - 1, spoken(waves, pick)), None

    def values(
        self, x: Sequence[Tensor], facts: Facts, lengths: Lengths = None
    ) -> tuple[Tensor, ...]:
        """(pictures in [0, 1], waveforms)."""
        return (x[0].float().clamp(-1, 1) + 1) / 2, self.sound.values(x[1], facts)

    def decode(self, x: Sequence[Tensor], facts: Facts, lengths: Lengths) -> list[Any]:
        """A pair (PIL image, waveform) per sample."""
        pictures = [picture_of(pixels) for pixels in self.values(x, facts)[0]]
        return list(zip(pictures, self.sound.decode(x[1], facts, lengths)))

    def made(self, x: Sequence[Tensor], facts: Facts, lengths: Lengths = None) -> Made:
        pixels = self.values(x, facts)[0].cpu()[:, None]
        large = pixels.repeat_interleave(PIXEL, -1).repeat_interleave(PIXEL, -2)
        return kind_of("Films")(kind_of("Pictures")(large), self.sound.made(x[1], facts))

    def metrics(self) -> list[Measured]:
        return [Measured(PSNR), *self.sound.metrics(1)]

    def draw(self, values: Sequence[Tensor], facts: Facts, length: int | None = None) -> Any:
        heard = values[1].clamp(-1, 1).cpu().numpy()
        return draw_pair(picture_of(values[0]), heard, facts["rate"])


class WrittenDigits(Pictures):
    """The pictures alone, for a classifier."""

    def read(self, path: Path) -> Data:
        _, pictures, counts = Audiovisual().read(path).parts
        labels = torch.arange(10).repeat_interleave(counts)
        return Data((pictures[:, None],), labels, [str(d) for d in range(10)])

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], None]:
        return (data.parts[0][pick],), None

    def values(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Tensor:
        return x / 16
