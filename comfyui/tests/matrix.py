"""Every family, condition, sampler and scheduler of a ComfyUI, with and without geoshrink.

python comfyui/tests/matrix.py --server PATH --python PATH --out comfyui/tests/MATRIX.md

Several --server give one table each. Exits with 1 where anything failed.
"""

from __future__ import annotations

import argparse
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from support.checks import Row, check
from support.conditions import conditions_of
from support.graphs import Job
from support.runner import Runner
from support.server import PACK
from support.stories import STORIES, tell

import geoshrink


def rows_of(runner: Runner, *, slow: bool, only: str) -> Iterator[Row]:
    """All rows; `only` is a word that a row's family or condition must contain."""
    for family, name, make in jobs(runner, slow):
        if only in f"{family} {name}":
            try:
                yield make()
            except Exception as error:
                yield Row(family, name, problems=[f"{type(error).__name__}: {error}"])
            if not runner.server.alive:
                raise RuntimeError(f"the server has died:\n{runner.server.log[-3000:]}")


def jobs(runner: Runner, slow: bool):
    """(family, condition, function that makes the row)."""
    for sampler in runner.choices("KSampler", "sampler_name"):
        for family in (name for name in ("sd3", "sd15") if name in runner.families):
            name = f"sampler {sampler}"
            job = Job(family, sampler=sampler)
            yield family, name, lambda job=job, name=name: check(runner, job, name)
    for scheduler in runner.choices("KSampler", "scheduler"):
        name = f"scheduler {scheduler}"
        job = Job("sd3", scheduler=scheduler)
        yield "sd3", name, lambda job=job, name=name: check(runner, job, name)
    for family in runner.families:
        for name in STORIES:
            yield family, name, lambda name=name, family=family: tell(runner, name, Job(family))
        for condition in conditions_of(family, runner.info, slow=slow):
            job = Job(family, patch=condition.patch, **condition.changes)
            yield (
                family,
                condition.name,
                lambda job=job, it=condition: check(runner, job, it.name, **it.expected),
            )


def table(rows: list[Row]) -> str:
    """Markdown, failures first."""
    head = "| | family | condition | calls | error | direct | what failed |\n"
    lines = [head + "|---|---|---|--:|--:|--:|---|"]
    for row in sorted(rows, key=lambda row: row.ok):
        state = "ok" if row.ok else "FAILED"
        failed = "; ".join(row.problems).replace("|", "/").replace("\n", " ")
        cells = [state, row.family, row.condition, row.calls, number(row.error), number(row.direct)]
        lines.append("| " + " | ".join([*cells, failed]) + " |")
    return "\n".join(lines)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


HEAD = """# ComfyUI: what was run

`error` is the relative error ‖x − full‖/‖full‖ of the final latent with {budget} calls, `direct`
that of as many steps without geoshrink. The weights are random: the numbers say nothing about
quality. Checked in each row: the number of guided evaluations, counted below geoshrink; the text on
the node; bit-identity to the run without the node where the budget is all steps or nothing is to be
skipped, and of the run without the node afterwards.

{words}. Made by `python comfyui/tests/matrix.py`.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--server", type=Path, action="append", required=True)
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--pack", type=Path, default=PACK)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="", help="rows that contain this")
    parser.add_argument("--slow", action="store_true", help="TorchCompileModel, too")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and stop the server
    failed, sections = 0, []
    for folder in asked.server:
        begun = time.monotonic()
        with (
            tempfile.TemporaryDirectory() as base,
            Runner(folder, asked.python, Path(base), asked.pack) as runner,
        ):
            rows = []
            for row in rows_of(runner, slow=asked.slow, only=asked.only):
                rows.append(row)
                print(
                    f"{'ok' if row.ok else 'FAILED':6} {row.family:13} {row.condition:30}", end=" "
                )
                print(row.calls, number(row.error), number(row.direct), "; ".join(row.problems))
                sys.stdout.flush()
            bad = sum(not row.ok for row in rows)
            failed += bad
            title = f"## ComfyUI {runner.version}: {len(rows) - bad} of {len(rows)} ok"
            sections.append(f"{title}\n\n{table(rows)}\n")
            print(f"{title}, {time.monotonic() - begun:.0f} s")
    words = f"geoshrink {geoshrink.__version__}, torch {torch.__version__}, CPU, "
    words += f"Python {platform.python_version()}"
    if asked.out:
        asked.out.write_text("\n".join([HEAD.format(budget=8, words=words), *sections]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
