"""benchmarks/cells.tar.xz from folders of cells, the same bytes for the same cells.

    python benchmarks/pack_cells.py cells/rivals cells/first cells/foreign cells/speed

What is asked of a folder, its cells and why others failed are packed, without the paths of the
machine that made them: of a traceback its last line, which says why, is kept.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from geoshrink.files import write_whole

OUT = Path(__file__).parent / "cells.tar.xz"
HERE = "."  # where paths of asked.json begin, on whatever machine


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Pack folders of cells.")
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="of cells")
    parser.add_argument("--out", type=Path, default=OUT, help=f"default: benchmarks/{OUT.name}")
    args = parser.parse_args(argv)
    try:
        content = packed(args.folders)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(f"{write_whole(args.out, content)}: {len(content) / 1e6:.1f} MB")


def packed(folders: Sequence[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as archive:
        for folder in folders:
            for name, content in files(folder):
                member = tarfile.TarInfo(f"{folder.name}/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of all that is packed of a folder."""
    if not (folder / "asked.json").is_file():
        raise ValueError(f"{folder} is not a folder of cells: it has no asked.json")
    yield "asked.json", changed(folder / "asked.json", within=HERE)
    for path in sorted(folder.glob("*.cell.json")):
        yield path.name, path.read_bytes()
    for path in sorted(folder.glob("*.error.json")):
        why = json.loads(path.read_bytes())["error"].strip().splitlines()[-1]
        yield path.name, changed(path, error=why)


def changed(path: Path, **values: str) -> bytes:
    """A file of JSON with other values."""
    body = json.loads(path.read_bytes())
    return json.dumps({**body, **values}, ensure_ascii=False, indent=1).encode()


if __name__ == "__main__":
    main()
