"""The published schemas: real files are what they say, and changed ones are not."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

import geoshrink
from geoshrink import Blocks, Plan
from geoshrink.plan_json import sealed
from geoshrink.planning.files import text_of
from geoshrink.purpose import Purpose
from geoshrink.sharing import Shelf

jsonschema: Any = pytest.importorskip("jsonschema")
ROOT = Path(__file__).parents[1]
SIGMAS = [1 - i / 12 for i in range(13)]
FACTS = Purpose(
    "a/b", "Net", "Euler", (("shift", 3.0), ("use_karras_sigmas", False)), 12, (1.0, 2.0)
)
PLANS = {
    "default": Plan.of(SIGMAS, 5),
    "of facts": replace(Plan.of(SIGMAS, 5), purpose=FACTS),
    "paper": Plan.of(SIGMAS, 5, anchors="geometric", rule="chordal"),
    "quality": Plan.of(SIGMAS, target_db=20, most=8, judge="worst"),
    "flow": Plan.of(SIGMAS, 5, target="flow"),
    "rules": Plan.of(SIGMAS, 4, rule=["hold", "fixed(0.5)", "beta-kappa(1, 0.5)", "signed time"]),
    "coefficients": Plan.of(SIGMAS, 4, coefficients=[None, *[0.5] * 11]),
    "blocks": Plan.of(SIGMAS, 5, blocks=Blocks(dims=(0, 1), groups=(1, 2))),
    "correct": Plan.of(SIGMAS, 5, correct=0.3),
    "two grids": Plan.of({"b": SIGMAS, "a": SIGMAS}, 5, regimes=[4]),
    "epsilon": Plan.of([5.0, 4.0, 3.0, 2.0, 1.0, 0.5, 0.0], 4, prediction="epsilon", alphas="ve"),
}


def validator(name: str) -> Any:
    text = files("geoshrink").joinpath("schemas", f"{name}.schema.json").read_text("utf-8")
    kind = jsonschema.Draft202012Validator
    kind.check_schema(json.loads(text))
    return kind(json.loads(text))


def profile_body() -> dict[str, Any]:
    noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    made = geoshrink.profile(lambda x, s: torch.cos(3 * x), noise, SIGMAS, budgets=[5], quiet=True)
    return json.loads(text_of(replace(made, purpose=FACTS)))


@pytest.fixture(scope="module")
def profile() -> dict[str, Any]:
    return profile_body()


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
def test_plans_are_what_the_schema_says(plan):
    for body in (sealed(plan), json.loads(plan.to_json())):
        validator("plan").validate(body)
        assert Plan.from_body(body) == plan


def test_a_held_plan_of_a_profile_is_one_too(profile):
    noise = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    made = geoshrink.profile(lambda x, s: torch.cos(3 * x), noise, SIGMAS, budgets=[5], quiet=True)
    plan = made.plan(target_db=20, hold=True)
    assert plan.aim is not None and plan.aim.rungs
    validator("plan").validate(sealed(plan))


def test_profiles_are_what_the_schema_says(profile):
    validator("profile").validate(profile)
    shipped = [*ROOT.glob("zoo/*.profile.json")]
    assert shipped
    for file in shipped[:3]:
        validator("profile").validate(json.loads(file.read_text("utf-8")))


def test_an_index_is_what_the_schema_says(tmp_path):
    Shelf(str(tmp_path / "shared")).push(PLANS["of facts"].save(tmp_path / "plan.json"))
    body = json.loads((tmp_path / "shared" / "index.json").read_text("utf-8"))
    validator("index").validate(body)
    broken(validator("index"), body, ("entries", 0), ("entries", 0, "purpose"))


def test_unknown_and_missing_fields_fail(profile):
    plan = sealed(PLANS["of facts"])
    places = (), ("grid",), ("grid", "tracks", 0), ("blocks",), ("correct",), ("purpose",)
    broken(validator("plan"), plan, *places, ("rules", 0))
    places = (), ("grid",), ("trials", 0), ("batches", 0), ("batches", 0, "grams", 0)
    broken(validator("profile"), profile, *places)


def test_values_of_another_kind_fail():
    plan = sealed(PLANS["of facts"])
    for name, value in (
        ("version", 2),
        ("anchors", []),
        ("anchors", [0.5]),
        ("space", "latent"),
        ("refine", 0),
        ("sha256", "abc"),
        ("purpose", {"guidance": "3"}),
        ("clock", "wall"),
    ):
        assert list(validator("plan").iter_errors(plan | {name: value})), (name, value)


def broken(schema: Any, body: dict[str, Any], *places: tuple[Any, ...]) -> None:
    """In each place an unknown field is refused, and so is the lack of each that is required."""
    for place in places:
        changed = copy.deepcopy(body)
        inside(changed, place)["unheard_of"] = 1
        assert list(schema.iter_errors(changed)), f"an unknown field in {place}"
    lost = 0
    for name in schema.schema["required"]:
        changed = {key: value for key, value in body.items() if key != name}
        assert list(schema.iter_errors(changed)), f"without {name}"
        lost += 1
    assert lost


def inside(body: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        body = body[step]
    return body
