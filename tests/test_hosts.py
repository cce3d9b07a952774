"""The registry of hosts, from outside: a host of one's own is accelerated, compared and loaded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import geoshrink
from geoshrink import Handle, Host, Run, accelerate
from geoshrink.compare import Settings, compare, run_compare
from geoshrink.compare.outcomes import DIRECT, FULL, GEOSHRINK
from geoshrink.hosts import registry


class Painter:
    """Somebody's model with a loop of its own, without a scheduler."""

    def __init__(self, folder: Path | None = None):
        self.folder, self.calls, self.run_of = folder, 0, None

    def velocity(self, x: Tensor, sigma: float) -> Tensor:
        self.calls += 1
        return x - torch.sin(3 * sigma + torch.arange(16.0))

    def paint(self, colour: str, count: int, seed: int) -> Tensor:
        sigmas = torch.linspace(1, 0, count + 1).tolist()
        x = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(seed)) + len(colour)
        run: Any = self.run_of and self.run_of(sigmas)
        for n in range(count):
            call = partial(self.velocity, x, sigmas[n])
            v = call() if run is None else run(n, call, x)
            x = x + (sigmas[n + 1] - sigmas[n]) * v
        return x


def attach(host: Painter, budget: int | None = None, **options: Any) -> Handle:
    runs: list[Run] = []

    def run_of(sigmas: list[float]) -> Run:
        runs.append(Run(sigmas, budget=budget, **options))
        return runs[-1]

    host.run_of = run_of  # type: ignore[assignment]
    return Handle(lambda: [run.report for run in runs], lambda: setattr(host, "run_of", None))


PAINTER = Host(
    "painter",
    knows=lambda host: isinstance(host, Painter),
    attach=attach,
    call=lambda host, arguments, steps, seed: host.paint(count=steps, seed=seed, **arguments),
    show=lambda host, x: ("Pictures", {"values": x.sigmoid()[:, None]}),
    load=lambda folder, device, dtype: Painter(folder),
    files=("painter.json",),
    method="paint",
    prompt=("colour",),
    sets=("count", "seed"),
)


@pytest.fixture
def registered() -> Iterator[None]:
    geoshrink.register_host(PAINTER)
    yield
    registry.HOSTS.remove(PAINTER)


def test_a_host_from_outside_is_accelerated(registered):
    host = Painter()
    plain = host.paint("red", 20, 0)
    with accelerate(host, budget=8) as handle:
        host.paint("red", 20, 0)
    assert host.calls == 20 + 8 and handle.report is not None and handle.report.evaluations == 8
    assert torch.equal(host.paint("red", 20, 0), plain)


def test_a_host_from_outside_is_compared(registered, tmp_path):
    given: Any = dict(steps=12, budgets=(5,), progress=False)
    compared = compare(Painter(), ["red", "green"], out=tmp_path / "page.html", **given)
    assert {o.method: o.calls for o in compared.outcomes}[GEOSHRINK] == 5
    assert [o.calls for o in compared.outcomes if o.method in (FULL, DIRECT)] == [12, 5]
    assert compared.subjects == ["red", "green"] and (tmp_path / "page.html").is_file()
    with pytest.raises(ValueError, match="leave out 'count'"):
        compare(Painter(), ["red"], kwargs={"count": 3}, out=tmp_path / "page.html", **given)


def test_a_host_from_outside_is_loaded(registered, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    settings = Settings(str(model), ("red",), steps=12, budgets=(5,))
    with pytest.raises(ValueError, match=r"holds no painter\.json: it is not a painter pipeline"):
        run_compare(settings, tmp_path / "page.html", progress=False)
    (model / "painter.json").write_text("{}")
    compared = run_compare(settings, tmp_path / "page.html", progress=False)
    assert compared.loaded.host.folder == model


def test_what_can_only_be_accelerated_is_called_by_a_function(tmp_path):
    host = Painter()
    with pytest.warns(DeprecationWarning, match="register_host"):
        geoshrink.register_adapter(PAINTER.knows, attach)
    given: Any = dict(steps=12, budgets=(5,), progress=False, out=tmp_path / "page.html")
    try:
        with pytest.raises(ValueError, match="cannot set the steps of Painter"):
            compare(host, **given)
        paint = lambda prompt, steps: host.paint(prompt, steps, 0).sigmoid()  # noqa: E731
        compared = compare(host, ["red"], call=paint, **given)
    finally:
        registry.HOSTS.pop(0)
    assert [o.calls for o in compared.outcomes][:2] == [12, 5]


def test_a_package_brings_its_hosts_by_an_entry_point(monkeypatch, caplog):
    def broken() -> Host:
        raise ModuleNotFoundError("No module named 'theirs'")

    entries = [
        SimpleNamespace(name="theirs", value="theirs:HOST", load=broken),
        SimpleNamespace(name="painter", value="painter:HOST", load=lambda: PAINTER),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries * (group == registry.GROUP))
    registry.installed.cache_clear()
    try:
        assert registry.host_of(Painter()) is PAINTER
        assert "theirs:HOST" in caplog.text and "No module named 'theirs'" in caplog.text
        with accelerate(Painter(), budget=5) as handle:
            assert handle.reports == []
    finally:
        registry.installed.cache_clear()
    with pytest.raises(TypeError, match="does not know how to accelerate a Painter"):
        monkeypatch.undo()
        registry.installed.cache_clear()
        accelerate(Painter(), budget=5)
