"""profile() and what it gives: its cost, its file, plans, predictions, the curve, bad input."""

import json
import math
import os
from dataclasses import replace

import pytest
import torch

import geoshrink
from geoshrink import Grid, Plan, Profile, sample
from geoshrink.planning import plan_for
from geoshrink.planning.choosing import interpolated, leave_one_out
from geoshrink.planning.files import KIND, digest
from geoshrink.planning.planner import BASELINES, direct_plan, knows_data
from geoshrink.planning.runs import Trial
from geoshrink.planning.tournament import BEST, MOST, decibels
from toy import SIZE, Toy, noise

STEPS = 20


pytestmark = pytest.mark.usefixtures("one_thread")


SIGMAS = [3 * u / (1 + 2 * u) for u in (1 - i / STEPS for i in range(STEPS + 1))]


@pytest.fixture(scope="module")
def made() -> Profile:
    return geoshrink.profile(Toy(), noise(), SIGMAS, quiet=True, model="toy", guidance=2.0)


def db(x: torch.Tensor, full: torch.Tensor) -> float:
    return float(10 * (full.square().sum(1) / (x - full).square().sum(1)).log10().mean())


def test_a_profile_costs_ten_full_runs_at_most_and_says_so_before(capsys):
    toy = Toy()
    found = geoshrink.profile(toy, noise(), SIGMAS)
    said = capsys.readouterr().err
    assert toy.calls <= 10 * STEPS
    calls = int(said.removeprefix("profiling: at most ").split()[0])
    assert toy.calls <= calls <= toy.calls + 4 * 8  # of equal plans only one is run
    assert f"model calls ({calls / STEPS:.1f} full runs)" in said
    assert f"{21 * 4 * SIZE * 8 / 1000:.1f} kB of host memory" in said
    assert {t.budget for t in found.trials} == {4, 8}


def test_plans_beat_those_that_know_nothing_of_the_model(made):
    fresh, x = Toy(), noise(32, seed=9)
    full = sample(fresh, x, SIGMAS)
    for budget in (5, 8, 10):
        planned = db(sample(fresh, x, SIGMAS, plan=made.plan(budget)), full)
        default = db(sample(fresh, x, SIGMAS, budget), full)
        direct = db(sample(fresh, x, plan=direct_plan(made.grid, budget)), full)
        assert planned > default + 0.5 and planned > direct - 0.2


def test_a_tried_plan_scores_what_its_trial_says(made):
    full = sample(Toy(), noise(), SIGMAS)
    for trial in (t for t in made.trials if t.budget == 8):
        plan = made.planner.named(trial.recipe, 8)
        assert plan is not None and plan.anchors == trial.anchors
        assert db(sample(Toy(), noise(), plan=plan), full) == pytest.approx(trial.mean, abs=1e-6)
    best = max((t for t in made.trials if t.budget == 8), key=lambda t: t.mean)
    chosen = made.plan(8)
    assert chosen.anchors == best.anchors and chosen.budget == 8
    assert made.predict(8).how == "measured" and made.predict(8).recipe == best.recipe
    assert str(made.predict(8)) in chosen.mesh
    assert Plan.from_json(chosen.to_json()) == chosen


def test_the_surrogate_of_a_found_plan_is_its_cost(made):
    for name in ("time", "chordal", "hold", "time, data space", *BEST):
        plan = made.planner.named(name, 7)
        assert plan is not None
        assert made.planner.cost(plan) == pytest.approx(made.planner.search(name, 7).cost, rel=1e-4)
    every = [made.planner.search(name, 7).cost for name in ("time", "hold", "chordal")]
    assert made.planner.search("any rule", 7).cost <= min(every) * (1 + 1e-5)
    alone = [made.planner.search(name, 7) for name in ("signed time", "signed time, corrected")]
    assert alone[1].cost < alone[0].cost and alone[1].anchors != alone[0].anchors


