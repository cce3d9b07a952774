"""How many forwards of the network a sample took: guidance runs it twice wherever it acts."""

from __future__ import annotations

import statistics
from typing import Any, cast

from .zoo.model import Model, within
from .zoo.recipes import RECIPES


def forwards_of(spec: dict[str, Any], result: dict[str, Any]) -> float:
    """A cell's evaluations, each counted once for every branch of guidance at its stage.

    Work done between the evaluated stages is counted as if spread evenly over them.
    """
    setting, evaluated = spec["setting"], result["evaluated"]
    steps = setting["steps"]
    if spec["method"] == "direct" or spec["method"].endswith(", direct grid"):
        steps = max(evaluated) + 1  # stages of a short grid of its own
    each = branches(setting, steps)
    between = [count for n, count in enumerate(each) if n not in evaluated] or each
    partial = result["evaluations"] - len(evaluated)
    return sum(each[n] for n in evaluated) + partial * statistics.fmean(between)


def branches(setting: dict[str, Any], steps: int) -> list[int]:
    """Of every stage of a grid: two where guidance acts.

    >>> branches(dict(model="objects", guidance=3, shift=1, interval=[0.5, 0.9]), 5)
    [1, 2, 2, 1, 1]
    """
    if setting["guidance"] == 1:
        return [1] * steps
    if not setting["interval"]:
        return [2] * steps
    model = Model(RECIPES[setting["model"]], cast(Any, None), {}, "")  # its grid needs no network
    sigmas = model.sigmas(steps, setting["shift"])
    levels = list(zip(*sigmas)) if model.recipe.joint else sigmas
    return [1 + within(level, setting["interval"]) for level in levels[:-1]]
