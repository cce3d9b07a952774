"""The solver's own time: which stages exist, where regimes begin, what an output says of the data.

Data maps and Euler steps are checked from first principles: draw x₀ and ε, form x = α·x₀ + σ·ε and
the true output, and see where the formulas land.
"""

import json
import math
from dataclasses import FrozenInstanceError, asdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from geoshrink.grid import Grid, read_grid, told_apart
from geoshrink.plan import Plan
from geoshrink.track import PREDICTIONS, Track

modest = settings(deadline=None, max_examples=60)
approx = pytest.approx


def sigmas_of(grid: Grid) -> list[float]:
    return list(grid.tracks[0].sigmas)


# --- stages of zero length --------------------------------------------------------------------


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(
    ("given_sigmas", "kept", "sigmas"),
    [
        ([1, 0.5, 0], (0, 1), [1, 0.5, 0]),
        ([1, 1, 0.5, 0], (1, 2), [1, 0.5, 0]),
        ([1, 1, 1, 0.5, 0], (2, 3), [1, 0.5, 0]),
        ([1, 0.5, 0, 0], (0, 1), [1, 0.5, 0]),
        ([1, 0.5, 0, 0, 0], (0, 1), [1, 0.5, 0]),
        ([1, 0.5, 0.5, 0], (0, 2), [1, 0.5, 0]),
        ([1, 1, 0.5, 0.5, 0.5, 0, 0], (1, 4), [1, 0.5, 0]),
        ([1, 1, 0, 0], (1,), [1, 0]),
    ],
)
def test_zero_length_stages_are_dropped(given_sigmas, kept, sigmas, flip):
    if flip:
        given_sigmas, sigmas = [1 - s for s in given_sigmas], [1 - s for s in sigmas]
    grid = Grid.of(given_sigmas)
    assert (grid.kept, grid.given, grid.steps) == (kept, len(given_sigmas) - 1, len(kept))
    assert sigmas_of(grid) == sigmas
    assert grid.effective == {stage: n for n, stage in enumerate(kept)}


@modest
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.booleans())
def test_dropping_stages_changes_no_length(gaps, ascending):
    """The kept stages are exactly those that move, each with its own two ends."""
    ends = np.cumsum([0, *gaps]) / 4
    sigmas = (ends if ascending else 10 - ends).tolist()
    if not any(gaps):
        with pytest.raises(ValueError, match="every stage of the grid has zero length"):
            Grid.of(sigmas)
        return
    grid = Grid.of(sigmas)
    assert grid.kept == tuple(n for n, gap in enumerate(gaps) if gap)
    own = sigmas_of(grid)
    for n, stage in enumerate(grid.kept):
        assert (own[n], own[n + 1]) == (sigmas[stage], sigmas[stage + 1])


def test_several_grids_drop_only_what_none_of_them_moves():
    grid = Grid.of(([1, 1, 0.5, 0.5, 0], [1, 0.8, 0.4, 0.4, 0]))
    assert grid.kept == (0, 1, 3)
    assert grid.tracks[0].sigmas == (1, 1, 0.5, 0)
    assert grid.tracks[1].sigmas == (1, 0.8, 0.4, 0)
    assert grid.tracks[0].horizon(2, 1, 0) == math.inf  # no span: never a division by zero
    assert grid.tracks[0].reach(2, 1, 0) == math.inf


# --- bad grids --------------------------------------------------------------------------------

BAD: list[tuple[Any, type[Exception], str]] = [
    ([], ValueError, "at least two values"),
    ([1.0], ValueError, r"at least two values .*1\.0"),
    ([1.0, math.nan, 0.0], ValueError, "value 1 is nan"),
    ([math.inf, 1.0, 0.0], ValueError, "value 0 is inf"),
    ([1.0, 0.5, -math.inf], ValueError, "value 2 is -inf"),
    ([1.0, 0.5, 0.6, 0.0], ValueError, r"turns at stage 1: 1, 0\.5, 0\.6"),
    ([0.0, 0.5, 0.5, 0.4, 1.0], ValueError, r"turns at stage 2: 0\.5, 0\.5, 0\.4"),
    ([1.0, 1.0, 1.0], ValueError, "every stage of the grid has zero length"),
    (torch.ones(2, 3), ValueError, r"one-dimensional, got shape \(2, 3\)"),
    (np.ones((2, 3)), ValueError, r"one-dimensional, got shape \(2, 3\)"),
    (torch.tensor(1.0), ValueError, r"one-dimensional, got shape \(\)"),
    (torch.tensor([]), ValueError, "at least two values"),
    (torch.tensor([1.0, math.nan]), ValueError, "value 1 is nan"),
    ("1, 0.5, 0", TypeError, "1, 0.5, 0"),
    (["1", "0"], TypeError, "'1'"),
    (5, TypeError, "got 5"),
    (None, TypeError, "got None"),
    (([1, 0.5, 0], [1, 0]), ValueError, r"same length, got \[3, 2\]"),
    ({"a": [1, 0.5, 0], "b": [1, 0.6, 0.7]}, ValueError, "turns at stage 1"),
    (([1, 0], [1, 1, 0]), ValueError, r"same length, got \[2, 3\]"),
]