def test_calibrated_cells_bring_their_coefficients(made):
    plan = made.planner.named("calibrated", 6)
    assert plan is not None and plan.coefficients is not None
    skipped = [n for n in range(plan.anchors[1], STEPS) if n not in plan.anchors]
    assert all(plan.coefficients[n] is not None for n in skipped)
    assert "ω of its own" in str(plan)
    _, report = sample(Toy(), noise(), plan=plan, with_report=True)
    used = {s.stage: s.omega for s in report.stages if not s.exact}
    assert all(used[n] == pytest.approx(plan.coefficients[n]) for n in skipped)


def test_each_sample_is_judged_by_the_winner_on_the_others():
    a = Trial("time", 5, (0, 1), 0.0, (10.0, 10.0, 40.0))
    b = Trial("hold", 5, (0, 2), 0.0, (18.0, 18.0, 18.0))
    found = leave_one_out([a, b])  # without the third, b wins; without the first or second, a does
    assert found.recipe == "time"
    assert found.db == pytest.approx((10 + 10 + 18) / 3)
    assert found.error == pytest.approx(math.sqrt(64 / 3) / math.sqrt(3))


def test_between_tried_budgets_the_offset_is_interpolated(made):
    low, high = (
        next(t for t in made.trials if t.recipe == "any rule" and t.budget == b) for b in (4, 8)
    )
    found = interpolated(made, "any rule", 6)
    assert found is not None and found.how == "interpolated"
    share = math.log(6 / 4) / math.log(8 / 4)
    offset = (1 - share) * (low.mean - low.surrogate) + share * (high.mean - high.surrogate)
    assert found.db == pytest.approx(made.planner.surrogate("any rule", 6) + offset)
    assert made.predict(12).how == "extrapolated"


def test_where_nothing_was_tried_every_recipe_that_was_elsewhere_is_a_candidate(made):
    """Also those that won nowhere near: direct among them."""
    at = {b: {t.recipe: t for t in made.trials if t.budget == b} for b in (4, 8)}

    def lifted(name: str) -> Profile:
        trials = []
        for t in made.trials:
            off = 30.0 if t.recipe == name else 0.0
            db = tuple(d + off * (t.budget == 4) for d in t.db)
            trials.append(replace(t, db=db, surrogate=t.surrogate - off * (t.budget == 8)))
        return replace(made, trials=tuple(trials))

    assert {*at[4]} == {*at[8]} >= {"direct", "any rule"}
    for name in ("direct", "any rule", "corrected mesh"):
        plan = lifted(name).plan(6)
        wanted = made.planner.named(name, 6)
        assert wanted is not None and plan.anchors == wanted.anchors
    assert lifted("direct").plan(6).mesh.startswith("direct (no planned ones do better), ")
    assert lifted("direct").plan(8).anchors == made.plan(8).anchors


def test_where_direct_wins_the_plan_is_direct_and_says_so(made):
    wins = replace(
        made, trials=tuple(Trial(n, 8, (), 20.0, (9.0 + (n == "direct"),) * 4) for n in BASELINES)
    )
    plan = wins.plan(8)
    assert plan.anchors == direct_plan(made.grid, 8).anchors
    assert all(rule.name == "hold" for rule in plan.rules)
    assert plan.mesh.startswith("direct (no planned ones do better), 10.0 ± 0.0 dB")


def test_a_target_gets_the_smallest_budget_that_reaches_it(made):
    target = made.predict(8).db - 0.1
    plan = made.plan(target_db=target)
    assert made.predict(plan.budget).db >= target
    assert all(made.predict(b).db < target for b in range(2, plan.budget))
    with pytest.raises(ValueError, match="no budget below 20 is expected to reach 900 dB"):
        made.plan(target_db=900)
    for bad in (math.nan, "30", True):
        with pytest.raises(ValueError, match="target_db is a number"):
            made.plan(target_db=bad)


def test_measure_adds_real_runs_at_further_budgets(made):
    toy = Toy()
    more = made.measure(toy, noise(), [6, 8], quiet=True)
    assert more.predict(6).how == "measured" and made.predict(6).how == "interpolated"
    assert toy.calls <= 1 + STEPS + 6 * MOST
    assert [t for t in more.trials if t.budget == 8] == [t for t in made.trials if t.budget == 8]
    with pytest.raises(ValueError, match=r"made from batches of \[4\] samples, got \[5\]"):
        made.measure(toy, noise(5), [6], quiet=True)


