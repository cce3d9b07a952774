"""Folders for VBench, MTScore and ImageReward, and their outputs as recorded in fixtures/."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image

from geoshrink_bench.metrics.base import Skipped
from geoshrink_bench.metrics.external import (
    IMAGE_REWARD,
    MTSCORE,
    VBENCH,
    chronomagic,
    imagereward,
    vbench,
)
from geoshrink_bench.metrics.external.folder import numbered
from geoshrink_bench.metrics.external.media import write_mp4, write_png

FIXTURES = Path(__file__).parent / "fixtures"
PROMPTS = ["a red cat", "A dog, 8-bit"] * 2
IDENTIFIERS = ["3d_printing_08", "animal_04"] * 2
NAMES = ["a red cat-0", "A dog, 8-bit-0", "a red cat-1", "A dog, 8-bit-1"]


def clips(n=4, frames=5, height=16, width=24):
    """Clouds that move, as clips (channels, frames, height, width)."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    waves = [[((x + y + i + 2 * f) / 8).sin() for f in range(frames)] for i in range(n)]
    shades = torch.stack([torch.stack(w) for w in waves])[:, None] / 2 + 0.5
    return shades * torch.tensor([1.0, 0.8, 0.6]).reshape(1, 3, 1, 1, 1)


def pictures(n=4):
    return clips(n)[:, :, 0]


def copy(fixture, path, version="tool 1.0"):
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(FIXTURES / fixture, path)
    results = next(p for p in path.parents if p.name == "results")
    (results / "version.txt").write_text(f"{version}\n")


def change(path, edit):
    """Rewrites a JSON file with what edit(content) gives."""
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))


@pytest.fixture
def films(tmp_path):
    """Exported for VBench, which has run."""
    folder = tmp_path / "out put"
    vbench.export(folder, clips(), PROMPTS, fps=8)
    for kind in ("eval_results", "full_info"):
        name = f"results_2025-01-02-03.04.05_{kind}.json"
        copy(f"vbench/{kind}.json", folder / "results" / name, "vbench 0.1.5")
    return folder


@pytest.fixture
def lapses(tmp_path):
    """Exported for MTScore, which has run."""
    chronomagic.export(tmp_path / "mt", clips(), IDENTIFIERS, fps=8)
    for i in range(2):
        name = f"sample-{i}_1_MTScore.json"
        copy(f"chronomagic/{name}", tmp_path / "mt" / "results" / name)
    return tmp_path / "mt"


@pytest.fixture
def rated(tmp_path):
    """Exported for ImageReward, which has run."""
    imagereward.export(tmp_path / "ir", pictures(), PROMPTS)
    copy("imagereward/result.json", tmp_path / "ir" / imagereward.RESULT)
    return tmp_path / "ir"


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_an_mp4_holds_the_frames(tmp_path):
    (clip,) = clips(1, frames=7)
    write_mp4(tmp_path / "a.mp4", clip, fps=12.5)
    with av.open(str(tmp_path / "a.mp4")) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        assert float(stream.average_rate or 0) == 12.5
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
    wanted = (clip * 255).movedim(0, -1).numpy()
    assert len(frames) == 7
    assert np.abs(np.stack(frames) - wanted).mean() < 4  # half of what neighbouring frames differ
    assert np.abs(np.stack(frames)[1:] - wanted[:-1]).mean() > 8


def test_a_png_holds_the_bytes(tmp_path):
    (picture,) = pictures(1)
    write_png(tmp_path / "a.png", picture)
    got = np.asarray(Image.open(tmp_path / "a.png"))
    np.testing.assert_array_equal(got, (picture * 255).round().movedim(0, -1).numpy())
    write_png(tmp_path / "b.png", picture[:1])
    with Image.open(tmp_path / "b.png") as grey:
        assert grey.mode == "RGB"


