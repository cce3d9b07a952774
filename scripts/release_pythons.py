"""Pythons of this machine, and clean environments of them to try a wheel in.

torch is large, so that each Python has it once, in a base environment that is kept. A clean
environment sees that base by a .pth file; everything else is installed into it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".release"
INSTALL = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
BASE = ("torch", "numpy")


class Stop(Exception):
    """The release may not go on; says why and what to do."""


def call(command: Sequence[str | Path], why: str) -> str:
    """What a command prints, on both streams; where it fails, Stop with `why` and its last lines.

    Variables such as PYTHONPATH are kept from it, and the source tree is not where it runs.
    """
    words = [str(word) for word in command]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    made = subprocess.run(words, text=True, env=env, cwd=HOME, stdout=pipe, stderr=both)
    if made.returncode:
        tail = "\n".join(made.stdout.strip().splitlines()[-12:])
        raise Stop(f"{why}\n{' '.join(words)}\n{tail}")
    return made.stdout


def supported() -> list[str]:
    """The Pythons that the classifiers name, oldest first: 3.11, 3.12 …"""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = [re.fullmatch(r".*Python :: (3\.\d+)", line) for line in project["classifiers"]]
    return sorted((hit[1] for hit in found if hit), key=lambda name: int(name[2:]))


def here() -> dict[str, Path]:
    """Of the supported Pythons, those on this machine: on the path, or made by pyenv."""
    found = {}
    for name in supported():
        tried = [sys.executable, shutil.which(f"python{name}"), *pyenv(name)]
        for program in filter(None, tried):
            if version_of(program) == name:
                found[name] = Path(program)
                break
    return found


def pyenv(name: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return sorted(map(str, root.glob(f"{name}.*/bin/python")))


def version_of(program: str) -> str:
    """3.11 and the like; empty where the program does not start (a shim of pyenv)."""
    words = [program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    made = subprocess.run(words, capture_output=True, text=True)
    return made.stdout.strip() if made.returncode == 0 else ""


def pins(names: Sequence[str]) -> list[str]:
    """name==version of the constraints, for these names."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.partition("==")[0] in names]


def program_of(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fresh(folder: Path, python: Path, *options: str) -> Path:
    """A new environment; its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    call([python, "-m", "venv", *options, folder], f"{python} made no environment")
    return program_of(folder)


def base(name: str, python: Path) -> Path:
    """The packages of an environment with torch and numpy, made once."""
    folder = HOME / name / "base"
    own, wanted = program_of(folder), pins(BASE)
    done = folder / "done.txt"
    if not done.is_file() or done.read_text() != str(wanted):
        own = fresh(folder, python)
        why = f"Python {name} got no {' '.join(wanted)}: is an index reachable, has it such wheels?"
        call([own, *INSTALL, *wanted], why)
        done.write_text(str(wanted))
    return packages(own)


def packages(program: Path) -> Path:
    """Where an environment's packages lie."""
    line = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(call([program, "-c", line], f"{program} does not start").strip())


def clean(name: str, python: Path, what: str) -> Path:
    """The Python of a new environment that sees torch, numpy and what they need."""
    seen = base(name, python)
    own = fresh(HOME / name / what, python, "--without-pip")  # the base has it
    (packages(own) / "base.pth").write_text(f"import site; site.addsitedir({str(seen)!r})\n")
    return own
