"""geoshrink compare on every backend: the media on the page, the calls that are counted.

The real loops of TangoFlux, Hunyuan3D-2, ACE-Step 1.5 and MiniMax-H3 with tiny random networks;
doubles of HY-Motion, F5-TTS, TRELLIS and ACE-Step v1 with the methods that the real ones have.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from geoshrink import cli
from geoshrink.compare import Compared, Films, Meshes, Motions, Pictures, Sounds, compare, shown
from geoshrink.compare.outcomes import DIRECT, FULL, GEOSHRINK
from hosts import music, sparse, upstream

Image = pytest.importorskip("PIL.Image")
odes: Any = pytest.importorskip("hosts.odes")
pytest.importorskip("diffusers")
video: Any = pytest.importorskip("hosts.video")

pytestmark = pytest.mark.filterwarnings("ignore")
torch.set_num_threads(1)
STEPS, BUDGET = 8, 4
PARENTS = [-1, 0, 1, 1]
RATE = 8000


@pytest.fixture(scope="module", autouse=True)
def quick_drawings() -> Iterator[None]:
    """Meshes and sounds are drawn with less care, to save time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("geoshrink_bench.kinds.meshes.POINTS", 5000)
        patch.setattr("geoshrink_bench.kinds.sounds.SIZE", (80, 40))
        yield


class Case:
    """A host, the network to count, and what compare() is given."""

    def __init__(self, host: Any, probe: nn.Module, prompts: Any = (), **given: Any):
        self.host, self.given = host, {"prompts": prompts, **given}
        self.calls: list[int] = []
        self.fail_at = 0
        probe.register_forward_pre_hook(self.count)

    def count(self, *_: Any) -> None:
        self.calls.append(1)
        if len(self.calls) == self.fail_at:
            raise RuntimeError("in mid-run")


def tangoflux() -> Case:
    host = upstream.tangoflux()
    module = upstream.upstream("tangoflux", "tangoflux", "datasets")
    inference = object.__new__(module.TangoFluxInference)
    inference.model, inference.vae = host.given, video.oobleck(64)
    return Case(inference, host.denoiser, "a dog", call={"duration": 1})


def hunyuan3d() -> Case:
    host = upstream.hunyuan3d()
    call = {"image": Image.new("RGB", (4, 4)), "octree_resolution": 12}
    return Case(host.given, host.denoiser, call=call)


def acestep() -> Case:
    pipe, call = video.PIPELINES["AceStepPipeline"]()
    pipe.scheduler = video.flow(num_train_timesteps=1, shift=1.0)
    return Case(pipe, pipe.transformer, call=call)


def minimax_h3() -> Case:
    """Its denoising and its decoding blocks, with autoencoders as tiny as they get."""
    from diffusers.modular_pipelines.minimax_h3 import modular_blocks_minimax_h3 as steps
    from diffusers.modular_pipelines.modular_pipeline import SequentialPipelineBlocks

    names = {
        "model_name": "minimax-h3",
        "block_classes": [steps.MiniMaxH3CoreDenoiseStep, steps.MiniMaxH3DecodeStep],
        "block_names": ["denoise", "decode"],
    }
    denoising, call = video.MODULAR["MiniMaxH3ModularPipeline"]()
    parts = {name: part for name, part in denoising.components.items() if part is not None}
    parts["vae"] = video.d.AutoencoderKLMiniMaxH3(
        block_out_channels=(4,) * 6, layers_per_block=1, norm_num_groups=2, decoder_num_layers=1,
        decoder_num_attention_heads=1, decoder_attention_head_dim=16,
    ).eval()  # fmt: skip
    parts["audio_vae"] = video.d.AutoencoderKLMiniMaxH3Audio(
        encoder_dim=2, encoder_rates=(5, 5), latent_dim=32, num_attention_heads=1, decoder_dim=8,
        decoder_rates=(5, 5), decoder_kernel_sizes=(9, 9), resblock_kernel_sizes=(3,),
        resblock_dilation_sizes=((1,),), sampling_rate=RATE, latents_mean=[0.0] * 32,
        latents_std=[1.0] * 32,
    ).eval()  # fmt: skip
    pipe = type("Blocks", (SequentialPipelineBlocks,), names)().init_pipeline()
    pipe.update_components(**parts)
    return Case(pipe, pipe.transformer, call=call)


