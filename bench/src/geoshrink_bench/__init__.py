"""The proof of geoshrink: trained models, rivals, metrics, and a runner that never loses a cell."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """compare() and run(), once asked for: the package's modules are also programs (python -m)."""
    if name in ("compare", "run"):
        return getattr(import_module(".command", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
