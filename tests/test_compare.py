"""geoshrink compare on tiny pipelines: what it counts, says, writes, refuses and leaves behind."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from geoshrink import cli
from geoshrink.compare import (
    Compared,
    Pictures,
    Settings,
    Watch,
    distinct,
    floats,
    run_compare,
    shown,
)
from geoshrink.compare.outcomes import DIRECT, FULL, GEOSHRINK, PAPER
from geoshrink.quality import Estimate
from geoshrink.report import ADVICE

Image = pytest.importorskip("PIL.Image")
METHODS = [FULL, DIRECT, PAPER, GEOSHRINK]
MODULE = "geoshrink_compare_builders"
BUILDERS = """
import warnings
from hosts import image, text, video

def sd():
    parts = dict(text_encoder=text.clip_text(), tokenizer=text.clip_tokenizer())
    return image.sd("StableDiffusionPipeline", {}, **parts)[0]

def flux():
    return image.PIPELINES["FluxPipeline"]()

def wan():
    return video.PIPELINES["WanPipeline"]()

def audio():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return video.PIPELINES["StableAudioPipeline"]()

def grid():
    pipe, call = flux()
    return pipe, {**call, "sigmas": [1.0, 0.5]}

def never():
    raise AssertionError("this must not run")

def nothing():
    return None

def number():
    return 3

def wrong_call():
    return flux()[0], ["prompt"]

constant = 5
"""


@pytest.fixture(scope="module", autouse=True)
def builders(tmp_path_factory):
    """A module of builders on sys.path."""
    pytest.importorskip("diffusers")
    folder = tmp_path_factory.mktemp("builders")
    (folder / f"{MODULE}.py").write_text(BUILDERS)
    (folder / f"{MODULE}_broken.py").write_text("import no_such_module")
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))
    sys.modules.pop(MODULE, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Stable Diffusion as diffusers saves it."""
    path = tmp_path_factory.mktemp("models") / "tiny-sd"
    built("sd").save_pretrained(path)
    return path


def built(name: str):
    import importlib

    return getattr(importlib.import_module(MODULE), name)()


def quick(model: str, out: Path, **changes) -> Compared:
    given = dict(model=model, steps=8, budgets=(4, 5))
    return run_compare(Settings(**{**given, **changes}), out, progress=False)


@pytest.fixture(scope="module")
def flux(tmp_path_factory) -> tuple[Compared, str]:
    out = tmp_path_factory.mktemp("flux") / "deep" / "index.html"
    return quick(f"{MODULE}:flux", out), out.read_text("utf-8")


@pytest.fixture(scope="module")
def sd(folder, tmp_path_factory) -> tuple[Compared, str]:
    out = tmp_path_factory.mktemp("sd") / "index.html"
    prompts = ("a red cat", "a blue dog")
    changes = dict(prompts=prompts, budgets=(4,), guidance=3.0, height=16, width=16)
    return quick(str(folder), out, **changes), out.read_text("utf-8")


@pytest.fixture(scope="module")
def wan(tmp_path_factory) -> tuple[Compared, str]:
    out = tmp_path_factory.mktemp("wan") / "index.html"
    return quick(f"{MODULE}:wan", out, budgets=(4,), frames=5), out.read_text("utf-8")


# What is run


def test_every_method_makes_the_calls_it_is_given(flux, sd, wan):
    assert [o.method for o in flux[0].outcomes] == [FULL, *METHODS[1:] * 2]
    assert [o.calls for o in flux[0].outcomes] == [8, 4, 4, 4, 5, 5, 5]
    assert [o.calls for o in sd[0].outcomes] == [8, 4, 4, 4]
    assert [o.calls for o in wan[0].outcomes] == [16, 8, 8, 8]  # guidance is a call of its own
    assert [row[2] for row in wan[0].table().rows] == [16, 8, 8, 8]


def test_a_folder_is_loaded_and_every_prompt_is_run(sd):
    compared = sd[0]
    assert compared.subjects == ["a red cat", "a blue dog"]
    assert compared.kind == "StableDiffusionPipeline"
    assert all(len(o.scores[0]) == 2 for o in compared.outcomes)
    assert len({o.scores[0][0] for o in compared.outcomes}) > 2
    assert [len(o.reports) for o in compared.outcomes] == [0, 0, 2, 2]


