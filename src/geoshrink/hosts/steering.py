"""What steers a host's loop from outside, and whether it was turned between two stages.

A callback of the user's acts between a step and the next denoiser call. What it can reach is
looked at on both sides of it: the host's own guidance and attention settings, the tensors that it
is given, the scales of adapters in the denoisers. Nothing is read from the device: numbers are
compared, tensors by identity and version.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from ..adapters import adapters_of, plain
from .stack import variables_of

SETTINGS = ("attention_kwargs", "cfg", "guidance", "scale")  # words in the names of attributes
Mark = tuple[weakref.ref, int]  # a tensor and its version


class Steering:
    """What one loop is steered by."""

    def __init__(self, host: Any, method: str):
        self.method = method
        kind = type(host)
        names = [name for name in dir(kind) if name.startswith("do_")]
        self.switches = [name for name in names if isinstance(getattr(kind, name), property)]
        self.called_back: bool | None = None  # whether the host has a callback, once known
        self.adapters: list[tuple[dict[str, Any], str]] = []
        self.settings: dict[str, Any] = {}
        self.tensors: dict[str, Mark] = {}
        self.made: list[Mark] = []  # by the steps since the last look
        self.usual: dict[str, bool] = {}  # whether the host itself makes its latents anew

    def flags(self, host: Any) -> tuple:
        """The host's own switches (do_classifier_free_guidance …) as they are now."""
        return tuple(truth(host, name) for name in self.switches)

    def after_step(self, host: Any, result: Any, modules: Iterable[nn.Module]) -> None:
        """Remembers everything as it is before a callback acts."""
        if self.called_back is False:
            return
        known = variables_of(host, self.method)
        if self.called_back is None:
            self.called_back = any(callable(known[name]) for name in known if "callback" in name)
            self.adapters = list(adapters_of(modules)) if self.called_back else []
        if self.called_back:
            found = result if isinstance(result, tuple) else getattr(result, "values", tuple)()
            self.made += [mark(part) for part in found if isinstance(part, Tensor)]
            self.settings, self.tensors = self.look_at_settings(host), look_at_tensors(known)

    def turned(self, host: Any) -> list[str]:
        """The names of what was turned since the step."""
        if not self.called_back or host is None:
            return []
        now = self.look_at_settings(host)
        found = [name for name in now if now[name] != self.settings.get(name)]
        for name, after in look_at_tensors(variables_of(host, self.method)).items():
            known = [self.tensors[name], *self.made] if name in self.tensors else self.made
            touched = not any(after[0] is ref and after[1] == version for ref, version in known)
            # A host may blend or cast its latents behind every step: the first stage shows it.
            usual = self.usual.setdefault(name, touched and "latent" in name)
            self.usual[name] = usual and touched
            found += [name] * (touched != usual)
        self.made = []
        return found

    def look_at_settings(self, host: Any) -> dict[str, Any]:
        own = {k: plain(v) for k, v in vars(host).items() if any(word in k for word in SETTINGS)}
        return own | {"an adapter's scale": [plain(home.get(name)) for home, name in self.adapters]}


def look_at_tensors(known: dict[str, Any]) -> dict[str, Mark]:
    """The variables that a callback is given and may return."""
    names = {"latents", *(known.get("callback_on_step_end_tensor_inputs") or ())}
    return {name: mark(known[name]) for name in names if isinstance(known.get(name), Tensor)}


def mark(tensor: Tensor) -> Mark:
    return weakref.ref(tensor), 0 if tensor.is_inference() else tensor._version


def truth(host: Any, name: str) -> bool | None:
    try:
        return bool(getattr(host, name))
    except Exception:  # a switch that is not set yet says nothing
        return None
