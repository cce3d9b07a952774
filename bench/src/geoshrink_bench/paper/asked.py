"""What was asked of a run, kept in its folder as paper.json: resume goes on with it, and a report
reads the cells by it, on any machine.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ..store import put
from . import prompts as prompting
from .cells import Cells
from .hosts import HOSTS
from .prompts import Prompt
from .suite import Suite, read

FILE = "paper.json"


@dataclass(frozen=True)
class Asked:
    """The arguments of run(), and what they came to.

    source     the suite as it is written, before the changes
    within     where paths that are not absolute begin
    made       weights, dtype, device and version: with the suite, what names a cell
    taken      the prompts that are compared
    """

    name: str
    source: dict[str, Any]
    checkpoint: str = ""
    prompts: str | list[str] | None = None
    change: dict[str, Any] = field(default_factory=dict)
    device: str | None = None
    dtype: str | None = None
    clip: str | None = None
    clap: str | None = None
    keep: bool = True
    within: str = field(default_factory=os.getcwd)
    made: dict[str, Any] = field(default_factory=dict)
    taken: list[dict[str, Any]] = field(default_factory=list)
    torch: str = torch.__version__

    def suite(self) -> Suite:
        return read(self.source, self.change, self.name)

    def path(self, given: str | None) -> Path | None:
        """As it was given, where that is meant from here."""
        if not given or self.within == os.getcwd():
            return Path(given) if given else None
        return Path(self.within) / given

    def everything(self) -> list[Prompt]:
        """All prompts there are."""
        found = self.path(self.prompts) if isinstance(self.prompts, str) else self.prompts
        if found is None:
            suite = self.suite()
            raise ValueError(f"the suite needs prompts: {suite.count} of {suite.source}")
        return prompting.read(found)

    def cells(self, folder: str | Path) -> Cells:
        prompts = [Prompt(**each) for each in self.taken]
        return Cells(self.suite(), folder, prompts, self.made)

    def save(self, folder: Path, cells: Cells) -> Asked:
        """With what it came to."""
        pictures = HOSTS[cells.suite.host].pictures
        taken = [
            asdict(replace(prompt, known=prompt.picture if pictures else None))
            for prompt in cells.prompts
        ]
        kept = replace(self, made=cells.made, taken=taken, torch=torch.__version__)
        put(folder / FILE, json.dumps(asdict(kept), ensure_ascii=False, indent=1).encode())
        return kept

    def command(self, out: str | Path) -> str:
        """The line that makes the folder."""
        file = self.prompts if isinstance(self.prompts, str) else "FILE"
        change = json.dumps(self.change, ensure_ascii=False) if self.change else None
        options = dict(checkpoint=self.checkpoint, prompts=file, change=change)
        options |= dict(device=self.device, dtype=self.dtype, clip=self.clip, clap=self.clap)
        options |= dict(out=str(out))
        words = [word for name, value in options.items() if value for word in (f"--{name}", value)]
        return shlex.join(["geoshrink", "bench", "run", self.name or "SUITE", *words])

    def where(self) -> str:
        """On what the numbers were made, and what differs from the suite."""
        text = f"On {self.made['on']}, {self.made['dtype']}, torch {self.torch}."
        suite = self.suite()
        if suite.dtype and suite.dtype != self.made["dtype"]:
            text += f" The suite's own precision is {suite.dtype}."
        if self.change:
            text += f" Changed from the suite's protocol: {', '.join(self.change)}."
        return text


def is_folder(folder: str | Path) -> bool:
    """Whether a suite of the paper was begun there."""
    return (Path(folder) / FILE).is_file()


def check_folder(folder: Path, suite: Suite) -> None:
    """A folder belongs to one suite; what is damaged belongs to none."""
    if (folder / "suite.json").is_file():
        raise ValueError(f"{folder} holds a suite of the zoo: name another folder with --out")
    try:
        there = load(folder).suite().title if is_folder(folder) else suite.title
    except ValueError:
        return
    if there != suite.title:
        raise ValueError(
            f"{folder} holds the suite {there!r}, not {suite.title!r}: name another folder with "
            "--out"
        )


def load(folder: str | Path) -> Asked:
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{folder} is no folder of a suite of the paper: it has no {FILE}")
    try:
        return Asked(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): run the suite again") from None