def test_the_full_run_is_the_reference(flux, wan):
    for compared in (flux[0], wan[0]):
        full, *others = compared.outcomes
        assert full.scores[0] == (math.inf,) and full.scores[1] == pytest.approx((1.0,))
        assert all(5 < o.scores[0][0] < 100 and 0 < o.scores[1][0] <= 1 for o in others)
        assert compared.table().rows[0][5:7] == [None, None]


def test_scores_are_those_of_pictures_made_by_hand(flux):
    """Direct is the pipeline itself with fewer steps; its PSNR is computed here from scratch."""
    pipe, call = built("flux")

    def made(steps: int) -> np.ndarray:
        noise = torch.Generator().manual_seed(0)
        call["output_type"] = "np"
        return pipe(**call, num_inference_steps=steps, generator=noise).images

    wanted = -10 * math.log10(float(np.square(made(4) - made(8)).mean()))
    assert flux[0].outcomes[1].scores[0] == pytest.approx((wanted,), rel=1e-4)


def test_the_denoisers_share_is_measured(flux, sd, wan):
    for compared, _ in (flux, sd, wan):
        assert all(0 < o.share < 1 for o in compared.outcomes)
        assert [row[-1] for row in compared.table().rows] == [
            100 * o.share for o in compared.outcomes
        ]


def given(pipe, call) -> str:
    """A builder that returns this pipeline."""
    vars(sys.modules[MODULE])["given"] = lambda: (pipe, call)
    return f"{MODULE}:given"


def plain(pipe, call) -> torch.Tensor:
    return pipe(**call, num_inference_steps=8, generator=torch.Generator().manual_seed(0)).images


def state(pipe):
    parts = [pipe, pipe.scheduler, pipe.transformer]
    return [sorted(vars(part)) for part in parts], vars(pipe).get("_progress_bar_config")


def test_the_pipeline_is_left_as_it_was(tmp_path):
    pipe, call = built("flux")
    before, names = plain(pipe, call), state(pipe)
    quick(given(pipe, call), tmp_path / "x.html", budgets=(4,))
    assert state(pipe) == names
    assert torch.equal(plain(pipe, call), before)


