"""Workers run side by side: one thread each is faster than two that fight."""

from __future__ import annotations

import os

import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
