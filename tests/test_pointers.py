"""Errors end with the page that explains them; the page is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import geoshrink
from geoshrink.batch import run as run_batch
from geoshrink.cli import main
from geoshrink.compare import compare
from geoshrink.hosts.stack import module_of
from geoshrink.plan import given_plan
from geoshrink.pointers import PAGES, SITE, explained, notes_of, page_of, see

DOCS = Path(__file__).parents[1] / "docs"
SIGMAS = [1 - i / 10 for i in range(11)]
X = torch.ones(1, 2)


def plain(x, sigma):
    return x


@pytest.mark.parametrize("topic", PAGES)
def test_every_page_is_there_with_its_place(topic):
    name, _, place = page_of(topic).removeprefix(SITE).partition("#")
    page = DOCS / f"{name.rstrip('/')}.md"
    assert page.is_file(), f"{topic} leads to {page.name}, which is not there"
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    anchors = [re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings]
    assert not place or place in anchors


@pytest.mark.parametrize(
    ("topic", "call"),
    [
        ("hosts", lambda: geoshrink.accelerate(object(), 10)),
        ("accelerate", lambda: geoshrink.accelerate(object(), scheduler=5)),
        ("loop", lambda: geoshrink.sample(plain, X, SIGMAS, budget=4, solver="rk9")),
        ("anchors", lambda: geoshrink.Plan.of(SIGMAS, 4, anchors="nowhere")),
        ("quality", lambda: geoshrink.Plan.of(SIGMAS, 4, target_db=30)),
        ("plans", lambda: given_plan("missing.json")),
        ("plans", lambda: geoshrink.Plan.from_json("no")),
        ("fit", lambda: geoshrink.sample(plain, X, SIGMAS, plan=geoshrink.Plan.of(SIGMAS[:8], 4))),
        ("compare", lambda: compare(object(), dtype="fp16")),
        ("batch", lambda: run_batch("m", ["a"], "out", budget=3, speedup=2.0)),
    ],
)
def test_public_errors_name_their_page(topic, call):
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    assert notes_of(caught.value) == [f"See {page_of(topic)}"]
    assert SITE not in str(caught.value)  # the message stays a sentence


def test_errors_of_the_users_model_are_left_alone():
    def broken(x, sigma):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        geoshrink.sample(broken, X, SIGMAS, budget=4)
    assert notes_of(caught.value) == []


def test_code_without_a_name_is_not_ours():
    code = compile("def broken(x, sigma):\n    raise ValueError('mine')", "<made>", "exec")
    space: Any = {"__name__": None}
    exec(code, space)
    with pytest.raises(ValueError, match="mine") as caught:
        geoshrink.sample(space["broken"], X, SIGMAS, budget=4)
    assert notes_of(caught.value) == []


def test_code_without_a_name_has_an_empty_one():
    space: Any = {"__name__": None}
    exec("import sys\nframe = sys._getframe()", space)
    assert module_of(space["frame"]) == ""


@pytest.mark.parametrize("name", ["geoshrink.made", "geoshrink_bench.made", "geoshrinking"])
@pytest.mark.parametrize("error", ["ValueError", "TypeError", "ImportError", "OSError"])
def test_only_our_own_code_is_explained_and_only_what_it_says_in_words(name, error):
    space: Any = {"__name__": name}
    exec(f"def broken():\n    raise {error}('x')", space)
    with pytest.raises((ValueError, TypeError, ImportError, OSError)) as caught:
        explained("plans")(space["broken"])()
    ours = name == "geoshrink.made" and error != "OSError"
    assert notes_of(caught.value) == [f"See {page_of('plans')}"] * ours


def test_one_page_is_enough():
    error = see(see(ValueError("x"), "fit"), "plans")
    assert notes_of(error) == [f"See {page_of('fit')}"]


def test_the_command_line_ends_with_the_page(capsys):
    assert main(["batch", "m", "missing.txt", "--out", "x", "--budget", "3"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"See {page_of('batch')}"
    assert main(["compare", "nowhere", "--steps", "2"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"See {page_of('compare')}"


def test_functions_keep_their_names_and_arguments():
    import inspect

    assert (
        geoshrink.sample.__name__ == "sample"
        and "budget" in inspect.signature(geoshrink.sample).parameters
    )
    assert "A plan for" in (geoshrink.Plan.of.__doc__ or "")


def test_a_plan_that_cannot_be_loaded_names_its_page(tmp_path):
    with pytest.raises(ValueError, match="is not a readable file") as caught:
        geoshrink.Plan.load(tmp_path / "none.json")
    assert notes_of(caught.value) == [f"See {page_of('plans')}"]
