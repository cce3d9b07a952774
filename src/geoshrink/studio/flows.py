"""A flow model with classes, as distributions bring them by the entry points geoshrink.models.

What such an object must have: profile(…), as `geoshrink plan` asks, and for the studio also
`model` (classes, judged_at, velocity, noise, grid, made), fitted(grid, guidance) and `python`, the
lines that load the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..compare.kinds import Made
from ..compare.outcomes import DIRECT, FULL, PLANNED
from ..correctable import plan_with
from ..grid import Grid
from ..outputs import flatten
from ..plan import Plan
from ..planning import Profile, profile
from ..sampling import sample
from .lane import Lane
from .model import Controls, Ran
from .setting import Setting, plain

SEED = 10_000  # of the noise that a profile is made on: not that of the pictures


class Flow:
    together = True

    def __init__(self, name: str, planned: Any):
        self.name, self.planned, self.model = name, planned, planned.model
        self.warm = False
        self.about = f"{len(self.model.classes)} classes"

    @property
    def controls(self) -> Controls:
        at, classes = self.model.judged_at, tuple(self.model.classes)
        shift = at["shift"] if isinstance(at["shift"], (int, float)) else None
        usual = Setting(
            self.name,
            classes[0],
            steps=at["steps"],
            guidance=at["guidance"],
            shift=shift,
            budget=min(at["steps"], max(8, at["steps"] // 5)),
        )
        return Controls(usual, classes, shift=shift is not None)

    def check(self, setting: Setting) -> None:
        self.model.labels([setting.prompt])

    def full(self, setting: Setting, lane: Lane) -> Ran:
        return self.run(FULL, setting, self.grid(setting), None, lane)

    def fast(self, setting: Setting, profile: Profile | None, lane: Lane) -> Ran:
        grid, plan = self.grid(setting), None
        if setting.form == DIRECT:
            grid = self.grid(setting, setting.budget)
        elif setting.form == PLANNED:
            assert profile is not None
            plan = profile.plan(**setting.amount())
        else:
            options = setting.options()
            plan = plan_with("euler", grid, options.pop("budget", None), options)
        return self.run(setting.label, setting, grid, plan, lane)

    def run(self, label: str, setting: Setting, grid: Grid, plan: Plan | None, lane: Lane) -> Ran:
        velocity = self.watched([setting.prompt], setting, grid, lane, shown=True)
        noise = self.model.noise(1, setting.seed)
        self.warm_up(setting, noise, grid, lane)
        began = time.perf_counter()
        given: dict[str, Any] = {"sigmas": grid} if plan is None else {"plan": plan}
        x, report = sample(velocity, noise, **given, with_report=True)
        made = self.model.made(x)
        seconds = time.perf_counter() - began - lane.waited
        asked = tuple(lane.asked)
        return Ran(label, made, x, lane.calls, seconds, grid.steps, asked, report, plan)

    def warm_up(self, setting: Setting, noise: Any, grid: Grid, lane: Lane) -> None:
        """A call that is not counted, once: the first is slower."""
        with lane.turn():
            if not self.warm:
                sigmas = [track.sigmas[0] for track in grid.tracks]
                sigma = sigmas[0] if len(sigmas) == 1 else tuple(sigmas)
                self.model.velocity([setting.prompt], setting.guidance)(noise, sigma)
            self.warm = True
        lane.waited = 0.0

    def profile(self, setting: Setting, samples: int, lane: Lane) -> Profile:
        classes = self.model.classes
        labels = [classes[i * len(classes) // samples] for i in range(samples)]
        grid = self.grid(setting)
        return profile(
            self.watched(labels, setting, grid, lane),
            self.model.noise(samples, seed=SEED),
            grid,
            model=self.name,
            guidance=setting.guidance,
            quiet=True,
        )

    def shipped(self, setting: Setting) -> Profile | None:
        return self.planned.fitted(self.grid(setting), setting.guidance)

    def watched(
        self, labels: list[str], setting: Setting, grid: Grid, lane: Lane, shown: bool = False
    ) -> Callable[[Any, Any], Any]:
        """The velocity, which tells the lane where it is asked and what it says of the data."""
        interval = self.model.judged_at.get("interval")
        velocity = self.model.velocity(labels, setting.guidance, interval=interval)
        lead = grid.tracks[0]
        stages = {sigma: n for n, sigma in reversed([*enumerate(lead.sigmas[:-1])])}

        def watched(x: Any, sigma: Any) -> Any:
            with lane.turn(), torch.no_grad():
                v = velocity(x, sigma)
            first = sigma[0] if isinstance(sigma, (tuple, list)) else sigma
            n = stages.get(float(first), 0)
            lane.called(n, self.preview(grid, n, x, v) if shown else None)
            return v

        return watched

    def preview(self, grid: Grid, n: int, x: Any, v: Any) -> Callable[[], Made]:
        """What the output says about the data; made when somebody looks."""
        (states, unflatten), outputs = flatten(x), flatten(v)[0]

        def made() -> Made:
            data = []
            for slot, (state, output) in enumerate(zip(states, outputs)):
                a, b = grid.track(slot).data_map(n)
                data.append(a * state + b * output)
            return self.model.made(unflatten(data))

        return made

    def grid(self, setting: Setting, steps: int | None = None) -> Grid:
        interval = self.model.judged_at.get("interval")
        return self.model.grid(steps or setting.steps, setting.shift, interval)

    def python(self, setting: Setting, plan: Path | None) -> str:
        at = self.model.judged_at
        words = [str(setting.steps)] + [plain(setting.shift)] * (setting.shift is not None)
        asked = [repr([setting.prompt]), plain(setting.guidance)]
        if interval := at.get("interval"):
            words.append(f"interval={interval}")
            asked.append(f"interval={interval}")
        if setting.form == DIRECT:
            words[0] = str(setting.budget)
        amount = {} if setting.form == DIRECT else setting.options()
        if setting.form == PLANNED:
            amount = {"plan": str(plan)}
        grid = "" if "plan" in amount else f"\n    model.grid({', '.join(words)}),"
        told = "".join(f"\n    {name}={value!r}," for name, value in amount.items())
        return (
            f"import geoshrink\n{self.planned.python}\n\n"
            f"x0 = geoshrink.sample(\n    model.velocity({', '.join(asked)}),\n"
            f"    model.noise(1, seed={setting.seed}),{grid}{told}\n)\n"
            "sample = model.decode(x0)[0]\n"
        )
