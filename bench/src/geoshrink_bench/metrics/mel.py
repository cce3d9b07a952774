"""Distances between mel spectrograms of waveforms (batch, samples) at a rate in Hz.

The bands are triangles of equal area, evenly spaced on the mel scale of Slaney (1998): linear up to
1 kHz, logarithmic above. A spectrogram holds powers.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from geoshrink.checks import whole

from .audio import check, cut, per_clip, power
from .base import Metric

FFT, HOP, BANDS = 1024, 256, 80
FLOOR = 1e-10  # of the power in a band, before the logarithm
PER_MEL = 200 / 3  # Hz, below KINK
KINK = 15.0  # mel at 1 kHz
STEP = math.log(6.4) / 27  # of ln Hz per mel, above


def mel_cosine(waves: Tensor, reference: Tensor, rate: int) -> Tensor:
    """⟨M, M′⟩/(‖M‖·‖M′‖) of the two whole mel spectrograms, for each waveform; 1 is equal."""
    check("mel_cosine", waves, reference, FFT)
    bank = filters(rate).to(waves.device)

    def one(w: Tensor, r: Tensor) -> Tensor:
        m, n = bank @ power(w, FFT, HOP, floor=0), bank @ power(r, FFT, HOP, floor=0)
        return (m * n).sum() / (m.norm() * n.norm())

    return per_clip(one, waves, reference)


def log_mel_l1(waves: Tensor, reference: Tensor, rate: int) -> Tensor:
    """The mean over bands and frames of |ln M − ln M′|, for each waveform."""
    check("log_mel_l1", waves, reference, FFT)
    bank = filters(rate).to(waves.device)

    def one(w: Tensor, r: Tensor) -> Tensor:
        m, n = bank @ power(w, FFT, HOP, floor=0), bank @ power(r, FFT, HOP, floor=0)
        return (m.clamp(min=FLOOR).log() - n.clamp(min=FLOOR).log()).abs().mean()

    return per_clip(one, waves, reference)


def filters(rate: int, fft: int = FFT, bands: int = BANDS) -> Tensor:
    """The mel filter bank as (bands, bins) in double precision, from 0 Hz to rate/2."""
    if whole(rate, "rate") < 1:
        raise ValueError(f"rate must be at least 1 Hz, got {rate}")
    top = torch.tensor(rate / 2, dtype=torch.float64)
    hz = torch.linspace(0, rate / 2, fft // 2 + 1, dtype=torch.float64)
    edges = from_mel(torch.linspace(0, float(to_mel(top)), bands + 2, dtype=torch.float64))
    low, centre, high = (e[:, None] for e in (edges[:-2], edges[1:-1], edges[2:]))
    rising, falling = (hz - low) / (centre - low), (high - hz) / (high - centre)
    bank = torch.minimum(rising, falling).clamp(min=0) * 2 / (high - low)
    empty = int((bank.sum(1) == 0).sum())
    if empty:
        raise ValueError(
            f"{empty} of {bands} mel bands at {rate} Hz lie between the bins of an FFT of {fft}: "
            "resample to a lower rate"
        )
    return bank


def to_mel(hz: Tensor) -> Tensor:
    """Hz in mel.

    >>> to_mel(torch.tensor([0.0, 1000.0, 6400.0])).tolist()
    [0.0, 15.0, 42.0]
    """
    return torch.where(hz < 1000, hz / PER_MEL, KINK + (hz.clamp(min=1000) / 1000).log() / STEP)


def from_mel(mel: Tensor) -> Tensor:
    return torch.where(mel < KINK, mel * PER_MEL, 1000 * ((mel - KINK) * STEP).exp())


def mel_metrics(rate: int, reference_rate: int | None = None) -> list[Metric]:
    """Mel cosine and log-mel L1 of waveforms and references at one rate in Hz."""
    if reference_rate not in (None, rate):
        raise ValueError(
            f"the samples are at {rate} Hz, the reference at {reference_rate} Hz: resample one"
        )
    filters(rate)
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
