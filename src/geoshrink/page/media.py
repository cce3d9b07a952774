"""What a model made, as something a page can show. Picture is the first kind."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from typing import Protocol

from geoshrink.page.markup import element


class Media(Protocol):
    """`html()` gives one element, self-contained, which fills the box it is put in."""

    def html(self) -> str: ...


@dataclass(frozen=True)
class Picture:
    """An encoded PNG, JPEG or WEBP file, and what it shows in words."""

    data: bytes
    alt: str

    def __post_init__(self) -> None:
        picture_type(self.data)

    def html(self) -> str:
        source = f"data:{picture_type(self.data)};base64,{b64encode(self.data).decode()}"
        return element("img", src=source, alt=self.alt)


def picture_type(data: bytes) -> str:
    """The MIME type that the first bytes of an encoded picture announce."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError(f"a picture must be PNG, JPEG or WEBP; these bytes start {data[:12]!r}")
