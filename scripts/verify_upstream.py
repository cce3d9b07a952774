"""Runs the checks of tests/test_backends_loops.py on real checkouts, and writes what was found.

    python scripts/verify_upstream.py --trellis TRELLIS --trellis2 TRELLIS.2 \
        --hymotion HY-Motion-1.0 --acestep ACE-Step --f5tts F5-TTS --out benchmarks/upstream.md

Each argument is the folder of a clone; leave out what you do not have. The loops, schedulers,
guidance, sparse tensors and (but for F5-TTS) networks are upstream's own, tiny, with weights at
random, on the CPU: that proves plumbing, not quality. What the loops do not need is stubbed
(hosts/stubs.py of the tests): viewers, tokenizers, vocoders, CUDA attention. Needs torchdiffeq,
spconv, einops, diffusers.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

from hosts.loops import Case, problems, problems_of_an_exact_run
from hosts.stubs import Attributes, package, randn, shaken, stub, stub_attention

CASES: dict[str, Callable[[Path], dict[str, Case]]] = {}
EXACT: dict[str, Case] = {}  # loops that must be left to run as they are
STEPS, INTERVAL = 25, (0.5, 0.95)  # with rescale_t = 3: guided at the stages 4 … 18


def upstream(build: Callable[[Path], dict[str, Case]]) -> Callable[[Path], dict[str, Case]]:
    CASES[build.__name__] = build
    return build


# -- TRELLIS


def trellis_cases(name: str, pipeline: Any, sparse: Any, slat: Any, names: list[str]) -> dict:
    """The sampler of the structured latents in its pipeline, and a dense one by itself."""
    strength, interval = names
    setting = {"steps": STEPS, "rescale_t": 3.0, strength: 3.0, interval: INTERVAL}
    setting["verbose"] = False
    coords = torch.argwhere(torch.arange(128).reshape(2, 4, 4, 4) % 3 > 0).int()
    cond = {"cond": randn(2, 5, 16), "neg_cond": torch.zeros(2, 5, 16)}
    noise = sparse.SparseTensor(feats=randn(len(coords), 4), coords=coords)
    sampler = slat(pipeline)

    def structured() -> Tensor:
        model = pipeline.models["slat_flow_model"]
        return sampler.sample(model, noise, **cond, **setting).samples.feats

    def dense() -> Tensor:
        model = pipeline.models["sparse_structure_flow_model"]
        own = pipeline.sparse_structure_sampler
        return own.sample(model, randn(2, 4, 4, 4, 4), **cond, **setting).samples

    latents, structure = pipeline.models.values()
    more = (STEPS, 40, (4, 19))
    return {
        f"{name}, structured latents": Case(pipeline, structured, latents, *more, [sampler]),
        f"{name}, sparse structure": Case(
            pipeline,
            dense,
            structure,
            *more,
            [pipeline.sparse_structure_sampler],
            {"stage": "sparse_structure"},
        ),
        f"{name}, a sampler by itself": Case(sampler, structured, latents, *more),
    }


@upstream
def trellis(path: Path) -> dict[str, Case]:
    stub_attention()
    stub("easydict", EasyDict=Attributes)
    stub("open3d")
    for folder in ("", "/pipelines", "/modules"):
        package(f"trellis{folder.replace('/', '.')}", path / f"trellis{folder}")
    sparse = importlib.import_module("trellis.modules.sparse")
    models = importlib.import_module("trellis.models")
    samplers = importlib.import_module("trellis.pipelines.samplers")
    text = importlib.import_module("trellis.pipelines.trellis_text_to_3d")
    sizes: dict[str, Any] = dict(
        in_channels=4, out_channels=4, model_channels=16, cond_channels=16, num_heads=2,
        num_blocks=2, patch_size=1,
    )  # fmt: skip
    pipeline = text.TrellisTextTo3DPipeline()
    pipeline.models = {
        "slat_flow_model": shaken(models.SLatFlowModel(8, io_block_channels=None, **sizes)),
        "sparse_structure_flow_model": shaken(models.SparseStructureFlowModel(4, **sizes)),
    }
    pipeline.slat_sampler = samplers.FlowEulerGuidanceIntervalSampler(1e-5)
    pipeline.sparse_structure_sampler = samplers.FlowEulerGuidanceIntervalSampler(1e-5)
    names = ["cfg_strength", "cfg_interval"]
    return trellis_cases("TRELLIS", pipeline, sparse, lambda p: p.slat_sampler, names)


@upstream
def trellis2(path: Path) -> dict[str, Case]:
    stub_attention()
    os.environ["SPARSE_CONV_BACKEND"] = "none"
    stub("easydict", EasyDict=Attributes)
    for folder in ("", "/pipelines", "/modules"):
        package(f"trellis2{folder.replace('/', '.')}", path / f"trellis2{folder}")
    for name in ("trellis2.pipelines.rembg", "trellis2.modules.image_feature_extractor"):
        stub(name)
    stub("trellis2.representations")
    sparse = importlib.import_module("trellis2.modules.sparse")
    samplers = importlib.import_module("trellis2.pipelines.samplers")
    image = importlib.import_module("trellis2.pipelines.trellis2_image_to_3d")
    slat = importlib.import_module("trellis2.models.structured_latent_flow").SLatFlowModel
    dense = importlib.import_module("trellis2.models.sparse_structure_flow")
    sizes: dict[str, Any] = dict(
        in_channels=4, out_channels=4, model_channels=16, cond_channels=16, num_heads=2,
        num_blocks=2,
    )  # fmt: skip
    pipeline = image.Trellis2ImageTo3DPipeline()
    pipeline.models = {
        "slat_flow_model": shaken(slat(8, **sizes)),
        "sparse_structure_flow_model": shaken(dense.SparseStructureFlowModel(4, **sizes)),
    }
    for name in ("sparse_structure_sampler", "shape_slat_sampler", "tex_slat_sampler"):
        setattr(pipeline, name, samplers.FlowEulerGuidanceIntervalSampler(1e-5))
    names = ["guidance_strength", "guidance_interval"]
    cases = trellis_cases("TRELLIS.2", pipeline, sparse, lambda p: p.shape_slat_sampler, names)
    cases["TRELLIS.2, structured latents"].touched = (
        pipeline.shape_slat_sampler,
        pipeline.tex_slat_sampler,
    )
    return cases


# -- hosts on torchdiffeq


@upstream
def hymotion(path: Path) -> dict[str, Case]:
    sys.path.insert(0, str(path))
    module: Any = importlib.import_module("hymotion.pipeline.motion_diffusion")
    module.WoodenMesh = lambda: None  # its vertices are not in the repository
    network = dict(
        input_dim=201, feat_dim=32, ctxt_input_dim=16, vtxt_input_dim=8, num_layers=3,
        num_heads=2, mlp_ratio=2.0, mask_mode="narrowband",
    )  # fmt: skip
    host = module.MotionFlowMatching(
        "hymotion/network/hymotion_mmdit.HunyuanMotionMMDiT",
        network,
        "",
        {},
        infer_noise_scheduler_cfg={"validation_steps": 20},
        test_cfg={"text_guidance_scale": 3.0},
        train_frames=60,
    )
    host.motion_transformer = shaken(host.motion_transformer)
    text = {
        "text_vec_raw": randn(2, 1, 8),
        "text_ctxt_raw": randn(2, 4, 16),
        "text_ctxt_raw_length": torch.tensor([4, 3]),
    }

    def run() -> Tensor:
        made = host.generate(["a", "b"], [3, 4], 1, hidden_state_dict=text, length=25)
        return made["latent_denorm"]

    return {"HY-Motion": Case(host, run, host.motion_transformer, 20, 20, (), [module])}


class Speech(nn.Module):
    """A small network with the interface of F5-TTS's."""

    dim = 6

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(12, 6)

    def forward(self, x: Tensor, cond: Tensor, text: Tensor, time: Tensor, **how: Any) -> Tensor:
        said = self.mix(torch.cat([x, cond], -1)) + 3 * time + 0.1 * text.float().mean()
        return torch.cat([said.sin(), (said - 0.2).cos()]) if how.get("cfg_infer") else said.sin()

    def clear_cache(self) -> None:
        pass


