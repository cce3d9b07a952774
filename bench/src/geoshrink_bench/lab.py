"""What the cells of a suite are run with."""

from __future__ import annotations

import time
from typing import Any

import torch

from .code import TODAY
from .methods.base import Method
from .methods.registry import METHODS, Training
from .methods.tuning import CHOICES
from .store import Store

Spec = dict[str, Any]
TUNED = ("threshold", "retention", *CHOICES)  # said in a cell, where its method has them


class Lab:
    """What the cells of one suite are run with: its models, its metrics, its folder."""

    store: Store
    device: str
    damaged: int = 0  # files beside the cells that were there and could not be read
    anew: bool = False  # whether cells that other code made are made anew

    def prepare(self, spec: Spec, training: Training, budget: int) -> tuple[Method, Spec]:
        """The method of a cell, and what the cell says of it."""
        began = time.perf_counter()
        method = METHODS[spec["method"]](spec["options"], training, budget)
        return method, dict(
            prepared=time.perf_counter() - began,
            tuned={key: vars(method)[key] for key in TUNED if vars(method).get(key) is not None},
            calibrated=method.calibrated,
            adaptive=method.adaptive,
            made=dict(on=device_name(self.device), torch=torch.__version__),
            code=TODAY.of(spec),
        )

    def kept(self) -> dict[str, Any]:
        """What a report must know that is not in the suite."""
        return {}

    def specs(self) -> list[Spec]:
        """Every cell, in the order they run."""
        raise NotImplementedError

    def unit(self, spec: Spec, shards: int) -> Any:
        """What one shard takes whole."""
        raise NotImplementedError

    def shared(self, spec: Spec) -> Any:
        """What cells have in common that is made once, by the first of them."""
        return self.unit(spec, 1)

    def cost(self, spec: Spec) -> float:
        """Of a cell as compared with others."""
        return 1.0

    def title(self, spec: Spec) -> str:
        """The method of a cell, as tables name it. Skipped once, it is skipped for good."""
        raise NotImplementedError

    def place(self, spec: Spec) -> str:
        """Which cell it is, in words."""
        raise NotImplementedError

    def usable(self, spec: Spec, result: dict[str, Any]) -> bool:
        """Whether what a cell made can stay; else it is made anew."""
        return True

    def make(self, spec: Spec) -> None:
        """Runs the method and writes the cell."""
        raise NotImplementedError

    def measure(self, spec: Spec) -> None:
        """Adds to the cell the scores that can be had now."""


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "CPU"
