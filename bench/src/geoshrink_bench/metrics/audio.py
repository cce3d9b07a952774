"""Distances between waveforms (batch, samples), floats with full scale 1: SI-SDR, LSD, MS-STFT.

Written out, and held to torchmetrics, librosa and auraloss by tests: those take whole batches, in
single precision, or give a large number where two waveforms agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from geoshrink.compare.likeness import check_finite

from .base import Metric, Skipped

FFT, HOP = 2048, 512  # of LSD
RESOLUTIONS = ((1024, 120, 600), (2048, 240, 1200), (512, 50, 240))  # FFT, hop, window of MS-STFT
FLOOR = 1e-8  # of the power in a bin; the noise of 16 bits is a little above


def si_sdr(waves: Tensor, reference: Tensor) -> Tensor:
    """Scale-invariant signal-to-distortion ratio in dB of each waveform (Le Roux et al., 2019).

    10·log₁₀ ‖a·r‖²/‖w − a·r‖² with a = ⟨w, r⟩/‖r‖²; means are taken off first. Infinite where the
    two agree.
    """
    check("si_sdr", waves, reference)
    w, r = (t.double() - t.double().mean(1, keepdim=True) for t in (waves, reference))
    target = (w * r).sum(1, keepdim=True) / r.square().sum(1, keepdim=True) * r
    return 10 * torch.log10(target.square().sum(1) / (w - target).square().sum(1))


def lsd(waves: Tensor, reference: Tensor) -> Tensor:
    """Log-spectral distance in dB of each waveform (Gray and Markel, 1976).

    The mean over frames of the root mean square over bins of 10·log₁₀ of the ratio of powers.
    """
    check("lsd", waves, reference, FFT)

    def one(w: Tensor, r: Tensor) -> Tensor:
        ratio = 10 * (power(w, FFT, HOP).log10() - power(r, FFT, HOP).log10())
        return ratio.square().mean(0).sqrt().mean()

    return per_clip(one, waves, reference)


def spectral_convergence(waves: Tensor, reference: Tensor) -> Tensor:
    """‖|W| − |R|‖/‖|R|‖ of the spectrograms, mean over three resolutions (Arık et al., 2019)."""
    check("spectral_convergence", waves, reference, max(fft for fft, _, _ in RESOLUTIONS))

    def one(w: Tensor, r: Tensor) -> Tensor:
        pairs = [(power(w, *size).sqrt(), power(r, *size).sqrt()) for size in RESOLUTIONS]
        return torch.stack([(a - b).norm() / b.norm() for a, b in pairs]).mean()

    return per_clip(one, waves, reference)


def power(
    wave: Tensor, fft: int, hop: int, window: int | None = None, floor: float = FLOOR
) -> Tensor:
    """|STFT|² of one waveform as (bins, frames), at least floor; Hann window, ends reflected."""
    hann = torch.hann_window(window or fft, dtype=torch.float64, device=wave.device)
    bins = torch.stft(
        wave.double(), fft, hop, len(hann), hann, pad_mode="reflect", return_complex=True
    )
    return bins.abs().square().clamp(min=floor)


def per_clip(of: Callable[[Tensor, Tensor], Tensor], waves: Tensor, reference: Tensor) -> Tensor:
    """One after the other: the spectrograms of a batch of long clips would fill the memory."""
    return torch.stack([of(w, r) for w, r in zip(waves, reference)])


def check(name: str, waves: Tensor, reference: Tensor, samples: int = 1) -> None:
    """Two batches of one shape with at least this many samples, finite and not silent."""
    check_shapes(name, waves, reference)
    if waves.shape[1] < samples:
        raise ValueError(f"{name} needs at least {samples} samples, got {tuple(waves.shape)}")
    check_heard(name, waves, "waveform")
    check_heard(name, reference, "reference")


def check_shapes(name: str, waves: Tensor, reference: Tensor) -> None:
    if waves.shape != reference.shape or waves.ndim != 2 or not waves.numel():
        raise ValueError(
            f"{name} needs two batches of waveforms of one shape (batch, samples), got "
            f"{tuple(waves.shape)} and {tuple(reference.shape)}"
        )


def check_heard(name: str, waves: Tensor, what: str) -> None:
    if not waves.is_floating_point():
        raise ValueError(f"{name} needs floats with full scale 1, got a {what} of {waves.dtype}")
    check_finite(name, waves, what)
    silent = (waves.amax(1) == waves.amin(1)).nonzero().flatten().tolist()
    if silent:
        raise Skipped(f"{what} {', '.join(map(str, silent))} of {len(waves)} is silent")


Of = Callable[[Tensor, Tensor, Sequence[int] | None], Tensor]


def cut(of: Callable[[Tensor, Tensor], Tensor]) -> Of:
    """of(waves, reference) as a metric, which takes lengths: the samples of each that count."""

    def measured(waves: Tensor, reference: Tensor, lengths: Sequence[int] | None) -> Tensor:
        if lengths is None:
            return of(waves, reference)
        check_shapes("a metric of audio", waves, reference)
        if len(lengths) != len(waves) or not all(0 < n <= waves.shape[1] for n in lengths):
            raise ValueError(
                f"lengths must be {len(waves)} numbers from 1 to {waves.shape[1]}, got {lengths}"
            )
        pairs = zip(waves, reference, lengths)
        return torch.cat([of(w[None, :n], r[None, :n]) for w, r, n in pairs])

    return measured


SIZES = ", ".join("/".join(map(str, size)) for size in RESOLUTIONS)
SI_SDR = Metric("SI-SDR", "dB", True, cut(si_sdr), "1: zero mean")
LSD = Metric("LSD", "dB", False, cut(lsd), f"1: FFT {FFT}, hop {HOP}, floor {FLOOR}")
MS_STFT = Metric(
    "MS-STFT", "", False, cut(spectral_convergence), f"1: convergence, {SIZES}, floor {FLOOR}"
)
