"""A Python with serving engines to test against: python scripts/engines.py .engines

The engines come from PyPI without what they require (CUDA, vLLM itself): what their classes import
on a CPU is listed here. The Python sees the packages of .venv, geoshrink among them, so that torch
is not installed twice. An engine that cannot be installed is left out, and its tests say so.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

#: By engine: what is installed without its requirements, itself first, and what with them.
ENGINES = {
    "sglang": (
        ("sglang==0.5.23", "cache-dit", "compressed-tensors", "gguf"),
        (
            "addict", "aiohttp", "apache-tvm-ffi==0.1.11", "dill", "imageio", "imageio-ffmpeg",
            "ipython", "loguru", "msgspec", "openai", "partial-json-parser", "pybase64",
            "python-dateutil", "pyzmq", "setproctitle", "triton",
        ),
    ),
    "vllm-omni": (
        ("vllm-omni==0.30.0",),
        ("msgspec", "omegaconf", "prettytable", "prometheus_client", "pyzmq"),
    ),
}  # fmt: skip


def main(folder: Path, newest: bool) -> None:
    home = folder / "venv"
    venv.create(home, with_pip=True, clear=True)
    python = home / "bin" / "python"
    found = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    ours = sysconfig.get_path("purelib")
    (Path(found) / "geoshrink.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for engine, (alone, needed) in ENGINES.items():
        if newest:
            alone = (alone[0].split("==")[0], *alone[1:])
        done = [
            subprocess.run([*install, "--no-deps", *alone]),
            subprocess.run([*install, *needed]),
        ]
        if any(each.returncode for each in done):
            print(f"{engine} could not be installed: its tests will be skipped", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), "--newest" in sys.argv[2:])
