"""What a request may ask, what it becomes, and what it is told."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from geoshrink import Learning, Plan, sample
from geoshrink.hosts.serving import KEPT, Policy, joined, read, told

SIGMAS = [1 - i / 20 for i in range(21)]


@pytest.mark.parametrize(
    "given, found",
    [
        (None, {}),
        ("", {}),
        ("exact", {"exact": True}),
        (" speedup = 2.5 ", {"speedup": 2.5}),
        ("target_db=30,most=12, judge=worst", {"target_db": 30, "most": 12, "judge": "worst"}),
        ('{"budget": 10}', {"budget": 10}),
        ({"budget": 10}, {"budget": 10}),
    ],
)
def test_options_are_words_json_or_a_mapping(given: Any, found: dict[str, Any]):
    assert read(given) == found


@pytest.mark.parametrize(
    "given", ["fast", "speedup=", "=3", "{budget}", 3, ["speedup"], "a=1,,b=2"]
)
def test_what_cannot_be_read_is_quoted(given: Any):
    with pytest.raises(ValueError, match=r"got|JSON") as error:
        read(given)
    assert repr(given) in str(error.value)


def test_a_server_that_asks_for_nothing_waits_for_requests():
    policy = Policy()
    assert policy.options() == (None, "")
    options, why = policy.options({"speedup": 4})
    assert options == {"speedup": 4} and not why


def test_a_request_replaces_the_amount_and_keeps_the_rest():
    policy = Policy({"speedup": 3, "rule": "chordal", "anchors": "geometric"})
    assert policy.options()[0] == {"speedup": 3, "rule": "chordal", "anchors": "geometric"}
    assert policy.options({"budget": 9})[0] == {"budget": 9, "rule": "chordal"}
    assert policy.options("exact")[0] is None
    assert policy.options({"exact": False})[0] == policy.options()[0]


def test_a_plan_of_the_server_gives_way_to_a_request():
    plan = Plan.of(SIGMAS, 8)
    policy = Policy({"plan": plan})
    options, _ = policy.options()
    assert options is not None and options["plan"].anchors == plan.anchors
    assert policy.options({"budget": 9})[0] == {"budget": 9}


def test_all_requests_learn_in_one_place():
    policy = Policy({"speedup": 3, "learn": True})
    both = [policy.options(asked)[0] for asked in (None, {"budget": 8})]
    assert both[0] is not None and both[1] is not None
    assert isinstance(both[0]["learn"], Learning) and both[0]["learn"] is both[1]["learn"]


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"plan": "/etc/passwd"}, "'plan'"),
        ({"learn": True}, "'learn'"),
        ({"budget": math.nan}, "nan"),
        ({"speedup": -1}, "-1"),
        ({"speedup": "x"}, "'x'"),
        ({"budget": [3]}, r"[3]"),
        ({"exact": "yes"}, "'yes'"),
        ({"most": 4}, "most"),
        ({"budget": object()}, "object"),
    ],
)
def test_a_wrong_request_is_exact_with_the_reason(asked: Any, said: str):
    options, why = Policy("speedup=3").options(asked)
    assert options is None and why.startswith("geoshrink: ") and said in why


@pytest.mark.parametrize("own", ["speedup=x", {"bugdet": 3}, {"exact": 1}, {"plan": "none.json"}])
def test_wrong_options_of_a_server_are_an_error(own: Any):
    with pytest.raises((TypeError, ValueError, OSError)):
        Policy(own)


def test_the_environment_is_quoted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GEOSHRINK", "speedup=2")
    assert Policy.from_environment().options()[0] == {"speedup": 2}
    monkeypatch.setenv("GEOSHRINK", "faster")
    with pytest.raises(ValueError, match="GEOSHRINK='faster'"):
        Policy.from_environment()
    monkeypatch.delenv("GEOSHRINK")
    assert Policy.from_environment().options() == (None, "")


def test_requests_cannot_fill_the_memory():
    policy = Policy()
    for i in range(2 * KEPT):
        policy.options({"budget": i + 5})
    assert len(policy.known) == KEPT


@pytest.mark.parametrize(
    "asked",
    [
        "x" * 10_000,
        '{"budget": ' + "[" * 900 + "]" * 900 + "}",
        '{"budget": ' + "[" * 100_000,
        {"budget": "9" * 60_000},
        {"budget": 10**400},
        {"speedup": 1e308},
        {"speedup": math.inf},
        "budget=1\r\nset-cookie: a=b",
    ],
)
def test_what_is_hostile_is_short_and_exact(asked: Any):
    options, why = Policy("speedup=3").options(asked)
    line = json.dumps(told(None, why))
    assert len(line) < 1000 and "\n" not in line and "\r" not in line
    assert options is None or asked == {"speedup": 1e308} or asked == {"budget": 10**400}


def test_what_is_told_is_json():
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    _, report = sample(lambda x, s: torch.sin(3 * x), x, SIGMAS, 6, with_report=True)
    one = told(report, "why")
    assert one["calls"] == 6 and one["steps"] == 20 and one["reasons"] == ["why"]
    assert isinstance(one["estimated_db"], float) and not one["exact"]
    _, report = sample(lambda x, s: torch.sin(3 * x), x, SIGMAS, 20, with_report=True)
    full = told(report)
    assert full["exact"] and full["estimated_db"] is None and full["calls"] == 20
    both = joined(joined(None, one), full)
    assert both["calls"] == 26 and both["steps"] == 40 and not both["exact"]
    assert both["estimated_db"] == one["estimated_db"] and both["forwards"] is None
    assert joined(told(None, "a"), told(None, "b"))["reasons"] == ["a", "b"]
    left = joined(one, told(None, "left alone"))
    assert left["calls"] is None and left["estimated_db"] == one["estimated_db"]
    assert joined(one, told(None, "refused", 20))["calls"] == 26
    assert joined(one, {**one, "estimated_db": None})["estimated_db"] is None
    assert set(told(None)) == set(one) == set(both)
    json.dumps([one, full, both])
