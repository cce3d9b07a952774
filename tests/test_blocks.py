"""Every block of code on our pages runs, or says why not; shell lines are understood."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

from blocks import PYTHON, SHELL, TELLS, Block, blocks, blocks_in, commands, unfenced
from registries import restored
from shell import check

ROOT = Path(__file__).parents[1]
FOLDERS = ("", "bench/", "comfyui/", "docs/**/", "examples/")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(f"{folder}*.md"))
BLOCKS = {page.relative_to(ROOT).as_posix(): blocks(page) for page in PAGES}
RUN = {
    name: [block for block in found if block.language in PYTHON and block.reason is None]
    for name, found in BLOCKS.items()
}
LINES = [block for found in BLOCKS.values() for block in found if block.language in SHELL]


def execute(block: Block, names: dict[str, Any]) -> None:
    """Runs a block among names; errors point into the page."""
    if block.text.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(
            block.text, names, block.place, str(block.page), block.line
        )
        names.update(test.globs)
        assert not doctest.DocTestRunner().run(test, clear_globs=False).failed, block.place
        names.update(test.globs)
        return
    exec(compile("\n" * block.line + block.text, str(block.page), "exec"), names)


def long(name: str) -> bool:
    """To profile a pipeline takes many seconds."""
    return any("handle.profile(" in block.text for block in RUN[name])


@pytest.mark.filterwarnings("ignore", "error:.*has moved:DeprecationWarning")
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * long(name)) for name, run in RUN.items() if run],
)
def test_a_page_runs(name, tmp_path, monkeypatch):
    """Its blocks in their order, each with what those before it defined."""
    pytest.importorskip("diffusers")
    pytest.importorskip("geoshrink_bench")
    import granted

    granted.zoo(monkeypatch)
    granted.pipelines(monkeypatch)
    granted.place(tmp_path, monkeypatch, "".join(block.text for block in RUN[name]))
    names = granted.names()
    with restored():
        for block in RUN[name]:
            execute(block, names)


@pytest.mark.parametrize("block", LINES, ids=lambda block: block.place)
def test_shell_lines_are_understood(block):
    """What of a block is not known to us needs a mark; our own commands are parsed all the same."""
    for words in commands(block):
        known = check(words)
        assert known or block.reason, f"{block.place}: nobody checks {words[0]!r}: say why not"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_is_fenced_and_named(page):
    text = page.read_text(encoding="utf-8")
    assert not unfenced(text), "code that is only indented: fence it, ```python or ```sh"
    for block in blocks(page):
        named = block.language in PYTHON | SHELL or not TELLS.search(block.text)
        assert named, f"{block.place}: this is code: say ```python or ```sh"
    marks = len(re.findall(r"^ *<!-- not run", text, re.MULTILINE))
    assert marks == sum(block.reason is not None for block in blocks(page)), "a mark of no block"


# --- the means themselves ------------------------------------------------------------------------

SAMPLE = """\
Text.

```python
a = 1
```

<!-- not run: needs a GPU -->

```python
b = torch.cuda.FloatTensor(1)
```

- an item

  ```sh
  GEOSHRINK=exact geoshrink demo \\
      --steps 8 && make demo & # now
  ```

```console
$ geoshrink doctor --json > doctor.json
{"a": 1}
```

<!-- not run: -->

```
plain
```
"""


def test_blocks_are_found_with_their_marks():
    made = [*blocks_in(Path("page.md"), SAMPLE)]
    assert [(block.line, block.language, block.reason) for block in made] == [
        (3, "python", None),
        (9, "python", "needs a GPU"),
        (15, "sh", None),
        (20, "console", None),
        (27, "", None),
    ]
    assert made[0].text == "a = 1\n" and SAMPLE.count("<!-- not run") == 2
    assert commands(made[2]) == [["geoshrink", "demo", "--steps", "8"], ["make", "demo"]]
    assert commands(made[3]) == [["geoshrink", "doctor", "--json"]]


def test_a_block_that_is_wrong_fails_at_its_line():
    (block,) = blocks_in(Path("page.md"), "one\n\n```python\nx = 1\nnobody(x)\n```\n")
    with pytest.raises(NameError, match="nobody") as error:
        execute(block, {})
    assert error.traceback[-1].lineno == 4  # counted from 0: the page's fifth line
    (block,) = blocks_in(Path("page.md"), "```pycon\n>>> 1 + 1\n3\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:1"):
        execute(block, {})


def test_doctests_share_their_names():
    names: dict[str, Any] = {"a": 2}
    (block,) = blocks_in(Path("page.md"), "```pycon\n>>> b = a + 1\n>>> b\n3\n```\n")
    execute(block, names)
    assert names["b"] == 3


@pytest.mark.parametrize(
    "text",
    ["    handle = geoshrink.accelerate(pipe)", "    geoshrink demo", "    pip install '.[batch]'"],
)
def test_indented_code_is_seen(text):
    assert unfenced(f"So:\n\n{text}\n") and not unfenced(f"```sh\n{text}\n```\n")
    assert not unfenced(
        "So:\n\n    v̂ = v¹ + ω·Δv\n\n    >>> geoshrink.Plan\n    python is a snake\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "geoshrink dance",
        "geoshrink demo --speed 3",
        "geoshrink batch FOLDER prompts.txt",  # no --out
        "make coffee",
        "make test-matrix TEAPOT=1",
        "python scripts/nothing.py",
        "python -m geoshrink_nothing",
        "pip install 'geoshrink[everything]'",
        "pip install './bench[everything]'",
    ],
)
def test_wrong_lines_are_refused(line, capsys):
    (block,) = blocks_in(Path("page.md"), f"```sh\n{line}\n```\n")
    with pytest.raises(AssertionError, match=r"\w"):
        check(commands(block)[0])


def test_others_commands_are_not_vouched_for():
    assert not check(["kubectl", "apply"]) and check(["make", "demo"]) and check(["mkdir", "x"])
