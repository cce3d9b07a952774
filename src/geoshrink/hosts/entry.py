"""The way into a host's method that loops, and out of it by whatever way it is left.

A method like __call__ is looked up in the class, so the one host that was handed to us gets a
class of its own, derived from its class and of the same name. Copies and pickles are of the
class that it had.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .seam import Seam

SEAM = "_geoshrink_seam"


def seam_of(host: Any) -> Seam | None:
    return vars(type(host)).get(SEAM)


def enter(host: Any, seam: Seam) -> None:
    """Puts a host's method through seam.on_run, where its class can be derived from."""
    plain: Any = type(host)
    name = seam.reader.method
    if not callable(getattr(plain, name, None)):
        return

    @functools.wraps(getattr(plain, name))
    def looping(self: Any, *args: Any, **kwargs: Any) -> Any:
        return seam.on_run(self, functools.partial(getattr(plain, name), self), args, kwargs)

    def reduced(self: Any, protocol: Any) -> Any:
        made = plain.__reduce_ex__(self, protocol)
        if not isinstance(made, tuple):
            return made
        function = plain.__new__ if made[0].__name__ == "__newobj__" else made[0]
        return (function, tuple(plain if part is kind else part for part in made[1]), *made[2:])

    names = {name: looping, "__reduce_ex__": reduced, "__slots__": (), SEAM: seam}
    if callable(getattr(plain, "progress_bar", None)):

        @functools.wraps(plain.progress_bar)
        def progress_bar(self: Any, *args: Any, **kwargs: Any) -> Any:
            return seam.on_progress_bar(plain.progress_bar(self, *args, **kwargs))

        names["progress_bar"] = progress_bar
    for label in ("__module__", "__qualname__", "__doc__"):
        names[label] = getattr(plain, label)
    try:
        kind: Any = type(plain)(plain.__name__, (plain,), names)
        object.__setattr__(host, "__class__", kind)
    except TypeError:  # a class that cannot be derived from
        return


def leave(host: Any, seam: Seam) -> None:
    if host is not None and seam_of(host) is seam:
        object.__setattr__(host, "__class__", type(host).__base__)
