"""Distances between mel spectrograms of waveforms (batch, samples) at a rate in Hz.

The bands are triangles of equal area, evenly spaced on the mel scale of Slaney (1998): linear up to
1 kHz, logarithmic above. A spectrogram holds powers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from geoshrink.checks import whole

from .audio import check, cut, per_clip, power
from .base import Metric, library

FFT, HOP, BANDS = 1024, 256, 80
FLOOR = 1e-10  # of the power in a band, before the logarithm


def mel_cosine(waves: Tensor, reference: Tensor, rate: int) -> Tensor:
    """⟨M, M′⟩/(‖M‖·‖M′‖) of the two whole mel spectrograms, for each waveform; 1 is equal."""

    def cosine(m: Tensor, n: Tensor) -> Tensor:
        return (m * n).sum() / (m.norm() * n.norm())

    return of_spectrograms("mel_cosine", cosine, waves, reference, rate)


def log_mel_l1(waves: Tensor, reference: Tensor, rate: int) -> Tensor:
    """The mean over bands and frames of |ln M − ln M′|, for each waveform."""

    def distance(m: Tensor, n: Tensor) -> Tensor:
        return (m.clamp(min=FLOOR).log() - n.clamp(min=FLOOR).log()).abs().mean()

    return of_spectrograms("log_mel_l1", distance, waves, reference, rate)


def of_spectrograms(
    name: str, of: Callable[[Tensor, Tensor], Tensor], waves: Tensor, reference: Tensor, rate: int
) -> Tensor:
    check(name, waves, reference, FFT)
    bank = filters(rate).to(waves.device)

    def one(w: Tensor, r: Tensor) -> Tensor:
        return of(bank @ power(w, FFT, HOP, floor=0), bank @ power(r, FFT, HOP, floor=0))

    return per_clip(one, waves, reference)


@lru_cache
def filters(rate: int, fft: int = FFT, bands: int = BANDS) -> Tensor:
    """The mel filter bank as (bands, bins) in double precision, from 0 Hz to rate/2."""
    mel_filter_bank = library("transformers.audio_utils").mel_filter_bank
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of empty bands: an error, below
        found = mel_filter_bank(fft // 2 + 1, bands, 0, rate / 2, rate, "slaney", "slaney")
    bank = torch.from_numpy(found.T.astype("float64"))
    empty = int((bank.sum(1) == 0).sum())
    if empty:
        raise ValueError(
            f"{empty} of {bands} mel bands at {rate} Hz lie between the bins of an FFT of {fft}: "
            "resample to a lower rate"
        )
    return bank


def mel_metrics(rate: int, reference_rate: int | None = None) -> list[Metric]:
    """Mel cosine and log-mel L1 of waveforms and references at one rate in Hz."""
    if reference_rate not in (None, rate):
        raise ValueError(
            f"the samples are at {rate} Hz, the reference at {reference_rate} Hz: resample one"
        )
    if whole(rate, "rate") < 1:
        raise ValueError(f"rate must be at least 1 Hz, got {rate}")
    settings = f"FFT {FFT}, hop {HOP}, {BANDS} bands, {rate} Hz"
    return [
        Metric("mel cosine", "", True, cut(lambda w, r: mel_cosine(w, r, rate)), f"1: {settings}"),
        Metric(
            "log-mel L1",
            "",
            False,
            cut(lambda w, r: log_mel_l1(w, r, rate)),
            f"1: ln, {settings}, floor {FLOOR}",
        ),
    ]
