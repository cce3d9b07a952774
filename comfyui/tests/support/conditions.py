"""The conditions under which geoshrink must work: patches, masks, guiders, conditioning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .graphs import (
    Graph,
    Job,
    Parts,
    basic_guider,
    cfg_guider,
    conditioning,
    custom,
    dual_guider,
    flip_sigmas,
    ksampler_twice,
    nothing,
    split_sigmas,
)

IMAGES = ("sd3", "flux", "sd15")
FLOWS = ("sd3", "flux", "wan", "hunyuan_video")
EVERY = (*FLOWS, "cogvideox", "sd15")


@dataclass(frozen=True)
class Condition:
    """A way to sample: changes of a job, for some families, where the server has the nodes.

    runs          samplings that one job makes; each has the budget
    extra         calls beyond the budget, for a change that shows only during the run
    accelerated   whether calls should be skipped; None: by the sampler's name
    slow          takes minutes: only where it is asked for
    """

    name: str
    families: tuple[str, ...] = EVERY
    patch: Callable[[Graph, Parts, Job], None] = nothing
    needs: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)
    runs: int = 1
    extra: int = 0
    accelerated: bool | None = None
    slow: bool = False

    @property
    def expected(self) -> dict[str, Any]:
        """What `check` should find."""
        return {"runs": self.runs, "extra": self.extra, "accelerated": self.accelerated}


def patched(
    node: str,
    families: tuple[str, ...] = EVERY,
    inputs: dict[str, Any] | None = None,
    **about: Any,
) -> Condition:
    """A node that takes a model and returns one."""

    def patch(graph: Graph, parts: Parts, job: Job) -> None:
        parts.model = graph.add(node, model=parts.model, **(inputs or {}))

    return Condition(node, families, patch, (node,), **about)


def differential(graph: Graph, parts: Parts, job: Job) -> None:
    parts.model = graph.add("DifferentialDiffusion", model=parts.model)


def area(graph: Graph, parts: Parts, job: Job) -> None:
    place = {"width": 0.5, "height": 0.5, "x": 0.0, "y": 0.0, "strength": 1.0}
    other = conditioning(graph, job, 3)
    part = graph.add("ConditioningSetAreaPercentage", conditioning=other, **place)
    parts.positive = graph.add(
        "ConditioningCombine", conditioning_1=parts.positive, conditioning_2=part
    )


def timesteps(graph: Graph, parts: Parts, job: Job) -> None:
    """Another prompt from 40 % of the run on."""
    early = graph.add(
        "ConditioningSetTimestepRange", conditioning=parts.positive, start=0.0, end=0.4
    )
    other = conditioning(graph, job, 3)
    late = graph.add("ConditioningSetTimestepRange", conditioning=other, start=0.4, end=1.0)
    parts.positive = graph.add("ConditioningCombine", conditioning_1=early, conditioning_2=late)


def lora(graph: Graph, parts: Parts, job: Job) -> None:
    file = f"tiny_{job.family}.safetensors"
    parts.model = graph.add(
        "LoraLoaderModelOnly", model=parts.model, lora_name=file, strength_model=1.0
    )


def control(end: float) -> Callable[[Graph, Parts, Job], None]:
    """The tiny ControlNet up to a share of the run."""

    def patch(graph: Graph, parts: Parts, job: Job) -> None:
        sizes = {"sd15": (320, 1), "sd3": (128, 2)}[job.family]
        net = graph.add("TestControl", width=sizes[0], patch=sizes[1])
        image = graph.add("EmptyImage", width=64, height=64, batch_size=1, color=0)
        both = graph.add(
            "ControlNetApplyAdvanced",
            positive=parts.positive,
            negative=parts.negative,
            control_net=net,
            image=image,
            strength=0.5,
            start_percent=0.0,
            end_percent=end,
        )
        parts.positive, parts.negative = both, [both[0], 1]

    return patch


def hooked(graph: Graph, parts: Parts, job: Job) -> None:
    """The LoRA for the positive prompt only."""
    file = f"tiny_{job.family}.safetensors"
    hooks = graph.add("CreateHookLoraModelOnly", lora_name=file, strength_model=1.0)
    parts.positive = graph.add("ConditioningSetProperties", cond_NEW=parts.positive, hooks=hooks)


INPAINT = {"latent": "noise", "mask": True}
CONDITIONS = [
    Condition("plain"),
    Condition("batch 3", changes={"batch": 3}),
    Condition("img2img, denoise 0.5", changes={"latent": "noise", "denoise": 0.5}),
    Condition("inpaint mask", changes=INPAINT),
    Condition(
        "DifferentialDiffusion",
        patch=differential,
        needs=("DifferentialDiffusion",),
        changes=INPAINT,
    ),
    Condition("area and combine", IMAGES, area),
    Condition("timestep range", patch=timesteps),
    Condition("LoRA", patch=lora, needs=("LoraLoaderModelOnly",)),
    Condition("ControlNet", ("sd3", "sd15"), control(1.0)),
    Condition("ControlNet, half", ("sd3", "sd15"), control(0.5)),
    Condition("BasicGuider", changes={"sample": custom(basic_guider)}),
    Condition("CFGGuider", changes={"sample": custom(cfg_guider)}),
    Condition("DualCFGGuider", changes={"sample": custom(dual_guider)}),
    Condition("KSamplerAdvanced twice", changes={"sample": ksampler_twice, "steps": 32}, runs=2),
    Condition("cfg 1", changes={"cfg": 1.0}),
    patched("RescaleCFG", ("sd15", "sd3"), {"multiplier": 0.7}),
    patched("CFGZeroStar", FLOWS),
    patched("CFGNorm"),
    patched("APG"),
    patched("Epsilon Scaling"),
    patched("RenormCFG", ("sd3", "flux", "sd15")),
    patched("FreSca", ("sd15",)),
    patched("Mahiro"),
    patched("SkipLayerGuidanceDiT", ("sd3", "wan"), {"double_layers": "1"}),
    patched("SkipLayerGuidanceSD3", ("sd3",), {"layers": "1"}),
    patched("PerturbedAttentionGuidance", ("sd15",)),
    patched("FreeU_V2", ("sd15",)),
    patched("HyperTile", ("sd15",)),
    patched("ModelSamplingFlux", ("flux",), {"width": 128, "height": 128}),
    patched("ModelSamplingSD3", ("sd3", "wan"), {"shift": 5.0}),
    patched("ModelSamplingDiscrete", ("sd15",), {"sampling": "v_prediction", "zsnr": True}),
    patched("ModelSamplingContinuousEDM", ("sd15",), {"sampling": "v_prediction"}),
    patched("ModelSamplingContinuousV", ("sd15",)),
    patched("LazyCache", ("sd3",), accelerated=False),
    patched("EasyCache", ("wan",), accelerated=False),
    patched("CFGOverride", ("sd3",), {"start_percent": 0.3}, extra=1),
    patched("WanContextWindowsManual", ("wan",), {"context_length": 5, "context_overlap": 1}),
    Condition("LoRA hook", ("sd3",), hooked, ("CreateHookLoraModelOnly",)),
    Condition("SplitSigmas", ("sd3",), changes={"sample": split_sigmas, "steps": 32}, runs=2),
    Condition("FlipSigmas", ("sd3",), changes={"sample": flip_sigmas}, accelerated=False),
    patched("TorchCompileModel", ("sd3",), {"backend": "inductor"}, slow=True),
]


def conditions_of(family: str, info: dict[str, Any], *, slow: bool = False) -> list[Condition]:
    """Those that a server with these nodes can run for a family."""
    return [
        condition
        for condition in CONDITIONS
        if family in condition.families
        and all(name in info for name in condition.needs)
        and (slow or not condition.slow)
    ]
