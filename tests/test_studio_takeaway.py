"""What is taken along makes the same sample again, bit for bit."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import geoshrink
from geoshrink import Plan
from geoshrink.compare.inputs import Settings
from geoshrink.compare.pictures import floats
from geoshrink.studio import studio as module
from geoshrink.studio.setting import FORMS, Setting
from geoshrink.studio.shelf import Shelf
from geoshrink.studio.studio import Session, Studio, occasion
from geoshrink.studio.takeaway import comfyui, plan_json
from studio import TOY, known, last, pixels, play, setting, toys

pytest.importorskip("PIL")
PACK = Path(__file__).parents[1] / "comfyui"
MODULE = "geoshrink_studio_taken"
BUILDERS = """
from hosts import image, text

def sd3():
    pipe, call = image.PIPELINES["StableDiffusion3Pipeline"]()
    return pipe, {k: v for k, v in call.items() if k != "output_type"}

def latent():
    return image.PIPELINES["StableDiffusion3Pipeline"]()

def sd():
    parts = dict(text_encoder=text.clip_text(), tokenizer=text.clip_tokenizer())
    return image.sd("StableDiffusionPipeline", {}, **parts)[0]

def function():
    import torch
    pipe, call = latent()
    def draw(steps, seed):
        noise = torch.Generator().manual_seed(seed)
        given = {**call, "output_type": "pt"}
        return pipe(**given, num_inference_steps=steps, generator=noise).images
    return pipe, draw
"""


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    pytest.importorskip("diffusers")
    folder = tmp_path_factory.mktemp("builders")
    (folder / f"{MODULE}.py").write_text(BUILDERS)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    sys.modules.pop(MODULE, None)


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AWAKE", 0.02)
        yield toys(patch, tmp_path_factory.mktemp("out") / "it's here")  # a quote does no harm


def executed(code: str) -> Any:
    found: dict[str, Any] = {}
    exec(compile(code, "taken along", "exec"), found)
    return found


def taken(studio: Studio, at: Setting) -> tuple[Any, Any]:
    """The run, and what its lines make."""
    if at.form == "planned" and occasion(at) not in studio.profiles:
        last(studio.plan(at, 4, Session()))
    ran = play(studio, at)[1]
    plan = None
    if at.form == "planned":
        assert ran.plan is not None
        plan = studio.save(at, ran.plan)
    return ran, executed(studio.shelf.get(at.model).python(at, plan))


TURNED: list[dict[str, Any]] = [
    *({"form": form} for form in FORMS),
    {"target_db": 25},
    {"target_db": 25, "form": "paper"},
    {"target_db": 25, "form": "planned"},
    {"rule": "chordal", "space": "data", "correct": "off"},
    {"correct": "on"},
    {"seed": 2**40, "guidance": 1.25, "shift": 0.7, "steps": 9, "prompt": "<b>Plum</b>"},
    {"guidance": 0.0, "budget": 12},
]


@pytest.mark.parametrize("changes", TURNED, ids=str)
def test_the_lines_of_a_flow_make_the_same_sample(studio: Studio, changes: dict[str, Any]):
    ran, found = taken(studio, setting(**changes))
    assert torch.equal(found["x0"], ran.end)
    assert torch.equal(found["sample"], pixels(ran)[0])


def test_the_lines_of_a_flow_name_its_interval(studio: Studio, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(TOY.judged_at, "interval", (0.3, 0.8))
    ran, found = taken(studio, setting())
    assert torch.equal(found["x0"], ran.end)
    code = studio.shelf.get("toy").python(setting(), None)
    assert code.count("interval=(0.3, 0.8)") == 2


@pytest.mark.parametrize("changes", TURNED[:7], ids=str)
def test_the_plan_makes_the_same_sample(studio: Studio, changes: dict[str, Any]):
    at = setting(**changes)
    ran, _ = taken(studio, at)
    text = plan_json(ran)
    if at.form == "direct":
        assert text == "" and plan_json(None) == ""
        return
    velocity, noise = TOY.velocity([at.prompt], 2.0), TOY.noise(1, at.seed)
    assert torch.equal(geoshrink.sample(velocity, noise, plan=Plan.from_json(text)), ran.end)
    assert torch.equal(geoshrink.sample(velocity, noise, plan=json.loads(text)), ran.end)


# Pipelines


def shelf_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str, **more: Any) -> Studio:
    monkeypatch.setattr(module, "AWAKE", 0.02)
    known(monkeypatch)
    return Studio(Shelf(words, [], Settings("", **more)), tmp_path)


def of_pipeline(model: str, **changes: Any) -> Setting:
    given = dict(model=model, seed=3, steps=6, budget=4, guidance=4.0)
    return Setting(**{**given, **changes})


@pytest.mark.parametrize(
    "changes", [{"form": form} for form in FORMS] + [{"shift": 2.5, "guidance": 1.5}], ids=str
)
def test_the_lines_of_a_builder_make_the_same_latents(
    builders: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
):
    studio = shelf_of(monkeypatch, tmp_path, name := f"{MODULE}:latent")
    ran, found = taken(studio, of_pipeline(name, **{"shift": 1.0, **changes}))
    assert torch.equal(found["sample"].images, ran.end)


def test_the_lines_of_a_builder_make_the_same_picture(
    builders: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    studio = shelf_of(monkeypatch, tmp_path, name := f"{MODULE}:sd3")
    ran, found = taken(studio, of_pipeline(name))
    shown: Any = ran.made
    assert floats(found["sample"].images[0]) is not None
    assert found["sample"].images[0].tobytes() == opened(shown.picture(0, "").data).tobytes()


def opened(data: bytes) -> Any:
    import io

    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


NASTY = 'a \'cat\' """ {x} \\ \n # <b> ${7*7}'