@pytest.mark.parametrize(("sigmas", "error", "message"), BAD, ids=[repr(b[0])[:30] for b in BAD])
def test_bad_grids_are_named(sigmas, error, message):
    with pytest.raises(error, match=message):
        Grid.of(sigmas)
    with pytest.raises(error, match=message):
        Plan.of(sigmas, 4)


def test_the_value_that_is_no_number_is_quoted():
    # Was: the error for [1, None, 0] says "got 1", which is fine; None is what is wrong.
    with pytest.raises(TypeError, match="None"):
        Grid.of([1, None, 0])


@pytest.mark.parametrize("empty", [{}, [[], []], ()])
def test_an_empty_structure_of_grids_is_called_that(empty):
    # Was: Grid.of({}) says "all σ-grids need the same length, got []".
    with pytest.raises(ValueError, match=r"at least two values|no σ-grid|empty"):
        Grid.of(empty)


# --- the forms a grid may come in -------------------------------------------------------------

LINE = [1.0, 0.75, 0.5, 0.25, 0.0]  # exact in every format
FORMS: list[Any] = [
    LINE,
    tuple(LINE),
    iter(LINE),
    np.array(LINE),
    np.array(LINE, dtype=np.float32),
    np.array(LINE, dtype=np.float16),
    list(np.array(LINE)),
    torch.tensor(LINE),
    torch.tensor(LINE, dtype=torch.float64),
    torch.tensor(LINE, dtype=torch.bfloat16),
    torch.tensor(LINE, dtype=torch.float16),
    torch.tensor(LINE, requires_grad=True),
    [torch.tensor(s) for s in LINE],
    [torch.tensor(s, dtype=torch.bfloat16) for s in LINE],
    list(torch.tensor(LINE)),
    {"only": LINE},
    (LINE,),
]


@pytest.mark.parametrize("sigmas", FORMS, ids=lambda s: type(s).__name__)
def test_one_grid_in_many_forms(sigmas):
    grid = Grid.of(sigmas)
    assert len(grid.tracks) == 1
    assert grid.tracks[0] == Track(tuple(LINE), data=0.0)
    assert all(type(s) is float for s in grid.tracks[0].sigmas)


def test_a_grid_of_whole_numbers():
    assert sigmas_of(Grid.of(range(4, -1, -1))) == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert sigmas_of(Grid.of(torch.tensor([999, 500, 1]))) == [999.0, 500.0, 1.0]


def test_float32_values_are_taken_as_they_are():
    sigmas = torch.linspace(1, 0, 8)
    assert sigmas_of(Grid.of(sigmas)) == sigmas.double().tolist()
    coarse = torch.linspace(1, 0, 400, dtype=torch.bfloat16)  # bfloat16 repeats near 1
    grid = Grid.of(coarse)
    assert grid.given == 399 and grid.steps == len(set(coarse.tolist())) - 1 < 399


def test_a_reversed_array_is_a_grid():
    # Was: torch.as_tensor refuses numpy views with negative strides; np.linspace(0, 1, n)[::-1] is
    # how many people write a descending grid.
    assert sigmas_of(Grid.of(np.linspace(0, 1, 5)[::-1])) == LINE


def test_a_read_only_array_is_a_grid():
    # Was: torch.as_tensor warns about arrays that are not writable (an error under -W error).
    frozen = np.array(LINE)
    frozen.setflags(write=False)
    assert sigmas_of(Grid.of(frozen)) == LINE


@pytest.mark.parametrize("dtype", [np.longdouble, ">f8"])
def test_other_numpy_formats_are_grids(dtype):
    # Was: torch.as_tensor knows neither long doubles nor foreign byte order; np.asarray does.
    assert sigmas_of(Grid.of(np.array(LINE).astype(dtype))) == LINE


def test_structures_of_grids_keep_their_order():
    a, b, c = [1, 0.5, 0], [1, 0.4, 0], [0, 0.3, 1]
    for structure in ((a, b, c), [a, [b, c]], {"x": a, "y": (b, c)}, [torch.tensor(a), b, c]):
        tracks = Grid.of(structure).tracks
        assert [track.sigmas[1] for track in tracks] == approx([0.5, 0.4, 0.3])
        assert [track.data for track in tracks] == [0.0, 0.0, None]


