"""Scale-invariant signal-to-distortion ratio (Le Roux et al., 2019)."""

from __future__ import annotations

import torch
from torch import Tensor


def si_sdr(waves: Tensor, reference: Tensor) -> Tensor:
    """SI-SDR in dB of each waveform (batch, samples): 10·log₁₀ ‖a·r‖²/‖w − a·r‖², a = ⟨w, r⟩/‖r‖².

    Means are taken off first. Infinite where the two agree, NaN for a silent reference.
    """
    if waves.shape != reference.shape or waves.ndim != 2:
        raise ValueError(
            f"si_sdr needs two batches of waveforms of one shape (batch, samples), got "
            f"{tuple(waves.shape)} and {tuple(reference.shape)}"
        )
    w, r = (t.double() - t.double().mean(1, keepdim=True) for t in (waves, reference))
    target = (w * r).sum(1, keepdim=True) / r.square().sum(1, keepdim=True) * r
    return 10 * torch.log10(target.square().sum(1) / (w - target).square().sum(1))
