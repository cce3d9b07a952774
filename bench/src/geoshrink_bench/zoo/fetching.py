"""Weights that did not come with the package: kept in a cache, brought from a URL, told by hash.

manifest.json says which files a model has, with their sizes and sha256. A file lies at the URL as
NAME.HASH.ENDING, so that a release never changes what an older package finds there.
scripts/zoo_manifest.py writes the manifest, and a folder to upload.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.request
from functools import cache
from http.client import HTTPException
from importlib.resources import files
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

from geoshrink.files import read_in_time, write_whole

#: Where the files are, unless the environment variable GEOSHRINK_ZOO_URL names another place
#: (https:// or file://).
URL = "https://github.com/geoshrink/geoshrink/releases/download/zoo"
VARIABLE = "GEOSHRINK_ZOO_URL"
CACHE = "GEOSHRINK_ZOO_CACHE"
SCHEMES = ("https://", "http://", "file://")
SECONDS = 30  # without a byte, until it is given up
WHOLE = 600  # for all of a file
DIGITS = 16  # of the hash, in the name of a file at the URL
BRINGING = Lock()


class Missing(FileNotFoundError):
    """Weights that could not be brought; says from where, why, and what to do."""


@cache
def manifest() -> dict[str, dict[str, Any]]:
    """By file name: its sha256 and its size in bytes."""
    text = (files("geoshrink_bench.zoo") / "manifest.json").read_text(encoding="utf-8")
    return json.loads(text)["files"]


def files_of(name: str) -> list[str]:
    """The files of one model, its weights last; none where the manifest does not know it.

    >>> files_of("fruit-latent")[-1], files_of("vegetable")
    ('fruit-latent.safetensors', [])
    """
    own = [file for file in manifest() if file.partition(".")[0] == name]
    return sorted(own, key=lambda file: (file.endswith(".safetensors"), file))


def home(name: str) -> Path:
    """The folder of a model in the cache, named by the hash of its weights."""
    top = os.environ.get(CACHE) or Path.home() / ".cache" / "geoshrink" / "zoo"
    return Path(top) / manifest()[f"{name}.safetensors"]["sha256"]


def address(file: str) -> str:
    """The URL of a file."""
    base = os.environ.get(VARIABLE) or URL
    if not base.startswith(SCHEMES):
        raise ValueError(f"{VARIABLE} must start with {', '.join(SCHEMES)}, got {base!r}")
    return f"{base.rstrip('/')}/{stored_name(file, manifest()[file]['sha256'])}"


def stored_name(file: str, sha256: str) -> str:
    """A file's name at the URL.

    >>> stored_name("motion.profile.json", "0123456789abcdef0123")
    'motion.0123456789abcdef.profile.json'
    """
    stem, _, ending = PurePosixPath(file).name.partition(".")
    return f"{stem}.{sha256[:DIGITS]}.{ending}"


def fetch(name: str) -> Path:
    """The folder in the cache with all files of a model; those missing or damaged are brought."""
    if not files_of(name):
        raise Missing(f"there is no {name!r} in the manifest of the zoo's weights")
    folder = home(name)
    try:
        with BRINGING:
            for file in files_of(name):
                if not whole(folder / file):
                    bring(file, folder)
    except Missing:
        raise
    except OSError as error:
        told = f"{name} cannot be kept in {folder}: {error.strerror}"
        raise Missing(f"{told}. {CACHE} names another folder") from error
    return folder


def whole(path: Path) -> bool:
    """Whether a file is there and is the one that the manifest names."""
    known = manifest()[path.name]
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == known["sha256"]


def bring(file: str, folder: Path) -> None:
    """Downloads one file, checks it and puts it in its place at once."""
    url, known = address(file), manifest()[file]
    print(f"bringing {file} ({known['bytes'] / 1e6:.1f} MB) from {url}", file=sys.stderr)
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            blob = read_in_time(answer, known["bytes"] + 1, WHOLE)
    except (OSError, HTTPException, ValueError) as error:  # URLError and timeouts are OSErrors
        reason = getattr(error, "reason", None) or error
        raise Missing(f"{file} could not be brought from {url}: {reason}. {how(file)}") from error
    found = hashlib.sha256(blob).hexdigest()
    if found != known["sha256"]:
        raise Missing(
            f"{url} is not the file that this package knows: {len(blob):,} bytes with the sha256 "
            f"{found}, not {known['bytes']:,} with {known['sha256']}; nothing was kept. {how(file)}"
        )
    write_whole(folder / file, blob)


def how(file: str) -> str:
    """What to do without the network."""
    name = file.partition(".")[0]
    return (
        f"Offline: take {', '.join(files_of(name))} from zoo/ of the repository, and name that "
        f"folder in GEOSHRINK_ZOO or zoo.load({name!r}, folder=…); {VARIABLE} names another URL"
    )
