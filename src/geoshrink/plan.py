"""Plan = grid + anchors + rule: everything that is decided before the first step, as plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from .anchors import (
    certificate,
    check_budget,
    geometric_anchors,
    retention_floor,
    share_budget,
    sigma_anchors,
    uniform_anchors,
)
from .grid import Grid, Track
from .retention import PER_SAMPLE, Blocks, Rule

VERSION = 1
MESHES = ("sigma", "geometric", "uniform")
SPACES = ("output", "data")

#: Named methods: keyword arguments for Plan.of, Run and sample. The paper's ablation does not say
#: whether its "linear" scales the innovation by λ or keeps it whole (ω = 1), so both are here.
METHODS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": dict(anchors="sigma", rule="signed chordal"),
        "paper": dict(anchors="geometric", rule="chordal"),
        "Fixed-Linear": dict(anchors="uniform", rule="linear"),
        "Fixed-Linear (ω = 1)": dict(anchors="uniform", rule="fixed(1)"),
        "Geo-Linear": dict(anchors="geometric", rule="linear"),
        "Geo-Linear (ω = 1)": dict(anchors="geometric", rule="fixed(1)"),
        "Fixed-Shrink": dict(anchors="uniform", rule="chordal"),
        "GeoShrink": dict(anchors="geometric", rule="chordal"),
    }
)


@dataclass(frozen=True)
class Plan:
    """Which stages are queried and how the others are predicted. Hashable; JSON both ways.

    anchors       the effective stages at which the model is queried, in order, starting with 0
    rules         one rule per cell; cell i holds the stages skipped after anchor i
    coefficients  optionally one ω per stage that takes the place of the rule (None: the rule
                  decides)
    space         "output": Δ of what the solver receives (the paper's); "data": Δ of the data
                  prediction
    mesh          how the anchors were found, in words
    """

    grid: Grid
    anchors: tuple[int, ...]
    rules: tuple[Rule, ...]
    coefficients: tuple[float | None, ...] | None = None
    space: str = "output"
    blocks: Blocks = PER_SAMPLE
    mesh: str = "explicit"

    def __post_init__(self) -> None:
        check_anchors(self.anchors, self.grid)
        if len(self.rules) != len(self.anchors):
            raise ValueError(
                f"{len(self.rules)} rules for {len(self.anchors)} cells: give one rule, or one "
                "per anchor"
            )
        if self.space not in SPACES:
            raise ValueError(f"unknown space {self.space!r}; choose one of {', '.join(SPACES)}")
        if self.space == "data":
            check_data_space(self.grid)
        if self.coefficients is not None:
            check_coefficients(self.coefficients, self.steps)

    @classmethod
    def of(
        cls,
        sigmas: Any,
        budget: int | None = None,
        *,
        speedup: float | None = None,
        anchors: str | Sequence[int] | None = None,
        rule: Rule | str | Sequence[Rule | str] = "signed chordal",
        space: str = "output",
        blocks: Blocks | None = None,
        coefficients: Sequence[float | None] | None = None,
        prediction: str = "flow",
        alphas: str | Sequence[float] | None = None,
        data: float | None = None,
        regimes: Sequence[int] = (),
    ) -> Plan:
        """A plan for σ_0 … σ_T (or a Grid) at a budget, a speed-up, or explicit anchors; all three
        None: exact.

        >>> Plan.of([1 - i / 50 for i in range(51)], 10, anchors="geometric").anchors
        (0, 1, 2, 3, 6, 9, 14, 21, 32, 49)
        """
        if not isinstance(sigmas, Grid):
            grid = Grid.of(sigmas, prediction=prediction, alphas=alphas, data=data, regimes=regimes)
        elif (prediction, alphas, data, tuple(regimes)) != ("flow", None, None, ()):
            raise ValueError(
                "a Grid knows its prediction, alphas, data and regimes: leave them out"
            )
        else:
            grid = sigmas
        rules = [Rule.of(r) for r in ([rule] if isinstance(rule, (Rule, str)) else rule)]
        chosen, mesh = choose_anchors(
            grid, budget, speedup, anchors, all(r.name == "hold" for r in rules)
        )
        if len(rules) == 1:
            rules *= len(chosen)
        coefficients = None if coefficients is None else tuple(coefficients)
        return cls(grid, chosen, tuple(rules), coefficients, space, blocks or PER_SAMPLE, mesh)

    @property
    def steps(self) -> int:
        """T, without the stages of zero length."""
        return self.grid.steps

    @property
    def budget(self) -> int:
        return len(self.anchors)

    @property
    def exact(self) -> bool:
        """Every stage is queried: the run is the plain run."""
        return self.budget == self.steps

    @cached_property
    def restarts(self) -> frozenset[int]:
        return frozenset(self.grid.regimes)

    @cached_property
    def history(self) -> tuple[tuple[int, ...], ...]:
        """For every stage, the anchors seen before it in its regime: the latest three, latest
        first.
        """
        queried, seen, out = set(self.anchors), [], []
        for n in range(self.steps):
            if n in self.restarts:
                seen = []
            out.append(tuple(seen[:3]))
            if n in queried:
                seen = [n, *seen]
        return tuple(out)

    def horizons(self, slot: int = 0) -> list[tuple[float, float]]:
        """(ρ, λ) of every stage as the plan would predict it; (0, 0) where only holding is
        possible.
        """
        return self._horizons[slot if len(self.grid.tracks) > 1 else 0]

    @cached_property
    def _horizons(self) -> list[list[tuple[float, float]]]:
        return [
            [
                (t.horizon(n, *h[:2]), t.reach(n, *h[:2])) if len(h) > 1 else (0.0, 0.0)
                for n, h in enumerate(self.history)
            ]
            for t in self.grid.tracks
        ]

    def track(self, slot: int) -> Track:
        """The σ-grid of an output slot: its own, or the only one."""
        return self.grid.tracks[slot if len(self.grid.tracks) > 1 else 0]

    @property
    def certificate(self) -> float | None:
        """Γ̂ in stage index, for the meshes the paper certifies: 0, 1, 2, …, T − 1."""
        canonical = (
            self.budget >= 4
            and self.anchors[:3] == (0, 1, 2)
            and self.anchors[-1] == self.steps - 1
        )
        return certificate(self.anchors) if canonical and not self.grid.regimes else None

    @property
    def floor(self) -> float:
        """1/(1 + max ρ²) over the skipped stages: the retention floor that really holds on this
        grid.
        """
        queried = set(self.anchors)
        rho = [
            r
            for s in range(len(self.grid.tracks))
            for n, (r, _) in enumerate(self.horizons(s))
            if n not in queried
        ]
        return retention_floor(max(map(abs, rho), default=0.0))

    def to_json(self) -> str:
        body = asdict(self) | {"rules": [rule.to_json() for rule in self.rules], "version": VERSION}
        return json.dumps(body)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        try:
            body = json.loads(text)
            version = body.pop("version")
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError):
            raise ValueError(f"this is not a geoshrink plan: {text[:60]!r}") from None
        if version != VERSION:
            raise ValueError(
                f"this plan has version {version!r}, this geoshrink reads {VERSION}: update "
                "geoshrink"
            )
        try:
            return cls(
                grid=read_grid(body.pop("grid")),
                anchors=tuple(body.pop("anchors")),
                rules=tuple(Rule(**rule) for rule in body.pop("rules")),
                coefficients=tuple(c) if (c := body.pop("coefficients")) is not None else None,
                blocks=Blocks(**body.pop("blocks")),
                **body,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this plan is damaged: {error}") from None

    def __str__(self) -> str:
        rules = ", ".join(dict.fromkeys(str(rule) for rule in self.rules))
        how = f"{self.mesh} anchors, {rules}, {self.space} space"
        return f"{self.budget} of {self.steps} stages ({how})"


def choose_anchors(
    grid: Grid, budget: int | None, speedup: float | None, anchors: Any, hold: bool
) -> tuple[tuple[int, ...], str]:
    """(anchors, how they were found)."""
    if anchors is not None and not isinstance(anchors, str):
        if budget is not None or speedup is not None:
            raise ValueError("explicit anchors are the budget: leave out budget and speedup")
        return tuple(anchors), "explicit"
    mesh = "sigma" if anchors is None else anchors
    if mesh not in MESHES:
        raise ValueError(
            f"unknown anchors {mesh!r}; choose one of {', '.join(MESHES)}, or give the stages"
        )
    if budget is None and speedup is None:
        return tuple(range(grid.steps)), "every stage"
    if budget is None:
        budget = budget_for(speedup, grid.steps)
    elif speedup is not None:
        raise ValueError(f"give a budget ({budget!r}) or a speedup ({speedup!r}), not both")
    hold = hold or mesh == "uniform"
    _, budget = check_budget(grid.steps, budget, minimum=2 if hold else 4)
    if budget >= grid.steps:
        more = f": budget {budget} exceeds the {grid.steps} stages" if budget > grid.steps else ""
        return tuple(range(grid.steps)), "every stage" + more
    spans = grid.spans()
    shares = share_budget([last - first for first, last in spans], budget)
    found = [
        regime_anchors(grid, first, last, share, mesh)
        for (first, last), share in zip(spans, shares)
    ]
    names = dict.fromkeys(name for _, name in found)
    return tuple(a for part, _ in found for a in part), " + ".join(names)


def regime_anchors(
    grid: Grid, first: int, last: int, budget: int, mesh: str
) -> tuple[tuple[int, ...], str]:
    """The mesh of one regime. Shares below 4 have no geometric mesh and are spread evenly."""
    steps = last - first
    if mesh == "uniform" or budget < 4:
        local, mesh = uniform_anchors(steps, budget), "uniform"
    elif mesh == "sigma":
        found = sigma_anchors(grid.tracks[grid.lead].tau[first : last + 1], budget)
        local = geometric_anchors(steps, budget) if found is None else found
        mesh = "sigma" if found is not None else "geometric (no σ-mesh: closure root below 1)"
    else:
        local = geometric_anchors(steps, budget)
    return tuple(first + a for a in local), mesh


def budget_for(speedup: Any, steps: int) -> int:
    """B = max(4, round(T/s)), never more than T."""
    if (
        isinstance(speedup, bool)
        or not isinstance(speedup, (int, float))
        or not math.isfinite(speedup)
    ):
        raise TypeError(f"speedup must be a finite number, got {speedup!r}")
    if speedup < 1:
        raise ValueError(f"speedup must be at least 1, got {speedup!r}")
    return min(steps, max(4, round(steps / speedup)))


def check_anchors(anchors: tuple[int, ...], grid: Grid) -> None:
    if not anchors or any(isinstance(a, bool) or not isinstance(a, int) for a in anchors):
        raise ValueError(f"anchors are stage numbers, got {anchors!r}")
    if any(b <= a for a, b in pairwise(anchors)):
        raise ValueError(f"anchors must increase, got {anchors}")
    if anchors[0] != 0:
        raise ValueError(
            "the first anchor must be stage 0 (there is nothing to predict from before it), "
            f"got {anchors}"
        )
    if anchors[-1] >= grid.steps:
        raise ValueError(
            f"anchor {anchors[-1]} is not one of the {grid.steps} stages 0 … {grid.steps - 1}"
        )
    if len(anchors) < min(2, grid.steps):
        raise ValueError(f"a plan needs at least 2 anchors, got {anchors}")
    missing = [start for start in grid.regimes if start not in anchors]
    if missing:
        raise ValueError(f"stage {missing[0]} begins a regime and must be an anchor; got {anchors}")


def check_data_space(grid: Grid) -> None:
    for track in grid.tracks:
        for n in range(grid.steps):
            if track.data_map(n)[1] == 0 and track.sigmas[n] != track.sigmas[n + 1]:
                raise ValueError(
                    f"space='data' needs every stage away from the data, but stage {n} starts at "
                    f"σ = {track.sigmas[n]:g}, where the data is"
                )


def check_coefficients(coefficients: Sequence[float | None], steps: int) -> None:
    if len(coefficients) != steps:
        raise ValueError(
            f"{len(coefficients)} coefficients for {steps} stages: give one per stage (None: "
            "the rule)"
        )
    bad = [c for c in coefficients if c is not None and not math.isfinite(c)]
    if bad:
        raise ValueError(f"coefficients must be finite, got {bad[0]!r}")


def read_grid(body: dict[str, Any]) -> Grid:
    tracks = tuple(
        Track(
            tuple(t["sigmas"]),
            t["prediction"],
            None if t["alphas"] is None else tuple(t["alphas"]),
            t["data"],
        )
        for t in body["tracks"]
    )
    return Grid(tracks, tuple(body["kept"]), body["given"], tuple(body["regimes"]), body["lead"])
