"""Studio: what the page does, without the page. Runs, sweeps and profiles, one at a time on the
device, each as a generator of how far it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ..compare.outcomes import DIRECT, FULL, PLANNED
from ..files import write_whole
from ..plan import Plan
from ..planning import Profile
from .lane import Lane
from .line import Line, Stopped
from .model import Model, Ran
from .setting import Picture, Setting, plain
from .shelf import Shelf

KEPT, HISTORY = 32, 48  # full runs; runs of one page
BYTES = 2**30  # of either, beyond what one run takes
AWAKE = 0.15  # seconds between two looks at what goes on


class Session:
    """One open page: what it does now, and the runs that it has seen."""

    def __init__(self) -> None:
        self.stops: set[threading.Event] = set()
        self.runs: list[tuple[Setting, Ran]] = []
        self.shown: tuple[Setting, Ran] | None = None  # on the page now

    def stop(self) -> bool:
        """Ends all that it does, if it does anything; nothing of it is left in the model."""
        stops = list(self.stops)
        for stop in stops:
            stop.set()
        return bool(stops)

    def keep(self, setting: Setting, ran: Ran) -> None:
        """The latest; the oldest go where there are too many."""
        self.runs.append((setting, ran))
        while len(self.runs) > 1 and too_many([run for _, run in self.runs], HISTORY):
            del self.runs[0]

    @contextmanager
    def task(self, outer: threading.Event | None = None) -> Iterator[threading.Event]:
        """What stop() ends; part of an outer one, if there is one."""
        if outer is not None:
            yield outer
            return
        stop = threading.Event()
        self.stops.add(stop)
        try:
            yield stop
        finally:
            stop.set()
            self.stops.discard(stop)


@dataclass(frozen=True)
class Waiting:
    """Before a run: how many are ahead, or which model is being loaded."""

    ahead: int = 0
    loading: str = ""


@dataclass(frozen=True)
class Profiled:
    """A profile that was made, and the file with the plan that it gives."""

    profile: Profile
    file: Path


Lanes = list[Lane]


class Studio:
    """
    shelf    the models
    out      the folder for plan files
    """

    def __init__(self, shelf: Shelf, out: Path):
        self.shelf, self.out = shelf, out
        self.device = Line()
        self.full: OrderedDict[Picture, Ran] = OrderedDict()
        self.profiles: dict[Picture, Profile] = {}

    # -- what the page asks for

    def play(
        self, setting: Setting, session: Session, outer: threading.Event | None = None
    ) -> Iterator[Waiting | Lanes]:
        """The accelerated run beside the full one, which is kept for the next; the lanes again and
        again while they run.
        """
        with session.task(outer) as stop:
            model = yield from self.ready(setting, stop)
            profile = self.profile_of(model, setting)
            with self.device.place() as place:
                yield from self.wait(place, stop)
                lanes = [self.fast_lane(model, setting, profile, stop)]
                if self.known(setting) is None:
                    lanes.append(self.full_lane(model, setting, stop))
                yield from self.race(lanes, model.together)
            if (ran := lanes[0].ran) is not None:
                session.keep(setting, ran)

    def measure(
        self, setting: Setting, session: Session, outer: threading.Event | None = None
    ) -> Iterator[Waiting | Lanes | tuple[Setting, Ran]]:
        """One run alone, then what came out; the full one before it, if it is not known."""
        with session.task(outer) as stop:
            model = yield from self.ready(setting, stop)
            profile = self.profile_of(model, setting)
            with self.device.place() as place:
                yield from self.wait(place, stop)
                if self.known(setting) is None:
                    yield from self.race([full := self.full_lane(model, setting, stop)], False)
                    result_of(full)
                lane = self.fast_lane(model, setting, profile, stop)
                yield from self.race([lane], False)
            yield setting, result_of(lane)

    def plan(
        self,
        setting: Setting,
        samples: int,
        session: Session,
        outer: threading.Event | None = None,
    ) -> Iterator[Waiting | Lanes | Profiled]:
        """A profile of the model at this setting, and the file of the plan that it gives."""
        made: list[Profile] = []
        with session.task(outer) as stop:
            model = yield from self.ready(setting, stop)

            def work(lane: Lane) -> Ran:
                made.append(model.profile(setting, samples, lane))
                raise Stopped

            with self.device.place() as place:
                yield from self.wait(place, stop)
                lane = Lane("profile", setting.steps, None, work, stop)
                yield from self.race([lane], False)
            if not made:
                result_of(lane)
        self.profiles[occasion(setting)] = made[0]
        yield Profiled(made[0], self.save(setting, made[0].plan(**setting.amount())))

    def save(self, setting: Setting, plan: Plan) -> Path:
        """A plan as a file, whose name says what it is for; another plan has another name."""
        amount, unit = setting.budget, "calls"
        if setting.target_db is not None:
            amount, unit = plain(setting.target_db), "dB"
        said = [setting.model, f"{setting.steps}-steps"]
        for name in ("guidance", "shift"):
            if (value := getattr(setting, name)) is not None:
                said.append(f"{name}-{plain(value)}")
        text = plan.to_json() + "\n"
        name = "-".join([*said, f"{amount}-{unit}", sha256(text.encode()).hexdigest()[:6]])
        safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).lstrip(".")
        file = self.out / f"{safe}.plan.json"
        return write_whole(file, text)

    def known(self, setting: Setting) -> Ran | None:
        """The full run, if it has been made."""
        return self.full.get(setting.picture)

    def profile_of(self, model: Model, setting: Setting) -> Profile | None:
        """For the planned form: one that was made here, or that comes with the model."""
        if setting.form != PLANNED:
            return None
        found = self.profiles.get(occasion(setting)) or model.shipped(setting)
        if found is None:
            raise ValueError(
                f"there is no profile of {setting.model} with {setting.steps} steps at this "
                "guidance and shift yet: press “Plan it” first, or choose another form"
            )
        return found

    # -- how it does it

    def ready(self, setting: Setting, stop: threading.Event) -> Generator[Waiting, None, Model]:
        model = yield from self.loaded(setting.model, stop)
        model.check(setting)
        return model

    def loaded(self, name: str, stop: threading.Event) -> Generator[Waiting, None, Model]:
        if name not in self.shelf.models:
            yield Waiting(loading=name)
        model = self.shelf.get(name)
        if stop.is_set():
            raise Stopped
        return model

    def wait(self, place: object, stop: threading.Event) -> Iterator[Waiting]:
        while not self.device.wait(place, AWAKE):
            if stop.is_set():
                raise Stopped
            yield Waiting(self.device.ahead(place))

    def fast_lane(
        self, model: Model, setting: Setting, profile: Profile | None, stop: threading.Event
    ) -> Lane:
        def work(lane: Lane) -> Ran:
            return model.fast(setting, profile, lane)

        steps = setting.budget if setting.form == DIRECT else setting.steps
        total = setting.budget if setting.target_db is None else None
        return Lane(setting.label, steps, total, work, stop)

    def full_lane(self, model: Model, setting: Setting, stop: threading.Event) -> Lane:
        def work(lane: Lane) -> Ran:
            ran = self.full[setting.picture] = model.full(setting, lane)
            while len(self.full) > 1 and too_many([*self.full.values()], KEPT):
                self.full.popitem(last=False)
            return ran

        return Lane(FULL, setting.steps, setting.steps, work, stop)

    def race(self, lanes: Lanes, together: bool) -> Iterator[Lanes]:
        """Runs the lanes, at once where they can take turns; whoever leaves this stops them."""
        waves = [lanes] if together and len(lanes) > 1 else [[lane] for lane in lanes]
        try:
            for wave in waves:
                turns = Line(*wave)
                for lane in wave:
                    lane.start(turns)
                while any(lane.thread.is_alive() for lane in wave):
                    wave[-1].thread.join(AWAKE)
                    yield lanes
                if any(lane.ran is None for lane in wave):
                    break
        finally:
            for lane in lanes:
                lane.end()
        yield lanes


def too_many(runs: list[Ran], most: int) -> bool:
    return len(runs) > most or sum(ran.bytes for ran in runs) > BYTES


def result_of(lane: Lane) -> Ran:
    if lane.ran is None:
        raise lane.error or Stopped
    return lane.ran


def occasion(setting: Setting) -> Picture:
    """What a profile holds for: any prompt and any seed."""
    return Picture(
        setting.model, steps=setting.steps, guidance=setting.guidance, shift=setting.shift
    )
