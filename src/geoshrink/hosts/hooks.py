"""Methods of single objects by way of us: shared by all who ask, gone with the last of them.

Nothing of a hook goes into a copy or a pickle of the object: those are plain. What a user of a
hook does in one thread is its own affair: a handler that has nothing to do there calls on.
"""

from __future__ import annotations

import copy
import functools
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

#: handler(owner, the method without this handler, args, kwargs)
Handler = Any  # Callable[[Any, Callable, tuple, dict], Any], most of them methods
LOCK = threading.RLock()


class Hooks:
    """Those of one user. lift() may be called again where an interrupt broke it off.

    follows  whether a deep copy that is made now is hooked too: some hosts copy their scheduler
    """

    def __init__(self, follows: Callable[[], bool] | None = None):
        self.follows, self.placed = follows, []

    def place(self, owner: Any, name: str, handler: Handler) -> None:
        with LOCK:
            hook = hook_of(owner, name) or Hook(owner, name)
            self.placed.append(hook)  # before it is in place: an interrupt leaves nothing unknown
            hook.users[self] = handler
            hook.link()
            if not isinstance(owner, ModuleType):
                owner.__dict__[STATE] = State(owner)
            owner.__dict__[name] = hook

    def lift(self) -> None:
        with LOCK:
            for hook in reversed(self.placed):
                hook.drop(self)
            self.placed = []

    def __enter__(self) -> Hooks:
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self.lift()
        finally:  # what an interrupt breaks off in the first is made good in the second
            self.lift()


class Hook:
    """One method of one object, in its __dict__."""

    def __init__(self, owner: Any, name: str):
        self.owner, self.name = owner, name
        self.before = owner.__dict__.get(name)
        self.users: dict[Hooks, Handler] = {}
        self.plain = self.chain = getattr(owner, name)
        functools.update_wrapper(self, self.plain)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.chain(*args, **kwargs)

    def link(self) -> None:
        """The latest handler is outermost; one that many ask for is there once."""
        chain = self.plain
        for handler in dict.fromkeys(self.users.values()):
            chain = through(handler, self.owner, chain)
        self.chain = chain

    def drop(self, user: Hooks) -> None:
        self.users.pop(user, None)
        self.link()
        if self.users:
            return
        names = self.owner.__dict__
        if names.get(self.name) is self:  # else somebody's own is over it, and calls on
            restore(names, self.name, self.before)
        if not hooks_in(self.owner):
            names.pop(STATE, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> Hook:
        owner = memo.get(id(self.owner))
        if owner is None:  # of the __dict__ alone
            return self
        twin = Hook(owner, self.name)
        twin.users = dict(self.users)
        twin.link()
        return twin

    def __reduce__(self) -> Any:  # of an object that another thread pickles while we come to it
        return getattr, (self.owner, self.name)


STATE = "__getstate__"


class State:
    """What copies and pickles of an object are made of: the object without hooks."""

    def __init__(self, owner: Any):
        self.owner = owner

    def __call__(self) -> Any:
        getstate = getattr(type(self.owner), STATE, None)
        state = vars(self.owner) if getstate is None else getstate(self.owner)
        users = [u for hook in hooks_in(self.owner) for u in list(hook.users)]
        deep = sys._getframe(1).f_code is copy.deepcopy.__code__
        if deep and any(user.follows is not None and user.follows() for user in users):
            return state
        if isinstance(state, tuple):  # of a class with slots
            return tuple(map(without_hooks, state))
        return without_hooks(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        return State(memo.get(id(self.owner), self.owner))


def without_hooks(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    clean = dict(state)
    for name, value in state.items():
        if isinstance(value, Hook):
            restore(clean, name, value.before)
        elif isinstance(value, State):
            del clean[name]
    return clean


def restore(names: dict[str, Any], name: str, before: Any) -> None:
    if before is None:
        names.pop(name, None)
    else:
        names[name] = before


def hook_of(owner: Any, name: str) -> Hook | None:
    """The hook that an object's method is under; one in a copied __dict__ is not its own."""
    found = owner.__dict__.get(name)
    return found if isinstance(found, Hook) and found.owner is owner else None


def entrance(module: Any) -> str:
    """The method by which a network is called: outside its hooks, offloading and compilation."""
    compiled = getattr(module, "_compiled_call_impl", None) is not None
    return "_compiled_call_impl" if compiled else "_call_impl"


def lift_all(owner: Any, name: str) -> None:
    """Takes away what we have on a method, whoever asked for it."""
    hook = hook_of(owner, name)
    for user in list(hook.users) if hook is not None else ():
        user.lift()


def hooks_in(owner: Any) -> list[Hook]:
    return [value for value in list(vars(owner).values()) if isinstance(value, Hook)]


def through(handler: Handler, owner: Any, call: Callable) -> Callable:
    @functools.wraps(call)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        return handler(owner, call, args, kwargs)

    return hooked
