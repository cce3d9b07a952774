"""Your own sampling loop: one line of it changes.

    python examples/own_loop.py                       # a kiwi by our fruit model, on your CPU
    python examples/own_loop.py --fruit "Banana 1" --budget 7

Needs geoshrink-bench, for the model. Your loop may be any that asks a model once a step.
"""

import argparse
from functools import partial

import geoshrink
from geoshrink_bench import zoo

parser = argparse.ArgumentParser()
parser.add_argument("--fruit", default="Kiwi 1")
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--budget", type=int, default=10, help="model calls")
parser.add_argument("--out", default="fruit.png")
args = parser.parse_args()

model = zoo.load("fruit")
velocity = model.velocity([args.fruit], guidance=3)  # velocity(x, sigma), after guidance
sigmas = model.sigmas(args.steps)  # from 1, noise, to 0, data
noise = model.noise(1, seed=4)

# The loop as it was.
x = noise
for n in range(args.steps):
    v = velocity(x, sigmas[n])
    x = x + (sigmas[n + 1] - sigmas[n]) * v
full = x

# The loop as it is now: the call goes through a Run, which makes it or predicts what it would say.
# "euler" says what the loop does with v.
x = noise
run = geoshrink.Run(sigmas, budget=args.budget, solver="euler")
for n in range(args.steps):
    v = run(n, partial(velocity, x, sigmas[n]), x)
    x = x + (sigmas[n + 1] - sigmas[n]) * v

db = 10 * ((full**2).sum() / ((x - full) ** 2).sum()).log10().item()
report = run.report
model.decode(x)[0].save(args.out)
print(report)
print(f"{args.out}: {report.evaluations} calls of {report.steps}, {db:.1f} dB to the full run")
