"""What was asked of a run, kept in its folder as asked.json: resume goes on with it, and a report
reads the cells by it, on any machine.
"""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from .cases.checkpoint import Checkpoint
from .cases.zoo import Zoo
from .lab import Lab
from .store import put
from .suite import CheckpointSuite, Suite, read

FILE = "asked.json"
PATHS = ("weights", "checkpoint", "prompts", "clip", "clap", "summary")  # may be


@dataclass(frozen=True)
class Asked:
    """The arguments of run(), and what they came to.

    source     the suite as it is written, before the changes
    summary    a file that gets the tables, too
    options    of its lab: device, weights, checkpoint, …
    within     where paths that are not absolute begin
    made       what else than the suite decides what a checkpoint's cell is
    taken      the prompts that are compared
    """

    name: str
    source: dict[str, Any]
    change: dict[str, Any] = field(default_factory=dict)
    summary: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    within: str = field(default_factory=os.getcwd)
    made: dict[str, Any] = field(default_factory=dict)
    taken: list[dict[str, Any]] = field(default_factory=list)
    torch: str = torch.__version__

    def suite(self) -> Suite:
        return read(self.source, self.change, self.name)

    def lab(self, folder: Path) -> Lab:
        """What runs the suite; an option that it would ignore is refused."""
        suite = self.suite()
        kinds: list[Any] = [Zoo, Checkpoint]
        kind, other = kinds[:: -1 if isinstance(suite, CheckpointSuite) else 1]
        own, others = (set(signature(each).parameters) for each in (kind, other))
        for name in others - own:
            what = "suites on the models of the zoo" if other is Zoo else "the suites of the paper"
            if self.options.get(name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} is for {what} (geoshrink bench list)")
        return kind(suite, folder, **{k: self.found(k, v) for k, v in self.options.items()})

    def check_folder(self, folder: Path) -> None:
        """A folder belongs to one suite; what is damaged belongs to none."""
        try:
            there = Asked.load(folder).suite().name
        except (FileNotFoundError, ValueError):
            return
        if there != self.suite().name:
            raise ValueError(
                f"{folder} holds the suite {there!r}, not {self.suite().name!r}: name another "
                "folder with --out"
            )

    def found(self, name: str, value: Any) -> Any:
        """A path as it was given, where that is meant from here."""
        if name in PATHS and isinstance(value, str) and self.within != os.getcwd():
            return str(Path(self.within) / value)
        return value

    def save(self, folder: Path, **more: Any) -> Asked:
        """With what it came to."""
        kept = replace(self, **more, torch=torch.__version__)
        put(folder / FILE, json.dumps(asdict(kept), ensure_ascii=False, indent=1).encode())
        return kept

    @classmethod
    def load(cls, folder: str | Path) -> Asked:
        """Of a folder; the first ones have a suite.json (the zoo) or a paper.json."""
        if not Path(folder).is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
        names = [
            name for name in (FILE, "paper.json", "suite.json") if (Path(folder) / name).is_file()
        ]
        if not names:
            raise FileNotFoundError(f"{folder} is no folder of a bench: it has no {FILE}")
        path = Path(folder) / names[0]
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise ValueError(f"it holds {content!r}, no suite")
            if path.name == "suite.json":
                return cls(str(content.get("name", "")), content)
            if path.name == "paper.json":
                flat = ("checkpoint", "prompts", "device", "dtype", "clip", "clap", "keep")
                options = {name: content.pop(name, None) for name in flat}
                content["options"] = {name: v for name, v in options.items() if v not in (None, "")}
            return cls(**content)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is damaged ({error}): run the suite again") from None

    def command(self, out: str | Path) -> str:
        """The line that makes the folder."""
        words = ["geoshrink", "bench", "run", self.name or "SUITE"]
        given = {k: v if isinstance(v, (str, bool)) else "FILE" for k, v in self.options.items()}
        given |= {"change": json.dumps(self.change, ensure_ascii=False)} if self.change else {}
        for name, value in {**given, "out": str(out)}.items():
            if value and name != "keep":
                words += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
        return shlex.join(words)
