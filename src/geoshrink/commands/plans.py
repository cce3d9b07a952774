"""Share plans and profiles: push one to a folder or an address, list what is there, pull one.

`geoshrink plan MODEL` makes a plan; its first word is a model's name, so that sharing has a command
of its own. What is pulled is checked against the index and its sha256, and no code is in it; still,
a sha256 says that a file is whole, not who made it.
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from ..page.table import Column, Table
from ..pointers import explained
from ..purpose import Purpose
from ..sharing.entry import LIMITS, Entry
from ..sharing.shelf import Query, Shelf, check_hash, nearest, told
from ..terminal import show_table

EXAMPLES = """
geoshrink plans push flux10.json ./plans --model black-forest-labs/FLUX.1-dev
geoshrink plans list ./plans
geoshrink plans pull https://example.org/plans --model flux.1-dev --steps 50 --budget 10
"""
COLUMNS = (
    "id", "kind", "model", "network", "scheduler", "steps", "guidance", "calls", "geoshrink"
)  # fmt: skip
DIGITS = 8  # of an id: a sha256 begins with it
PLACE = "a folder, or an address: https://… to read, s3://… and others with geoshrink[batch]"
TARGET = "a folder, or an address that can be written: s3://… and others with geoshrink[batch]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True)
    push = verbs.add_parser("push", help="put a plan or a profile there, and into its index")
    push.add_argument("file", help="that geoshrink plan, plan.save() or profile.save() wrote")
    push.add_argument("to", help=TARGET)
    listed = verbs.add_parser("list", help="what is there, the latest first")
    listed.add_argument("place", help=PLACE)
    listed.add_argument("--json", action="store_true", help="print the entries as JSON")
    pull = verbs.add_parser("pull", help="find one, fetch it, check it, and write it here")
    pull.add_argument("place", help=PLACE)
    pull.add_argument("--out", default=".", help="a file, or a folder; default: this folder")
    for verb, act in ((push, push_one), (listed, list_all), (pull, pull_one)):
        verb.set_defaults(act=act)
        verb.add_argument("--model", help="its id, such as black-forest-labs/FLUX.1-dev")
        verb.add_argument("--network", help="the class of the network")
        verb.add_argument("--scheduler", help="the class of the scheduler")
        verb.add_argument("--guidance", type=float, help="the guidance scale")
    for verb in (listed, pull):
        verb.add_argument("--steps", type=int, help="steps of the full run")
        verb.add_argument("--budget", type=int, help="model calls of a plan")
        verb.add_argument("--kind", choices=[*LIMITS], help="only plans, or only profiles")
        verb.add_argument("--sha256", help="an id, as in the list, or more of it")


@explained("plans")
def run(args: argparse.Namespace) -> int:
    args.act(args)
    return 0


def push_one(args: argparse.Namespace) -> None:
    names: list[Any] = [getattr(args, n) or "" for n in ("model", "network", "scheduler")]
    shelf = Shelf(args.to)
    entry = shelf.push(args.file, Purpose(*names, guidance=args.guidance))
    print(f"pushed {told(entry)} as {args.to.rstrip('/')}/{entry.file}")


def list_all(args: argparse.Namespace) -> None:
    found = Shelf(args.place).find(query_of(args))
    if args.json:
        print(json.dumps([entry.to_json() | {"file": entry.file} for entry in found]))
    elif found:
        show_table(table_of(found, f"{args.place}: {len(found)} to pull"))
    else:
        print(f"{args.place} has nothing of that kind")


def pull_one(args: argparse.Namespace) -> None:
    shelf, query = Shelf(args.place), query_of(args)
    entries = shelf.entries()
    found = [entry for entry in entries if not query.difference(entry)]
    if not found:
        raise ValueError(
            f"nothing in {args.place} is what you ask for: {nearest(query, entries)} (geoshrink "
            f"plans list {args.place})"
        )
    if len(found) > 1:
        table = table_of(found, "").text()
        raise ValueError(f"{len(found)} files are what you ask for: say more\n{table}")
    path = shelf.pull(found[0], args.out)
    print(f"pulled {told(found[0])} as {path}")


def query_of(args: argparse.Namespace) -> Query:
    check_hash(args.sha256)
    if args.guidance is not None and not math.isfinite(args.guidance):
        raise ValueError(f"--guidance is a finite number, got {args.guidance}")
    return Query(**{name: getattr(args, name) for name in Query.__dataclass_fields__})


def table_of(entries: list[Entry], caption: str) -> Table:
    rows = []
    for entry in entries:
        its = entry.purpose
        guidance = " to ".join(f"{g:g}" for g in dict.fromkeys(its.range)) or None
        names = [name or None for name in (its.model, its.network, its.scheduler)]
        numbers = [its.steps, guidance, entry.budget]
        rows.append([entry.sha256[:DIGITS], entry.kind, *names, *numbers, entry.geoshrink])
    return Table("", [Column(name) for name in COLUMNS], rows, caption)
