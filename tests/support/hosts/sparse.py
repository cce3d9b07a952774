"""A double of TRELLIS's samplers: Euler over a rescaled grid, guided in an interval, dense or
sparse.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Answer(dict):
    """A dict whose keys are attributes."""

    __getattr__ = dict.__getitem__


class Sparse:
    """Features on some voxels; `layout` says which rows belong to which sample."""

    def __init__(self, feats: Tensor, coords: Tensor):
        self.feats, self.coords = feats, coords
        counts = torch.bincount(coords[:, 0].long()).tolist()
        ends = np.cumsum(counts).tolist()
        self.layout = [slice(end - count, end) for end, count in zip(ends, counts)]

    @property
    def shape(self) -> torch.Size:
        return torch.Size([len(self.layout), self.feats.shape[1]])

    def replace(self, feats: Tensor) -> Sparse:
        return Sparse(feats, self.coords)

    def __add__(self, other: Sparse) -> Sparse:
        return self.replace(self.feats + other.feats)

    def __sub__(self, other: Sparse) -> Sparse:
        return self.replace(self.feats - other.feats)

    def __mul__(self, factor: float) -> Sparse:
        return self.replace(self.feats * factor)

    __rmul__ = __mul__


class Voxels(Sparse):
    """The same on a tensor of spconv's, as TRELLIS has it."""

    def __init__(self, feats: Tensor, coords: Tensor, data: Any = None):
        import spconv.pytorch as spconv

        shape = (coords.max(0)[0] + 1).tolist()
        self.data = data or spconv.SparseConvTensor(feats, coords.int(), shape[1:], shape[0])
        super().__init__(self.data.features, coords)

    def replace(self, feats: Tensor) -> Voxels:
        return Voxels(feats, self.coords, self.data.replace_feature(feats))


class Net(nn.Module):
    """v(x, 1000·t, condition); the same on dense and sparse inputs."""

    def __init__(self, channels: int = 4):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.weight = torch.randn(channels, channels, generator=generator) / channels**0.5
        self.probe = nn.Identity()

    def forward(self, x: Any, t: Tensor, cond: Tensor) -> Any:
        self.probe(t)
        if isinstance(x, Sparse):
            rows = [self.of(x.feats[rows], t[0], cond) for rows in x.layout]
            return x.replace(torch.cat(rows))
        return self.of(x.movedim(1, -1), t[0], cond).movedim(-1, 1)

    def of(self, feats: Tensor, t: Tensor, cond: Tensor) -> Tensor:
        return torch.tanh(feats @ self.weight + (t / 500).sin() + cond) + feats * cond


class FlowEulerSampler:
    """What is guided overrides both methods, with more arguments."""

    def _inference_model(self, model, x_t, t, cond=None, **kwargs):
        return model(x_t, torch.tensor([1000 * t] * x_t.shape[0]), cond, **kwargs)

    def sample_once(self, model, x_t, t, t_prev, cond=None, **kwargs):
        v = self._inference_model(model, x_t, t, cond, **kwargs)
        assert v.shape == x_t.shape
        return Answer(pred_x_prev=x_t - (t - t_prev) * v, pred_x_0=x_t - t * v)

    def sample(self, model, noise, cond=None, steps=50, rescale_t=1.0, verbose=True, **kwargs):
        u = np.linspace(1, 0, steps + 1)
        times = rescale_t * u / (1 + (rescale_t - 1) * u)
        x, seen = noise, []
        for now, then in pairwise(times):
            out = self.sample_once(model, x, now, then, cond, **kwargs)
            x = out.pred_x_prev
            seen.append(x)
        return Answer(samples=x, pred_x_t=seen)


Base: Any = FlowEulerSampler


class FlowEulerGuidanceIntervalSampler(Base):
    """(1 + w)·c − w·u in two calls, for t in the interval."""

    def _inference_model(self, model, x_t, t, cond, neg_cond, cfg_strength, cfg_interval, **kwargs):
        given = super()._inference_model(model, x_t, t, cond, **kwargs)
        if not cfg_interval[0] <= t <= cfg_interval[1]:
            return given
        free = super()._inference_model(model, x_t, t, neg_cond, **kwargs)
        return (1 + cfg_strength) * given - cfg_strength * free

    def sample(
        self,
        model,
        noise,
        cond,
        neg_cond,
        steps=50,
        rescale_t=1.0,
        cfg_strength=3.0,
        cfg_interval=(0.0, 1.0),
        verbose=True,
        **kwargs,
    ):
        more = dict(neg_cond=neg_cond, cfg_strength=cfg_strength, cfg_interval=cfg_interval)
        return super().sample(model, noise, cond, steps, rescale_t, verbose, **more, **kwargs)


class SecondSampler(Base):
    """As TRELLIS.2 has it: g·c + (1 − g)·u, one call where g = 1."""

    def _inference_model(
        self, model, x_t, t, cond, neg_cond, guidance_strength, guidance_interval, **kwargs
    ):
        inside = guidance_interval[0] <= t <= guidance_interval[1]
        given = super()._inference_model(model, x_t, t, cond, **kwargs)
        if not inside or guidance_strength == 1:
            return given
        free = super()._inference_model(model, x_t, t, neg_cond, **kwargs)
        return guidance_strength * given + (1 - guidance_strength) * free

    def sample(
        self,
        model,
        noise,
        cond,
        neg_cond,
        steps=50,
        rescale_t=1.0,
        guidance_strength=3.0,
        guidance_interval=(0.0, 1.0),
        verbose=True,
        **kwargs,
    ):
        more = dict(
            neg_cond=neg_cond,
            guidance_strength=guidance_strength,
            guidance_interval=guidance_interval,
        )
        return super().sample(model, noise, cond, steps, rescale_t, verbose, **more, **kwargs)


class TrellisTextTo3DPipeline:
    """A dense stage that finds voxels, then a sparse one that fills them."""

    def __init__(self, kind: type = FlowEulerGuidanceIntervalSampler):
        self.models = {"sparse_structure_flow_model": Net(4), "slat_flow_model": Net(4)}
        self.sparse_structure_sampler, self.slat_sampler = kind(), kind()
        self.sparse_structure_sampler_params: dict[str, Any] = {}
        self.slat_sampler_params: dict[str, Any] = {}

    def run(self, seed: int = 0, **params: Any) -> Sparse:
        torch.manual_seed(seed)
        cond = dict(cond=torch.tensor(0.3), neg_cond=torch.tensor(-0.2))
        noise = torch.randn(2, 4, 3, 3, 3)
        dense = self.sparse_structure_sampler.sample(
            self.models["sparse_structure_flow_model"], noise, **cond, **params
        ).samples
        coords = torch.argwhere(dense.mean(1) > dense.mean())
        return self.fill(coords, seed, **cond, **params)

    def fill(self, coords: Tensor, seed: int = 0, **params: Any) -> Sparse:
        torch.manual_seed(seed)
        noise = Sparse(torch.randn(len(coords), 4), coords)
        return self.slat_sampler.sample(self.models["slat_flow_model"], noise, **params).samples
