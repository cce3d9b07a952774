"""A model of the paper: loaded from a folder once, sampled many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from geoshrink.compare.pipeline import Loaded
from geoshrink.hosts import host_of
from geoshrink.hosts.hooks import entrance

from ..methods.base import Outcome
from ..samples import Sample
from .loop import Loop
from .prompts import Prompt


class Host:
    """load(folder) once, sample(prompt, seed, steps) many times.

    How a host is called and what it returns is geoshrink.hosts' to know; here stands what a run
    of the paper needs besides.

    kind        the class of what is sampled, which geoshrink.accelerate() takes
    files       of a checkpoint's folder
    precision   the only one that it runs in, where it cannot be chosen
    pictures    whether a prompt is a picture
    whole       whether what ends a step ends the whole loop: its stages are those asked for
    blocks      whether the network is a transformer of diffusers, so that caches can act inside
    inner       where the network is in what is sampled
    step        (where, method) of what ends a step
    beyond      so many steps of a call are no evaluation
    """

    kind = ""
    files: tuple[str, ...] = ()
    precision: str | None = None
    pictures = whole = blocks = False
    inner, step, beyond = "transformer", ("scheduler", "step"), 0

    def __init__(self) -> None:
        self.pipe: Any = None
        self.device = torch.device("cpu")

    def check(self, folder: str | Path) -> Path:
        """The folder, if it holds a checkpoint of this class."""
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"there is no folder {str(folder)!r} with the checkpoint")
        missing = [name for name in self.files if not (Path(folder) / name).exists()]
        if missing:
            raise ValueError(f"{folder} holds no {missing[0]}: it is no checkpoint of {self.kind}")
        return Path(folder)

    def check_prompts(self, prompts: Sequence[Prompt]) -> None:
        for prompt in prompts if self.pictures else ():
            if not Path(prompt.given).is_file():
                raise ValueError(
                    f"{self.kind} is given pictures, and {prompt.given!r} is no file: give a "
                    "folder of pictures, or a file of their paths"
                )

    def load(self, folder: str | Path, device: str, dtype: str, offload: str | None = None) -> None:
        path = self.check(folder).resolve()
        self.device = torch.device(device)
        self.pipe = self.build(path, dtype, offload)

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        """What a checked folder holds, on the device."""
        raise NotImplementedError

    def enter(self) -> tuple[Any, str]:
        """The network, and the method by which it is called."""
        return self.network(), entrance(self.network())

    def network(self) -> Any:
        return attrgetter(self.inner)(self.pipe)

    def ends(self) -> list[tuple[Any, str]]:
        """(owner, method) of everything whose return ends a step."""
        where, method = self.step
        return [(attrgetter(where)(self.pipe), method)]

    def steps_for(self, evaluations: int) -> int:
        """The argument of a call that makes so many evaluations."""
        return evaluations + self.beyond

    def stages(self, steps: int) -> int:
        """The evaluations that a call with this argument makes."""
        return steps - self.beyond

    def sample(
        self,
        prompt: str,
        seed: int,
        steps: int,
        call: Mapping[str, Any],
        opened: Callable[[], Any] = lambda: None,
        within: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Outcome:
        """One run from the seed's noise, and what its loop took.

        opened    called as each stage begins
        within    what is attached to the model for this run
        """
        torch.manual_seed(seed)  # some models draw from the global generator
        with Loop(self.enter(), self.ends(), self.device, opened) as loop, within():
            output = self.call(prompt, seed, steps, **call)
        stages = self.stages(steps) if self.whole else loop.stages
        return Outcome(
            self.read(output),
            tuple(range(stages)),
            steps=stages,
            forwards=loop.forwards,
            seconds=loop.seconds,
        )

    def call(self, prompt: str, seed: int, steps: int, **arguments: Any) -> Any:
        return self.known(arguments)(prompt, steps, seed)

    def known(self, arguments: Mapping[str, Any]) -> Loaded:
        """The pipeline as geoshrink knows it, with the arguments of every call."""
        way = host_of(self.pipe)
        assert way is not None
        return Loaded(self.pipe, way, arguments, ())

    def read(self, output: Any) -> Sample:
        """The one sample, decoded."""
        return Sample.of(self.known({}).show(output))