@pytest.mark.parametrize("fails_at", [1, 4])  # the warm-up; the first accelerated run
@pytest.mark.parametrize("part, method", [("vae", "decode"), ("transformer", "forward")])
def test_a_failing_run_leaves_the_pipeline_as_it_was(part, method, fails_at, tmp_path, monkeypatch):
    pipe, call = built("flux")
    before, names = plain(pipe, call), state(pipe)
    module, calls = getattr(pipe, part), []
    works = getattr(module, method)
    last = fails_at if part == "vae" else {1: 2, 4: 4 + 8 + 4 + 2}[fails_at]

    def fail(*args, **kwargs):
        calls.append(1)
        if len(calls) == last:
            raise RuntimeError("no memory")
        return works(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(module, method, fail)
        with pytest.raises(RuntimeError, match="no memory"):
            quick(given(pipe, call), tmp_path / "x.html", budgets=(4,))
    vars(module).pop(method, None)  # what monkeypatch wrote back
    assert state(pipe) == names
    assert torch.equal(plain(pipe, call), before)
    assert not list(tmp_path.iterdir())


def test_calls_are_counted_outside_compilation_and_once_where_nested():
    inner, calls = nn.Linear(2, 2), []
    outer = nn.Sequential(inner)
    outer.__dict__["_compiled_call_impl"] = compiled = outer._call_impl
    with Watch([outer, inner], calls.append) as watch:
        outer(torch.ones(2))
        inner(torch.ones(2))
    assert watch.calls == len(calls) == 2 and watch.seconds > 0
    assert vars(outer)["_compiled_call_impl"] is compiled and "_call_impl" not in vars(inner)
    outer(torch.ones(2))
    assert watch.calls == 2


# What is said


def test_the_verdict_says_ahead_or_behind_as_the_numbers_do(flux, sd, wan):
    for compared, html in (flux, sd, wan):
        score = {
            (o.budget, o.method): sum(o.scores[0]) / len(o.scores[0]) for o in compared.outcomes
        }
        for budget, line in zip(compared.settings.budgets, compared.verdict(), strict=True):
            for method, part in zip(METHODS[2:], line.split(";"), strict=True):
                gain = score[budget, method] - score[budget, DIRECT]
                word = "ahead of" if gain > 0 else "BEHIND"
                assert f"{method} is {abs(gain):.1f} dB {word} direct" in part
            assert line in html and line in compared.table().text()


def test_a_run_that_is_not_accelerated_is_shown_with_the_reason(tmp_path):
    compared = quick(f"{MODULE}:flux", tmp_path / "x.html", steps=5, budgets=(4,))
    assert [o.calls for o in compared.outcomes] == [5, 4, 5, 5]
    assert compared.verdict() == [
        "B = 4: paper was not accelerated; geoshrink was not accelerated."
    ]
    assert len(compared.warnings()) == 2
    html = (tmp_path / "x.html").read_text("utf-8")
    for line in compared.warnings():
        assert "5 stages leave nothing to skip" in line and line in html


def estimated(compared: Compared, estimate: Estimate) -> Compared:
    """The same with this estimate in every report."""

    def told(outcome):
        reports = [replace(report, estimate=estimate) for report in outcome.reports]
        return replace(outcome, reports=reports)

    return replace(compared, outcomes=[told(outcome) for outcome in compared.outcomes])


def test_a_doubtful_run_is_warned_of(flux):
    assert estimated(flux[0], Estimate(30.0, 25.0, 35.0, direct=20.0)).warnings() == []
    lines = estimated(flux[0], Estimate(12.0, 7.0, 17.0, direct=11.0)).warnings()
    assert len(lines) == 4
    assert lines[-1].startswith(
        "geoshrink, B = 5, in 1 of 1 runs: about 12 dB to the full run (7 to 17), where direct "
        f"step reduction is expected to have about 11 dB: {ADVICE}"
    )


def test_a_difference_in_cost_is_said(flux):
    compared = estimated(flux[0], Estimate(30.0, 25.0, 35.0, direct=20.0))
    outcomes = [replace(o, calls=6) if o.method == DIRECT else o for o in compared.outcomes]
    lines = replace(compared, outcomes=outcomes).warnings()
    assert lines[0] == "B = 4: direct made 6 model calls, geoshrink 4: not the same cost."


# What is written


@pytest.mark.parametrize("name, kind", [("flux", "png"), ("sd", "png"), ("wan", "webp")])
def test_the_page_is_whole_and_alone(name, kind, request):
    compared, html = request.getfixturevalue(name)
    pictures = len(compared.subjects) * len(compared.outcomes)
    assert html.count(f"data:image/{kind};base64,") == pictures
    assert "Where the model is asked" in html and "retention ω" in html and "wipe" in html
    assert re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(", html) is None


def test_the_page_names_the_model_and_the_command(sd, folder):
    assert "geoshrink on tiny-sd" in sd[1]
    command = sd[0].settings.command()
    assert command.startswith(f"geoshrink compare {folder} --prompts 'a red cat' 'a blue dog'")
    assert command.endswith("--guidance 3 --height 16 --width 16")


def test_video_plays(wan):
    import io

    media = next(iter(wan[0].media.values()))
    with Image.open(io.BytesIO(media.data)) as animation:
        assert animation.n_frames == 5 and animation.size == (32, 32)


def test_the_command_line_prints_the_table(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = cli.main(["compare", f"{MODULE}:flux", "--steps", "6", "--budgets", "4"])
    out = capsys.readouterr().out
    assert code == 0 and "Quality at equal cost" in out and "B = 4: paper" in out
    assert (tmp_path / "compare" / "index.html").stat().st_size > 10_000


def test_a_prompts_file_has_one_on_each_line(folder, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "geoshrink.commands.compare.run_compare", lambda settings, out: seen.append(settings)
    )
    (tmp_path / "p.txt").write_text("a cat\n\n  the dog \na cat\n", "utf-8")
    path = str(tmp_path / "p.txt")
    extra = ["--kwargs", '{"eta": 0.5}', "--dtype", "bf16", "--frames", "9"]
    assert cli.main(["compare", str(folder), "--prompts-file", path, *extra]) == 0
    assert seen[0].prompts == ("a cat", "the dog")
    assert (seen[0].kwargs, seen[0].dtype, seen[0].frames) == ({"eta": 0.5}, "bf16", 9)


def test_names_of_samples_are_short_and_distinct():
    assert distinct("a cat", 1, []) == ["a cat"]
    assert distinct("a cat", 2, []) == ["a cat (1)", "a cat (2)"]
    long = "very " * 40
    first = distinct(long + "red", 1, [])
    second = distinct(long + "blue", 1, first)
    assert len(first[0]) <= 80 and first != second
    assert distinct("猫" * 100, 1, []) == ["猫" * 79 + "…"]


# What pipelines return


def picture(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


@pytest.mark.parametrize(
    "output, shape, moving",
    [
        (dict(images=picture(2, 16, 20, 3)), (2, 1, 3, 16, 20), False),
        (dict(images=torch.rand(2, 3, 16, 20)), (2, 1, 3, 16, 20), False),
        (dict(images=torch.rand(2, 16, 20, 3)), (2, 1, 3, 16, 20), False),
        (dict(images=[Image.new("RGB", (20, 16))] * 2), (2, 1, 3, 16, 20), False),
        (dict(images=[Image.new("L", (20, 16))]), (1, 1, 1, 16, 20), False),
        (dict(images=[Image.new("P", (20, 16))]), (1, 1, 3, 16, 20), False),
        (dict(images=list(picture(2, 16, 20, 3))), (2, 1, 3, 16, 20), False),
        (dict(frames=picture(2, 5, 16, 20, 3)), (2, 5, 3, 16, 20), True),
        (dict(frames=picture(5, 16, 20, 3)), (1, 5, 3, 16, 20), True),
        (dict(frames=torch.rand(2, 5, 3, 16, 20)), (2, 5, 3, 16, 20), True),
        (dict(frames=torch.rand(2, 3, 5, 16, 20)), (2, 5, 3, 16, 20), True),
        (dict(frames=[[Image.new("RGB", (20, 16))] * 5] * 2), (2, 5, 3, 16, 20), True),
        (dict(frames=[Image.new("RGB", (20, 16))] * 5), (1, 5, 3, 16, 20), True),
        (dict(images=None, video=[torch.rand(5, 3, 16, 20)]), (1, 5, 3, 16, 20), True),
    ],
)
def test_pictures_of_every_kind_are_read(output, shape, moving):
    made = shown(SimpleNamespace(**output), "Pipe")
    assert isinstance(made, Pictures)
    assert (tuple(made.values.shape), made.moving) == (shape, moving)
    assert made.values.dtype == torch.float32


def test_pictures_keep_their_values():
    def values(pixels: np.ndarray) -> torch.Tensor:
        made = shown(SimpleNamespace(images=pixels), "P")
        assert isinstance(made, Pictures)
        return made.values

    pixels = picture(1, 4, 5, 3)
    assert torch.equal(values(pixels)[0, 0, 2], torch.tensor(pixels[0, :, :, 2]))
    bytes_ = (255 * pixels).astype(np.uint8)
    read = floats([Image.fromarray(bytes_[0])])
    assert read is not None
    assert torch.equal(read, torch.tensor(bytes_).movedim(-1, 1).float() / 255)
    assert values(2 * pixels - 0.5).aminmax() == (0, 1)


@pytest.mark.parametrize(
    "output, message",
    [
        (dict(audios=picture(1, 2, 9)), "Pipe does not say the sampling rate of its sound"),
        (dict(images=[]), "which compare cannot show"),
        (dict(images=picture(1, 9, 9, 7)), "which compare cannot show"),
    ],
)
def test_other_outputs_are_refused(output, message):
    with pytest.raises(TypeError, match=message):
        shown(SimpleNamespace(**output), "Pipe")


# What is refused


@pytest.mark.parametrize(
    "model, arguments, message",
    [
        ("no/such/folder", [], "no folder 'no/such/folder' here"),
        ("EMPTY", [], "holds no model_index.json"),
        ("no_such_module:f", [], "No module named 'no_such_module'"),
        (f"{MODULE}:no_such", [], "has no attribute 'no_such'"),
        (f"{MODULE}_broken:f", [], "cannot be imported: ModuleNotFoundError"),
        (f"{MODULE}:constant", [], "is a int: no function"),
        (f"{MODULE}:nothing", [], "returned a NoneType: it must return a pipeline"),
        (f"{MODULE}:number", [], "returned a int: it must return a pipeline"),
        (f"{MODULE}:wrong_call", [], "returned a tuple: it must return a pipeline"),
        (f"{MODULE}:grid", [], "the builder gives 'sigmas'"),
        (f"{MODULE}:flux", ["--prompts", "a"], "prompt_embeds already: leave out the prompts"),
        (f"{MODULE}:flux", ["--frames", "9"], "FluxPipeline takes no 'num_frames'"),
        (f"{MODULE}:flux", ["--kwargs", '{"strenth": 1}'], "FluxPipeline takes no 'strenth'"),
        (f"{MODULE}:sd", [], "StableDiffusionPipeline needs prompts"),
        (f"{MODULE}:never", ["--budgets", "3"], "budget 3 is too small: at least 4"),
        (f"{MODULE}:never", ["--budgets", "50"], "budget 50 is not below the 50 steps"),
        (f"{MODULE}:never", ["--steps", "4"], "steps 4 are too few: fewer than 5 leave nothing"),
        (f"{MODULE}:never", ["--prompts", " "], "a prompt is empty"),
        (f"{MODULE}:never", ["--prompts-file", "EMPTY/blank.txt"], "holds no prompts"),
        (f"{MODULE}:never", ["--prompts-file", "EMPTY/none.txt"], "no file of prompts"),
        (f"{MODULE}:never", ["--kwargs", "{"], "--kwargs is not JSON"),
        (f"{MODULE}:never", ["--kwargs", "[" * 100_000], "--kwargs is not JSON"),
        (f"{MODULE}:never", ["--kwargs", "[1]"], "--kwargs must be a JSON object"),
        (f"{MODULE}:never", ["--kwargs", '{"timesteps": [1]}'], "leave out 'timesteps'"),
        (f"{MODULE}:never", ["--dtype", "fp8"], "unknown dtype 'fp8'"),
        (f"{MODULE}:never", ["--device", "gpu"], "unknown device 'gpu'"),
        (f"{MODULE}:never", ["--out", "EMPTY"], "is a folder: name a file"),
        (f"{MODULE}:never", ["--out", "EMPTY/blank.txt/x.html"], "cannot be written"),
        pytest.param(  # where nobody can write, root neither
            f"{MODULE}:never",
            ["--out", "/proc/x.html"],
            "/proc/x.html cannot be written",
            marks=pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here"),
        ),
    ],
)
def test_bad_arguments_are_explained(model, arguments, message, capsys, tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n")
    given = [argument.replace("EMPTY", str(tmp_path)) for argument in [model, *arguments]]
    quick_ = ["--budgets", "4"] if "--budgets" not in given else []
    out = [] if "--out" in given else ["--out", str(tmp_path / "x.html")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        code = cli.main(["compare", given[0], *given[1:], *quick_, *out])
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("See ")]
    assert code == 2 and message in lines[-1] and lines[-1].startswith("geoshrink compare: ")
    assert [path.name for path in tmp_path.iterdir()] == ["blank.txt"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_here_is_refused(capsys):
    assert cli.main(["compare", f"{MODULE}:never", "--device", "cuda"]) == 2
    assert "torch sees no CUDA device here" in capsys.readouterr().err


def test_our_own_pipelines_take_class_names(tmp_path):
    pytest.importorskip("geoshrink_bench")
    settings = Settings(
        "geoshrink_bench.zoo.pipelines:pipeline", prompts=("Kiwi 1",), steps=6, budgets=(4,)
    )
    compared = run_compare(settings, tmp_path / "page.html", progress=False)
    assert compared.subjects == ["Kiwi 1"] and "--prompts 'Kiwi 1'" in settings.command()
    with pytest.raises(ValueError, match="no fruit"):
        run_compare(replace(settings, prompts=("no fruit",)), tmp_path / "page.html", False)


def test_a_folder_without_diffusers_is_explained(folder, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    assert cli.main(["compare", str(folder), "--prompts", "a"]) == 2
    assert "pip install 'geoshrink[diffusers]'" in capsys.readouterr().err
