"""Pipelines in the studio: what they are left as, previews, arguments; and the shelf of models."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from geoshrink.compare.inputs import Settings
from geoshrink.compare.pictures import Pictures
from geoshrink.studio import studio as module
from geoshrink.studio.previews import Colours
from geoshrink.studio.setting import Setting
from geoshrink.studio.shelf import Shelf
from geoshrink.studio.studio import Session, Studio
from studio import ended, entry, full, known, last, pixels, play, same

pytest.importorskip("PIL")
pytest.importorskip("diffusers")
pytestmark = pytest.mark.slow
MODULE = "geoshrink_studio_builders"
BUILDERS = """
from hosts import image, text

PIPES = {}

def sd3():
    if "sd3" not in PIPES:
        PIPES["sd3"] = image.PIPELINES["StableDiffusion3Pipeline"]()
    return PIPES["sd3"]

def sd():
    parts = dict(text_encoder=text.clip_text(), tokenizer=text.clip_tokenizer())
    return image.sd("StableDiffusionPipeline", {}, **parts)[0]

def function():
    pipe, call = image.PIPELINES["StableDiffusion3Pipeline"]()
    def draw(steps, seed):
        import torch
        noise = torch.Generator().manual_seed(seed)
        given = {**call, "output_type": "np"}
        return pipe(**given, num_inference_steps=steps, generator=noise)
    return pipe, draw

def broken():
    raise RuntimeError("no <weights>")
"""


@pytest.fixture(scope="module", autouse=True)
def builders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("builders")
    (folder / f"{MODULE}.py").write_text(BUILDERS)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    sys.modules.pop(MODULE, None)


def builder(name: str) -> str:
    return f"{MODULE}:{name}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pipelines as diffusers saves them, and what is none."""
    path = tmp_path_factory.mktemp("models")
    built("sd").save_pretrained(path / "tiny-sd")
    (path / "other" / "deep").mkdir(parents=True)
    (path / "other" / "deep" / "model_index.json").write_text("{}")
    (path / "file").write_text("x")
    return path


def built(name: str) -> Any:
    import importlib

    return getattr(importlib.import_module(MODULE), name)()


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studio:
    monkeypatch.setattr(module, "AWAKE", 0.02)
    known(monkeypatch)
    words = [builder("sd3"), builder("sd")]
    return Studio(Shelf(words, [], Settings("")), tmp_path)


def setting(**changes: Any) -> Setting:
    given = dict(model=builder("sd3"), seed=3, steps=8, budget=4, guidance=4.0, shift=1.0)
    return Setting(**{**given, **changes})


def plain(steps: int = 8, guidance: float = 4.0) -> torch.Tensor:
    """The pipeline by itself, as latents."""
    pipe, call = built("sd3")
    given = dict(num_inference_steps=steps, guidance_scale=guidance)
    return pipe(**call, **given, generator=torch.Generator().manual_seed(3)).images


def state() -> Any:
    pipe, _ = built("sd3")
    parts = [pipe, pipe.scheduler, pipe.transformer, pipe.vae]
    return [
        {*vars(part)} - {"_num_timesteps", "_guidance_scale"} for part in parts
    ], pipe.scheduler.shift


def test_runs_are_those_of_the_pipeline_itself(studio: Studio):
    wanted, names = plain(), state()
    ran = play(studio, setting())[1]
    assert torch.equal(full(studio, setting()).end, wanted) and state() == names
    assert full(studio, setting()).calls == 8 and ran.calls == 4 and len(ran.asked) == 4
    assert not torch.equal(ran.end, wanted)
    assert same(play(studio, setting(budget=8))[1], full(studio, setting()))
    direct = play(studio, setting(form="direct"))[1]
    assert torch.equal(direct.end, plain(4)) and direct.steps == 4
    assert torch.equal(plain(), wanted) and state() == names


def test_shift_and_guidance_reach_the_pipeline_and_go_again(studio: Studio):
    pipe, _ = built("sd3")
    before, names = plain(), state()
    play(studio, at := setting(shift=5.0, guidance=2.0))
    assert state() == names and torch.equal(plain(), before)
    pipe.scheduler.set_shift(5.0)
    wanted = plain(guidance=2.0)
    pipe.scheduler.set_shift(names[1])
    assert torch.equal(full(studio, at).end, wanted) and not torch.equal(wanted, before)


@pytest.mark.parametrize("calls", [2, 6])  # in the accelerated run; in the full one
@pytest.mark.parametrize("how", ["stop", "raise"])
def test_a_stop_or_an_error_leaves_the_pipeline_as_it_was(studio: Studio, calls: int, how: str):
    pipe, _ = built("sd3")
    studio.shelf.get(builder("sd3"))
    before, names, session, made = plain(), state(), Session(), []

    def hook(network: Any, args: Any, output: Any) -> None:
        made.append(1)
        if len(made) == calls:
            if how == "raise":
                raise RuntimeError("out of memory")
            session.stop()

    handle = pipe.transformer.register_forward_hook(hook)
    try:
        lanes = last(studio.play(setting(shift=4.0), session))
    finally:
        handle.remove()
    assert len(made) == calls and state() == names and torch.equal(plain(), before)
    bad = lanes[calls > 4]
    assert (str(bad.error) == "out of memory") if how == "raise" else bad.stopped
    assert studio.known(setting(shift=4.0)) is None and not studio.device.members
    ran = play(studio, setting())[1]
    assert torch.equal(full(studio, setting()).end, before) and ran.calls == 4


