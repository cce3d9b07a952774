"""Sketch: the outputs of an exact run, kept on the host in bounded memory until the run has ended.

Outputs that do not fit are projected: the coordinates are summed in so many groups, each with a
random sign. That is linear, so a difference of outputs is the difference of their projections, and
its length is kept within about √(2/groups) of itself: 0.3 % where 64 MiB hold 51 outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BYTES = 64 * 2**20  # of host memory, for the outputs of one run
SEED = 7


class Sketch:
    """Rows of numbers, one per output, for every slot of a run.

    count   how many rows there will be
    sizes   the number of coordinates of every slot
    """

    def __init__(self, count: int, sizes: Sequence[int], device: torch.device, most: int = BYTES):
        self.count, self.sizes = count, tuple(sizes)
        room = max(1, most // (4 * count * len(self.sizes)))
        self.widths = tuple(min(size, room - 1 + room % 2) for size in self.sizes)
        pinned = device.type == "cuda"
        self.rows = [
            torch.zeros(count, w, dtype=torch.float32, device="cpu", pin_memory=pinned)
            for w in self.widths
        ]
        self.signs: dict[tuple[int, torch.device], Tensor] = {}
        self.device = device

    @property
    def bytes(self) -> int:
        """Of host memory."""
        return sum(rows.nbytes for rows in self.rows)

    def keep(self, row: int, leaves: Sequence[Tensor]) -> None:
        """Takes in one row of every slot. Waits for nothing."""
        for rows, leaf in zip(self.rows, leaves):
            rows[row].copy_(self.projected(leaf, rows.shape[1]), non_blocking=rows.is_pinned())

    def projected(self, leaf: Tensor, width: int) -> Tensor:
        flat = leaf.detach().flatten().float()
        if flat.numel() == width:
            return flat
        parts = -(-flat.numel() // width)
        if (flat.numel(), flat.device) not in self.signs:
            drawn = torch.Generator("cpu").manual_seed(SEED)
            drawn_signs = torch.randint(
                0, 2, (flat.numel(),), generator=drawn, dtype=torch.int8, device="cpu"
            )
            signs = drawn_signs * 2 - 1
            self.signs[flat.numel(), flat.device] = signs.to(flat.device)
        signed = flat * self.signs[flat.numel(), flat.device]
        padded = torch.nn.functional.pad(signed, (0, parts * width - flat.numel()))
        return padded.view(parts, width).sum(0)

    def grams(self) -> list[Tensor]:
        """⟨row, row⟩ of every slot in float64. Waits for what is still on its way."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return [gram(rows) for rows in self.rows]


def gram(rows: Tensor, block: int = 1 << 16) -> Tensor:
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for start in range(0, rows.shape[1], block):
        part = rows[:, start : start + block].double()
        total += part @ part.T
    return (total + total.T) / 2