# --- regimes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regimes", "starts"),
    [
        ((), ()),
        ((0,), ()),  # stage 0 always begins one
        ((1,), (1,)),
        ((2,), (2,)),  # stage 2 is dropped: the regime begins with the next that moves
        ((2, 3), (2,)),
        ((3, 2, 3), (2,)),
        ((4,), (3,)),
        ((5,), ()),  # nothing moves any more
        ((0, 1, 4), (1, 3)),
        (np.array([1, 4]), (1, 3)),
    ],
)
def test_regimes_are_counted_in_effective_stages(regimes, starts):
    grid = Grid.of([1, 0.8, 0.5, 0.5, 0.2, 0, 0], regimes=regimes)
    assert grid.kept == (0, 1, 3, 4)
    assert grid.regimes == starts
    assert all(type(start) is int for start in grid.regimes)
    spans = grid.spans()
    assert [first for first, _ in spans] == [0, *starts]
    assert [n for first, last in spans for n in range(first, last)] == list(range(grid.steps))


def test_a_regime_on_a_dropped_first_stage_is_no_restart():
    assert Grid.of([1, 1, 0.5, 0], regimes=[0]).regimes == ()
    assert Grid.of([1, 1, 0.5, 0], regimes=[1]).regimes == ()
    assert Grid.of([1, 1, 0.5, 0], regimes=[2]).regimes == (1,)


@pytest.mark.parametrize("start", [3, 4, -1, 1000])
def test_regimes_off_the_grid(start):
    with pytest.raises(ValueError, match=rf"regime start {start} .* 0 … 2"):
        Grid.of([1, 0.5, 0.2, 0], regimes=[start])


@pytest.mark.parametrize("regimes", [[1.5], [True], ["1"], [None]])
def test_regime_starts_are_stage_numbers(regimes):
    # Was: 1.5 silently becomes stage 2 and True stage 1; '1' fails with "'<=' not supported".
    with pytest.raises((TypeError, ValueError), match=repr(regimes[0])):
        Grid.of([1, 0.5, 0.2, 0], regimes=regimes)


# --- where the data is ------------------------------------------------------------------------


@pytest.mark.parametrize("end", [0.0, -0.0, 0])
@pytest.mark.parametrize("start", [1.0, 0.3, 80.0])
def test_a_grid_that_falls_to_zero_ends_at_the_data(start, end):
    assert Grid.of([start, start / 2, end]).tracks[0].data == 0.0


@pytest.mark.parametrize("sigmas", [[0, 0.5, 1], [1, 0.5, 0.1], [0, -0.5, -1], [-1, -0.5, 0]])
def test_data_space_is_refused_where_the_grid_does_not_know_its_end(sigmas):
    assert Grid.of(sigmas).tracks[0].data is None
    Plan.of(sigmas)  # in output space nobody needs to know
    ends = f"from {sigmas[0]:g} to {sigmas[-1]:g}"
    with pytest.raises(ValueError, match=rf"{ends}.*pass data=0\.0 .* or data=1\.0"):
        Plan.of(sigmas, space="data")


def test_data_space_is_refused_if_any_grid_does_not_know():
    with pytest.raises(ValueError, match="from 0 to 1 does not say where the data is"):
        Plan.of(([1, 0.5, 0], [0, 0.5, 1]), space="data")


@pytest.mark.parametrize(
    ("sigmas", "data"), [([0, 0.5, 1], 1.0), ([1, 0.5, 0.1], 0), ([1, 0.5, 0], 1)]
)
def test_a_declared_data_end_is_believed(sigmas, data):
    plan = Plan.of(sigmas, space="data", data=data)
    assert [t.data for t in plan.grid.tracks] == [float(data)]
    assert plan.track(0).data_map(1) == (1.0, data - 0.5)


@pytest.mark.parametrize("data", [math.nan, math.inf])
def test_a_data_end_is_finite(data):
    # Was: data=nan is accepted; every x̂₀ is nan then, and every skipped stage holds.
    with pytest.raises(ValueError, match=f"{data}"):
        Plan.of([1, 0.5, 0], space="data", data=data)


def test_a_data_end_is_not_inside_the_grid():
    # Was: accepted; at σ = data the output says nothing of the data (b = 0), and decode returns 0.
    with pytest.raises(ValueError, match=r"0\.5"):
        Plan.of([1, 0.75, 0.5, 0.25, 0], anchors=[0, 1, 3], space="data", data=0.5)


# --- data maps and Euler steps, from first principles -----------------------------------------


