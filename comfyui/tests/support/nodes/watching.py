"""Nodes that watch or disturb a model below the seam that geoshrink uses."""

from __future__ import annotations

import time
import uuid

import torch
from comfy.patcher_extension import WrappersMP

RUNS: dict[str, list[dict]] = {}
"""Per counter's name: one entry for each sampling since it was last read."""


class Watch:
    """Counts of the sampling that is under way.

    A guided evaluation is a call of `calc_cond_batch` with another x or σ than the call before:
    a guider that evaluates further branches at the same point does not count again.
    """

    def __init__(self, runs: list[dict]):
        self.runs = runs
        self.point: tuple[float, torch.Tensor] | None = None

    def sampling(self, executor, *args, **kwargs):
        sampler, sigmas = args[2], args[3]
        function = getattr(sampler, "sampler_function", None)
        self.runs.append(
            {
                "sampler": getattr(function, "__name__", type(sampler).__name__),
                "sigmas": [float(sigma) for sigma in sigmas],
                "evaluations": 0,
                "forwards": 0,
                "network": 0,
                "at": [],
            }
        )
        self.point = None
        try:
            return executor(*args, **kwargs)
        finally:
            self.point = None

    def evaluation(self, executor, *args, **kwargs):
        x, sigma = args[2], float(args[3].flatten()[0])
        before = self.point
        if before is None or before[0] != sigma or not torch.equal(before[1], x):
            self.point = (sigma, x.clone())
            self.runs[-1]["evaluations"] += 1
            self.runs[-1]["at"].append(sigma)
        return executor(*args, **kwargs)

    def forward(self, executor, *args, **kwargs):
        self.runs[-1]["forwards"] += 1
        return executor(*args, **kwargs)

    def network(self, executor, *args, **kwargs):
        """Below EasyCache, if the counter comes after it."""
        self.runs[-1]["network"] += 1
        return executor(*args, **kwargs)


class TestCount:
    """The model with a counter; `TestCounts` with the same name shows the counts."""

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "patch"
    CATEGORY = "geoshrink/test"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("MODEL",), "name": ("STRING", {"default": "counts"})}}

    def patch(self, model, name):
        model, watch = model.clone(), Watch(RUNS.setdefault(name, []))
        model.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, "test_count", watch.sampling)
        model.add_wrapper_with_key(WrappersMP.CALC_COND_BATCH, "test_count", watch.evaluation)
        model.add_wrapper_with_key(WrappersMP.APPLY_MODEL, "test_count", watch.forward)
        model.add_wrapper_with_key(WrappersMP.DIFFUSION_MODEL, "test_count", watch.network)
        return (model,)


def on_evaluation(model, act):
    """A clone of the model that calls `act(n)` before its n-th `calc_cond_batch` of a sampling."""
    count = [0]

    def sampling(executor, *args, **kwargs):
        count[0] = 0
        return executor(*args, **kwargs)

    def evaluation(executor, *args, **kwargs):
        count[0] += 1
        act(count[0])
        return executor(*args, **kwargs)

    model, key = model.clone(), f"test_{uuid.uuid4().hex}"
    model.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, key, sampling)
    model.add_wrapper_with_key(WrappersMP.CALC_COND_BATCH, key, evaluation)
    return model


class TestFail:
    """The model raises a RuntimeError at its n-th evaluation."""

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "patch"
    CATEGORY = "geoshrink/test"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("MODEL",), "at": ("INT", {"default": 3, "min": 1})}}

    def patch(self, model, at):
        def fail(number: int) -> None:
            if number == at:
                raise RuntimeError("the model failed, as the test asked")

        return (on_evaluation(model, fail),)


class TestSlow:
    """The model waits before each evaluation."""

    RETURN_TYPES = ("MODEL",)
    FUNCTION = "patch"
    CATEGORY = "geoshrink/test"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"model": ("MODEL",), "seconds": ("FLOAT", {"default": 0.1})}}

    def patch(self, model, seconds):
        return (on_evaluation(model, lambda number: time.sleep(seconds)),)