@pytest.mark.filterwarnings("ignore:`torch_dtype` is deprecated:FutureWarning")
def test_the_lines_of_a_folder_make_the_same_picture(
    builders: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    build = importlib.import_module(MODULE).sd
    build().save_pretrained(tmp_path / "o'clock")
    more = {"kwargs": {"guidance_rescale": 0.5}, "height": 16, "width": 16}
    studio = shelf_of(monkeypatch, tmp_path / "out", str(tmp_path / "o'clock"), **more)
    at = of_pipeline("o'clock", prompt=NASTY, negative="it's red")
    ran, found = taken(studio, at)
    shown: Any = ran.made
    assert found["sample"].images[0].tobytes() == opened(shown.picture(0, "").data).tobytes()
    code = studio.shelf.get("o'clock").python(at, None)
    assert "guidance_rescale=0.5" in code and "height=16" in code and "torch.float32" in code


def test_the_lines_of_a_builder_with_a_function_call_it(
    builders: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    studio = shelf_of(monkeypatch, tmp_path, name := f"{MODULE}:function")
    ran, found = taken(studio, of_pipeline(name, guidance=None, shift=3.0))
    assert torch.equal(found["sample"], pixels(ran)[:, 0])
    assert "geoshrink.accelerate(pipe, budget=4)" in studio.shelf.get(name).python(
        of_pipeline(name), None
    )


# ComfyUI


@pytest.fixture(scope="module")
def node() -> Any:
    """The GeoShrink node and its options, on stand-ins for ComfyUI."""
    file = PACK / "tests" / "support" / "fakes.py"
    if not file.exists():
        pytest.skip("the ComfyUI pack is not here")
    spec = importlib.util.spec_from_file_location("geoshrink_studio_fakes", file)
    assert spec is not None and spec.loader is not None
    fakes = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = fakes
    spec.loader.exec_module(fakes)
    return fakes.pack("nodes").accelerate, fakes.pack("options").Options


@pytest.mark.parametrize("changes", TURNED, ids=str)
def test_the_node_has_the_inputs_that_are_named(studio: Studio, node: Any, changes: dict[str, Any]):
    at, (accelerate, options) = setting(**changes), node
    ran, _ = taken(studio, at)
    nodes = json.loads(comfyui(at, ran))
    sampler = nodes["sampler"]["inputs"]
    assert sampler["seed"] == at.seed and sampler["cfg"] == at.guidance
    assert sampler["steps"] == (at.budget if at.form == "direct" else at.steps)
    assert nodes["shift"]["inputs"] == {"shift": at.shift}
    assert ("geoshrink" in nodes) == (at.form != "direct")
    if at.form == "direct":
        return
    given, inputs = nodes["geoshrink"]["inputs"], {each.name: each for each in accelerate.INPUTS}
    assert nodes["geoshrink"]["class_type"] == accelerate.NODE.id and {*given} <= {*inputs}
    for name, value in given.items():
        kind = inputs[name].kind
        assert not isinstance(kind, list) or value in kind
    words = options(**given)  # it refuses what cannot be
    if at.form in ("planned", "paper"):
        assert words.planned() == ran.plan
    else:
        grid = TOY.grid(at.steps, at.shift)
        asked = Plan.of(grid, **words.counted(at.steps), **words.asked())
        assert asked == Plan.of(grid, **at.options())


def test_a_model_without_shift_or_guidance_names_none():
    nodes = json.loads(comfyui(Setting("x", "a “b”"), None))
    assert [*nodes] == ["geoshrink", "sampler"] and "cfg" not in nodes["sampler"]["inputs"]
