"""Lays out the pages of the site for zensical (make docs).

python scripts/site_pages.py           # writes build/pages; then: zensical build --strict

README is the home page, docs/ the top of the site: docs/compare.md is SITE/compare/. Links are
turned accordingly. Those to files that are no pages lead to the repository; pictures are copied.
"""

from __future__ import annotations

import posixpath
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md",
    "docs/**/*.md", "benchmarks/**/*.md", "examples/README.md",
)  # fmt: skip
STYLE = PurePosixPath("docs/site.css")
MEDIA = {".gif", ".html", ".jpg", ".mp4", ".png", ".svg", ".wav", ".webp"}
#: docs/zoo.md is SITE/zoo/ already.
ELSEWHERE = {"docs/zoo/README.md": "zoo/sheets.md"}
FENCE = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")


def main(out: Path = ROOT / "build" / "pages") -> int:
    staged = stage(ROOT, out)
    for old in sorted({path for path in out.rglob("*") if path.is_file()} - staged):
        old.unlink()
    print(f"{len(staged)} files in {out.relative_to(ROOT)}")
    return 0


def stage(root: Path, out: Path) -> set[Path]:
    """Writes every page and what it shows to `out`; returns the files that are there."""
    made = {STYLE: (root / STYLE).read_bytes()}
    pages = pages_of(root)
    for page in pages:
        text, shown = turned((root / page).read_text(encoding="utf-8"), page, root, pages)
        made[page] = text.encode()
        made |= {path: (root / path).read_bytes() for path in shown}
    places = [placed(path) for path in made]
    if twice := {place for place in places if places.count(place) > 1}:
        raise ValueError(f"two files would be {min(twice)} on the site: rename one")
    return {put(out / placed(path), data) for path, data in made.items()}


def put(file: Path, data: bytes) -> Path:
    """Writes a file unless it is that already: a server that watches notices changes only."""
    if not file.is_file() or file.read_bytes() != data:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return file


def pages_of(root: Path) -> list[PurePosixPath]:
    """The pages of the site, as paths in the repository."""
    found = {path for pattern in PAGES for path in root.glob(pattern)}
    return sorted(PurePosixPath(path.relative_to(root).as_posix()) for path in found)


def placed(path: PurePosixPath) -> str:
    """Where a file of the repository lies on the site."""
    there = ELSEWHERE.get(str(path)) or str(path).removeprefix("docs/")
    return re.sub(r"(^|/)README\.md$", r"\1index.md", there)


def repository(root: Path) -> str:
    """The project's address on the web, as its package says."""
    package = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return package["project"]["urls"]["Homepage"]


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """(part, whether it is prose), in order: what looks like a link in a code block is none."""
    start = 0
    for fence in FENCE.finditer(text):
        yield text[start : fence.start()], True
        yield fence[0], False
        start = fence.end()
    yield text[start:], True


def target(link: str, page: PurePosixPath, root: Path) -> PurePosixPath:
    """The file or folder of the repository that a relative link leads to."""
    path = posixpath.normpath(page.parent / link)
    if path.startswith("..") or not (root / path).exists():
        raise FileNotFoundError(f"{page} links to {link}, which is not in the repository")
    return PurePosixPath(path)


def turned(
    text: str, page: PurePosixPath, root: Path, pages: list[PurePosixPath]
) -> tuple[str, set[PurePosixPath]]:
    """(the page with links that work on the site, the files that it shows)."""
    shown = set()

    def link_of(found: re.Match[str]) -> str:
        path, place = target(found[1], page, root), found[2] or ""
        if path.suffix in MEDIA:
            shown.add(path)
        elif path not in pages:
            kind = "tree" if (root / path).is_dir() else "blob"
            return f"{repository(root)}/{kind}/main/{path}{place}"
        return posixpath.relpath(placed(path), posixpath.dirname(placed(page)) or ".") + place

    parts = [LINK.sub(link_of, part) if prose else part for part, prose in pieces(text)]
    return "".join(parts), shown


if __name__ == "__main__":
    sys.exit(main())
