"""The paper's suites: their numbers, and every one from a folder to its table on a tiny model."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import math
import shutil
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from geoshrink import Plan
from geoshrink_bench import code, command
from geoshrink_bench import suite as suiting
from geoshrink_bench.cases.checkpoint import CheckpointCase
from geoshrink_bench.cases.checkpoint_suite import FULL
from geoshrink_bench.methods.direct import Again
from geoshrink_bench.methods.ours import FORMS, OURS
from geoshrink_bench.methods.registry import METHODS
from geoshrink_bench.metrics import mesh
from geoshrink_bench.metrics.base import Skipped
from geoshrink_bench.metrics.frechet import frechet_distance
from geoshrink_bench.paper import columns, hosts, loop, pipelines, prompts, upstream
from geoshrink_bench.paper.columns import COLUMNS
from geoshrink_bench.paper.tiny import pipelines as tiny
from geoshrink_bench.report import load
from geoshrink_bench.report.results import Cell, Setting
from geoshrink_bench.report.tables import beside
from geoshrink_bench.samples import Sample, bytes_of, mono
from geoshrink_bench.score import Score
from geoshrink_bench.store import Store
from geoshrink_bench.suite import read
from geoshrink_bench.words import Measure, Row

d: Any = pytest.importorskip("diffusers")
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PROMPTS = ["a red cat", "a dog", "the house", "a photo of a cat"]
STEPS, BUDGET = 8, 5
SUITES = suiting.suites("paper")
OURS_AND_DIRECT = [
    {"method": name, "budget": BUDGET}
    for name in ("direct", "GeoShrink (published)", "GeoShrink (corrected)")
]


# -- the suites and the paper's numbers

#: Typed from the tables once more, by hand: suite, row, column, number.
SPOTS = [
    ("sd35", "ToCa, N = 10, R = 90%", "speedup", 2.09),
    ("sd35", "paper, B = 10", "ImageReward", 0.7924),
    ("flux", "SpeCa, τ₀ = 12, β = 0.3", "LPIPS", 0.4481),
    ("flux", "TeaCache, l = 1.4", "PSNR", 18.0757),
    ("hunyuanvideo-chronomagic", "FORA, N = 6", "MTScore", 41.4804),
    ("hunyuanvideo-chronomagic", "SpeCa, τ₀ = 1.5, β = 0.2", "SSIM", 0.5867),
    ("hunyuanvideo-vbench", "paper, B = 10", "VBench", 80.18),
    ("hunyuanvideo-vbench", "TaylorSeer, N = 7, O = 1", "PSNR", 15.520),
    ("minimax-h3", "direct, B = 10", "SI-SDR", -0.2793),
    ("minimax-h3", "paper, B = 20", "FVD", 164.4024),
    ("hy-motion", "paper, B = 40", "AccErr", 0.047),
    ("hy-motion", "direct, B = 20", "uTMR R@3", 0.7105),
    ("trellis", "paper, B = 12", "Center CD²", 4.042e-7),
    ("trellis", "direct, B = 20", "CLIP", 26.8150),
    ("hunyuan3d", "paper, B = 30", "Surface CD²", 8.061e-5),
    ("hunyuan3d", "direct, B = 15", "Normal", 9.4850),
    ("tangoflux", "paper, B = 30", "SI-SDR", 33.55),
    ("acestep", "direct, B = 25", "MS-STFT", 0.309),
    ("ablation", "ablation: Fixed-Linear, B = 7", "ImageReward", -1.2556),
]


def run(
    suite: Any, checkpoint: Any = None, prompts: Any = None, out: Any = None, **more: Any
) -> Any:
    return command.run(suite, out, checkpoint=checkpoint, prompts=prompts, **more)


def paper_rows(name: str) -> dict[str, dict[str, float]]:
    return {row.title: row.paper for row in read(name).rows if row.paper}


@pytest.mark.parametrize(("suite", "row", "column", "number"), SPOTS)
def test_the_numbers_are_the_papers(suite, row, column, number):
    assert paper_rows(suite)[row][column] == number


def test_every_number_of_every_table_is_there():
    counts = {name: sum(map(len, paper_rows(name).values())) for name in SUITES}
    expected = dict.fromkeys(("sd35", "flux"), 6 * 5)
    expected |= dict.fromkeys(("hunyuanvideo-chronomagic", "hunyuanvideo-vbench"), 7 * 5)
    expected |= {"minimax-h3": 6 * 8, "hy-motion": 8 * 7, "trellis": 10 * 4, "hunyuan3d": 10 * 4}
    expected |= {"tangoflux": 8 * 4, "acestep": 8 * 4, "acestep-v1": 8 * 4, "ablation": 4 * 4}
    assert counts == {**expected, "tradeoff": 0, "motivation": 0}


@pytest.mark.parametrize(
    ("suite", "gain"), [("sd35", 3.87), ("flux", 3.10), ("hunyuanvideo-chronomagic", 5.44)]
)
def test_the_gains_that_the_papers_text_names(suite, gain):
    rows = {label: paper["PSNR"] for label, paper in paper_rows(suite).items()}
    ours = rows.pop("paper, B = 10")
    assert ours - max(rows.values()) == pytest.approx(gain, abs=0.005)


@pytest.mark.parametrize("name", SUITES)
def test_the_rows_of_a_suite_are_methods_with_valid_settings(name):
    suite = read(name)
    grid = [1 - i / suite.steps for i in range(suite.steps + 1)]
    labels = [row.title for row in suite.rows]
    assert len(set(labels)) == len(labels) and suite.choices
    for row in suite.rows:
        if row.method in FORMS:
            own = OURS[row.method].options if row.method in OURS else {}
            plan = Plan.of(grid, row.budget, **own, **row.options)
            assert len(plan.anchors) == row.budget
        else:
            given = {"coefficients": (1.0, 0.0)} if row.method == "TeaCache" else {}
            METHODS[row.method]({**given, **row.options}, lambda: [], row.budget or 1)


def test_the_motivations_coefficients_are_not_clamped():
    rules = [str(row.options.get("rule")) for row in read("motivation").rows]
    assert rules[:4] == ["fixed(0)", "fixed(0.5)", "fixed(1.5)", "fixed(2)"]
    plan = Plan.of([1 - i / 50 for i in range(51)], 10, rule="fixed(2)")
    assert {rule.value for rule in plan.rules} == {2.0}


# -- prompts


def test_prompts_from_files(tmp_path):
    files = {
        "a.txt": "a cat\n\n  a dog \n",
        "a.csv": '\ufeffid,Caption\n7,"a cat,\nred"\n,\n8,a dog\n',
        "a.tsv": "Prompt\tCategory\na cat\tx\na dog\ty\n",
        "a.json": json.dumps([{"caption_id": "c_1", "caption": "a cat"}, {"prompt_en": "a dog"}]),
    }
    found = {}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        found[name] = [(p.text, p.identifier) for p in prompts.read(tmp_path / name)]
    assert found["a.txt"] == found["a.tsv"] == [("a cat", "00000"), ("a dog", "00001")]
    assert found["a.csv"] == [("a cat,\nred", "7"), ("a dog", "8")]
    assert found["a.json"] == [("a cat", "c_1"), ("a dog", "00001")]


def test_which_prompts_are_taken():
    some = prompts.numbered([str(i) for i in range(10)], "")

    def texts(count, take):
        return [p.text for p in prompts.taken(some, count, take)]

    assert texts(3, "first") == ["0", "1", "2"] and texts(4, "interval") == ["0", "2", "5", "7"]
    chosen = prompts.taken(some, 4, "hash")
    assert chosen == prompts.taken(some[::-1], 4, "hash") and chosen != some[:4]
    assert not set(prompts.spare(some, chosen, 20)) & set(chosen)
    with pytest.raises(ValueError, match=r"takes 11 prompts .first., but there are 10"):
        texts(11, "first")
    with pytest.raises(ValueError, match=r"takes 9 prompts .all., but there are 10"):
        texts(9, "all")


def test_pictures_of_a_folder_are_prompts(tmp_path):
    for name in ("b.png", "c/d.JPG", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    found = prompts.read(tmp_path)
    assert [p.text for p in found] == ["b", "c/d"] and found[1].given == str(tmp_path / "c/d.JPG")
    (listed,) = prompts.read([str(tmp_path / "b.png")])
    assert listed.given == found[0].given and listed.picture == found[0].picture
    assert found[0].picture != found[1].picture and prompts.Prompt("a cat", "").picture is None
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="none holds no pictures"):
        prompts.read(tmp_path / "none")


# -- tiny checkpoints of models with a library of their own


def tangoflux(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The real library; its sound decoder and text encoder cannot be small without a patch."""
    from safetensors.torch import save_file

    from hosts import text
    from hosts import upstream as real

    model = real.tangoflux().given
    small = partial(
        d.AutoencoderOobleck, encoder_hidden_size=4, channel_multiples=[1] * 5, decoder_channels=4
    )
    weights = dict(model.state_dict())
    del weights["text_encoder.encoder.embed_tokens.weight"]  # the same as another: not in theirs
    save_file(weights, folder / "tangoflux.safetensors")
    save_file(small().state_dict(), folder / "vae.safetensors")
    config = dict(num_layers=1, num_single_layers=1, num_attention_heads=1, audio_seq_len=6)
    (folder / "config.json").write_text(json.dumps(config | {"joint_attention_dim": real.WIDTH}))
    package: Any = importlib.import_module("tangoflux")
    patch.setattr(package, "AutoencoderOobleck", small)
    patch.setattr(package.model, "T5EncoderModel", real.Saved(text.t5(real.WIDTH)))
    patch.setattr(package.model, "T5TokenizerFast", real.Saved(text.tokenizer()))


