"""Sound: a waveform (1, samples), its amplitude companded.

The network sees 3.5·sign(w)·√|w| of a waveform w with peak 1: an error that is everywhere as large
is then small where it is quiet, as the ear wants it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geoshrink.compare.kinds import Made, kind_of
from geoshrink.page import Media

from ...metrics.audio import LSD, MS_STFT, SI_SDR
from ...metrics.measured import Measured
from ...metrics.mel import mel_metrics
from ...page import Sound as Heard
from ...page import encode_wave
from ..drawing import draw_sound
from ..drawing.canvas import encoded
from .base import Data, Facts, Lengths, Modality

RATE, SAMPLES, GAIN, JITTER = 8000, 8192, 3.5, 200
PAUSE = 0.1  # seconds between two words
LEGEND = "Waveform above, spectrogram from 80 Hz to 4 kHz below, pitch logarithmic."


class Speech(Modality):
    """What spoken digits have in common, also where a picture goes with them: the last part."""

    heard, count, columns, drawn_with = True, 10, 2, ("rate",)

    def medium(self, values: Sequence[Tensor], facts: Facts, length: int | None, alt: str) -> Media:
        wave = encode_wave(values[-1].numpy(), facts["rate"])
        seconds = values[-1].shape[-1] / facts["rate"] if len(values) == 1 else None
        return Heard(encoded(self.draw(values, facts)), alt, wave, seconds)

    def sheet_classes(self, classes: list[str]) -> list[str]:
        """The ten digits, by turns of speakers."""
        people = len(classes) // 10
        return [classes[digit * people + digit % people] for digit in range(10)]

    def write_beside(self, made: list[Any], facts: Facts, path: Path) -> None:
        """NAME.wav: every word, one after the other."""
        words = [word[-1] if isinstance(word, tuple) else word for word in made]
        pause = np.zeros(int(PAUSE * facts["rate"]))
        speech = np.concatenate([part for word in words for part in (word, pause)])
        path.with_suffix(".wav").write_bytes(encode_wave(speech, facts["rate"]))


class Sound(Speech):
    axes, legend = 2, LEGEND

    def read(self, path: Path) -> Data:
        waves, digits, speakers = read_spoken(path)
        people = sorted(set(speakers))
        classes = [f"{digit} {person}" for digit in range(10) for person in people]
        labels = [classes.index(f"{d} {s}") for d, s in zip(digits, speakers)]
        return Data((waves,), torch.tensor(labels), classes, {"rate": RATE})

    def batch(self, data: Data, pick: Tensor) -> tuple[tuple[Tensor, ...], None]:
        return (spoken(data.parts[0], pick),), None

    def values(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Tensor:
        return expand(x[:, 0])

    def decode(self, x: Tensor, facts: Facts, lengths: Lengths) -> list[Any]:
        """Float waveforms at facts["rate"], as arrays."""
        return [wave.clamp(-1, 1).cpu().numpy() for wave in self.values(x, facts)]

    def made(self, x: Tensor, facts: Facts, lengths: Lengths = None) -> Made:
        return kind_of("Sounds")(self.values(x, facts), facts["rate"])

    def views(self, values: Tensor) -> Tensor:
        """log(0.03 + |STFT|), frequencies by times: what is very quiet counts as silence."""
        window = torch.hann_window(256, device=values.device)
        spectrum = torch.stft(values.float(), 256, 128, window=window, return_complex=True)
        return (0.03 + spectrum.abs()).log()[:, None, None]

    def metrics(self, part: int = 0) -> list[Measured]:
        return [Measured(m, part) for m in (SI_SDR, LSD, MS_STFT, *mel_metrics(RATE))]

    def draw(self, values: Sequence[Tensor], facts: Facts, length: int | None = None) -> Any:
        return draw_sound(values[0].clamp(-1, 1).cpu().numpy(), facts["rate"])


class SpokenDigits(Sound):
    """Recordings by digit, whoever speaks."""

    def read(self, path: Path) -> Data:
        data = super().read(path)
        digits = data.labels // (len(data.classes) // 10)
        return Data(data.parts, digits, [str(d) for d in range(10)], data.facts)


def spoken(waves: Tensor, pick: Tensor) -> Tensor:
    """Companded waveforms, each moved in time by a little."""
    moved = torch.randint(-JITTER, JITTER + 1, (len(pick), 1), device=waves.device)
    at = (torch.arange(waves.shape[1], device=waves.device) - moved) % waves.shape[1]
    return compress(waves[pick].float().gather(1, at))[:, None]


def compress(wave: Tensor) -> Tensor:
    return GAIN * wave.sign() * wave.abs().sqrt()


def expand(x: Tensor) -> Tensor:
    """The inverse of compress.

    >>> expand(compress(torch.tensor([-0.25, 0.0, 1.0])))
    tensor([-0.2500,  0.0000,  1.0000])
    """
    return x.float().sign() * (x.float() / GAIN).square()


def read_spoken(path: Path) -> tuple[Tensor, list[int], list[str]]:
    """(waveforms with peak 1 in the middle of SAMPLES, digits, speakers); longer ones are left
    out.
    """
    with np.load(path) as archive:
        audio, length = archive["audio"].astype(np.float32), archive["length"]
        digit, speaker = archive["digit"], archive["speaker"]
    ends = np.cumsum(length)
    kept = [i for i in range(len(length)) if length[i] <= SAMPLES - 2 * JITTER]
    waves = np.zeros((len(kept), SAMPLES), dtype=np.float16)
    for row, i in enumerate(kept):
        clip = audio[ends[i] - length[i] : ends[i]]
        start = (SAMPLES - len(clip)) // 2
        waves[row, start : start + len(clip)] = clip / max(1.0, np.abs(clip).max())
    return torch.from_numpy(waves), [int(digit[i]) for i in kept], [str(speaker[i]) for i in kept]
