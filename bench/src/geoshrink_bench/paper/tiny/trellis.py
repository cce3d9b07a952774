"""A double of TRELLIS: a dense stage that finds voxels, then one that fills them."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from .net import Net


class Sampler:
    """(1 + w)·c − w·u for t in the interval, Euler over a rescaled grid."""

    def _inference_model(self, model, x_t, t, cond, neg_cond, cfg_strength, cfg_interval, **kwargs):
        given = model(x_t, t, cond)
        if not cfg_interval[0] <= t <= cfg_interval[1]:
            return given
        return (1 + cfg_strength) * given - cfg_strength * model(x_t, t, neg_cond)

    def sample_once(self, model, x_t, t, t_prev, cond, **kwargs):
        return x_t - (t - t_prev) * self._inference_model(model, x_t, t, cond, **kwargs)

    def sample(
        self, model, noise, cond, neg_cond, steps=50, rescale_t=1.0, cfg_strength=3.0,
        cfg_interval=(0.0, 1.0), verbose=True,
    ):  # fmt: skip
        u = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
        times = (rescale_t * u / (1 + (rescale_t - 1) * u)).tolist()
        guided = dict(neg_cond=neg_cond, cfg_strength=cfg_strength, cfg_interval=cfg_interval)
        for now, then in pairwise(times):
            noise = self.sample_once(model, noise, now, then, cond, **guided)
        return noise


class TrellisTextTo3DPipeline:
    """The mesh is a ball, stretched by what fills the voxels."""

    def __init__(self) -> None:
        self.models = {n: Net(4) for n in ("sparse_structure_flow_model", "slat_flow_model")}
        self.sparse_structure_sampler, self.slat_sampler = Sampler(), Sampler()

    @classmethod
    def from_pretrained(cls, path: str) -> Any:
        made = cls()
        for network in made.models.values():
            network.load_state_dict(torch.load(Path(path, "tiny.pt")))
        return made

    def to(self, device: Any) -> None:
        pass

    @torch.no_grad()
    def run(
        self, prompt, num_samples=1, seed=42, sparse_structure_sampler_params=None,
        slat_sampler_params=None, formats=("mesh", "gaussian", "radiance_field"),
    ):  # fmt: skip
        ball: Any = import_module("trimesh").creation.icosphere(1, 0.3)
        torch.manual_seed(seed)
        both = dict(cond=torch.tensor(len(prompt) / 10), neg_cond=torch.tensor(-0.2))
        dense, sparse = (self.models[f"{n}_flow_model"] for n in ("sparse_structure", "slat"))
        found = self.sparse_structure_sampler.sample(
            dense, torch.randn(4, 4, 4, 4), **both, **(sparse_structure_sampler_params or {})
        ).mean(-1)
        places = torch.argwhere(found > found.mean())
        torch.manual_seed(seed)
        noise = torch.randn(1, len(places), 4)
        filled = self.slat_sampler.sample(sparse, noise, **both, **(slat_sampler_params or {}))
        filled = filled[0, :, :3].tanh()
        stretched = torch.tensor(ball.vertices) * (1 + 0.5 * filled.mean(0))
        mesh = SimpleNamespace(vertices=stretched, faces=torch.tensor(ball.faces))
        centres = SimpleNamespace(get_xyz=places / 4 - 0.5 + 0.05 * filled)
        return {n: {"mesh": [mesh], "gaussian": [centres]}[n] for n in formats}


def make(folder: Path) -> None:
    (folder / "pipeline.json").write_text("{}")
    torch.save(Net(4).state_dict(), folder / "tiny.pt")