@pytest.mark.parametrize(
    "clip, message",
    [
        (torch.zeros(3, 4, 8), r"\(channels, frames, height, width\), got \(3, 4, 8\)"),
        (torch.zeros(4, 3, 8, 8), r"one or three channels first, got torch.float32 \(4, 3, 8, 8\)"),
        (torch.zeros(3, 4, 8, 8).byte(), "floats .* got torch.uint8"),
        (torch.linspace(-1, 1, 768).reshape(3, 4, 8, 8), "values from -1 to 1"),
        (torch.full((3, 4, 8, 8), 255.0), "values from 255 to 255"),
        (torch.full((3, 4, 8, 8), torch.nan), "values from nan to nan"),
        (torch.zeros(3, 4, 8, 9), "even sides, got 8×9"),
        (torch.zeros(3, 0, 8, 8), r"got torch.float32 \(3, 0, 8, 8\)"),
    ],
)
def test_what_is_no_clip_is_quoted(tmp_path, clip, message):
    with pytest.raises(ValueError, match=message):
        write_mp4(tmp_path / "a.mp4", clip, fps=8)
    assert not files(tmp_path)


def test_frame_rates_and_pictures_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="fps must be above 0, got 0"):
        write_mp4(tmp_path / "a.mp4", clips(1)[0], fps=0)
    with pytest.raises(ValueError, match=r"\(channels, height, width\), got \(3, 5, 16, 24\)"):
        write_png(tmp_path / "a.png", clips(1)[0])


def test_without_pyav_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ImportError, match=r"pip install 'geoshrink-bench\[metrics\]'"):
        write_mp4(tmp_path / "a.mp4", clips(1)[0], fps=8)


def test_vbench_finds_its_names(films):
    assert files(films) == sorted(
        ["manifest.json"]
        + [f"films/{name}.mp4" for name in NAMES]
        + [f"results/results_2025-01-02-03.04.05_{k}.json" for k in ("eval_results", "full_info")]
        + ["results/version.txt"]
    )
    with av.open(str(films / "films" / "A dog, 8-bit-1.mp4")) as container:
        frame = next(container.decode(video=0)).to_ndarray(format="rgb24")
    wanted = [(c[:, 0] * 255).movedim(0, -1).numpy() for c in clips()]
    off = [np.abs(frame - w).mean() for w in wanted]
    assert off.index(min(off)) == 3  # the fourth sample


def test_vbench_s_command(films):
    first, loop, run, done = vbench.command(films, ["color", "scene"]).splitlines()
    assert first.endswith(f"> '{films}/results'/version.txt") and "vbench" in first
    assert (loop, done) == ("for dimension in color scene; do", "done")
    words = shlex.split(run)
    assert words[:2] == ["vbench", "evaluate"]
    assert dict(zip(words[2::2], words[3::2])) == {
        "--videos_path": str(films / "films"),
        "--output_path": str(films / "results"),
        "--dimension": "$dimension",
    }
    assert len(vbench.command(films).splitlines()[1].split()) == 3 + 16 + 1
    with pytest.raises(ValueError, match="no dimension 'colour'"):
        vbench.command(films, ["colour"])


def test_vbench_with_prompts_of_one_s_own(tmp_path):
    prompts = ["left/right", "x" * 300]
    vbench.export(tmp_path / "a", clips(2), prompts, fps=8, custom=True)
    assert json.loads((tmp_path / "a" / "prompts.json").read_text()) == {
        "00000.mp4": prompts[0],
        "00001.mp4": prompts[1],
    }
    words = shlex.split(vbench.command(tmp_path / "a").splitlines()[2])
    assert words[words.index("--mode") + 1] == "custom_input"
    assert words[words.index("--prompt_file") + 1] == str(tmp_path / "a" / "prompts.json")
    for dimension in ("color", "human_action"):
        with pytest.raises(ValueError, match=f"no dimension '{dimension}'"):
            vbench.command(tmp_path / "a", [dimension])
    results = tmp_path / "a" / "results"
    entry = [0.9, [{"video_path": "films/00000.mp4", "video_results": 0.9}]]
    (results / "x_eval_results.json").write_text(json.dumps({"motion_smoothness": entry}))
    (results / "x_full_info.json").write_text("[]")
    with pytest.raises(ValueError, match="1 prompts lack scores: 'xxxx"):
        vbench.read(tmp_path / "a")


