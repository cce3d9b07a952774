"""The universal mesh: against an exhaustive search of the formula, its properties, its fall-backs.

benchmarks/universal.py measures what it is worth; nothing here does.
"""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import geoshrink
from geoshrink import METHODS, Blocks, Correction, Grid, Plan
from geoshrink.hosts.options import DEFAULT_SPEEDUP, check_options
from geoshrink.meshes.auto import UNIVERSAL, Shape, universal_anchors
from geoshrink.meshes.belief import MOST, even_stages
from geoshrink.meshes.corrected import corrected_anchors

modest = settings(deadline=None, max_examples=20)


def anchors_of(sigmas: Any, budget: int, shape: Shape = UNIVERSAL) -> tuple[int, ...]:
    found = universal_anchors(Grid.of(sigmas), budget, shape)
    assert found is not None
    return found


def shifted(T: int, shift: float = 1.0) -> list[float]:
    return [shift * u / (1 + (shift - 1) * u) for u in (1 - i / T for i in range(T + 1))]


def cost(tau: list[float], anchors: tuple[int, ...], shape: Shape) -> float:
    """Σ e²·growth² by the module's formula, cell by cell and stage by stage."""

    def y(t: float) -> float:
        return math.log(1 - t + shape.a) - shape.c * math.log(t + shape.b)

    total, T = 0.0, len(tau) - 1
    for q, k in enumerate(anchors):
        end = anchors[q + 1] if q + 1 < len(anchors) else T
        before = y(tau[anchors[q - 1]]) if q else y(tau[0]) - 1.0
        e = 0.0
        for n in range(k + 1, end):
            now = y(tau[n])
            e += (y(tau[n + 1]) - now) * (now - y(tau[k])) * (now - before)
        total += (e * (1 - tau[end] + shape.a) ** -shape.p) ** 2
    return total


@pytest.mark.parametrize("shift", [1.0, 3.0, 12.0])
@pytest.mark.parametrize("shape", [UNIVERSAL, Shape(0.1, 0.2, 1.0, 0.0)])
def test_the_anchors_are_the_cheapest_of_all(shift, shape):
    tau = shifted(9, shift)
    for B in range(1, 9):
        every = [(0, *rest) for rest in itertools.combinations(range(1, 9), B - 1)]
        best = min(cost(tau, anchors, shape) for anchors in every)
        found = anchors_of(tau, B, shape)
        assert found in every and cost(tau, found, shape) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(("shift", "B"), [(1.0, 2), (3.0, 3)])
def test_few_anchors_weigh_the_held_first_cell(shift, B):
    """With so few the first cell is wide: how far its prediction counts decides where it ends."""
    tau = shifted(50, shift)
    every = [(0, *rest) for rest in itertools.combinations(range(1, 50), B - 1)]
    assert anchors_of(tau, B) == min(every, key=lambda anchors: cost(tau, anchors, UNIVERSAL))
    assert anchors_of(tau, B) == {2: (0, 6), 3: (0, 6, 28)}[B]


def corrected_cost(
    points: list[float], anchors: tuple[int, ...], share: float, growth: list[float], first: float
) -> float:
    """The same for corrected cells: interpolation and a share of prediction."""
    total, T = 0.0, len(points) - 1
    for q, k in enumerate(anchors):
        last = q + 1 == len(anchors)
        end = T if last else anchors[q + 1]
        before = points[anchors[q - 1]] if q else points[0] - first
        stages = [(points[n], points[n + 1] - points[n]) for n in range(k + 1, end)]
        ahead = sum(step * (now - points[k]) * (now - before) for now, step in stages)
        between = sum(step * (now - points[k]) * (points[end] - now) for now, step in stages)
        e = ahead if last else between + share * ahead
        total += (e * growth[end]) ** 2
    return total


@pytest.mark.parametrize("starts", [(4,), (1, 6), (3, 5, 8)])
def test_with_regimes_they_are_the_cheapest_of_all_that_begin_each(starts):
    """As one mesh over the grid."""
    tau = shifted(9, 3.0)
    with pytest.raises(ValueError, match="smaller than the number of regimes"):
        universal_anchors(Grid.of(tau, regimes=starts), len(starts))
    for B in range(1 + len(starts), 9):
        every = [(0, *rest) for rest in itertools.combinations(range(1, 9), B - 1)]
        fitting = [anchors for anchors in every if set(starts) <= set(anchors)]
        found = universal_anchors(Grid.of(tau, regimes=starts), B)
        least = min(cost(tau, anchors, UNIVERSAL) for anchors in fitting)
        assert found in fitting
        assert cost(tau, found, UNIVERSAL) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("T", [300, 1000])
