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

SAMPLED = 4  # numbers of every tensor
LOOKED_AT = 200  # objects, for the modules that a callable holds
PREFIXES = ("_orig_mod.", "module.")  # of torch.compile and of data parallelism


class Fingerprints:
    """Those of the models seen latest, read again only if a tensor of theirs has changed."""

    def __init__(self, kept: int = 8):
        self.kept, self.known = kept, dict[tuple[int, ...], tuple[list, str]]()

    def of(self, modules: Sequence[nn.Module]) -> str:
        """ "" without modules."""
        if not modules:
            return ""
        key, now = tuple(map(id, modules)), stamp(modules)
        if key not in self.known or self.known[key][0] != now:
            self.known.pop(key, None)
            while len(self.known) >= self.kept:
                self.known.pop(next(iter(self.known)))
            self.known[key] = now, fingerprint(modules)
        return self.known[key][1]


def tensors_of(modules: Sequence[nn.Module]) -> Iterator[tuple[str, Tensor]]:
    for module in modules:
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            for prefix in PREFIXES:
                name = name.replace(prefix, "")
            yield name, tensor


def stamp(modules: Sequence[nn.Module]) -> list:
    """What changes when a weight does. Reads nothing from the device."""
    found: list = [plain(home.get(name)) for home, name in adapters_of(modules)]
    for _, tensor in tensors_of(modules):
        version = 0 if tensor.is_inference() else tensor._version
        found.append((id(tensor), version, tensor.dtype, tensor.device))
    return found


def fingerprint(modules: Sequence[nn.Module]) -> str:
    """Waits for the device, once for each that the weights are on."""
    described, numbers = [], dict[torch.device, list[Tensor]]()
    for name, tensor in tensors_of(modules):
        described.append((name, [*tensor.shape], str(tensor.dtype)))
        picked = some_of(tensor)
        if picked is not None:
            numbers.setdefault(picked.device, []).append(picked)
    described += [(name, plain(home.get(name)), "") for home, name in adapters_of(modules)]
    digest = hashlib.sha256(json.dumps(described, default=str).encode())
    for parts in numbers.values():
        digest.update(torch.cat(parts).cpu().numpy().tobytes())
    return digest.hexdigest()


def some_of(tensor: Tensor) -> Tensor | None:
    """A few numbers of it; None where there are none to read here."""
    local: Any = getattr(tensor, "to_local", lambda: tensor)  # of one that is sharded
    tensor = local().detach()
    if tensor.is_meta or not tensor.numel():
        return None
    try:
        last = tensor.numel() - 1
        places = sorted({last * i // (SAMPLED - 1) for i in range(SAMPLED)})
        flat = tensor.reshape(-1)
        return torch.stack([flat[place] for place in places]).to(torch.float32)
    except (RuntimeError, NotImplementedError, TypeError):  # a packed type that cannot be indexed
        return None


def modules_in(call: Any) -> list[nn.Module]:
    """The modules that a callable is or holds: itself, its object and what that has, what is bound,
    closed over, or named among its globals.
    """
    found, waiting, seen = list[nn.Module](), deque([call]), set[int]()
    while waiting and len(seen) < LOOKED_AT:
        item = waiting.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, nn.Module):
            found.append(item)
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
