"""The server of these tests; what lies in support/ is no test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

collect_ignore_glob = ["support/*", "matrix.py"]

ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(os.environ.get("GEOSHRINK_COMFYUI", ROOT / ".comfyui" / "server"))
PYTHON = Path(
    os.environ.get("GEOSHRINK_COMFYUI_PYTHON", ROOT / ".comfyui" / "venv" / "bin" / "python")
)
PACK = Path(os.environ.get("GEOSHRINK_COMFYUI_PACK", ROOT / "comfyui"))


@pytest.fixture(scope="module")
def comfy(tmp_path_factory: pytest.TempPathFactory):
    """A ComfyUI with our pack and the tiny checkpoints."""
    for path in (SERVER / "main.py", PYTHON):
        if not path.exists():
            pytest.skip(f"no ComfyUI: {path} is missing (make test-all installs one)")
    from support.runner import Runner

    with Runner(SERVER, PYTHON, tmp_path_factory.mktemp("comfyui"), PACK) as runner:
        yield runner
        assert runner.server.alive, runner.server.log[-3000:]
