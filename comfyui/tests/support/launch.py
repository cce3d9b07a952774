"""Run a ComfyUI's main.py: `python launch.py FOLDER [its arguments]`.

A torchvision built for another torch cannot register its operators, and its import fails. ComfyUI
only needs the import: declare the two operators that torchvision looks for.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path

import torch


def declare_operators() -> None:
    """Make `import torchvision` work where its compiled part does not load."""
    try:
        importlib.import_module("torchvision")
    except (AttributeError, ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define(
            "qnms(Tensor dets, Tensor scores, float scale, int zero, float threshold) -> Tensor"
        )
        sys._torchvision_operators = library  # type: ignore[attr-defined]  # must stay alive


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    declare_operators()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = [str(folder / "main.py"), *sys.argv[2:]]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
