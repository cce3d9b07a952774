"""The cheapest anchors where a cell costs what the two latest anchors say: a shortest path."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def cheapest_pairs(
    costs: Callable[[int], np.ndarray], stages: int, most: int
) -> list[tuple[float, tuple[int, ...]]]:
    """[(cost, anchors)] for 1 … most anchors among stages 0 … L − 1, the first of them 0. Exact.

    costs(k) is (j, l): the cell from anchor k to the next, l = k + 1 … L, where L is the end and
    j < k is the anchor before (stage 0 has none: one row).
    """
    first = costs(0)
    reached = np.full((most, stages, stages), np.inf, dtype=first.dtype)  # (b − 1, k, j)
    back = np.zeros((most, stages, stages), dtype=np.int16)
    ended, last = np.full(most, np.inf, dtype=first.dtype), np.zeros((most, 2), dtype=np.int64)
    reached[0, 0, 0] = 0.0
    for k in range(stages):
        past, deep = max(k, 1), min(most, k + 1)
        total = reached[:deep, k, :past, None] + (costs(k) if k else first)
        j = total.argmin(1)  # (b, l)
        value = np.take_along_axis(total, j[:, None], 1)[:, 0]
        better = value[:, -1] < ended[:deep]
        ended[:deep][better] = value[better, -1]
        last[:deep][better] = np.stack([np.full(deep, k), j[:, -1]], 1)[better]
        further = min(deep, most - 1)
        reached[1 : further + 1, k + 1 :, k] = value[:further, :-1]
        back[1 : further + 1, k + 1 :, k] = j[:further, :-1]
    return [(float(ended[b]), traced(back, b, *last[b].tolist())) for b in range(most)]


def traced(back: np.ndarray, b: int, k: int, j: int) -> tuple[int, ...]:
    anchors = [k]
    for layer in range(b, 0, -1):
        anchors.append(j)
        k, j = j, int(back[layer, k, j])
    return tuple(reversed(anchors))
