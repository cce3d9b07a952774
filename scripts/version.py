"""The version: src/geoshrink/__init__.py says it, and every other place repeats it.

python scripts/version.py                # prints it
python scripts/version.py --check        # 1 if a place differs
python scripts/version.py --tag v0.2.0   # 1 if a place, the tag or the changelog differs
python scripts/version.py 0.2.0          # writes it to every place
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "src/geoshrink/__init__.py"
#: File → the line that holds the version, with {} in its place.
PLACES = {
    SOURCE: '__version__ = "{}"',
    "bench/src/geoshrink_bench/__init__.py": '__version__ = "{}"',
    "bench/pyproject.toml": '  "geoshrink=={}",',
    "comfyui/pyproject.toml": 'version = "{}"',
    "CITATION.cff": "version: {}",
}
FORM = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The version of both packages.")
    parser.add_argument("new", nargs="?", help="a version to write everywhere, such as 0.2.0")
    parser.add_argument("--check", action="store_true", help="1 if a place differs")
    parser.add_argument("--tag", help="a tag that must be v and the version, dated in CHANGELOG.md")
    args = parser.parse_args(argv)
    if args.new:
        write(args.new)
    wrong = differences()
    if args.tag is not None:
        wrong += tag_differences(args.tag)
    print("\n".join(wrong) or version())
    return int(bool(wrong))


def found(file: str) -> str:
    """The version that a file says."""
    pattern = re.escape(PLACES[file]).replace(re.escape("{}"), f"({FORM})")
    hits = re.findall(f"^{pattern}$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    if len(hits) != 1:
        sys.exit(f"{file} must have one line {PLACES[file].format('1.2.3')!r}, it has {len(hits)}")
    return hits[0]


def version() -> str:
    return found(SOURCE)


def differences() -> list[str]:
    """A sentence for every place that says another version than the source."""
    says = {file: found(file) for file in PLACES}
    return [
        f"{file} says {other}, {SOURCE} says {version()}: python scripts/version.py {version()}"
        for file, other in says.items()
        if other != version()
    ]


def tag_differences(tag: str) -> list[str]:
    """A sentence each if the tag is not v and the version, or the changelog has no date for it."""
    wrong = [] if tag == f"v{version()}" else [f"the tag is {tag!r}, not 'v{version()}'"]
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version())} \(\d{{4}}-\d\d-\d\d\)$", log, re.MULTILINE):
        wrong.append(f"CHANGELOG.md has no heading '## {version()} (YYYY-MM-DD)': date it")
    return wrong


def write(new: str) -> None:
    """Puts a version in every place."""
    if not re.fullmatch(FORM, new):
        sys.exit(f"a version is such as 0.2.0 or 0.2.0rc1, got {new!r}")
    for file, line in PLACES.items():
        path = ROOT / file
        text = path.read_text(encoding="utf-8")
        old = re.escape(line.format(found(file)))  # all of a line: cff-version is another one
        path.write_text(re.sub(rf"(?m)^{old}$", line.format(new), text), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
