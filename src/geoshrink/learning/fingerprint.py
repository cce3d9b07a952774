"""The fingerprint of a model: names, shapes, types and some numbers of its weights, and the scales
of its adapters. It is the same on another device, and another after a LoRA, a cast, or training.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters import adapters_of, plain

ENDS = 2  # numbers at either end of every tensor
LOOKED_AT = 200  # objects, for the modules that a callable holds
PREFIXES = ("_orig_mod.", "module.")  # of torch.compile and of data parallelism


def fingerprint(modules: Sequence[nn.Module]) -> str:
    """Empty without modules. Reads the weights each time, since writing to one by `.data` leaves no
    trace; waits for the device, once for each type of weights.
    """
    if not modules:
        return ""
    described, numbers = [], dict[tuple[torch.device, torch.dtype], list[Tensor]]()
    for name, tensor, weighs in tensors_of(modules):
        described.append((name, [*tensor.shape], str(tensor.dtype)))
        for end in ends_of(tensor) if weighs else ():
            numbers.setdefault((end.device, end.dtype), []).append(end)
    described += [(name, plain(home.get(name)), "") for home, name in adapters_of(modules)]
    digest = hashlib.sha256(json.dumps(described, default=str).encode())
    for parts in numbers.values():
        digest.update(read(parts))
    return digest.hexdigest()


def tensors_of(modules: Sequence[nn.Module]) -> Iterator[tuple[str, Tensor, bool]]:
    """(name, tensor, whether its numbers count): parameters, and buffers that are saved with them.
    Those with one axis or none are statistics and counters, which change as a model runs.
    """
    for module in modules:
        found: list[tuple[str, Tensor, bool]] = []
        found += [(name, tensor, True) for name, tensor in module.named_parameters()]
        for place, part in module.named_modules():
            loose = part._non_persistent_buffers_set
            for name, tensor in part.named_buffers(recurse=False):
                if name not in loose:
                    found.append((f"{place}.{name}", tensor, tensor.ndim > 1))
        for name, tensor, weighs in found:
            for prefix in PREFIXES:
                name = name.replace(prefix, "")
            yield name, tensor, weighs


def ends_of(tensor: Tensor) -> list[Tensor]:
    """A few numbers of it, as views; none where there are none to read here."""
    local: Any = getattr(tensor, "to_local", lambda: tensor)  # of one that is sharded
    tensor = local().detach()
    if tensor.is_meta or not tensor.numel():
        return []
    try:
        rows = (tensor[(place,) * (tensor.ndim - 1)].reshape(-1) for place in (0, -1))
        first, last = rows
        return [first[:ENDS], last[-ENDS:]]
    except (RuntimeError, NotImplementedError, TypeError, IndexError):  # a packed type
        return []


def read(parts: Sequence[Tensor]) -> bytes:
    try:
        return torch.cat([*parts]).to(torch.float32).cpu().numpy().tobytes()
    except (RuntimeError, NotImplementedError, TypeError):
        return b""


def modules_in(call: Any) -> list[nn.Module]:
    """The modules with weights that a callable is or holds: itself, its object and what that has,
    what is bound, closed over, or named among its globals.
    """
    found, waiting, seen = list[nn.Module](), deque([call]), set[int]()
    while waiting and len(seen) < LOOKED_AT:
        item = waiting.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, nn.Module):
            found += [item] * any(True for _ in tensors_of([item]))
        elif isinstance(item, partial):
            waiting += [item.func, *item.args, *item.keywords.values()]
        elif isinstance(item, (list, tuple)):
            waiting += item[:16]
        else:
            waiting += held_by(item)
    return found


def held_by(item: Any) -> list[Any]:
    held = [getattr(item, name, None) for name in ("__self__", "__func__", "__wrapped__")]
    for cell in getattr(item, "__closure__", None) or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    held += getattr(item, "__defaults__", None) or ()
    held += list(getattr(item, "__dict__", {}).values())[:64]
    code, space = getattr(item, "__code__", None), getattr(item, "__globals__", {})
    held += [space[name] for name in getattr(code, "co_names", ()) if name in space]
    kinds = nn.Module, partial, list, tuple
    own = (h for h in held if not isinstance(h, (type, ModuleType, Tensor)))
    return [h for h in own if isinstance(h, kinds) or hasattr(h, "__dict__")]
