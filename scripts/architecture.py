"""Writes docs/architecture.md: what every file of the two packages holds, by its own first line.

python scripts/architecture.py           # writes the page
python scripts/architecture.py --check   # says whether it is current
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
HEAD = """# Where every file lives

Two packages, one repository. `geoshrink` runs beside your model and needs torch and numpy.
`geoshrink-bench` is the proof: trained models, rivals, metrics, suites. Imports go one way, and the
lint step holds them to it: the proof knows the product, never the other way; commands know compare,
compare knows hosts, hosts know planning, planning knows the core.

```
σ-grid, budget ──► Grid ──► mesh ──► Plan          numbers only: no tensors, no model, JSON
                                      │
solver loop ──► Run(plan) ──┬─ anchor:  v = model(x)  → observe(n, v)   keeps v¹ and Δv
                            └─ skipped: v = predict(n) = v¹ + ω_n·Δv    waits for no device
                                      │
                                    Report          what was queried, ω, turning, why it fell back,
                                                    quality/: about how far it is from the full run
```

With a quality in place of a budget (`aim.py`, part of the plan) quality/ also decides, at every
anchor, with which anchors the run goes on.

`comfyui/` is the node pack for ComfyUI, with a pyproject of its own for the registry; it knows the
public names of `geoshrink` and its solvers' responses.

Beside them: `tests/`, `bench/tests/`, `comfyui/tests/`, `engines/tests/` (the classes of serving
engines, in a Python of their own; support/ has what tests share: an oracle,
an independent float64 reimplementation of the paper, toys, tiny pipelines), `benchmarks/` (scripts
and the results they wrote), `zoo/` (weights and cards of the models that are not inside the
package), `scripts/`. This page is made by `python scripts/architecture.py`.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="What every file holds, as a page.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it is stale")
    args = parser.parse_args()
    text = page()
    if args.check:
        stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
        print(f"{PAGE.name} is {'stale: run scripts/architecture.py' if stale else 'current'}")
        return int(stale)
    PAGE.write_text(text, encoding="utf-8")
    return 0


def page() -> str:
    parts = [HEAD]
    for package in (ROOT / "src/geoshrink", ROOT / "bench/src/geoshrink_bench", ROOT / "comfyui"):
        files = [file for file in package.rglob("*.py") if not is_test(file, package)]
        parts.append(f"\n## {package.name}\n\n{len(files)} files.\n")
        folders = sorted(p for p in package.rglob("*") if p.is_dir() and not is_test(p, package))
        for folder in (package, *folders):
            rows = list(rows_of(folder))
            if rows:
                name = folder.relative_to(package).as_posix()
                title = (
                    "" if name == "." else f"\n**{name}/** {first_line(folder / '__init__.py')}\n"
                )
                parts.append(f"{title}\n| file | holds |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "".join(parts)


def is_test(path: Path, package: Path) -> bool:
    return path.relative_to(package).parts[0] == "tests"


def rows_of(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("*.py")):
        if file.name != "__init__.py":
            link = f"../{file.relative_to(ROOT).as_posix()}"
            yield f"| [{file.name}]({link}) | {first_line(file)} |"


def first_line(file: Path) -> str:
    """The first sentence of a module's docstring."""
    if not file.is_file():
        return ""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
