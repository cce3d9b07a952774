"""Making a plan: the fields of a Plan from the options of Plan.of, which says what they mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from .aim import MEAN, Aim, first_budget
from .blocks import PER_SAMPLE, Blocks
from .correction import Correction, usual
from .grid import Grid
from .meshes.auto import check_levels, knows_noise, noise_levels
from .meshes.placement import choose_anchors
from .meshes.slow import slow_anchors
from .methods import is_default
from .pointers import explained
from .rules import Rule


def made(
    grid: Grid,
    *,
    budget: int | None,
    speedup: float | None,
    target_db: float | None,
    most: int | None,
    judge: str,
    anchors: str | Sequence[int] | None,
    rule: Rule | str | Sequence[Rule | str] | None,
    space: str,
    blocks: Blocks | None,
    coefficients: Sequence[float | None] | None,
    refine: int | None,
    correct: Correction | bool | str | float | None,
    clock: str | None,
) -> dict[str, Any]:
    """The fields of the plan. What is None is left to us."""
    refine = 1 if refine is None else refine
    chosen = dict(anchors=anchors, rule=rule, coefficients=coefficients, clock=clock)
    ours = correct is None and is_default({**chosen, "space": space, "refine": refine})
    if correct is None:
        correct = ours and knows_noise(grid) and noise_levels(grid) is not None
    rules, free = rules_of(rule), anchors is None
    hold = all(r.name == "hold" for r in rules)
    if anchors is None:
        anchors = default_mesh(Correction.of(correct) is not None, hold)
    own = free and correct is True
    aim = None
    if target_db is not None:
        check_samples(target_db, blocks)
        budget, aim = aimed_at(grid, target_db, most, judge, anchors, (budget, speedup), refine)
        aim = replace(aim, usual=own)
    elif most is not None or judge != MEAN:
        raise ValueError(
            f"most={most!r} and judge={judge!r} go with target_db: give the dB to reach, or a "
            "budget alone"
        )
    placed, mesh = choose_anchors(grid, budget, speedup, anchors, hold)
    if ours and mesh == "auto":
        mesh += " (cells are not corrected: the noise levels of another σ-grid are unknown)"
    correction = usual(len(placed)) if own else Correction.of(correct)
    if len(placed) == grid.steps and refine == 1:
        correction = None  # there is no cell
    if clock is None:
        clock = "mesh" if free and correction is not None and knows_noise(grid) else "sigma"
    plain = coefficients is None and space == "output" and refine == 1 and len({*rules}) == 1
    adapts = own and plain and aim is None and (mesh, clock) == ("corrected", "mesh")
    return dict(
        grid=grid,
        anchors=placed,
        rules=tuple(rules) * (len(placed) if len(rules) == 1 else 1),
        coefficients=None if coefficients is None else tuple(coefficients),
        space=space,
        blocks=PER_SAMPLE if blocks is None else blocks,
        mesh=mesh,
        refine=refine,
        correct=correction,
        clock=clock,
        aim=aim,
        slow=slow_anchors(grid, placed) if adapts else (),
    )


def rules_of(rule: Rule | str | Sequence[Rule | str] | None) -> list[Rule]:
    """One, or one per anchor."""
    if isinstance(rule, Iterable) and not isinstance(rule, str):
        return [Rule.of(r) for r in rule]
    return [Rule.of("signed time" if rule is None else rule)]


def default_mesh(corrected: bool, hold: bool) -> str:
    """The mesh where none is named. Those of linear prediction are not for holding."""
    return "sigma" if hold else "corrected" if corrected else "auto"


@explained("quality")
def aimed_at(
    grid: Grid,
    db: float,
    most: int | None,
    judge: str,
    anchors: Any,
    others: Sequence[Any],
    refine: int,
) -> tuple[int, Aim]:
    """(the budget to begin with, the aim)."""
    if any(other is not None for other in others):
        given = next(other for other in others if other is not None)
        raise ValueError(
            f"target_db={db!r} finds the number of calls itself: leave out budget or speedup "
            f"({given!r}); most={given!r} would cap it"
        )
    if not isinstance(anchors, str):
        raise ValueError(f"target_db={db!r} places the anchors itself: leave out {anchors!r}")
    if refine > 1:
        raise ValueError(
            f"target_db={db!r} is a distance to the full run; target='flow' and refine={refine} "
            "aim at the exact flow: give a budget there"
        )
    check_levels(grid, f"target_db={db!r}")
    aim = Aim(db, most, judge, anchors)
    least = min(grid.steps, max(4, 1 + len(grid.regimes)))
    if aim.most is not None and aim.most < least:
        raise ValueError(f"most={most} is too few: a run needs at least {least} calls")
    return min(first_budget(aim.db, grid.steps, least), aim.most or grid.steps), aim


def check_samples(db: float, blocks: Blocks | None) -> None:
    if blocks is not None and 0 not in blocks.dims:
        raise ValueError(
            f"target_db={db!r} is judged sample by sample: blocks={blocks} must keep axis 0 apart"
        )
