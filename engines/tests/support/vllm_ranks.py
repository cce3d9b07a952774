"""One rank of two that share the branches of guidance: vllm_ranks.py PORT RANK prints what it made.

Its groups are the engine's own, over gloo.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import vllm_stubs

from geoshrink.hosts import vllm_omni as plugin

CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("Guided", "Guided", {"budget": 8}),
    ("Branches", "Branches", {"budget": 7}),
    ("Held", "Guided", {"target_db": 30}),
]


def main(port: str, rank: int) -> dict[str, Any]:
    vllm_stubs.install()
    plugin.register()
    import vllm_toys as toys
    from vllm_omni.diffusion.distributed import group_coordinator, parallel_state

    where = f"tcp://127.0.0.1:{port}"
    torch.distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2)
    group = group_coordinator.GroupCoordinator([[0, 1]], rank, "gloo")
    parallel_state._CFG = group
    gathers: list[int] = []
    plain = group.all_gather

    def all_gather(*args: Any, **kwargs: Any) -> Any:
        gathers.append(1)
        return plain(*args, **kwargs)

    group.all_gather = all_gather
    found = {}
    for name, kind, options in CASES:
        gathers.clear()
        pipeline = getattr(toys, kind)()
        output = toys.runner(pipeline, **options).execute_model(toys.request())
        found[name] = {
            "kind": kind,
            "options": options,
            "output": output.output.flatten().tolist(),
            "calls": len(pipeline.transformer.calls),
            "told": plugin.told_in(output.stage_durations),
            "gathers": len(gathers),
        }
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
