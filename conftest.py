"""Steady tests: hypothesis draws the same examples every time (HYPOTHESIS_PROFILE=wild for others).

Workers run side by side: one torch thread each is faster than two that fight. It is one in every
Python thread of theirs, since some CPUs round a product differently with two.
"""

from __future__ import annotations

import os
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"  # before torch is imported

import pytest
import torch
from hypothesis import settings

collect_ignore_glob = [
    "tests/support/*",
    "bench/tests/support/*",
    "engines/tests/support/*",
]  # builders, not tests

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("wild", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton


def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """comfyui/ is a package that only ComfyUI can import: a plain folder here."""
    if path == Path(__file__).parent / "comfyui":
        return pytest.Dir.from_parent(parent, path=path)
    return None


@pytest.fixture(scope="module")
def one_thread():
    """For many small products: threads that wait for each other would take most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def grad_mode():
    """A test that interrupts torch, or drops a generator inside no_grad(), may leave it off."""
    yield
    torch.set_grad_enabled(True)
