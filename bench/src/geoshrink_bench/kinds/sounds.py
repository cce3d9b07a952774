"""Sound: a spectrogram to look at, the sound to listen to, SI-SDR and a distance of spectra."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from geoshrink.compare.kinds import Scores, measured
from geoshrink.page import Column, Media
from geoshrink.page.media import png

from ..metrics import audio
from ..page import Sound, encode_wave
from ..zoo.drawing import draw_sound

SI_SDR = Column("SI-SDR", "dB", better="higher", digits=1)
LSD = Column("LSD", "dB", better="lower", digits=2)
SIZE = (770, 300)
HEARD = 60  # seconds, of what the page plays


@dataclass(frozen=True)
class Sounds:
    """`waves` are (samples, channels, time) or (samples, time), full scale 1; `rate` in hertz."""

    waves: Tensor
    rate: int

    noun, title, metrics = "sound", "Look and listen", (SI_SDR, LSD)

    def __post_init__(self) -> None:
        waves = torch.as_tensor(self.waves).detach().cpu()
        if waves.ndim not in (2, 3) or not waves.is_floating_point() or not waves.numel():
            raise ValueError(
                "sounds are floats (samples, channels, time) or (samples, time), got "
                f"{waves.dtype} of shape {tuple(waves.shape)}"
            )
        if not self.rate > 0:
            raise ValueError(f"a sampling rate is above 0 hertz, got {self.rate!r}")
        object.__setattr__(self, "waves", waves.float() if waves.ndim == 3 else waves[:, None])
        object.__setattr__(self, "rate", int(self.rate))

    def __len__(self) -> int:
        return len(self.waves)

    def is_finite(self) -> bool:
        return bool(self.waves.isfinite().all())

    @property
    def mono(self) -> Tensor:
        return self.waves.nan_to_num(0).mean(1)

    def score(self, reference: Sounds, skipped: set[str]) -> Scores:
        """Over the channels one after another: a channel that is off counts."""
        pair = self.waves.flatten(1), reference.waves.flatten(1)
        metrics = zip(self.metrics, (audio.SI_SDR, audio.LSD))
        return [measured(c, len(self), lambda m=m: m.of(*pair, None), skipped) for c, m in metrics]

    def wav(self, i: int) -> bytes:
        return encode_wave(self.mono[i, : HEARD * self.rate].numpy(), self.rate)

    def file(self, i: int) -> tuple[bytes, str]:
        """WAV with all channels."""
        return encode_wave(self.waves[i].nan_to_num(0).numpy(), self.rate), ".wav"

    def medium(self, i: int, alt: str, reference: Any) -> Media:
        picture = draw_sound(self.mono[i].numpy(), self.rate, SIZE)
        return Sound(png(picture), alt, self.wav(i), self.waves.shape[-1] / self.rate)