def levels(schedule: Any, sigmas: list[float]) -> list[float]:
    if not isinstance(schedule, str):
        return [float(a) for a in schedule]
    rules = {"vp": lambda s: math.cos(math.asin(s)), "ve": lambda s: 1.0, "flow": lambda s: 1 - s}
    return [rules[schedule](s) for s in sigmas]


def truth(prediction: str, alpha: float, sigma: float, x0, eps):
    """What a perfect model returns at x = α·x₀ + σ·ε; v is the rate of x along the circle of angle
    atan(σ/α), which for α² + σ² = 1 is α·ε − σ·x₀.
    """
    if prediction == "epsilon":
        return eps
    if prediction == "sample":
        return x0
    angle = math.atan2(sigma, alpha)
    return math.cos(angle) * eps - math.sin(angle) * x0


SCHEDULED: list[tuple[Any, list[float]]] = [
    ("vp", [0.999, 0.9, 0.6, 0.6, 0.2, 0.0]),
    ("vp", [0.8, 0.5, 0.1]),
    ("ve", [80.0, 14.0, 1.0, 0.03, 0.0]),
    ("flow", [0.99, 0.7, 0.3, 0.0]),
    ((0.2, 0.5, 0.9, 1.3), [3.0, 0.9, 0.4, 0.0]),  # neither normalised nor monotone in its radius
    (np.array([0.1, 0.4, 1.0]), [0.9, 0.5, 0.0]),
    (torch.tensor([0.125, 0.5, 1.0]), [0.9, 0.5, 0.0]),
]


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v"])
@pytest.mark.parametrize(("schedule", "sigmas"), SCHEDULED, ids=[str(i) for i in range(7)])
def test_outputs_convert_exactly(prediction, schedule, sigmas):
    grid = Grid.of(sigmas, prediction=prediction, alphas=schedule)
    track, alphas = grid.tracks[0], levels(schedule, sigmas)
    rng = np.random.default_rng(0)
    x0, eps = rng.standard_normal((2, 7))
    for n, stage in enumerate(grid.kept):
        a, s = alphas[stage], sigmas[stage]
        a1, s1 = alphas[stage + 1], sigmas[stage + 1]
        x, output = a * x0 + s * eps, truth(prediction, a, s, x0, eps)
        keep, gain = track.data_map(n)
        assert keep * x + gain * output == approx(x0, rel=1e-9, abs=1e-11)
        keep, gain = track.euler(n)
        assert keep * x + gain * output == approx(a1 * x0 + s1 * eps, rel=1e-9, abs=1e-11)
    assert track.tau == approx([oracle.tau(s, a) for s, a in zip(track.sigmas, track.alphas or ())])
    assert track.levels == tuple(zip(track.alphas or (), track.sigmas))
    assert track.data == 0.0


@pytest.mark.parametrize("prediction", ["sample", "v"])
@pytest.mark.parametrize("schedule", ["vp", "flow", (0.0, 0.5, 1.0)])
def test_data_and_v_outputs_start_from_pure_noise(prediction, schedule):
    """At α = 0 a noise prediction says nothing, but x₀ and v = −x₀ do."""
    track = Grid.of([1.0, 0.5, 0.0], prediction=prediction, alphas=schedule).tracks[0]
    x0, eps = np.random.default_rng(1).standard_normal((2, 7))
    a, b = track.data_map(0)
    output = truth(prediction, 0.0, 1.0, x0, eps)
    assert a * eps + b * output == approx(x0, abs=1e-12)
    p, g = track.euler(0)
    alpha1 = levels(schedule, [1.0, 0.5, 0.0])[1]
    assert p * eps + g * output == approx(alpha1 * x0 + 0.5 * eps, abs=1e-12)
    assert track.tau[0] == 1.0


FLOWS: list[tuple[list[float], float, Any]] = [
    ([1.0, 0.6, 0.25, 0.0], 0.0, lambda s: (1 - s, s)),
    ([0.9, 0.6, 0.1], 0.0, lambda s: (1 - s, s)),
    ([0.0, 0.4, 0.75, 1.0], 1.0, lambda s: (s, 1 - s)),
    ([80.0, 7.0, 0.1, 0.0], 0.0, lambda s: (1.0, s)),  # dx/dσ of a VE process
]


@pytest.mark.parametrize(("sigmas", "data", "mix"), FLOWS, ids=["down", "short", "up", "ve"])
def test_flow_outputs_convert_exactly(sigmas, data, mix):
    """dx/dσ by finite differences of the straight path, not by its formula."""
    track = Grid.of(sigmas, data=data).tracks[0]
    x0, eps = np.random.default_rng(2).standard_normal((2, 7))

    def path(s):
        alpha, sigma = mix(s)
        return alpha * x0 + sigma * eps

    for n in range(len(sigmas) - 1):
        s, s1 = sigmas[n], sigmas[n + 1]
        v = (path(s + 0.25) - path(s - 0.25)) / 0.5
        a, b = track.data_map(n)
        assert a * path(s) + b * v == approx(x0, abs=1e-9)
        p, g = track.euler(n)
        assert p * path(s) + g * v == approx(path(s1), abs=1e-9)
    assert track.tau == track.sigmas
    if max(sigmas) <= 1:
        for (alpha, sigma), s in zip(track.levels or (), sigmas):
            assert (alpha, sigma) == approx(mix(s))
    else:
        assert track.levels is None


