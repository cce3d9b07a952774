"""The methods by name, each made for a budget: METHODS[name](options, training, budget).

`training` gives other cases of the same setting, for methods that calibrate or tune a threshold.
A threshold that is given in the options is used as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from .vde import VDE

Make = Callable[[dict[str, Any], Callable[[], list[Case]], int], Method]


def plain(kind: Callable[..., Method], **fixed: Any) -> Make:
    """A method that needs nothing beforehand."""
    return lambda options, training, budget: kind(**{**fixed, **options})


def known(method: Method) -> Make:
    """A method that is there already, and has no options."""

    def make(options: dict[str, Any], training: Callable[[], list[Case]], budget: int) -> Method:
        if options:
            raise ValueError(f"{method.name} takes no options, got {options}")
        return method

    return make


def tuning(kind: Any) -> Make:
    """A method whose threshold is tuned to the budget, unless it is given."""

    def make(options: dict[str, Any], training: Callable[[], list[Case]], budget: int) -> Method:
        if "threshold" in options:
            return kind(**options)
        return kind.tune(training(), budget, **options)

    return make


def calibrated_teacache(
    options: dict[str, Any], training: Callable[[], list[Case]], budget: int
) -> Method:
    if "coefficients" not in options:
        options = {"coefficients": teacache.calibrate(training()), **options}
    return tuning(TeaCache)(options, training, budget)


def calibrated_magcache(
    options: dict[str, Any], training: Callable[[], list[Case]], budget: int
) -> Method:
    ratios = magcache.calibrate(training())
    return tuning(MagCache)({"ratios": ratios, **options}, training, budget)


def fitted_meancache(
    options: dict[str, Any], training: Callable[[], list[Case]], budget: int
) -> Method:
    """With the stages of the cheapest path, which its authors find beforehand."""
    if "stages" in options:
        return MeanCache(**options)
    return MeanCache.fit(training(), budget, **options)


METHODS: dict[str, Make] = {
    "full run, again": known(Again()),
    "direct": known(Direct()),
    **{name: known(method) for name, method in OURS.items()},
    "GeoShrink": plain(Ours),
    "GeoShrink (planned)": lambda options, training, budget: Planned.fit(training(), budget),
    **{name: known(method) for name, method in SOLVERS.items()},
    "FORA": plain(Fora),
    "TeaCache": calibrated_teacache,
    "TeaCache (uncalibrated)": tuning(TeaCache),
    "ToCa": plain(ToCa),
    "TaylorSeer": plain(TaylorSeer),
    "TaylorSeer-Lite": plain(TaylorSeerLite),
    "SpeCa": tuning(SpeCa),
    "ResilPhase": plain(ResilPhase),
    "FirstBlockCache": tuning(FirstBlockCache),
    "MagCache": calibrated_magcache,
    "EasyCache": tuning(EasyCache),
    "LazyCache": tuning(LazyCache),
    "DBCache": tuning(DBCache),
    "HiCache": plain(HiCache),
    "Spectrum": plain(Spectrum),
    "MeanCache": fitted_meancache,
    "MeanCache (equal spacing)": plain(MeanCache),
    "VDE": plain(VDE),
}
