"""The node pack inside a real ComfyUI: a cross-section of what matrix.py runs in full."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from support.checks import ACCELERATED, check, distance, said, same
from support.conditions import CONDITIONS
from support.families import FAMILIES
from support.graphs import Graph, Job, workflow
from support.stories import STORIES

if TYPE_CHECKING:
    from support.runner import Runner, Sampled

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("comfyui")]  # one server for all

SAMPLERS = ["euler", "dpmpp_2m", "uni_pc", "dpmpp_2m_sde", "er_sde", "euler_ancestral", "ddim"]
SAMPLERS += ["euler_cfg_pp", "heun", "dpm_2", "dpm_fast", "lcm", "dpmpp_sde"]
ON_SD3 = [it.name for it in CONDITIONS if "sd3" in it.families and not it.slow]
ON_OTHERS = [
    ("wan", "inpaint mask"),
    ("wan", "timestep range"),
    ("sd15", "ControlNet, half"),
    ("sd15", "ModelSamplingDiscrete"),
]
PLAIN = Job("sd3")
FAST = replace(PLAIN, geoshrink={"budget": 8})


def needs(comfy: Runner, *nodes: str) -> None:
    missing = [node for node in nodes if node not in comfy.info]
    if missing:
        pytest.skip(f"ComfyUI {comfy.version} has no {', '.join(missing)}")


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_family(comfy: Runner, family: str) -> None:
    if family not in comfy.families:
        pytest.skip(f"ComfyUI {comfy.version} cannot build a tiny {family}")
    assert not check(comfy, Job(family), "plain").problems


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_sampler(comfy: Runner, sampler: str) -> None:
    assert sampler in comfy.choices("KSampler", "sampler_name")
    assert not check(comfy, Job("sd3", sampler=sampler), sampler).problems


@pytest.mark.parametrize(("family", "name"), [*(("sd3", name) for name in ON_SD3), *ON_OTHERS])
def test_a_condition(comfy: Runner, family: str, name: str) -> None:
    condition = next(it for it in CONDITIONS if it.name == name)
    needs(comfy, *condition.needs)
    job = Job(family, patch=condition.patch, **condition.changes)
    assert not check(comfy, job, name, **condition.expected).problems


@pytest.mark.parametrize("name", list(STORIES))
def test_a_story(comfy: Runner, name: str) -> None:
    assert not STORIES[name](comfy, PLAIN)


def with_options(comfy: Runner, **options: object) -> Sampled:
    return comfy.sample(replace(PLAIN, geoshrink=options))


def test_the_speedup_gives_the_budget(comfy: Runner) -> None:
    for speedup, calls in ((2.0, 10), (4.0, 5)):
        assert with_options(comfy, speedup=speedup).calls[-1] == calls


def test_few_steps_are_left_exact(comfy: Runner) -> None:
    few = replace(FAST, steps=4, geoshrink={"speedup": 3.0})
    fast = comfy.sample(few)
    assert fast.calls[-1] == 4
    assert not same(fast, comfy.sample(replace(few, geoshrink=None)), "with 4 steps")
    assert not said(fast, None)


def test_learning_begins_with_an_exact_picture(comfy: Runner) -> None:
    """With learn, the first picture has all its calls, the next the budget."""
    learn = {"speedup": 2.5, "learn": True}
    first = comfy.sample(replace(PLAIN, seed=11, geoshrink=learn))
    second = comfy.sample(replace(PLAIN, seed=12, geoshrink=learn))
    assert (first.calls[-1], second.calls[-1]) == (20, 8)
    assert not same(first, comfy.sample(replace(PLAIN, seed=11)), "while it learns")


@pytest.mark.parametrize(
    "options",
    [{"space": "data"}, {"rule": "linear"}, {"correct": "off"}, {"correct": "on"}],
    ids=str,
)
def test_options_keep_the_number_of_calls(comfy: Runner, options: dict[str, str]) -> None:
    fast = with_options(comfy, budget=8, **options)
    assert fast.ok, fast.result.message
    assert not said(fast, "8")
    assert fast.calls[-1] == 8


def test_a_quality_in_place_of_a_budget(comfy: Runner) -> None:
    low, high = (with_options(comfy, target_db=db) for db in (15.0, 45.0))
    assert low.ok and high.ok, (low.result.message, high.result.message)
    assert low.calls[-1] < high.calls[-1] <= 20


@pytest.mark.parametrize(
    "options",
    [{"budget": 8, "target_db": 30.0}, {"plan": "/no/such/plan.json"}],
    ids=str,
)
def test_options_that_cannot_be_are_refused(comfy: Runner, options: dict[str, object]) -> None:
    """The prompt fails at our node, before anything is sampled, and says which input is wrong."""
    failed = with_options(comfy, **options)
    assert failed.result.status == "error"
    assert any(str(value) in failed.result.message for value in options.values())
    assert not any(node.startswith("KSampler") for node in failed.result.executed)


def test_the_report_node(comfy: Runner) -> None:
    needs(comfy, "GeoShrinkReport")
    comfy.tag += 1
    graph = Graph()
    graph.prompt = workflow(replace(FAST, tag=comfy.tag))
    report = graph.add("GeoShrinkReport", model=["GeoShrink", 0], latent=["KSampler", 0])
    graph.add("PreviewImage", images=[report[0], 1])
    done = comfy.queue(graph.prompt)
    assert done.ok, done.result.message
    assert "8 of 20 stages exact" in "\n".join(done.result.ui("GeoShrinkReport", "text"))
    assert done.result.ui("PreviewImage", "images")


def demo(steps: int, options: dict[str, object] | None, tag: int) -> Graph:
    """The demonstration's model on 50 steps, without a file from elsewhere."""
    graph = Graph()
    loaded = graph.add("GeoShrinkDemoModel")
    model = graph.add("TestCount", model=loaded, name="counts")
    if options is not None:
        model = graph.add("GeoShrink", model=model, **options)
    prompts = graph.add("GeoShrinkDemoClass")
    latent = graph.add(
        "KSampler",
        model=model,
        positive=prompts,
        negative=[prompts[0], 1],
        latent_image=graph.add("GeoShrinkDemoLatent", batch_size=2),
        seed=tag,
        steps=steps,
        cfg=3.0,
        sampler_name="euler",
        scheduler="sgm_uniform",
        denoise=1.0,
    )
    graph.add("TestSave", latent=latent, name=f"demo{steps}")
    graph.add("TestCounts", latent=latent, name="counts")
    image = graph.add("VAEDecode", samples=latent, vae=[loaded[0], 1])
    graph.add("PreviewImage", images=image)
    return graph


