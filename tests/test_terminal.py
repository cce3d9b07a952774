"""Tables and lines: rich on a terminal, plain elsewhere."""

from __future__ import annotations

import io
import re

import pytest

from geoshrink import terminal
from geoshrink.page.table import Column, Table
from geoshrink.terminal import is_rich, say, show_table

pytest.importorskip("rich")
ROWS = [["a[b]", 1.0], ["c", 2.0], [None, None]]
TABLE = Table(
    "title", [Column("name"), Column("dB", better="higher")], ROWS, "caption [x]", "run it"
)


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def test_a_pipe_gets_the_plain_text():
    out = io.StringIO()
    show_table(TABLE, out)
    say("well", "good", out)
    assert out.getvalue() == TABLE.text() + "well\n"


def test_a_screen_gets_colours_and_every_word():
    out = Screen()
    show_table(TABLE, out)
    say("well", "good", out)
    text = out.getvalue()
    assert "\x1b[" in text and "*" not in text
    for word in ("title", "a[b]", "1.00", "2.00", "—", "caption [x]", "$ run it", "well"):
        assert word in text  # brackets of strangers are no markup
    assert re.search(r"\x1b\[1;32m *2\.00", text) and not re.search(r"32m *1\.00", text)  # best


def test_a_line_is_plain_where_no_colours_are_wanted(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    out = Screen()
    say("ill", "bad", out)
    assert out.getvalue() == "ill\n"


@pytest.mark.parametrize("why", ["NO_COLOR", "dumb", "no rich"])
def test_who_wants_none_gets_none(monkeypatch, why):
    assert is_rich(Screen())
    if why == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    elif why == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    else:
        monkeypatch.setattr(terminal, "find_spec", lambda name: None)
    out = Screen()
    show_table(TABLE, out)
    assert out.getvalue() == TABLE.text()


def test_a_screen_too_narrow_for_the_columns_gets_the_plain_text(monkeypatch):
    long = Table("", [Column("id"), Column("model")], [["8ac2d924", "a" * 40]])
    for width, rich in (("80", True), ("40", False)):
        monkeypatch.setenv("COLUMNS", width)
        out = Screen()
        show_table(long, out)
        assert ("\x1b[" in out.getvalue()) == rich and "8ac2d924" in out.getvalue()
        assert (out.getvalue() == long.text()) != rich
