"""The lines of full_size.py as a table."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from methods import RIVALS
from models import MODELS

HEAD = [
    "| | evaluations | seconds | speed-up | of direct's | extra memory | host µs | launches |",
    "|---|---|---|---|---|---|---|---|",
]
ABOUT = """
Random weights, bfloat16, text encoders and VAE left out: times, not quality. Seconds are the median
of the runs (their number in brackets). Extra memory is the peak above that of the full run. Host µs
and kernel launches are those of one skipped stage, measured on a small latent; "pipeline alone" is
one step of the same pipeline whose transformer costs nothing, so the rest is the method's. A rival
has the schedule of its own kind that makes the same number of evaluations.
"""
WHERE = ("before", "calls", "after")


KERNELS = ("anchor", "skipped stage", "collapsed cell", "torch skipped stage", "torch.addcmul")
STAGE = ("host µs", "launches")


def read(path: Path) -> tuple[list[dict], dict[tuple[str, str], list[dict]]]:
    heads: list[dict] = []
    lines: dict[tuple[str, str], list[dict]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if "method" in line:
            lines.setdefault((line["model"], line["method"]), []).append(line)
        else:
            heads.append(line)
    return heads, lines


def middle(lines: list[dict], key: str) -> float | None:
    values = [line[key] for line in lines if line.get(key) is not None]
    return statistics.median(values) if values else None


def size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if abs(count) >= 1e9 else f"{count / 1e6:.1f} MB"


def table(model: str, lines: dict[tuple[str, str], list[dict]]) -> list[str]:
    def of(method: str, key: str) -> Any:
        return middle(lines.get((model, method), []), key)

    full, peak, direct = of("full", "seconds"), of("full", "peak_bytes"), of("direct", "seconds")
    rows = [f"## {MODELS[model].title}, {MODELS[model].steps} steps", "", *HEAD]
    alone = of("stage: pipeline alone", "host_us"), of("stage: pipeline alone", "launches")
    rows.append("| pipeline alone | | | | | |" + "".join(f" {number(a)} |" for a in alone))
    for method in ("full", "direct", "ours", "corrected", *RIVALS):
        own = lines.get((model, method), [])
        if not own and method not in ("full", "direct", "ours"):
            continue
        seconds, runs = of(method, "seconds"), sum("seconds" in line for line in own)
        if seconds is None:
            why = own[-1]["error"] if own else "not run"
            rows.append(f"| {method} | | {why.splitlines()[0][:120]} | | | | | |")
            continue
        held = of(method, "peak_bytes")
        cells = [
            f"{of(method, 'evaluations'):.0f}",
            f"{seconds:.3f} ({runs})",
            f"{full / seconds:.3f}×" if full else "",
            f"{direct / seconds:.4f}" if direct and method != "full" else "",
            size(held - peak) if peak and method != "full" else "",
            number(of(f"stage: {method}", "host_us")),
            number(of(f"stage: {method}", "launches")),
        ]
        rows.append(f"| {method} | " + " | ".join(cells) + " |")
    kernel = lines.get((model, "attention"), [{}])[-1].get("attention")
    rows += ["", f"Attention: {kernel}.", ""]
    parts = {m: [of(m, part) for part in WHERE] for m in ("direct", "ours", "corrected")}
    parts = {m: found for m, found in parts.items() if None not in found}
    if len(parts) > 1:
        each = [
            f"{method} {' + '.join(f'{1e3 * part:.1f}' for part in found)} ms"
            for method, found in parts.items()
        ]
        text = "Before the first call + from there to the end of the last one + after it: "
        rows += [f"{text}{', '.join(each)}."]
        skipped = MODELS[model].steps - MODELS[model].budget
        if alone[0] is not None:
            rows += [
                f"The pipeline's own {skipped} further steps, without a model, take the host "
                f"{skipped * alone[0] / 1e3:.1f} ms."
            ]
        rows += [""]
    return rows


def kernels(lines: list[dict]) -> list[str]:
    """Bandwidth against a copy, launches and host time of a stage, and our own loop."""
    text = ["## Kernels and our own loop", ""]
    for line in lines:
        if "command" in line:
            text += [f"Made by `{line['command']}` on {line['device']}.", ""]
        elif line["measure"] == "bandwidth":
            copy = line["copy"]
            each = [f"{name} {line[name] / copy:.0%}" for name in line if name in KERNELS]
            kind = line["dtype"].split(".")[1]
            text.append(
                f"- {line['megabytes']:.0f} MB of {kind}, bytes per second of a copy's "
                f"({copy:.0f} GB/s): {', '.join(each)}"
            )
        elif "error" in line:
            text.append(f"- {line['measure']}: {line['error']}")
        elif line["measure"] == "stage":
            anchor, skipped = ([line[f"{s}: {k}"] for k in STAGE] for s in ("anchor", "skipped"))
            text.append(
                f"- {line['kernels']}: an anchor is {anchor[1]} launches and {anchor[0]:.0f} µs of "
                f"the host, a skipped stage {skipped[1]} and {skipped[0]:.0f} µs"
            )
        elif line["measure"] == "our own loop":
            text.append(
                f"- `sample()` with a model of {line['seconds']} s a call: {line['of T/B']:.4f} of "
                "T/B, waiting for the device being an error"
            )
        elif line["measure"] == "graphs":
            found = {key: value for key, value in line.items() if key != "measure"}
            each = [f"{k} {v}" if isinstance(v, str) else f"{k} {v:.1e}" for k, v in found.items()]
            text.append(f"- `sample()` in a CUDA graph, over a compiled model: {'; '.join(each)}")
    return text


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def report(path: Path) -> str:
    heads, lines = read(path)
    text = ["# Speed on full-size models", ""]
    for head in heads:
        versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
        text += [f"Made by `{head['command']}` on {head['device']}, {head['date']}: {versions}."]
        text += ["", head["note"]] if "note" in head else []
    text += [ABOUT]
    for model in MODELS:
        if any(name == model for name, _ in lines):
            text += table(model, lines)
    beside = path.with_name("kernels.jsonl")
    if beside.exists() and path.stem == "results":
        text += kernels([json.loads(t) for t in beside.read_text(encoding="utf-8").splitlines()])
    return "\n".join(text).rstrip() + "\n"
