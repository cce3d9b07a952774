"""Ask for a quality, not for a number of calls: target_db, and what became of it.

    python examples/target_quality.py --targets 20 30 40

dB are 10·log10(‖full run‖²/‖error‖²) in what the solver sees. Each run decides at every model call
how many more it needs. Needs geoshrink-bench, for the model.
"""

import argparse

import geoshrink
from geoshrink_bench import zoo

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="fruit-latent", help="a model of the zoo")
parser.add_argument("--targets", type=float, nargs="+", default=[20, 30, 40])
parser.add_argument("--most", type=int, default=25, help="model calls, whatever the quality")
parser.add_argument("--steps", type=int, default=28)
parser.add_argument("--samples", type=int, default=4)
args = parser.parse_args()

model = zoo.load(args.model)
velocity = model.velocity([i % len(model.classes) for i in range(args.samples)])
noise, grid = model.noise(args.samples), model.grid(args.steps)

full = geoshrink.sample(velocity, noise, grid)  # only to see how well the target was met
reports = []
print("asked      calls   estimated     measured")
for target in args.targets:
    x0, report = geoshrink.sample(
        velocity, noise, grid, target_db=target, most=args.most, with_report=True
    )
    reports.append(report)
    db = 10 * (full.square().sum() / (x0 - full).square().sum()).log10().item()
    low, high = report.estimate.low, report.estimate.high
    told = f"{low:.0f} to {high:.0f} dB" if low is not None else "–"
    print(f"{target:3.0f} dB  {report.evaluations:3} of {report.steps}  {told:>12}  {db:8.1f} dB")