@modest
@given(st.integers(0, 2**32), st.sampled_from(["epsilon", "sample", "v"]), st.booleans())
def test_ddim_steps_compose_to_the_path_on_random_schedules(seed, prediction, tied):
    """A whole run with the true outputs ends where the path ends, whatever α and σ do."""
    rng = np.random.default_rng(seed)
    T = int(rng.integers(2, 12))
    sigmas = np.sort(rng.uniform(0.01, 5, T + 1))[::-1].tolist()
    if tied:
        sigmas[1] = sigmas[0]
    alphas = np.sort(rng.uniform(0.05, 2, T + 1)).tolist()
    if tied:
        alphas[1] = alphas[0]
    grid = Grid.of(sigmas, prediction=prediction, alphas=alphas)
    x0, eps = rng.standard_normal((2, 5))
    x = alphas[0] * x0 + sigmas[0] * eps
    for n in range(grid.steps):
        track = grid.tracks[0]
        assert track.alphas is not None
        p, g = track.euler(n)
        x = p * x + g * truth(prediction, track.alphas[n], track.sigmas[n], x0, eps)
    assert x == approx(alphas[-1] * x0 + sigmas[-1] * eps, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v"])
def test_a_stage_where_only_alpha_moves(prediction):
    # Was: the stage is dropped as "zero length" although α·x₀ changes from 0.4·x₀ to 0.6·x₀: the
    # run goes on from a state with the wrong α.
    sigmas, alphas = [0.9, 0.5, 0.5, 0.0], [0.1, 0.4, 0.6, 1.0]
    grid = Grid.of(sigmas, prediction=prediction, alphas=alphas)
    x0, eps = np.random.default_rng(3).standard_normal((2, 5))
    track = grid.tracks[0]
    assert track.alphas is not None
    x = alphas[0] * x0 + sigmas[0] * eps
    for n in range(grid.steps):
        p, g = track.euler(n)
        x = p * x + g * truth(prediction, track.alphas[n], track.sigmas[n], x0, eps)
    # at the true (α, σ) of each stage the outputs above are right only if no stage was lost
    assert grid.steps == 3
    assert x == approx(x0, abs=1e-9)


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v"])
def test_a_step_at_constant_sigma_moves_with_alpha(prediction):
    # Was: Track.euler returns (1, 0) wherever σ stands still, even if α does not.
    track = Track((0.9, 0.5, 0.5, 0.0), prediction, (0.1, 0.4, 0.6, 1.0), 0.0)
    x0, eps = np.random.default_rng(4).standard_normal((2, 5))
    p, g = track.euler(1)
    x, output = 0.4 * x0 + 0.5 * eps, truth(prediction, 0.4, 0.5, x0, eps)
    assert p * x + g * output == approx(0.6 * x0 + 0.5 * eps, abs=1e-9)


def test_a_track_that_has_arrived_stands_still():
    """Two slots, one of which reaches σ = 0 first: no division by its zero."""
    for prediction in ("epsilon", "sample", "v"):
        grid = Grid.of(
            ([0.9, 0.5, 0.0, 0.0], [0.9, 0.6, 0.3, 0.0]), prediction=prediction, alphas="vp"
        )
        assert grid.tracks[0].euler(2) == (1.0, 0.0)
        assert grid.tracks[1].euler(2) != (1.0, 0.0)


# --- bad schedules ----------------------------------------------------------------------------


def bad_schedule(message, sigmas=(0.9, 0.5, 0.0), **options):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        Grid.of(list(sigmas), **options)
    return str(error.value)


def test_schedules_that_cannot_be():
    bad_schedule("unknown prediction 'foo'; choose one of flow", prediction="foo")
    for prediction in PREDICTIONS[1:]:
        bad_schedule("pass alphas='vp'", prediction=prediction)
        bad_schedule("unknown alphas 'cosine'", prediction=prediction, alphas="cosine")
        bad_schedule("2 values, the σ-grid 3", prediction=prediction, alphas=[0.1, 1])
        bad_schedule("4 values, the σ-grid 3", prediction=prediction, alphas=[0.1, 0.2, 0.3, 1])
        bad_schedule("nan", prediction=prediction, alphas=[0.1, math.nan, 1])
        bad_schedule(r"not negative, got \(-0\.1", prediction=prediction, alphas=[-0.1, 0.5, 1])
        bad_schedule(r"fall towards 0.*0\.5", (0.0, 0.5, 0.9), prediction=prediction, alphas="vp")
        bad_schedule(r"fall towards 0", (0.9, 0.5, -0.1), prediction=prediction, alphas="vp")
        bad_schedule(
            r"σ ≤ 1, got 80; did you mean 've'", (80.0, 0.0), prediction=prediction, alphas="vp"
        )
    bad_schedule("start the grid below σ = 1", (1.0, 0.5, 0.0), prediction="epsilon", alphas="vp")
    bad_schedule("a flow grid has none", alphas=[0.1, 0.5, 1])
    bad_schedule("a flow grid has none", alphas="vp")
    assert Grid.of([0.9, 0.5, 0.0], alphas="flow") == Grid.of([0.9, 0.5, 0.0])


@pytest.mark.parametrize("alphas", [np.array([0.1, 0.5, 1]), torch.tensor([0.1, 0.5, 1])])
def test_arrays_of_alphas_on_a_flow_grid(alphas):
    # Was: "The truth value of an array with more than one element is ambiguous".
    bad_schedule("a flow grid has none", alphas=alphas)


def test_sigma_just_above_one_is_shown():
    # Was: "alphas='vp' needs σ ≤ 1, got 1": the value is formatted with :g.
    message = bad_schedule("σ ≤ 1", (1 + 1e-7, 0.5, 0.0), prediction="v", alphas="vp")
    assert "got 1;" not in message


def test_a_point_without_signal_or_noise():
    # Was: α = σ = 0 is x = 0 whatever the data: accepted, then ZeroDivisionError from tau.
    bad_schedule("α|alphas", prediction="sample", alphas=[0.1, 0.5, 0.0])


@pytest.mark.parametrize("alphas", [5, ([0.1, 0.5, 1], [0.1, 0.5, 1])])
def test_alphas_of_the_wrong_kind_are_named(alphas):
    # Was: "'int' object is not iterable" and "float() argument must be …, not 'list'".
    message = bad_schedule("alphas", prediction="v", alphas=alphas)
    assert "5" in message


# --- horizons ---------------------------------------------------------------------------------


@modest
@given(st.integers(0, 2**32), st.booleans(), st.integers(2, 30))
def test_horizon_and_reach_equal_the_oracle(seed, ascending, T):
    rng = np.random.default_rng(seed)
    sigmas = np.cumsum(rng.uniform(0.001, 1, T + 1)) * (1 if ascending else -1) + rng.normal()
    track = Grid.of(sigmas).tracks[0]
    for _ in range(5):
        j, k = sorted(rng.choice(T, 2, replace=False).tolist())
        for n in range(k, T):
            assert track.horizon(n, k, j) == approx(oracle.horizon(sigmas, n, k, j), rel=1e-12)
            assert track.reach(n, k, j) == approx(oracle.reach(sigmas, n, k, j), rel=1e-12)
            assert 0 <= track.reach(n, k, j) < track.horizon(n, k, j)


@modest
@given(st.integers(0, 2**32), st.floats(-10, 10), st.floats(1e-3, 1e3), st.booleans())
def test_horizons_ignore_an_affine_change_of_time(seed, offset, scale, flip):
    rng = np.random.default_rng(seed)
    sigmas = np.cumsum(rng.uniform(0.1, 1, 12))
    moved = offset + (-scale if flip else scale) * sigmas
    for anchors in ([0, 1, 4, 8], [0, 3, 5, 6]):
        plain, other = (Plan.of(s, anchors=anchors).horizons() for s in (sigmas, moved))
        assert np.array(other) == approx(np.array(plain), rel=1e-6, abs=1e-9)


def test_the_horizon_is_taken_from_the_dropped_grid():
    """A zero-length stage is no stage: ρ and λ are those of the grid without it."""
    thin = Plan.of([1, 0.8, 0.8, 0.5, 0.2, 0.2, 0], anchors=[0, 1])
    plain = Plan.of([1, 0.8, 0.5, 0.2, 0], anchors=[0, 1])
    assert thin.horizons() == plain.horizons()
    assert plain.horizons()[2] == approx((2.25, 1.5))  # (0.35 − 0.8)/(−0.2), (0.5 − 0.8)/(−0.2)


def test_a_grid_is_its_own():
    grid = Grid.of([1.0, 0.5, 0.0])
    assert Grid.of(grid) is grid


def test_a_slot_has_its_own_track_or_the_only_one():
    one, two = Grid.of([1.0, 0.5, 0.0]), Grid.of(([1.0, 0.5, 0.0], [1.0, 0.7, 0.0]))
    assert one.track(0) is one.track(3) is one.tracks[0]
    assert [two.track(0), two.track(1)] == list(two.tracks)


def test_the_data_may_be_at_either_end_of_a_flow_and_not_inside():
    assert [Grid.of([2.0, 3.0, 4.0], data=d).tracks[0].data for d in (2.0, 4.0)] == [2.0, 4.0]
    for sigmas, inside in (([2.0, 3.0, 4.0], 3.0), ([2.0, 0.5, 0.0], 1.0)):
        with pytest.raises(ValueError, match=f"data={inside} is not where the grid"):
            Grid.of(sigmas, data=inside)


# --- levels, weights and tolerances -----------------------------------------------------------


@pytest.mark.parametrize(
    ("sigmas", "data", "levels"),
    [
        ((1.0, 0.25, 0.0), 0.0, ((0.0, 1.0), (0.75, 0.25), (1.0, 0.0))),
        ((0.0, 0.25, 1.0), 1.0, ((0.0, 1.0), (0.25, 0.75), (1.0, 0.0))),
        ((0.5, 0.25), 0.0, ((0.5, 0.5), (0.75, 0.25))),
        ((1.0, 0.25, 0.0), None, None),
        ((1.0, 0.5), 0.5, None),
        ((1.25, 0.0), 0.0, None),
        ((1.0, -0.25), 0.0, None),
    ],
)
def test_a_flow_knows_its_levels_between_noise_at_one_and_data_at_zero_or_back(
    sigmas, data, levels
):
    assert Track(sigmas, data=data).levels == levels


@pytest.mark.parametrize("data", [True, False, "0", [0.0]])
def test_a_data_end_is_a_number(data):
    with pytest.raises(ValueError, match="data is the σ at which x is data, a number; got"):
        Track((1.0, 0.0), data=data)


@pytest.mark.parametrize("data_space", [False, True])
@pytest.mark.parametrize("prediction", ["flow", "epsilon", "sample", "v"])
def test_euler_weights_are_those_of_the_steps_one_by_one(prediction, data_space):
    alphas = None if prediction == "flow" else "vp"
    track = Grid.of([0.9, 0.75, 0.5, 0.2, 0.1], prediction=prediction, alphas=alphas).tracks[0]
    track = Track(track.sigmas, prediction, track.alphas, 0.0)
    stages, z, x = range(1, 4), [3.0, -2.0, 5.0], 7.0
    shrink, weights = track.euler_weights(stages, data_space)
    made = shrink * x + sum(c * value for c, value in zip(weights, z, strict=True))
    for n, value in zip(stages, z):
        p, g = track.euler(n)
        a, b = track.data_map(n)
        x = p * x + g * ((value - a * x) / b if data_space else value)
    assert made == approx(x, rel=1e-12)


def test_a_stage_that_starts_at_the_data_has_no_weight_in_data_space():
    track = Track((1.0, 0.5, 0.0, -0.5), data=0.0)
    assert track.euler_weights(range(2, 3), True) == (1.0, [0.0])
    assert track.euler_weights(range(2, 3), False) == (1.0, [-0.5])


@pytest.mark.parametrize(
    ("mine", "theirs", "same"),
    [
        (0.0, 0.9e-5, True),
        (0.0, 1.1e-5, False),
        (-100.0, -100.009, True),
        (-100.0, -100.011, False),
    ],
)
def test_two_sigmas_are_the_same_up_to_rounding(mine, theirs, same):
    ours, others = Grid.of([9.0, mine]), Grid.of([9.0, theirs])
    assert ours.matches(others) == others.matches(ours) == same


@pytest.mark.parametrize(
    ("mine", "theirs", "words"),
    [
        (0.1234, 0.4567, "σ_1 = 0.123, not 0.457"),
        (0.5, 0.501, "σ_1 = 0.5, not 0.501"),
        (0.5021, 0.5024, "σ_1 = 0.5021, not 0.5024"),
    ],
)
def test_a_difference_has_as_many_digits_as_it_takes_and_three_at_least(mine, theirs, words):
    assert Grid.of([1.0, mine]).difference(Grid.of([1.0, theirs])) == words


def test_neighbouring_numbers_are_told_apart():
    assert told_apart(0.1, math.nextafter(0.1, 1)) == ("0.10000000000000001", "0.10000000000000002")


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (([1, 0.5, 0], [1, 0.5, 0]), "1 σ-grids, not 2"),
        ([1, 0.5, 0.2, 0], "2 stages, not 3"),
        ([1, 0.5, 0.5, 0], r"stages (0, 1) of 2, not (0, 2) of 3"),
        ([1, 0.5, 0], None),
    ],
)
def test_the_first_difference_of_two_grids_is_told(theirs, words):
    assert Grid.of([1, 0.5, 0]).difference(Grid.of(theirs)) == words