def test_vbench_s_scores(films):
    scores = vbench.read(films)
    assert scores.version == "vbench 0.1.5"
    assert scores.dimensions == {
        "subject_consistency": 0.94,
        "dynamic_degree": 0.75,
        "imaging_quality": 0.625,
        "color": 0.5,
    }
    assert scores.films["dynamic_degree"]["a red cat-1.mp4"] == 0
    assert scores.films["imaging_quality"] == {"a red cat-0.mp4": 0.6, "a red cat-1.mp4": 0.65}
    assert scores.films["color"] == {"a red cat-1.mp4": 0.5}  # no object in the other film
    with pytest.raises(ValueError, match=r"all 16 dimensions, not .*'background_consistency'"):
        VBENCH.of(films, None)


SCORES = [0.95, 0.96, 0.98, 0.97, 0.55, 0.61, 0.67]
SCORES += [0.88, 0.52, 0.93, 0.84, 0.6, 0.45, 0.21, 0.23, 0.26]


def test_vbench_s_total_is_that_of_its_own_script():
    """The numbers are what scripts/cal_final_score.py of VBench 0.1.5 prints for these."""
    found = vbench.total(dict(zip(vbench.DIMENSIONS, SCORES)))
    assert found == pytest.approx(
        dict(quality=0.8144588961435275, semantic=0.7109090361878736, total=0.7937489241523967)
    )


def test_vbench_s_total_of_the_lowest_and_the_highest():
    for i, wanted in ((0, 0.0), (1, 1.0)):
        found = vbench.total({name: bounds[i] for name, bounds in vbench.DIMENSIONS.items()})
        assert list(found.values()) == pytest.approx([wanted] * 3)


def test_vbench_s_total_as_a_metric(films):
    (results,) = (films / "results").glob("*_eval_results.json")
    every = json.loads(results.read_text())["subject_consistency"][1]
    change(results, lambda _: {d: [s, every] for d, s in zip(vbench.DIMENSIONS, SCORES)})
    (info,) = (films / "results").glob("*_full_info.json")
    change(info, lambda given: [dict(e, dimension=[*vbench.DIMENSIONS]) for e in given])
    assert VBENCH.of(films, None) == pytest.approx(79.37489241523967)
    assert (VBENCH.unit, VBENCH.higher) == ("%", True)


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda r: r["dynamic_degree"][1].pop() and r, "1 prompts lack scores: 'A dog, 8-bit'"),
        (lambda r: dict(r, scene=[0.5, r["color"][1]]), "not exported: 'a red cat-1.mp4'"),
        (lambda r: dict(r, sharpness=[0.5, []]), "dimension 'sharpness' is unknown"),
        (lambda r: dict(r, color=0.5), "must be a score and a list of films, is 0.5"),
        (lambda r: dict(r, color=[0.5, []]), "must be a score and a list of films"),
        (lambda r: dict(r, color=[float("nan"), r["color"][1]]), "finite number, is nan"),
        (lambda r: dict(r, color=[0.5, [{"video_path": "a"}]]), "must have a 'video_results'"),
        (lambda r: [], "should hold dimensions"),
    ],
)
def test_vbench_s_output_that_is_not_whole(films, edit, message):
    (results,) = (films / "results").glob("*_eval_results.json")
    change(results, edit)
    with pytest.raises(ValueError, match=message):
        vbench.read(films)


def test_prompts_of_vbench_that_were_not_sampled_are_named(films):
    (info,) = (films / "results").glob("*_full_info.json")
    more = [dict(prompt_en=f"prompt {i}", dimension=["color"], video_list=[]) for i in range(7)]
    change(info, lambda given: given + more)
    with pytest.raises(
        ValueError, match=r"color: 7 prompts lack scores: 'prompt 0', .*'prompt 4' and 2"
    ):
        vbench.read(films)


def test_a_dimension_in_two_files_is_refused(films):
    for kind in ("eval_results", "full_info"):
        copy(f"vbench/{kind}.json", films / "results" / f"results_later_{kind}.json")
    with pytest.raises(ValueError, match="'subject_consistency' is in two files"):
        vbench.read(films)


def test_files_that_are_missing_or_broken_are_named(films):
    (info,) = (films / "results").glob("*_full_info.json")
    kept = info.read_bytes()
    info.write_bytes(kept[:50])
    with pytest.raises(ValueError, match=r"_full_info\.json is not JSON"):
        vbench.read(films)
    info.unlink()
    with pytest.raises(ValueError, match=r"_full_info\.json cannot be read"):
        vbench.read(films)
    info.write_bytes(kept)
    (films / "results" / "version.txt").write_text("\n")
    with pytest.raises(ValueError, match=r"version\.txt should name the tool's version"):
        vbench.read(films)


