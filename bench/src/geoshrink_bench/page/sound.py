"""Sound: a picture of it, and what is heard where the page shows that picture."""

from __future__ import annotations

import io
import wave
from base64 import b64encode
from dataclasses import dataclass
from typing import Any, ClassVar

from geoshrink.page.markup import element
from geoshrink.page.media import Picture, picture_type


@dataclass(frozen=True)
class Sound(Picture):
    """`wav` is an encoded file; a comparison has a player for each side.

    seconds   from the left of the picture to its right, where it shows time: a line follows the
              sound over it
    """

    wav: bytes = b""
    seconds: float | None = None

    def html(self) -> str:
        picture, sound = (b64encode(data).decode() for data in (self.data, self.wav))
        source = f"data:{picture_type(self.data)};base64,{picture}"
        return element(
            "img",
            src=source,
            alt=self.alt,
            data_moving=self.moving,
            data_sound=f"data:audio/wav;base64,{sound}",
            data_seconds=self.seconds,
        )


@dataclass(frozen=True)
class Film(Sound):
    """Sound with an animation: both begin together."""

    moving: ClassVar[bool] = True


def encode_wave(samples: Any, rate: int) -> bytes:
    """A mono waveform, an array within ±1 (what is louder is cut off), as a WAV file of 16 bits."""
    import numpy as np

    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        heard = np.clip(np.asarray(samples), -1, 1) * 32767
        file.writeframes(heard.round().astype("<i2").tobytes())
    return buffer.getvalue()