def test_without_real_runs_there_are_plans_but_no_predictions():
    toy = Toy()
    found = geoshrink.profile(toy, noise(), SIGMAS, budgets=(), quiet=True)
    assert toy.calls <= 4 * STEPS and found.trials == ()
    assert "never tried" in found.plan(6).mesh
    with pytest.raises(ValueError, match=r"no real runs to predict from: profile\.measure"):
        found.predict(6)


def test_the_curve_is_a_table_and_a_page(made, tmp_path):
    curve = made.curve([4, 6, 8, 30])
    rows = curve.rows()
    assert [row["budget"] for row in rows] == [4, 6, 8, STEPS]
    assert rows[2]["planned"] == made.predict(8).db
    assert rows[3]["planned"] == rows[3]["direct"] == math.inf
    for row in rows[:3]:
        best = max(db or 0 for name, db in row.items() if name in BASELINES)
        assert (row["planned"] or 0) > best - 1
    lines = str(curve).splitlines()
    assert len(lines) == 8 and "~" in lines[2] and "~" not in lines[1]
    assert "leave-one-out" in lines[6]
    page = curve.write(tmp_path / "curve.html").read_text(encoding="utf-8")
    assert "planned" in page and "<svg" in page
    assert [row["budget"] for row in made.curve().rows()] == list(range(4, 11))


def test_regimes_begin_with_an_anchor():
    grid = Grid.of(SIGMAS, regimes=(7, 12))
    found = geoshrink.profile(Toy(), noise(), grid, quiet=True)
    for budget in range(3, STEPS):
        assert {0, 7, 12} <= set(found.plan(budget).anchors)
        assert found.plan(budget).budget == budget
    with pytest.raises(ValueError, match="budget 2 is too small: a plan needs at least 3"):
        found.plan(2)


def test_several_slots_with_several_grids():
    other = [1 - i / STEPS for i in range(STEPS + 1)]
    first, second = Toy(0), Toy(3)

    def both(x, sigma):
        return first(x[0], sigma[0]), second(x[1], sigma[1]) + 0.1 * x[0]

    x = noise(4, 1), noise(4, 2)
    found = geoshrink.profile(both, x, (SIGMAS, other), quiet=True)
    assert found.slots == 2
    full = sample(both, x, (SIGMAS, other))
    scores = [
        decibels(sample(both, x, plan=plan), full).mean()
        for plan in (found.plan(8), Plan.of(found.grid, 8))
    ]
    assert scores[0] > scores[1]


def test_a_grid_that_does_not_know_its_data_is_planned_in_output_space():
    found = geoshrink.profile(Toy(), noise(), [s + 0.1 for s in SIGMAS], quiet=True)
    assert {t.recipe for t in found.trials} >= {"time"}
    assert found.plan(8).space == "output" and not knows_data(found.grid)


def test_a_profile_travels(made, tmp_path):
    file = tmp_path / "toy.json"
    made.save(file)
    again = Profile.load(file)
    assert again.plan(8) == made.plan(8) and again.trials == made.trials
    assert torch.equal(again.grams[0], made.grams[0])
    assert str(again) == str(made) and "toy, 20 stages, guidance 2.0, 4 samples, float64" in str(
        made
    )
    assert [f.name for f in tmp_path.iterdir()] == ["toy.json"]