def test_prompts_that_vbench_cannot_take(tmp_path):
    with pytest.raises(ValueError, match="'left/right' cannot be a file's name"):
        vbench.export(tmp_path / "a", clips(1), ["left/right"], fps=8)
    with pytest.raises(ValueError, match="5 samples of a prompt; more of 'a cat'"):
        vbench.export(tmp_path / "a", clips(6), ["a cat"] * 6, fps=8)
    assert not (tmp_path / "a").exists()


def test_mtscore_s_layout_and_command(lapses):
    assert files(lapses)[:4] == [
        f"films/sample-{i}/{name}.mp4" for i in range(2) for name in sorted(set(IDENTIFIERS))
    ]
    first, run = chronomagic.command(lapses, "a model.pt").splitlines()
    assert "git rev-parse" in first and first.endswith(f"> {lapses}/results/version.txt")
    words = shlex.split(run)
    assert words[:2] == ["python", "step0-get_MTScore.py"]
    assert words[2:] == [
        *("--eval_type", "close", "--model_names", "sample-0", "sample-1"),
        *("--input_folder", str(lapses / "films"), "--output_folder", str(lapses / "results")),
        *("--model_pth", "a model.pt"),
    ]


def test_mtscore_in_the_order_of_the_samples(lapses):
    assert chronomagic.read(lapses).metamorphic == [0.29, 0.31, 0.18, 0.25]
    assert MTSCORE.of(lapses, None, None).tolist() == pytest.approx([29, 31, 18, 25])


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda r: r["video_scores"].pop() and r, "1 prompts lack scores: '3d_printing_08'"),
        (lambda r: {}, "must have a 'video_scores', is {}"),
        (lambda r: {"video_scores": 3}, "must be a list, is 3"),
        (lambda r: {"video_scores": [{"video_name": "a"}]}, "must have a 'metamorphic_score'"),
        (
            lambda r: {"video_scores": [{"video_name": "a.mp4", "metamorphic_score": 31.0}]},
            r"a\.mp4 must be a probability, is 31",
        ),
        (
            lambda r: {
                "video_scores": [
                    *r["video_scores"],
                    {"video_name": "a.mp4", "metamorphic_score": 0.1},
                ]
            },
            r"not exported: 'sample-1/a\.mp4'",
        ),
    ],
)
def test_mtscore_s_output_that_is_not_whole(lapses, edit, message):
    change(lapses / "results" / "sample-1_1_MTScore.json", edit)
    with pytest.raises(ValueError, match=message):
        chronomagic.read(lapses)


def test_a_file_of_mtscore_that_is_missing_is_named(lapses):
    (lapses / "results" / "sample-1_1_MTScore.json").unlink()
    with pytest.raises(ValueError, match=r"sample-1_1_MTScore\.json cannot be read"):
        chronomagic.read(lapses)


def test_mtscore_wants_identifiers(tmp_path):
    with pytest.raises(ValueError, match="such as 3d_printing_08; not 'a red cat'"):
        chronomagic.export(tmp_path / "a", clips(), PROMPTS, fps=8)


def test_imagereward_s_layout_and_command(rated):
    pictures_of = [f"pictures/geoshrink/0000{p}_{i}.png" for p in range(2) for i in range(2)]
    assert [f for f in files(rated) if f.startswith("pictures")] == pictures_of
    assert json.loads((rated / "prompts.json").read_text()) == [
        {"id": "00000", "prompt": "a red cat"},
        {"id": "00001", "prompt": "A dog, 8-bit"},
    ]
    got = np.asarray(Image.open(rated / "pictures" / "geoshrink" / "00001_0.png"))
    np.testing.assert_array_equal(got, (pictures()[1] * 255).round().movedim(0, -1).numpy())
    first, run = imagereward.command(rated).splitlines()
    assert "image-reward" in first and first.endswith(f"> {rated}/results/version.txt")
    words = shlex.split(run)
    assert words[:2] == ["python", "test-benchmark.py"]
    assert dict(zip(words[2::2], words[3::2])) == {
        "--benchmark": "ImageReward-v1.0",
        "--model": "geoshrink",
        "--prompts_path": str(rated / "prompts.json"),
        "--img_dir": str(rated / "pictures"),
        "--result_dir": str(rated / "results"),
    }


