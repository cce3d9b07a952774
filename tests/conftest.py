"""Steady tests: hypothesis draws the same examples every time (HYPOTHESIS_PROFILE=wild for others).

Workers run side by side: one torch thread each is faster than two that fight.
"""

from __future__ import annotations

import os

import torch
from hypothesis import settings

collect_ignore_glob = ["hosts/*"]  # builders, not tests

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("wild", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports Triton

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
