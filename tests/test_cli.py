"""The command line: it prints in any encoding, and says what there is when nothing is asked."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint

import pytest

from geoshrink import cli
from geoshrink.cli import installed, main


def printed(*words: str, encoding: str) -> subprocess.CompletedProcess[str]:
    """`geoshrink …` in a process whose output has this encoding."""
    command = [sys.executable, "-m", "geoshrink.cli", *words]
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    return subprocess.run(command, capture_output=True, encoding=encoding, env=env)


@pytest.mark.parametrize(
    "encoding, shown", [("cp1252", "of the ?-grid"), ("utf-8", "of the σ-grid")]
)
def test_a_letter_that_cannot_be_printed_is_replaced(encoding, shown):
    made = printed("plan", "--help", encoding=encoding)
    assert made.returncode == 0, made.stderr
    assert shown in made.stdout


def test_errors_are_printed_in_any_encoding():
    made = printed("batch", "mine:σ", "nowhere.txt", "--out", "x", encoding="ascii")
    assert made.returncode == 2 and "Traceback" not in made.stderr
    assert "address like s3://?" in made.stderr


def test_nothing_asked_is_answered_by_the_help(capsys):
    assert main([]) == 2
    told = capsys.readouterr()
    assert not told.out and "where to begin:" in told.err
    assert all(f"\n    {name} " in told.err for name in installed())


def test_ctrl_c_is_a_status_of_its_own(monkeypatch, capsys):
    def stopped(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("geoshrink.commands.doctor"), "run", stopped)
    assert main(["doctor"]) == 130
    assert capsys.readouterr().err == "geoshrink doctor: stopped\n"


def test_nobody_else_takes_the_name_of_a_command(monkeypatch):
    theirs = EntryPoint("doctor", "their.doctor", cli.GROUP), EntryPoint("more", "more", cli.GROUP)
    monkeypatch.setattr(cli, "entry_points", lambda group: theirs)
    assert installed() == cli.OWN | {"more": "more"}


@pytest.mark.parametrize("name", cli.ELSEWHERE)
def test_a_command_of_another_package_says_what_to_install(monkeypatch, capsys, name):
    monkeypatch.setattr(cli, "entry_points", lambda group: ())
    assert main([name]) == 2
    assert f"geoshrink {name} comes with geoshrink-bench: pip" in capsys.readouterr().err
    there = {name: "geoshrink.commands.doctor"}
    monkeypatch.setattr(cli, "installed", lambda: there)
    with pytest.raises(SystemExit) as left:
        main([name, "--help"])
    assert left.value.code == 0


def parsers_of(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """A parser and those of its subcommands."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    inner = [child for action in below for child in action.choices.values()]
    return [parser, *(each for child in inner for each in parsers_of(child))]


@pytest.mark.parametrize("name", [*installed()])
def test_every_option_is_explained(name):
    parser = argparse.ArgumentParser(name)
    import_module(installed()[name]).add_arguments(parser)
    for each in parsers_of(parser):
        for action in each._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue
            assert action.help, f"{each.prog} {action.dest} has no help"
            worth_saying = not isinstance(action.default, bool | list) and action.default
            if worth_saying and action.default not in (argparse.SUPPRESS, "{}", "1/1"):
                assert "default" in action.help, f"{each.prog} {action.dest} hides its default"


@pytest.mark.parametrize("verb", ["push", "pull", "list"])
def test_sharing_asked_of_plan_is_done_by_plans(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [verb, *(["no.json"] if verb == "push" else []), "nowhere"]
    answers = []
    for command in ("plan", "plans"):
        assert main([command, *words]) == 2
        answers.append(capsys.readouterr().err)
    assert answers[0] == answers[1] and answers[0].startswith("geoshrink plans: ")


def test_a_folder_of_that_name_is_a_model(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "push").mkdir()
    assert main(["plan", "push", "--samples", "2"]) == 2
    assert "--samples is not an option of a pipeline" in capsys.readouterr().err


def test_a_reader_that_has_read_enough_is_no_error(tmp_path):
    command = f"{sys.executable} -m geoshrink.cli --help | true"
    made = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert made.stderr == ""
    many = f"{sys.executable} -c 'import geoshrink.cli as c; c.sys.exit(c.main([\"doctor\"]))'"
    script = f"set -o pipefail; {many} | true"
    made = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert "Broken pipe" not in made.stderr and "Traceback" not in made.stderr
