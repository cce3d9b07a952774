"""Arguments that several commands have."""

from __future__ import annotations

import argparse

from ..batch.jobs import Engine
from ..batch.on_processes import OnProcesses
from ..batch.on_ray import OnRay

#: Of a pipeline's call, and of how it is loaded.
PIPELINE = ("height", "width", "frames", "dtype", "device")


def add_pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--height", type=int, help="of a picture; default: the pipeline's own")
    parser.add_argument("--width", type=int, help="as --height")
    parser.add_argument("--frames", type=int, help="of a video")
    parser.add_argument("--dtype", help="bf16, fp16 or fp32; default: bf16 on a GPU")
    parser.add_argument("--device", help="default: cuda where there is one")
    parser.add_argument("--kwargs", default="{}", help="more arguments of the call, as JSON")


def add_ray(parser: argparse.ArgumentParser) -> None:
    """Where it runs."""
    group = parser.add_argument_group("many processes, many machines")
    group.add_argument(
        "--workers",
        type=int,
        help="processes on this machine, spread over its GPUs; with --ray on the cluster, default: "
        "as many as it has room for",
    )
    group.add_argument("--ray", help="a cluster's address, auto, or local: one on this machine")
    group.add_argument("--gpus-per-worker", type=float, help="default: 1 where there are any")
    group.add_argument("--cpus-per-worker", type=int, default=1, help="without GPUs; default: 1")


def engine_of(args: argparse.Namespace) -> Engine | None:
    if args.ray is None:
        if args.gpus_per_worker is not None:
            words = f"--gpus-per-worker {args.gpus_per_worker}"
            raise ValueError(f"{words} is for a cluster: give --ray, too, or only --workers")
        return None if args.workers is None else OnProcesses(args.workers)
    return OnRay(args.ray, args.workers, args.gpus_per_worker, args.cpus_per_worker)
