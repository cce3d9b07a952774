"""Small classifiers of the zoo's data, which judge whether a sample is what was asked for.

    python -m geoshrink_bench.zoo.classifier fruit --data fruits64.npz --out zoo

Every tenth example is held out. Where the data are frames of one film, as in fruit, neighbours of
a held-out picture have been seen: the held-out rate says what a good sample can reach, not how
well the classifier generalises.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .files import maker, read, save
from .modalities import Clips, Data, Modality, Pictures
from .modalities.audiovisual import WrittenDigits
from .modalities.sound import SpokenDigits

HELD_OUT = 10  # every tenth example


class Classifier(nn.Module):
    """features(values) of a convolutional trunk, averaged over place and view; logits from them.

    values are in natural units, as model.values(x) gives them; a view is a frame, a picture or a
    spectrogram, as the modality says.
    """

    def __init__(
        self, modality: Modality, classes: list[str], channels: int, widths: tuple[int, ...]
    ):
        super().__init__()
        self.modality, self.classes = modality, classes
        self.facts: dict[str, Any] = {}
        layers: list[nn.Module] = []
        for before, width in zip((channels, *widths), widths):
            kernel = 5 if before == channels else 3
            layers.append(nn.Conv2d(before, width, kernel, 2, kernel // 2, bias=False))
            layers += [nn.BatchNorm2d(width), nn.ReLU()]
        self.trunk = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], len(classes))

    @property
    def held_out_accuracy(self) -> float:
        return self.facts["held_out_accuracy"]

    def features(self, values: Tensor) -> Tensor:
        views = self.modality.views(values)
        seen = self.trunk(views.flatten(0, 1)).mean((2, 3))
        return seen.unflatten(0, views.shape[:2]).mean(1)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.features(values))

    @torch.no_grad()
    def predict(self, values: Tensor) -> list[str]:
        """The name of the likeliest class of each."""
        return [self.classes[i] for i in self(values).argmax(1).tolist()]


@dataclass(frozen=True)
class Task:
    modality: Modality
    channels: int
    widths: tuple[int, ...]
    epochs: int
    noise: float  # of training values, up to
    shift: int = 0  # of training pictures, in pixels up to
    frames: int | None = None  # of a training clip that are looked at
    batch: int = 64
    rate: float = 3e-3


TASKS = {
    "fruit": Task(Pictures(), 3, (24, 48, 96, 192), epochs=6, noise=0.05, shift=3),
    "fruit-video": Task(Clips(), 3, (24, 48, 96, 192), epochs=24, noise=0.05, shift=2, frames=4),
    "digits-audio": Task(SpokenDigits(), 1, (32, 64, 96, 128, 128), epochs=12, noise=0.02),
    "digits-picture": Task(WrittenDigits(), 1, (32, 64), epochs=30, noise=0.1),
}


def values_of(task: Task, data: Data, pick: Tensor, frames: int | None = None) -> Tensor:
    """Examples as a model's samples come: through what the network sees, in natural units.

    frames   of a clip that are looked at, drawn anew each time
    """
    stored = data.parts[0][pick]
    if frames is not None:
        stored = stored[:, :, torch.randperm(stored.shape[2])[:frames]]
    some = Data((stored,), data.labels[pick], data.classes, data.facts)
    (x,), _ = task.modality.batch(some, torch.arange(len(pick), device=pick.device))
    return task.modality.values(x, data.facts)


def disturbed(values: Tensor, task: Task) -> Tensor:
    """Shifted and noisy, so that the small faults of a sample do not decide."""
    if task.shift:
        dy, dx = torch.randint(-task.shift, task.shift + 1, (2,)).tolist()
        values = values.roll((dy, dx), (-2, -1))
    level = torch.rand(len(values), *[1] * (values.ndim - 1), device=values.device)
    return values + task.noise * level * torch.randn_like(values)


def split(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(what is learnt from, what is held out)."""
    numbers = torch.arange(count, device=device)
    return numbers[numbers % HELD_OUT != 0], numbers[::HELD_OUT]


@torch.no_grad()
def accuracy(model: Classifier, task: Task, data: Data, pick: Tensor) -> float:
    right = 0
    for part in pick.split(64):
        right += int((model(values_of(task, data, part)).argmax(1) == data.labels[part]).sum())
    return right / len(pick)


def train(task: Task, data: Data, epochs: int | None = None, seed: int = 0) -> Classifier:
    """A classifier with the accuracy it has, rounded to fp16, on what was held out."""
    began = time.monotonic()
    torch.manual_seed(seed)
    device = data.labels.device
    gpu = device.type == "cuda"
    seen, held_out = split(len(data.labels), device)
    model = Classifier(task.modality, data.classes, task.channels, task.widths).to(device)
    epochs = task.epochs if epochs is None else epochs
    steps = epochs * -(-len(seen) // task.batch)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, task.rate, total_steps=steps)
    for epoch in range(epochs):
        total = torch.zeros((), device=device)
        for pick in seen[torch.randperm(len(seen), device=device)].split(task.batch):
            values = disturbed(values_of(task, data, pick, task.frames), task)
            with torch.autocast(device.type, torch.bfloat16, enabled=gpu):
                loss = F.cross_entropy(model(values), data.labels[pick], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += len(pick) * loss.detach()
        line = f"epoch {epoch + 1:3d}  {time.monotonic() - began:5.0f} s"
        print(f"{line}  loss {float(total) / len(seen):.4f}", flush=True)
    model = model.half().float().eval().requires_grad_(False)
    model.facts = dict(
        classes=data.classes,
        channels=task.channels,
        widths=task.widths,
        held_out_accuracy=accuracy(model, task, data, held_out),
        held_out=len(held_out),
        learnt_from=len(seen),
        epochs=epochs,
        seconds=round(time.monotonic() - began),
        torch=torch.__version__,
        device=torch.cuda.get_device_name() if gpu else "cpu",
    )
    return model


def save_classifier(model: Classifier, name: str, folder: Path) -> None:
    save(model.state_dict(), dict(name=f"{name}-classifier", **model.facts), folder)


def load_classifier(
    name: str, folder: str | Path | None = None, device: str | torch.device = "cpu"
) -> Classifier:
    """The classifier of TASKS[name], its weights checked against their recorded hash."""
    tensors, facts, _ = read(f"{name}-classifier", folder)
    shape = facts["channels"], tuple(facts["widths"])
    model = Classifier(TASKS[name].modality, facts["classes"], *shape)
    model.load_state_dict(tensors)
    model.facts = facts
    return model.float().to(device).eval().requires_grad_(False)


def main() -> None:
    parser = maker("Trains one classifier of the zoo's data.", TASKS)
    parser.add_argument("--epochs", type=int, help="default: the task's own")
    args = parser.parse_args()
    task = TASKS[args.name]
    model = train(task, task.modality.read(args.data).to(args.device), args.epochs)
    save_classifier(model, args.name, args.out)
    print(json.dumps({k: v for k, v in model.facts.items() if k != "classes"}))


if __name__ == "__main__":
    main()
