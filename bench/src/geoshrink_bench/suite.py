"""A suite: which models, settings, methods and budgets are run. A YAML file, or a dictionary.

    name: fruit
    samples: 32            # per seed
    seeds: 5
    models:
      fruit: {budgets: [7, 10], guidance: [1.5, 3], shift: [1, 3]}
      motion: {}           # budgets, guidance, shift, steps: the model's own where left out
    methods: [direct, GeoShrink (default), FORA, {TaylorSeer: {order: 2}}]
    metrics: all           # what the models have; plain, if left out, is one for each tensor
    precision: high        # matrix products on a GPU in TF32 (torch's names: highest, high, medium)
    keep: 2                # samples of each cell to look at, and the error along the way
    latency: true          # time each method alone, after all else, at a model's first setting

Cells come in the order of the file: what matters most first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from geoshrink.checks import check_switch, is_number, whole

from .methods.registry import METHODS, check_options
from .metrics.zoo import names
from .zoo.recipes import RECIPES

NUMBERS = ("samples", "seeds", "converged", "repeats")
KEYS = {"name", "models", "methods", "metrics", "latency", "precision", "keep", *NUMBERS}
PRECISIONS = ("highest", "high", "medium")  # torch's names: float32, TF32, bfloat16 products
SETTINGS = {"budgets", "guidance", "shift", "steps", "interval", "lengths"}
BUDGETS = (10, 15, 20)


@dataclass(frozen=True)
class Suite:
    name: str
    models: list[tuple[str, dict[str, Any]]]
    methods: list[tuple[str, dict[str, Any]]]
    samples: int = 32
    seeds: int = 5
    converged: int = 800  # steps of the second reference
    latency: bool = False
    keep: int = 0  # samples of each cell, to be looked at
    metrics: str | tuple[str, ...] = "plain"  # or "all", or their names
    precision: str = "highest"  # of matrix products on a GPU
    repeats: int = 5
    source: dict[str, Any] = field(default_factory=dict, compare=False)

    def settings(self) -> list[tuple[dict[str, Any], list[int]]]:
        """(the specification of a reference, its budgets): every model × guidance × shift."""
        found = []
        for model, given in self.models:
            budgets = many(given.get("budgets", list(BUDGETS)))
            own = RECIPES[model].judged_at
            steps = given.get("steps", own["steps"])
            for guidance in many(given.get("guidance", own["guidance"])):
                for shift in shifts(given.get("shift", own["shift"]), RECIPES[model].joint):
                    setting = dict(
                        model=model,
                        steps=steps,
                        guidance=guidance,
                        shift=shift,
                        interval=given.get("interval"),
                        lengths=given.get("lengths"),
                        samples=self.samples,
                        seeds=self.seeds,
                        precision=self.precision,
                    )
                    found.append((setting, budgets))
        return found

    def cells(self) -> list[dict[str, Any]]:
        """Every setting × budget × method."""
        found = []
        for setting, budgets in self.settings():
            for budget in budgets:
                for method, options in self.methods:
                    found.append(
                        dict(setting=setting, budget=budget, method=method, options=options)
                    )
        return found

    def first_of_each(self) -> list[dict[str, Any]]:
        """The cells of each model's first setting and budget."""
        first: dict[str, tuple[Any, int]] = {}
        for setting, budgets in self.settings():
            first.setdefault(setting["model"], (setting, budgets[0]))
        chosen = first.values()
        return [cell for cell in self.cells() if (cell["setting"], cell["budget"]) in chosen]


