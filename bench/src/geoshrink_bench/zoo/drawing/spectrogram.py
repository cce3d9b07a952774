"""Sound: the waveform above its spectrogram, and a picture beside both where there is one."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from PIL import Image, ImageDraw

from .canvas import MUTED, PAPER

FINER = 3  # the waveform is drawn that much larger, then averaged
WINDOW, PADDED = 0.04, 4  # seconds; and how often the window, for the transform
LOWEST, RANGE = 80.0, 65.0  # hertz at the bottom; decibels from the loudest to the darkest
STOPS = ("0c0b20", "3a1c6b", "8c2980", "dd4a68", "fb9f5b", "fdf6c9")  # quiet to loud


def draw_sound(wave: np.ndarray, rate: int, size: tuple[int, int] = (385, 150)) -> Image.Image:
    """A quarter waveform, the rest a spectrogram from LOWEST to rate/2, its pitch logarithmic."""
    width, height = size
    top = height // 4
    image = Image.new("RGB", size, PAPER)
    image.paste(waveform(wave, (width, top)), (0, 0))
    image.paste(spectrogram(wave, rate, (width, height - top)), (0, top))
    return image


def draw_pair(
    picture: Image.Image, wave: np.ndarray, rate: int, size: tuple[int, int] = (385, 150)
) -> Image.Image:
    """A small picture with its pixels visible, the sound beside it."""
    width, height = size
    gap = 6
    image = Image.new("RGB", size, PAPER)
    image.paste(picture.convert("RGB").resize((height, height), Image.Resampling.NEAREST), (0, 0))
    image.paste(draw_sound(wave, rate, (width - height - gap, height)), (height + gap, 0))
    return image


def waveform(wave: np.ndarray, size: tuple[int, int]) -> Image.Image:
    """From the least to the greatest value within each column; ±1 fills the height."""
    width, height = FINER * size[0], FINER * size[1]
    image = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(image)
    edges = np.linspace(0, len(wave), width + 1).astype(int)
    for x, (a, b) in enumerate(pairwise(edges)):
        part = np.clip(wave[a : max(b, a + 1)], -1, 1)
        high, low = ((1 - v) / 2 * (height - FINER) for v in (part.max(), part.min()))
        pen.rectangle((x, high, x, low + FINER - 1), MUTED)
    return image.resize(size, Image.Resampling.BOX)


def spectrogram(wave: np.ndarray, rate: int, size: tuple[int, int]) -> Image.Image:
    """Decibels below the loudest, as colours; columns are time, rows equal musical intervals."""
    width, height = size
    window = int(WINDOW * rate)
    length = PADDED * window
    spectrum = torch.stft(
        torch.from_numpy(np.ascontiguousarray(wave, dtype=np.float32)),
        length,
        hop_length=max(1, len(wave) // width),
        win_length=window,
        window=torch.hann_window(window),
        pad_mode="constant",
        return_complex=True,
    ).abs()
    level = 20 * torch.log10(spectrum.clamp(min=1e-6) / spectrum.max().clamp(min=1e-3))
    pitch = torch.logspace(np.log10(rate / 2), np.log10(LOWEST), height)
    bin_ = (pitch * length / rate).clamp(max=len(level) - 1.001)
    low, part = bin_.long(), (bin_ % 1)[:, None]
    rows = level[low] * (1 - part) + level[low + 1] * part
    share = (1 + rows / RANGE).clamp(0, 1).numpy()
    return coloured(share).resize(size, Image.Resampling.BILINEAR)


def coloured(share: np.ndarray) -> Image.Image:
    """Numbers from 0 to 1 as colours between the STOPS.

    >>> coloured(np.array([[0.0, 1.0]])).getpixel((1, 0))
    (253, 246, 201)
    """
    stops = np.array([list(bytes.fromhex(stop)) for stop in STOPS])
    at = np.linspace(0, 1, len(stops))
    rgb = np.stack([np.interp(share, at, stops[:, c]) for c in range(3)], -1)
    return Image.fromarray(rgb.round().astype(np.uint8))
