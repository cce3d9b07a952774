"""geoshrink doctor: what it finds, its self-test, its status; and the help of every command."""

from __future__ import annotations

import getpass
import json
import logging
import os
import re
import socket
import sys
from pathlib import Path

import pytest
import torch

import geoshrink
from geoshrink import cli
from geoshrink.cli import installed, main
from geoshrink.doctor import found, selftest
from geoshrink.hosts import registry


@pytest.fixture(scope="module")
def report() -> str:
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["doctor", "--json"]) == 0
    return out.getvalue()


def test_it_finds_what_is_here(report):
    about = json.loads(report)
    assert about["well"] and about["versions"]["geoshrink"] == geoshrink.__version__
    assert about["versions"]["torch"] == torch.__version__
    assert about["devices"][-1]["kind"] == "cpu" and about["devices"][-1]["memory"] > 2**28
    assert {check["name"] for check in about["checks"]} == {*selftest.TESTS}
    assert sum(check["seconds"] for check in about["checks"]) < 30
    assert (
        "geoshrink (geoshrink.hosts.sglang:register)"
        in (about["plugins"]["sglang.multimodal_gen.plugins"])
    )


def test_nothing_private_is_told(report):
    private = [str(Path.home()), os.getcwd(), socket.gethostname(), getpass.getuser()]
    for word in private:
        assert len(word) < 5 or word not in report, word


def test_the_page_for_people(capsys):
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "ok  a budget of all 50 steps is the plain run, bit by bit" in said
    assert "hosts not here" in said and "Python" in said


@pytest.mark.parametrize("name", selftest.TESTS)
def test_a_failed_test_is_status_1(capsys, monkeypatch, name):
    def fails():
        raise RuntimeError("no luck")

    monkeypatch.setattr(selftest, "TESTS", {name: fails})
    assert main(["doctor"]) == 1
    assert f"BAD {name} failed: RuntimeError: no luck" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["well"] is False


def test_what_could_not_be_tried_is_no_failure(capsys, monkeypatch):
    monkeypatch.setattr(selftest, "TESTS", {"pipeline": lambda: (None, "it was not tried")})
    monkeypatch.setattr(found, "hosts", lambda: {"Mine": True, "Theirs": False})
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "-   it was not tried" in said
    assert re.search(r"hosts here +Mine\b", said) and re.search(r"hosts not here +Theirs\b", said)


def test_the_self_test_is_quiet_and_leaves_the_log_as_it_was(monkeypatch):
    logger, seen = logging.getLogger("geoshrink"), []

    def look():
        seen.append(logger.level)
        return True, ""

    monkeypatch.setattr(logger, "level", logging.WARNING)
    monkeypatch.setattr(selftest, "TESTS", {"a": look})
    selftest.checks()
    assert seen == [logging.CRITICAL] and logger.level == logging.WARNING


@pytest.mark.parametrize("sigma", [0.9, 0.5, 0.1])
def test_the_velocity_is_that_of_the_data(sigma):
    """Beside sums over a fine grid of x₀."""
    data = torch.linspace(-8, 8, 20001, dtype=torch.float64)
    spread = selftest.SPREAD
    density = sum(torch.exp(-(((data - mean) / spread) ** 2) / 2) for mean in selftest.MEANS)
    for x in (-1.3, 0.2, 1.7):
        weights = density * torch.exp(-(((x - (1 - sigma) * data) / sigma) ** 2) / 2)
        wanted = (x - (weights * data).sum() / weights.sum()) / sigma
        given = selftest.velocity(torch.tensor([x], dtype=torch.float64), sigma)
        assert float(given) == pytest.approx(float(wanted), rel=1e-6)


def test_the_self_test_notices_a_wrong_sampler(monkeypatch):
    right = selftest.sample
    monkeypatch.setattr(selftest, "sample", lambda *a, **k: right(*a, **k) + 1)
    assert selftest.all_steps()[0] is False and selftest.few_steps()[0] is False


def test_the_self_test_notices_a_pipeline_that_is_not_left_as_it_was(monkeypatch):
    pytest.importorskip("diffusers")
    from contextlib import contextmanager, nullcontext

    assert selftest.pipeline()[0] is True
    monkeypatch.setattr(selftest, "accelerate", lambda *a, **k: nullcontext())
    assert selftest.pipeline()[0] is False  # all 50 calls

    @contextmanager
    def untidy(pipe, **options):
        with geoshrink.accelerate(pipe, **options):
            yield
        pipe.scheduler.set_shift(1.0)

    monkeypatch.setattr(selftest, "accelerate", untidy)
    assert selftest.pipeline() == (False, "remove() did NOT leave the pipeline as it was")


