"""The scales of adapters (LoRA, image prompts) in a model: no weight says what they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

NAMES = ("_active_adapter", "_disable_adapters", "merged_adapters", "scale", "scaling")


def adapters_of(modules: Iterable[nn.Module]) -> Iterable[tuple[dict[str, Any], str]]:
    """(namespace, name) of every scale of a LoRA or of an image prompt in the modules."""
    for module in modules:
        yield vars(module), "peft_config"  # there once a LoRA is
        for part in module.modules():
            for home in (vars(part), getattr(vars(part).get("processor"), "__dict__", {})):
                yield from ((home, name) for name in NAMES if name in home)


def plain(value: Any) -> Any:
    """A setting as something that does not change with it; tensors say nothing."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(part) for part in value]
    return value if isinstance(value, (bool, int, float, str)) else None
