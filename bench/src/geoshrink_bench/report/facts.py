"""Where the numbers come from: versions, hashes, devices, commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from .results import DONE, Results
from .tables import counted


def lead(results: Results) -> str:
    suites = [suite for _, suite in results.suites]
    counts = dict.fromkeys((s.samples, s.seeds) for s in suites)
    samples = " or ".join(f"{many(n, 'sample')} × {many(k, 'seed')}" for n, k in counts)
    steps = " or ".join(dict.fromkeys(str(s.converged) for s in suites))
    return (
        f"{counted(results)}; {samples}, the same noise for every method. Numbers are means ± the "
        "standard deviation over seeds. There are two references: the full run, which the fast "
        f"methods imitate, and the flow as it converges with {steps} steps."
    )


def facts(results: Results) -> list[tuple[str, str]]:
    """(what, value), as far as the cells say."""
    done = [cell for cell in results.cells if cell.status == DONE]
    made = [cell.result.get("made", {}) for cell in done]
    weights = {c.spec["setting"]["model"]: str(c.spec.get("weights"))[:12] for c in done}
    found = [
        ("geoshrink", listed(cell.spec.get("version") for cell in done)),
        ("torch", listed(each.get("torch") for each in made)),
        ("made on", listed(each.get("on") for each in made)),
        ("timed on", listed(cell.on for cell in done if cell.on)),
        ("products in float32", listed(c.spec["setting"].get("precision") for c in done)),
        ("weights (sha256)", ", ".join(f"{model} {hash_}" for model, hash_ in weights.items())),
        ("made by", " ".join(["geoshrink bench report", *(str(f) for f, _ in results.suites)])),
        ("damaged cells", ", ".join(path.name for path in results.damaged)),
        ("left out", "; ".join(results.left_out)),
    ]
    return [(name, value) for name, value in found if value]


def many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def listed(values: Iterable[Any]) -> str:
    """Every value there is; how often, where there are several.

    >>> listed(["H200", "H200"]), listed(["H200", "CPU", "H200", None])
    ('H200', 'H200 (2), CPU (1), not recorded (1)')
    """
    counts = Counter(str(value) if value is not None else "not recorded" for value in values)
    if len(counts) < 2:
        return next(iter(counts), "")
    return ", ".join(f"{value} ({count})" for value, count in counts.most_common())
