"""Learn a model once, plan any budget: profile → plan → sample, with files that can be kept.

    python examples/profile_and_plan.py                    # fruit-latent, on your CPU
    python examples/profile_and_plan.py --model motion --samples 16

Needs geoshrink-bench and its models. A pipeline is profiled by handle.profile(prompts).
"""

import argparse
from pathlib import Path

import geoshrink
from geoshrink_bench import zoo

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="fruit-latent", help="a model of the zoo")
parser.add_argument("--steps", type=int, default=28)
parser.add_argument("--budget", type=int, default=8, help="model calls")
parser.add_argument("--samples", type=int, default=8, help="to profile on; 16 are better")
parser.add_argument("--out", type=Path, default=Path("profiles"))
args = parser.parse_args()

model = zoo.load(args.model)
grid = model.grid(args.steps)
names = model.classes
known = [names[i % len(names)] for i in range(args.samples)]
other = [names[-1 - i % len(names)] for i in range(4)]  # what the profile has not seen

args.out.mkdir(exist_ok=True)
profile = geoshrink.profile(
    model.velocity(known),
    model.noise(args.samples, seed=1),
    grid,
    budgets=(args.budget,),  # real runs are made here; other budgets are predicted
    model=args.model,
    file=args.out / "profile.json",  # written as it goes: the same call goes on with it
)
print(profile)
print(profile.curve())  # what each budget is expected to give

plan = profile.plan(budget=args.budget)  # or target_db=30
(args.out / "plan.json").write_text(plan.to_json(), encoding="utf-8")

velocity, noise = model.velocity(other), model.noise(4, seed=2)
full = geoshrink.sample(velocity, noise, grid)
ways = {"the default": {"sigmas": grid, "budget": args.budget}}
ways["the plan"] = {"plan": args.out / "plan.json"}
db = {}
for name, options in ways.items():
    x0 = geoshrink.sample(velocity, noise, **options)
    db[name] = 10 * (full.square().sum() / (x0 - full).square().sum()).log10().item()
    print(f"{name}: {db[name]:.1f} dB to the full run with {args.budget} calls")