@pytest.mark.parametrize("B", [20, MOST, 200])
def test_regimes_beyond_the_exact_search(T, B):
    plan = Plan.of(shifted(T), B, regimes=(7, 101, 222))
    assert plan.budget == B and {0, 7, 101, 222} <= set(plan.anchors)


@pytest.mark.parametrize("shift", [1.0, 3.0])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("even", [0.0, 0.1, 2.0])
def test_the_mesh_for_corrected_cells_is_the_cheapest_of_all(shift, share, even):
    """Both beliefs written out, each in units of its own best."""
    tau, a, b, c, p = shifted(9, shift), *UNIVERSAL
    y = [math.log(1 - t + a) - c * math.log(t + b) for t in tau]
    growth = [(1 - t + a) ** -p for t in tau]
    for B in range(1, 9):
        every: list[tuple[int, ...]] = [
            (0, *rest) for rest in itertools.combinations(range(1, 9), B - 1)
        ]
        noise = {one: corrected_cost(y, one, share, growth, 1.0) for one in every}
        stage = {
            one: corrected_cost([n / 9 for n in range(10)], one, share, [1.0] * 10, 0.2)
            for one in every
        }
        weight = even * min(noise.values()) / min(stage.values())
        cost = {one: noise[one] + weight * stage[one] for one in every}
        found = corrected_anchors(Grid.of(tau), B, share=share, even=even)
        assert found is not None
        assert cost[found] <= min(cost.values()) * (1 + 1e-9) + 1e-15


def test_the_mesh_for_corrected_cells_by_name():
    grid, more = shifted(50, 3.0), Grid.of(shifted(25, 3.0), regimes=[4, 19])
    plan, auto = (Plan.of(grid, 10, anchors=name) for name in ("corrected", "auto"))
    assert plan.mesh == "corrected" and plan.anchors == corrected_anchors(plan.grid, 10)
    assert plan.anchors[-1] > auto.anchors[-1]  # nothing corrects the last cell
    assert {4, 19} <= set(Plan.of(more, 10, anchors="corrected").anchors)
    assert Plan.of(grid, 50, anchors="corrected").anchors == tuple(range(50))
    rising = Plan.of([2 - i / 20 for i in range(21)], 8, anchors="corrected")
    assert rising.mesh.endswith("(no corrected mesh: noise levels unknown or rising)")


def test_even_belief_keeps_anchors_from_crowding():
    """On an even grid the y of our models puts seven of ten anchors before stage 22."""
    grid = Grid.of(shifted(50, 1.0))
    crowded, weighed = (corrected_anchors(grid, 10, even=even) for even in (0.0, 0.1))
    assert crowded == (0, 1, 2, 3, 5, 8, 13, 22, 36, 47)
    assert weighed == (0, 1, 2, 4, 7, 12, 20, 29, 38, 46)


@modest
@given(st.integers(12, 1000), st.data())
def test_so_many_anchors_as_the_budget_in_order_from_stage_0(T, data):
    B = data.draw(st.integers(4, T - 1))
    B = B if B > MOST else min(B, 30)
    plan = Plan.of(shifted(T, data.draw(st.sampled_from([1.0, 3.0, 12.0]))), B, anchors="auto")
    assert plan.budget == B and plan.anchors[0] == 0 and plan.mesh == "auto"
    assert plan.anchors == universal_anchors(plan.grid, B)


def test_the_default_corrects_its_cells():
    for T in (6, 28, 50):
        for B in range(4, T):
            plan = Plan.of(shifted(T, 3.0), B)
            caution = Correction("half", 0.5 if B <= 8 else 0.0)
            same: dict[str, Any] = dict(
                anchors="corrected", rule="signed time", correct=caution, clock="mesh"
            )
            fixed = replace(plan, slow=())
            assert fixed == Plan.of(shifted(T, 3.0), B, **same) and plan.mesh == "corrected"
            assert plan == Plan.of(shifted(T, 3.0), B, correct=True)
            assert {str(rule) for rule in plan.rules} == {"signed time"}
            before = Plan.of(shifted(T, 3.0), B, correct=False)
            assert before == Plan.of(shifted(T, 3.0), B, anchors="auto")
            assert before.mesh == "auto" and before.correct is None and before.clock == "sigma"


