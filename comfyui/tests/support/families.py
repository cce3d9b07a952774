"""The model families of the tests: what their latents and their conditioning look like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """One family; `tokens`, `width` and `pooled` are the sizes of its text embeddings."""

    name: str
    latent: tuple[int, ...]
    tokens: int
    width: int
    pooled: int = 0

    def shape(self, batch: int = 1) -> str:
        return ",".join(str(length) for length in (batch, *self.latent))


FAMILIES = {
    family.name: family
    for family in (
        Family("sd3", (16, 16, 16), 12, 64, 64),
        Family("flux", (16, 16, 16), 12, 64, 64),
        Family("wan", (16, 3, 8, 8), 12, 4096),
        Family("hunyuan_video", (16, 3, 8, 8), 12, 64, 768),
        Family("cogvideox", (16, 3, 8, 8), 12, 64),
        Family("sd15", (4, 4, 4), 12, 768),
    )
}
