"""Pointers: errors end with the page that explains them.

The page is a note of the exception: tracebacks and the command line print it under the message, and
str(error) stays one sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

SITE = "https://geoshrink.github.io/geoshrink/"
#: The page, and the place on it, that explains a topic. A test looks for each in docs/.
PAGES = {
    "accelerate": "diffusers/",
    "anchors": "anchors/",
    "batch": "batch/",
    "compare": "compare/",
    "fit": "plans/#does-it-fit",
    "hosts": "backends/",
    "loop": "loop/",
    "odeint": "loop/",
    "planning": "planning/",
    "plans": "plans/",
    "quality": "quality/#holding-a-quality",
}
OURS = "geoshrink."
Function = TypeVar("Function", bound=Callable[..., Any])
Error = TypeVar("Error", bound=Exception)


def page_of(topic: str) -> str:
    """The address of the page.

    >>> page_of("anchors")
    'https://geoshrink.github.io/geoshrink/anchors/'
    """
    return SITE + PAGES[topic]


def see(error: Error, topic: str) -> Error:
    """The error, which names the page of this topic unless it names one already."""
    if not any(SITE in note for note in notes_of(error)):
        error.add_note(f"See {page_of(topic)}")
    return error


def notes_of(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def explained(topic: str) -> Callable[[Function], Function]:
    """Errors of ours that leave the function name a page; those of the user's model do not."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except (TypeError, ValueError, ImportError) as error:
                if is_ours(error):
                    see(error, topic)
                raise

        return cast(Function, call)

    return decorate


def is_ours(error: BaseException) -> bool:
    """Whether our own code raised it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and str(at.tb_frame.f_globals.get("__name__")).startswith(OURS)
