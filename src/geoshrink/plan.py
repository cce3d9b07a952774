"""Plan = grid + anchors + rule: what is decided before the first step, as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .aim import MEAN, Aim
from .blocks import PER_SAMPLE, Blocks
from .checks import check_coefficients, check_data_space, check_refine
from .clock import CLOCKS, Clock
from .correction import Correction
from .files import write_whole
from .grid import Grid, Track
from .making import made
from .meshes.auto import check_levels, progress
from .meshes.paper import certificate, retention_floor
from .meshes.placement import check_anchors
from .meshes.slow import check_slow
from .methods import METHODS as METHODS
from .plan_json import VERSION as VERSION
from .plan_json import decoded, encoded, read, sealed
from .pointers import explained, see
from .purpose import Purpose
from .rules import Rule
from .rules.retention import check_shared
from .targets import FLOW, RUN, aimed
from .tracing import bare

SPACES = ("output", "data")


@dataclass(frozen=True)
class Plan:
    """Which stages are queried and how the others are predicted. Hashable; to and from JSON.

    grid          the solver's stages and their σ
    anchors       the effective stages at which the model is queried, in order, starting with 0
    rules         one rule per cell; cell i holds the stages skipped after anchor i
    coefficients  None, or one ω per (refined) stage; a stage whose ω is None follows the rule
    space         "output": predict what the solver receives, as the paper does; "data": predict the
                  data
    blocks        which coordinates share one ω
    mesh          how the anchors were found, in words
    refine        Euler steps in place of each of the solver's; only an anchor's first step is exact
                  (history/refinement.py)
    correct       how a skipped cell is put right at the anchor that ends it (correction.py), or
                  None
    clock         in what ρ, λ and the interpolation are measured: "sigma", or "mesh" for the auto
                  mesh's y
    aim           the quality that the run holds (aim.py): it goes on with other anchors where it
                  must; None: it holds none
    slow          the anchors to go on with where the outputs move slowly at first, which the run
                  sees at the second (pace.py): as many, and the first two the same; (): none
    purpose       what it was made for (purpose.py): where a host knows otherwise of a run, it
                  refuses the plan; None: nobody said. No part of what makes two plans equal
    """

    grid: Grid
    anchors: tuple[int, ...]
    rules: tuple[Rule, ...]
    coefficients: tuple[float | None, ...] | None = None
    space: str = "output"
    blocks: Blocks = PER_SAMPLE
    mesh: str = "explicit"
    refine: int = 1
    correct: Correction | None = None
    clock: str = "sigma"
    aim: Aim | None = None
    slow: tuple[int, ...] = ()
    purpose: Purpose | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchors", check_anchors(self.anchors, self.grid))
        object.__setattr__(self, "rules", tuple(self.rules))
        if len(self.rules) != len(self.anchors):
            raise ValueError(
                f"{len(self.rules)} rules for {len(self.anchors)} cells: give one rule, or one per "
                "anchor"
            )
        check_refine(self.refine, self.grid, self.space)
        if self.space not in SPACES:
            raise ValueError(f"unknown space {self.space!r}; choose one of {', '.join(SPACES)}")
        if self.space == "data":
            check_data_space(self.grid, self.anchors)
        if self.coefficients is not None:
            checked = check_coefficients(self.coefficients, self.steps * self.refine)
            object.__setattr__(self, "coefficients", checked)
        if not isinstance(self.blocks, Blocks):
            raise TypeError(f"blocks must be geoshrink.Blocks(...), got {self.blocks!r}")
        if self.blocks.shared:
            for rule in self.rules:
                check_shared(rule)
        if not isinstance(self.mesh, str):
            raise ValueError(f"mesh says in words how the anchors were found, got {self.mesh!r}")
        object.__setattr__(self, "correct", Correction.of(self.correct))
        check_clock(self.clock, self.grid)
        object.__setattr__(self, "aim", Aim.of(self.aim))
        object.__setattr__(self, "slow", check_slow(self.slow, self.anchors, self.grid, self.aim))
        object.__setattr__(self, "purpose", Purpose.of(self.purpose))

    @classmethod
    @explained("anchors")
    def of(
        cls,
        sigmas: Any,
        budget: int | None = None,
        *,
        speedup: float | None = None,
        target_db: float | None = None,
        most: int | None = None,
        judge: str = MEAN,
        anchors: str | Sequence[int] | None = None,
        rule: Rule | str | Sequence[Rule | str] | None = None,
        space: str = "output",
        blocks: Blocks | None = None,
        coefficients: Sequence[float | None] | None = None,
        target: str = RUN,
        refine: int | None = None,
        correct: Correction | bool | str | float | None = None,
        clock: str | None = None,
        prediction: str = "flow",
        alphas: str | Sequence[float] | None = None,
        data: float | None = None,
        regimes: Sequence[int] = (),
    ) -> Plan:
        """A plan for σ_0 … σ_T, or for a Grid.

        >>> Plan.of([1 - i / 50 for i in range(51)], 10, anchors="geometric").anchors
        (0, 1, 2, 3, 6, 9, 14, 21, 32, 49)

        sigmas        σ_0 … σ_T, one sequence or a structure of them; or a Grid

        How many stages are queried; without budget, speedup, target_db and anchors, every stage:

        budget        this many
        speedup       the number of stages divided by this, but at least 4
        target_db     as many as the run turns out to need to come this close to the full run, in
                      dB of the full run's energy over the error's (docs/quality.md)
        most          with target_db: calls at most
        judge         with target_db: "mean", the mean over the samples of a batch is to reach it;
                      or "worst", every sample. One decision is made for the whole batch
        anchors       these, as stage numbers; or the name of the mesh that places the budget:
                      "corrected" (the default, for corrected cells), "auto" (for others), "sigma",
                      "geometric" (the paper's), "uniform", or one that you registered

        How the other stages are predicted:

        rule          how much of the latest change is kept: a name ("signed time" is the default,
                      "chordal" the paper's, "hold" keeps nothing), a Rule, or one per anchor
        space         "output" predicts what the solver receives, "data" the data
        blocks        geoshrink.Blocks(…): which coordinates share one ω; default: those of a sample
        coefficients  one ω per stage that replaces the rule; None where the rule decides
        target        "run": close to the result of the solver's own T steps. "flow": close to the
                      exact flow, closer than those T steps with fewer calls; for Euler. It sets
                      refine=8, correct=True, anchors="corrected" and clock="mesh", each unless
                      you give it
        refine        Euler steps in place of each of the solver's, 1 to 64; default: 1
        correct       True: put a skipped cell right at the anchor that ends it, at no further call;
                      a gain ("half", "linear", "gaussian" or a number) or a Correction says how;
                      False: do not. Default: True, unless anchors, rule, coefficients, clock,
                      space or refine are given, or noise levels are not known
        clock         distances between stages are measured in "sigma" or in the auto mesh's
                      coordinate ("mesh"). Default: "sigma"; with the default anchors for corrected
                      cells, "mesh"

        What the grid is, where sigmas is not a Grid (as in Grid.of):

        prediction    what the model returns: "flow" (dx/dσ), "epsilon", "sample" or "v"
        alphas        α of x = α·x₀ + σ·ε, unless it is a flow: "vp", "ve", "flow", or one per σ
        data          the σ at which x is data, for flows that do not end at 0
        regimes       stages at which the model changes: each is queried; the jump is no innovation
        """
        grid = Grid.of(sigmas, prediction=prediction, alphas=alphas, data=data, regimes=regimes)
        if target == FLOW and clock is None:
            check_levels(grid, "target='flow'")
        calls = dict(budget=budget, speedup=speedup, target_db=target_db, most=most, judge=judge)
        cells = dict(rule=rule, space=space, blocks=blocks, coefficients=coefficients)
        given = dict(anchors=anchors, target=target, refine=refine, correct=correct, clock=clock)
        return cls(**made(grid, **aimed({**calls, **cells, **given})))

    @property
    def steps(self) -> int:
        """T, without the stages of zero length."""
        return self.grid.steps

    @property
    def budget(self) -> int:
        """How many stages are queried."""
        return len(self.anchors)

    @property
    def exact(self) -> bool:
        """Every stage is queried and none refined: the run is the plain run."""
        return self.budget == self.steps and self.refine == 1

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

    @cached_property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """For every stage the anchors behind its prediction.

        (k, j): from k along Δ = z_k − z_j. (k, j, i): k begins a regime, and Δ = z_j − z_i is that
        of the regime before. (): there is no Δ, and the output can only be held.
        """
        found, seen, before = [], (), ()
        for n in range(self.steps):
            if n in self.restarts:
                before, seen = seen[:2] if len(seen) > 1 else (), ()
            found.append(source_of(seen, before))
            if self.asked[n]:
                seen = (n, *seen)
        return tuple(found)

    def horizons(self, slot: int = 0) -> list[tuple[float, float]]:
        """(ρ, λ) of every stage as the plan predicts it; (0, 0) where it can only hold."""
        return list(self._horizons[slot if len(self.grid.tracks) > 1 else 0])

    def clock_of(self, slot: int) -> Clock:
        """In what the distances of an output slot are measured."""
        return self._clocks[slot if len(self.grid.tracks) > 1 else 0]

    @cached_property
    def _clocks(self) -> list[Clock]:
        return [clock_of(track, self.clock) for track in self.grid.tracks]

    @cached_property
    def _horizons(self) -> list[tuple[tuple[float, float], ...]]:
        def pair(clock: Clock, n: int, source: tuple[int, ...]) -> tuple[float, float]:
            return (clock.horizon(n, *source), clock.reach(n, *source)) if source else (0.0, 0.0)

        return [
            tuple(pair(clock, n, source) for n, source in enumerate(self.sources))
            for clock in self._clocks
        ]

    @cached_property
    def asked(self) -> tuple[bool, ...]:
        """Whether the model is queried, for every stage. A tuple, not a set: torch.compile treats
        stage numbers as symbols once it has seen a second plan, and cannot look those up in a set.
        """
        return tuple(n in self.anchors for n in range(self.steps))

    @cached_property
    def tables(self) -> list[Tensor]:
        """(3, T) for every track: ρ, λ and the Euler weight of every stage. Tensors, for the same
        reason.
        """
        found, ends = [], (*self.anchors[1:], self.steps)
        for track, pairs in zip(self.grid.tracks, self._horizons):
            weights = [0.0] * self.steps
            for first, end in zip(self.anchors, ends):
                stages = range(first + 1, end)
                weights[first + 1 : end] = track.euler_weights(stages, self.space == "data")[1]
            with torch.inference_mode(False):
                found.append(bare(torch.tensor([*zip(*pairs), weights], dtype=torch.float64)))
        return found

    def track(self, slot: int) -> Track:
        """The σ-grid of an output slot: its own, or the only one."""
        return self.grid.track(slot)

    @property
    def certificate(self) -> float | None:
        """Γ̂ in stage index, for the meshes the paper certifies: 0, 1, 2, …, T − 1."""
        ends = self.anchors[:3] == (0, 1, 2) and self.anchors[-1] == self.steps - 1
        return certificate(self.anchors) if ends and self.budget > 3 and not self.restarts else None

    @property
    def floor(self) -> float:
        """1/(1 + max ρ²) over the skipped stages: what chordal retention really keeps on this grid.

        A signed rule may keep nothing, and with a single observation the output is held, or a part
        of the regime's before is kept.
        """
        own = [not asked and len(source) == 2 for asked, source in zip(self.asked, self.sources)]
        tracks = (zip(own, pairs) for pairs in self._horizons)
        rho = [r for stages in tracks for counts, (r, _) in stages if counts]
        return retention_floor(max(rho, default=0.0))

    @property
    def keeps_floor(self) -> bool:
        """Whether every ω is the rule's, and every rule stays above `floor`."""
        own = any(c is not None for c in self.coefficients or ())
        return self.exact or (not own and all(rule.keeps_floor for rule in self.rules))

    def to_json(self) -> str:
        """The plan as JSON text, which Plan.from_json reads."""
        return json.dumps(encoded(self))

    def save(self, file: str | Path) -> Path:
        """Writes the plan to a file, as JSON with a sha256; returns its path. `plan=` takes it."""
        return write_whole(file, json.dumps(sealed(self)) + "\n")

    @classmethod
    def load(cls, file: str | Path) -> Plan:
        """The plan in a file that save(), to_json() or `geoshrink plan` wrote."""
        return read(cls, Path(file))

    @classmethod
    @explained("plans")
    def from_json(cls, text: str) -> Plan:
        """The plan that to_json() wrote as `text`; a ValueError if it is none or is damaged.

        >>> plan = Plan.of([1.0, 0.75, 0.5, 0.25, 0.0])
        >>> Plan.from_json(plan.to_json()) == plan
        True
        """
        try:
            return cls.from_body(json.loads(text))
        except (json.JSONDecodeError, RecursionError, TypeError):
            raise ValueError(f"this is not a geoshrink plan: {str(text)[:60]!r}") from None

    @classmethod
    @explained("plans")
    def from_body(cls, body: Any) -> Plan:
        """The plan in what JSON text was decoded to."""
        return decoded(cls, body)

    def __str__(self) -> str:
        rules = ", ".join(dict.fromkeys(str(rule) for rule in self.rules))
        if any(c is not None for c in self.coefficients or ()):
            rules += ", ω of its own"
        mesh = self.mesh if self.mesh.startswith("every stage") else f"{self.mesh} anchors"
        how = f"{mesh}, {rules}, {self.space} space"
        how += f", refined {self.refine} times" if self.refine > 1 else ""
        how += f", corrected ({self.correct})" if self.correct is not None else ""
        how += ", clock: mesh" if self.clock == "mesh" else ""
        how += f", to hold {self.aim}" if self.aim is not None else ""
        how += ", others if outputs move slowly" if self.slow else ""
        return f"{self.budget} of {self.steps} stages ({how})"


def source_of(seen: Sequence[int], before: Sequence[int]) -> tuple[int, ...]:
    """Plan.sources of a stage, from the anchors seen in its regime, latest first, and the two
    latest of the regime before.
    """
    if len(seen) > 1:
        return tuple(seen[:2])
    return (seen[0], *before) if seen and before else ()


@explained("plans")
def given_plan(plan: Any, others: Mapping[str, Any] | None = None, sigmas: Any = None) -> Plan:
    """A plan as people pass it: a Plan, the path of its JSON file, or the contents as a dict.

    others   the options given beside it, which must be None: a plan leaves none to choose
    sigmas   the grid given beside it, which must be the plan's own
    """
    if given := [name for name, value in (others or {}).items() if value is not None]:
        raise ValueError(f"a plan decides everything: leave out {', '.join(given)}")
    if isinstance(plan, (str, Path)):
        plan = read(Plan, plan)
    elif isinstance(plan, Mapping):
        plan = Plan.from_body(plan)
    if not isinstance(plan, Plan):
        raise TypeError(
            f"plan={plan!r} is not a plan: give a Plan, the path of its JSON file, or the contents "
            "as a dict; to use the default, leave plan out"
        )
    if sigmas is not None:
        check_plan(plan, Grid.of(sigmas))
    return plan


def clock_of(track: Track, clock: str) -> Clock:
    """The times of a track's grid points: σ, or the auto mesh's y."""
    if clock == "sigma":
        return Clock(track.sigmas)
    return Clock(tuple(progress(track.noise or ()).tolist()))


def check_clock(clock: Any, grid: Grid) -> None:
    if clock not in CLOCKS:
        raise ValueError(f"unknown clock {clock!r}; choose one of {', '.join(CLOCKS)}")
    if clock == "mesh":
        check_levels(grid, "clock='mesh'")


def check_plan(plan: Plan, grid: Grid) -> Plan:
    """The plan; a ValueError if it was made for other stages than these."""
    if difference := plan.grid.difference(grid):
        apart = ValueError(f"the plan was made for {difference}: make the plan for this grid")
        raise see(apart, "fit")
    return plan