class Brightness:
    """An image processor: the mean colour of a picture, as tokens."""

    def __call__(self, path: str) -> dict[str, torch.Tensor]:
        from PIL import Image

        from hosts.upstream import WIDTH

        colour = torch.tensor(Image.open(path).convert("RGB").resize((1, 1)).getpixel((0, 0)))
        return {"image": (colour / 255)[None, :, None].repeat(1, 1, WIDTH)}


def hunyuan3d(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The real library, from its own files."""
    import yaml
    from safetensors.torch import save_file

    from hosts.upstream import WIDTH
    from hosts.upstream import hunyuan3d as real

    pipe = real().given
    part = folder / hosts.Hunyuan3D.part
    part.mkdir()
    parts = {"model": pipe.model, "vae": pipe.vae}
    weights = {f"{n}.{k}": v for n, m in parts.items() for k, v in m.state_dict().items()}
    save_file(weights, part / "model.fp16.safetensors")
    sizes = dict(hidden_size=WIDTH, num_heads=2, depth=1, depth_single_blocks=1, axes_dim=[16])
    vae = dict(num_latents=6, embed_dim=8, width=WIDTH, heads=2, num_decoder_layers=1)
    shapegen = "hy3dgen.shapegen"
    config = {
        "model": (
            f"{shapegen}.models.Hunyuan3DDiT",
            dict(in_channels=8, context_in_dim=WIDTH, **sizes),
        ),
        "vae": (f"{shapegen}.models.ShapeVAE", vae),
        "scheduler": (f"{shapegen}.schedulers.FlowMatchEulerDiscreteScheduler", {}),
        "conditioner": ("hosts.upstream.Conditioner", {}),
        "image_processor": (f"{__name__}.Brightness", {}),
    }
    told = {name: {"target": target, "params": params} for name, (target, params) in config.items()}
    (part / "config.yaml").write_text(yaml.safe_dump(told))


def pretend(patch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    """A module that can be imported while the tests run, and the packages that it is in."""
    names = name.split(".")
    for i in range(1, len(names) + 1):
        patch.setitem(sys.modules, ".".join(names[:i]), ModuleType(".".join(names[:i])))
    vars(sys.modules[name]).update(content)


def trellis(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A double of the samplers; the mesh is a ball, stretched by the structured latents."""
    from hosts import sparse

    trimesh: Any = pytest.importorskip("trimesh")
    pytest.importorskip("point_cloud_utils")

    class TrellisTextTo3DPipeline(sparse.TrellisTextTo3DPipeline):
        @classmethod
        def from_pretrained(cls, path):
            assert Path(path, "pipeline.json").is_file()
            return cls()

        def to(self, device):
            pass

        def run(  # type: ignore[override]
            self, prompt, num_samples=1, seed=42, sparse_structure_sampler_params=None,
            slat_sampler_params=None, formats=("mesh", "gaussian", "radiance_field"),
        ):  # fmt: skip
            torch.manual_seed(seed)
            given = dict(cond=torch.tensor(len(prompt) / 10), neg_cond=torch.tensor(-0.2))
            found = self.sparse_structure_sampler.sample(
                self.models["sparse_structure_flow_model"], torch.randn(1, 4, 4, 4, 4),
                **given, **(sparse_structure_sampler_params or {}),
            ).samples  # fmt: skip
            coords = torch.argwhere(found.mean(1) > found.mean())
            feats = self.fill(coords, seed, **given, **(slat_sampler_params or {})).feats[:, :3]
            ball = trimesh.creation.icosphere(1, 0.3)
            stretched = torch.tensor(ball.vertices) * (1 + 0.5 * feats.mean(0).tanh())
            made = SimpleNamespace(vertices=stretched, faces=torch.tensor(ball.faces))
            centres = coords[:, 1:] / 4 - 0.5 + 0.05 * feats.tanh()
            found = {"mesh": [made], "gaussian": [SimpleNamespace(get_xyz=centres)]}
            return {name: found[name] for name in formats}

    (folder / "pipeline.json").write_text("{}")
    pretend(patch, "trellis.pipelines", TrellisTextTo3DPipeline=TrellisTextTo3DPipeline)


def hy_motion(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A double on the real torchdiffeq; four joints move as one."""
    pytest.importorskip("torchdiffeq")
    from hosts import odes

    class Motion(odes.MotionFlowMatching):
        def generate(self, text, seed_input, duration_slider, cfg_scale=1.0):  # type: ignore[override]
            made = super().generate(seed_input, round(2 * duration_slider), cfg_scale)
            return {"keypoints3d": made[:, :, None] + torch.arange(12.0).reshape(4, 3) / 10}

    def runtime(config_path, ckpt_name, device_ids, force_cpu, disable_prompt_engineering):
        assert force_cpu and disable_prompt_engineering and Path(config_path).is_file()
        return SimpleNamespace(pipelines=[Motion(steps=50, method="midpoint")])

    for name in hosts.HYMotion.files:
        (folder / name).touch()
    pretend(patch, "hymotion.utils.t2m_runtime", T2MRuntime=runtime)


def ace_step_v1(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A double of the loop; the latents are the sound."""
    from hosts import music

    class ACEStepPipeline(music.ACEStepPipeline):
        def __init__(self, checkpoint_dir=None, device_id=0, dtype="bfloat16"):
            super().__init__()
            self.device, self.dtype, self.seed = torch.device("cpu"), dtype, 0

        def load_checkpoint(self, checkpoint_dir=None):
            assert self.dtype == "float32"

        def noise(self, length, seed):
            return super().noise(length, 100 * self.seed + seed)

        def save_wav_file(self, target_wav, idx, save_path=None, sample_rate=48000, format="wav"):
            raise AssertionError("nothing is to be written")

        def __call__(  # type: ignore[override]
            self, prompt, lyrics, audio_duration, infer_step, guidance_scale, manual_seeds, task
        ):
            self.seed = manual_seeds[0]
            more = dict(infer_steps=infer_step, guidance_scale=guidance_scale)
            latents = self.text2music_diffusion_process(length=1024, **more)
            wave = latents.flatten(1)
            path = self.save_wav_file(wave, 0, save_path=None, sample_rate=48000, format="wav")
            Path(path.replace(".wav", "_input_params.json")).write_text("{}")
            return [path, {}]

    for name in hosts.AceStep1.files:
        (folder / name).mkdir()
    pretend(patch, "acestep.pipeline_ace_step", ACEStepPipeline=ACEStepPipeline)


TINY = {
    "sd3": ("sd35", tiny.sd3, {"height": 32, "width": 32}),
    "flux": ("flux", tiny.flux, {"height": 32, "width": 32}),
    "hunyuan-video": (
        "hunyuanvideo-chronomagic", tiny.hunyuan_video, {"height": 32, "width": 32, "num_frames": 5}
    ),
    "ace-step": ("acestep", tiny.ace_step, {"audio_duration": 4.0}),
    "minimax-h3": ("minimax-h3", tiny.minimax_h3, {"height": 32, "width": 32}),
    "tangoflux": ("tangoflux", tangoflux, {"duration": 0.25}),
    "hunyuan3d": ("hunyuan3d", hunyuan3d, {"octree_resolution": 8}),
    "trellis": ("trellis", trellis, {"sparse_structure_steps": 4}),
    "hy-motion": ("hy-motion", hy_motion, {}),
    "ace-step-v1": ("acestep-v1", ace_step_v1, {}),
}  # fmt: skip
OWN = [name for name, kind in hosts.HOSTS.items() if issubclass(kind, upstream.Upstream)]


def marked(names: Any) -> list[Any]:
    """Two of the libraries are installed for the long tests only."""
    real = ("tangoflux", "hunyuan3d")
    return [pytest.param(n, marks=pytest.mark.extra) if n in real else n for n in names]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The folder of a tiny model of a host's class, as diffusers or its own library has it."""
    root, there = tmp_path_factory.mktemp("checkpoints"), {}

    def folder(host: str) -> Path:
        if host not in there:
            torch.manual_seed(0)
            path = root / host
            if host in OWN:
                path.mkdir(exist_ok=True)
                TINY[host][1](path, patch)
            else:
                tiny.save(TINY[host][1](), path)
            there[host] = path
        return there[host]

    with pytest.MonkeyPatch.context() as patch:
        yield folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of four pictures."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures")
    for i, name in enumerate(("cat", "dog", "house", "shoe")):
        Image.new("RGB", (8, 8), (60 * i, 200 - 40 * i, 90)).save(folder / f"{name}.png")
    return folder


@pytest.fixture(scope="module", autouse=True)
def surroundings(tmp_path_factory):
    """One thread, no weights of metrics wherever this runs, and a processor for MiniMax-H3.

    A pipeline is loaded once: every run leaves it as it was.
    """
    threads, load = torch.get_num_threads(), d.ModularPipeline.load_components
    load_host, pipes = pipelines.Pipeline.load, {}

    def load_once(host, folder, device, dtype, offload=None):
        key = (host.kind, str(folder), device, dtype)
        if key not in pipes:
            load_host(host, folder, device, dtype, offload)
            pipes[key] = host.pipe
        host.pipe, host.device = pipes[key], torch.device(device)

    def with_processor(pipe, *args, **kwargs):
        load(pipe, *args, **kwargs)
        pipe.update_components(processor=tiny.Processor())

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GEOSHRINK_WEIGHTS", str(tmp_path_factory.mktemp("weights")))
        patch.delenv("GEOSHRINK_CLAP", raising=False)
        patch.setattr(d.ModularPipeline, "load_components", with_processor)
        patch.setattr(pipelines.Pipeline, "load", load_once)
        yield
    torch.set_num_threads(threads)


def small(host: str, rows: list[Any] = OURS_AND_DIRECT, **more: Any) -> dict[str, Any]:
    count = {"count": 1, "take": "first"}
    own = dict(seeds=1, steps=STEPS, prompts=count, call=TINY[host][2], rows=rows, offload=None)
    return own | more


def results_of(folder: Path) -> dict[str, Cell]:
    (setting,) = load([folder]).settings
    return {cell.title: cell for cell in setting.cells}


def start(host: str, checkpoint: Any, out: Path, **more: Any) -> Any:
    given = {"change": small(host), "device": "cpu", "quiet": True, **more}
    return run(TINY[host][0], checkpoint(host), PROMPTS, out, **given)


#: Which rows of a suite run here: budgets of 15 and more take long.
ROWS = {
    "sd35": slice(None), "flux": slice(None), "hunyuanvideo-chronomagic": slice(None),
    "hunyuanvideo-vbench": slice(5, None), "ablation": slice(None), "motivation": slice(None),
    "tradeoff": slice(24, None, 4),
}  # fmt: skip
NEED_WEIGHTS = ("LPIPS", "ImageReward", "MTScore", "VBench", "CLIP", "CLIP image", "FVD", "CLAP")
UNPUBLISHED = ("uTMR R@3", "Matching")


def forwards(host: str, steps: int) -> list[int]:
    """Of each stage: the guided ones of some models have two."""
    if host == "trellis":
        times = [3 * (1 - i / steps) / (1 + 2 * (1 - i / steps)) for i in range(steps)]
        return [2 if 0.5 <= t <= 0.95 else 1 for t in times]
    if host == "ace-step-v1":
        return [2 if int(steps / 4) <= i < int(3 * steps / 4) else 1 for i in range(steps)]
    return [1] * steps


@pytest.mark.parametrize("name", marked(SUITES))
def test_a_suite_from_a_folder_to_the_table(name, checkpoint, pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(mesh, "render", partial(mesh.render, size=(32, 32)))
    suite = read(name)
    stages = 16 if suite.rows[0].budget == 15 else 11
    chosen = suite.rows[ROWS.get(name, slice(3))]
    rows = [dataclasses.asdict(row) for row in chosen]
    steps = stages + (suite.host == "minimax-h3")
    stages += suite.host == "hunyuan3d"  # its last has no length, and is never queried
    change = small(suite.host, rows, steps=max(steps, stages))
    given = pictures if hosts.HOSTS[suite.host].pictures else PROMPTS
    progress = run(name, checkpoint(suite.host), given, tmp_path, change=change, quiet=True)
    assert not progress.failed and not progress.skipped and progress.done == 1 + len(rows)
    found, each = results_of(tmp_path), forwards(suite.host, stages)
    assert found["full"].result["forwards"] == sum(each) and found["full"].evaluations == stages
    evaluated = {(s["method"], s["budget"]): r["evaluated"] for s, r in Store(tmp_path).cells()}
    for row in chosen:
        cell = found[row.title]
        expected = sum(each)  # rivals enter the network at every stage
        if row.method == "direct":
            expected = sum(forwards(suite.host, row.budget or 0))
        elif row.budget is not None:
            expected = sum(each[n] for n in evaluated[row.method, row.budget])
        assert cell.result["forwards"] == expected and cell.median and cell.median > 0
        assert cell.evaluations == row.budget or (row.budget is None and cell.evaluations < stages)
        for (column, _), value in cell.scores.items():
            if isinstance(value, str):
                assert value.startswith("skipped: "), (column, value)
                assert column in (*NEED_WEIGHTS, *UNPUBLISHED)
    text = (tmp_path / "summary.md").read_text("utf-8")
    numbers = [f"{n:g}{'×' * (k == 'speedup')}" for row in chosen for k, n in row.paper.items()]
    assert all(f"| {number} |" in text for number in numbers) and "the suite chooses" in text
    if suite.host in OWN:
        again = run(name, checkpoint(suite.host), given, tmp_path, change=change, quiet=True)
        assert (again.done, again.kept, again.failed) == (0, progress.done, [])


@pytest.fixture
def own(checkpoint, pictures):
    """A host with a library of its own, its suite in small, and two prompts."""

    def of(host: str) -> Any:
        made = hosts.HOSTS[host]()
        made.load(checkpoint(host), "cpu", "fp32")
        given = prompts.read(pictures if made.pictures else PROMPTS)[:2]
        return made, read(TINY[host][0], small(host)), given

    return of


@pytest.mark.parametrize("name", marked(OWN))
def test_a_host_with_its_own_library_loses_nothing(name, own):
    """All stages queried are the plain run; seeds and prompts matter; nothing stays attached."""
    host, suite, (one, two) = own(name)
    owners = [host.enter()[0], *(owner for owner, _ in host.ends()), host.pipe]

    def attached() -> Any:
        named = [{k: v for k, v in vars(o).items() if inspect.isroutine(v)} for o in owners]
        return named, getattr(host.pipe, "validation_steps", None)

    def made(row: Row, prompt: Any = one, seed: int = 0) -> Any:
        method = Again() if row is FULL else OURS[row.method]
        return CheckpointCase(host, suite, prompt, seed).run(method, row.budget)

    def same(a: Any, b: Any) -> bool:
        return all(torch.equal(part, b.x.parts[key]) for key, part in a.x.parts.items())

    budget = STEPS - (name == "hunyuan3d")  # its last stage has no length
    before, full = attached(), made(FULL)
    exact = made(Row("GeoShrink (published)", budget))
    assert same(full, made(FULL)) and same(full, exact)
    assert full.forwards == exact.forwards and full.steps == STEPS
    assert not same(full, made(Row("GeoShrink (published)", BUDGET)))
    assert not same(full, made(FULL, seed=1))
    assert name in ("hy-motion", "ace-step-v1") or not same(full, made(FULL, two))
    assert attached() == before


@pytest.mark.extra
def test_caches_run_where_the_blocks_are_those_of_diffusers(own):
    rows = Row("FORA", options={"interval": 1}), Row("FORA", options={"interval": 3})
    host, suite, (prompt, _) = own("tangoflux")

    def wave(row: Row) -> Any:
        method = Again() if row is FULL else METHODS[row.method](row.options, lambda: [], STEPS)
        made = CheckpointCase(host, suite, prompt, 0).run(method, None)
        return made.x.parts["wave"], made.evaluated

    (plain, _), (same, _), (other, evaluated) = map(wave, (FULL, *rows))
    assert torch.equal(plain, same) and not torch.equal(plain, other) and len(evaluated) == 3
    trellis = CheckpointCase(hosts.Trellis(), suite, prompt, 0)
    with pytest.raises(Skipped, match="acts on the blocks of diffusers' transformers: Trellis"):
        trellis.run(METHODS["FORA"]({"interval": 1}, lambda: [], STEPS), None)


@pytest.mark.extra
def test_a_model_of_pictures(checkpoint, pictures, tmp_path):
    """Texts are refused; a picture decides its cell; a run without a surface is told."""

    def nothing(host, prompt, seed, steps, **call):
        return original(host, prompt, seed, steps, **call, mc_level=1e9)

    original, change = hosts.Hunyuan3D.call, small("hunyuan3d", OURS_AND_DIRECT[:1])
    folder = checkpoint("hunyuan3d")
    how: dict[str, Any] = {"change": change, "quiet": True}
    with pytest.raises(ValueError, match="given pictures, and 'a red cat' is no file"):
        run("hunyuan3d", folder, PROMPTS, tmp_path / "out", **how)
    assert not (tmp_path / "out").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts.Hunyuan3D, "call", nothing)
        spec, reason = run("hunyuan3d", folder, pictures, tmp_path, **how).failed[0]
    assert reason == "ValueError: the model made no surface"
    assert (spec["prompt"], spec["picture"]) == ("cat", prompts.read(pictures)[0].picture)


def test_what_a_host_with_its_own_library_needs_is_said(checkpoint, tmp_path):
    def refused(kind, message, name, *given, **more):
        with pytest.raises(kind, match=message):
            run(name, *given, out=tmp_path / "out", quiet=True, **more)

    folder = checkpoint("trellis")
    refused(ValueError, "holds no pipeline.json: it is no checkpoint of Tr", "trellis", tmp_path)
    refused(ValueError, "runs in the checkpoint's own prec", "trellis", folder, dtype="fp16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts.Trellis, "module", "trellis_elsewhere.pipelines")
        refused(ImportError, "'trellis_elsewhere': clone microsoft/TRELLIS", "trellis", folder)
    with pytest.raises(ValueError, match="runs in bf16 or fp32, not in fp16"):
        hosts.AceStep1().load(checkpoint("ace-step-v1"), "cpu", "fp16")
    assert not (tmp_path / "out").exists()


def identical(cell: Cell) -> bool:
    return cell.mean("PSNR") == math.inf


@pytest.mark.parametrize("host", ["sd3", "flux", "hunyuan-video"])
def test_what_runs_every_stage_is_the_full_run(host, checkpoint, tmp_path):
    """The seams lose nothing: rivals in a pipeline's loop, and ours, with all stages in full."""
    never = {"threshold": 0.0}
    by_interval = ("FORA", "ToCa", "TaylorSeer", "HiCache", "ResilPhase")
    always: dict[str, Any] = {name: {"interval": 1} for name in by_interval}
    always |= {"TeaCache": never, "FirstBlockCache": never, "MagCache": never, "DBCache": never}
    rows: list[Any] = [{"method": m, "options": options} for m, options in always.items()]
    rows += [{"method": "GeoShrink (published)", "budget": STEPS}]
    rows += [{"method": "FORA", "setting": "N = 3", "options": {"interval": 3}}]
    few = {"interval": 4, "fresh": 0.5}
    rows += [{"method": "ToCa", "setting": "N = 4", "options": few}]
    rows += [{"method": "SpeCa", "options": {"threshold": 7.0}}]
    change = small(host, rows, columns=["PSNR"])
    progress = start(host, checkpoint, tmp_path, change=change)
    assert not progress.failed
    found = results_of(tmp_path)
    whole = [cell for cell in found.values() if always.get(cell.method) == cell.options]
    for cell in (*whole, found[f"paper, B = {STEPS}"]):
        assert identical(cell) and cell.evaluations == STEPS, cell.title
    assert len(whole) == len(always)
    assert found["FORA, N = 3"].evaluations == 3 and not identical(found["FORA, N = 3"])
    speca = next(cell for cell in found.values() if cell.method == "SpeCa")
    assert 3 <= speca.evaluations < STEPS and not identical(speca)
    toca = next(r for s, r in Store(tmp_path).cells() if s["options"] == few)
    assert toca["evaluated"] == [0, 1, 2, 6] and 0 < toca["partial"] < 4
    assert found["ToCa, N = 4"].evaluations == 4 + toca["partial"]
    assert not identical(found["ToCa, N = 4"])


def test_a_rival_is_calibrated_on_other_prompts(checkpoint, tmp_path):
    rows = [{"method": "TeaCache", "options": {"threshold": 0.3}}]
    change = small("sd3", rows, columns=["PSNR"])
    assert not start("sd3", checkpoint, tmp_path, change=change).failed
    few = run("sd35", checkpoint("sd3"), ["a cat"], tmp_path / "few", change=change, quiet=True)
    assert "give a file with more" in few.skipped["TeaCache (threshold 0.3)"]


def test_what_cannot_run_inside_a_pipeline_says_why(checkpoint, tmp_path):
    rows: list[Any] = [{"method": "VDE", "budget": 8}, OURS_AND_DIRECT[0]]
    progress = start("flux", checkpoint, tmp_path, change=small("flux", rows))
    assert "outside the transformer" in progress.skipped["VDE, B = 8"] and progress.done == 2
    assert "cannot run in a pipeline" in str(results_of(tmp_path)["VDE, B = 8"].score("PSNR"))
    rows = [{"method": name, "options": {"interval": 3}} for name in ("ToCa", "FORA")]
    progress = start("ace-step", checkpoint, tmp_path / "other", change=small("ace-step", rows))
    assert not progress.failed and progress.done == 1
    why = "cannot run in AceStepPipeline: no list of blocks is known for a AceStepTransformer"
    assert all(why in progress.skipped[f"{name} (interval 3)"] for name in ("ToCa", "FORA"))


def test_a_host_gives_what_the_pipeline_gives(checkpoint):
    host, call = hosts.Flux(), TINY["flux"][2]
    host.load(checkpoint("flux"), "cpu", "fp32")
    watched = (host.pipe, host.pipe.transformer, host.pipe.scheduler, host.pipe.vae)
    made = host.sample("a cat", 3, 4, call)
    plain = host.pipe(
        "a cat", num_inference_steps=4, generator=torch.Generator().manual_seed(3),
        output_type="pt", **call,
    ).images  # fmt: skip
    assert torch.equal(made.x.parts["frames"], bytes_of(plain))
    assert made.forwards == made.steps == 4
    assert not {"_call_impl", "step"} & set().union(*(set(vars(part)) for part in watched))
    with pytest.raises(ValueError, match="FluxPipeline takes no 'num_frames'"):
        host.sample("a cat", 3, 4, {"num_frames": 5})


def test_encoding_and_decoding_are_not_timed(checkpoint, monkeypatch):
    host = hosts.Flux()
    host.load(checkpoint("flux"), "cpu", "fp32")
    clock = [0.0]

    def tick():
        clock[0] += 1
        return clock[0]

    def slow(call):
        def slower(*args, **kwargs):
            clock[0] += 1000
            return call(*args, **kwargs)

        return slower

    monkeypatch.setattr(loop.time, "perf_counter", tick)
    monkeypatch.setattr(host.pipe.vae, "decode", slow(host.pipe.vae.decode))
    monkeypatch.setattr(host.pipe, "encode_prompt", slow(host.pipe.encode_prompt))
    assert host.sample("a cat", 0, 6, TINY["flux"][2]).seconds == 6 and clock[0] > 2000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_clock_of_a_gpu(checkpoint):
    host = hosts.Flux()
    host.load(checkpoint("flux"), "cuda", "bf16")
    began = time.perf_counter()
    made = host.sample("a cat", 0, 6, TINY["flux"][2])
    assert 0 < (made.seconds or 0) < time.perf_counter() - began and made.forwards == 6


def test_what_was_queried_beyond_the_plan_is_said():
    result = {"evaluations": 12.0, "reasons": ["another expert"]}
    cell = Cell("GeoShrink (corrected)", budget=10, status="done", result=result, speedup=1.0)
    cell.scores["PSNR", "full"] = Score(20.0)
    metrics = {"PSNR": Measure("PSNR", "dB", "higher")}
    text = beside(Setting("t", "flux", {}, [cell], metrics, ["full"], label="tab")).markdown()
    assert "| geoshrink, B = 10 | 12 (1) | 1× | — | 20.00 | — |" in text
    assert "(1) another expert" in text


# -- resuming, metrics that come later, sets, tools


@pytest.fixture(scope="module")
def begun(checkpoint, tmp_path_factory):
    """A small run of FLUX in a folder: two prompts, two seeds; and the way to go on in another."""

    def go(folder, **more):
        change = small("flux", OURS_AND_DIRECT[:2], columns=["PSNR", "ImageReward", "FVD"])
        change |= dict(seeds=2, prompts={"count": 2, "take": "first"})
        return start("flux", checkpoint, folder, change=change, **more)

    folder = tmp_path_factory.mktemp("begun")
    go(folder)
    return go, folder


@pytest.fixture
def ran(begun, tmp_path):
    go, folder = begun
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return lambda: go(tmp_path), tmp_path


def test_a_run_goes_on_where_it_was(ran, monkeypatch):
    go, folder = ran

    def numbers():
        cells = results_of(folder).items()
        return {title: (cell.median, cell.score("PSNR")) for title, cell in cells}

    before, cells = numbers(), Store(folder).files()
    with monkeypatch.context() as patch:
        patch.setattr(hosts.Flux, "load", lambda *args: pytest.fail("nothing is to be run"))
        again = go()
    assert (again.done, again.kept, again.failed) == (0, 12, [])
    assert numbers() == before
    cells[3].write_text("{")
    again = go()
    assert (again.done, again.kept, again.damaged) == (1, 11, 1)


def test_the_speedup_is_of_the_loops_seconds(ran):
    folder = ran[1]
    seconds: dict[str, float] = {}
    for spec, result in Store(folder).cells():
        seconds[spec["method"]] = seconds.get(spec["method"], 0.0) + result["seconds"]
    found = results_of(folder)[f"direct, B = {BUDGET}"].speedup
    assert found == pytest.approx(seconds["full"] / seconds["direct"])


@pytest.mark.parametrize(
    "other", [{"call": {"guidance_scale": 2.0}}, {"steps": STEPS - 1}, {"seeds": 3}]
)
def test_what_decides_a_sample_names_its_cell(begun, checkpoint, tmp_path, other):
    """Another call or grid is another cell; another seed is a cell more."""
    shutil.copytree(begun[1], tmp_path, dirs_exist_ok=True)
    given = small("flux", OURS_AND_DIRECT[:1], columns=["PSNR"]) | {"prompts": {"count": 1}}
    given = {**given, **other, "call": {**given["call"], **other.get("call", {})}}
    progress = run("flux", checkpoint("flux"), PROMPTS, tmp_path, change=given, quiet=True)
    more = 2 if "seeds" in other else 0
    assert (progress.done, progress.kept) == (2, 2 * more)


def test_a_metric_that_comes_later_needs_no_new_run(ran, monkeypatch):
    go, folder = ran
    monkeypatch.setattr(hosts.Flux, "load", lambda *args: pytest.fail("nothing is to be run"))

    def brightness(sample, tools):
        frames = sample.part("frames").double()
        return torch.stack([frames.mean(), frames.std(), frames.max()])

    fake = dataclasses.replace(COLUMNS["FVD"], features=brightness)  # type: ignore[type-var]
    monkeypatch.setitem(COLUMNS, "FVD", fake)
    go()
    rows = results_of(folder)
    sets: dict[Any, Any] = {}
    for spec, result in Store(folder).cells():
        key = (spec["method"], spec["seed"], spec["prompt"])
        sets[key] = torch.tensor(result["scores"]["FVD"]["value"])

    def of(method, seed):
        return torch.stack([sets[method, seed, prompt] for prompt in PROMPTS[:2]])

    each = [frechet_distance(of("direct", s), of("full", s)) for s in (0, 1)]
    found = rows[f"direct, B = {BUDGET}"].score("FVD")
    assert isinstance(found, Score) and found.mean == pytest.approx(statistics.fmean(each))
    assert found.sd == pytest.approx(statistics.stdev(each))


def test_stale_cells_are_made_anew_with_their_scores(ran, monkeypatch):
    """A sample that is run again for others leaves its cell the work of the code it had."""
    go, folder = ran
    store = Store(folder)
    old = {"method": "0" * 16, "runner": "0" * 16}
    for spec, result in list(store.cells()):
        assert set(result["code"]) == set(old)
        told = {name: score | {"value": 7.0} for name, score in result["scores"].items()}
        store.write(spec, result | {"code": old, "scores": told})
    for path in (folder / "samples").iterdir():
        path.unlink()
    direct = next(spec for spec, _ in store.cells() if spec["method"] == "direct")
    store.path(direct).unlink()
    progress = go()
    assert (progress.done, progress.kept, progress.stale) == (1, 11, 11)
    codes = [result["code"] == old for spec, result in store.cells()]
    assert sum(codes) == 11 and code.state_of(direct, store.read(direct) or {}) == code.CURRENT
    progress = command.resume(folder, quiet=True, stale=True)
    assert (progress.done, progress.kept) == (11, 1)
    for spec, result in store.cells():
        assert code.state_of(spec, result) == code.CURRENT
        assert all(score.get("value") != 7.0 for score in result["scores"].values())


def test_a_failing_metric_is_told_and_costs_no_other(ran, monkeypatch):
    go, folder = ran

    def broken(sample, tools):
        raise RuntimeError("no memory")

    fake = dataclasses.replace(COLUMNS["FVD"], features=broken)  # type: ignore[type-var]
    monkeypatch.setitem(COLUMNS, "FVD", fake)
    assert len(go().failed) == 12
    cell = results_of(folder)[f"direct, B = {BUDGET}"]
    assert cell.score("FVD") == "failed: FVD: RuntimeError: no memory" and cell.mean("PSNR")


def test_a_tool_outside_is_read_when_it_has_run(ran):
    go, folder = ran
    column = results_of(folder)[f"direct, B = {BUDGET}"].score("ImageReward")
    assert str(column).startswith("skipped: ImageReward has not run: run.sh in every folder of")
    tools = sorted(p for p in (folder / "tools" / "ImageReward").iterdir())
    assert len(tools) == 3 and all("test-benchmark.py" in (t / "run.sh").read_text() for t in tools)
    name = "ImageReward-v1.0"
    for tool in tools:
        place = tool / "results" / name
        place.mkdir()
        scores = [{"prompt": p, "rewards": [0.5 + i, 1.0 + i]} for i, p in enumerate(PROMPTS[:2])]
        (place / f"{name}-benchmark-geoshrink-result.json").write_text(json.dumps(scores))
        (tool / "results" / "version.txt").write_text("image-reward 1.5")
    go()
    value = results_of(folder)["full"].score("ImageReward")
    assert isinstance(value, Score) and value.mean == pytest.approx(1.25)
    assert value.sd == pytest.approx(0.5**1.5)


def test_a_failing_sample_is_told_and_tried_again(ran, monkeypatch):
    go, folder = ran
    spec = next(spec for spec, _ in Store(folder).cells() if spec["method"] == "direct")
    Store(folder).path(spec).unlink()
    with monkeypatch.context() as patch:
        patch.setattr(hosts.Flux, "call", lambda *args, **kwargs: 1 / 0)
        assert [reason for _, reason in go().failed] == ["ZeroDivisionError: division by zero"]
    assert (
        results_of(folder)[f"direct, B = {BUDGET}"].score("PSNR")
        == "1 of 4 missing: failed: ZeroDivisionError: division by zero"
    )
    assert go().done == 1
    score = results_of(folder)[f"direct, B = {BUDGET}"].score("PSNR")
    assert isinstance(score, Score) and score.count == 4


def test_a_prompt_that_comes_twice_is_made_and_exported_once(checkpoint, tmp_path):
    change = small("flux", OURS_AND_DIRECT[:1], prompts={"count": 3, "take": "all"}, seeds=2)
    twice = ["a cat", "a dog", "a cat"]
    progress = run("flux", checkpoint("flux"), twice, tmp_path, change=change, quiet=True)
    assert (progress.done, progress.kept, progress.failed) == (8, 4, [])
    tools = list((tmp_path / "tools" / "ImageReward").iterdir())
    assert {len(list(tool.rglob("*.png"))) for tool in tools} == {4}


def test_samples_that_are_not_kept_cannot_be_exported(checkpoint, tmp_path):
    start("flux", checkpoint, tmp_path, keep=False)
    cell = results_of(tmp_path)[f"direct, B = {BUDGET}"]
    assert "1 of 1 samples were not kept" in str(cell.score("ImageReward")) and cell.mean("PSNR")
    assert not (tmp_path / "samples").exists()


def test_samples_on_disk(tmp_path):
    path = tmp_path / "x.safetensors"
    Sample(
        {"frames": torch.arange(12, dtype=torch.uint8).reshape(1, 3, 2, 2)}, {"rate": 48000}
    ).save(path)
    found = Sample.load(path)
    assert found and found.rate == 48000 and found.part("frames").flatten().tolist() == [*range(12)]
    with pytest.raises(ValueError, match="has frames, not wave"):
        found.part("wave")
    path.write_bytes(path.read_bytes()[:40])
    assert Sample.load(path) is None and Sample.load(tmp_path / "none") is None
    with pytest.raises(ValueError, match="infinite or no number"):
        bytes_of(torch.tensor([0.5, torch.nan]))
    with pytest.raises(ValueError, match="infinite or no number"):
        mono(torch.tensor([[torch.inf, 0.0]]))


def test_columns_in_the_papers_units():
    pytest.importorskip("point_cloud_utils")
    trimesh: Any = pytest.importorskip("trimesh")
    box, moved = trimesh.creation.box(), trimesh.creation.box()
    moved.apply_translation([0.01, 0, 0])
    tools, prompt = columns.Tools(), prompts.Prompt("", "")
    pair = [
        Sample({"vertices": torch.tensor(m.vertices), "faces": torch.tensor(m.faces)})
        for m in (moved, box)
    ]

    def score(name, made, full):
        column = COLUMNS[name]
        assert isinstance(column, columns.Each)
        return column.of(made, full, prompt, tools)

    assert score("Hausdorff", *pair) == pytest.approx(0.01, rel=1e-3)
    assert score("Center CD²", *pair) == pytest.approx(2e-4, rel=1e-3)
    assert score("IoU", *pair) == pytest.approx(0.99 / 1.01, rel=1e-3)
    assert columns.frames(pair[0], tools).shape == (4, 3, 224, 224)
    assert 10 < score("PSNR", *pair) < 60
    points = [
        Sample({**p.parts, "centres": torch.tensor([[0.0, 0, i]])}) for i, p in enumerate(pair)
    ]
    assert score("Center CD²", *points) == pytest.approx(2)
    still = torch.zeros(5, 3, 3)
    joints = [Sample({"joints": j}) for j in (still + torch.tensor([0.1, 0, 0]), still)]
    assert score("Global MPJPE", *joints) == pytest.approx(100) and score("VelErr", *joints) == 0
    with pytest.raises(Skipped, match="not published"):
        score("Matching", *joints)


# -- bad input


def broken(change: dict[str, Any]) -> Any:
    return lambda: read("flux", change)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: read("fluxx"), "no suite 'fluxx': give a YAML file, or one of"),
        (broken({"stepz": 3}), "unknown key 'stepz'"),
        (broken({"host": "sdxl"}), "host: no 'sdxl'; there are sd3"),
        (broken({"columns": ["PSNRR"]}), "columns: no 'PSNRR'"),
        (broken({"dtype": "int8"}), "dtype: no 'int8'"),
        (broken({"prompts": {"take": "last"}}), "take: no 'last'"),
        (broken({"prompts": {"cuont": 3}}), "unknown key 'cuont'"),
        (broken({"seeds": 0}), "seeds must be at least 1, got 0"),
        (broken({"rows": []}), "has no rows"),
        (broken({"rows": ["direct"]}), "a row is .*got 'direct'"),
        (broken({"rows": [{"method": "DeepCache"}]}), "method: no 'DeepCache'"),
        (broken({"rows": [{"method": "direct"}]}), "direct needs a budget"),
        (broken({"rows": [{"method": "direct", "budget": 51}]}), "budget 51 is not from 1 to"),
        (broken({"rows": [{"method": "FORA", "interval": 3}]}), "unknown key 'interval'"),
        (
            broken({"rows": [{"method": "FORA", "paper": {"FID": 1}}]}),
            "unknown column 'FID'; there are ImageReward",
        ),
        (broken({"rows": [{"method": "FORA", "paper": {"PSNR": "x"}}]}), "must be a number, got"),
        (lambda: read({"title": "x"}), "the suite has no label"),
    ],
)  # fmt: skip
def test_bad_suites_are_quoted(act, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        act()


def test_bad_arguments_are_quoted(checkpoint, tmp_path):
    def refused(kind, message, *given, **more):
        with pytest.raises(kind, match=message):
            run(*given, out=tmp_path / "out", quiet=True, **more)

    folder, change = checkpoint("flux"), small("flux")
    refused(
        FileNotFoundError, "no folder 'nowhere' with the checkpoint", "flux", "nowhere", PROMPTS
    )
    refused(ValueError, "holds no model_index.json", "flux", tmp_path, PROMPTS)
    wrong = "holds a FluxPipeline, the suite needs a StableDiffusion3Pipeline"
    refused(ValueError, wrong, "sd35", folder, PROMPTS)
    refused(ValueError, "takes 100 prompts .first., but there are 4", "flux", folder, PROMPTS)
    refused(ValueError, "needs prompts: 100 of Pick-a-Pic", "flux", folder)
    refused(ValueError, "needs the folder of a checkpoint: black-forest-labs/FLUX.1-dev", "flux")
    refused(FileNotFoundError, "no file of prompts 'none.txt'", "flux", folder, "none.txt")
    refused(ValueError, "dtype: no 'int8'", "flux", folder, PROMPTS, dtype="int8")
    refused(ValueError, "unknown device 'gpu'", "flux", folder, PROMPTS, device="gpu")
    refused(ValueError, "number 2 has no prompt", "flux", folder, ["a", " "], change=change)
    assert not (tmp_path / "out").exists()
    empty = tmp_path / "empty.json"
    empty.write_text("[]")
    refused(ValueError, "holds no prompts", "flux", folder, empty)
    incomplete = tmp_path / "incomplete"
    shutil.copytree(checkpoint("minimax-h3"), incomplete)
    shutil.rmtree(incomplete / "vae")
    index = incomplete / "modular_model_index.json"
    index.write_text(index.read_text().replace(str(checkpoint("minimax-h3")), "nobody/nothing"))
    with pytest.raises(ValueError, match="incomplete: the component 'vae' could not be loaded"):
        hosts.MiniMaxH3().load(incomplete, "cpu", "fp32")
