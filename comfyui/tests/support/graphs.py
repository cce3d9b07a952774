"""Prompts in ComfyUI's API format: loader → counter → patches → GeoShrink → sampler → files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .families import FAMILIES

Ref = list[Any]  # [node, output]
Prompt = dict[str, dict[str, Any]]


class Graph:
    """A prompt that grows node by node."""

    def __init__(self) -> None:
        self.prompt: Prompt = {}

    def add(self, kind: str, /, **inputs: Any) -> Ref:
        """Add a node; its id is its class, numbered from the second one of a class on."""
        number = sum(node["class_type"] == kind for node in self.prompt.values())
        name = f"{kind}{number + 1}" if number else kind
        self.prompt[name] = {"class_type": kind, "inputs": inputs}
        return [name, 0]


@dataclass
class Parts:
    """What a condition may change before the sampler is added."""

    model: Ref
    positive: Ref
    negative: Ref
    latent: Ref


def nothing(graph: Graph, parts: Parts, job: Job) -> None:
    """No condition."""


@dataclass(frozen=True)
class Job:
    """One sampling.

    geoshrink   the inputs of a GeoShrink node beside the model; None: no such node
    patch       changes model, conditioning or latent before GeoShrink
    sample      adds the sampler and returns its latent
    tag         a new one makes the sampler run again where nothing else has changed
    """

    family: str
    geoshrink: dict[str, Any] | None = None
    steps: int = 20
    sampler: str = "euler"
    scheduler: str = "simple"
    cfg: float = 4.0
    seed: int = 5
    denoise: float = 1.0
    batch: int = 1
    latent: str = "zeros"
    mask: bool = False
    patch: Callable[[Graph, Parts, Job], None] = nothing
    sample: Callable[[Graph, Parts, Job], Ref] = field(default_factory=lambda: ksampler)
    tag: int = 0


def workflow(job: Job) -> Prompt:
    """The prompt of a job, with the nodes TestSave and TestCounts at its end."""
    graph, family = Graph(), FAMILIES[job.family]
    file = f"tiny_{job.family}.safetensors"
    model = graph.add("UNETLoader", unet_name=file, weight_dtype="default")
    parts = Parts(
        model=graph.add("TestCount", model=model, name="counts"),
        positive=conditioning(graph, job, 1),
        negative=conditioning(graph, job, 2),
        latent=graph.add(
            "TestLatent",
            shape=family.shape(job.batch),
            kind=job.latent,
            mask=job.mask,
            tag=job.tag,
        ),
    )
    job.patch(graph, parts, job)
    if job.geoshrink is not None:
        parts.model = graph.add("GeoShrink", model=parts.model, **job.geoshrink)
    latent = job.sample(graph, parts, job)
    graph.add("TestSave", latent=latent, name="latent")
    graph.add("TestCounts", latent=latent, name="counts")
    return graph.prompt


def conditioning(graph: Graph, job: Job, draw: int) -> Ref:
    family = FAMILIES[job.family]
    sizes = {"tokens": family.tokens, "width": family.width, "pooled": family.pooled}
    return graph.add("TestConditioning", **sizes, draw=draw)


def ksampler(graph: Graph, parts: Parts, job: Job) -> Ref:
    return graph.add(
        "KSampler",
        model=parts.model,
        positive=parts.positive,
        negative=parts.negative,
        latent_image=parts.latent,
        seed=job.seed,
        steps=job.steps,
        cfg=job.cfg,
        sampler_name=job.sampler,
        scheduler=job.scheduler,
        denoise=job.denoise,
    )


def ksampler_twice(graph: Graph, parts: Parts, job: Job) -> Ref:
    """Two KSamplerAdvanced, one for each half of the steps, as for Wan 2.2."""
    half, latent = job.steps // 2, parts.latent
    for first in (True, False):
        latent = graph.add(
            "KSamplerAdvanced",
            model=parts.model,
            positive=parts.positive,
            negative=parts.negative,
            latent_image=latent,
            noise_seed=job.seed,
            steps=job.steps,
            cfg=job.cfg,
            sampler_name=job.sampler,
            scheduler=job.scheduler,
            add_noise="enable" if first else "disable",
            start_at_step=0 if first else half,
            end_at_step=half if first else job.steps,
            return_with_leftover_noise="enable" if first else "disable",
        )
    return latent


def custom(guide: Callable[[Graph, Parts, Job], Ref]) -> Callable[[Graph, Parts, Job], Ref]:
    """SamplerCustomAdvanced with a guider."""

    def sample(graph: Graph, parts: Parts, job: Job) -> Ref:
        sigmas, noise = scheduled(graph, parts, job), graph.add("RandomNoise", noise_seed=job.seed)
        return sampled(graph, job, guide(graph, parts, job), noise, sigmas, parts.latent)

    return sample


def split_sigmas(graph: Graph, parts: Parts, job: Job) -> Ref:
    """Two SamplerCustomAdvanced, one for each half of the steps."""
    guider, sigmas = cfg_guider(graph, parts, job), scheduled(graph, parts, job)
    halves = graph.add("SplitSigmas", sigmas=sigmas, step=job.steps // 2)
    noise = graph.add("RandomNoise", noise_seed=job.seed)
    first = sampled(graph, job, guider, noise, halves, parts.latent)
    return sampled(graph, job, guider, graph.add("DisableNoise"), [halves[0], 1], first)


def flip_sigmas(graph: Graph, parts: Parts, job: Job) -> Ref:
    """From a picture to its noise: σ grows."""
    flipped = graph.add("FlipSigmas", sigmas=scheduled(graph, parts, job))
    guider, noise = cfg_guider(graph, parts, job), graph.add("DisableNoise")
    return sampled(graph, job, guider, noise, flipped, parts.latent)


def scheduled(graph: Graph, parts: Parts, job: Job) -> Ref:
    words = {"scheduler": job.scheduler, "steps": job.steps, "denoise": job.denoise}
    return graph.add("BasicScheduler", model=parts.model, **words)


def sampled(graph: Graph, job: Job, guider: Ref, noise: Ref, sigmas: Ref, latent: Ref) -> Ref:
    return graph.add(
        "SamplerCustomAdvanced",
        noise=noise,
        guider=guider,
        sampler=graph.add("KSamplerSelect", sampler_name=job.sampler),
        sigmas=sigmas,
        latent_image=latent,
    )


def basic_guider(graph: Graph, parts: Parts, job: Job) -> Ref:
    return graph.add("BasicGuider", model=parts.model, conditioning=parts.positive)


def cfg_guider(graph: Graph, parts: Parts, job: Job) -> Ref:
    prompts = {"positive": parts.positive, "negative": parts.negative}
    return graph.add("CFGGuider", model=parts.model, **prompts, cfg=job.cfg)


def dual_guider(graph: Graph, parts: Parts, job: Job) -> Ref:
    return graph.add(
        "DualCFGGuider",
        model=parts.model,
        cond1=parts.positive,
        cond2=conditioning(graph, job, 3),
        negative=parts.negative,
        cfg_conds=job.cfg,
        cfg_cond2_negative=2.0,
    )


def complete(prompt: Prompt, info: dict[str, Any]) -> Prompt:
    """Give every required widget that a prompt leaves out the default of the running server."""
    filled = {}
    for name, node in prompt.items():
        inputs = dict(node["inputs"])
        for key, spec in info[node["class_type"]]["input"].get("required", {}).items():
            if key not in inputs:
                inputs[key] = default(spec)
        filled[name] = {"class_type": node["class_type"], "inputs": inputs}
    return filled


def default(spec: list[Any]) -> Any:
    """The default of one input as /object_info gives it: [type, options]."""
    options = spec[1] if len(spec) > 1 else {}
    kind, choices = spec[0], options.get("options", [])
    if isinstance(kind, list):  # the older way to write a combo
        kind, choices = "COMBO", kind
    empty = {"INT": 0, "FLOAT": 0.0, "BOOLEAN": False, "STRING": ""}
    return options.get("default", choices[0] if choices else empty.get(kind))