def test_the_demonstration(comfy: Runner) -> None:
    """Trained weights: 15 calls are closer to 50 steps than 15 steps are, by a factor of two."""
    needs(comfy, "GeoShrinkDemoModel", "GeoShrinkDemoClass", "GeoShrinkDemoLatent")
    full, direct = (comfy.queue(demo(steps, None, 3).prompt) for steps in (50, 15))
    fast = comfy.queue(demo(50, {"budget": 15}, 3).prompt)
    assert full.ok and direct.ok and fast.ok, fast.result.message
    assert (full.calls[-1], direct.calls[-1], fast.calls[-1]) == (50, 15, 15)
    assert fast.result.ui("PreviewImage", "images")
    errors = distance(fast.latent, full.latent), distance(direct.latent, full.latent)
    assert torch.isfinite(fast.latent).all() and errors[0] < errors[1] / 2, errors


def test_every_sampler_has_a_policy(comfy: Runner) -> None:
    assert ACCELERATED & set(comfy.choices("KSampler", "sampler_name"))
    missing = ACCELERATED - set(comfy.choices("KSampler", "sampler_name"))
    assert not {name for name in missing if "sde_heun" not in name}, missing


def set_up(graph: Graph, **changes: object) -> dict[str, object]:
    """The demonstration's model with the inputs of KSampler."""
    loaded, prompts = graph.add("GeoShrinkDemoModel"), graph.add("GeoShrinkDemoClass")
    words = dict(
        model=loaded, positive=prompts, negative=[prompts[0], 1], seed=3, steps=20, cfg=3.0
    )
    latent = graph.add("GeoShrinkDemoLatent", batch_size=1)
    return words | dict(latent_image=latent, scheduler="sgm_uniform") | changes


@pytest.mark.parametrize("sampler", ["euler", "heun"])
def test_the_comparison(comfy: Runner, sampler: str) -> None:
    """Three columns, or the reason why there is nothing to compare."""
    graph = Graph()
    words = set_up(graph, sampler_name=sampler, denoise=1.0, speedup=2.0)
    sheet = graph.add("GeoShrinkCompare", vae=["GeoShrinkDemoModel", 1], **words)
    graph.add("PreviewImage", images=sheet)
    done = comfy.queue(graph.prompt)
    assert done.ok, done.result.message
    text = done.result.ui("GeoShrinkCompare", "text")[0]
    assert done.result.ui("GeoShrinkCompare", "images") and done.result.ui("PreviewImage", "images")
    if sampler == "heun":
        assert "nothing to compare" in text and "more than once a step" in text and "dB" not in text
        return
    found = dict(re.findall(r"(direct|geoshrink), 10 calls: PSNR ([\d.]+) dB", text))
    assert float(found["geoshrink"]) > float(found["direct"]) + 3, text


def test_a_profile_makes_a_plan_that_the_node_takes(comfy: Runner) -> None:
    graph = Graph()
    words = set_up(graph, steps=12, speedup=2.0, pictures=4, name="test-plan")
    profile = graph.add("GeoShrinkProfile", **words)
    model = graph.add("TestCount", model=words["model"], name="counts")
    model = graph.add("GeoShrink", model=model, plan=profile)
    more = {k: v for k, v in words.items() if k not in ("model", "speedup", "pictures", "name")}
    latent = graph.add("KSampler", model=model, sampler_name="euler", denoise=1.0, **more)
    graph.add("TestSave", latent=latent, name="planned")
    graph.add("TestCounts", latent=latent, name="counts")
    done = comfy.queue(graph.prompt)
    assert done.ok, done.result.message
    assert done.calls[-1] == 6 and "6 of 12 stages exact" in done.text()
    assert (comfy.server.output / "geoshrink" / "test-plan.plan.json").is_file()
    graph.prompt["KSampler"]["inputs"]["steps"] = 14
    other = comfy.queue(graph.prompt)
    assert other.ok and other.calls[-1] == 14 and "exact" in other.text(), other.text()
