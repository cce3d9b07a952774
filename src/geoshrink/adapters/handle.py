"""What accelerate() returns: the reports of the runs, and the way back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from ..report import Report


class Handle:
    """`report` is that of the latest run, `reports` of all; remove() leaves the host as it was.

    denoisers  the networks whose calls are saved
    """

    def __init__(
        self,
        reports: Callable[[], list[Report]],
        remove: Callable[[], None],
        denoisers: Sequence[nn.Module] = (),
    ):
        self._reports, self._remove = reports, remove
        self.denoisers = tuple(denoisers)

    @property
    def reports(self) -> list[Report]:
        return self._reports()

    @property
    def report(self) -> Report | None:
        """None before the first run, and where the host's loop never steps its scheduler."""
        reports = self._reports()
        return reports[-1] if reports else None

    def remove(self) -> None:
        self._remove()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()
