"""The registry: what every rule has, and a rule from outside the package, all the way through."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
import torch

import geoshrink
import oracle
from geoshrink import Blocks, Plan, Rule, sample
from geoshrink.rules import RULES, Form, register_rule
from geoshrink.rules.retention import Statistics, retention, turning

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


# --- without an innovation ----------------------------------------------------------------------


def test_without_a_previous_line_the_turning_is_one_whatever_the_product():
    stats = Statistics(*torch.tensor([[1.0], [0.0], [1e-3]]))
    for rule in (Rule(), Rule(eps_p=1e-6), Rule(eps_a=1e-6)):
        assert turning(rule, stats).tolist() == [1.0]


@pytest.mark.parametrize("rule", ["chordal", "log", "exp", "time", "beta-kappa(0.5, 2)", "linear"])
@pytest.mark.parametrize("nothing", ["S", "P"])
def test_where_there_is_no_innovation_the_derivatives_are_finite(rule, nothing):
    values = {"S": [1.0, 2.0], "P": [1.0, 2.0], "D": [0.0, 1.0]} | {nothing: [0.0, 2.0]}
    stats = Statistics(**{k: torch.tensor(v, requires_grad=True) for k, v in values.items()})
    omega = retention(Rule.of(rule), stats, torch.tensor([1.5]), torch.tensor([0.5]))
    omega.sum().backward()
    grads = [t.grad for t in stats if t.grad is not None]
    assert all(bool(grad.isfinite().all()) for grad in grads)
    assert all(float(grad[0]) == 0 for grad in grads) or nothing == "P"


@pytest.mark.parametrize("rule", ["log", "exp"])
def test_along_a_straight_line_the_derivatives_are_finite(rule):
    stats = Statistics(*(torch.ones(1, requires_grad=True) for _ in range(3)))
    omega = retention(Rule.of(rule), stats, torch.tensor([1.5]), torch.tensor([0.5]))
    omega.sum().backward()
    assert all(t.grad is None or bool(t.grad.isfinite().all()) for t in stats)
    assert omega.tolist() == [1.0]


# --- what a rule promises -----------------------------------------------------------------------


def test_only_the_plain_chordal_rule_keeps_the_floor():
    assert Rule().keeps_floor is True and Rule(eps_p=0.1).keeps_floor is True
    for other in (Rule(signed=True), Rule(eps_s=0.1), Rule("time"), Rule("hold")):
        assert other.keeps_floor is False


def test_a_rule_is_written_as_it_is_made():
    for rule in (Rule.of("signed time"), Rule(eps_p=0.1), Rule("fixed", value=0.25, clamp=True)):
        assert eval(repr(rule)) == rule
    assert repr(Rule(eps_p=0.1)) == "Rule(eps_p=0.1)"


@pytest.mark.parametrize("made", [RULES["chordal"], Rule()], ids=["form", "rule"])
def test_forms_and_rules_cannot_be_changed(made):
    with pytest.raises(FrozenInstanceError):
        made.name = "other"
