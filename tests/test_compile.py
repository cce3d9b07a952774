"""sample() under torch.compile(fullgraph=True): one graph from noise to picture."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from geoshrink import Plan, sample

STEPS, BUDGET = 12, 6
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]


def field(x, sigma):
    return torch.tanh(x.roll(1, -1)) * (1 + sigma)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "options", [{}, {"rule": "chordal", "anchors": "geometric"}, {"space": "data"}], ids=str
)
def test_the_whole_loop_is_one_graph(options):
    plan, x = replace(Plan.of(SIGMAS, BUDGET, **options), slow=()), torch.randn(2, 3, 8)
    sample(field, x, plan=plan)  # a plan computes its tables at its first run
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda x: sample(field, x, plan=plan), fullgraph=True, backend=backend)
    for _ in range(2):
        x = torch.randn(2, 3, 8)
        assert torch.allclose(compiled(x), sample(field, x, plan=plan), atol=1e-6)
    assert len(graphs) == 1
    calls = [n for n in graphs[0].graph.nodes if "tanh" in str(n.target)]
    assert len(calls) == BUDGET
