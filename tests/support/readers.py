"""Tiny diffusers pipelines that read prompts, as objects and as folders that diffusers saved."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

image: Any = pytest.importorskip("hosts.image")
video: Any = pytest.importorskip("hosts.video")
text: Any = pytest.importorskip("hosts.text")
TWO = {"WanPipeline": "WanPipeline (two experts)"}
#: What makes the samples of each class small.
SMALL: dict[str, dict[str, Any]] = {
    "FluxPipeline": {"height": 16, "width": 16},
    "WanPipeline": {"height": 32, "width": 32, "num_frames": 5},
    "LongCatAudioDiTPipeline": {"audio_duration_s": 1.0},
}


def reader(name: str) -> Any:
    """A pipeline of this class with a tiny tokeniser and text encoder."""
    torch.manual_seed(0)
    pipe = (image if name in image.PIPELINES else video).PIPELINES[TWO.get(name, name)]()[0]
    parts: dict[str, Any] = {"tokenizer": text.tokenizer(), "text_encoder": text.umt5()}
    if name == "FluxPipeline":
        parts = {"text_encoder": text.clip_text(), "tokenizer": text.clip_tokenizer()}
        parts |= {"text_encoder_2": text.t5(), "tokenizer_2": text.tokenizer()}
    return type(pipe)(**{**pipe.components, **settings(pipe), **parts})


def settings(pipe: Any) -> dict[str, Any]:
    """Arguments of the class that are not components, such as the noise level of Wan's switch."""
    return {key: pipe.config[key] for key in ("boundary_ratio",) if key in pipe.config}


def saved(name: str, folder: Path) -> Path:
    """The folder with such a pipeline in it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader(name).save_pretrained(str(folder))
    return folder


def small(pipe: Any) -> Any:
    """The pipeline, whose samples are small whatever size is asked for, on whatever device."""
    kind = type(pipe)
    short = SMALL[kind.__name__]

    @functools.wraps(kind.__call__)
    def call(self: Any, prompt: Any = None, **given: Any) -> Any:
        if isinstance(given.get("generator"), torch.Generator):
            given["generator"] = torch.Generator().manual_seed(given["generator"].initial_seed())
        return kind.__call__(self, prompt, **{**given, **short})

    pipe.__class__ = type(kind.__name__, (kind,), {"__call__": call})
    pipe.set_progress_bar_config(disable=True)
    return pipe
