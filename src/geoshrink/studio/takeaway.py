"""What to take along: the lines of Python, the ComfyUI node and the plan that make a run again."""

from __future__ import annotations

import json
from typing import Any

from ..compare.outcomes import DIRECT, PAPER, PLANNED
from .model import Ran
from .setting import Setting


def comfyui(setting: Setting, ran: Ran | None) -> str:
    """The settings of the nodes, as ComfyUI's API writes them; direct needs only fewer steps."""
    sampler: dict[str, Any] = {
        "seed": setting.seed,
        "steps": setting.budget if setting.form == DIRECT else setting.steps,
        "cfg": setting.guidance,
        "sampler_name": "euler",
        "scheduler": "simple",
    }
    if setting.guidance is None:
        del sampler["cfg"]
    nodes: dict[str, Any] = {"sampler": {"class_type": "KSampler", "inputs": sampler}}
    if setting.shift is not None:
        shift = {"class_type": "ModelSamplingSD3", "inputs": {"shift": setting.shift}}
        nodes = {"shift": shift, **nodes}
    if setting.form != DIRECT:
        nodes = {"geoshrink": {"class_type": "GeoShrink", "inputs": node(setting, ran)}, **nodes}
    return json.dumps(nodes, indent=2, ensure_ascii=False)


def node(setting: Setting, ran: Ran | None) -> dict[str, Any]:
    """What the node has no words for goes by the plan."""
    if setting.form in (PLANNED, PAPER) and (plan := plan_json(ran)):
        return {"plan": plan}
    return {**setting.amount(), **setting.chosen}


def plan_json(ran: Ran | None) -> str:
    """Empty of a run that has none."""
    return "" if ran is None or ran.plan is None else ran.plan.to_json()
