"""Tiny diffusers pipelines, offline: a sample of them in make test, all in make test-all."""

from __future__ import annotations

import warnings

import pytest
import torch

pytest.importorskip("diffusers")

from hosts.check import all_pipelines, check

PIPELINES = all_pipelines()
SAMPLE = (
    "FluxPipeline",
    "StableDiffusion3Pipeline",
    "StableDiffusionPipeline",
    "StableDiffusionXLImg2ImgPipeline",
    "FluxControlNetPipeline",
    "QwenImagePipeline",
    "ZImagePipeline",
    "PixArtSigmaPipeline",
    "LatentConsistencyModelPipeline",
    "WanPipeline (two experts)",
    "HunyuanVideoPipeline",
    "LTX2Pipeline",
    "CogVideoXPipeline",
    "MochiPipeline",
    "SkyReelsV2DiffusionForcingPipeline",
)


def names() -> list:
    return [
        n if n in SAMPLE else pytest.param(n, marks=pytest.mark.slow) for n in sorted(PIPELINES)
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", names())
def test_pipeline(name):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = check(name, PIPELINES[name])
    finally:
        torch.set_num_threads(threads)
    assert not outcome.problems, f"{outcome.summary}: {outcome.problems}"


def test_the_sample_is_there_and_the_table_is_long():
    assert set(SAMPLE) <= set(PIPELINES)
    assert len(PIPELINES) >= 100
