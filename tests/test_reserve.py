"""The reserve: where it is spent, decision by decision, and that it is the run's own."""

import pytest
import torch

from geoshrink import Plan, Run, sample
from geoshrink.history.reserve import Reserve, middle
from toy import Toy, noise, shifted

pytestmark = pytest.mark.usefixtures("one_thread")


# --- the policy -------------------------------------------------------------------------------

PLAN = Plan.of([1 - i / 20 for i in range(21)], anchors=(0, 1, 2, 6, 10, 14, 18))
ENDS = (*PLAN.anchors[1:], 20)


def spent(reserve: Reserve, errors: dict[int, float]) -> dict[int, int]:
    """{anchor: the stage that was queried after it} for these self-checks."""
    found = {}
    for anchor, error in errors.items():
        skipped = range(anchor + 1, ENDS[PLAN.anchors.index(anchor)])
        reserve.observed(PLAN, anchor, [torch.tensor([error])], skipped)
        if reserve.stage is not None:
            found[anchor] = reserve.stage
    return found


def test_it_is_spent_where_the_self_check_is_above_the_median_of_those_before():
    reserve = Reserve(2)
    errors = {1: 0.1, 2: 0.2, 6: 0.1, 10: 0.12, 14: 9.0, 18: 9.0}
    assert spent(reserve, errors) == {2: 4, 10: 12}  # the medians there are 0.1 and 0.1
    assert reserve.left == 0


def test_a_self_check_at_the_median_or_below_it_is_not_bad():
    reserve = Reserve(1)
    assert spent(reserve, {1: 0.2, 2: 0.2, 6: 0.1, 10: 0.19}) == {}
    assert reserve.left == 1


def test_what_is_left_goes_to_the_last_cells_that_skip_anything():
    falling = {a: 1 / (a + 1) for a in PLAN.anchors[1:]}
    assert spent(Reserve(2), falling) == {14: 16, 18: 19}
    assert spent(Reserve(1), falling) == {18: 19}
    assert spent(Reserve(9), falling) == {2: 4, 6: 8, 10: 12, 14: 16, 18: 19}  # 1 skips nothing


def test_cells_that_skip_nothing_are_not_among_those_left():
    plan = Plan.of([1 - i / 20 for i in range(21)], anchors=(0, 1, 2, 6, 10, 11, 12))
    reserve = Reserve(2)
    for anchor, error, skipped in (
        (1, 0.3, range(0)),
        (2, 0.2, range(3, 6)),
        (6, 0.1, range(7, 10)),
    ):
        reserve.observed(plan, anchor, [torch.tensor([error])], skipped)
    assert reserve.stage == 8  # 6 … 10 and 12 … 20 are left, and so are two queries


def test_the_self_check_is_the_mean_over_samples_then_slots():
    reserve = Reserve(1)
    reserve.observed(PLAN, 1, [torch.tensor([0.3])], range(0))
    reserve.observed(PLAN, 2, [torch.tensor([0.1, 0.1, 0.4]), torch.tensor([0.45])], range(3, 6))
    assert reserve.stage == 4 and reserve.reason.endswith("self-check 32% at stage 2")
    reserve.reset()
    assert (reserve.stage, reserve.left, reserve.seen, reserve.reason) == (None, 1, [], "")


def test_other_stages_and_first_anchors_decide_nothing():
    reserve = Reserve(1)
    spent(reserve, {1: 0.1, 2: 0.05})
    for stage, errors in ((4, [torch.tensor([9.0])]), (6, None)):
        reserve.stage = 99
        reserve.observed(PLAN, stage, errors, range(stage + 1, 10))
        assert reserve.stage is None and reserve.seen == pytest.approx([0.1, 0.05])


def test_the_middle_of_a_cell_is_that_of_its_way_in_tau():
    sigmas = shifted(20, 8.0)
    plan = Plan.of(sigmas, anchors=(0, 1, 2, 6))
    half = (sigmas[6] + sigmas[20]) / 2
    nearest = min(range(7, 20), key=lambda n: abs(sigmas[n] - half))
    assert middle(plan, 6, range(7, 20)) == nearest == 18
    assert middle(PLAN, 6, range(7, 10)) == 8


def test_a_reserve_is_a_whole_number():
    assert Reserve(0).left == 0 and Reserve(1).left == 1
    for bad in (True, 1.0, "1"):
        with pytest.raises(TypeError, match="reserve must be an integer"):
            Reserve(bad)  # type: ignore[arg-type]


# --- in a run ---------------------------------------------------------------------------------


class Bumpy(Toy):
    """Smooth but for one place."""

    def __call__(self, x: torch.Tensor, sigma: float) -> torch.Tensor:
        return super().__call__(x, sigma) + 4 * torch.tanh(40 * torch.tensor(sigma - 0.6)) * x


def test_a_reserve_is_part_of_the_budget_and_is_spent():
    toy = Bumpy()
    _, report = sample(toy, noise(), shifted(40), 12, reserve=3, with_report=True)
    assert toy.calls == report.evaluations == 12
    assert len(report.queried) == 9 and len(report.extra) == 3
    said = [reason for n, reason in report.reasons if n in report.extra]
    assert len(said) == 3 and all("from the reserve: self-check" in reason for reason in said)
    for n in report.extra:
        before = max(a for a in report.queried if a < n)
        assert f"at stage {before}" in dict(report.reasons)[n]


def test_the_next_run_has_its_reserve_again_and_none_is_the_plain_run():
    run = Run(shifted(40), 12, reserve=3)
    for _ in range(2):
        x, toy = noise(), Bumpy()
        for n in range(run.steps):
            v = run(n, lambda x=x, n=n, toy=toy: toy(x, shifted(40)[n]))
            x = x + (shifted(40)[n + 1] - shifted(40)[n]) * v
        assert toy.calls == 12
    plain = sample(Bumpy(), noise(), shifted(40), 12)
    assert torch.equal(sample(Bumpy(), noise(), shifted(40), 12, reserve=0), plain)


def test_a_reserve_beside_a_plan_is_on_top_and_bad_ones_are_quoted():
    toy = Bumpy()
    sample(toy, noise(), plan=Plan.of(shifted(40), 9), reserve=2)
    assert toy.calls == 11
    toy = Bumpy()
    sample(toy, noise(), plan=Plan.of(shifted(40), 9, refine=4, space="data"), reserve=2)
    assert toy.calls == 11
    with pytest.raises(ValueError, match="reserve is a number of queries, got -1"):
        Run(shifted(40), 12, reserve=-1)
    with pytest.raises(ValueError, match="not 'heun'"):
        sample(toy, noise(), shifted(40), 12, reserve=1, solver="heun")