@upstream
def f5tts(path: Path) -> dict[str, Case]:
    package("f5_tts", path / "src/f5_tts")
    package("f5_tts.model", path / "src/f5_tts/model")
    for name in ("torchaudio", "rjieba", "pypinyin", "x_transformers"):
        stub(name)
    for name in ("x_transformers.x_transformers", "flash_attn", "flash_attn.bert_padding"):
        stub(name)
    module = importlib.import_module("f5_tts.model.cfm")
    mel = nn.Identity()
    mel.n_mel_channels = 6  # type: ignore[assignment]
    host = module.CFM(shaken(Speech(), 0.5), mel_spec_module=mel)

    def run() -> Tensor:
        made, _ = host.sample(
            randn(2, 4, 6), torch.ones(2, 3).long(), torch.tensor([9, 12]), steps=20,
            cfg_strength=2.0, sway_sampling_coef=-1.0, seed=1,
        )  # fmt: skip
        return made

    return {"F5-TTS": Case(host, run, host.transformer, 20, 20, (), [module])}


# -- ACE-Step v1


@upstream
def acestep(path: Path) -> dict[str, Case]:
    sys.path.insert(0, str(path))
    for name in (
        "torchaudio", "loguru", "acestep.language_segmentation", "acestep.music_dcae",
        "acestep.music_dcae.music_dcae_pipeline", "acestep.models.lyrics_utils.lyric_tokenizer",
    ):  # fmt: skip
        stub(name)
    networks: Any = importlib.import_module("acestep.models.ace_step_transformer")
    networks.LyricEncoder = functools.partial(
        networks.LyricEncoder, output_size=16, attention_heads=2, linear_units=16
    )
    module = importlib.import_module("acestep.pipeline_ace_step")
    model = shaken(
        networks.ACEStepTransformer2DModel(
            num_layers=20, num_attention_heads=2, attention_head_dim=8, max_position=64,
            speaker_embedding_dim=8, text_embedding_dim=8, ssl_encoder_depths=[], ssl_names=[],
            ssl_latent_dims=[], lyric_encoder_vocab_size=9, lyric_hidden_size=16, max_width=64,
        )
    )  # fmt: skip
    host = object.__new__(module.ACEStepPipeline)
    host.ace_step_transformer, host.cpu_offload = model, False
    host.device, host.dtype = torch.device("cpu"), torch.float32

    def case(forwards: int, regimes: tuple[int, ...] = (5, 15), steps: int = 20, **more: Any):
        def run() -> Tensor:
            generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
            retakes = [torch.Generator().manual_seed(seed) for seed in (3, 4)]
            return host.text2music_diffusion_process(
                duration=2.0,
                encoder_text_hidden_states=randn(2, 3, 8),
                text_attention_mask=torch.ones(2, 3),
                speaker_embds=torch.zeros(2, 8),
                lyric_token_ids=torch.ones(2, 4).long(),
                lyric_mask=torch.ones(2, 4).long(),
                random_generators=generators,
                retake_random_generators=retakes,
                infer_steps=20,
                **more,
            )

        return Case(host, run, model.proj_in, steps, forwards, regimes, [model])

    source = randn(2, 8, 16, 21)
    retake: dict[str, Any] = dict(add_retake_noise=True, retake_variance=0.875, src_latents=source)
    EXACT["ACE-Step, Heun"] = case(39, (), scheduler_type="heun", guidance_scale=1.0)
    EXACT["ACE-Step, pingpong"] = case(30, (), scheduler_type="pingpong")
    return {
        "ACE-Step, APG": case(30),
        "ACE-Step, APG with a decaying scale": case(30, guidance_interval_decay=0.5),
        "ACE-Step, CFG": case(30, cfg_type="cfg", guidance_scale=5.0),
        "ACE-Step, CFG-Zero*": case(30, cfg_type="cfg_star", guidance_scale=5.0),
        "ACE-Step, three branches": case(40, guidance_scale_text=3.0, guidance_scale_lyric=2.0),
        "ACE-Step, ERG": case(30, use_erg_lyric=True, use_erg_diffusion=True),
        "ACE-Step, guided throughout": case(40, (), guidance_interval=1.0),
        "ACE-Step, without guidance": case(20, (), guidance_scale=1.0),
        "ACE-Step, retake": case(30, **retake, repaint_end=2.0),
        "ACE-Step, repaint": case(28, (3, 13), 18, **retake, repaint_start=0.5, repaint_end=1.2),
        "ACE-Step, extend": case(28, (3, 13), 18, **retake, repaint_end=2.5),
    }