@pytest.mark.parametrize(
    "own",
    [
        dict(anchors="sigma"),
        dict(rule="chordal"),
        dict(coefficients=[None] * 50),
        dict(clock="sigma"),
        dict(space="data"),
        dict(refine=2),
        dict(data=1.0),  # noise rises
        METHODS["paper"],
    ],
)
def test_who_chooses_a_method_chooses_the_correction(own):
    plan = Plan.of(shifted(50, 3.0), 10, **own)
    assert plan.correct is None and plan.clock == "sigma"
    assert Plan.of(shifted(50, 3.0), 10, blocks=Blocks((0, 1))).correct is not None


def test_every_stage_leaves_nothing_to_correct():
    plan = Plan.of(shifted(50), 50, correct=True)
    assert plan.exact and plan.correct is None and plan == Plan.of(shifted(50), 50)


def test_more_anchors_come_where_the_start_and_the_data_are():
    for shift in (1.0, 3.0):
        tau = np.asarray(shifted(50, shift))
        gaps = -np.diff(tau[[*anchors_of(tau, 15), 50]])
        widest = int(gaps.argmax())
        assert gaps[0] < gaps.min() + 1e-12 and 1 < widest < len(gaps) - 1
        assert gaps[-1] < 0.7 * gaps[widest]


def test_beyond_the_exact_search_the_mesh_in_sigma_stays():
    def noise(T: int) -> np.ndarray:
        return np.asarray(shifted(T))[list(anchors_of(shifted(T), 10))]

    assert np.abs(noise(MOST) - noise(MOST + 2)).max() < 2 / MOST
    assert np.abs(noise(900) - noise(1000)).max() < 2 / MOST


def test_a_long_grid_by_heart():
    """Pins the density by which a long grid is thinned before the search."""
    expected = (0, 6, 25, 44, 72, 110, 160, 228, 313, 422, 518, 582)
    assert anchors_of(shifted(600, 3.0), 12) == expected


def test_stages_at_one_noise_level_are_no_rise():
    """Halving both α and σ leaves τ where it was."""
    alphas, sigmas = [0.0, 0.2, 0.8, 0.4, 0.9, 1.0], [1.0, 0.8, 0.6, 0.3, 0.1, 0.0]
    grid = Grid.of(sigmas, prediction="sample", alphas=alphas)
    assert grid.tracks[0].tau[2] == grid.tracks[0].tau[3]
    assert universal_anchors(grid, 3) is not None


def test_rounding_direction_and_units_do_not_move_anchors():
    for T, B in [(28, 7), (50, 10), (50, 16), (100, 20)]:
        for shift in (1.0, 3.0, 7.0):
            grid = shifted(T, shift)
            expected = Plan.of(grid, B, anchors="auto").anchors
            single = np.asarray(grid, dtype=np.float32).tolist()
            assert Plan.of(single, B, anchors="auto").anchors == expected
            rising = [1 - s for s in grid]
            assert Plan.of(rising, B, anchors="auto", data=1.0).anchors == expected
            doubled = Plan.of([*grid, 0.0], B, anchors="auto")
            assert doubled.anchors == expected and doubled.steps == T


def test_noise_levels_of_other_outputs_are_measured_in_tau():
    """α = 1 − σ makes a noise prediction's grid that of a flow."""
    grid = shifted(50)[1:]
    flow = Plan.of(grid, 10, anchors="auto").anchors
    noise = Plan.of(grid, 10, anchors="auto", prediction="epsilon", alphas="flow")
    assert noise.anchors == flow and noise.mesh == "auto"
    sigmas = [math.sin(u * 1.5) for u in shifted(50)]
    assert Plan.of(sigmas, 10, anchors="auto", prediction="epsilon", alphas="vp").mesh == "auto"


