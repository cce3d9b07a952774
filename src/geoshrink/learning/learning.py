"""Learning: who is to learn, from which runs, and what is known so far. Shared by threads.

The first run in a setting makes every call: its result is that of the ordinary run, bit for bit,
and it teaches. The runs after it have the anchors that it asks for.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..checks import whole
from ..plan import Plan
from .choosing import plan_from, why_not
from .files import add_to, cache_folder, found_in, used
from .fingerprint import fingerprint, modules_in
from .learned import Learned, mean_squares
from .recording import Recording, masked
from .setting import Setting

KEPT = 64  # settings
TRIES = 3  # exact runs that may end early before no more are made
SLOW = "a first run makes every call and is exact: it teaches those after it (learn=…)"
logger = logging.getLogger("geoshrink")


@dataclass
class Known:
    """One setting.

    learned   None until a run has ended; why: nothing can be learned
    runs      that have begun since the latest exact one
    tries     exact runs that have begun since the latest that taught
    checked   its first output was seen to be like the one of the file that it came from
    """

    setting: Setting
    learned: Learned | None = None
    why: str | None = None
    runs: int = 0
    tries: int = 0
    checked: bool = True


class Learning:
    """What learn=… stands for.

        learning = geoshrink.Learning(every=20, folder=True)
        handle = geoshrink.accelerate(pipe, budget=10, learn=learning)

    every    so often a run is exact again, and adds to what is known; default: the first one only
    folder   what is learned is kept there, for other processes and later days; True: in the user's
             cache directory (`geoshrink learned list` shows it)
    name     tells settings apart that geoshrink cannot: your own guidance, another model behind the
             same callable
    """

    def __init__(
        self,
        every: int | None = None,
        *,
        folder: str | Path | bool | None = None,
        name: str = "",
    ):
        if every is not None and whole(every, "every") < 2:
            raise ValueError(f"every={every!r}: from every 2nd run on, or leave it out")
        if not isinstance(name, str):
            raise TypeError(f"name is a text that tells settings apart, got {name!r}")
        self.every, self.name = every, name
        self.folder = cache_folder() if folder is True else Path(folder) if folder else None
        self.told: set[str] = set()
        self.known: list[Known] = []  # the latest used last
        self.plans: dict[Any, Plan] = {}
        self.lock = threading.RLock()

    @classmethod
    def of(cls, given: Any) -> Learning:
        """What people pass as `learn`: True, a number, a folder or a file, Learned, Learning."""
        if isinstance(given, cls):
            return given
        if isinstance(given, (bool, np.bool_)) and given:
            return cls()
        if isinstance(given, (str, Path)) and str(given):
            if not Path(given).is_file():
                if Path(given).suffix == ".json":
                    raise ValueError(f"learn={str(given)!r}: there is no such file")
                return cls(folder=given)
            given = Learned.load(given)
        if isinstance(given, Learned):
            made = cls(name=given.setting.name)
            made.known.append(Known(given.setting, given, checked=False))
            return made
        if isinstance(given, Integral) and int(given) >= 2:
            return cls(every=int(given))
        raise TypeError(
            f"learn={given!r}: give True, a number N (every Nth run is exact), what was learned "
            "(geoshrink.Learned, or its file), a folder, or geoshrink.Learning(…)"
        )

    @property
    def learned(self) -> Learned | None:
        """Of the setting that was used last; None if nothing is known of it yet."""
        with self.lock:
            return self.known[-1].learned if self.known else None

    @property
    def settings(self) -> list[Learned]:
        """All that was learned, the latest used first."""
        with self.lock:
            return [k.learned for k in reversed(self.known) if k.learned is not None]

    def forget(self) -> None:
        """Here, not in the folder: the next run is exact again."""
        with self.lock:
            self.known, self.plans = [], {}

    def at(
        self,
        modules: Sequence[nn.Module] = (),
        words: str = "",
        spaces: Sequence[str] = ("output",),
    ) -> Seat:
        """For the runs of one model.

        modules   whose weights are the model
        words     what else tells its settings apart: guidance …
        spaces    in which its outputs can be predicted
        """
        return Seat(self, tuple(map(weakref.ref, modules)), words, tuple(spaces))

    def decide(
        self, asked: Plan, setting: Setting, leaves: Sequence[Tensor], spaces: Sequence[str]
    ) -> Plan | None:
        """The plan of a run whose first outputs are there; None: it is to be exact and teach."""
        with self.lock:
            known = self.find(setting)
            if known.learned is not None and not known.checked:
                known.checked = True
                if known.learned.differs(mean_squares(leaves)):
                    logger.warning(
                        "geoshrink: %s: its first output is unlike this one's, so it is of another "
                        "model, and is not used",
                        known.learned,
                    )
                    known.learned = None
            known.runs += 1
            due = self.every is not None and known.runs >= self.every
            if known.tries >= TRIES:
                known.runs = known.tries = 0
                if known.learned is None:
                    known.why = f"{TRIES} exact runs were begun, and none came to its end"
                due = False
            if due or (known.learned is None and known.why is None):
                known.tries += 1
                return None
            if known.learned is None:
                return replace(asked, mesh=f"{asked.mesh} (nothing was learned: {known.why})")
            key = id(known.learned), asked, tuple(spaces), setting.grid
            if key not in self.plans:
                if len(self.plans) >= KEPT:
                    self.plans.clear()
                self.plans[key] = plan_from(known.learned, asked, spaces, setting.solver)
            return self.plans[key]

    def find(self, setting: Setting) -> Known:
        """What is known of a setting, here or in the folder."""
        found = next((k for k in self.known if k.setting.difference(setting) is None), None)
        if found is None:
            found = Known(setting)
            stored = None
            try:
                if self.folder is not None:
                    stored = found_in(self.folder, setting, Learned)
            except OSError as error:
                logger.warning("geoshrink: what was learned before cannot be read: %s", error)
            if stored is not None:
                used(stored[0])
                found = Known(setting, stored[1], checked=False)
            self.known = self.known[1 - KEPT :]
        self.known = [k for k in self.known if k is not found] + [found]
        return found

    def add(self, setting: Setting, taught: Learned | str) -> None:
        """What an exact run has taught, or why it has taught nothing."""
        with self.lock:
            known = self.find(setting)
            known.runs = known.tries = 0
            if isinstance(taught, str):
                known.why = taught
                self.tell(f"nothing was learned: {taught}")
                return
            known.why = None
            known.learned = taught if known.learned is None else known.learned.and_then(taught)
            self.plans.clear()
            if self.folder is not None:
                try:
                    known.learned = add_to(self.folder, taught)
                except OSError as error:
                    logger.warning("geoshrink: what was learned could not be kept: %s", error)

    def tell(self, words: str) -> None:
        """A line in the log, once."""
        with self.lock:
            new = words not in self.told
            self.told.add(words)
        if new:
            logger.warning("geoshrink: %s", words)

    def __repr__(self) -> str:
        named = f", name={self.name!r}" if self.name else ""
        return f"Learning(every={self.every}, folder={str(self.folder)!r}{named})"

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            state = {**vars(self), "known": [*self.known], "plans": {}}
        return {k: v for k, v in state.items() if k != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.lock = threading.RLock()


@dataclass(frozen=True)
class Seat:
    """Where the runs of one model are taught: what a Run is given as `learn`."""

    learning: Learning
    modules: tuple[weakref.ref[nn.Module], ...]
    words: str
    spaces: tuple[str, ...]

    def begin(
        self,
        asked: Plan,
        leaves: Sequence[Tensor],
        solver: str,
        masks: Sequence[Tensor | None] = (),
        why: str | None = None,
    ) -> tuple[Plan, Recording | None]:
        """As teaching.Teacher has it."""
        try:
            why = why or why_not(asked, asked.grid)
            if why is None:
                return self.consult(asked, leaves, solver, masks)
        except Exception as error:  # the run goes on as without learning
            why = f"{type(error).__name__}: {error}"
        self.learning.tell(f"nothing is learned: {why}")
        return replace(asked, mesh=f"{asked.mesh} (nothing is learned: {why})"), None

    def consult(
        self, asked: Plan, leaves: Sequence[Tensor], solver: str, masks: Sequence[Tensor | None]
    ) -> tuple[Plan, Recording | None]:
        pictures = pictures_in(asked, leaves)
        sizes = tuple(max(1, leaf.numel() // pictures) for leaf in leaves)
        kinds = ", ".join(dict.fromkeys(str(leaf.dtype).removeprefix("torch.") for leaf in leaves))
        modules = [m for m in (ref() for ref in self.modules) if m is not None]
        own = dict(model=fingerprint(modules), name=self.learning.name, words=self.words)
        setting = Setting(asked.grid, sizes, kinds, solver, **own)
        plan = self.learning.decide(asked, setting, masked(leaves, masks), self.spaces)
        if plan is not None:
            return plan, None
        self.learning.tell(SLOW)
        exact = Plan.of(asked.grid, blocks=asked.blocks)
        exact = replace(exact, mesh="every stage: exact, to learn from it")
        learn = self.learning.add
        return exact, Recording(setting, pictures, lambda taught: learn(setting, taught), masks)


def pictures_in(plan: Plan, leaves: Sequence[Tensor]) -> int:
    """How many pictures were made at once."""
    batched = 0 in plan.blocks.dims and all(leaf.ndim > 1 for leaf in leaves)
    return max(1, min(len(leaf) for leaf in leaves)) if batched else 1


#: What sample() and odeint() learn, by what they are given as `learn`; models are told apart by
#: their weights.
COMMON: dict[Any, Learning] = {}


def teacher(learn: Any, model: Any) -> Seat:
    """The seat of a run of our own loops.

    model   the callable that is sampled, where somebody knows it: it need not be the same object in
            the next call, the weights that it holds tell it
    """
    spaces = "output", "data"
    if model is None:
        return Learning.of(learn).at(spaces=spaces)
    modules = modules_in(model)
    if not modules and isinstance(learn, (Integral, np.bool_)):
        Learning.of(learn)
        raise ValueError(
            f"learn={learn!r} tells models apart by their weights, and {model!r} holds no "
            "torch.nn.Module that has any: pass learn=geoshrink.Learning(), the same one every time"
        )
    if not isinstance(learn, Learning) and isinstance(learn, Hashable):
        key = type(learn), learn
        if key not in COMMON:
            COMMON[key] = Learning.of(learn)
        learn = COMMON[key]
    return Learning.of(learn).at(modules, spaces=spaces)