def test_an_interrupted_profile_goes_on_where_it_stopped(tmp_path):
    file = tmp_path / "half.json"

    def broken(x, sigma):
        raise KeyboardInterrupt

    noises = [noise(2, 1), noise(3, 2)]
    with pytest.raises(KeyboardInterrupt):
        geoshrink.profile([Toy(), broken], noises, SIGMAS, file=file, quiet=True)
    with pytest.raises(ValueError, match=r"interrupted: call profile\(…, file=…\)"):
        Profile.load(file)
    toys = [Toy(), Toy()]
    with pytest.raises(ValueError, match="another profile \\(its noise differ\\)"):
        geoshrink.profile(toys, [noise(2, 5), noises[1]], SIGMAS, file=file, quiet=True)
    with pytest.raises(ValueError, match="its guidance, stages, σ-grid differ"):
        geoshrink.profile(toys, noises, [1, 0.5, 0.2, 0], file=file, guidance=3, perturbed=4)
    resumed = geoshrink.profile(toys, noises, SIGMAS, file=file, quiet=True)
    whole = geoshrink.profile([Toy(), Toy()], noises, SIGMAS, quiet=True)
    assert resumed.samples == 5 and resumed.trials == whole.trials
    again = 1  # call tells whether a batch in the file is of this model
    assert toys[1].calls - toys[0].calls == sum(STEPS - n for n in whole.stages) - again
    calls = toys[0].calls
    assert geoshrink.profile(toys, noises, SIGMAS, file=file).trials == whole.trials
    assert toys[0].calls == calls + again  # a whole file is not run again


def test_a_file_of_another_model_is_refused(tmp_path):
    """Was: with the same noise model B got the plan of A, and A's decibels as measured."""
    file, mine, other = tmp_path / "a.json", Toy(), Toy(seed=3)
    profile = geoshrink.profile(mine, noise(), SIGMAS, budgets=[6], file=file, quiet=True)
    with pytest.raises(ValueError, match=r"another profile \(its first outputs differ\)"):
        geoshrink.profile(other, noise(), SIGMAS, budgets=[6], file=file, quiet=True)
    with pytest.raises(ValueError, match=r"not what was profiled \(the first outputs differ"):
        profile.measure(other, noise(), [8], quiet=True)
    with pytest.raises(ValueError, match=r"not what was profiled \(the noise differ"):
        profile.measure(mine, noise(seed=9), [8], quiet=True)
    assert other.calls == 2
    with pytest.raises(ValueError, match="the first outputs differ"):
        profile.measure(lambda x, sigma: x * math.nan, noise(), [8], quiet=True)
    profile.save(file, small=True)
    assert 8 in Profile.load(file).measure(mine, noise(), [8], quiet=True).tried("run")


def test_the_curve_s_error_of_a_measured_baseline_is_its_own(made):
    """Was: the error of interpolating between budgets, ± 6.3 where the standard error was 0.1."""
    budget = min(made.tried("run"))
    curve = made.curve([budget])
    assert {"default", "direct", "corrected mesh"} <= {*curve.methods}
    for name in (name for name in curve.methods if name != "planned"):
        (found,) = curve.methods[name]
        key = "corrected mesh, caution ½" if name == "default" else name, budget
        (trial,) = (t for t in made.trials if (t.recipe, t.budget) == key)
        assert found.how == "measured" and found.db == pytest.approx(trial.mean)
        own = torch.tensor(trial.db).double().std() / math.sqrt(len(trial.db))
        assert found.error == pytest.approx(float(own), rel=1e-5)
    carried = made.resample(SIGMAS).curve([budget])
    assert {p.how for (p,) in carried.methods.values()} == {"carried over"}


