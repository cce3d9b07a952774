"""Runs jobs on a server: its latent, its calls and what it said come back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors.torch import load_file

from .checkpoints import write
from .client import Client, Result
from .families import FAMILIES
from .graphs import Job, Prompt, complete, workflow
from .server import PACK, Server


@dataclass(frozen=True)
class Sampled:
    """What a job gave; `runs` has one entry of the counter for each sampling."""

    result: Result
    latents: dict[str, torch.Tensor]
    runs: list[dict[str, Any]]

    @property
    def ok(self) -> bool:
        return self.result.status == "success"

    @property
    def latent(self) -> torch.Tensor:
        return self.latents["TestSave"]

    @property
    def calls(self) -> list[int]:
        """Guided evaluations of each sampling."""
        return [run["evaluations"] for run in self.runs]

    @property
    def forwards(self) -> int:
        """Runs of the network, of all samplings together."""
        return sum(run["forwards"] for run in self.runs)

    @property
    def steps(self) -> list[int]:
        return [len(run["sigmas"]) - 1 for run in self.runs]

    def text(self, node: str = "GeoShrink") -> str:
        """What stood on a node last."""
        return self.result.texts.get(node, [""])[-1]


class Runner:
    """A server with the tiny checkpoints, and a client of it.

    families   those that this ComfyUI can build
    info       /object_info: every node that it has
    """

    def __init__(self, folder: Path, python: Path, base: Path, pack: Path = PACK):
        self.server = Server(folder, python, base, pack=pack)
        self.families = write(folder, python, self.server.base / "models", FAMILIES)
        self.tag = 0

    def __enter__(self) -> Runner:
        self.server.start()
        try:
            self.client = Client(self.server.url).__enter__()
            self.info = self.client.get("/object_info")
            if "GeoShrink" not in self.info:
                lines = [line for line in self.server.log.splitlines() if "geoshrink" in line]
                raise RuntimeError("the pack did not load:\n" + "\n".join(lines))
            self.version: str = self.client.get("/system_stats")["system"]["comfyui_version"]
        except BaseException:
            self.server.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.client.__exit__(kind, error, at)
        self.server.stop()

    def sample(self, job: Job, *, interrupt_at: int | None = None) -> Sampled:
        """Run a job anew, though the same one was run before."""
        self.tag += 1
        return self.queue(workflow(replace(job, tag=self.tag)), interrupt_at=interrupt_at)

    def queue(self, prompt: Prompt, *, interrupt_at: int | None = None) -> Sampled:
        """Run a prompt; the latents come by the ids of the nodes that saved them."""
        result = self.client.queue(complete(prompt, self.info), interrupt_at=interrupt_at)
        paths = {node: result.ui(node, "path") for node in result.outputs}
        latents = {node: load_file(path[0])["samples"] for node, path in paths.items() if path}
        return Sampled(result, latents, result.ui("TestCounts", "runs"))

    def choices(self, node: str, name: str) -> list[str]:
        """The choices of a combo input."""
        spec = self.info[node]["input"]["required"][name]
        return spec[0] if isinstance(spec[0], list) else spec[1]["options"]
