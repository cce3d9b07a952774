"""A small convolutional autoencoder: 64×64×3 pictures ⟷ 16×16×4 latents, for fruit-latent."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(8, channels),
            nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.GroupNorm(8, channels),
            nn.SiLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Autoencoder(nn.Module):
    """encode() gives standardised latents: the statistics are part of the weights."""

    mean: Tensor
    std: Tensor

    def __init__(self, width: int = 64, latent: int = 4):
        super().__init__()
        w = width
        self.encoder = nn.Sequential(
            nn.Conv2d(3, w, 3, padding=1),
            Residual(w),
            nn.Conv2d(w, w, 3, stride=2, padding=1),
            Residual(w),
            nn.Conv2d(w, w, 3, stride=2, padding=1),
            Residual(w),
            nn.Conv2d(w, latent, 3, padding=1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(latent, w, 3, padding=1),
            Residual(w),
            Residual(w),
            nn.Conv2d(w, 4 * w, 3, padding=1),
            nn.PixelShuffle(2),
            Residual(w),
            nn.Conv2d(w, 4 * w, 3, padding=1),
            nn.PixelShuffle(2),
            Residual(w),
            nn.Conv2d(w, 3, 3, padding=1),
        )
        self.register_buffer("mean", torch.zeros(latent, 1, 1))
        self.register_buffer("std", torch.ones(latent, 1, 1))

    def encode(self, pictures: Tensor) -> Tensor:
        return (self.encoder(pictures) - self.mean) / self.std

    def decode(self, latents: Tensor) -> Tensor:
        return self.decoder(latents * self.std + self.mean)

    @torch.no_grad()
    def standardise(self, pictures: Tensor) -> None:
        """Takes the statistics of the latents from these pictures."""
        z = self.encoder(pictures)
        self.mean.copy_(z.mean((0, 2, 3))[:, None, None])
        self.std.copy_(z.std((0, 2, 3))[:, None, None])


def autoencoder_loss(model: Autoencoder, pictures: Tensor) -> Tensor:
    """‖x − D(E(x) + noise)‖₁, of the picture and of its differences; latents are kept near N(0, 1).

    The noise makes the decoder forgive the small errors of a sampled latent.
    """
    z = model.encoder(pictures)
    back = model.decoder(z + 0.05 * torch.randn_like(z)).float()
    loss = F.l1_loss(back, pictures)
    for axis in (-1, -2):
        loss = loss + F.l1_loss(back.diff(dim=axis), pictures.diff(dim=axis))
    z = z.float()
    return loss + 1e-3 * (z.mean().square() + (z.var() - 1).square())