def test_controls_stand_still_while_another_shift_runs(studio: Studio):
    model, seen = studio.shelf.get(builder("sd3")), []
    pipe, _ = built("sd3")
    at = setting(shift=4.0)
    words = model.python(at, None)

    def hook(network: Any, args: Any, output: Any) -> None:
        seen.append((model.controls.usual.shift, model.python(at, None)))

    handle = pipe.transformer.register_forward_hook(hook)
    try:
        play(studio, at)
    finally:
        handle.remove()
    assert {*seen} == {(1.0, words)} and "set_shift(4)" in words


def test_previews_come_with_the_second_run(studio: Studio):
    first, made = last(studio.play(setting(), Session())), []
    assert first[0].preview() is not None  # it is looked at after the run has taught the colours
    pipe, _ = built("sd3")
    model: Any = studio.shelf.get(builder("sd3"))
    generator = studio.play(setting(seed=4), Session())
    lanes: Any = next(generator)

    def look(network: Any, args: Any, output: Any) -> None:
        made.append([lane.preview() for lane in lanes if lane.preview is not None])

    handle = pipe.transformer.register_forward_hook(look)
    try:
        last(generator)
    finally:
        handle.remove()
    shown = [each for some in made for each in some]
    assert shown and all(isinstance(each, Pictures) and each.is_finite() for each in shown)
    assert shown[-1].values.shape == (1, 1, 3, 8, 8)
    model.colours = Colours()
    assert lanes[0].preview() is None  # before anything was learned


def test_arguments_are_those_of_the_controls(studio: Studio):
    model: Any = studio.shelf.get(builder("sd"))
    has = model.controls
    assert has.prompted and has.negative and has.guidance and not has.shift and not has.classes
    assert (has.usual.steps, has.usual.guidance, has.usual.budget) == (50, 7.5, 10)
    assert model.arguments(setting(negative="grey")) == {
        "guidance_scale": 4.0,
        "negative_prompt": "grey",
    }
    assert model.arguments(setting(guidance=None)) == {}
    own: Any = studio.shelf.get(builder("sd3"))
    assert not own.controls.prompted and own.controls.shift and own.controls.usual.shift == 1.0
    assert own.controls.usual.prompt == ""


def test_a_prompt_is_needed_where_there_is_one(studio: Studio):
    at = setting(model=builder("sd"), shift=None, prompt=" \n")
    with pytest.raises(ValueError, match="StableDiffusionPipeline needs a prompt: write one"):
        list(studio.play(at, Session()))


def test_prompts_and_negative_prompts_change_the_picture(studio: Studio):
    at = dict(model=builder("sd"), shift=None)
    runs = [
        play(studio, setting(**at, prompt=prompt, negative=negative))[1]
        for prompt, negative in (("a cat", ""), ("a dog", ""), ("a cat", "red"), ("a cat", ""))
    ]
    assert not torch.equal(runs[0].end, runs[1].end) and not torch.equal(runs[0].end, runs[2].end)
    assert same(runs[0], runs[3])


def test_a_pipeline_can_be_planned(studio: Studio):
    play(studio, setting(shift=2.0, steps=6))  # a first call leaves names of its own
    names = state()
    at = setting(shift=2.0, steps=6, form="planned")
    made = last(studio.plan(at, 4, Session()))
    assert made.file.is_file() and state() == names
    ran = play(studio, at)[1]
    assert ran.calls == 4 and ran.plan is not None
    assert ran.plan.anchors == made.profile.plan(budget=4).anchors


# Colours


def test_colours_are_learned_exactly_where_they_are_linear():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.rand(3, 4, generator=generator) / 8

    def decoded(state: torch.Tensor) -> torch.Tensor:
        small = torch.einsum("kc,nchw->nkhw", matrix, state) + 0.5
        return small.repeat_interleave(8, -1).repeat_interleave(8, -2)

    first, other = (torch.randn(1, 4, 6, 8, generator=generator).clamp(-1, 1) for _ in range(2))
    colours = Colours()
    assert colours.seen(first) is None
    colours.learn(first, Pictures(decoded(first)[:, None]))
    seen: Any = colours.seen(other)
    wanted = decoded(other)[..., ::8, ::8].clamp(0, 1)
    assert torch.allclose(seen.values[:, 0], wanted, atol=1e-5)
    assert colours.seen(None) is None and colours.seen(torch.ones(1, 5, 6, 8)) is None
    assert colours.seen(torch.ones(7)) is None