# --- as plain data ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "grid",
    [
        Grid.of([1, 1, 0.5, 0.2, 0], regimes=(2,)),
        Grid.of([0.9, 0.5, 0.0], prediction="epsilon", alphas="vp"),
        Grid.of({"b": [1, 0.5, 0], "a": [0, 0.5, 1]}),
    ],
    ids=["regimes", "alphas", "keys"],
)
def test_a_grid_is_read_back_from_json(grid):
    assert read_grid(json.loads(json.dumps(asdict(grid)))) == grid


def test_the_mesh_is_laid_out_on_the_grid_that_was_given_first():
    grids = {"b": [1, 0.5, 0], "c": [1, 0.4, 0], "a": ([1, 0.6, 0], [1, 0.7, 0])}
    assert Grid.of(grids).lead == 2 and Grid.of(grids).tracks[2].sigmas[1] == 0.5
    assert Grid.of(list(grids.values())).lead == Grid.of([1, 0]).lead == 0
    track = Track((1.0, 0.0))
    assert Grid((track, track), (0,), 1).lead == 0


@pytest.mark.parametrize(
    ("kept", "given", "lead"),
    [((-1, 0), 2, 0), ((0, 0), 2, 0), ((0, 2), 2, 0), ((0, 1, 2), 3, 0), ((0, 1), 2, 1)],
)
def test_stages_that_do_not_fit_the_tracks_are_refused(kept, given, lead):
    tracks = (Track((1.0, 0.5, 0.0)),)
    assert Grid(tracks, (0, 1), 2).steps == 2
    with pytest.raises(ValueError, match="do not fit together"):
        Grid(tracks, kept, given, lead=lead)


