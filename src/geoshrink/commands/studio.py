"""Open a page in the browser: the full run and the accelerated one, live."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..compare.inputs import Settings, check_device, read_kwargs
from ..studio.shelf import Shelf
from ..studio.studio import Studio
from .arguments import PIPELINE, add_pipeline

EXAMPLES = """
geoshrink studio
geoshrink studio models/FLUX.1-dev --port 7861 --no-browser
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="*",
        help="a folder that diffusers saved, a builder package.module:function, or a demo model; "
        "default: the demo models, fruit first",
    )
    parser.add_argument(
        "--folder", type=Path, action="append", default=[], help="offer every pipeline in it"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("studio"), help="folder for plan files; default: studio"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="default: 127.0.0.1, this machine only; 0.0.0.0: for the whole network",
    )
    parser.add_argument("--port", type=int, help="default: the first free one from 7860 on")
    parser.add_argument("--share", action="store_true", help="by gradio's tunnel: a public address")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    add_pipeline(parser)


def run(args: argparse.Namespace) -> int:
    check_device(args.device)
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import PIL  # noqa: F401

        from ..studio.app import App
        from ..studio.serve import serve
    except ImportError as error:
        raise ImportError(
            f"the studio needs {error.name}: pip install 'geoshrink[studio]'"
        ) from None
    given = {name: getattr(args, name) for name in PIPELINE}
    settings = Settings("", kwargs=read_kwargs(args.kwargs), **given)
    studio = Studio(Shelf(args.model, args.folder, settings), args.out)
    serve(App(studio), args.host, args.port, args.share, not args.no_browser)
    return 0
