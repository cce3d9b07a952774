"""Power spectra of the 21-cm line by a U-Net: the noise, variance preserving in continuous time.

py21cmEMU emulates simulations of the first billion years; its network is imported from where pip
put it, without the rest of the package.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..files import tensors
from ..recipe import Network, Package, Recipe, register
from ..schedules import Continuous

PLACE = "py21cmemu/models/mcg/"
WEIGHTS, CODE = PLACE + "score_model_weights.pt", PLACE + "score_model.py"
SCHEDULE = Continuous(0.1, 20.0)
CONDITIONS = 16
#: log10 of the power in mK² is LOW at −1 and LOW + SPAN at 1, as the package has it.
LOW, SPAN = -2.0, 5.9700136


class Spectra(Network):
    """P(k_perp, k_par) of a universe: eleven parameters and the redshift, each from 0 to 1."""

    def __init__(self, unet: Any):
        super().__init__()
        self.unet = unet
        drawn = torch.rand(CONDITIONS, 12, generator=torch.Generator().manual_seed(0))
        self.register_buffer("conditions", 0.2 + 0.6 * drawn)

    def forward(self, x: Tensor, sigma: float, label: Tensor) -> Tensor:
        time = torch.full((len(x),), 999 * SCHEDULE.time(sigma), device=x.device)
        return self.unet(x, time, cdn=self.get_buffer("conditions")[label])

    def decode(self, x: Tensor) -> Tensor:
        """log10 of the power in mK²."""
        return (x + 1) / 2 * SPAN + LOW


def build(folder: Path) -> Network:
    sys.path.append(str(folder))  # for einops, which comes with it
    try:
        spec: Any = importlib.util.spec_from_file_location("foreign_21cm", folder / CODE)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    unet = module.UNet(
        dim=(32, 64), init_dim=48, channels=1, dim_mults=(1, 2, 4, 8, 16), cdn_len=12
    )
    unet.load_state_dict(tensors(folder / WEIGHTS))
    return Spectra(unet)


SPECTRA_21CM = register(
    Recipe(
        name="spectra-21cm",
        about="cylindrical 21-cm power spectra of simulated universes, U-Net, 37 M",
        source=Package("py21cmEMU==3.0.0", needs=("einops",)),
        licence="MIT",
        files={
            WEIGHTS: "6010b1dcde6c9cca05ca48ac7f2734a7a3cb42399019100b2a85246e6d65353c",
            CODE: "e781a8383f38997d395ee20760cddff35c01902c80dba60bea7f3ca623f54476",
        },
        build=build,
        shape=(1, 32, 64),
        prediction="epsilon",
        alphas="vp",
        schedule=SCHEDULE,
        classes=tuple(f"universe {i}" for i in range(CONDITIONS)),
        looks=dict(mean=(-2.0, 4.0), std=(0.2, 2.0), leading=(0.5, 1.0)),
    )
)
