"""Outputs that are not one tensor: tuples, lists, dicts, and any type somebody registers.

An output is a tree whose leaves are tensors; each leaf is a slot with its own history. The parts of
a dict are taken in the order of their sorted keys, whatever order they come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from copy import copy
from dataclasses import is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from .checks import is_number

Unflatten = Callable[[list[Tensor]], Any]
_REGISTRY: dict[type, tuple[Callable[[Any], Iterable[Any]], Callable[[Any, list[Any]], Any]]] = {}


def register_output(
    kind: type,
    flatten: Callable[[Any], Iterable[Any]],
    unflatten: Callable[[Any, list[Any]], Any],
) -> None:
    """Teaches geoshrink a type of outputs.

    kind       the type
    flatten    flatten(output) returns its parts: tensors, or containers of them
    unflatten  unflatten(output, parts) returns a new output of the same structure with these parts

    >>> class Sparse:
    ...     def __init__(self, coords, feats): self.coords, self.feats = coords, feats
    >>> register_output(Sparse, lambda o: [o.feats], lambda o, parts: Sparse(o.coords, parts[0]))
    """
    _REGISTRY[kind] = (flatten, unflatten)


Join = Callable[[list[Any]], Any]


def children(output: Any) -> tuple[list[Any], Callable[[list[Any]], Join]] | None:
    """(parts, bind) of a container; None for what is no container.

    bind(stand-ins for the parts) is the way back. It holds on to the structure and the stand-ins,
    never to the parts themselves.
    """
    kind = type(output)
    known = next((_REGISTRY[base] for base in kind.__mro__ if base in _REGISTRY), None)
    if known is not None:
        split, join = known
        return list(split(output)), lambda hollow: partial(join, join(output, hollow))
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return list(output), lambda hollow: lambda parts: kind(*parts)
    if isinstance(output, (tuple, list)):
        return list(output), lambda hollow: lambda parts: kind(parts)
    if isinstance(output, Mapping):
        order = sorted(output, key=str)
        return [output[key] for key in order], partial(bind_mapping, output, order)
    return None


def bind_mapping(output: Mapping, order: list[Any], hollow: list[Any]) -> Join:
    """The way back to a mapping of the same type, its keys in their own order.

    Dataclasses that are mappings (the outputs of diffusers and transformers) are made anew from
    their fields; other mappings are copied and filled.
    """
    empty = dict(zip(order, hollow))
    if is_dataclass(output) and not isinstance(output, type):
        fields = replace(output, **empty)
        return lambda parts: replace(fields, **dict(zip(order, parts)))
    if not isinstance(output, MutableMapping):
        keys = list(output)
        return lambda parts: {key: parts[order.index(key)] for key in keys}
    template = copy(output)
    template.update(empty)

    def rebuild(parts: list[Any]) -> Any:
        filled = copy(template)
        filled.update(zip(order, parts))
        return filled

    return rebuild


def structure(output: Any) -> Any:
    """What an output is made of, without its tensors: equal where outputs match part by part."""
    split = None if isinstance(output, Tensor) else children(output)
    if split is None:
        return None
    parts = [structure(part) for part in split[0]]
    if isinstance(output, Mapping):
        return dict(zip(keys_of(output) or (), parts))
    return parts


def keys_of(value: Any) -> tuple[str, ...] | None:
    """The names of a mapping's parts in the order in which they are taken."""
    return tuple(sorted(map(str, value))) if isinstance(value, Mapping) else None


def flatten(output: Any) -> tuple[list[Tensor], Unflatten]:
    """(leaves, unflatten): the tensors of an output in order, and the way back."""
    if isinstance(output, Tensor):
        return [output], lambda leaves: leaves[0]
    split = children(output)
    if split is None:
        raise TypeError(
            f"the model returned a {type(output).__name__}, not a tensor or a tuple, list or dict "
            "of tensors; teach geoshrink the type with geoshrink.register_output, or return its "
            "tensor"
        )
    parts, bind = split
    if not parts:
        raise ValueError(
            f"the model returned an empty {type(output).__name__}: there is no output to predict"
        )
    flat = [flatten(part) for part in parts]
    ways = [(len(own), back) for own, back in flat]
    join = bind([back([stand_in(leaf) for leaf in own]) for own, back in flat])

    def unflatten(leaves: list[Tensor]) -> Any:
        rest, rebuilt = list(leaves), []
        for count, back in ways:
            rebuilt.append(back(rest[:count]))
            rest = rest[count:]
        return join(rebuilt)

    return [leaf for own, _ in flat for leaf in own], unflatten


def stand_in(leaf: Tensor) -> Tensor:
    """A tensor of the same shape, dtype and device that takes no memory."""
    return leaf.new_zeros(()).expand(leaf.shape)


def flatten_sigmas(sigmas: Any) -> list[list[float]]:
    """The σ-grids in a structure, in the order of the output's leaves; a grid is numbers."""
    if isinstance(sigmas, Tensor):
        sigmas = np.array(sigmas.detach().tolist())  # numpy() fails in transforms of torch.func
    if hasattr(sigmas, "__array__"):
        values = np.asarray(sigmas, dtype=np.float64)
        if values.ndim != 1:
            raise ValueError(f"a σ-grid is one-dimensional, got shape {values.shape}")
        return [values.tolist()]
    if isinstance(sigmas, Mapping):
        return [grid for key in sorted(sigmas, key=str) for grid in flatten_sigmas(sigmas[key])]
    if not isinstance(sigmas, Iterable) or isinstance(sigmas, str):
        raise TypeError(f"a σ-grid is a sequence of numbers, got {sigmas!r}")
    parts = list(sigmas)
    numbers = [is_number(part) for part in parts]
    if all(numbers):
        return [[float(part) for part in parts]]
    if any(numbers):
        bad = numbers.index(False)
        raise TypeError(f"a σ-grid is a sequence of numbers, but value {bad} is {parts[bad]!r}")
    return [grid for part in parts for grid in flatten_sigmas(part)]
