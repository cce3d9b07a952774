"""List, show or forget what exact runs have taught (learn=…).

What geoshrink.Learning(folder=…) keeps: one file for each setting. An id is the beginning of a
file's name.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..grid import Grid
from ..learning import Learned
from ..learning.choosing import EULER, plan_from, why_not
from ..learning.files import ENDING, cache_folder, entries, locked
from ..learning.setting import Setting
from ..page.table import Column, Table
from ..plan import Plan
from ..quality.ladder import LEAST
from ..report import size
from ..terminal import show_table

EXAMPLES = """
geoshrink learned list
geoshrink learned show 3f9a1c22
"""
DIGITS = 8  # of an id, and of a fingerprint
BUDGETS, SHARE = (7, 10, 15, 20), 0.7  # of the stages, at most
#: What is said of a file that cannot be read; why stands under the table.
DAMAGED = "damaged, or of another version"
ABOUT = "stages", "pictures", "size", "dtype", "model", "name, words"
COLUMNS = "id", *ABOUT, "last used", "bytes"
CUT = 48  # letters of the words in the table; show has them all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True)
    every = verbs.add_parser("list", help="the latest used first")
    shown = verbs.add_parser("show", help="all that is known of one, and the anchors it asks for")
    shown.add_argument("id", help="as in the list, or the path of a file")
    shown.add_argument("--json", action="store_true", help="as JSON, without the matrices")
    gone = verbs.add_parser("forget", help="remove files: the next run in the setting is exact")
    gone.add_argument("ids", nargs="*", metavar="id", help="as in the list")
    gone.add_argument("--all", action="store_true", help="everything in the folder")
    for verb, act in ((every, print_list), (shown, show), (gone, forget)):
        verb.add_argument("--folder", type=Path, help="default: the user's cache directory")
        verb.set_defaults(act=act)


def run(args: argparse.Namespace) -> int:
    folder = cache_folder() if args.folder is None else args.folder
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: give the one that Learning(folder=…) has")
    args.act(folder, args)
    return 0


@dataclass(frozen=True)
class Entry:
    """One file: what it holds, or why that is not known."""

    file: Path
    used: float
    bytes: int
    learned: Learned | None = None
    why: str = ""

    @classmethod
    def of(cls, file: Path) -> Entry:
        about = file.stat()
        seen = file, about.st_mtime, about.st_size
        try:
            return cls(*seen, Learned.load(file))
        except (ValueError, OSError) as error:
            return cls(*seen, why=str(error))

    def row(self, name: str) -> list[Any]:
        """As in COLUMNS."""
        about: list[Any] = [*[None] * (len(ABOUT) - 1), DAMAGED]
        if self.learned is not None:
            setting = self.learned.setting
            words = ", ".join(filter(None, (setting.name, setting.words)))
            alone = setting.sizes[0] if len(setting.sizes) == 1 else sizes(setting)
            about = [setting.grid.steps, self.learned.pictures, alone, setting.dtype]
            about += [setting.model[:DIGITS] or None, cut(words) or None]
        return [name, *about, when(self.used), self.bytes]


def print_list(folder: Path, args: argparse.Namespace) -> None:
    found = []
    for file in entries(folder):
        with suppress(FileNotFoundError):  # another process has forgotten it
            found.append(Entry.of(file))
    if not found:
        print(f"nothing was learned in {folder}")
        return
    names = short_ids([entry.file for entry in found])
    rows = [entry.row(names[entry.file]) for entry in found]
    total = size(sum(entry.bytes for entry in found))
    notes = [entry.why for entry in found if entry.why]
    notes.append(f"{folder}: {counted(len(found), 'file')}, {total}")
    show_table(Table("", [Column(c) for c in COLUMNS], rows, "\n".join(notes)))


def show(folder: Path, args: argparse.Namespace) -> None:
    try:
        file = pick(folder, args.id)
    except ValueError:
        file = Path(args.id)
        if not file.is_file():
            raise
    entry = Entry.of(file)
    if entry.learned is None:
        raise ValueError(entry.why)
    print(json.dumps(numbers(entry, entry.learned)) if args.json else told(entry, entry.learned))


def forget(folder: Path, args: argparse.Namespace) -> None:
    if args.all and args.ids:
        raise ValueError(f"give --all or ids ({' '.join(args.ids)}), not both")
    if not args.all and not args.ids:
        raise ValueError(f"say what to forget: --all, or ids of {folder}: {known(folder)}")
    files = entries(folder) if args.all else [pick(folder, name) for name in args.ids]
    if not files:
        print(f"nothing was learned in {folder}")
        return
    with locked(folder):  # nobody adds to a file meanwhile
        for file in dict.fromkeys(files):
            file.unlink(missing_ok=True)
            print(f"forgot {file}")


def stem(file: Path) -> str:
    return file.name.removesuffix(ENDING)


def short_ids(files: Sequence[Path]) -> dict[Path, str]:
    """The beginning of each name, as long as it takes to tell it from the others."""
    names, found = [stem(file) for file in files], {}
    for file, name in zip(files, names):
        lengths = range(min(DIGITS, len(name)), len(name))
        unique = (n for n in lengths if sum(other.startswith(name[:n]) for other in names) == 1)
        found[file] = name[: next(unique, len(name))]
    return found


def pick(folder: Path, given: str) -> Path:
    """The one file of the folder whose name begins so, or is so."""
    files = entries(folder)
    whole = [file for file in files if given in (stem(file), file.name)]
    found = whole or [file for file in files if given and file.name.startswith(given)]
    if len(found) > 1:
        names = ", ".join(map(stem, found))
        raise ValueError(f"{given!r} begins {len(found)} ids: {names}. Give more of one")
    if not found:
        raise ValueError(f"no id {given!r} in {folder}, which has {known(folder)}")
    return found[0]


def known(folder: Path) -> str:
    """What there is to choose from."""
    return ", ".join(short_ids(entries(folder)).values()) or "nothing"


def told(entry: Entry, learned: Learned) -> str:
    """All that is known, in plain words."""
    setting, grid = learned.setting, learned.setting.grid
    regimes = ", ".join(map(str, grid.regimes))
    spread = "not known" if learned.spread is None else f"{learned.spread:.3g}"
    about = {
        "pictures": f"{learned.pictures}, in {counted(learned.runs, 'exact run')}",
        "stages": f"{grid.steps}, {'; '.join(levels(grid))}",
        "predictions": ", ".join(dict.fromkeys(track.prediction for track in grid.tracks)),
        "regimes": f"new ones begin at stages {regimes}" if regimes else "one",
        "size": f"{sizes(setting)} coordinates a picture, {setting.dtype}",
        "solver": setting.solver or "the host's own",
        "model": setting.model or "not known",
        "name": setting.name or "none",
        "words": setting.words or "none",
        "first output": f"mean square {', '.join(f'{f:.4g}' for f in learned.first)}",
        "spread": f"{spread} (of the data, along the errors of held outputs)",
        "used": f"{when(entry.used)}, {size(entry.bytes)}",
    }
    lines = [str(entry.file), *(f"  {name:<14}{words}" for name, words in about.items())]
    plans = chosen(learned)
    for default, plan in plans:
        lines += ["", f"{plan.budget} of {plan.steps} stages: {plan.mesh}"]
        lines += [f"  {'chosen':<14}{row(plan)}", f"  {'default':<14}{row(default)}"]
    return "\n".join(lines if plans else [*lines, "", "no anchors can be chosen for this grid"])


def numbers(entry: Entry, learned: Learned) -> dict[str, Any]:
    """The same for programs; not the matrices."""
    names = "pictures", "runs", "spread", "first"
    return {
        "file": str(entry.file),
        "used": entry.used,
        "bytes": entry.bytes,
        "setting": asdict(learned.setting),
        **{name: getattr(learned, name) for name in names},
        "plans": [
            {
                "budget": plan.budget,
                "anchors": plan.anchors,
                "default": default.anchors,
                "mesh": plan.mesh,
            }
            for default, plan in chosen(learned)
        ],
    }


def chosen(learned: Learned) -> list[tuple[Plan, Plan]]:
    """(the default, what would be chosen) for a few budgets."""
    grid, found = learned.setting.grid, []
    budgets = [b for b in BUDGETS if len(grid.regimes) < b <= SHARE * grid.steps]
    for budget in budgets or [max(LEAST, len(grid.regimes) + 1, grid.steps // 2)]:
        default = Plan.of(grid, budget)
        if why_not(default, grid) is None:
            found.append((default, plan_from(learned, default, ("output",), EULER)))
    return found


def levels(grid: Grid) -> list[str]:
    """σ of every track, with its name where it has one."""
    keys = [f"{key}: " for key in grid.keys or ()] or [""] * len(grid.tracks)
    ends = [(track.sigmas[0], track.sigmas[-1]) for track in grid.tracks]
    return [f"{key}σ from {first:g} to {last:g}" for key, (first, last) in zip(keys, ends)]


def sizes(setting: Setting) -> str:
    """The coordinates of a picture, for every slot."""
    return " + ".join(map(str, setting.sizes))


def cut(words: str) -> str:
    return words if len(words) <= CUT else f"{words[: CUT - 1]}…"


def row(plan: Plan) -> str:
    return ", ".join(map(str, plan.anchors))


def when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
