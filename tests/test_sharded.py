"""Sharded latents: 2 and 4 processes that hold a part each do what one process does."""

from __future__ import annotations

import os
import socket
import traceback
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing

from geoshrink import Blocks, Correction, Run, sample

pytestmark = pytest.mark.skipif(
    not distributed.is_available() or not distributed.is_gloo_available(), reason="needs gloo"
)
STEPS, BUDGET, WIDTH = 12, 6, 24
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]
CASES: dict[str, dict[str, Any]] = {
    "default": {},
    "the paper's": {"rule": "chordal", "anchors": "geometric"},
    "data": {"space": "data", "rule": "time"},
    "channels": {"blocks": Blocks((0, 1)), "rule": "signed chordal"},
    "heun": {"solver": "heun"},
    "corrected": {"correct": Correction(caution=1.0)},
    "corrected, channels": {"correct": True, "blocks": Blocks((0, 1)), "solver": "ab2"},
}


def field(x: torch.Tensor, sigma: float) -> torch.Tensor:
    """Acts on each coordinate alone, so that a shard needs no other."""
    return torch.sin(3 * x) * (1 + sigma) + torch.cos(5 * sigma * x)


def noise() -> torch.Tensor:
    return torch.randn(3, 2, WIDTH, generator=torch.Generator().manual_seed(0))


def results(x: torch.Tensor, group: Any) -> dict[str, Any]:
    found = {}
    for name, options in CASES.items():
        end, report = sample(field, x, SIGMAS, BUDGET, group=group, with_report=True, **options)
        numbers = [(s.omega, s.turning, s.error, s.correction) for s in report.stages]
        told = (report.estimated_db, report.estimate.direct, report.estimate.energy)
        found[name] = (end.numpy(), report.queried, [*numbers, told])
    for db in (15, 30):
        end, report = sample(field, x, SIGMAS, target_db=db, group=group, with_report=True)
        found[f"{db} dB"] = (end.numpy(), report.queried, report.estimate.samples)
    wanted = x.clone().requires_grad_()
    end = sample(field, wanted, SIGMAS, BUDGET, group=group, rule="chordal")
    found["gradient"] = torch.autograd.grad(end.square().sum(), wanted)[0].numpy()
    spoilt = x.clone()
    spoilt[:1, :1, :1] = float("nan")
    run = Run(SIGMAS, BUDGET, group=group, rule="fixed(0.5)")
    mine = group is None or distributed.get_rank() == 0  # the others see it in the sums alone
    for n in range(STEPS):
        state = spoilt if mine and n == 2 else x
        run(n, lambda state=state, n=n: field(state, SIGMAS[n]))
    record = run._record.usable
    found["spoilt"] = {n: f[0].tolist() for n, f in record.items() if f[0] is not None}
    return found


def shard(rank: int, port: int, queue: Any) -> None:
    """One of four processes, the first two of which work as two as well."""
    try:
        torch.set_num_threads(1)
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        distributed.init_process_group("gloo", rank=rank, world_size=4)
        pair = distributed.new_group([0, 1])
        queue.put((4, rank, results(part_of(rank, 4), True)))
        if rank < 2:
            queue.put((2, rank, results(part_of(rank, 2), pair)))
        distributed.barrier()
    except BaseException:
        queue.put((0, rank, traceback.format_exc()))
    finally:
        distributed.destroy_process_group()


def part_of(rank: int, world: int) -> torch.Tensor:
    """Parts of unequal size."""
    cuts = [0, *(5 + i * WIDTH // world for i in range(world - 1)), WIDTH]
    return noise()[..., cuts[rank] : cuts[rank + 1]].clone()


@pytest.fixture(scope="module")
def parts() -> dict[int, list[dict[str, Any]]]:
    """What each shard found, by the number of processes."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    processes = [context.Process(target=shard, args=(rank, port, queue)) for rank in range(4)]
    for process in processes:
        process.start()
    answers = []
    while len(answers) < 6 and all(world for world, *_ in answers):
        answers.append(queue.get())
    for process in processes:
        process.join()
    for world, rank, answer in answers:
        assert world, f"rank {rank}: {answer}"
    answers.sort(key=lambda answer: answer[:2])
    return {n: [found for world, _, found in answers if world == n] for n in (2, 4)}


@pytest.mark.parametrize("world", [2, 4])
def test_shards_do_what_one_process_does(parts, world):
    whole, shards = results(noise(), None), parts[world]
    for name in ("15 dB", "30 dB"):
        x, anchors, samples = whole[name]
        joined = np.concatenate([found[name][0] for found in shards], -1)
        assert abs(joined - x).max() < 1e-5 and 4 <= len(anchors) < STEPS, name
        for found in shards:
            assert found[name][1] == anchors and found[name][2] == shards[0][name][2]
            assert found[name][2] == pytest.approx(samples, abs=1e-3)
    for name in CASES:
        x, anchors, numbers = whole[name]
        joined = np.concatenate([found[name][0] for found in shards], -1)
        assert abs(joined - x).max() < 1e-5, name
        for found in shards:
            assert found[name][1] == anchors
            assert found[name][2] == shards[0][name][2]  # to the last bit on every rank
            for mine, its in zip(found[name][2], numbers):
                for a, b in zip(mine, its):
                    assert (a is None) == (b is None) and (a is None or abs(a - b) < 1e-5)
    joined = np.concatenate([found["gradient"] for found in shards], -1)
    assert abs(joined - whole["gradient"]).max() < 1e-4 * abs(whole["gradient"]).max()
    for found in shards:
        assert found["spoilt"] == whole["spoilt"]
    assert whole["spoilt"][2] == [False, True, True]


def test_a_group_needs_torch_distributed():
    with pytest.raises(ValueError, match="init_process_group"):
        Run(SIGMAS, BUDGET, group=True)
