"""What a profile costs: the batches to be run, and a counter of model calls that says so before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..grid import Grid
from ..outputs import flatten
from ..report import size
from ..sampling import check_state

Velocity = Callable[[Any, Any], Any]


class Counter:
    """Counts calls, by tick() or of what counted() hands out; a bar where tqdm is installed."""

    def __init__(
        self, calls: int, grid: Grid, pairs: Sequence[tuple[Any, Any]], quiet: bool = False
    ):
        self.calls, self.done, self.bar = calls, 0, None
        runs = calls / grid.steps / len(pairs)
        held = max(sum(t.nbytes for t in flatten(x)[0]) for _, x in pairs) * (grid.steps + 1)
        self.words = (
            f"profiling: at most {calls} model calls ({runs:.1f} full runs), "
            f"{size(held)} of host memory"
        )
        self.quiet = quiet

    def __enter__(self) -> Counter:
        if not self.quiet:
            print(self.words, file=sys.stderr)
            self.bar = bar(self.calls)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def counted(self, velocity: Velocity) -> Velocity:
        def counting(x: Any, sigma: Any) -> Any:
            output = velocity(x, sigma)
            self.tick()
            return output

        return counting

    def tick(self) -> None:
        self.done += 1
        if self.bar is not None:
            self.bar.update()


def bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="call", desc="profile")


def batches_of(velocity: Any, noise: Any) -> list[tuple[Velocity, Any]]:
    several = isinstance(velocity, (list, tuple))
    if several and (not isinstance(noise, (list, tuple)) or len(noise) != len(velocity)):
        given = f"{len(noise)}" if isinstance(noise, (list, tuple)) else "one"
        raise ValueError(f"{len(velocity)} velocities need as many noises, got {given}")
    pairs = list(zip(velocity, noise)) if several else [(velocity, noise)]
    if not pairs:
        raise ValueError("there is nothing to profile: velocity and noise are empty lists")
    for v, x in pairs:
        if not callable(v):
            raise TypeError(f"velocity must be callable as velocity(x, σ), got {v!r}")
        for leaf in check_state(x)[0]:
            if leaf.ndim < 2:
                raise ValueError(f"noise needs a sample axis first, got shape {tuple(leaf.shape)}")
    return pairs
