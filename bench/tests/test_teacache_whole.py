"""TeaCache on networks of others: against a sampler by hand, and what it says where it cannot."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cases import small_case
from geoshrink_bench import foreign
from geoshrink_bench.cases.zoo_case import ZooCase
from geoshrink_bench.foreign.models import (
    alloys,
    avoiding,
    digits_cnn,
    digits_latent,
    digits_unet,
    digits_vit,
    letters_latent,
    peptide,
    sphere,
    vitals,
)
from geoshrink_bench.methods import teacache_whole
from geoshrink_bench.methods.base import Outcome
from geoshrink_bench.methods.registry import METHODS
from geoshrink_bench.methods.stack import intercepted
from geoshrink_bench.methods.teacache_whole import PLAIN, REUSES, Rescaling, TeaCacheWhole, Whole
from geoshrink_bench.methods.tuning import distance

NETWORKS = {
    "alloys": alloys.Alloys,
    "avoiding": avoiding.Avoiding,
    "digits-cnn": digits_cnn.Digits,
    "digits-latent": digits_latent.Digits,
    "digits-unet": digits_unet.Digits,
    "digits-vit": digits_vit.Digits,
    "letters-latent": letters_latent.Letters,
    "peptide": peptide.Peptide,
    "sphere": sphere.Sphere,
    "vitals": vitals.Vitals,
}


def untrained(name):
    """The network of a recipe with random weights."""
    torch.manual_seed(0)
    network = NETWORKS[name]().eval().requires_grad_(False)
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.is_floating_point() and not tensor.any():  # what only a checkpoint fills
            tensor.normal_(std=0.1)
    return foreign.Model(foreign.RECIPES[name], network)


def case_of(name="digits-vit", steps=10, **more):
    model = untrained(name)
    labels = [i % len(model.classes) for i in range(3)]
    return ZooCase(model, labels, model.noise(3), steps=steps, **more)


def by_hand(case, threshold, reuse, p=lambda d: d):
    """x and the full stages of an unguided flow on the linear path."""
    net, sigmas = case.network, case.grid().tracks[0].sigmas
    x, label, total, evaluated = case.noise, torch.tensor(case.labels), 0.0, []
    before = kept = None
    for i in range(len(sigmas) - 1):
        seen = net.entry(x, sigmas[i], label)
        if before is not None:
            total += p(float((seen - before).abs().mean() / before.abs().mean()))
        before = seen
        tokens = None
        if kept is None or total >= threshold or i == len(sigmas) - 2:
            total, data = 0.0, net(x, sigmas[i], label)
            evaluated.append(i)
            if reuse == "stack":
                tokens = seen
                for layer in net.stack:
                    tokens = layer(tokens)
                kept = tokens - seen
            else:
                kept = data - x if reuse == "input" else data
        elif reuse == "stack":
            tokens = (seen + kept)[:, :16]
            data = net.unpatch(tokens.mT.reshape(len(x), digits_vit.WIDTH, 4, 4))
        else:
            data = x + kept if reuse == "input" else kept
        velocity = (x - data) / sigmas[i]
        x = x + (sigmas[i + 1] - sigmas[i]) * velocity
    return x, tuple(evaluated)


@pytest.mark.parametrize("rescaling", [PLAIN, Rescaling((5.0, 0.5, 0.02), least=0.0, most=0.1)])
@pytest.mark.parametrize("reuse", REUSES)
def test_by_hand(reuse, rescaling):
    case = case_of(guidance=1.0)
    x, evaluated = by_hand(case, 0.3, reuse, rescaling)
    assert 3 < len(evaluated) < 9
    outcome = TeaCacheWhole(0.3, reuse, rescaling).run(case, 0)
    assert outcome.evaluated == evaluated and outcome.partial == 0
    assert torch.allclose(outcome.x, x, atol=1e-5)
    tokens, picture = 3 * 20 * digits_vit.WIDTH * 4, 3 * 28 * 28 * 4  # bytes
    assert outcome.held == tokens + (tokens if reuse == "stack" else picture)


@pytest.mark.parametrize("reuse", REUSES)
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_without_leave_to_skip_it_is_the_plain_run(reuse, guidance):
    case = case_of(guidance=guidance)
    outcome = TeaCacheWhole(0.0, reuse).run(case, 10)
    assert torch.equal(outcome.x, case.plain().x) and outcome.evaluations == 10
    assert "forward" not in vars(case.network)


def test_a_switch_of_guidance_is_full():
    case = case_of(guidance=2.0, interval=(0.3, 0.75))
    switches = [i for i, s in enumerate(case.grid().tracks[0].sigmas) if s in (0.7, 0.2)]
    outcome = TeaCacheWhole(math.inf).run(case, 0)
    assert set(switches) <= set(outcome.evaluated) and len(outcome.evaluated) == 4
    assert outcome.x.isfinite().all()


def test_p_stays_within_what_it_was_fitted_to():
    p = Rescaling((1.0, 0.0, 0.0), least=0.2, most=0.5)
    assert [p(0.1), p(0.3), p(9.0)] == pytest.approx([0.04, 0.09, 0.25])
    assert math.isnan(p(math.nan)) and PLAIN(7.5) == 7.5


def test_p_is_fitted_to_the_changes_of_full_runs():
    one = case_of(steps=12, guidance=1.0)
    cases, pairs = [one, replace(one, noise=one.model.noise(3, seed=9))], []
    for case in cases:
        net: Any = case.network
        label, before = torch.tensor(case.labels), None
        x, sigmas = case.noise, case.grid().tracks[0].sigmas
        for i in range(12):
            both = net.entry(x, sigmas[i], label), net(x, sigmas[i], label)
            if before is not None:
                moved = [(a - b).abs().mean() / b.abs().mean() for a, b in zip(both, before)]
                pairs.append([float(m) for m in moved])
            before = both
            x = x + (sigmas[i + 1] - sigmas[i]) * (x - both[1]) / sigmas[i]
    found = Rescaling.fitted(cases)
    changes = [d for d, _ in pairs]
    assert (found.least, found.most) == pytest.approx((min(changes), max(changes)), rel=1e-4)
    wanted = np.polyfit(changes, [moved for _, moved in pairs], 4)
    middle = sorted(changes)[3:-3]
    assert [found(d) for d in middle] == pytest.approx(np.polyval(wanted, middle), rel=0.02)


def test_the_nearest_way_within_the_budget_is_taken():
    case = case_of(steps=12)
    method = METHODS["TeaCache (whole network)"]({}, lambda: [case], 6)
    assert method.calibrated and method.adaptive and method.name in METHODS
    outcome = method.run(case, 6)
    assert outcome.evaluations == 6
    ways = [
        TeaCacheWhole.tune([case], 6, reuse=reuse, rescaling=way)
        for reuse in REUSES
        for way in (Rescaling.fitted([case]), PLAIN)
    ]
    offs = [distance(way.run(case, 6).x, case.full) for way in ways]
    assert distance(outcome.x, case.full) == min(offs) < max(offs)


def test_who_keeps_to_the_budget_comes_first():
    """Of the ways on this network some make 17 runs where 15 are allowed, and are nearer."""
    case = case_of("peptide", steps=20)
    ways = [
        TeaCacheWhole.tune([case], 15, reuse=reuse, rescaling=way).run(case, 15)
        for reuse in REUSES[1:]
        for way in (Rescaling.fitted([case]), PLAIN)
    ]
    nearest = min(ways, key=lambda outcome: distance(outcome.x, case.full))
    assert nearest.evaluations > 15.75
    assert TeaCacheWhole.fit([case], 15).run(case, 15).evaluations <= 15


def test_all_cases_judge(monkeypatch):
    cases = [case_of(steps=12), replace(case_of(steps=12), labels=[7, 8, 9])]
    judged = []
    monkeypatch.setattr(
        teacache_whole, "distance", lambda x, full: judged.append(full) or float(len(judged))
    )
    TeaCacheWhole.fit(cases, 6)
    assert {id(full) for full in judged} == {id(case.full) for case in cases}


def test_a_way_that_cannot_is_left_out(monkeypatch):
    case = case_of(steps=12)
    tune = TeaCacheWhole.tune.__func__
    for able, taken in ((REUSES[0], REUSES[0]), (REUSES[2], REUSES[2])):

        def some(cls, cases, budget, able=able, **settings):
            if settings["reuse"] != able or settings["rescaling"] != PLAIN:
                raise ValueError(f"not with {settings['reuse']}")
            return tune(cls, cases, budget, **settings)

        monkeypatch.setattr(TeaCacheWhole, "tune", classmethod(some))
        method = TeaCacheWhole.fit([case], 6)
        assert (method.reuse, method.rescaling) == (taken, PLAIN)


def test_what_is_kept_is_not_given_away():
    """A solver may write into what it is given."""
    case = case_of(guidance=1.0)
    session = Whole(case, math.inf, "output")
    with intercepted(session.modules, session.call):
        sigmas = case.grid().tracks[0].sigmas
        session.velocity(case.noise, sigmas[0])
        first = session.velocity(case.noise, sigmas[1]).clone()
        session.velocity(case.noise, sigmas[2]).zero_()
        assert torch.equal(session.velocity(case.noise, sigmas[1]), first)
    assert session.evaluated == [0]


def test_what_it_cannot_do_is_said():
    with pytest.raises(ValueError, match="reuse is one of stack, input, output; got 'all'"):
        TeaCacheWhole(0.1, "all")
    with pytest.raises(ValueError, match="a Peptide has no stack of blocks"):
        TeaCacheWhole(0.1, "stack").run(case_of("peptide"), 5)
    with pytest.raises(TypeError, match=r"does not say what its first layer sees .*use TeaCache"):
        TeaCacheWhole(0.1).run(small_case(), 5)
    with pytest.raises(ValueError, match=r"no threshold from 0 to 10 meets a budget of 1"):
        METHODS["TeaCache (whole network)"]({}, lambda: [case_of()], 1)
    with pytest.raises(ValueError, match="a Network does not say what its first layer sees"):
        foreign.Network().entry(torch.zeros(1), 0.5, torch.zeros(1))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_says_what_its_first_layer_sees(name):
    model = untrained(name)
    x, label = model.noise(2), model.labels([0, len(model.classes) - 1])
    seen = model.network.entry(x, 0.6, label)
    assert len(seen) == 2 and seen.isfinite().all()
    for other in (model.network.entry(x, 0.3, label), model.network.entry(x + 0.1, 0.6, label)):
        assert other.shape == seen.shape and not torch.allclose(other, seen)
    assert model.network(x, 0.6, label).shape == x.shape


def test_the_runs_of_all_cases_keep_the_budget(monkeypatch):
    """The nearer way keeps it on the first case alone."""
    case = case_of("peptide", steps=12)
    cases = [case, replace(case, labels=list(case.labels))]

    def run(method, case, budget):
        more = 4 * (method.reuse == "output" and case is cases[1])
        return Outcome(case.noise, tuple(range(6 + more)))

    monkeypatch.setattr(TeaCacheWhole, "run", run)

    def tune(cls, cases, budget, **more):
        return TeaCacheWhole(0.1, **more)

    monkeypatch.setattr(TeaCacheWhole, "tune", classmethod(tune))
    near = iter([2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0])  # input first, then output
    monkeypatch.setattr(teacache_whole, "distance", lambda x, full: next(near))
    assert TeaCacheWhole.fit(cases, 6).reuse == "input"


def test_of_all_refusals_the_first_is_said(monkeypatch):
    def tune(cls, cases, budget, **settings):
        raise ValueError(f"not with {settings['reuse']}")

    monkeypatch.setattr(TeaCacheWhole, "tune", classmethod(tune))
    with pytest.raises(ValueError, match="not with stack"):
        TeaCacheWhole.fit([case_of(steps=12)], 6)
