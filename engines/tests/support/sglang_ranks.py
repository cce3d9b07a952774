"""One of two processes of an SGLang server: python sglang_ranks.py KIND RANK PORT FILE

SGLang's own process groups over gloo. Writes latents, calls and what the request is told.
"""

from __future__ import annotations

import sys
from typing import Any

import sglang_stage as sgl
import torch
from sglang.multimodal_gen.runtime.distributed import parallel_state
from sglang.multimodal_gen.runtime.platforms import plugins

from geoshrink import pace

ASKED = {"euler": {"budget": 8}, "unipc": {"speedup": 2}, "quality": {"target_db": 30}}


def initialize(kind: str, rank: int, port: int) -> None:
    where = f"tcp://127.0.0.1:{port}"
    parallel_state.init_distributed_environment(2, rank, where, rank, "gloo")
    degrees: dict[str, Any] = {"backend": "gloo"}
    if kind == "sequence":
        degrees |= {"sequence_parallel_degree": 2, "ulysses_degree": 2}
    else:
        degrees |= {"classifier_free_guidance_degree": 2, "sequence_parallel_degree": 1}
    parallel_state.initialize_model_parallel(**degrees)


def results(kind: str, rank: int) -> dict[str, Any]:
    found = {}
    for name, asked in ASKED.items():
        stage = sgl.Stage(sgl.Net())
        stage.args.enable_cfg_parallel = kind == "guidance"
        scheduler = name if name in sgl.SCHEDULERS else "euler"
        ctx, req = sgl.request(asked, scheduler=scheduler, shape=(1, 8, 6))
        if kind == "sequence":  # each process has half of the tokens
            req.latents = ctx.latents = ctx.latents[:, 4 * rank : 4 * rank + 4].clone()
            req.did_sp_shard_latents = True
        made = sgl.run(stage, ctx, req)
        told = getattr(req.metrics, "geoshrink", None)
        found[name] = made, stage.transformer.calls, told
    return found


if __name__ == "__main__":
    kind, rank, port, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    plugins.apply_plugin_hooks()
    if kind == "alone":
        pace.readable = lambda errors: False  # several processes keep their anchors
    else:
        initialize(kind, rank, port)
    torch.save(results(kind, rank), file)