def many(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def shifts(value: Any, joint: bool) -> list[Any]:
    """A list of shifts; of a model with two σ-grids each is a pair."""
    if not joint:
        return many(value)
    pairs = value if isinstance(value[0], (list, tuple)) else [value]
    return [list(pair) for pair in pairs]


def read(source: str | Path | Mapping[str, Any]) -> Suite:
    """A suite from a YAML file or a dictionary; mistakes are quoted."""
    if isinstance(source, Mapping):
        given, where = dict(source), "the suite"
    else:
        given, where = {"name": Path(source).stem, **load(Path(source))}, str(source)
    check(where, given, KEYS, "key")
    for key in ("models", "methods"):
        if not given.get(key):
            raise ValueError(f"{where} has no {key}")
    models = []
    for model, settings in pairs_of(where, given["models"]):
        if model not in RECIPES:
            raise ValueError(f"{where}: no model {model!r}; the zoo has {', '.join(RECIPES)}")
        check(f"{where}: {model}", settings or {}, SETTINGS, "setting")
        check_setting(f"{where}: {model}", model, settings or {})
        models.append((model, dict(settings or {})))
    if not isinstance(given["methods"], (list, tuple)):
        raise ValueError(f"{where}: methods are a list, got {given['methods']!r}")
    methods = [method_of(where, item) for item in given["methods"]]
    for key in NUMBERS:
        if key in given and whole(given[key], f"{where}: {key}") < 1:
            raise ValueError(f"{where}: {key} must be at least 1, got {given[key]!r}")
    if not 0 <= whole(given.get("keep", 0), f"{where}: keep") <= given.get("samples", 32):
        raise ValueError(f"{where}: keep must be from 0 to the samples, got {given['keep']!r}")
    check_switch(f"{where}: latency", given.get("latency", False))
    if given.get("precision", "highest") not in PRECISIONS:
        raise ValueError(
            f"{where}: precision must be one of {', '.join(PRECISIONS)}, got {given['precision']!r}"
        )
    rest = {k: v for k, v in given.items() if k in ("latency", "precision", "keep", *NUMBERS)}
    rest["metrics"] = metrics_in(where, given.get("metrics", "plain"))
    name = str(given.get("name", "suite"))
    return Suite(name, models, methods, source=given, **rest)


def load(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ImportError("suites need PyYAML: pip install geoshrink-bench") from None
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold keys such as models and methods, not {found!r}")
    return found


def metrics_in(where: str, given: Any) -> str | tuple[str, ...]:
    if given in ("plain", "all"):
        return given
    known = names()
    chosen = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(
            f"{where}: no metric {unknown[0]!r}; say plain, all, or some of {', '.join(known)}"
        )
    return chosen


def check(where: str, given: Mapping[str, Any], known: set[str], what: str) -> None:
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(
            f"{where}: unknown {what} {unknown[0]!r}; there are {', '.join(sorted(known))}"
        )


def check_setting(where: str, model: str, given: Mapping[str, Any]) -> None:
    """Budgets within the steps, and numbers where numbers are wanted."""
    for key in ("budgets", "guidance", "shift"):
        if key in given and not many(given[key]):
            raise ValueError(f"{where}: {key} is empty: give at least one, or leave it out")
    steps = whole(given.get("steps", RECIPES[model].judged_at["steps"]), f"{where}: steps")
    for budget in many(given.get("budgets", [])):
        if not 1 <= whole(budget, f"{where}: a budget") <= steps:
            raise ValueError(f"{where}: budget {budget} is not from 1 to its {steps} steps")
    if not all(map(finite, many(given.get("guidance", [])))):
        raise ValueError(f"{where}: guidance must be numbers, got {given['guidance']!r}")
    joint = RECIPES[model].joint
    for shift in many(given.get("shift", [])):
        pair = shift if isinstance(shift, (list, tuple)) else [shift]
        flat = joint and not isinstance(shift, (list, tuple)) and len(many(given["shift"])) != 2
        odd = isinstance(shift, (list, tuple)) and not (joint and len(shift) == 2)
        if flat or odd or not all(finite(s) and s > 0 for s in pair):
            wanted = "pairs of numbers" if joint else "numbers"
            raise ValueError(f"{where}: shift must be {wanted} above 0, got {given['shift']!r}")
    ends = given.get("interval")
    if ends is not None and not (is_pair(ends) and ends[0] <= ends[1]):
        raise ValueError(f"{where}: interval is [lowest σ, highest σ], got {ends!r}")
    check_lengths(where, model, given.get("lengths"))


def check_lengths(where: str, model: str, lengths: Any) -> None:
    if lengths is None:
        return
    most = RECIPES[model].shapes[0][-1]
    if model != "motion":
        raise ValueError(f"{where}: lengths {lengths!r}: only motion has samples of many sizes")
    if not isinstance(lengths, (list, tuple)) or not lengths:
        raise ValueError(f"{where}: lengths must be a list of numbers, got {lengths!r}")
    if not all(1 <= whole(length, f"{where}: a length") <= most for length in lengths):
        raise ValueError(f"{where}: lengths must be from 1 to {most}, got {lengths!r}")


def finite(value: Any) -> bool:
    return is_number(value) and not isinstance(value, bool) and math.isfinite(value)


def is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(finite, value))


def pairs_of(where: str, given: Any) -> list[tuple[str, Any]]:
    """(name, settings) of a mapping, or of a list of mappings where a model comes twice."""
    parts = given if isinstance(given, (list, tuple)) else [given]
    if not all(isinstance(part, Mapping) for part in parts):
        raise ValueError(f"{where}: models are name: settings, such as fruit: {{}}; got {given!r}")
    pairs = [pair for part in parts for pair in part.items()]
    for name, settings in pairs:
        if settings is not None and not isinstance(settings, Mapping):
            raise ValueError(f"{where}: {name} has settings such as budgets, got {settings!r}")
    return pairs


def method_of(where: str, item: Any) -> tuple[str, dict[str, Any]]:
    one = isinstance(item, Mapping) and len(item) == 1
    if not (one or isinstance(item, str)):
        raise ValueError(f"{where}: a method is a name, or name: settings; got {item!r}")
    name, options = (item, {}) if isinstance(item, str) else next(iter(item.items()))
    if name not in METHODS:
        raise ValueError(f"{where}: no method {name!r}; there are {', '.join(METHODS)}")
    if not isinstance(options or {}, Mapping):
        raise ValueError(f"{where}: {name} has settings by name, got {options!r}")
    try:
        check_options(name, options or {})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return name, dict(options or {})
