"""The paper everything is drawn on: colours, labelled tiles, small files."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

from PIL import ExifTags, Image, ImageDraw, ImageFont, features

from geoshrink.page.media import png

from ...metrics.view import PAPER

DESCRIPTION = ExifTags.Base.ImageDescription
INK, MUTED, RULE = "#1e2326", "#5b646b", "#d5d7d2"
TEXT, GAP = 19, 10  # pixels: legible where a phone shows 800 of them as 390


def contact_sheet(tiles: Sequence[Image.Image], labels: Sequence[str], columns: int) -> Image.Image:
    """Tiles of one size in rows, each beneath its label."""
    if not tiles or len(tiles) != len(labels):
        raise ValueError(f"a sheet needs a label per tile, got {len(tiles)} and {len(labels)}")
    width, height = tiles[0].size
    line = TEXT + 5
    rows = -(-len(tiles) // columns)
    extent = (columns * (width + GAP) + GAP, rows * (line + height + GAP) + GAP)
    sheet = Image.new("RGB", extent, PAPER)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(TEXT)
    for i, (tile, label) in enumerate(zip(tiles, labels)):
        x = GAP + i % columns * (width + GAP)
        y = GAP // 2 + i // columns * (line + height + GAP)
        pen.text((x, y), shortened(label, width, font), INK, font)
        sheet.paste(tile, (x, y + line))
    return sheet


def shortened(label: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """The label, cut to `width` pixels and ended with dots if it is longer."""
    if font.getlength(label) <= width:
        return label
    while label and font.getlength(label + "...") > width:
        label = label[:-1]
    return label.rstrip() + "..."


def save_picture(
    image: Image.Image, path: Path, limit: int = 250_000, notes: dict[str, str] | None = None
) -> None:
    """A WEBP of at most `limit` bytes: lossless if that fits, else at the best quality that does.

    notes   text kept inside the file, for notes_of
    """
    exif = Image.Exif()
    exif[DESCRIPTION] = json.dumps(notes or {})
    image.save(path, lossless=True, method=6, exif=exif)
    for quality in (95, 90, 80, 70):
        if path.stat().st_size <= limit:
            return
        image.save(path, quality=quality, method=6, exif=exif)
    if path.stat().st_size > limit:
        raise ValueError(f"{path.name} does not fit into {limit} bytes; draw it smaller")


def encoded(drawing: Image.Image) -> bytes:
    """A drawing, whose pixels need not be exact: WEBP, or PNG where Pillow was built without it."""
    if not features.check("webp"):
        return png(drawing)
    buffer = io.BytesIO()
    drawing.save(buffer, "WEBP", quality=80)
    return buffer.getvalue()


def notes_of(path: Path) -> dict[str, str]:
    """What save_picture was told to keep; nothing where another program made the file."""
    with Image.open(path) as image:
        text = image.getexif().get(DESCRIPTION, "{}")
    try:
        return json.loads(text)
    except ValueError:
        return {}
