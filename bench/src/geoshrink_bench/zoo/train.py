"""Trains one model of the zoo.

    python -m geoshrink_bench.zoo.train motion --data cmu_mocap_20fps.npz

Logit-normal times (Esser et al., 2024), AdamW with a cosine rate, an exponential moving average of
the weights, bf16 autocast and torch.compile on a GPU. Writes NAME.safetensors (fp16) and NAME.json.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .autoencoder import Autoencoder, autoencoder_loss
from .files import maker, save
from .modalities import Data
from .model import load
from .network import asked
from .recipes import RECIPES, Recipe

AUTOENCODER_SHARE = 0.35  # of the time
WARM_UP = 500  # steps


class Clock:
    """How much of the time, or of the steps, is gone."""

    def __init__(self, seconds: float, max_steps: int | None):
        self.began, self.seconds, self.max_steps = time.monotonic(), seconds, max_steps

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def steps(self) -> Iterator[tuple[int, float]]:
        """(step, share of the work that is done) until it is done."""
        step = 0
        while True:
            done = self.elapsed() / self.seconds
            if self.max_steps:
                done = max(done, step / self.max_steps)
            if done >= 1:
                return
            yield step, done
            step += 1


def loss_of(
    network: nn.Module,
    kind: str,
    x0: tuple[Tensor, ...],
    label: Tensor,
    length: Tensor | None,
    shift: float = 1.0,
) -> Tensor:
    """E‖V(x_τ, τ, c) − target‖² with τ = sigmoid(N(0, 1)), shifted as samplers shift it.

    Of several tensors each has its own shift, drawn anew.

    flow: x = (1 − τ)·x₀ + τ·ε, target ε − x₀.  epsilon: the same x on the sphere α² + σ² = 1,
    target ε.  sample: target x₀, in units of the velocity (Li & He, 2025).
    """
    noise = [torch.randn_like(x) for x in x0]
    odds = torch.randn(len(x0[0]), 1, device=x0[0].device).exp()
    if len(x0) > 1:
        odds = odds * (2.5 * torch.rand(len(odds), len(x0), device=odds.device)).exp()
    tau = shift * odds / (1 + shift * odds)
    inputs, weights = [], []
    for i, (x, e) in enumerate(zip(x0, noise)):
        t = tau[:, i].reshape(-1, *[1] * (x.ndim - 1))
        mixed = (1 - t) * x + t * e
        inputs.append(mixed / torch.hypot(t, 1 - t) if kind == "epsilon" else mixed)
        weights.append(1 / t.clamp(min=0.05) if kind == "sample" else torch.ones_like(t))
    outputs = asked(network, inputs, tau, label, length)
    total = torch.zeros((), device=odds.device)
    for x, e, out, weight in zip(x0, noise, outputs, weights):
        target = {"flow": e - x, "epsilon": e, "sample": x}[kind]
        error = (weight * (out.float() - target)).square()
        if length is not None:
            valid = torch.arange(x.shape[-1], device=x.device) < length[:, None]
            error = error * valid[:, None] * (valid.numel() / valid.sum())
        total = total + error.mean()
    return total / len(x0)


def optimise(
    model: nn.Module, loss: Any, recipe: Recipe, clock: Clock, gpu: bool, name: str
) -> tuple[Any, int, float]:
    """(average of the weights, steps, last loss); loss() is the loss of a new batch."""
    t = recipe.training
    average = copy.deepcopy(model).requires_grad_(False)
    mean, now = tuple(average.parameters()), tuple(model.parameters())
    optimizer = torch.optim.AdamW(
        now, lr=t["rate"], betas=(0.9, 0.95), weight_decay=0.01, fused=gpu or None
    )
    step, first, last, value = -1, math.inf, math.nan, None
    for step, done in clock.steps():
        rate = t["rate"] * min(1, (step + 1) / WARM_UP) * (0.5 + 0.5 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cuda" if gpu else "cpu", torch.bfloat16, enabled=gpu):
            value = loss()
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(now, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(  # type: ignore[attr-defined]
                mean, now, 1 - min(t["ema"], (1 + step) / (10 + step))
            )
        if step % 500 == 499 or step in (0, 99):
            last = value.item()
            line = f"{name}: step {step + 1:6d}  {clock.elapsed():5.0f} s  loss {last:.4f}"
            print(line, flush=True)
            first = last if step == 0 else first
            if not last < 10 * first:
                raise RuntimeError(
                    f"{name} diverges: loss {first:.4g}, at step {step + 1} {last:.4g}"
                )
    last = last if value is None else value.item()
    if not all(bool(part.isfinite().all()) for part in mean):
        raise RuntimeError(f"{name} diverges: loss {first:.4g} at first, weights not finite now")
    return average, step + 1, last


def train_autoencoder(recipe: Recipe, data: Data, clock: Clock, gpu: bool) -> Autoencoder:
    assert recipe.latent is not None
    device = data.labels.device
    model = Autoencoder(**recipe.latent).to(device)

    def loss() -> Tensor:
        pick = torch.randint(len(data.labels), (256,), device=device)
        return autoencoder_loss(model, recipe.modality.batch(data, pick)[0][0])

    average, _, _ = optimise(model, loss, recipe, clock, gpu, f"{recipe.name} autoencoder")
    pick = torch.randperm(len(data.labels), device=device)[:2048]
    average.standardise(recipe.modality.batch(data, pick)[0][0])
    return average


@torch.no_grad()
def encoded(autoencoder: Autoencoder, recipe: Recipe, data: Data) -> Tensor:
    """The latents of all pictures, (2, pictures, …): two draws of the augmentation."""
    picks = torch.arange(len(data.labels), device=data.labels.device).split(1024)
    batches = [[recipe.modality.batch(data, pick)[0][0] for pick in picks] for _ in range(2)]
    return torch.stack([torch.cat([autoencoder.encode(x) for x in draw]) for draw in batches])


def train(
    recipe: Recipe,
    path: Path,
    minutes: float,
    device: str,
    max_steps: int | None = None,
    seed: int = 0,
    start: Path | None = None,
) -> tuple[dict[str, Tensor], dict]:
    """(weights, facts) after `minutes` from the call on, or max_steps.

    start       a folder with weights of an earlier training of the network, to go on from
    """
    began = Clock(60 * minutes, None)
    torch.manual_seed(seed)
    gpu = device.startswith("cuda")
    data = recipe.modality.read(path).to(device)
    classes, batch = len(data.classes), int(recipe.training["batch"])
    weights: dict[str, Tensor] = {}
    latents = None
    if recipe.latent is not None:
        share = AUTOENCODER_SHARE * (began.seconds - began.elapsed())
        autoencoder = train_autoencoder(recipe, data, Clock(share, max_steps), gpu)
        weights |= {f"autoencoder.{k}": v for k, v in autoencoder.state_dict().items()}
        latents = encoded(autoencoder, recipe, data)
    network = recipe.build(classes).to(device)
    earlier = begin_with(network, recipe, start) if start else {"steps": 0, "seconds": 0}
    compiled, loss_fn = recipe.training["compiled"], loss_of
    if gpu and compiled == "blocks":
        for block in network.blocks:
            block.compile()
    elif gpu and compiled:
        loss_fn = torch.compile(loss_of)

    def loss() -> Tensor:
        pick = torch.randint(len(data.labels), (batch,), device=device)
        if latents is None:
            x0, length = recipe.modality.batch(data, pick)
        else:
            x0, length = (latents[torch.randint(2, (batch,), device=device), pick],), None
        dropped = torch.rand(batch, device=device) < recipe.training["label_drop"]
        label = torch.where(dropped, classes, data.labels[pick])
        shift = recipe.training.get("shift", 1.0)
        return loss_fn(network, recipe.prediction, x0, label, length, shift)

    clock = Clock(began.seconds - began.elapsed(), max_steps)
    average, steps, last = optimise(network, loss, recipe, clock, gpu, recipe.name)
    weights |= average.state_dict()
    facts = dict(
        name=recipe.name,
        classes=data.classes,
        data=data.facts,
        parameters=sum(v.numel() for v in weights.values()),
        steps=steps + earlier["steps"],
        batch=batch,
        seconds=round(began.elapsed()) + earlier["seconds"],
        last_loss=None if math.isnan(last) else last,
        torch=torch.__version__,
        device=torch.cuda.get_device_name() if gpu else "cpu",
    )
    return weights, facts


def begin_with(network: nn.Module, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Puts earlier weights into the network; the facts of the training that made them."""
    if recipe.latent is not None:
        raise ValueError(f"{recipe.name} trains its autoencoder anew: it cannot start from weights")
    kept = load(recipe.name, "cpu", folder)
    network.load_state_dict(kept.network.state_dict())
    return kept.facts


def main() -> None:
    parser = maker("Trains one model of the zoo.", RECIPES)
    parser.add_argument("--minutes", type=float, help="default: the recipe's own")
    parser.add_argument("--start", type=Path, help="a folder with its weights, to go on from them")
    args = parser.parse_args()
    recipe = RECIPES[args.name]
    minutes = args.minutes or recipe.training["minutes"]
    weights, facts = train(recipe, args.data, minutes, args.device, start=args.start)
    save(weights, facts, args.out)
    print(json.dumps({k: v for k, v in facts.items() if k not in ("classes", "data")}))


if __name__ == "__main__":
    main()
