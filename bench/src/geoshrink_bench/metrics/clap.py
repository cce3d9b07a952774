"""CLAP score: how well waveforms (batch, samples) fit their captions (Wu et al., 2023).

The numbers of two checkpoints do not compare: name the checkpoint in every table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from geoshrink.checks import whole

from .audio import check_heard
from .base import Metric, Skipped, library, pretrained

TOKENS = 77  # of a caption, as in training
SEED = 0  # of the windows which the checkpoint's own extractor draws from a long clip


def clap_score(
    waves: Tensor, captions: Sequence[str], rate: int, folder: str | Path | None = None
) -> Tensor:
    """cos(waveform, caption) of each pair, higher is better.

    One clip at a time: what the extractor makes of a short clip depends on the others beside it.

    rate     of the waveforms in Hz; they are resampled to the checkpoint's
    folder   of a CLAP checkpoint as transformers saves it, or the folder GEOSHRINK_CLAP names
    """
    check(waves, captions, rate)
    device = waves.device
    model, extractor, tokenizer = load(folder, device)
    heard = resampled(waves.detach().double().cpu().numpy(), rate, extractor.sampling_rate)

    def one(wave: np.ndarray, caption: str) -> Tensor:
        with drawn(SEED):
            sound = extractor(wave, sampling_rate=extractor.sampling_rate, return_tensors="pt")
        text = tokenizer(caption, truncation=True, max_length=TOKENS, return_tensors="pt")
        found = model(
            input_ids=text["input_ids"].to(device),
            attention_mask=text["attention_mask"].to(device),
            input_features=sound["input_features"].float().to(device),
            is_longer=sound["is_longer"].to(device),
        )
        return F.cosine_similarity(found.audio_embeds.double(), found.text_embeds.double())[0]

    with torch.no_grad():
        return torch.stack([one(wave, caption) for wave, caption in zip(heard, captions)])


def check(waves: Tensor, captions: Sequence[str], rate: int) -> None:
    if waves.ndim != 2 or not waves.numel():
        raise ValueError(f"CLAP needs waveforms (batch, samples), got {tuple(waves.shape)}")
    if isinstance(captions, str) or len(captions) != len(waves):
        raise ValueError(f"{len(waves)} waveforms need as many captions, got {captions!r:.200}")
    for i, caption in enumerate(captions):
        if not isinstance(caption, str) or not caption.strip():
            raise ValueError(f"caption {i} must be some words, got {caption!r}")
    if whole(rate, "rate") < 1:
        raise ValueError(f"rate must be at least 1 Hz, got {rate}")
    check_heard("clap_score", waves, "waveform")


def load(folder: str | Path | None, device: torch.device) -> tuple[Any, ...]:
    """(model, feature extractor, tokenizer) of a local folder."""
    chosen = folder or os.environ.get("GEOSHRINK_CLAP")
    if not chosen or not (Path(chosen) / "config.json").is_file():
        raise Skipped(
            "needs a CLAP checkpoint as transformers saves it, in a folder given or named by "
            f"GEOSHRINK_CLAP: {f'there is no config.json in {chosen}' if chosen else 'none named'}"
        )
    return pretrained(str(chosen), device, "ClapModel", "ClapFeatureExtractor", "AutoTokenizer")


def resampled(waves: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Waveforms (batch, samples) at another rate, through SciPy's polyphase filter."""
    if rate == wanted:
        return waves
    signal = library("scipy.signal")
    common = gcd(rate, wanted)
    return signal.resample_poly(waves, wanted // common, rate // common, axis=1)


@contextmanager
def drawn(seed: int) -> Iterator[None]:
    """NumPy's global generator at a seed, and afterwards as it was."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def clap(rate: int, folder: str | Path | None = None) -> Metric:
    """The CLAP score as a metric of(waves, captions, None) of waveforms at a rate in Hz."""

    def of(waves: Tensor, captions: Sequence[str], lengths: Sequence[int] | None) -> Tensor:
        if lengths is not None:
            raise ValueError(f"the CLAP score takes whole clips, got lengths {lengths}")
        return clap_score(waves, captions, rate, folder)

    return Metric("CLAP", "", True, of, f"1: cosine, {TOKENS} tokens, seed {SEED}", ("clap",))
