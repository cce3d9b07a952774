"""A pipeline in the studio: a folder that diffusers saved, or a builder, as for `compare`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..compare.bench import Watch, measure
from ..compare.inputs import Settings
from ..compare.outcomes import DIRECT, FULL, PLANNED
from ..compare.pipeline import Call, loaded, opened
from ..hosts import Host, diffusers, host_of
from ..hosts.host import STEPS, arguments_of, call_pipeline
from ..hosts.profiling import profile_pipeline
from ..hosts.recording import quiet_host
from ..planning import Profile
from .lane import Lane
from .model import Controls, Ran
from .previews import Colours
from .setting import Setting, plain

GIVEN = ("prompt_embeds", "encoder_hidden_states")  # in place of a prompt
PROMPT = "a lighthouse at dawn"
PROFILED = 1000  # the seed of a profile's first picture


class Pipeline:
    together = False  # two runs would step one scheduler

    def __init__(self, name: str, settings: Settings):
        self.name, self.source = name, settings.model
        host, call = opened(settings)
        way = host_of(host) or diffusers.HOST
        self.built: Any = call  # what a builder gave along: arguments, or a function
        self.prompted = takes_prompt(way, host, call)
        own = replace(settings, prompts=(PROMPT,) if self.prompted else ())
        self.loaded = loaded(host, call, own)
        self.about, self.colours = self.loaded.kind, Colours()
        self.takes = self.loaded.way.takes(host)
        self.shift = shift_of(host)  # as it was opened: a run may set another for a while

    @property
    def host(self) -> Any:
        return self.loaded.host

    @property
    def controls(self) -> Controls:
        steps = self.default(STEPS, 50)
        usual = Setting(
            self.name,
            PROMPT if self.prompted else "",
            steps=steps,
            guidance=self.default("guidance_scale", None),
            shift=self.shift,
            budget=min(steps, max(8, steps // 5)),
        )
        has = "guidance_scale" in self.takes, self.shift is not None
        return Controls(usual, (), self.prompted, "negative_prompt" in self.takes, *has)

    def default(self, name: str, otherwise: Any) -> Any:
        """What a call without this argument has."""
        if self.loaded.call.get(name) is not None:
            return self.loaded.call[name]
        parameters = inspect.signature(type(self.host).__call__).parameters
        found = parameters[name].default if name in parameters else None
        return found if isinstance(found, (int, float)) else otherwise

    def check(self, setting: Setting) -> None:
        if self.prompted and not setting.prompt.strip():
            raise ValueError(f"{self.loaded.kind} needs a prompt: write one")

    def full(self, setting: Setting, lane: Lane) -> Ran:
        return self.run(FULL, setting, setting.steps, None, lane)

    def fast(self, setting: Setting, profile: Profile | None, lane: Lane) -> Ran:
        if setting.form == DIRECT:
            steps = setting.budget + self.loaded.way.beyond
            return self.run(setting.label, setting, steps, None, lane)
        options = setting.options()
        if setting.form == PLANNED:
            assert profile is not None
            options = {"plan": profile.plan(**setting.amount())}
        return self.run(setting.label, setting, setting.steps, options, lane)

    def run(self, label: str, setting: Setting, steps: int, options: Any, lane: Lane) -> Ran:
        stage = 0

        def stepped(state: Any) -> None:
            nonlocal stage
            stage += 1
            kept = None if state is None else state.detach().clone()
            lane.shows(lambda: self.colours.seen(kept))
            lane.check()

        def tick(calls: int) -> None:
            for _ in range(calls):
                lane.called(min(stage, steps - 1))

        lane.check()
        with self.shifted(setting), quiet_host(self.host):
            ready = replace(self.loaded, call=self.arguments(setting))
            prompt = setting.prompt if self.prompted else None
            told = prompt, steps, setting.seed, options, tick, stepped
            output, cost, end = measure(ready, *told)
            made = self.loaded.show(output)
        self.colours.learn(end, made)
        report = cost.reports[-1] if cost.reports else None
        asked = tuple(lane.asked)
        return Ran(label, made, end, cost.calls, cost.seconds, steps, asked, report, cost.plan)

    def arguments(self, setting: Setting) -> dict[str, Any]:
        given = {"guidance_scale": setting.guidance, "negative_prompt": setting.negative or None}
        own = {k: v for k, v in given.items() if v is not None and k in self.takes}
        return {**self.loaded.call, **own}

    @contextmanager
    def shifted(self, setting: Setting) -> Iterator[None]:
        """The scheduler's shift as the setting has it, and back."""
        before = self.shift
        if before is None or setting.shift in (None, before):
            yield
            return
        self.host.scheduler.set_shift(setting.shift)
        try:
            yield
        finally:
            self.host.scheduler.set_shift(before)

    def profile(self, setting: Setting, samples: int, lane: Lane) -> Profile:
        if self.loaded.way.call is not call_pipeline:
            raise ValueError(
                f"{self.loaded.kind} is not called as a diffusers pipeline is, and cannot be "
                "planned here: use geoshrink.profile(velocity, noise, sigmas)"
            )

        def tick(calls: int) -> None:
            lane.called(0)

        prompt = self.loaded.way.prompt_of(self.host)
        call: dict[str, Any] = {prompt: setting.prompt} if self.prompted else {}
        with self.shifted(setting), Watch(self.loaded.denoisers, tick):
            return profile_pipeline(
                self.host,
                [call] * samples,
                num_inference_steps=setting.steps,
                seed=PROFILED,
                quiet=True,
                **self.arguments(setting),
            )

    def shipped(self, setting: Setting) -> Profile | None:
        return None

    def python(self, setting: Setting, plan: Path | None) -> str:
        amount = {"plan": str(plan)} if setting.form == PLANNED else setting.options()
        given = ", ".join(f"{name}={value!r}" for name, value in amount.items())
        lines = [f"geoshrink.accelerate(pipe, {given})"] * (setting.form != DIRECT)
        if self.shift is not None and setting.shift not in (None, self.shift):
            lines.insert(0, f"pipe.scheduler.set_shift({plain(setting.shift)})")
        return "\n".join([*self.loading(), *lines, *self.calling(setting)]) + "\n"

    def loading(self) -> list[str]:
        """Lines that make `pipe`, and `call` where a builder says how it is called."""
        first = ["import geoshrink", "import torch"]
        module, builder, name = self.source.partition(":")
        if builder and not Path(self.source).is_dir():
            lines = [f"pipe, call = {name}()"]
            if not self.built:  # it gave nothing along, or an empty dict
                lines = [f"pipe = {name}()", "pipe = pipe[0] if isinstance(pipe, tuple) else pipe"]
            return [*first, f"from {module} import {name}", "", *lines]
        dtype, device = (getattr(self.host, name, None) for name in ("dtype", "device"))
        words = f"{self.source!r}, torch_dtype={dtype}"
        load = f"pipe = {self.loaded.kind}.from_pretrained({words}).to({str(device)!r})"
        return [*first, f"from diffusers import {self.loaded.kind}", "", load]

    def calling(self, setting: Setting) -> list[str]:
        """Lines that call it."""
        direct = setting.budget + self.loaded.way.beyond
        steps = direct if setting.form == DIRECT else setting.steps
        words = {self.loaded.way.prompt_of(self.host): setting.prompt} if self.prompted else {}
        seeded = f"torch.manual_seed({setting.seed})"  # some draw from the global generator
        if callable(self.built):
            told = {**words, "steps": steps, "seed": setting.seed, **self.arguments(setting)}
            taken = {name: value for name, value in told.items() if name in self.takes}
            words = ", ".join(f"{name}={value!r}" for name, value in taken.items())
            return [seeded, f"sample = call({words})"]
        own = {**words, STEPS: steps, **self.arguments(setting)}
        own = {name: value for name, value in own.items() if value is not self.built.get(name)}
        told = [f"    {name}={value!r}," for name, value in own.items() if name in self.takes]
        if not self.built:
            told = [seeded, "sample = pipe(", *told]
        else:
            told = ["call.update(", *told, ")", seeded, "sample = pipe(", "    **call,"]
        return [*told, f"    generator=torch.Generator().manual_seed({setting.seed}),", ")"]


def shift_of(host: Any) -> float | None:
    """Of a scheduler whose shift can be set."""
    scheduler = getattr(host, "scheduler", None)
    config: Any = getattr(scheduler, "config", {})
    if not hasattr(scheduler, "set_shift") or config.get("use_dynamic_shifting"):
        return None
    return float(getattr(scheduler, "shift", config.get("shift", 1.0)))


def takes_prompt(way: Host, host: Any, call: Call) -> bool:
    """Whether a prompt can be written: where the call has none already."""
    if not isinstance(call, Mapping):
        return "prompt" in arguments_of(host, call)
    name = way.prompt_of(host)
    return name in way.takes(host) and not {name, *GIVEN} & {*call}
