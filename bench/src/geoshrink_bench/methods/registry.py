"""The methods by name, each made for a budget: METHODS[name](options, training, budget).

`training` gives other cases of the same setting, for methods that calibrate or tune. A threshold
that is given in the options is used as it is; a warm-up is the authors' own, the one given, or with
warm_up="tuned" the best of those that every method may choose from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from geoshrink.checks import whole
from geoshrink.plan import Plan

from . import magcache, teacache
from .base import Case, Method
from .dbcache import DBCache
from .direct import Again, Direct
from .easycache import EasyCache, LazyCache
from .firstblock import FirstBlockCache
from .fora import Fora
from .hicache import HiCache
from .magcache import MagCache
from .meancache import MeanCache
from .ours import OURS, Ours
from .planned import Planned
from .resilphase import ResilPhase
from .solvers import SOLVERS
from .speca import SpeCa
from .spectrum import Spectrum
from .taylorseer import TaylorSeer, TaylorSeerLite
from .teacache import TeaCache
from .toca import ToCa
from .tuning import TUNED, with_warm_up
from .vde import VDE

Training = Callable[[], Sequence[Case]]
Make = Callable[[dict[str, Any], Training, int], Method]
#: Arguments that are the bench's to give, or the grid's.
GIVEN = {"cases", "budget", "cost", "sigmas", "speedup", "prediction", "alphas", "data", "regimes"}


@dataclass(frozen=True)
class Entry:
    """A method that says which options it takes: those of what it will call with them."""

    make: Make
    called: Callable[[Mapping[str, Any]], Any]

    def __call__(self, options: dict[str, Any], training: Training, budget: int) -> Method:
        if options.get("warm_up") != TUNED:
            return self.make(options, training, budget)

        def make(warm_up: int) -> Method:
            return self.make({**options, "warm_up": warm_up}, training, budget)

        return with_warm_up(make, training(), budget)


def plain(kind: Callable[..., Method]) -> Entry:
    """A method that needs nothing beforehand."""
    return Entry(lambda options, training, budget: kind(**options), lambda options: kind)


def known(method: Method) -> Entry:
    """A method that is there already, and has no options."""
    return Entry(lambda options, training, budget: method, lambda options: lambda: method)


def tuning(kind: Any, make: Make | None = None) -> Entry:
    """A method whose threshold is tuned to the budget, unless it is given."""

    def called(options: Mapping[str, Any]) -> Any:
        return kind if "threshold" in options else kind.tune

    def tune(options: dict[str, Any], training: Training, budget: int) -> Method:
        given = () if "threshold" in options else (training(), budget)
        return called(options)(*given, **options)

    return Entry(make or tune, called)


def check_options(method: str, options: Mapping[str, Any]) -> None:
    """Refuses an option that a method does not have, before anything runs."""
    entry = METHODS[method]
    if not isinstance(entry, Entry):
        return
    names = options_of(entry.called(options))
    unknown = [name for name in options if name not in names]
    if unknown:
        has = f"its options are {', '.join(sorted(names))}" if names else "it takes none"
        raise ValueError(f"{method} has no option {unknown[0]!r}; {has}")
    if options.get("warm_up", TUNED) != TUNED and whole(options["warm_up"], "warm_up") < 1:
        raise ValueError(f"warm_up is at least 1, or {TUNED}; got {options['warm_up']!r}")


def options_of(call: Any) -> set[str]:
    """The names of what one may give it; what it passes on is its class's."""
    found = signature(call).parameters.values()
    names = {p.name for p in found if p.kind is not Parameter.VAR_KEYWORD}
    passes_on = len(names) < len(found)
    return (names | options_of(call.__self__) if passes_on else names) - GIVEN


def calibrated_teacache(options: dict[str, Any], training: Training, budget: int) -> Method:
    if "coefficients" not in options:
        options = {"coefficients": teacache.calibrate(training()), **options}
    return tuning(TeaCache)(options, training, budget)


def calibrated_magcache(options: dict[str, Any], training: Training, budget: int) -> Method:
    ratios = magcache.calibrate(training())
    return tuning(MagCache)({"ratios": ratios, **options}, training, budget)


def fitted_meancache(options: dict[str, Any], training: Training, budget: int) -> Method:
    """With the stages of the cheapest path, which its authors find beforehand."""
    if "stages" in options:
        return MeanCache(**options)
    return MeanCache.fit(training(), budget, **options)


METHODS: dict[str, Make] = {
    "full run, again": known(Again()),
    "direct": known(Direct()),
    **{name: known(method) for name, method in OURS.items()},
    "GeoShrink": Entry(plain(Ours), lambda options: Plan.of),
    "GeoShrink (planned)": Entry(
        lambda options, training, budget: Planned.fit(training(), budget),
        lambda options: Planned.fit,
    ),
    **{name: known(method) for name, method in SOLVERS.items()},
    "FORA": plain(Fora),
    "TeaCache": tuning(TeaCache, calibrated_teacache),
    "TeaCache (uncalibrated)": tuning(TeaCache),
    "ToCa": plain(ToCa),
    "TaylorSeer": plain(TaylorSeer),
    "TaylorSeer-Lite": plain(TaylorSeerLite),
    "SpeCa": tuning(SpeCa),
    "ResilPhase": plain(ResilPhase),
    "FirstBlockCache": tuning(FirstBlockCache),
    "MagCache": tuning(MagCache, calibrated_magcache),
    "EasyCache": tuning(EasyCache),
    "LazyCache": tuning(LazyCache),
    "DBCache": tuning(DBCache),
    "HiCache": plain(HiCache),
    "Spectrum": plain(Spectrum),
    "MeanCache": Entry(
        fitted_meancache, lambda options: MeanCache if "stages" in options else MeanCache.fit
    ),
    "MeanCache (equal spacing)": plain(MeanCache),
    "VDE": plain(VDE),
}


def register_method(name: str, kind: Callable[..., Method]) -> None:
    """Adds a rival by a name: its class, whose arguments are its options, or an Entry."""
    METHODS[name] = kind if isinstance(kind, Entry) else plain(kind)
