"""geoshrink on the command line. A command is a module, found by its entry point.

A command's module has a docstring whose first line is its help, add_arguments(parser) and
run(args) -> exit status; where it has stopped(args), that is what to say after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

from . import __version__

GROUP = "geoshrink.commands"
OWN = {
    name: f"geoshrink.commands.{name}" for name in ("batch", "compare", "learned", "plan", "studio")
}
#: Commands of other distributions, named so that an error can say what to install.
ELSEWHERE = {"bench": "geoshrink-bench", "demo": "geoshrink-bench"}


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(
        prog="geoshrink",
        description="Diffusion and flow sampling with a fraction of the model calls.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    names = installed()
    missing = {name: package for name, package in ELSEWHERE.items() if name not in names}
    if words and words[0] in missing:
        package = missing[words[0]]
        print(f"geoshrink {words[0]} comes with {package}: pip install {package}", file=sys.stderr)
        return 2
    if words and words[0] in names:
        names = {words[0]: names[words[0]]}  # the others need not be imported
    for name, module in names.items():
        command = import_module(module)
        own = commands.add_parser(name, help=first_line(command), description=first_line(command))
        command.add_arguments(own)
        own.set_defaults(module=command)
    args = parser.parse_args(words)
    try:
        return args.module.run(args)
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"geoshrink {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        how = args.module.stopped(args) if hasattr(args.module, "stopped") else ""
        print(f"geoshrink {args.command}: stopped{how}", file=sys.stderr)
        return 130


def installed() -> dict[str, str]:
    """The modules of all commands there are, by name."""
    found = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return dict(sorted({**found, **OWN}.items()))


def first_line(command: ModuleType) -> str:
    return (command.__doc__ or "").partition("\n")[0].rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
