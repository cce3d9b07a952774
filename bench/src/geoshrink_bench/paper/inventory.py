"""What a machine has of the paper: which checkpoints and prompts are there, and how to get the
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from geoshrink.page import Column, Table

from ..suite import read
from . import prompts as prompting
from .cost import cost_of, hours_text
from .hosts import HOSTS
from .tables import PROMPTS, folder_name, repository
from .upstream import Upstream

ENDINGS = (".csv", ".tsv", ".json", ".txt")
READY, MISSING = "ready", "cannot run"


@dataclass(frozen=True)
class Found:
    """A suite, its checkpoint and prompts where they are there, and why it cannot run."""

    name: str
    suite: Any
    checkpoint: Path
    prompts: Path | None
    why: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.why

    @property
    def state(self) -> str:
        return "; ".join(self.why) or READY


def look(name: str, models: Path, prompts: Path) -> Found:
    """What there is for one suite; nothing is loaded."""
    suite = read(name)
    checkpoint, file = models / folder_name(suite), prompts_in(prompts, PROMPTS[name])
    why = [*checkpoint_trouble(suite, checkpoint), *prompts_trouble(name, suite, prompts, file)]
    return Found(name, suite, checkpoint, file, tuple(why))


def prompts_in(folder: Path, stem: str) -> Path | None:
    """The file of prompts, or the folder of pictures."""
    places = [folder / stem, *(folder / f"{stem}{ending}" for ending in ENDINGS)]
    there = [path for path in places if path.is_file() or path.is_dir()]
    return there[0] if there else None


def checkpoint_trouble(suite: Any, folder: Path) -> list[str]:
    host = HOSTS[suite.host]()
    if not folder.is_dir():
        more = f", and {host.source}" if isinstance(host, Upstream) else ""
        converted = suite.checkpoint.partition(", ")[2]
        more = f" ({converted}){more}" if converted else more
        return [f"no {folder}: hf download {repository(suite)} --local-dir {folder}{more}"]
    try:
        host.check(folder)
    except (ImportError, OSError, ValueError) as error:
        return [str(error)]
    return []


def prompts_trouble(name: str, suite: Any, folder: Path, file: Path | None) -> list[str]:
    wanted, host = suite.prompts, HOSTS[suite.host]()
    if file is None:
        kind = "/" if host.pictures else f" ({', '.join(ENDINGS)})"
        what = "a picture an object" if host.pictures else "a prompt a line or row"
        return [f"no {folder / PROMPTS[name]}{kind}: {wanted['source']}, {what}"]
    try:
        host.check_prompts(prompting.taken(prompting.read(file), wanted["count"], wanted["take"]))
    except (OSError, ValueError) as error:
        return [str(error)]
    return []


def listing(found: list[Found], lacking: Mapping[str, str], dry_run: bool = False) -> str:
    """A line for each suite: whether it can run and what it costs; then what is missing, once.

    dry_run   on tiny models, which cost next to nothing
    """
    costs = [(each, cost_of(each.suite)) for each in found]
    ready = [cost for each, cost in costs if each.ready]
    hours = sum(cost.hours or 0.0 for cost in ready)
    unknown = sum(cost.hours is None for cost in ready)
    total = f"{len(ready)} of {len(found) + len(lacking)} suites can run"
    if ready and dry_run:
        total += ": a dry run of them takes minutes on a CPU."
    elif ready:
        total += f": {hours:.1f} GPU-hours on an H200 as the paper has them"
        total += f", and {unknown} suites that were not timed." if unknown else "."
    rows = [
        [each.name, f"{cost.calls:,.0f}", hours_text(cost), READY if each.ready else MISSING]
        for each, cost in costs
    ]
    rows += [[name, None, None, MISSING] for name in lacking]
    names = ("suite", "calls", "GPU-hours", "state")
    if dry_run:
        names, rows = (names[0], names[-1]), [[row[0], row[-1]] for row in rows]
    table = Table("The paper's tables here", [Column(n) for n in names], rows, caption=total)
    why = dict.fromkeys(reason for each in found for reason in each.why)
    why |= {f"{name}: {reason}": None for name, reason in lacking.items()}
    return "\n".join([table.text().rstrip(), *(f"  missing: {reason}" for reason in why)])
