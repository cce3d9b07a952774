"""Pages made of cells, compared whatever today's code is."""

from __future__ import annotations

import re


def without_code(text: str) -> str:
    """Without what is said of stale cells, which changes with the code and not with the cells."""
    text = re.sub(r"^Stale: .*\n\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\d+ stale, \d+ by unknown code", "so many", text)
    counts = r"(\| \d+ ){2}\| \d+ of \d+ (\| [\d.]+ \|)$"
    text = re.sub(counts, r"| n | n | n \2", text, flags=re.MULTILINE)
    text = re.sub(r"\w+ (is|are) by today's code", "so many", text)
    return re.sub(r" (Every number was|†) made by [^.]*\.", "", text).replace(" †", "")
