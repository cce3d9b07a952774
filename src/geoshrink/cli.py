"""geoshrink on the command line. A command is a module, found by its entry point.

A command's module has a docstring whose first line is its help, add_arguments(parser) and
run(args) -> exit status; where it has EXAMPLES, the help ends with them, and where it has
stopped(args), that is what to say after Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType

from . import __version__
from .pointers import SITE, notes_of

GROUP = "geoshrink.commands"
NAMES = ("batch", "compare", "doctor", "learned", "plan", "plans", "studio")
OWN = {name: f"geoshrink.commands.{name}" for name in NAMES}
#: What `geoshrink plans` does, asked of `geoshrink plan`.
SHARING = ("push", "pull", "list")
#: Commands of other distributions, named so that an error can say what to install.
ELSEWHERE = {"bench": "geoshrink-bench", "demo": "geoshrink-bench"}
ABOUT = """\
Make diffusion and flow models sample with a fraction of their model calls. No training; the weights
and the solver's grid stay as they are.
"""
START = f"""\
where to begin:
  geoshrink doctor                     see whether all is well here
  geoshrink compare FOLDER             full, direct and geoshrink on your own pipeline, as a page
  geoshrink COMMAND --help             what a command takes, with examples

documentation: {SITE}
"""


def main(argv: Sequence[str] | None = None) -> int:
    never_fail_to_print()
    words = sys.argv[1:] if argv is None else list(argv)
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("geoshrink", None, ABOUT, START, formatter_class=raw)
    parser.add_argument(
        "--version", action="version", version=__version__, help="print the version and exit"
    )
    commands = parser.add_subparsers(
        dest="command", required=True, title="commands", metavar="COMMAND"
    )
    names = installed()
    missing = {name: package for name, package in ELSEWHERE.items() if name not in names}
    if words and words[0] in missing:
        package = missing[words[0]]
        print(f"geoshrink {words[0]} comes with {package}: pip install {package}", file=sys.stderr)
        return 2
    if words[:1] == ["plan"] and words[1:2] and words[1] in SHARING and not os.path.isdir(words[1]):
        words[0] = "plans"  # makes and shares are two commands; nobody need know
    if words and words[0] in names:
        names = {words[0]: names[words[0]]}  # the others need not be imported
    for name, module in names.items():
        command = loaded(name, module)
        if command is None:
            continue
        told = f"{first_line(command)}."
        own = commands.add_parser(
            name, help=told, description=told, epilog=examples(command), formatter_class=raw
        )
        command.add_arguments(own)
        own.set_defaults(module=command)
    if not words:
        parser.print_help(sys.stderr)
        return 2
    args = parser.parse_args(words)
    try:
        return args.module.run(args)
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"geoshrink {args.command}: {error}", *notes_of(error), sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        how = args.module.stopped(args) if hasattr(args.module, "stopped") else ""
        print(f"geoshrink {args.command}: stopped{how}", file=sys.stderr)
        return 130


def never_fail_to_print() -> None:
    """A letter that the output cannot encode, such as σ in a Windows code page, becomes '?'."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def installed() -> dict[str, str]:
    """The modules of all commands there are, by name."""
    found = {entry.name: entry.value for entry in entry_points(group=GROUP)}
    return dict(sorted({**found, **OWN}.items()))


def loaded(name: str, module: str) -> ModuleType | None:
    """The module of a command; None, with a line that says why, where it cannot be used."""
    try:
        command = import_module(module)
        command.add_arguments(argparse.ArgumentParser(name))  # which nobody sees
        return command
    except Exception as error:  # of a package that the user may not even be using
        why = f"{type(error).__name__}: {error}"
        print(f"geoshrink: the command {name} ({module}) is left out: {why}", file=sys.stderr)
        return None


def first_line(command: ModuleType) -> str:
    return (command.__doc__ or "").partition("\n")[0].rstrip(".")


def examples(command: ModuleType) -> str | None:
    """The end of a command's help; None where it has no examples."""
    lines = getattr(command, "EXAMPLES", "").strip().splitlines()
    return "\n  ".join(["examples:", *lines]) if lines else None


if __name__ == "__main__":
    sys.exit(main())