def test_tokens_are_put_in_rows_by_the_shape_of_the_picture():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(1, 6 * 12, 4, generator=generator).clamp(-1, 1)
    small = (0.2 * tokens[..., :3] + 0.5).reshape(1, 6, 12, 3).movedim(-1, 1)
    picture = small.repeat_interleave(16, -1).repeat_interleave(16, -2)
    colours = Colours()
    colours.learn(tokens, Pictures(picture[:, None]))
    seen: Any = colours.seen(tokens)
    assert torch.allclose(seen.values[:, 0], small, atol=1e-5)
    assert colours.seen(tokens[:, :71]) is None  # no rows of one length


def test_films_have_colours_too():
    state = torch.rand(1, 4, 3, 5, 5)
    film = state[:, :3].transpose(1, 2).repeat_interleave(2, 1).repeat_interleave(4, -1)
    film = film.repeat_interleave(4, -2)
    colours = Colours()
    colours.learn(state, Pictures(film, True, 24.0))
    seen: Any = colours.seen(state)
    assert seen.moving and seen.fps == 24.0
    assert torch.allclose(seen.values, state[:, :3].transpose(1, 2), atol=1e-5)


def test_nothing_is_learned_from_what_does_not_fit():
    colours = Colours()
    colours.learn(None, Pictures(torch.rand(1, 1, 3, 8, 8)))
    colours.learn(torch.rand(2, 4, 4, 4), Pictures(torch.rand(1, 1, 3, 8, 8)))
    colours.learn(torch.rand(1, 4, 4, 4), object())  # type: ignore[arg-type]
    assert colours.map is None


# The shelf


def names(*given: str, folders: tuple[Path, ...] = ()) -> list[str]:
    return Shelf(given, folders, Settings("")).names


def test_demo_models_come_last_fruit_first(folder: Path, monkeypatch: pytest.MonkeyPatch):
    known(monkeypatch, entry("apple"), entry("fruit"), entry("zebra"))
    assert names() == ["fruit", "apple", "zebra"]
    assert names("zebra") == ["zebra", "fruit", "apple"]
    assert names(builder("sd")) == [builder("sd"), "fruit", "apple", "zebra"]
    assert names(folders=(folder,)) == ["tiny-sd", "fruit", "apple", "zebra"]
    assert names(f"{folder}/other/../tiny-sd/") == ["tiny-sd", "fruit", "apple", "zebra"]


def test_nothing_is_loaded_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    known(monkeypatch, entry("toy"), entry("bad", "bad"))
    shelf = Shelf([builder("broken"), "no.such.module:f"], [], Settings(""))
    assert not shelf.models and shelf.get("toy") is shelf.get("toy")
    for name, words in (
        (builder("broken"), "no <weights>"),
        ("bad", "no weights for <i>bad</i>"),
        ("no.such.module:f", "the builder 'no.such.module:f' cannot be imported"),
    ):
        with pytest.raises((RuntimeError, ImportError), match=words):
            shelf.get(name)
    assert [*shelf.models] == ["toy"]


@pytest.mark.parametrize(
    "name", ["", "../../etc", "/etc", "os:getcwd", "toy/", "TOY", "tiny-sd", "toy\n", "__class__"]
)
def test_names_that_are_not_on_the_shelf_are_refused(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """A folder or a builder that is there is refused, too, where the command did not name it."""
    known(monkeypatch, entry("toy"))
    monkeypatch.chdir(folder)
    with pytest.raises(ValueError, match=r"no model .* here; there are toy") as error:
        Shelf([], [], Settings("")).get(name)
    assert repr(name) in str(error.value)


def test_what_cannot_be_offered_is_refused_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    known(monkeypatch, entry("toy"))
    with pytest.raises(ValueError, match=r"no folder 'no/such' here.* the models are toy"):
        names("no/such")
    with pytest.raises(ValueError, match="two models are called 'tiny-sd': rename a folder"):
        names(str(folder / "tiny-sd"), folders=(folder,))
    with pytest.raises(ValueError, match="two models are called 'toy'"):
        names("toy", "toy")
    with pytest.raises(ValueError, match=r"--folder '.*file' is not a folder"):
        names(folders=(folder / "file",))
    known(monkeypatch)
    with pytest.raises(ValueError, match=r"there is no model: name a folder .* geoshrink-bench"):
        names()
    with pytest.raises(ValueError, match="the models are none: pip install geoshrink-bench"):
        names("fruit")


def test_a_folder_of_a_demo_s_name_is_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    known(monkeypatch, entry("tiny-sd"))
    monkeypatch.chdir(folder)
    shelf = Shelf(["tiny-sd"], [], Settings(""))
    assert shelf.names == ["tiny-sd"] and shelf.get("tiny-sd").about == "StableDiffusionPipeline"


def test_a_folder_is_run_as_its_builder_is(folder: Path, tmp_path: Path, studio: Studio):
    studio.shelf.add_pipeline(str(folder / "tiny-sd"))
    at = setting(model="tiny-sd", prompt="a cat", shift=None)
    ran = play(studio, at)[1]
    pipe = studio.shelf.get("tiny-sd")
    assert isinstance(ran.made, Pictures) and pixels(ran).shape[1:3] == (1, 3)
    assert pipe.together is False and ended(last(studio.play(at, Session()))[0]).calls == 4