@pytest.mark.parametrize(
    ("sigmas", "options", "message"),
    [
        ("x", {}, "σ-grid"),
        ([80.0, 10.0, 1.0, 0.0], {}, r"σ from 80 to 0, .* profiled from 1 to 0"),
        (SIGMAS[::-1], {"data": 1.0}, r"σ from 0 to 1, .* profiled from 1 to 0"),
        ((SIGMAS, SIGMAS), {}, "2 σ-grids"),
        (SIGMAS, {"regimes": [5]}, "1 regimes"),
        (SIGMAS[1:], {"prediction": "epsilon", "alphas": "flow"}, "epsilon"),
        (Grid.of(SIGMAS), {"data": 0.0}, "a Grid knows its data"),
    ],
    ids=["text", "range", "direction", "slots", "regimes", "prediction", "options of a Grid"],
)
def test_a_profile_is_not_resampled_to_a_grid_of_another_kind(made, sigmas, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        made.resample(sigmas, **options)


def flipped(text: str) -> str:
    """A few characters of the first matrix are others, and still base64."""
    place = text.index('"data": "') + 200
    return text[:place] + text[place : place + 20].swapcase() + text[place + 20 :]


@pytest.mark.parametrize(
    "harm, message",
    [
        (lambda text: text[: len(text) // 2], "is not a geoshrink profile, or it is damaged"),
        (lambda text: "[" * 100_000, "is not a geoshrink profile, or it is damaged"),
        (lambda text: "{}", "is not a geoshrink profile"),
        (lambda text: text.replace('profile": 2', 'profile": 3'), "has version 3, .* update"),
        (flipped, r"damaged \(its sha256 is another one\): profile again"),
        (lambda text: text.replace('"sha256": "', '"sha": "'), "its sha256 is another one"),
        (lambda text: text.replace('profile": 2', 'profile": 1'), "its sha256 is another one"),
    ],
)
def test_files_that_are_no_profile(made, tmp_path, harm, message):
    file = tmp_path / "bad.json"
    made.save(file)
    text = file.read_text(encoding="utf-8")
    assert harm(text) != text
    file.write_text(harm(text), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        Profile.load(file)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"samples": 5}, "damaged .*names 5 samples"),
        ({"batches": [{"grams": [{"shape": [1], "data": "?"}]}]}, "damaged"),
        ({"nan": "trials"}, "damaged .*the real run of 'direct' with 4 calls is not finite"),
        ({"nan": "grams"}, "damaged .*a product of its outputs is not finite"),
        ({"nan": "energies"}, "damaged .*a product of its outputs is not finite"),
    ],
)
def test_the_numbers_of_a_file_are_checked_whatever_its_digest_says(
    made, tmp_path, change, message
):
    file, trials = tmp_path / "bad.json", made.trials
    if change == {"nan": "trials"}:
        made = replace(made, trials=(replace(trials[0], db=(math.nan, *trials[0].db[1:])),))
    if (name := change.get("nan")) in ("grams", "energies"):
        batch = made.batches[0]
        endless = tuple(t * math.inf for t in getattr(batch, name))
        made = replace(made, batches=(replace(batch, **{name: endless}),))
    made.save(file)
    body = json.loads(file.read_text(encoding="utf-8")) | change
    body.pop("sha256")
    file.write_text(json.dumps(body | {"sha256": digest(body)}), encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        Profile.load(file)


def test_a_full_disk_leaves_the_profile_of_before(made, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "profile.json"
    made.save(file)
    before = file.read_bytes()
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        replace(made, model="another").save(file)
    assert file.read_bytes() == before and [*tmp_path.iterdir()] == [file]


def test_a_file_from_before_there_were_digests_is_read(made, tmp_path):
    file = tmp_path / "old.json"
    made.save(file)
    body = json.loads(file.read_text(encoding="utf-8")) | {KIND: 1}
    body.pop("sha256")
    file.write_text(json.dumps(body), encoding="utf-8")
    assert Profile.load(file).plan(8) == made.plan(8)


def test_a_run_that_overflows_is_no_trial(made, monkeypatch, tmp_path):
    seen = []

    def scored(x: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        seen.append(1)
        return decibels(x, end) * (math.nan if len(seen) == 1 else 1.0)

    monkeypatch.setattr("geoshrink.planning.tournament.decibels", scored)
    more = made.measure(Toy(), noise(), [6], quiet=True)
    assert "direct" not in {t.recipe for t in more.trials if t.budget == 6}
    assert math.isfinite(more.predict(6).db) and more.predict(6).how == "measured"
    more.save(tmp_path / "more.json")
    assert Profile.load(tmp_path / "more.json").trials == more.trials


def test_profiles_that_do_not_fit_a_run(made):
    grid = Grid.of(SIGMAS)
    made.check(grid, 2.0, "toy")
    for options, reason in [
        (dict(model="other"), "of the model 'toy', not 'other'"),
        (dict(guidance=4.0), "made at guidance 2, this run has 4"),
        (dict(grid=Grid.of(SIGMAS[::2])), r"its σ-grid is another one \(20 stages, not 10\)"),
    ]:
        with pytest.raises(ValueError, match=reason):
            made.check(**options)
    assert plan_for(made, grid, 8, 2.0, "toy").anchors == made.plan(8).anchors
    with pytest.warns(UserWarning, match="by the default: it was made at guidance 2"):
        assert plan_for(made, grid, 8, 7.0) == Plan.of(grid, 8)
    with pytest.warns(UserWarning, match="there is no profile of it"):
        plan_for(None, grid, 8)
    ranged = replace(made, guidance=(1.0, 3.0))
    assert ranged.misfit(guidance=2.5) is None
    assert "1 to 3, this run has 4" in (ranged.misfit(guidance=4.0) or "")


def test_bad_input_is_quoted(made):
    def blank(x, sigma):
        return torch.full_like(x, math.nan) if sigma < 0.5 else x

    with pytest.raises(ValueError, match=r"not finite at stage \d+ \(slot 0, sample 0\)"):
        geoshrink.profile(blank, noise(), SIGMAS, quiet=True)
    with pytest.raises(ValueError, match="3 samples are too few to plan from: give at least 4"):
        geoshrink.profile(Toy(), noise(3), SIGMAS)
    with pytest.raises(ValueError, match="2 velocities need as many noises, got one"):
        geoshrink.profile([Toy(), Toy()], noise(), SIGMAS)
    with pytest.raises(TypeError, match="velocity must be callable"):
        geoshrink.profile(3, noise(), SIGMAS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="guidance is a number or a range"):
        geoshrink.profile(Toy(), noise(), SIGMAS, guidance="5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="perturbed is a number of stages from 1 to 50, got 0"):
        geoshrink.profile(Toy(), noise(), SIGMAS, perturbed=0)
    with pytest.raises(ValueError, match=r"sample axis first, got shape \(6,\)"):
        geoshrink.profile(Toy(), torch.zeros(6), SIGMAS)
    with pytest.raises(ValueError, match="a Grid knows its prediction, alphas: leave them out"):
        geoshrink.profile(Toy(), noise(), made.grid, prediction="v", alphas="vp")
    with pytest.raises(ValueError, match="give a budget or a target_db, one of them"):
        made.plan()
    with pytest.raises(ValueError, match="budget 1 is too small: a plan needs at least 2 anchors"):
        made.plan(1)
    with pytest.raises(TypeError, match=r"budget must be an integer, got 5\.5"):
        made.plan(5.5)
    assert made.plan(99).exact


def test_a_run_without_any_change_is_planned_without_a_fuss():
    found = geoshrink.profile(lambda x, sigma: torch.ones_like(x), noise(), SIGMAS, quiet=True)
    assert found.plan(5).budget == 5
    assert (found.gains() == 1).all()


def test_a_whole_profile_can_be_given_more_batches(tmp_path):
    file = tmp_path / "grown.json"
    toys, noises = [Toy(), Toy()], [noise(4, 1), noise(3, 2)]
    geoshrink.profile(toys[:1], noises[:1], SIGMAS, file=file, quiet=True)
    grown = geoshrink.profile(toys, noises, SIGMAS, file=file, quiet=True)
    assert grown.samples == 7 and all(len(trial.db) == 7 for trial in grown.trials)
    assert Profile.load(file).trials == grown.trials


def test_half_precision_is_profiled_as_it_runs():
    toy = Toy()

    def half(x, sigma):
        return toy(x.double(), sigma).to(x.dtype)

    x = noise().bfloat16()
    found = geoshrink.profile(half, x, SIGMAS, quiet=True)
    fine = geoshrink.profile(Toy(), x.double(), SIGMAS, quiet=True)
    assert found.dtype == "bfloat16" and found.grams[0].dtype == torch.float64
    ratio = torch.tensor(found.gains() / fine.gains())
    assert bool((ratio > 0.5).all()) and bool((ratio < 2).all())
    assert found.plan(8).budget == 8
