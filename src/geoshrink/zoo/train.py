"""Trains one model of the zoo: python -m geoshrink.zoo.train fruit --data fruits64.npz --minutes 9

Rectified flow with logit-normal times (Esser et al., 2024), AdamW, an exponential moving average of
the weights, bf16 autocast and torch.compile on a GPU. Writes NAME.safetensors (fp16) and NAME.json.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from .network import DiT
from .recipes import RECIPES, Recipe


def flow_loss(network: nn.Module, x0: Tensor, label: Tensor) -> Tensor:
    """E‖V(x_σ, σ, c) − (ε − x₀)‖² with σ = sigmoid(N(0, 1))."""
    sigma = torch.randn(len(x0), device=x0.device).sigmoid()
    noise = torch.randn_like(x0)
    s = sigma.reshape(-1, *[1] * (x0.ndim - 1))
    velocity = network((1 - s) * x0 + s * noise, sigma, label)
    return (velocity.float() - (noise - x0)).square().mean()


def train(
    recipe: Recipe,
    data: Path,
    minutes: float,
    device: str,
    max_steps: int | None = None,
    seed: int = 0,
) -> tuple[DiT, dict]:
    """Trains until `minutes` have passed since the call (or for max_steps); returns the averaged
    network.
    """
    began = time.monotonic()
    torch.manual_seed(seed)
    pictures, labels, classes = recipe.read(data)
    pictures, labels = pictures.to(device), labels.to(device)
    network = DiT(classes=len(classes), **recipe.network).to(device)
    average = copy.deepcopy(network).requires_grad_(False)
    t = recipe.training
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=t["rate"], betas=(0.9, 0.95), weight_decay=0.01
    )
    gpu = device.startswith("cuda")
    loss_of = torch.compile(flow_loss) if gpu else flow_loss
    batch, step, running = int(t["batch"]), 0, float("nan")
    budget = 60 * minutes

    while True:
        elapsed = time.monotonic() - began
        done = max(elapsed / budget, step / max_steps if max_steps else 0.0)
        if done >= 1:
            break
        rate = t["rate"] * min(1, (step + 1) / 500) * (0.5 + 0.5 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        pick = torch.randint(len(labels), (batch,), device=device)
        x0 = recipe.normalise(pictures[pick])
        for axis in recipe.flips:
            mirrored = torch.rand(batch, device=device) < 0.5
            x0 = torch.where(mirrored.reshape(-1, *[1] * (x0.ndim - 1)), x0.flip(axis), x0)
        dropped = torch.rand(batch, device=device) < t["label_drop"]
        label = torch.where(dropped, len(classes), labels[pick])
        with torch.autocast(device.split(":")[0], torch.bfloat16, enabled=gpu):
            loss = loss_of(network, x0, label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        decay = min(t["ema"], (1 + step) / (10 + step))
        for mean, now in zip(average.parameters(), network.parameters()):
            mean.lerp_(now.detach(), 1 - decay)
        step += 1
        if step % 500 == 0:
            running = loss.item()
            print(f"step {step:6d}  {elapsed:5.0f} s  loss {running:.4f}", flush=True)
    facts = dict(
        name=recipe.name,
        classes=classes,
        parameters=sum(p.numel() for p in network.parameters()),
        steps=step,
        batch=batch,
        seconds=round(time.monotonic() - began),
        last_loss=None if math.isnan(running) else running,
        torch=torch.__version__,
        device=torch.cuda.get_device_name() if gpu else "cpu",
    )
    return average, facts


def save(network: DiT, facts: dict, folder: Path) -> None:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = folder / f"{facts['name']}.safetensors"
    save_file({k: v.half().contiguous().cpu() for k, v in network.state_dict().items()}, weights)
    facts = dict(facts, sha256=hashlib.sha256(weights.read_bytes()).hexdigest())
    (folder / f"{facts['name']}.json").write_text(json.dumps(facts, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains one model of the zoo.")
    parser.add_argument("name", choices=sorted(RECIPES))
    parser.add_argument("--data", type=Path, required=True, help="the .npz of the recipe's data")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--out", type=Path, default=Path("zoo-out"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    network, facts = train(RECIPES[args.name], args.data, args.minutes, args.device)
    save(network, facts, args.out)
    print(json.dumps({k: v for k, v in facts.items() if k != "classes"}))


if __name__ == "__main__":
    main()
