"""See whether all is well: versions, devices, hosts, what is missing, and a self-test.

It tells no paths, no names of users or machines and nothing of your models: what it prints can go
into a bug report as it is.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..doctor import found, selftest
from ..page.table import Column, Table
from ..terminal import say, show_table

EXAMPLES = """
geoshrink doctor
geoshrink doctor --json
"""
MARKS = {True: ("ok  ", "good"), False: ("BAD ", "bad"), None: ("-   ", "quiet")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the same for programs")


def run(args: argparse.Namespace) -> int:
    about = examined()
    well = all(check["ok"] is not False for check in about["checks"])
    if args.json:
        print(json.dumps({**about, "well": well}, indent=1))
    else:
        tell(about)
    return 0 if well else 1


def examined() -> dict[str, Any]:
    return {
        "versions": found.versions(),
        "devices": found.devices(),
        "kernels": found.kernels(),
        "hosts": found.hosts(),
        "plugins": found.plugins(),
        "extras": found.extras(),
        "checks": [check.to_json() for check in selftest.checks()],
    }


def tell(about: dict[str, Any]) -> None:
    rows = [[name, version or "not installed"] for name, version in about["versions"].items()]
    rows += [
        [device["kind"], f"{device['name']}, {found.memory(device)}"] for device in about["devices"]
    ]
    rows.append(["kernels", about["kernels"]])
    here = [name for name, there in about["hosts"].items() if there]
    away = [name for name, there in about["hosts"].items() if not there]
    rows += [
        ["hosts here", ", ".join(here) or "none"],
        ["hosts not here", ", ".join(away) or "none"],
    ]
    for group, names in about["plugins"].items():
        rows.append([group, ", ".join(name.partition(" ")[0] for name in names)])
    show_table(Table("", [Column("what"), Column("found")], rows))
    print()
    for extra, missing in about["extras"].items():
        if missing:
            line = f"pip install 'geoshrink[{extra}]'"
            say(f"missing for {extra}: {', '.join(missing)}: {line}", "doubtful")
    for check in about["checks"]:
        mark, style = MARKS[check["ok"]]
        say(f"{mark}{check['words']} ({check['seconds']:.1f} s)", style)
