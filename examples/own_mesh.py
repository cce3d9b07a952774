"""A mesh of your own: at which stages the model is asked.

    python examples/own_mesh.py

A mesh is a function of the noise levels and the budget. Needs geoshrink-bench, for a model.
"""

import argparse

import geoshrink
from geoshrink.meshes.placement import by_regime
from geoshrink.meshes.registry import Mesh
from geoshrink_bench import zoo

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="fruit-latent", help="a model of the zoo")
parser.add_argument("--steps", type=int, default=28)
parser.add_argument("--budget", type=int, default=10, help="model calls")
args = parser.parse_args()


def squares(tau, budget):
    """(stages, name): the q-th anchor is q² of (budget − 1)² on the way, dense near the noise.

    tau   the noise level at each stage's start, and at the end; 1 is noise, 0 is data
    """
    last = len(tau) - 2
    wanted = (round(last * (q / (budget - 1)) ** 2) for q in range(budget))
    stages: list[int] = []
    for stage in wanted:  # whole stages, each later than the one before
        stages.append(max(stage, stages[-1] + 1) if stages else 0)
    return tuple(stages), "squares"


geoshrink.register_mesh(Mesh("squares", by_regime(squares)))

model = zoo.load(args.model)
velocity, noise = model.velocity(range(4)), model.noise(4)
grid = model.grid(args.steps)
full = geoshrink.sample(velocity, noise, grid)
found = {}
for mesh in ("squares", "geometric", "uniform", None):  # None: our default
    options = {} if mesh is None else {"anchors": mesh}
    plan = geoshrink.Plan.of(grid, args.budget, **options)
    x0 = geoshrink.sample(velocity, noise, plan=plan)
    db = 10 * (full.square().sum() / (x0 - full).square().sum()).log10().item()
    found[mesh] = plan.anchors, db
    print(f"{mesh or 'the default':12} {db:5.1f} dB to the full run, anchors {plan.anchors}")
