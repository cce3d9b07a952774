"""Which tables of the paper there are, the suites of each, and what each suite is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..suite import read, suites


@dataclass(frozen=True)
class PaperTable:
    """A table, or a figure with numbers; `label` is its own in the paper."""

    name: str
    label: str
    caption: str


#: In the paper's order. The first five take its nine checkpoints.
TABLES = (
    PaperTable("Table 1", "tab:main_comparison", "pictures and films, beside six rivals"),
    PaperTable("Table 2", "tab:minimax_h3", "films with sound"),
    PaperTable("Table 3", "tab:hymotion_direct_vs_geo", "motion"),
    PaperTable("Table 4", "tab:3d_direct_vs_geo", "3-D objects"),
    PaperTable("Table 5", "tab:audio_direct_vs_geo", "sound and music"),
    PaperTable("Table 6", "tab:ablation", "the ablation"),
    PaperTable("Figure: motivation", "fig:motivation", "fixed and adaptive retention"),
    PaperTable("Figure: trade-off", "fig:pareto", "speed and quality"),
)
MAIN = 5
#: The file of prompts of each suite, without what follows the dot; gso is a folder of pictures.
PROMPTS = {
    "sd35": "pickapic",
    "flux": "pickapic",
    "ablation": "pickapic",
    "motivation": "pickapic",
    "tradeoff": "pickapic",
    "hunyuanvideo-chronomagic": "chronomagic-bench-150",
    "hunyuanvideo-vbench": "vbench",
    "minimax-h3": "chronomagic-bench-150",
    "hy-motion": "ssae",
    "trellis": "t3bench",
    "hunyuan3d": "gso",
    "tangoflux": "audiocaps",
    "acestep": "musiccaps",
    "acestep-v1": "musiccaps",
}


def grouped(only: Sequence[str] | None = None) -> dict[PaperTable, list[str]]:
    """The suites of each table: those named, else all of Table 1 to 5."""
    known = suites("paper")
    for name in only or ():
        if name not in known:
            raise ValueError(f"--only: no suite {name!r}; there are {', '.join(known)}")
    labels = {name: read(name).label for name in known}
    found = {}
    for table in TABLES if only else TABLES[:MAIN]:
        names = [n for n in known if labels[n] == table.label and (not only or n in only)]
        if names:
            found[table] = sorted(names, key=list(PROMPTS).index)
    return found


def repository(suite: Any) -> str:
    """Where a suite's checkpoint is published."""
    return suite.checkpoint.partition(",")[0]


def folder_name(suite: Any) -> str:
    """What the folder of its checkpoint is called: the last part of where it is published."""
    return repository(suite).rpartition("/")[2]
