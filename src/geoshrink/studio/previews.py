"""Colours: what the latents of a pipeline look like, without its decoder.

The first finished sample teaches it: the linear map from the numbers at one place of the latents to
the mean colour there, by least squares.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..compare.kinds import Made
from ..compare.pictures import Pictures


class Colours:
    def __init__(self) -> None:
        self.map: Tensor | None = None  # (numbers + 1, channels)
        self.ratio, self.moving, self.fps = 1.0, False, 16.0  # height to width

    def learn(self, state: Tensor | None, made: Made) -> None:
        """From where a run ended, and what was decoded from it; nothing where they do not fit."""
        if not isinstance(made, Pictures) or not isinstance(state, Tensor):
            return
        height, width = made.values.shape[-2:]
        self.ratio, self.moving, self.fps = height / width, made.moving, made.fps
        places = self.places(state)
        if places is None or len(places) != len(made.values):
            return
        frames, rows, columns = places.shape[1:4]
        values = made.values[..., :3, :, :].float().transpose(1, 2)  # channels before frames
        small = F.adaptive_avg_pool3d(values, (frames, rows, columns)).movedim(1, -1)
        seen = with_one(places.flatten(0, 3))
        found = torch.linalg.lstsq(seen, small.flatten(0, 3).double(), driver="gelsd").solution
        self.map = found if found.isfinite().all() else None

    def places(self, state: Tensor) -> Tensor | None:
        """As (samples, frames, rows, columns, numbers): one tensor of a picture or a film, or a row
        of tokens; None where it is neither.
        """
        state = state.detach().double().cpu()
        if state.ndim == 4:
            return state.movedim(1, -1)[:, None]
        if state.ndim == 5:
            return state.movedim(1, -1)
        if state.ndim != 3:
            return None
        tokens = state.shape[1]
        rows = round((tokens * self.ratio) ** 0.5)
        if rows < 1 or tokens % rows:
            return None
        return state.reshape(len(state), 1, rows, tokens // rows, state.shape[2])

    def seen(self, state: Tensor | None) -> Made | None:
        """A small picture of the latents; None before anything was learned."""
        if self.map is None or state is None or (places := self.places(state)) is None:
            return None
        if places.shape[-1] + 1 != len(self.map):
            return None
        values = (with_one(places) @ self.map).clamp(0, 1).float().movedim(-1, 2)
        return Pictures(values, self.moving and values.shape[1] > 1, self.fps)


def with_one(numbers: Tensor) -> Tensor:
    return torch.cat([numbers, numbers.new_ones(*numbers.shape[:-1], 1)], -1)
