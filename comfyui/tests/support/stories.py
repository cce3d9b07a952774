"""Checks of more than one prompt: interrupts, errors, switching between workflows and models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .checks import Row, same
from .graphs import Graph, Job, Parts, ksampler, workflow
from .runner import Runner

FAST = {"budget": 8}


def failing(graph: Graph, parts: Parts, job: Job) -> None:
    parts.model = graph.add("TestFail", model=parts.model, at=4)


def slow(graph: Graph, parts: Parts, job: Job) -> None:
    parts.model = graph.add("TestSlow", model=parts.model, seconds=0.2)


def interrupt(runner: Runner, job: Job) -> list[str]:
    """After an interrupt the runs with and without the node are what they were."""
    fast, plain = replace(job, geoshrink=FAST), job
    before, full = runner.sample(fast), runner.sample(plain)
    stopped = runner.sample(replace(fast, patch=slow), interrupt_at=5)
    problems = [] if stopped.result.status == "interrupted" else [stopped.result.status]
    if not stopped.text():
        problems.append("the node says nothing")
    problems += same(runner.sample(fast), before, "after an interrupt")
    return problems + same(runner.sample(plain), full, "without the node, after an interrupt")


def error(runner: Runner, job: Job) -> list[str]:
    """After an error in the model the runs with and without the node are what they were."""
    fast, plain = replace(job, geoshrink=FAST), job
    before, full = runner.sample(fast), runner.sample(plain)
    failed = runner.sample(replace(fast, patch=failing))
    problems = []
    if failed.result.status != "error" or "as the test asked" not in failed.result.message:
        problems.append(f"{failed.result.status}: {failed.result.message}")
    problems += same(runner.sample(fast), before, "after an error")
    return problems + same(runner.sample(plain), full, "without the node, after an error")


def two_workflows(runner: Runner, job: Job) -> list[str]:
    """One family, another, and the first again."""
    others = [name for name in runner.families if name != job.family][:2]
    first = runner.sample(replace(job, geoshrink=FAST))
    for family in others:
        runner.sample(replace(job, family=family, geoshrink=FAST))
    return same(runner.sample(replace(job, geoshrink=FAST)), first, "after other workflows")


def one_prompt(runner: Runner, job: Job) -> list[str]:
    """The same model with and without the node, in one prompt."""
    fast, full = runner.sample(replace(job, geoshrink=FAST)), runner.sample(job)
    runner.tag += 1
    graph = Graph()
    graph.prompt = workflow(replace(job, geoshrink=FAST, tag=runner.tag))
    inputs = graph.prompt["KSampler"]["inputs"]
    parts = Parts(["TestCount", 0], inputs["positive"], inputs["negative"], inputs["latent_image"])
    graph.add("TestSave", latent=ksampler(graph, parts, job), name="plain")
    both = runner.queue(graph.prompt)
    if not both.ok:
        return [f"{both.result.status}: {both.result.message}"]
    problems = same(both, fast, "with the node beside a plain sampler")
    plain = replace(both, latents={"TestSave": both.latents["TestSave2"]})
    return problems + same(plain, full, "plain beside the node")


def twice(runner: Runner, job: Job) -> list[str]:
    """Two GeoShrink nodes in one chain: the last one counts."""

    def first(graph: Graph, parts: Parts, job: Job) -> None:
        parts.model = graph.add("GeoShrink", model=parts.model, budget=15)

    once = runner.sample(replace(job, geoshrink=FAST))
    both = runner.sample(replace(job, patch=first, geoshrink=FAST))
    node = "GeoShrink2"
    problems = same(both, once, "after another GeoShrink")
    return problems if "8 of 20" in both.text(node) else [*problems, f"says {both.text(node)!r}"]


def other_size(runner: Runner, job: Job) -> list[str]:
    """A larger batch and other steps in between: nothing of one run reaches the next."""
    fast = replace(job, geoshrink=FAST)
    before = runner.sample(fast)
    runner.sample(replace(fast, batch=2, steps=31))
    return same(runner.sample(fast), before, "after a run of another size")


def seeds(runner: Runner, job: Job) -> list[str]:
    """The node stays in ComfyUI's cache from one seed to the next: each has all its calls."""
    calls = [runner.sample(replace(job, geoshrink=FAST, seed=seed)).calls[-1] for seed in (1, 2, 3)]
    return [] if calls == [FAST["budget"]] * 3 else [f"calls {calls}"]


STORIES: dict[str, Callable[[Runner, Job], list[str]]] = {
    "interrupt": interrupt,
    "error in the model": error,
    "two workflows": two_workflows,
    "with and without in one prompt": one_prompt,
    "three seeds": seeds,
    "two GeoShrink nodes": twice,
    "another size in between": other_size,
}


def tell(runner: Runner, name: str, job: Job) -> Row:
    return Row(job.family, name, problems=STORIES[name](runner, job))
