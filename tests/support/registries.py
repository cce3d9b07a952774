"""What people register, put back afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from geoshrink.hosts.registry import HOSTS
from geoshrink.meshes.registry import MESHES
from geoshrink.rules import RULES
from geoshrink.solvers import SOLVERS


@contextmanager
def restored() -> Iterator[None]:
    """Rules, meshes, solvers, hosts, and the proof's methods and metrics, as they were before."""
    tables: list[dict[str, Any]] = [RULES, MESHES, SOLVERS]
    if "geoshrink_bench" in sys.modules:
        from geoshrink_bench.methods.registry import METHODS
        from geoshrink_bench.metrics.zoo import ADDED

        tables += [METHODS, ADDED]
    before, hosts = [dict(table) for table in tables], list(HOSTS)
    try:
        yield
    finally:
        HOSTS[:] = hosts
        for table, saved in zip(tables, before):
            table.clear()
            table.update(saved)
