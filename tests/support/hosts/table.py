"""Writes docs/pipelines.md: python tests/support/hosts/table.py --out docs/pipelines.md"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description="Every tiny pipeline through the same checks.")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import diffusers

    from hosts.check import all_pipelines, check

    rows, skipping = [], 0
    for name, build in sorted(all_pipelines().items()):
        outcome = check(name, build)
        result = "; ".join(outcome.problems) or "ok"
        why = "; ".join(dict.fromkeys(outcome.reasons))
        rows.append(f"| {name} | {outcome.summary} | {why} | {result} |")
        skipping += "predicted" in outcome.summary and ", 0 predicted" not in outcome.summary
        print(rows[-1], flush=True)
    head = [
        "# Pipelines that are tested",
        "",
        f"Made by `python tests/support/hosts/table.py --out docs/pipelines.md` with diffusers "
        f"{diffusers.__version__} and torch {torch.__version__}: {len(rows)} pipelines, {skipping} "
        "of them with predicted stages. Tiny random networks on the CPU: this shows that the "
        "plumbing is right, not how good the pictures are.",
        "",
        "Each is run plain, at full budget (bit-identical), with 5 of 8 stages (real denoiser "
        "calls counted), again, with 10 steps (where the call says how many), and after `remove()` "
        "(bit-identical, no attribute left). Modular pipelines are their denoising blocks.",
        "",
        "| pipeline | budget 5 of 8 steps | why | result |",
        "|---|---|---|---|",
    ]
    args.out.write_text("\n".join(head + rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