@pytest.mark.parametrize("start", [0, 2, -1])
def test_regimes_of_a_grid_begin_at_later_stages(start):
    assert Grid((Track((1.0, 0.5, 0.0)),), (0, 1), 2, (1,)).spans() == [(0, 1), (1, 2)]
    with pytest.raises(ValueError, match=r"begin outside the stages 1 … 1"):
        Grid((Track((1.0, 0.5, 0.0)),), (0, 1), 2, (start,))


def test_a_grid_that_is_given_knows_its_options():
    grid = Grid.of([1, 0.5, 0])
    options: dict[str, Any] = dict(data=0.0, regimes=[1], alphas="vp", prediction="v")
    for name, value in options.items():
        with pytest.raises(ValueError, match=f"a Grid knows its {name}: leave them out"):
            Grid.of(grid, **{name: value})


def test_the_first_turn_of_a_grid_is_named():
    with pytest.raises(ValueError, match=r"turns at stage 2: 0\.5, 0\.2, 0\.4$"):
        Grid.of([1, 0.5, 0.2, 0.4, 0.1, 0.3])


def test_a_flow_ends_at_the_data_only_where_it_falls_to_zero():
    for sigmas, data in (([1, 0], 0.0), ([1, 0.5, 1e-3], None), ([2, 1], None), ([-1, 0], None)):
        assert Grid.of(sigmas).tracks[0].data == data


