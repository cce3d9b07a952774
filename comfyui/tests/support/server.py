"""A ComfyUI server of our own: started on a temporary folder, stopped when done."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACK = HERE.parents[1]
"""The node pack under test: the folder `comfyui` of this repository."""


def free_port() -> int:
    """A port from 8300 to 8390 that nobody listens on."""
    for port in random.sample(range(8300, 8391), 91):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 8300 and 8390")


class Server:
    """A running ComfyUI (`folder`) with our pack and the test nodes, on CPU.

    `base` gets everything the server reads and writes: `models/`, `output/`, `custom_nodes/` with
    links to the two packs, and `server.log`.
    """

    def __init__(
        self, folder: Path, python: Path, base: Path, *, pack: Path = PACK, arguments: tuple = ()
    ):
        self.folder, self.python, self.base = Path(folder), Path(python), Path(base)
        self.port = free_port()
        self.output = self.base / "output"
        self.log_file = self.base / "server.log"
        for name in ("custom_nodes", "models/diffusion_models", "models/loras", "output", "input"):
            (self.base / name).mkdir(parents=True, exist_ok=True)
        self._link("geoshrink", pack)
        self._link("geoshrink_test_nodes", HERE / "nodes")
        self.arguments = arguments
        self.process: subprocess.Popen | None = None

    def _link(self, name: str, target: Path) -> None:
        link = self.base / "custom_nodes" / name
        if not link.is_symlink():
            link.symlink_to(target, target_is_directory=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def start(self, seconds: float = 180) -> Server:
        """Start, and wait until it answers."""
        command = [str(self.python), str(HERE / "launch.py"), str(self.folder)]
        command += ["--cpu", "--listen", "127.0.0.1", "--port", str(self.port)]
        command += ["--base-directory", str(self.base), "--disable-api-nodes"]
        command += ["--database-url", "sqlite:///:memory:", *self.arguments]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTHONPATH", None)
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        deadline = time.monotonic() + seconds
        while not self._answers():
            if not self.alive or time.monotonic() > deadline:
                tail = self.log[-4000:]
                self.stop()
                raise RuntimeError(f"ComfyUI in {self.folder} did not start:\n{tail}")
            time.sleep(0.25)
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/system_stats", timeout=5) as reply:
                return reply.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
