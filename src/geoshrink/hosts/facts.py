"""Facts of a host's run, as a plan's purpose has them: is this the run that the plan is for?"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..pointers import see
from ..purpose import LETTERS, SHIFTS, Purpose, is_finite, is_name

GUIDANCE = "guidance_scale"
TRUE_GUIDANCE = "true_cfg_scale"  # beside the other, where that is an input of the network
#: Settings of a scheduler that shape its grid, or say what its model's outputs are.
SHAPING = (
    *SHIFTS, "base_shift", "beta_schedule", "max_shift", "prediction_type", "timestep_spacing",
    "use_beta_sigmas", "use_dynamic_shifting", "use_exponential_sigmas", "use_karras_sigmas",
)  # fmt: skip
DYNAMIC = ("base_shift", "max_shift")  # count only where the shift is dynamic, else `shift` does
ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # as a model hub has them: owner/name
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "module")  # torch.compile, sharding, data parallel


def facts_of(
    host: Any,
    scheduler: Any = None,
    networks: Sequence[Any] = (),
    steps: int | None = None,
    variables: Mapping[str, Any] | None = None,
) -> Purpose:
    """What is known of a run.

    variables   those of the host's call, where it is running
    """
    guidance = scale_of(variables or {})
    return Purpose(
        model_id(host),
        "+".join(sorted({class_of(network) for network in networks}))[:LETTERS],
        "" if scheduler is None else type(scheduler).__name__,
        settings_of(scheduler),
        steps,
        float(guidance) if is_number(guidance) else None,
    )


def model_id(host: Any) -> str:
    """The id by which a hub knows a pipeline's model; "" for one that was loaded from a folder,
    whose path is nobody's business.
    """
    name = getattr(getattr(host, "config", None), "_name_or_path", None)
    if not isinstance(name, str) or len(name) > LETTERS or not ID.fullmatch(name):
        return ""
    return "" if Path(name).exists() else name


def class_of(network: Any) -> str:
    for wrapper in WRAPPERS:
        network = getattr(network, wrapper, network)
    config = getattr(network, "config", None)
    name = config.get("_class_name") if isinstance(config, Mapping) else None
    return name if isinstance(name, str) else type(network).__name__


def settings_of(scheduler: Any) -> tuple[tuple[str, Any], ...]:
    config = getattr(scheduler, "config", None)
    if not isinstance(config, Mapping):
        return ()
    found = {name: config[name] for name in SHAPING if name in config}
    if hasattr(type(scheduler), "shift"):  # a property: set_shift() leaves the config as it was
        found["shift"] = scheduler.shift
    for name in SHIFTS if found.get("use_dynamic_shifting") else DYNAMIC:
        found.pop(name, None)
    if not config.get("use_flow_sigmas"):
        found.pop("flow_shift", None)
    plain = (n for n, v in found.items() if is_finite(v) or is_name(v))
    return tuple((name, found[name]) for name in sorted(plain))


def guidance_of(host: Any, calls: Sequence[Mapping[str, Any]]) -> Any:
    """That of all calls, as given or as the host's call has it by default; None if they differ."""
    parameters = inspect.signature(type(host).__call__).parameters
    names = (GUIDANCE, TRUE_GUIDANCE)
    usual = {name: getattr(parameters.get(name), "default", None) for name in names}
    found = [scale_of({**usual, **call}) for call in calls]
    return found[0] if found and all(each == found[0] for each in found) else None


def scale_of(call: Mapping[str, Any]) -> Any:
    """The guidance that acts: the true one where it is there and above 1."""
    true: Any = call.get(TRUE_GUIDANCE, 0.0)
    return true if is_number(true) and true > 1 else call.get(GUIDANCE)


def is_number(value: Any) -> bool:
    return is_finite(value) and not isinstance(value, bool)


def check_purpose(plan: Any, known: Sequence[Purpose]) -> None:
    """A ValueError if a plan is for none of these runs, with the difference."""
    if plan is None or plan.purpose is None or not known:
        return
    differences = [plan.purpose.difference(facts) for facts in known]
    if all(differences):
        raise see(ValueError(differences[0]), "fit")
