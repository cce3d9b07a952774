"""A rule of your own: how much of the latest change Δv a prediction keeps.

    python examples/own_rule.py

v̂ = v¹ + ω·Δv at a skipped stage. A rule is one function of tensors that gives ω; registered, it has
a name like ours. Needs geoshrink-bench, for a model to try it on.
"""

import argparse

import geoshrink
from geoshrink.rules import Form
from geoshrink_bench import zoo

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="fruit-latent", help="a model of the zoo")
parser.add_argument("--steps", type=int, default=28)
parser.add_argument("--budgets", type=int, nargs="+", default=[8, 14])
args = parser.parse_args()


def timid(rule, exposure, energy, reach):
    """Half as much as the paper's rule: ω = ½/(1 + ρ²·sin²θ).

    exposure   ρ²·sin²θ: how far ahead the stage is, and how much the path turned
    energy     ‖Δv‖² of this change and of the one before
    reach      λ: how far ahead, in units of the span between the two latest anchors
    """
    return 0.5 / (1 + exposure)


geoshrink.register_rule(Form("timid", timid))

model = zoo.load(args.model)
velocity, noise = model.velocity(range(4)), model.noise(4)
grid = model.grid(args.steps)
full = geoshrink.sample(velocity, noise, grid)
found = {}
for budget in args.budgets:
    for rule in ("chordal", "hold", "timid", "signed timid"):  # "signed": 0 where Δv turned back
        x0 = geoshrink.sample(velocity, noise, grid, budget=budget, rule=rule)
        db = 10 * (full.square().sum() / (x0 - full).square().sum()).log10().item()
        found[budget, rule] = db
        print(f"{budget:3} calls, {rule:13} {db:5.1f} dB to the full run")
