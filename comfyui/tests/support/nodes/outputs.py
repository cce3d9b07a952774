"""Output nodes that run after a sampler: its latent as a file, the counts as JSON."""

from __future__ import annotations

from pathlib import Path

import folder_paths
from safetensors.torch import save_file

from .watching import RUNS


class TestSave:
    """Writes a latent to `output/<name>.safetensors`."""

    RETURN_TYPES = ()
    FUNCTION = "save"
    OUTPUT_NODE = True
    CATEGORY = "geoshrink/test"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"latent": ("LATENT",), "name": ("STRING", {"default": "latent"})}}

    def save(self, latent, name):
        path = Path(folder_paths.get_output_directory()) / f"{name}.safetensors"
        save_file({"samples": latent["samples"].contiguous()}, str(path))
        return {"ui": {"path": [str(path)]}}


class TestCounts:
    """Shows what the counter of this name saw since it was last read; runs after a sampler."""

    RETURN_TYPES = ()
    FUNCTION = "show"
    OUTPUT_NODE = True
    CATEGORY = "geoshrink/test"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"latent": ("LATENT",), "name": ("STRING", {"default": "counts"})}}

    def show(self, latent, name):
        runs = RUNS.setdefault(name, [])
        seen = list(runs)
        runs.clear()
        return {"ui": {"runs": seen}}
