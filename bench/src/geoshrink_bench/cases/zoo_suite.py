"""A suite on models of the zoo.

    name: fruit
    samples: 32            # per seed
    seeds: 5
    models:
      fruit: {budgets: [7, 10], guidance: [1.5, 3], shift: [1, 3]}
      motion: {}           # budgets, guidance, shift, steps: the model's own where left out
    methods: [direct, GeoShrink (corrected), FORA, {TaylorSeer: {order: 2}}]
    metrics: all           # what the models have; plain, if left out, is one for each tensor
    precision: high        # matrix products on a GPU in TF32 (torch's names: highest, high, medium)
    keep: 2                # samples of each cell to look at, and the error along the way
    latency: true          # time each method alone, after all else, at a model's first setting

Cells come in the order of the file: what matters most first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from geoshrink.checks import whole

from ..methods.registry import METHODS, check_options
from ..metrics.zoo import names
from ..models import recipes
from ..schema import Key, checked, count, finite, list_of, mapping, one_of, switch, text

PRECISIONS = ("highest", "high", "medium")  # torch's names: float32, TF32, bfloat16 products
BUDGETS = (10, 15, 20)


@dataclass(frozen=True)
class ZooSuite:
    name: str
    models: list[tuple[str, dict[str, Any]]]
    methods: list[tuple[str, dict[str, Any]]]
    samples: int
    seeds: int
    converged: int  # steps of the second reference
    latency: bool
    keep: int  # samples of each cell, to be looked at
    metrics: str | tuple[str, ...]  # "plain", "all", or their names
    precision: str  # of matrix products on a GPU
    repeats: int
    source: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def read(cls, where: str, given: dict[str, Any]) -> ZooSuite:
        found = checked(where, given, KEYS)
        if found["keep"] > found["samples"]:
            raise ValueError(f"{where}: keep must be from 0 to the samples, got {found['keep']!r}")
        return cls(**found, source=given)

    def settings(self) -> list[tuple[dict[str, Any], list[int]]]:
        """(the specification of a reference, its budgets): every model × guidance × shift."""
        found = []
        for model, given in self.models:
            recipe = recipes()[model]
            at = {**recipe.judged_at, "interval": None, "lengths": None, **given}
            for guidance in many(at["guidance"]):
                for shift in shifts(at["shift"], recipe.joint):
                    own = dict(model=model, steps=at["steps"], guidance=guidance, shift=shift)
                    own |= dict(interval=at["interval"], lengths=at["lengths"])
                    own |= dict(samples=self.samples, seeds=self.seeds, precision=self.precision)
                    found.append((own, many(at.get("budgets", list(BUDGETS)))))
        return found

    def cells(self) -> list[dict[str, Any]]:
        """Every setting × budget × method."""
        return [
            dict(setting=setting, budget=budget, method=method, options=options)
            for setting, budgets in self.settings()
            for budget in budgets
            for method, options in self.methods
        ]

    def timed(self) -> list[dict[str, Any]]:
        """The cells of each model's first setting and budget, where the suite asks for seconds."""
        first: dict[str, tuple[Any, int]] = {}
        for setting, budgets in self.settings():
            first.setdefault(setting["model"], (setting, budgets[0]))
        chosen = list(first.values()) if self.latency else []
        return [cell for cell in self.cells() if (cell["setting"], cell["budget"]) in chosen]


