"""Films: video with its soundtrack."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

from geoshrink.compare.kinds import Scores
from geoshrink.compare.outcomes import PSNR
from geoshrink.compare.pictures import Pictures
from geoshrink.page import Media

from ..page import Film, Sound
from .sounds import SI_SDR, Sounds


@dataclass(frozen=True)
class Films:
    """Video with its soundtrack."""

    video: Pictures
    sound: Sounds

    noun, title, metrics = "film", "Look and listen", (PSNR, SI_SDR)

    def __len__(self) -> int:
        return len(self.video)

    def is_finite(self) -> bool:
        return self.video.is_finite() and self.sound.is_finite()

    def score(self, reference: Films, skipped: set[str]) -> Scores:
        seen = self.video.score(reference.video, skipped)
        return [seen[0], self.sound.score(reference.sound, skipped)[0]]

    def file(self, i: int) -> tuple[bytes, str]:
        """A ZIP of both: film.webp (or .png, if it does not move) and film.wav."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as kept:
            for content, suffix in (self.video.file(i), self.sound.file(i)):
                kept.writestr(zipfile.ZipInfo(f"film{suffix}"), content)
        return buffer.getvalue(), ".zip"

    def medium(self, i: int, alt: str, reference: Any) -> Media:
        kind = Film if self.video.moving else Sound
        return kind(self.video.picture(i, alt).data, alt, self.sound.wav(i))
