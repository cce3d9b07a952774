"""Outputs that are not one tensor: tuples, lists, dicts, and any type somebody registers.

An output is a tree whose leaves are tensors; each leaf is a slot with its own history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

Unflatten = Callable[[list[Tensor]], Any]
_REGISTRY: dict[type, tuple[Callable[[Any], Iterable[Any]], Callable[[Any, list[Any]], Any]]] = {}


def register_output(
    kind: type,
    flatten: Callable[[Any], Iterable[Any]],
    unflatten: Callable[[Any, list[Any]], Any],
) -> None:
    """Teaches geoshrink a type: flatten(output) → its parts, unflatten(output, new parts) → a new
    output.

    >>> class Sparse:
    ...     def __init__(self, coords, feats): self.coords, self.feats = coords, feats
    >>> register_output(Sparse, lambda o: [o.feats], lambda o, parts: Sparse(o.coords, parts[0]))
    """
    _REGISTRY[kind] = (flatten, unflatten)


def children(output: Any) -> tuple[list[Any], Callable[[list[Any]], Any]] | None:
    """The parts of a container and how to put it together again; None for what is no container."""
    for kind in type(output).__mro__:
        if kind in _REGISTRY:
            split, join = _REGISTRY[kind]
            return list(split(output)), partial(join, output)
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return list(output), lambda parts: type(output)(*parts)
    if isinstance(output, (tuple, list)):
        return list(output), lambda parts: type(output)(parts)
    if isinstance(output, Mapping):
        keys = list(output)
        return [output[k] for k in keys], lambda parts: type(output)(zip(keys, parts))  # type: ignore[call-arg]
    return None


def flatten(output: Any) -> tuple[list[Tensor], Unflatten]:
    """(leaves, unflatten): the tensors of an output in order, and the way back."""
    if isinstance(output, Tensor):
        return [output], lambda leaves: leaves[0]
    split = children(output)
    if split is None:
        raise TypeError(
            f"the model returned a {type(output).__name__}, not a tensor or a tuple, list or "
            "dict of tensors; "
            "teach geoshrink the type with geoshrink.register_output, or return its tensor"
        )
    parts, join = split
    if not parts:
        raise ValueError(
            f"the model returned an empty {type(output).__name__}: there is no output to predict"
        )
    flat = [flatten(part) for part in parts]

    def unflatten(leaves: list[Tensor]) -> Any:
        rest, rebuilt = list(leaves), []
        for own, back in flat:
            rebuilt.append(back(rest[: len(own)]))
            rest = rest[len(own) :]
        return join(rebuilt)

    return [leaf for own, _ in flat for leaf in own], unflatten


def flatten_sigmas(sigmas: Any) -> list[list[float]]:
    """The σ-grids in a structure, in the order of the output's leaves: one grid is a sequence of
    numbers.
    """
    if isinstance(sigmas, Tensor) or hasattr(sigmas, "__array__"):
        values = torch.as_tensor(sigmas).detach()
        if values.ndim != 1:
            raise ValueError(f"a σ-grid is one-dimensional, got shape {tuple(values.shape)}")
        return [values.double().cpu().tolist()]
    if isinstance(sigmas, Mapping):
        return [grid for part in sigmas.values() for grid in flatten_sigmas(part)]
    if isinstance(sigmas, Iterable) and not isinstance(sigmas, str):
        parts = list(sigmas)
        if all(is_number(p) for p in parts):
            return [[float(p) for p in parts]]
        return [grid for part in parts for grid in flatten_sigmas(part)]
    raise TypeError(f"a σ-grid is a sequence of numbers, got {sigmas!r}")


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (hasattr(value, "ndim") and value.ndim == 0)