def many(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def shifts(value: Any, joint: bool) -> list[Any]:
    """A list of shifts; each is a pair where a model has two σ-grids."""
    if not joint:
        return many(value)
    pairs = value if isinstance(value[0], (list, tuple)) else [value]
    return [list(pair) for pair in pairs]


def models_in(where: str, given: Any) -> list[tuple[str, dict[str, Any]]]:
    """(name, settings) of a mapping, or of a list of mappings where a model comes twice."""
    where = where.rpartition(": ")[0]
    parts = given if isinstance(given, (list, tuple)) else [given]
    if not all(isinstance(part, Mapping) for part in parts):
        raise ValueError(f"{where}: models are name: settings, such as fruit: {{}}; got {given!r}")
    found = []
    for model, settings in (pair for part in parts for pair in part.items()):
        if model not in recipes():
            raise ValueError(f"{where}: no model {model!r}; the zoo has {', '.join(recipes())}")
        if not isinstance(settings or {}, Mapping):
            raise ValueError(f"{where}: {model} has settings such as budgets, got {settings!r}")
        checked(f"{where}: {model}", settings or {}, keys_of(model, settings or {}), "setting")
        found.append((model, dict(settings or {})))
    return found


def keys_of(model: str, given: Mapping[str, Any]) -> dict[str, Key]:
    """The settings that a model has."""
    recipe = recipes()[model]
    steps = given.get("steps", recipe.judged_at["steps"])

    def some(where: str, value: Any) -> list[Any]:
        if not many(value):
            raise ValueError(f"{where} is empty: give at least one, or leave it out")
        return many(value)

    def budgets(where: str, value: Any) -> None:
        for budget in some(where, value):
            if not 1 <= whole(budget, where) <= steps:
                at = where.rpartition(": ")[0]
                raise ValueError(f"{at}: budget {budget} is not from 1 to its {steps} steps")

    def guidance(where: str, value: Any) -> None:
        if not all(map(finite, some(where, value))):
            raise ValueError(f"{where} must be numbers, got {value!r}")

    def shift(where: str, value: Any) -> None:
        given, wanted = some(where, value), "pairs of numbers" if recipe.joint else "numbers"
        if recipe.joint:
            nested = [pair for pair in given if isinstance(pair, (list, tuple))]
            pairs = nested if len(nested) == len(given) else [given]
            good, flat = all(len(p) == 2 for p in pairs), [s for p in pairs for s in p]
        else:
            good, flat = True, given
        if not good or not all(finite(s) and s > 0 for s in flat):
            raise ValueError(f"{where} must be {wanted} above 0, got {value!r}")

    def interval(where: str, ends: Any) -> None:
        pair = isinstance(ends, (list, tuple)) and len(ends) == 2 and all(map(finite, ends))
        if ends is not None and not (pair and ends[0] <= ends[1]):
            raise ValueError(f"{where} is [lowest σ, highest σ], got {ends!r}")

    def lengths(where: str, value: Any) -> None:
        most = recipe.shapes[0][-1]
        if value is None:
            return
        if not recipe.modality.varies:
            raise ValueError(f"{where} {value!r}: {model} has samples of one size")
        if not isinstance(value, (list, tuple)) or not value:
            raise ValueError(f"{where} must be a list of numbers, got {value!r}")
        if not all(1 <= whole(length, where) <= most for length in value):
            raise ValueError(f"{where} must be from 1 to {most}, got {value!r}")

    checks = dict(budgets=budgets, guidance=guidance, shift=shift, interval=interval)
    checks |= dict(lengths=lengths, steps=count)
    return {name: Key(check, None) for name, check in checks.items()}


def method_in(where: str, item: Any) -> tuple[str, dict[str, Any]]:
    where = where.rpartition(": ")[0]
    one = isinstance(item, Mapping) and len(item) == 1
    if not (one or isinstance(item, str)):
        raise ValueError(f"{where}: a method is a name, or name: settings; got {item!r}")
    name, options = (item, {}) if isinstance(item, str) else next(iter(item.items()))
    if name not in METHODS:
        raise ValueError(f"{where}: no method {name!r}; there are {', '.join(METHODS)}")
    options = mapping(f"{where}: {name}", options)
    try:
        check_options(name, options)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return name, options


def metrics_in(where: str, given: Any) -> str | tuple[str, ...]:
    if given in ("plain", "all"):
        return given
    known, chosen = names(), tuple(many(given))
    unknown = [name for name in chosen if name not in known]
    if unknown:
        known = ", ".join(known)
        raise ValueError(f"{where}: no metric {unknown[0]!r}; say plain, all, or some of {known}")
    return chosen


def kept(where: str, value: Any) -> int:
    return count(where, value, least=0)


KEYS = {
    "name": Key(text, "suite"),
    "models": Key(models_in),
    "methods": Key(list_of(method_in, "names")),
    "samples": Key(count, 32),
    "seeds": Key(count, 5),
    "converged": Key(count, 800),
    "latency": Key(switch, False),
    "keep": Key(kept, 0),
    "metrics": Key(metrics_in, "plain"),
    "precision": Key(one_of(PRECISIONS), "highest"),
    "repeats": Key(count, 5),
}
