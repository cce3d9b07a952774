"""A host of your own: accelerate() for a sampler that it does not know.

    python examples/own_host.py

`Painter` stands for somebody's code. What it needs is a place between its loop and its model where
a Run can be put: here the method `ask`. Needs geoshrink-bench, for the model.
"""

import argparse

import geoshrink
from geoshrink_bench import zoo

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="fruit-latent", help="a model of the zoo")
parser.add_argument("--steps", type=int, default=28)
parser.add_argument("--budget", type=int, default=10, help="model calls")
args = parser.parse_args()


class Painter:
    """Somebody's sampler."""

    def __init__(self, model):
        self.model = model

    def ask(self, n, sigmas, velocity, x):
        return velocity(x, sigmas[n])

    def paint(self, label, steps, seed=0):
        x, sigmas = self.model.noise(1, seed), self.model.sigmas(steps)
        velocity = self.model.velocity([label])
        for n in range(steps):
            x = x + (sigmas[n + 1] - sigmas[n]) * self.ask(n, sigmas, velocity, x)
        return x


def attach(painter, budget=None, **options):
    """What accelerate() does with a Painter: a Run for every picture, and a way back."""
    runs, plain = [], painter.ask

    def ask(n, sigmas, velocity, x):
        if n == 0:
            runs.append(geoshrink.Run(sigmas, budget, solver="euler", **options))
        return runs[-1](n, lambda: plain(n, sigmas, velocity, x), x)

    painter.ask = ask
    return geoshrink.Handle(lambda: [run.report for run in runs], lambda: delattr(painter, "ask"))


geoshrink.register_host(geoshrink.Host("painter", lambda it: isinstance(it, Painter), attach))
painter = Painter(zoo.load(args.model))
full = painter.paint(0, args.steps)
with geoshrink.accelerate(painter, budget=args.budget) as handle:
    x0 = painter.paint(0, args.steps)
    report = handle.report
print(report)
