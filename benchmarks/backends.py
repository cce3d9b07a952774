"""The zoo's models in the loops of other backends: python benchmarks/backends.py writes
benchmarks/backends.md.

Trained models through the hosts that real backends go through: motion by torchdiffeq with a
padding mask, as HY-Motion; objects by a sampler that guides within an interval, as TRELLIS; speech
by separately decoded branches, momentum and an interval, as ACE-Step v1, and by DPM++(2M) over a
denoiser, as k-diffusion; picture with speech on two grids, as MiniMax-H3. "Blind" is a
method without regimes or masks.
"""

from __future__ import annotations

import argparse
import importlib
import math
import platform
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torchdiffeq import odeint

import geoshrink
from geoshrink import METHODS, Run, accelerate
from geoshrink.hosts import denoised
from geoshrink_bench import zoo
from geoshrink_bench.metrics import values_of
from geoshrink_bench.metrics.zoo import metrics_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))

music: Any = importlib.import_module("hosts.music")  # the loops, as the tests have them
sparse: Any = importlib.import_module("hosts.sparse")
PAPER = METHODS["paper"]
OURS: dict[str, Any] = {}
Rows = Iterator[tuple[str, Any, int]]  # method, x, forwards


class Counted:
    """A model of the zoo as network(x, τ, labels), which counts its calls."""

    def __init__(self, name: str, samples: int):
        self.model, self.calls = zoo.load(name), 0
        count = len(self.model.classes)
        self.label = self.model.labels([i * count // samples for i in range(samples)])
        self.nothing = torch.full_like(self.label, count)
        self.start = self.model.noise(samples, seed=100)
        self.full: tuple[Any, int] | None = None

    @torch.no_grad()
    def __call__(self, x: Tensor, tau: float, label: Tensor, lengths: Tensor | None = None) -> Any:
        self.calls += 1
        return self.model.network(x, torch.full((len(x),), tau), label, lengths)

    def run(self, make: Callable[[], Any]) -> tuple[Any, int]:
        self.calls = 0
        return make(), self.calls

    def once(self, make: Callable[[], Any]) -> tuple[Any, int]:
        """The full run, made for the first budget and kept for the others."""
        if self.full is None:
            self.full = self.run(make)
        return self.full


class MotionFlowMatching(nn.Module):
    """HY-Motion's loop over the zoo's motion: t from 0 to 1, frames before features."""

    def __init__(self, net: Counted, lengths: list[int], guidance: float):
        super().__init__()
        self.net, self.lengths, self.guidance = net, torch.tensor(lengths), guidance

    def mask(self) -> Tensor:
        return torch.arange(self.net.start.shape[-1]) < self.lengths[:, None]

    def velocity(self, t: Tensor, x: Tensor, mask: Tensor) -> Tensor:
        label = torch.cat([self.net.nothing, self.net.label])
        twice, lengths = torch.cat([x, x]).mT, mask.sum(-1).repeat(2)
        free, given = self.net(twice, 1 - float(t), label, lengths).mT.chunk(2)
        return -(free + self.guidance * (given - free))

    def generate(self, steps: int) -> Tensor:
        x_mask_temporal = self.mask()

        def fn(t: Tensor, x: Tensor) -> Tensor:
            return self.velocity(t, x, x_mask_temporal)

        times = torch.linspace(0, 1, steps + 1)
        trajectory: Any = odeint(fn, self.net.start.mT, times, method="euler")
        return trajectory[-1].mT


def motion(net: Counted, budget: int) -> Rows:
    """50 steps, guidance 5, 24 to 64 of 64 frames; this network is silent on padding."""
    host = MotionFlowMatching(net, lengths_of(len(net.label)), 5.0)
    yield ("full", *net.once(lambda: host.generate(50)))
    yield ("direct", *net.run(lambda: host.generate(budget)))
    times, x = torch.linspace(0, 1, 51), net.start.mT
    for name, method in (("paper, blind", PAPER), ("geoshrink, blind", OURS)):
        how: dict[str, Any] = dict(method)
        made, calls = net.run(
            lambda how=how: geoshrink.odeint(
                lambda t, x: host.velocity(t, x, host.mask()), x, times, budget=budget, **how
            )
        )
        yield name, made[-1].mT, calls
    yield from accelerated(net, host, lambda: host.generate(50), budget)


def accelerated(net: Counted, host: Any, run: Callable[[], Any], budget: int) -> Rows:
    for name, method in (("paper, through the adapter", PAPER), ("geoshrink", OURS)):
        with accelerate(host, budget=budget, **method):
            yield (name, *net.run(run))


def objects(net: Counted, budget: int) -> Rows:
    """25 steps, rescaled by 3, guidance 7.5 (its strength 6.5) for t in [0.5, 0.95]."""
    host = sparse.FlowEulerGuidanceIntervalSampler()
    setting = dict(cond=net.label, neg_cond=net.nothing, rescale_t=3.0, cfg_strength=6.5)

    def model(x: Tensor, t: Tensor, label: Tensor) -> Tensor:
        return net(x, float(t[0]) / 1000, label)

    def run(steps: int = 25) -> Tensor:
        more = dict(setting, cfg_interval=(0.5, 0.95), steps=steps)
        return host.sample(model, net.start, **more).samples

    yield ("full", *net.once(run))
    yield ("direct", *net.run(lambda: run(budget)))
    stages = Run(net.model.sigmas(25, 3.0), budget, **PAPER)
    plain, numbers = host._inference_model, iter(range(25))
    host._inference_model = lambda *a, **k: stages(next(numbers), lambda: plain(*a, **k))
    yield ("paper, blind", *net.run(run))
    del host._inference_model
    yield from accelerated(net, host, run, budget)


class Speech(nn.Module):
    """The zoo's digits-audio with the interface of ACE-Step's transformer."""

    def __init__(self, net: Counted):
        super().__init__()
        self.net = net

    def decode(self, hidden_states: Tensor, encoder_hidden_states: Tensor, timestep: Tensor) -> Any:
        return music.Output(
            self.net(hidden_states, float(timestep[0]) / 1000, encoder_hidden_states)
        )


class Song(music.ACEStepPipeline):
    def noise(self, length: int, seed: int) -> Tensor:
        return self.ace_step_transformer.net.start

    def prompts(self) -> list[Tensor]:
        net = self.ace_step_transformer.net
        return [net.label, net.nothing, net.nothing]


def song(net: Counted, budget: int) -> Rows:
    """40 steps, shift 3, guidance 4.5 with momentum −0.75 at the steps 10 … 29."""
    host = Song(Speech(net))

    def run(steps: int = 40) -> Tensor:
        return host(infer_steps=steps, guidance_scale=4.5, omega_scale=1.0)

    yield ("full", *net.once(run))
    yield ("direct", *net.run(lambda: run(budget)))
    for name, how in (
        ("paper, blind", dict(PAPER)),
        ("paper, of the guided output", dict(PAPER, regimes=(10, 30))),
        ("geoshrink, of the guided output", dict(OURS, regimes=(10, 30))),
    ):
        yield (name, *net.run(lambda how=how: guided_song(net, budget, how)))
    yield from accelerated(net, host, run, budget)


def guided_song(net: Counted, budget: int, how: dict[str, Any]) -> Tensor:
    """The guided output is predicted, the momentum left alone where nothing is queried."""
    scheduler, momentum, x = music.Scheduler(), music.Momentum(), net.start
    scheduler.set_timesteps(40)
    run = Run(scheduler.sigmas, budget, **how)

    def guided(n: int, x: Tensor) -> Tensor:
        sigma = float(scheduler.timesteps[n]) / 1000
        given = net(x, sigma, net.label)
        if not 10 <= n < 30:
            return given
        return given + 3.5 * momentum.update(given - net(x, sigma, net.nothing))

    for n in range(40):
        x = scheduler.step(run(n, lambda n=n, x=x: guided(n, x)), x, 1.0)
    return x


def denoiser(net: Counted, budget: int) -> Rows:
    """40 steps, guidance 4.5, DPM++(2M) in the style of k-diffusion."""

    def model(x: Tensor, sigma: Tensor) -> Tensor:
        both = net(torch.cat([x, x]), float(sigma[0]), torch.cat([net.label, net.nothing]))
        given, free = both.chunk(2)
        return x - float(sigma[0]) * (free + 4.5 * (given - free))

    def grid(steps: int) -> Tensor:
        return torch.tensor(net.model.sigmas(steps, 1.0)).clamp(max=0.999)

    yield ("full", *net.once(lambda: dpmpp_2m(model, net.start, grid(40))))
    yield ("direct", *net.run(lambda: dpmpp_2m(model, net.start, grid(budget))))
    for name, how in (
        ("paper, through the adapter", dict(PAPER)),
        ("paper, of the denoised", dict(PAPER, space="data")),
        ("geoshrink", dict(OURS)),
    ):
        wrapped = denoised.wrap(model, grid(40), budget, **how)
        yield (name, *net.run(lambda wrapped=wrapped: dpmpp_2m(wrapped, net.start, grid(40))))


def dpmpp_2m(model: Callable[[Tensor, Tensor], Tensor], x: Tensor, sigmas: Tensor) -> Tensor:
    """DPM-Solver++(2M) on the flow x = (1 − σ)·x₀ + σ·ε, in λ = log((1 − σ)/σ)."""
    before: tuple[Tensor, Tensor] | None = None
    for now, then in pairwise(sigmas):
        data, lam = model(x, now.expand(len(x))), torch.log((1 - now) / now)
        h = torch.log((1 - then) / then) - lam
        mixed = data
        if before is not None and then > 0:
            r = (lam - before[1]) / h
            mixed = data + (data - before[0]) / (2 * r)
        x = then / now * x - (1 - then) * torch.expm1(-h) * mixed
        before = data, lam
    return x


def pair(net: Counted, budget: int) -> Rows:
    """The two-grid pipeline of the zoo: 30 steps, guidance 3, shifts 12 and 3."""
    from geoshrink_bench.zoo.pipelines import pipeline

    pipe = pipeline("digits-av")
    pipe.set_progress_bar_config(disable=True)
    pipe.transformer.register_forward_pre_hook(lambda *_: setattr(net, "calls", net.calls + 1))

    def run(steps: int = 30) -> Any:
        picture, sound = net.start
        more: dict[str, Any] = dict(latents=picture, audio_latents=sound, output_type="latent")
        made = pipe(net.label.tolist(), num_inference_steps=steps, guidance_scale=3.0, **more)
        return made.images, made.audios

    yield ("full", *net.once(run))
    yield ("direct", *net.run(lambda: run(budget)))
    yield from accelerated(net, pipe, run, budget)


BACKENDS = {
    "HY-Motion's loop: motion": ("motion", motion, (10, 20)),
    "TRELLIS's loop: objects": ("objects", objects, (10, 15)),
    "ACE-Step v1's loop: speech": ("digits-audio", song, (15, 20)),
    "k-diffusion's loop: speech": ("digits-audio", denoiser, (15, 20)),
    "MiniMax-H3's loop: picture with speech": ("digits-av", pair, (10, 15)),
}


def table(title: str, name: str, rows: Callable[..., Rows], budgets: Any, samples: int) -> list:
    net = Counted(name, samples)
    metrics, cells, all_calls = metrics_of(name), {}, 0
    lengths = lengths_of(samples) if name == "motion" else None
    for budget in budgets:
        full: list[Tensor] = []
        for method, x, calls in rows(net, budget):
            values = values_of(net.model, x, lengths)
            if method == "full":
                full, all_calls = values, calls
                continue
            scores = [torch.tensor(m.of(values, full, lengths, None)) for m in metrics]
            cells[method, budget] = [*map(mean, scores), str(calls)]
    heads = [f"{m.name}, {m.metric.unit}" for m in metrics] + ["forwards"]
    lines = [f"\n## {title}\n", f"{rows.__doc__} The full run: {all_calls} forwards.\n"]
    lines.append("| method | " + " | ".join(f"B = {b}: {h}" for b in budgets for h in heads) + " |")
    lines.append("|---|" + "--:|" * len(budgets) * len(heads))
    for method in dict.fromkeys(method for method, _ in cells):
        row = [cell for budget in budgets for cell in cells[method, budget]]
        lines.append(f"| {method} | " + " | ".join(row) + " |")
    return lines


def mean(scores: Tensor) -> str:
    return f"{scores.mean():.2f} ± {scores.std() / math.sqrt(len(scores)):.2f}"


def lengths_of(samples: int) -> list[int]:
    return [24 + 40 * i // max(1, samples - 1) for i in range(samples)]


def main() -> None:
    parser = argparse.ArgumentParser(description="The zoo in the loops of other backends.")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--only", help="a part of a backend's name; nothing is written then")
    args = parser.parse_args()
    torch.set_num_threads(1)
    began, lines = time.time(), []
    for title, (name, rows, budgets) in BACKENDS.items():
        if args.only is None or args.only in title:
            lines += table(title, name, rows, budgets, args.samples)
            print("\n".join(lines[-9:]), flush=True)
    head = [
        "# The zoo in the loops of other backends",
        "",
        f"Made by `python benchmarks/backends.py` on {platform.machine()}, one thread, in "
        f"{time.time() - began:.0f} s: distance to the full run, mean ± standard error over "
        f"{args.samples} samples; stages queried are B, forwards are what that costs.",
    ]
    if args.only is None:
        text = "\n".join(head + lines) + "\n"
        Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
