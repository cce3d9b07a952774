"""The registry: what every rule has, and a rule from outside the package, all the way through."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import geoshrink
import oracle
from geoshrink import Blocks, Plan, Rule, sample
from geoshrink.rules import RULES, Form, register_rule

STEPS, BUDGET = 14, 7
SIGMAS = [1 - i / STEPS for i in range(STEPS + 1)]
BUILT_IN = ("chordal", "log", "exp", "time", "fixed", "hold", "linear", "beta-kappa")


def field(x, sigma):
    return torch.sin(3 * x) * (1 + sigma) + torch.cos(5 * sigma * x)


def noise():
    return torch.randn(2, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def damped():
    """value/(1 + R)², a rule of somebody else's."""

    def omega(rule, exposure, energy, reach):
        return rule.value / (1 + exposure).square()

    register_rule(Form("damped", omega, numbers=("value",)))
    yield "damped(0.5)"
    del RULES["damped"]


def test_every_built_in_rule_has_an_oracle_of_its_name_and_says_what_it_is():
    assert tuple(RULES) == BUILT_IN and set(oracle.RULES) == set(BUILT_IN)
    for name, form in RULES.items():
        assert form.name == name and sys.modules[form.omega.__module__].__doc__
    assert {n for n, f in RULES.items() if f.kernel is None} == {"log", "exp"}
    assert all(f.kernel in (None, n) for n, f in RULES.items())


def test_a_rule_from_outside_runs(damped):
    still = noise()[:1]  # the outputs do not depend on the rule

    def report_of(rule):
        return sample(
            lambda x, s: field(still, s), still, SIGMAS, BUDGET, rule=rule, with_report=True
        )

    (x, report), (_, plain) = report_of(damped), report_of("chordal")
    assert x.isfinite().all() and "damped(0.5)" in str(report) and "floor" not in str(report)
    found, chordal = ([s.omega for s in r.stages if s.horizon is not None] for r in (report, plain))
    wanted = [0.5 * (w or 0) ** 2 for w in chordal]
    assert len(found) > 3 and found == pytest.approx(wanted, rel=1e-5)


def test_a_rule_from_outside_is_modified_like_any_other(damped):
    for rule, blocks in ((f"signed {damped}", Blocks()), (damped, Blocks(shared=True))):
        assert sample(field, noise(), SIGMAS, BUDGET, rule=rule, blocks=blocks).isfinite().all()
    rule = Rule.of(f"signed {damped}")
    assert str(rule) == "signed damped(0.5)" and eval(repr(rule), {"Rule": Rule}) == rule
    with pytest.raises(ValueError, match=r"damped\(value\)"):
        Rule.of("damped(1, 2)")


def test_a_plan_with_a_rule_from_outside_survives_json(damped):
    plan = Plan.of(SIGMAS, BUDGET, rule=f"signed {damped}")
    again = Plan.from_json(plan.to_json())
    assert again == plan and again.rules[0].form is RULES["damped"]
    assert torch.equal(sample(field, noise(), plan=again), sample(field, noise(), plan=plan))


def test_a_plan_whose_rule_is_not_registered_here_says_so(damped):
    text = Plan.of(SIGMAS, BUDGET, rule=damped).to_json()
    code = f"import geoshrink; geoshrink.Plan.from_json({text!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "unknown rule 'damped'" in done.stderr and "register_rule" in done.stderr


def test_plan_files_of_before_are_read():
    body = json.loads(Plan.of(SIGMAS, 4, rule="chordal").to_json())
    body["rules"] = [
        {},
        {"name": "time", "signed": True},
        {"name": "beta-kappa", "beta": 0.5, "clamp": True},
        {"name": "fixed", "value": 0.25},
    ]
    names = [str(rule) for rule in Plan.from_json(json.dumps(body)).rules]
    assert names == ["chordal", "signed time", "beta-kappa(0.5, 1.0) [clamp]", "fixed(0.25)"]


@pytest.mark.parametrize(
    ("make", "quoted"),
    [
        (lambda: register_rule(Form("Two Words", RULES["hold"].omega)), "'Two Words'"),
        (lambda: Form("fine", RULES["hold"].omega, sees="all"), "'all'"),
        (lambda: Form("fine", RULES["hold"].omega, numbers=("gamma",)), "gamma"),
        (lambda: register_rule(RULES["hold"]), "'hold' is already registered"),
        (lambda: register_rule("hold"), "'hold'"),  # type: ignore[arg-type]
    ],
)
def test_forms_that_cannot_be(make, quoted):
    with pytest.raises((TypeError, ValueError), match=quoted):
        make()


def test_register_rule_is_public():
    assert geoshrink.register_rule is register_rule