# -- the log

HEAD = """# The upstream loops themselves

Made by `python scripts/verify_upstream.py --trellis PATH --trellis2 PATH --hymotion PATH
--acestep PATH --f5tts PATH --out benchmarks/upstream.md` on clones of the repositories: their own
loops with tiny networks (F5-TTS: one of ours), weights at random, on the CPU. The checks, at
budgets 8 and 12 (the tests' `hosts/loops.py`): budget = steps is bit-identical; the budget is kept
to the stage and every forward counted; guidance switches where the report says; two runs are equal,
also after an exception in mid-run and after accelerating twice; remove() leaves every object as it
was. Heun and pingpong run as they are, and the report says why.

| loop | upstream | full run | guidance switches at | result |
|---|---|---|---|---|
"""


def commit(path: Path) -> str:
    line = ["git", "-C", str(path), "log", "-1", "--format=%h, %cs"]
    found = subprocess.run(line, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no git history"


def line(title: str, path: Path, case: Case, wrong: list[str]) -> str:
    result = "; ".join(dict.fromkeys(wrong)) or "all hold"
    counts = f"{case.steps} stages, {case.forwards} forwards"
    regimes = ", ".join(map(str, case.regimes)) or "–"
    return f"| {title} | {commit(path)} | {counts} | {regimes} | {result} |"


def main() -> int:
    parser = argparse.ArgumentParser(description="The checks of the backends on real checkouts.")
    for name in CASES:
        parser.add_argument(f"--{name}", type=Path, metavar="PATH")
    parser.add_argument("--out", type=Path, help="a Markdown file to write")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows, failed = [], 0
    for name, build in CASES.items():
        path = getattr(args, name)
        if path is None:
            continue
        found = {
            title: (case, [p for budget in (8, 12) for p in problems(case, budget)])
            for title, case in build(path.resolve()).items()
        }
        found |= {title: (case, problems_of_an_exact_run(case)) for title, case in EXACT.items()}
        EXACT.clear()
        for title, (case, wrong) in found.items():
            failed += bool(wrong)
            rows.append(line(title, path, case, wrong))
            print(rows[-1], flush=True)
    if args.out is not None:
        args.out.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main())