class MotionFlowMatching(odes.MotionFlowMatching):
    """generate() as HY-Motion has it."""

    body_model: Any = SimpleNamespace(parents=torch.tensor(PARENTS))

    def generate(self, text, seed_input, duration_slider, cfg_scale=None, length=None):  # type: ignore
        root = super().generate(seed_input, length or odes.FRAMES)
        offsets = torch.tensor([[0, 0, 0], [0, 0.5, 0], [0.3, 0.9, 0], [-0.3, 0.9, 0]])
        return {"keypoints3d": root[:, :, None] + offsets, "transl": root}


def hymotion() -> Case:
    host = MotionFlowMatching(steps=3)
    return Case(host, host.motion_transformer, "a wave", call={"length": 9})


def f5tts() -> Case:
    """Its CFM makes a mel spectrogram: people call the object around it."""
    host = odes.CFM()

    def infer(prompt: str, steps: int) -> tuple[torch.Tensor, int]:
        mel, _ = host.sample([9], 2, steps=steps)
        return mel.flatten().repeat(200).tanh(), RATE

    return Case(host, host.transformer, "hello", call=infer)


class Shape:
    """As TRELLIS's mesh: tensors."""

    def __init__(self, points: torch.Tensor):
        self.vertices = points[:, :3]
        self.faces = torch.arange(len(points) // 3 * 3).reshape(-1, 3)


class TrellisTextTo3DPipeline(sparse.TrellisTextTo3DPipeline):
    """run() as TRELLIS has it; the first stage has steps of its own."""

    def run(  # type: ignore
        self, prompt, num_samples=1, seed=42, sparse_structure_sampler_params=(),
        slat_sampler_params=(), formats=("mesh", "gaussian", "radiance_field"),
    ):  # fmt: skip
        torch.manual_seed(seed)
        cond = dict(cond=torch.tensor(0.3), neg_cond=torch.tensor(-0.2))
        model = self.models["sparse_structure_flow_model"]
        noise = torch.randn(num_samples, 4, 3, 3, 3)
        params = {"steps": 3, **dict(sparse_structure_sampler_params)}
        dense = self.sparse_structure_sampler.sample(model, noise, **cond, **params).samples
        coords = torch.argwhere(dense.mean(1) > dense.mean())
        slat = self.fill(coords, seed, **cond, **dict(slat_sampler_params))
        return {"mesh": [Shape(slat.feats[rows]) for rows in slat.layout]}


def trellis() -> Case:
    host = TrellisTextTo3DPipeline()
    call = {"num_samples": 2, "slat_sampler_params": {"cfg_interval": (0.5, 1.0)}}
    return Case(host, host.models["slat_flow_model"].probe, "a teapot", call=call)


class ACEStepPipeline(music.ACEStepPipeline):
    """__call__ as ACE-Step v1 has it: it writes files and returns their paths."""

    def __call__(  # type: ignore
        self, format="wav", audio_duration=60.0, prompt=None, lyrics=None, infer_step=60,
        manual_seeds=None, save_path=None,
    ):  # fmt: skip
        assert prompt and lyrics == "" and manual_seeds == [0]
        latents = self.text2music_diffusion_process(length=50, infer_steps=infer_step)
        paths = [
            self.save_wav_file(wave.tanh().repeat(1, 60)[:2], i, save_path=None, sample_rate=RATE)
            for i, wave in enumerate(latents)
        ]
        for path in paths:
            Path(path.replace(".wav", "_input_params.json")).write_text(json.dumps({}))
        return [*paths, {}]

    def save_wav_file(self, target_wav, idx, save_path=None, sample_rate=48000, format="wav"):
        raise AssertionError("nothing is written where people stand")


def acestep_v1() -> Case:
    host = ACEStepPipeline()
    return Case(host, host.ace_step_transformer.probe, "lo-fi")


#: How to build it; kind, media, first metric; model calls of full, direct, the paper's, ours.
CASES: dict[str, tuple[Callable[[], Case], type, str, str, list[int]]] = {
    "tangoflux": (tangoflux, Sounds, "audio/wav", "SI-SDR", [8, 4, 4, 4]),
    "hunyuan3d": (hunyuan3d, Meshes, "image/webp", "Surface CD²", [8, 5, 4, 4]),
    "acestep 1.5": (acestep, Sounds, "audio/wav", "SI-SDR", [8, 4, 4, 4]),
    "minimax-h3": (minimax_h3, Films, "audio/wav", "PSNR", [7, 4, 4, 4]),
    "hy-motion": (hymotion, Motions, "image/webp", "Global MPJPE", [8, 4, 4, 4]),
    "f5-tts": (f5tts, Sounds, "audio/wav", "SI-SDR", [8, 4, 4, 4]),
    "trellis": (trellis, Meshes, "image/webp", "Surface CD²", [13, 7, 7, 6]),
    "acestep v1": (acestep_v1, Sounds, "audio/wav", "SI-SDR", [12, 6, 5, 6]),
}
RUN: dict[str, tuple[Compared, str, int, Case]] = {}


def run(name: str, tmp_path_factory: Any) -> tuple[Compared, str, int, Case]:
    """(what was compared, the page, model calls that a hook counted, the case), once for all."""
    if name not in RUN:
        case, out = CASES[name][0](), tmp_path_factory.mktemp("compare") / "index.html"
        given: dict[str, Any] = {
            "steps": STEPS,
            "budgets": (BUDGET,),
            "out": out,
            "progress": False,
        }
        compared = compare(case.host, **given, **case.given)
        RUN[name] = compared, out.read_text("utf-8"), len(case.calls), case
    return RUN[name]


@pytest.fixture(params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_page_has_its_media_and_its_metric(name, tmp_path_factory):
    compared, html, _, _ = run(name, tmp_path_factory)
    _, kind, media, metric, _ = CASES[name]
    assert isinstance(compared.made, kind)
    count = len(compared.subjects) * len(compared.outcomes)
    assert count >= 4 and html.count(f"data:{media};base64,") == count
    assert compared.table().columns[5].name == metric
    assert metric in html and compared.verdict()[0] in html
    first = {o.method: o.scores[0] for o in compared.outcomes}
    assert all(np.isfinite(first[DIRECT])) and first[DIRECT] != first[GEOSHRINK]


def test_the_calls_are_those_that_were_made(name, tmp_path_factory):
    compared, _, made, _ = run(name, tmp_path_factory)
    calls = [o.calls for o in compared.outcomes]
    assert calls == CASES[name][-1]
    warm_up = {"hunyuan3d": 4, "minimax-h3": 3}.get(name, calls[1])
    assert made == sum(calls) + warm_up


def test_the_full_run_is_the_host_itself(name, tmp_path_factory):
    compared, _, _, case = run(name, tmp_path_factory)
    torch.manual_seed(0)
    output = compared.loaded(case.given["prompts"] or None, STEPS, 0)
    plain = compared.loaded.show(output)
    full: Any = next(media for (_, label), media in compared.media.items() if label == FULL)
    assert plain.medium(0, full.alt, plain) == full


def test_costs_that_differ_are_said(tmp_path_factory):
    lines = {name: run(name, tmp_path_factory)[0].warnings() for name in CASES}
    compared = run("acestep v1", tmp_path_factory)[0]
    cheaper = [replace(o, calls=5) if o.method == GEOSHRINK else o for o in compared.outcomes]
    said = replace(compared, outcomes=cheaper).warnings()[-1]
    assert "B = 4: direct made 6 model calls, geoshrink 5" in said
    assert "changes nothing: direct has B + 1 steps." in lines["hunyuan3d"][-1]
    assert not any("not the same cost" in line for line in lines["hunyuan3d"])
    assert any("direct made 7 model calls, geoshrink 6" in line for line in lines["trellis"])
    table = run("trellis", tmp_path_factory)[0].table()
    assert "denoiser" not in [column.name for column in table.columns]  # its time is not seen


def test_a_builder_and_a_function_on_the_command_line(tmp_path, monkeypatch, capsys):
    module = SimpleNamespace(hymotion=lambda: MotionFlowMatching(3), f5=lambda: voice())
    monkeypatch.setitem(sys.modules, "my_hosts", module)
    monkeypatch.chdir(tmp_path)
    short = ["--prompts", "a wave", "--steps", "8", "--budgets", "4"]
    assert cli.main(["compare", "my_hosts:hymotion", *short, "--kwargs", '{"length": 9}']) == 0
    assert "Global MPJPE" in capsys.readouterr().out
    assert cli.main(["compare", "my_hosts:f5", *short]) == 0
    assert "SI-SDR" in capsys.readouterr().out
    assert cli.main(["compare", "my_hosts:hymotion", *short, "--kwargs", '{"seed_input": 1}']) == 2
    assert "leave out 'seed_input'" in capsys.readouterr().err


def voice() -> tuple[Any, Any]:
    case = f5tts()
    return case.host, case.given["call"]


@pytest.mark.parametrize("where", ["warm-up", "accelerated"])
@pytest.mark.parametrize("name", ["hy-motion", "trellis", "acestep v1"])
def test_a_failing_run_leaves_the_host_as_it_was(name, where, tmp_path):
    case = CASES[name][0]()
    before = dict(vars(case.host))
    full, direct = CASES[name][-1][:2]
    case.fail_at = 2 if where == "warm-up" else direct + full + direct + 2
    with pytest.raises(RuntimeError, match="in mid-run"):
        compare(case.host, **case.given, steps=8, budgets=(4,), out=tmp_path / "x.html")
    assert vars(case.host) == before and not list(tmp_path.iterdir())


# What hosts return


def box(size: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    trimesh = pytest.importorskip("trimesh")
    made = trimesh.creation.box((size, size, size))
    return made.vertices, made.faces


WAVE = torch.sin(torch.arange(4000) / 7)


@pytest.mark.parametrize(
    "output, kind, count",
    [
        ((WAVE, RATE), Sounds, 1),
        ({"audio": [WAVE, WAVE], "sampling_rate": RATE}, Sounds, 2),
        (SimpleNamespace(audios=WAVE.expand(3, 2, -1), sample_rate=RATE), Sounds, 3),
        (SimpleNamespace(audios=WAVE.numpy()[None], sample_rate=RATE), Sounds, 1),
        ({"videos": torch.rand(1, 4, 3, 16, 16), "audio": WAVE, "sampling_rate": 8}, Films, 1),
        ({"mesh": [Shape(torch.rand(6, 4))]}, Meshes, 1),
        ([[Shape(torch.rand(6, 4))], [Shape(torch.rand(6, 4))]], Meshes, 2),
        ([Shape(torch.rand(6, 4)), None], Meshes, 2),
        (Shape(torch.rand(6, 4)), Meshes, 1),
        (Motions(torch.rand(2, 5, 4, 3), PARENTS), Motions, 2),
        (torch.rand(2, 3, 16, 16), Pictures, 2),
    ],
)
def test_outputs_are_recognised(output, kind, count):
    made = shown(output, "Host")
    assert isinstance(made, kind) and len(made) == count


@pytest.mark.parametrize("output", [None, 3, [], [None], {}, {"latents": torch.rand(2, 9)}, "x"])
def test_what_cannot_be_shown_is_refused(output):
    with pytest.raises(TypeError, match=r"Host returns .*which compare cannot show"):
        shown(output, "Host")


def test_a_film_lasts_as_long_as_its_sound():
    output = {"videos": torch.rand(1, 6, 3, 16, 16), "audio": WAVE[None], "sampling_rate": RATE}
    made: Any = shown(output, "Host")
    assert isinstance(made, Films) and made.video.fps == 12  # 6 frames in half a second


def test_a_device_is_given_to_hosts_that_can_move(tmp_path, monkeypatch, capsys):
    class TrellisStill(TrellisTextTo3DPipeline):
        pass

    class TrellisMoved(TrellisTextTo3DPipeline):
        def to(self, device: str) -> None:  # as TRELLIS has it
            self.device = device

    host = TrellisMoved()
    module = SimpleNamespace(still=TrellisStill, moved=lambda: host)
    monkeypatch.setitem(sys.modules, "my_hosts", module)
    monkeypatch.chdir(tmp_path)
    short = ["--prompts", "a pot", "--steps", "8", "--budgets", "4", "--device", "cpu"]
    assert cli.main(["compare", "my_hosts:still", *short]) == 2
    assert "TrellisStill has no to(): let the builder move it" in capsys.readouterr().err
    assert cli.main(["compare", "my_hosts:moved", *short]) == 0 and host.device == "cpu"


def test_scores_are_distances():
    skipped: set[str] = set()
    motion = Motions(torch.rand(1, 5, 4, 3), PARENTS)
    moved = Motions(motion.joints + torch.tensor([0.0, 0.0, 0.01]), PARENTS)
    assert moved.score(motion, skipped) == [
        [pytest.approx(10, rel=1e-3)],
        [pytest.approx(0, abs=1e-3)],
    ]
    sound, noise = Sounds(WAVE[None], RATE), torch.randn(4000, generator=torch.manual_seed(0))
    noisy = Sounds((WAVE + 0.1 * noise)[None], RATE)
    wanted = 10 * np.log10(WAVE.square().mean() / (0.1 * noise).square().mean())
    assert noisy.score(sound, skipped)[0][0] == pytest.approx(float(wanted), abs=0.2)
    vertices, faces = box()
    for scale in (1.0, 50.0):  # the box of the full run is the unit
        reference = Meshes([(scale * vertices, faces)])
        larger = Meshes([(1.1 * scale * vertices, faces)])
        assert reference.score(reference, skipped)[0][0] == pytest.approx(0, abs=1e-6)
        assert 150 < larger.score(reference, skipped)[0][0] < 300  # 0.1² both ways, and corners
    assert not skipped


def test_a_metric_without_its_package_is_skipped_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "point_cloud_utils", None)
    case = trellis()
    compared = compare(case.host, **case.given, steps=8, budgets=(4,), out=tmp_path / "x.html")
    assert any(
        "Surface CD² skipped: point_cloud_utils is missing" in w for w in compared.warnings()
    )
    assert "cannot be compared with direct" in compared.verdict()[0]
    assert all(row[5] is None for row in compared.table().rows)
    html = (tmp_path / "x.html").read_text("utf-8")
    assert "point_cloud_utils is missing" in html and ">no score<" in html and ">nan" not in html


def test_a_mesh_is_drawn_where_it_is():
    from geoshrink_bench.kinds.meshes import SIDE, drawn, view_of

    vertices, faces = box()
    paper = view_of(np.zeros((0, 3)), np.zeros((0, 3)), 0.0)
    right = (view_of(*drawn(vertices + np.array([0.8, 0, 0]), faces), 0.0) != paper).any(-1)
    above = (view_of(*drawn(vertices + np.array([0, 0, 0.8]), faces), 0.0) != paper).any(-1)
    assert right[:, SIDE // 2 :].sum() > 2000 and not right[:, : SIDE // 2].any()
    assert above[: SIDE // 2].sum() > 3 * above[SIDE // 2 :].sum()
    turned = (view_of(*drawn(vertices + np.array([0.8, 0, 0]), faces), np.pi) != paper).any(-1)
    assert turned[:, : SIDE // 2].sum() > turned[:, SIDE // 2 :].sum()


def ball(parts: int) -> tuple[np.ndarray, np.ndarray]:
    made = pytest.importorskip("trimesh").creation.icosphere(parts)
    return np.asarray(made.vertices), np.asarray(made.faces)


def test_a_mesh_is_packed_as_it_is():
    from geoshrink_bench.page.mesh import packed

    for parts, kind in ((2, "<u2"), (7, "<u4")):
        vertices, faces = ball(parts)
        data = packed(vertices, faces)
        count, triangles = np.frombuffer(data, "<u4", 2)
        assert (count, triangles) == (len(vertices), len(faces))
        end = 8 + faces.size * np.dtype(kind).itemsize
        assert np.array_equal(np.frombuffer(data[8:end], kind).reshape(-1, 3), faces)
        back = np.frombuffer(data[end:], "<i2").reshape(-1, 3) * (2 / 32767)
        np.testing.assert_allclose(back, vertices, atol=4e-5)
    assert packed(np.array([[np.nan, 9, -9]]), np.zeros((0, 3), int))[8:] == b"\0\0\xff\x7f\1\x80"


def test_many_triangles_become_few_on_the_same_surface():
    from geoshrink_bench.page.mesh import clustered

    vertices, faces = ball(5)
    assert all(a is b for a, b in zip(clustered(vertices, faces, len(faces))[:1], (vertices,)))
    few, kept = clustered(vertices, faces, 5000)
    assert 1000 < len(kept) <= 5000 and kept.max() < len(few)
    np.testing.assert_allclose(np.linalg.norm(few, axis=1), 1, atol=0.02)
    assert not (np.sort(kept, 1)[:, :2] == np.sort(kept, 1)[:, 1:]).any()
    trimesh = pytest.importorskip("trimesh")
    assert trimesh.Trimesh(few, kept).volume == pytest.approx(4 / 3 * np.pi, rel=0.03)


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_loose_triangles_are_left_out_one_by_one(scale):
    from geoshrink_bench.page.mesh import clustered

    loose = scale * np.random.default_rng(0).random((9000, 3))
    few, kept = clustered(loose, np.arange(9000).reshape(-1, 3), 1000)
    assert 500 <= len(kept) <= 1000 and len(few) == 3 * len(kept)


def test_a_mesh_says_how_much_of_it_is_drawn(monkeypatch):
    monkeypatch.setattr("geoshrink_bench.kinds.meshes.MOST", 1000)
    small, large = Meshes([ball(2)]), Meshes([ball(4)])
    assert cast(Any, small.medium(0, "a ball", small)).alt == "a ball"
    said = cast(Any, large.medium(0, "a ball", small)).alt
    assert re.fullmatch(r"a ball, drawn with [0-9]{3} of its 5,120 triangles", said)
    empty = Meshes([None]).medium(0, "nothing", small)
    assert "data-mesh=" in empty.html() and "nothing" in empty.html()


def test_a_motion_moves_at_its_own_speed():
    """However long it is, 48 frames at most last as long as it does."""
    joints = torch.rand(2, 120, 4, 3)
    made = Motions(joints, PARENTS, fps=30.0, lengths=[120, 15])
    for i, frames, duration in ((0, 48, 83), (1, 15, 33)):
        shown: Any = made.medium(i, "alt", made)
        with Image.open(io.BytesIO(shown.data)) as image:
            assert image.n_frames == frames and shown.moving
            image.seek(1)
            image.load()
            assert image.info["duration"] == duration  # in milliseconds


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e9])
def test_a_motion_that_diverged_is_drawn_all_the_same(value):
    joints = torch.rand(1, 5, 4, 3)
    reference = Motions(joints, PARENTS)
    joints = joints.clone()
    joints[0, 3, 2] = value
    assert Motions(joints, PARENTS).medium(0, "alt", reference).html()


def test_an_empty_mesh_has_no_score_and_an_empty_reference_is_refused(tmp_path):
    host, made = TrellisTextTo3DPipeline(), []
    solid = Shape(torch.rand(9, 4))

    def call(steps: int) -> Meshes:
        host.fill(
            torch.zeros(3, 4).long(),
            cond=torch.tensor(0.3),
            neg_cond=torch.tensor(0.0),
            steps=steps,
        )
        made.append(steps)
        return Meshes([None if len(made) in empty else solid])

    empty = (3,)
    given: dict[str, Any] = dict(
        call=call, steps=8, budgets=(4,), out=tmp_path / "x.html", progress=False
    )
    compared = compare(host, **given)
    assert made == [4, 8, 4, 8, 8]
    assert "direct, B = 4 made a mesh that is empty or not finite" in compared.warnings()[0]
    made.clear()
    empty = (2,)
    with pytest.raises(ValueError, match="the full run's mesh is empty"):
        compare(host, **given)


# What is refused


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Sounds(WAVE, RATE), r"sounds are floats .*got torch.float32 of shape \(4000,\)"),
        (lambda: Sounds(WAVE[None].long(), RATE), "sounds are floats"),
        (lambda: Sounds(WAVE[None], 0), "above 0 hertz, got 0"),
        (lambda: Motions(torch.rand(5, 4, 3), PARENTS), r"got \(5, 4, 3\)"),
        (lambda: Motions(torch.rand(1, 5, 4, 3), [-1, 0]), "4 joints need as many parents, got 2"),
        (lambda: Motions(torch.rand(1, 5, 4, 3), PARENTS, lengths=[6]), r"from 1 to 5, got \[6\]"),
        (lambda: Motions(torch.rand(1, 5, 4, 3), PARENTS, fps=0), "above 0, got 0"),
        (lambda: Meshes([(np.zeros((3, 2)), np.zeros((1, 3)))]), r"got \(3, 2\) and \(1, 3\)"),
    ],
)
def test_samples_of_a_wrong_shape_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_hosts_that_cannot_be_compared_say_why(tmp_path):
    out: dict[str, Any] = {"steps": 8, "budgets": (4,), "out": tmp_path / "x.html"}
    with pytest.raises(TypeError, match="built already: give it its dtype yourself"):
        compare(odes.CFM(), dtype="bf16", **out)
    with pytest.raises(TypeError, match="does not know how to accelerate a SimpleNamespace"):
        compare(SimpleNamespace(), **out)
    with pytest.raises(
        ValueError, match=r"cannot set the steps of CFM.*a function of prompt, steps"
    ):
        compare(odes.CFM(), **out)
    with pytest.raises(TypeError, match=r"takes \(prompt\): it must take steps"):
        compare(odes.CFM(), call=lambda prompt: None, **out)
    with pytest.raises(ValueError, match="CFM takes no 'prompt' in its call"):
        compare(odes.CFM(), "hello", call=lambda steps: None, **out)
    with pytest.raises(ValueError, match="MotionFlowMatching needs prompts"):
        compare(MotionFlowMatching(3), **out)
    bare = MotionFlowMatching(3)
    bare.body_model = None
    with pytest.raises(ValueError, match="has no body_model"):
        compare(bare, "a wave", **out)
    assert bare.validation_steps == 3 and not list(tmp_path.iterdir())
