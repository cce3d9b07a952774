"""The solver's grid: stages, their σ, what each output says about the data, and the regimes.

A Track is the σ-grid of one output slot. A Grid is the tracks of all slots plus what they share:
which stages have a length, and where a new regime begins. Numbers only: no tensors, no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from .checks import whole
from .outputs import flatten_sigmas, keys_of
from .track import Track, check_sigmas, make_track

#: Two σ are the same if they differ by at most ABSOLUTE + RELATIVE·|σ|. Rounding to float32 stays
#: far below that, another shift or number of steps far above.
ABSOLUTE, RELATIVE = 1e-5, 1e-4


@dataclass(frozen=True)
class Grid:
    """The tracks of all output slots over their common effective stages 0 … T − 1.

    tracks   one for each output slot: its σ, and what its outputs say about the data
    kept     the caller's number of each effective stage: stages of zero length are dropped
    given    how many stages the caller counts
    regimes  effective stages at which a new regime begins (stage 0 is not listed)
    lead     the track on which σ-meshes are laid out: the first that was given
    keys     the names of the grids, where they came as a dict
    """

    tracks: tuple[Track, ...]
    kept: tuple[int, ...]
    given: int
    regimes: tuple[int, ...] = ()
    lead: int = 0
    keys: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        steps = {track.steps for track in self.tracks}
        kept = [whole(n, "a kept stage") for n in self.kept]
        increasing = all(a < b for a, b in pairwise([-1, *kept, whole(self.given, "given")]))
        if steps != {len(kept)} or not increasing or self.lead not in range(len(self.tracks)):
            raise ValueError("the tracks, the kept stages and their number do not fit together")
        if any(start not in range(1, len(kept)) for start in self.regimes):
            raise ValueError(f"regimes {self.regimes} begin outside the stages 1 … {len(kept) - 1}")

    @classmethod
    def of(
        cls,
        sigmas: Any,
        *,
        prediction: str = "flow",
        alphas: str | Sequence[float] | None = None,
        data: float | None = None,
        regimes: Sequence[int] = (),
    ) -> Grid:
        """A grid from σ_0 … σ_T. A Grid is returned as it is.

        sigmas      one sequence of numbers, or a tuple, list or dict of sequences in the structure
                    of the model's output
        prediction  what the model returns: "flow" (dx/dσ), "epsilon", "sample" or "v"
        alphas      α of x = α·x₀ + σ·ε, for every prediction but "flow": "vp" (α² = 1 − σ²), "ve"
                    (α = 1), "flow" (α = 1 − σ), or one value per σ
        data        the σ at which x is data, for flows; default: 0 if the grid falls to 0, else
                    unknown
        regimes     stages at which the model changes, for example where guidance is switched off:
                    each is queried, and the jump between them is no innovation
        """
        if isinstance(sigmas, Grid):
            given = {"prediction": prediction != "flow", "alphas": alphas is not None}
            given |= {"data": data is not None, "regimes": len(regimes) > 0}
            if any(given.values()):
                names = ", ".join(name for name in given if given[name])
                raise ValueError(f"a Grid knows its {names}: leave them out")
            return sigmas
        columns = [check_sigmas(column) for column in flatten_sigmas(sigmas)]
        if not columns:
            raise ValueError(f"there is no σ-grid in {sigmas!r}")
        if len({len(c) for c in columns}) != 1:
            raise ValueError(f"all σ-grids need the same length, got {[len(c) for c in columns]}")
        whole_tracks = [make_track(c, prediction, alphas, data) for c in columns]
        given = len(columns[0]) - 1
        kept = tuple(n for n in range(given) if any(t.moves(n) for t in whole_tracks))
        if not kept:
            raise ValueError(f"every stage of the grid has zero length: {columns[0][:8]}")
        tracks = tuple(t.at((*kept, given)) for t in whole_tracks)
        return cls(
            tracks,
            kept,
            given,
            check_regimes(regimes, kept, given),
            leading(sigmas),
            keys_of(sigmas),
        )

    @property
    def steps(self) -> int:
        """T: the effective stages."""
        return len(self.kept)

    def track(self, slot: int) -> Track:
        """The track of an output slot: its own, or the only one."""
        return self.tracks[slot if len(self.tracks) > 1 else 0]

    @cached_property
    def effective(self) -> dict[int, int]:
        """The caller's stage number → the effective one; dropped stages are missing."""
        return {given: n for n, given in enumerate(self.kept)}

    def matches(self, other: Grid) -> bool:
        """Whether the other grid has the same stages, up to rounding."""
        return self.difference(other) is None

    def difference(self, other: Grid) -> str | None:
        """The first difference to the other grid, as "mine, not theirs"; None if there is none."""
        if len(self.tracks) != len(other.tracks):
            return f"{len(self.tracks)} σ-grids, not {len(other.tracks)}"
        if self.steps != other.steps:
            return f"{self.steps} stages, not {other.steps}"
        if (self.kept, self.given) != (other.kept, other.given):
            return f"stages {self.kept} of {self.given}, not {other.kept} of {other.given}"
        for mine, theirs in zip(self.tracks, other.tracks):
            for n, (a, b) in enumerate(zip(mine.sigmas, theirs.sigmas)):
                if abs(a - b) > ABSOLUTE + RELATIVE * max(abs(a), abs(b)):
                    return "σ_{} = {}, not {}".format(n, *told_apart(a, b))
        return None

    def spans(self) -> list[tuple[int, int]]:
        """(first, one past last) stage of each regime."""
        starts = (0, *self.regimes)
        return list(zip(starts, (*self.regimes, self.steps)))


def told_apart(a: float, b: float) -> tuple[str, str]:
    """Two different numbers with as many digits as it takes to see the difference.

    >>> told_apart(1.0, 1.002)
    ('1', '1.002')
    """
    digits = next(d for d in range(3, 18) if f"{a:.{d}g}" != f"{b:.{d}g}")
    return f"{a:.{digits}g}", f"{b:.{digits}g}"


def leading(sigmas: Any) -> int:
    """The place of the first given grid among the flattened ones, which are sorted by key."""
    if not isinstance(sigmas, Mapping):
        return 0
    order = sorted(sigmas, key=str)
    before = order[: order.index(next(iter(sigmas)))]
    return sum(len(flatten_sigmas(sigmas[key])) for key in before)


def check_regimes(regimes: Sequence[int], kept: tuple[int, ...], given: int) -> tuple[int, ...]:
    starts: list[int] = []
    for start in sorted({whole(regime, "a regime's first stage") for regime in regimes}):
        if not 0 <= start < given:
            raise ValueError(f"regime start {start} is not one of the stages 0 … {given - 1}")
        n = next((i for i, stage in enumerate(kept) if stage >= start), None)
        if n and n not in starts:
            starts.append(n)
    return tuple(starts)


def read_grid(body: dict[str, Any]) -> Grid:
    """The grid that asdict() turned into plain data."""
    tracks = tuple(
        Track(
            tuple(t["sigmas"]),
            t["prediction"],
            None if t["alphas"] is None else tuple(t["alphas"]),
            t["data"],
        )
        for t in body["tracks"]
    )
    keys = None if body["keys"] is None else tuple(body["keys"])
    kept, regimes = tuple(body["kept"]), tuple(body["regimes"])
    return Grid(tracks, kept, body["given"], regimes, body["lead"], keys)
