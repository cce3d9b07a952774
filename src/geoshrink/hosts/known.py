"""Hosts of other libraries whose loop we have read: their parts by name, and the loop checked."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..blocks import Blocks
from ..grid import Grid
from .facts import facts_of
from .handle import Handle
from .options import check_options
from .scheduling import check_step, read_grid
from .seam import Seam


@dataclass(frozen=True)
class Known:
    """A class of hosts that step one scheduler with one denoiser in one method.

    takes    arguments that the method must have
    version  where its loop was read
    """

    kind: str
    scheduler: str
    denoiser: str
    method: str
    takes: tuple[str, ...]
    version: str

    def is_host(self, candidate: Any) -> bool:
        return any(kind.__name__ == self.kind for kind in type(candidate).__mro__)

    def attach(self, host: Any, budget: int | None = None, **options: Any) -> Handle:
        self.check(host)
        schedulers, denoisers = self.find_schedulers(host), self.find_denoisers(host)
        known = [facts_of(host, scheduler, denoisers) for scheduler in schedulers]
        options = check_options(budget, options, schedulers, known)
        seam = Seam(host, schedulers, denoisers, self, options, self.find_denoisers)
        seam.attach()
        told: dict[str, Any] = {"learning": options.get("learn"), "plan": lambda: seam.plan}
        return Handle(seam.reports, seam.remove, denoisers, **told)

    def check(self, host: Any) -> None:
        """Refuses a host whose loop is not the one that we know; nothing is touched."""
        scheduler = getattr(host, self.scheduler, None)
        if not (hasattr(scheduler, "set_timesteps") and hasattr(scheduler, "step")):
            self.refuse(f"a scheduler in .{self.scheduler}", f"{type(scheduler).__name__} there")
        if not isinstance(denoiser := getattr(host, self.denoiser, None), nn.Module):
            self.refuse(f"a network in .{self.denoiser}", f"{type(denoiser).__name__} there")
        check_step(scheduler)
        found = [self.lacking(function) for function in self.definitions(host)]
        if not found:
            names = [name for name in dir(type(host)) if name[0] != "_"]
            own = [name for name in names if not hasattr(nn.Module, name)]
            self.refuse(f"the method {self.method}", f"only {', '.join(own)}")
        if all(found):
            uses = f"uses .{self.denoiser}, .{self.scheduler} and its step"
            expected = f"{self.method}({', '.join(self.takes)}, …) that {uses}"
            self.refuse(expected, f"one without {', '.join(found[0])}")

    def lacking(self, function: Any) -> list[str]:
        """What the loop should take or use, and does not."""
        there = {*inspect.signature(function).parameters, *function.__code__.co_names}
        wanted = (*self.takes, self.denoiser, self.scheduler, "step")
        return [name for name in wanted if name not in there]

    def definitions(self, host: Any) -> Iterator[Any]:
        """The method as the known class and those derived from it define it, undecorated."""
        for kind in type(host).__mro__:
            function: Any = inspect.unwrap(vars(kind).get(self.method, len))
            if inspect.isfunction(function):
                yield function
            if kind.__name__ == self.kind:
                return

    def refuse(self, expected: str, found: str) -> None:
        raise TypeError(
            f"this {self.kind} is not the one that geoshrink knows ({self.version}): expected "
            f"{expected}, found {found}; install that version, or use geoshrink.Run in your own "
            "loop"
        )

    # -- what the seam asks

    def parts(self, host: Any) -> dict[str, Any]:
        return {name: getattr(host, name) for name in (self.scheduler, self.denoiser)}

    def named_schedulers(self, host: Any) -> dict[str, Any]:
        return {self.scheduler: getattr(host, self.scheduler)}

    def find_schedulers(self, host: Any) -> list[Any]:
        return list(self.named_schedulers(host).values())

    def find_denoisers(self, host: Any) -> list[nn.Module]:
        return [getattr(host, self.denoiser)]

    def blocks_of(self, scheduler: Any) -> Blocks | None:
        return None

    def grid_of(
        self, scheduler: Any, host: Any, order: int, timestep: Any
    ) -> tuple[Grid, str | None]:
        return read_grid(scheduler, order, timestep)
