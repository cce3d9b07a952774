"""The registry of meshes, open to others: where the model is queried, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..grid import Grid
from ..registry import Registry

#: The anchors, and in words how they were found.
Placed = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Mesh:
    """One mesh: place(grid, budget) returns (anchors, how they were found, in words).

    name    as it is written in anchors="…": small letters, digits and hyphens
    place   called with 2 ≤ budget < grid.steps. Anchors are `budget` stages of the grid in order,
            stage 0 and the first stage of every regime among them. A mesh that cannot be laid out
            falls back to another one itself, and says so in its words
    least   the smallest budget it takes; with rule="hold" every mesh takes 2
    """

    name: str
    place: Callable[[Grid, int], Placed]
    least: int = 2


#: Every mesh that is known, by its name.
MESHES = Registry("mesh", Mesh)


def register_mesh(mesh: Mesh) -> None:
    """Teaches geoshrink a mesh, for sample, Run, plans, pipelines and reports alike.

    mesh    a geoshrink.meshes.Mesh with a name of its own

    >>> register_mesh(Mesh("first", lambda grid, budget: (tuple(range(budget)), "first stages")))
    >>> from geoshrink import Plan
    >>> Plan.of([1.0, 0.8, 0.6, 0.4, 0.2, 0.0], 3, anchors="first").anchors
    (0, 1, 2)
    >>> del MESHES["first"]
    """
    MESHES.add(mesh)
