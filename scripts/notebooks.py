"""The notebooks of examples/, run, as .ipynb files: python scripts/notebooks.py [--out FOLDER]"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jupytext
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parents[1] / "examples" / "notebooks"


def executed(path: Path, timeout: int = 1800) -> Any:
    """The notebook with what its cells print and show; a cell that fails is an error."""
    notebook = jupytext.read(path)
    NotebookClient(notebook, timeout=timeout, kernel_name="python3").execute()
    return notebook


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the notebooks and write .ipynb files.")
    parser.add_argument("--out", type=Path, default=Path("build/notebooks"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(HERE.glob("*.py")):
        file = args.out / f"{path.stem}.ipynb"
        jupytext.write(executed(path), file)
        print(file)


if __name__ == "__main__":
    main()
