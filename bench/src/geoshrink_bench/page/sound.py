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
    """A waveform (time) or (channels, time) within ±1, as a WAV file of 16 bits.

    What is louder is cut off.
    """
    import numpy as np

    buffer, waves = io.BytesIO(), np.atleast_2d(np.asarray(samples))
    with wave.open(buffer, "wb") as file:
        file.setnchannels(len(waves))
        file.setsampwidth(2)
        file.setframerate(rate)
        heard = np.clip(waves, -1, 1) * 32767
        file.writeframes(heard.T.round().astype("<i2").tobytes())
    return buffer.getvalue()