@pytest.mark.parametrize("data", [0.0, 1.0, 0.9, 0.1])
def test_the_data_of_a_part_of_a_flow_is_at_zero_at_one_or_at_its_ends(data):
    assert Grid.of([0.9, 0.5, 0.1], data=data).tracks[0].data == data
    with pytest.raises(ValueError, match=r"data=2\.0 is not where the grid"):
        Grid.of([0.9, 0.5, 0.1], data=2.0)


@pytest.mark.parametrize("sigmas", [[0.1, 0.1, 0.5], [0.1, 0.5], [0.5, 0.1, -0.1]])
def test_noise_levels_fall_towards_zero(sigmas):
    message = "needs noise levels σ that fall towards 0"
    with pytest.raises(ValueError, match=message):
        Grid.of(sigmas, prediction="v", alphas="vp")
    assert Grid.of([0.5, 0.1, 0.1], prediction="v", alphas=[0.1, 0.2, 0.3]).steps == 2


def test_a_step_without_noise_scales_with_alpha():
    track = Track((0.5, 0.0, 0.0), "sample", (0.5, 0.8, 1.0), 0.0)
    assert track.euler(1) == (1.25, 0.0)


@pytest.mark.parametrize("made", [Grid.of([1, 0]), Track((1.0, 0.0))], ids=["grid", "track"])
def test_grids_and_tracks_cannot_be_changed(made):
    with pytest.raises(FrozenInstanceError):
        made.data = 1.0
