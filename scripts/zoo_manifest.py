"""Writes the manifest of the zoo's weights: what a package without the repository may download.

python scripts/zoo_manifest.py                  # writes it, after a file of zoo/ changed
python scripts/zoo_manifest.py --check          # says whether it is current
python scripts/zoo_manifest.py --mirror FOLDER  # the files under the names they have at the URL
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ZOO = ROOT / "zoo"
MANIFEST = ROOT / "bench/src/geoshrink_bench/zoo/manifest.json"


def main() -> int:
    parser = argparse.ArgumentParser(description="The manifest of the zoo's weights.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it is stale")
    parser.add_argument("--mirror", type=Path, help="a folder for the files, named by their hash")
    args = parser.parse_args()
    text = json.dumps({"format": 1, "files": found()}, indent=1) + "\n"
    if args.check:
        stale = not MANIFEST.is_file() or MANIFEST.read_text(encoding="utf-8") != text
        print(f"{MANIFEST.name} is {'stale: run scripts/zoo_manifest.py' if stale else 'current'}")
        return int(stale)
    MANIFEST.write_text(text, encoding="utf-8")
    if args.mirror:
        print(f"{mirror(args.mirror)} files in {args.mirror}")
    return 0


def found() -> dict[str, dict[str, Any]]:
    """By file name: sha256 and size of every file that belongs to weights in zoo/."""
    names = {path.stem for path in ZOO.glob("*.safetensors")}
    if not names:
        sys.exit(f"there are no weights in {ZOO}: the manifest is made where they are")
    paths = [path for path in sorted(ZOO.iterdir()) if path.name.partition(".")[0] in names]
    blobs = {path.name: path.read_bytes() for path in paths}
    return {
        name: {"sha256": hashlib.sha256(blob).hexdigest(), "bytes": len(blob)}
        for name, blob in blobs.items()
    }


def mirror(folder: Path) -> int:
    """Copies every file to its name at the URL, NAME.HASH.ENDING (geoshrink_bench.zoo.fetching);
    how many.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = found()
    for file, known in files.items():
        name, _, ending = file.partition(".")
        shutil.copyfile(ZOO / file, folder / f"{name}.{known['sha256'][:16]}.{ending}")
    return len(files)


if __name__ == "__main__":
    sys.exit(main())
