"""The methods by name, each made for a budget: `METHODS[name](options, training, budget)`.

`training` gives other cases of the same setting, for methods that calibrate or tune. A threshold
that is given in the options is used as it is; a warm-up is the authors' own, the one given, or with
warm_up="tuned" the best of those that every method may choose from. So are the other options that
tuning.CHOICES names; several are tuned together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from geoshrink.checks import whole
from geoshrink.plan import Plan

from . import magcache, tacache, teacache
from .base import Case, Method
from .budcache import BudCache
from .budcache_whole import BudCacheWhole
from .dbcache import DBCache
from .direct import Again, Direct
from .dpcache import DPCache
from .dpcache_whole import DPCacheWhole
from .easycache import EasyCache, LazyCache
from .fastflow import FastFlow
from .firstblock import FirstBlockCache
from .flowcast import FlowCast
from .fora import Fora
from .hicache import HiCache
from .l2p import L2P
from .magcache import MagCache
from .meancache import MeanCache
from .ours import OURS, Learned, Ours, Planned
from .predit import PrediT
from .resilphase import ResilPhase
from .seacache import SeaCache
from .solvers import SOLVERS
from .speca import SpeCa
from .spectrum import Spectrum
from .tacache import TACache
from .taylorseer import TaylorSeer, TaylorSeerLite
from .teacache import TeaCache
from .teacache_whole import TeaCacheWhole
from .toca import ToCa
from .tuning import TUNED, check_tuned, with_best
from .vde import VDE
from .zeus import Zeus

Training = Callable[[], Sequence[Case]]
Make = Callable[[dict[str, Any], Training, int], Method]
#: Arguments that are the bench's to give, or the grid's.
GIVEN = {"cases", "budget", "sigmas", "speedup", "prediction", "alphas", "data", "regimes"}


@dataclass(frozen=True)
class Entry:
    """A method made by `kind` from its options, or by `fit` from training cases and a budget, too.

    given       the option with which there is nothing to fit
    calibrate   an option, and what finds it on the training cases where it is not given
    options     whose arguments the options are, where kind passes them on
    """

    kind: Callable[..., Method]
    fit: Callable[..., Method] | None = None
    given: str | None = "threshold"
    calibrate: tuple[str, Callable[[Sequence[Case]], Any]] | None = None
    options: Callable[..., Any] | None = None

    def called(self, options: Mapping[str, Any]) -> Callable[..., Any]:
        return self.kind if self.fit is None or self.given in options else self.fit

    def takes(self, options: Mapping[str, Any]) -> set[str]:
        """The names of its options, which may depend on those given."""
        return options_of(self.options or self.called(options))

    def __call__(self, options: dict[str, Any], training: Training, budget: int) -> Method:
        if self.calibrate is not None and self.calibrate[0] not in options:
            name, of = self.calibrate
            options = {name: of(training()), **options}
        open_ones = [
            name for name, value in options.items() if isinstance(value, str) and value == TUNED
        ]
        if open_ones:

            def make(setting: dict[str, Any]) -> Method:
                return self({**options, **setting}, training, budget)

            return with_best(make, open_ones, training(), budget)
        make_it = self.called(options)
        cases = (training(), budget) if make_it == self.fit else ()
        return make_it(*cases, **options)


def known(method: Method) -> Entry:
    """A method that is there already, and has no options."""
    return Entry(lambda: method)


def check_options(method: str, options: Mapping[str, Any]) -> None:
    """Refuses an option that a method does not have, before anything runs."""
    entry = METHODS[method]
    if not isinstance(entry, Entry):
        return
    names = entry.takes(options)
    unknown = [name for name in options if name not in names]
    if unknown:
        has = f"its options are {', '.join(sorted(names))}" if names else "it takes none"
        raise ValueError(f"{method} has no option {unknown[0]!r}; {has}")
    check_tuned(method, options)
    if options.get("warm_up", TUNED) != TUNED and whole(options["warm_up"], "warm_up") < 1:
        raise ValueError(f"warm_up is at least 1, or {TUNED}; got {options['warm_up']!r}")


def options_of(call: Any) -> set[str]:
    """The names of what one may give it; what it passes on is its class's."""
    found = signature(call).parameters.values()
    names = {p.name for p in found if p.kind is not Parameter.VAR_KEYWORD}
    passes_on = len(names) < len(found)
    return (names | options_of(call.__self__) if passes_on else names) - GIVEN


METHODS: dict[str, Make] = {
    "full run, again": known(Again()),
    "direct": known(Direct()),
    **{name: known(method) for name, method in OURS.items()},
    "GeoShrink": Entry(Ours, options=Plan.of),
    "GeoShrink (planned)": Entry(Planned, Planned.fit, given=None),
    "GeoShrink (learned)": Entry(Learned, Learned.fit, given=None),
    **{name: known(method) for name, method in SOLVERS.items()},
    "FORA": Entry(Fora),
    "TeaCache": Entry(TeaCache, TeaCache.tune, calibrate=("coefficients", teacache.calibrate)),
    "TeaCache (uncalibrated)": Entry(TeaCache, TeaCache.tune),
    "TeaCache (whole network)": Entry(TeaCacheWhole, TeaCacheWhole.fit),
    "ToCa": Entry(ToCa),
    "TaylorSeer": Entry(TaylorSeer),
    "TaylorSeer-Lite": Entry(TaylorSeerLite),
    "SpeCa": Entry(SpeCa, SpeCa.tune),
    "ResilPhase": Entry(ResilPhase),
    "FirstBlockCache": Entry(FirstBlockCache, FirstBlockCache.tune),
    "MagCache": Entry(MagCache, MagCache.tune, calibrate=("ratios", magcache.calibrate)),
    "EasyCache": Entry(EasyCache, EasyCache.tune),
    "LazyCache": Entry(LazyCache, LazyCache.tune),
    "DBCache": Entry(DBCache, DBCache.tune),
    "HiCache": Entry(HiCache),
    "Spectrum": Entry(Spectrum),
    "MeanCache": Entry(MeanCache, MeanCache.fit, given="stages"),
    "MeanCache (equal spacing)": Entry(MeanCache),
    "VDE": Entry(VDE),
    "ZEUS": Entry(Zeus),
    "PrediT": Entry(PrediT, PrediT.tune),
    "TACache": Entry(TACache, calibrate=("statistics", tacache.calibrate)),
    "FastFlow": Entry(FastFlow, FastFlow.fit, given="stages"),
    "FlowCast": Entry(FlowCast, FlowCast.tune),
    "SeaCache": Entry(SeaCache, SeaCache.tune),
    "L2P-Cache": Entry(L2P, L2P.fit, given="weights"),
    "BudCache": Entry(BudCache, BudCache.fit, given="stages"),
    "BudCache (whole network)": Entry(BudCacheWhole, BudCacheWhole.fit, given="stages"),
    "DPCache": Entry(DPCache, DPCache.fit, given="stages"),
    "DPCache (whole network)": Entry(DPCacheWhole, DPCacheWhole.fit, given="stages"),
}


def register_method(name: str, kind: Callable[..., Method]) -> None:
    """Adds a rival by a name: its class, whose arguments are its options, or an Entry."""
    METHODS[name] = kind if isinstance(kind, Entry) else Entry(kind)