def test_imagereward_in_the_order_of_the_samples(rated, tmp_path):
    assert IMAGE_REWARD.of(rated, None, None).tolist() == [0.5, -1.0, 0.3, -2.0]
    change(rated / imagereward.RESULT, lambda r: [dict(e, rewards=[[1], [2]]) for e in r])
    assert imagereward.read(rated).rewards == [1, 1, 2, 2]
    imagereward.export(tmp_path / "one", pictures(2), PROMPTS[:2])
    copy("imagereward/result_of_one_each.json", tmp_path / "one" / imagereward.RESULT)
    assert imagereward.read(tmp_path / "one").rewards == [0.5, -1.0]


@pytest.mark.parametrize(
    "edit, message",
    [
        (lambda r: r[:1], "1 prompts lack scores: 'A dog, 8-bit'"),
        (lambda r: [dict(r[0], rewards=[1.0]), r[1]], "lack scores: 'a red cat'"),
        (lambda r: [*r, dict(r[0], prompt="b")], "not exported: 'b'"),
        (lambda r: {"a": 1}, "must be a list of prompts"),
        (lambda r: [{"prompt": "a"}], "must have a 'rewards'"),
        (lambda r: [dict(r[0], rewards=["1", "2"]), r[1]], "finite number, is '1'"),
        (lambda r: [dict(r[0], rewards=[float("inf"), 0]), r[1]], "finite number, is inf"),
    ],
)
def test_imagereward_s_output_that_is_not_whole(rated, edit, message):
    change(rated / imagereward.RESULT, edit)
    with pytest.raises(ValueError, match=message):
        imagereward.read(rated)


def test_before_the_tool_has_run_its_command_is_given(tmp_path):
    vbench.export(tmp_path / "v", clips(1), ["a cat"], fps=8)
    chronomagic.export(tmp_path / "c", clips(1), ["animal_04"], fps=8)
    imagereward.export(tmp_path / "i", pictures(1), ["a cat"])
    with pytest.raises(Skipped, match=r"(?s)VBench has not run.*\n  vbench evaluate"):
        VBENCH.of(tmp_path / "v", None)
    with pytest.raises(Skipped, match=r"(?s)MTScore has not run.*\npython step0-get_MTScore\.py"):
        MTSCORE.of(tmp_path / "c", None, None)
    with pytest.raises(Skipped, match=r"(?s)ImageReward has not run.*\npython test-benchmark\.py"):
        IMAGE_REWARD.of(tmp_path / "i", None, None)
    with pytest.raises(ValueError, match="not of an export for MTScore"):
        chronomagic.read(tmp_path / "v")
    with pytest.raises(ValueError, match=r"manifest\.json is not there: export .* for VBench"):
        vbench.read(tmp_path)


def test_counts_that_differ(tmp_path):
    for n, message in ((3, "4 prompts, but only 3 samples"), (5, "more samples than the 4")):
        with pytest.raises(ValueError, match=message):
            imagereward.export(tmp_path / str(n), pictures(n), PROMPTS)
        with pytest.raises(ValueError, match="export the samples for ImageReward first"):
            imagereward.read(tmp_path / str(n))  # what broke off is not taken for whole
    with pytest.raises(ValueError, match="most have 1, not so 'a'"):
        numbered(["a", "b", "c", "a"])
    with pytest.raises(ValueError, match="one prompt per sample, got 'a cat'"):
        numbered("a cat")
    with pytest.raises(ValueError, match="must be some words, got ' '"):
        numbered(["a", " "])


def test_a_folder_that_is_in_use_is_not_touched(rated):
    before = files(rated)
    with pytest.raises(ValueError, match="is not empty: name a new folder"):
        imagereward.export(rated, pictures(), PROMPTS)
    assert files(rated) == before


def test_samples_may_come_one_at_a_time(tmp_path):
    imagereward.export(tmp_path / "a", (p for p in pictures()), PROMPTS)
    assert len(files(tmp_path / "a" / "pictures")) == 4
