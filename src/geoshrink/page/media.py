"""What a model made, as something a page can show: a picture, or a video that plays by itself."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from geoshrink.page.markup import element

if TYPE_CHECKING:
    from PIL.Image import Image


class Media(Protocol):
    """`html()` gives one element, self-contained, which fills the box it is put in."""

    def html(self) -> str: ...


@dataclass(frozen=True)
class Picture:
    """An encoded PNG, JPEG or WEBP file, and what it shows in words."""

    data: bytes
    alt: str
    moving: ClassVar[bool] = False

    def __post_init__(self) -> None:
        picture_type(self.data)

    def html(self) -> str:
        source = f"data:{picture_type(self.data)};base64,{b64encode(self.data).decode()}"
        return element("img", src=source, alt=self.alt, data_moving=self.moving)


@dataclass(frozen=True)
class Animation(Picture):
    """An encoded animated WEBP or PNG file; it plays on its own and starts over at its end.

    `data-moving` tells the script, which starts two that are compared at the same moment.
    """

    moving: ClassVar[bool] = True

    @classmethod
    def of(
        cls, frames: Sequence[Image], alt: str, fps: float = 16.0, exact: bool = False
    ) -> Animation:
        """Frames of one size: WEBP, or the larger PNG where Pillow was built without WEBP.

        exact   keep every pixel: for drawings of few colours, which are smaller so
        """
        from PIL import features

        if not frames:
            raise ValueError("an animation needs at least one frame")
        if not fps > 0:
            raise ValueError(f"frames per second must be above 0, got {fps!r}")
        kind: dict[str, Any] = {"format": "WEBP", "quality": 90}
        if exact:
            kind |= {"lossless": True, "quality": 20, "method": 2}  # quality: of the search
        if not features.check("webp"):
            kind = {"format": "PNG"}
        buffer, rest = io.BytesIO(), list(frames[1:])
        duration = max(1, round(1000 / fps))
        frames[0].save(buffer, **kind, save_all=True, append_images=rest, duration=duration, loop=0)
        return cls(buffer.getvalue(), alt)


def picture_type(data: bytes) -> str:
    """The MIME type that the first bytes of an encoded picture announce."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError(f"a picture must be PNG, JPEG or WEBP; these bytes start {data[:12]!r}")


def png(image: Image, optimize: bool = True) -> bytes:
    """A PIL image as a PNG file."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=optimize)
    return buffer.getvalue()
