"""Recording: an exact run while it runs, and what it teaches once it has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..track import Track
from .learned import Learned
from .setting import Setting
from .sketch import Sketch


class Recording:
    """Rows x_0, v_0 … v_{T−1}, then the first data prediction and the last.

    learn    what to do with what was learned, or with why nothing was
    masks    which coordinates count, for every slot; None: all
    """

    def __init__(
        self,
        setting: Setting,
        pictures: int,
        learn: Callable[[Learned | str], None],
        masks: Sequence[Tensor | None] = (),
    ):
        self.setting, self.pictures, self.learn, self.masks = setting, pictures, learn, masks
        self.sketch: Sketch | None = None
        self.stage = 0  # that comes next

    def keep(self, stage: int, leaves: Sequence[Tensor], x: Sequence[Tensor], levels: Sequence):
        """Takes in what a stage was given and has returned. Waits for nothing; why it cannot, or
        None: then the recording is of no use any more.
        """
        steps = self.setting.grid.steps
        with torch.no_grad():
            if stage != self.stage:
                return "the loop did not come to every stage once"
            if self.sketch is None:
                sizes = [leaf.numel() for leaf in leaves]
                self.sketch = Sketch(steps + 3, sizes, leaves[0].device)
                self.sketch.keep(0, masked(x, self.masks))
            if [leaf.numel() for leaf in leaves] != [*self.sketch.sizes]:
                return "the outputs changed their shape"
            self.sketch.keep(1 + stage, masked(leaves, self.masks))
            for at, row in ((0, steps + 1), (steps - 1, steps + 2)):
                if stage == at:
                    data = data_predictions(stage, leaves, x, levels)
                    self.sketch.keep(row, masked(data, self.masks))
        self.stage += 1
        return None

    def end(self) -> None:
        """The run has ended: it teaches. Waits for the device."""
        if self.sketch is None or self.stage != self.setting.grid.steps:
            return
        try:
            taught: Learned | str = Learned.of(self.setting, self.sketch.grams(), self.pictures)
        except Exception as error:  # the run is over and its result is there
            taught = str(error) if isinstance(error, ValueError) else repr(error)
        self.learn(taught)


def masked(leaves: Sequence[Tensor], masks: Sequence[Tensor | None]) -> list[Tensor]:
    """The tensors, with zeros where coordinates do not count."""
    masks = [*masks, *[None] * (len(leaves) - len(masks))]
    return [leaf if m is None else leaf * m for leaf, m in zip(leaves, masks)]


def data_predictions(
    stage: int, leaves: Sequence[Tensor], x: Sequence[Tensor], levels: Sequence[Track]
) -> list[Tensor]:
    tracks = [*levels] * (len(leaves) if len(levels) == 1 else 1)
    found = []
    for leaf, state, track in zip(leaves, x, tracks):
        a, b = track.data_map(stage)
        found.append(a * state.detach().float() + b * leaf.detach().float())
    return found