UNKNOWN: dict[str, dict[str, Any]] = {
    "rising, data unknown": dict(sigmas=[i / 50 for i in range(51)]),
    "ends before the data": dict(sigmas=[1 - i / 51 for i in range(51)]),
    "timesteps": dict(sigmas=[1000 - 20 * i for i in range(51)]),
    "from data to noise": dict(sigmas=[i / 50 for i in range(51)], data=0.0),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_grids_that_do_not_say_how_noisy_they_are_get_the_default_and_a_reason(name):
    options = dict(UNKNOWN[name])
    plan, sigma = (Plan.of(**options, budget=10, anchors=a) for a in ("auto", "sigma"))
    assert plan.anchors == sigma.anchors and plan.rules == sigma.rules
    assert plan.mesh.startswith(f"{sigma.mesh} (no auto mesh: ") and "noise levels" in str(plan)
    assert universal_anchors(plan.grid, 10) is None


@modest
@given(st.integers(0, 2**32))
def test_every_regime_is_queried_where_it_begins(seed):
    rng = np.random.default_rng(seed)
    T = int(rng.integers(10, 60))
    regimes = sorted(rng.choice(np.arange(1, T), int(rng.integers(1, 4)), replace=False).tolist())
    B = int(rng.integers(max(4, len(regimes) + 1), T + 1))
    found = universal_anchors(Grid.of(shifted(T, 3.0), regimes=regimes), B)
    assert found is not None and len(set(found)) == B and {0, *regimes} <= set(found)


def test_bad_budgets_are_refused_as_by_the_other_meshes():
    bad: list[Any] = [3, 0, 2.5, "7", None]
    for budget in bad:
        said = []
        for mesh in ("auto", "sigma"):
            if budget is None:
                said.append(Plan.of(shifted(50), anchors=mesh).exact)
                continue
            with pytest.raises((ValueError, TypeError)) as error:
                Plan.of(shifted(50), budget, anchors=mesh)
            said.append((error.type, str(error.value)))
        assert said[0] == said[1]
    with pytest.raises(ValueError, match="smaller than the number of regimes, 6"):
        Plan.of(shifted(50), 5, anchors="auto", regimes=[5, 10, 20, 30, 40])
    with pytest.raises(ValueError, match="not both"):
        Plan.of(shifted(50), 5, speedup=2, anchors="auto")
    assert Plan.of(shifted(50), 2, anchors="auto", rule="hold").budget == 2


def test_the_rule_is_the_default_s_and_the_plan_says_auto():
    plan = Plan.of(shifted(50), 10, anchors="auto")
    assert str(plan) == "10 of 50 stages (auto anchors, signed time, output space)"
    assert plan.rules == Plan.of(shifted(50), 10).rules
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("space", ["output", "data"])
def test_all_stages_are_the_plain_run_bit_for_bit(space):
    grid = shifted(15, 3.0)

    def velocity(x, sigma):
        return torch.sin(3 * x) * (1 + sigma)

    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    plain = geoshrink.sample(velocity, x, grid)
    assert torch.equal(geoshrink.sample(velocity, x, grid, 15, anchors="auto", space=space), plain)
    assert not torch.equal(
        geoshrink.sample(velocity, x, grid, 5, anchors="auto", space=space), plain
    )


def test_a_pipeline_s_options_take_it():
    assert check_options(10, {"anchors": "auto"}) == {"anchors": "auto", "budget": 10}
    assert check_options(None, {"anchors": "auto", "space": "data"})["speedup"] == DEFAULT_SPEEDUP
    with pytest.raises(ValueError, match=r"unknown anchors 'Auto'; choose one of auto, "):
        check_options(10, {"anchors": "Auto"})


def test_stages_of_no_length_and_heavy_ones_keep_the_count():
    density = np.array([0.0, 0.0, 50.0, 0.0, 1.0, 1.0, 0.0])
    for count in range(1, 8):
        stages = even_stages(density, count)
        assert len(set(stages.tolist())) == count and stages.max() < 7
    flat = Grid.of(([1.0, *[0.5] * 8, 0.0], [1 - i / 9 for i in range(10)]))
    for B in range(1, 9):
        assert len(set(universal_anchors(flat, B) or ())) == B


def test_the_constants_are_those_that_were_fitted():
    file = Path(__file__).parents[1] / "benchmarks" / "universal.json"
    fitted = json.loads(file.read_text(encoding="utf-8"))["without"]
    assert Shape(*fitted[""]["shape"]) == UNIVERSAL
    assert {"fruit", "motion", "digits", "objects"} < set(fitted)
