"""geoshrink studio on the command line: its help, and what it refuses before a server starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from geoshrink import cli
from studio import entry, known

pytest.importorskip("PIL")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["studio", *words]) == 2
    told = capsys.readouterr()
    assert not told.out and "Traceback" not in told.err
    return told.err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as status:
        cli.main(["studio", "--help"])
    text = capsys.readouterr().out
    assert status.value.code == 0 and "the full run and the accelerated one, live" in text
    for name in ("--folder", "--out", "--host", "--port", "--share", "--no-browser", "--kwargs"):
        assert name in text


@pytest.mark.parametrize(
    "words, told",
    [
        (["no-such-model"], "no folder 'no-such-model' here"),
        (["../../etc/nothing"], "no folder '../../etc/nothing' here"),
        (["toy", "toy"], "two models are called 'toy'"),
        (["--folder", "no/such"], "--folder 'no/such' is not a folder"),
        (["--dtype", "int3"], "unknown dtype 'int3'; choose one of bf16, fp16, fp32"),
        (["--device", "abacus"], "unknown device 'abacus'"),
        (["--kwargs", "{x"], "--kwargs is not JSON"),
        (["--kwargs", '{"generator": 1}'], "leave out 'generator'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_own_words(
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    pytest.importorskip("gradio")
    known(monkeypatch, entry("toy"))
    found = refused(capsys, *words)
    assert found.startswith("geoshrink studio: ") and told in found


@pytest.mark.parametrize("name", ["gradio", "PIL"])
def test_without_a_package_it_says_what_to_install(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    gone = [each for each in sys.modules if each.partition(".")[0] == name]
    for each in [*gone, "geoshrink.studio.app", "geoshrink.studio.serve"]:
        monkeypatch.delitem(sys.modules, each, raising=False)
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    found = refused(capsys)
    assert f"the studio needs {name}: pip install 'geoshrink[studio]'" in found


def test_nothing_is_loaded_and_the_page_is_for_this_machine_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What the server is given, without starting it."""
    pytest.importorskip("gradio")
    from geoshrink.studio import serve

    given: list[Any] = []
    monkeypatch.setattr(serve, "serve", lambda *args: given.extend(args))
    known(monkeypatch, entry("toy"), entry("bad", "bad"))
    assert cli.main(["studio", "bad", "--out", str(tmp_path / "x"), "--no-browser"]) == 0
    app, host, port, share, browser = given
    app.close()
    assert (host, port, share, browser) == ("127.0.0.1", None, False, False)
    assert app.studio.shelf.names == ["bad", "toy"] and not app.studio.shelf.models
    assert app.studio.out == tmp_path / "x" and not app.studio.out.exists()
