"""Whether outputs, states, masks and σ-grids mirror one another: the same structure and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .grid import Grid
from .history import kind_of
from .outputs import flatten, keys_of, structure


def check_output(output: Any, leaves: Sequence[Tensor], grid: Grid, mask: Any) -> None:
    """Refuses an output that cannot be predicted, or mirrors neither the grids nor the masks."""
    for leaf in leaves:
        if not leaf.dtype.is_floating_point:
            raise TypeError(
                f"the model returned a tensor of {leaf.dtype}; only floating-point outputs can be "
                "predicted: leave it out of the output"
            )
    keys = keys_of(output)
    if len(grid.tracks) > 1:
        check_keys("σ-grids", grid.keys, keys)
    if isinstance(mask, (list, tuple, Mapping)):
        check_keys("masks", keys_of(mask), keys)


def check_keys(what: str, own: Sequence[str] | None, keys: Sequence[str] | None) -> None:
    if own != keys:
        raise ValueError(
            f"the {what} {own or 'in a row'} do not mirror the model's output "
            f"{keys or 'in a row'}: give them in the same structure, with the same keys"
        )


def states_of(x: Any, count: int, space: str, form: Any) -> list[Tensor | None]:
    """The state of every slot, where predictions are made in data space.

    form   the structure of the outputs that were seen
    """
    if space == "output":
        return [None] * count
    if x is None:
        raise ValueError("space='data' predicts from the current state: run(n, evaluate, x)")
    try:
        leaves = flatten(x)[0]
    except TypeError:
        raise TypeError(f"x must mirror the model's output; got a {type(x).__name__}") from None
    alike = count == 1 or form in (None, structure(x))
    if len(leaves) != count or not alike:
        raise ValueError(
            f"x ({keys_of(x) or len(leaves)} tensors) does not mirror the model's output "
            f"({[*form] if isinstance(form, dict) else count})"
        )
    return list(leaves)


def kinds(x: Any) -> list[tuple] | None:
    """Shape, dtype and device of every tensor of x; None where x is not ours to look into."""
    try:
        return None if x is None else [kind_of(leaf) for leaf in flatten(x)[0]]
    except (TypeError, ValueError):
        return None