def test_without_diffusers_the_pipeline_is_not_tried(monkeypatch):
    monkeypatch.setattr(selftest, "is_there", lambda name: False)
    assert selftest.pipeline() == (
        None,
        "accelerate() was not tried: diffusers is not installed",
    )


def test_missing_extras_come_with_their_line(capsys, monkeypatch):
    wanted = [
        "torch>=2.4",
        "nowhere-to-be-found>=1; extra == 'batch'",
        "geoshrink[batch]; extra == 'ray'",
        "absent; (sys_platform == 'x') and extra == \"test\"",
    ]
    monkeypatch.setattr(found.metadata, "requires", lambda name: wanted)
    missing = ["nowhere-to-be-found"]
    assert found.extras() == {"batch": missing, "ray": missing}
    monkeypatch.setattr(selftest, "TESTS", {})
    assert main(["doctor"]) == 0
    line = "missing for ray: nowhere-to-be-found: pip install 'geoshrink[ray]'"
    assert line in capsys.readouterr().out


def test_what_is_broken_here_is_told_and_breaks_nothing(monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no driver")

    monkeypatch.setattr(found, "import_module", broken)
    monkeypatch.setattr(found, "is_there", lambda name: True)
    assert found.comfyui() == "unknown"
    monkeypatch.setattr(found.torch.cuda, "is_available", lambda: True)
    assert found.kernels() == "not used: Triton cannot compile here (RuntimeError)"
    monkeypatch.setattr(found.torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(found.torch.cuda, "get_device_properties", broken)
    device = {"kind": "cuda", "name": "not usable (RuntimeError)", "memory": None}
    assert found.devices()[0] == device and found.memory(device) == "memory not known"


def test_one_library_of_a_host_is_enough(monkeypatch):
    monkeypatch.setattr(found, "is_there", lambda name: name == "trellis2")
    assert [name for name, there in found.hosts().items() if there] == ["TRELLIS"]


class Entry:
    """An entry point of somebody else."""

    name, value = "theirs", "theirs:HOST"

    def __init__(self, held: object):
        self.held = held

    def load(self) -> object:
        return self.held


def test_what_is_no_host_is_left_out_with_a_line(monkeypatch, caplog):
    monkeypatch.setattr(registry, "entry_points", lambda group: [Entry(5), Entry(registry.OWN[0])])
    monkeypatch.setattr(registry, "installed", registry.installed.__wrapped__)
    assert registry.installed() == registry.OWN[:1]
    assert "the host theirs (theirs:HOST): this is no geoshrink.Host, but a int" in caplog.text
    assert "TRELLIS" in found.hosts() and registry.host_of(object()) is None


@pytest.mark.parametrize(
    ("source", "why"),
    [("1 / 0", "ZeroDivisionError"), ('"""No command."""', "AttributeError")],
)
def test_a_broken_command_is_left_out_of_the_help(tmp_path, monkeypatch, capsys, source, why):
    (tmp_path / "broken_command.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(cli, "installed", lambda: {**installed(), "wild": "broken_command"})
    for words, status in ((["--help"], 0), (["wild"], 2)):
        with pytest.raises(SystemExit) as left:
            main(words)
        said = capsys.readouterr()
        assert left.value.code == status
        assert f"the command wild (broken_command) is left out: {why}" in said.err
        assert "wild" not in said.out and ("doctor" in said.out) == (status == 0)
    assert main(["doctor", "--json"]) == 0 and "left out" not in capsys.readouterr().err
    sys.modules.pop("broken_command", None)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file", "/home/ann lee/secret/x.so"),
        RuntimeError("cannot load C:\\Users\\secret\\x.dll"),
        RuntimeError("in secret/folder: bad"),
        RuntimeError('File "/opt/my secret/x.py", line 3'),
    ],
)
def test_errors_of_the_self_test_tell_no_paths(error, monkeypatch, capsys):
    def fails():
        raise error

    monkeypatch.setattr(selftest, "TESTS", {"all steps": fails})
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "secret" not in said and "lee" not in said and "…" in said
    assert f"all steps failed: {type(error).__name__}: " in said


def test_kernels_say_why_not(monkeypatch):
    monkeypatch.setattr(found.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(found, "is_there", lambda name: False)
    assert found.kernels() == "not used: Triton is not installed"
    monkeypatch.setattr(found.torch.cuda, "is_available", lambda: False)
    assert found.kernels() == "not used: no CUDA device"


@pytest.mark.parametrize("name", [*installed()])
def test_every_command_has_a_sentence_and_examples(name, capsys):
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    said = capsys.readouterr().out
    assert left.value.code == 0 and "\nexamples:\n  geoshrink " in said
    for line in said.partition("examples:\n")[2].strip().splitlines():
        assert line.strip().startswith(f"geoshrink {name}")
