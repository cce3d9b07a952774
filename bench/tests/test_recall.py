"""A network is not asked twice for the same small batch, and nothing changes by that."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from geoshrink_bench.methods.stack import replaced
from geoshrink_bench.recall import ROWS, Recall


class Network(nn.Module):
    """Counts its calls; its output takes one part more than what it is given."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(3, 3)
        self.count = 0

    def forward(self, x, sigma, label=None):
        self.count += 1
        parts = x if isinstance(x, tuple) else (x,)
        outputs = tuple(self.part(part) * sigma for part in parts)
        return outputs if isinstance(x, tuple) else outputs[0]


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Network().requires_grad_(False)


def batch(rows=4, seed=1):
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed))


def test_the_same_call_is_computed_once(network):
    recall, x = Recall(), batch()
    wanted = network(x, 0.5)
    with recall.over([network]):
        answers = [network(x.clone(), 0.5) for _ in range(3)]
    assert all(torch.equal(answer, wanted) for answer in answers)
    assert network.count == 2 and (recall.asked, recall.known) == (3, 2)
    assert "forward" not in vars(network)


@pytest.mark.parametrize(
    "other",
    [
        lambda n, x: n(x + 1e-7 * x.sign(), 0.5),
        lambda n, x: n(x.flip(0), 0.5),  # the same bits in another order
        lambda n, x: n(x, 0.25),
        lambda n, x: n(x, torch.tensor(0.5)),
        lambda n, x: n(x[:2], 0.5),
        lambda n, x: n(x, 0.5, label=7),
        lambda n, x: n((x,), 0.5),
    ],
    ids=["another x", "another order", "another σ", "σ of another kind", "fewer", "label", "tuple"],
)
def test_another_call_is_computed(network, other):
    recall, x = Recall(), batch()
    with recall.over([network]):
        network(x, 0.5)
        found = other(network, x)
    assert network.count == 2 and recall.known == 0
    again = other(network, x)
    assert type(found) is type(again)
    pairs = zip(found, again) if isinstance(found, tuple) else [(found, again)]
    assert all(torch.equal(a, b) for a, b in pairs)


def test_two_networks_are_apart(network):
    other, recall, x = Network().requires_grad_(False), Recall(), batch()
    with recall.over([network, other]):
        assert not torch.equal(network(x, 0.5), other(x, 0.5))
    assert network.count == other.count == 1


def test_what_is_kept_is_not_given_away(network):
    """Whoever writes into what goes in or comes out changes no later answer."""
    recall, x = Recall(), batch()
    wanted = network(x, 0.5)
    with recall.over([network]):
        for _ in range(3):
            given = x.clone()
            output = network(given, 0.5)
            assert torch.equal(output, wanted)
            output.zero_()
            given.zero_()


def test_a_tuple_comes_back_as_one(network):
    recall, x = Recall(), (batch(), batch(seed=2))
    with recall.over([network]):
        first, second = network(x, 0.5), network(x, 0.5)
    assert network.count == 1 and isinstance(second, tuple)
    assert all(map(torch.equal, first, second))


def test_large_batches_are_computed_each_time(network):
    recall = Recall()
    with recall.over([network]):
        for rows in (ROWS, ROWS + 1):
            for _ in range(2):
                network(batch(rows), 0.5)
    assert network.count == 1 + 2 and recall.asked == 2


def test_a_network_that_somebody_has_patched_runs(network):
    """What it says then is not decided by what it is given."""
    recall, x = Recall(), batch()
    with recall.over([network]):
        network(x, 0.5)
        with replaced(network.part, "forward", torch.zeros_like):
            assert not network(x, 0.5).any()
            network(x, 0.5)
        hook = network.part.register_forward_hook(lambda module, given, output: output + 1)
        assert not torch.equal(network(x, 0.5), hook.remove() or network(x, 0.5))
    assert network.count == 4 and recall.known == 1


def test_a_patch_of_the_network_itself_sees_every_call(network):
    recall, x, seen = Recall(), batch(), []
    with recall.over([network]):
        inner = network.forward
        with replaced(network, "forward", lambda *args: seen.append(args) or inner(*args)):
            for _ in range(2):
                network(x, 0.5)
    assert len(seen) == 2 and network.count == 1


def test_the_oldest_are_let_go(network):
    room = 3 * 2 * 4 * 3 * 4  # three calls of 4 rows of 3 floats, given and said
    recall = Recall(room / 2**30)
    with recall.over([network]):
        for seed in (1, 2, 3):
            network(batch(seed=seed), 0.5)
        network(batch(seed=1), 0.5)  # now the latest
        network(batch(seed=4), 0.5)  # in the place of the second
        assert network.count == 4 and recall.held == room
        network(batch(seed=1), 0.5)
        assert network.count == 4
        network(batch(seed=2), 0.5)
    assert network.count == 5 and recall.held == room


def test_without_room_nothing_is_kept(network):
    recall, x = Recall(0), batch()
    with recall.over([network]):
        for _ in range(2):
            network(x, 0.5)
    assert network.count == 2 and recall.held == 0 and not recall.calls


def test_an_error_leaves_the_network_as_it_was(network):
    with pytest.raises(RuntimeError), Recall().over([network]):
        network(torch.zeros(2, 5), 0.5)
    assert "forward" not in vars(network)


class Given(nn.Module):
    """Its output is of the kind of what it is given."""

    def forward(self, x, a=None, b=None, more=None):
        if isinstance(x, (tuple, list)):
            return type(x)(part + 1 for part in x)
        return x * (2 if a else 3 if b else 1) + (more["mask"] if more else 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda n, x: n((x,)), lambda n, x: n([x])),
        (lambda n, x: n(x, a=1), lambda n, x: n(x, b=1)),
        (lambda n, x: n(0 * x.abs()), lambda n, x: n(torch.zeros(4, 3, dtype=torch.int32))),
        (lambda n, x: n(x, more={"mask": x}), lambda n, x: n(x, more={"mask": x + 1})),
    ],
    ids=["list", "name", "dtype", "in a dict"],
)
def test_calls_that_look_alike_are_apart(one, other):
    network, recall, x = Given(), Recall(), batch()
    with recall.over([network]):
        one(network, x)
        found = other(network, x)
    wanted = other(network, x)
    assert recall.known == 0 and type(found) is type(wanted)
    pairs = zip(found, wanted) if isinstance(found, list) else [(found, wanted)]
    assert all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def test_a_hook_before_a_part_is_seen(network):
    recall, x = Recall(), batch()
    with recall.over([network]):
        plain = network(x, 0.5)
        hook = network.part.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
        assert not torch.equal(network(x, 0.5), plain)
        hook.remove()
    assert network.count == 2


def test_who_takes_a_place_is_counted_once(network):
    """Two batches of one fingerprint: the later stands in the place of the earlier."""
    recall, x = Recall(), batch()
    with recall.over([network]):
        for _ in range(3):
            network(x, 0.5)
            network(x.flip(0), 0.5)
    assert len(recall.calls) == 1 and recall.held == 2 * x.nbytes


def test_a_batch_that_is_turned_in_place_is_another(network):
    recall, x = Recall(), batch()
    with recall.over([network]):
        network(x, 0.5)
        x.copy_(x.flip(0))
        found = network(x, 0.5)
    assert network.count == 2 and torch.equal(found, network(x, 0.5))


def test_the_largest_part_says_how_large_a_batch_is(network):
    recall = Recall()
    with recall.over([network]):
        network(batch(ROWS + 1), torch.ones(1, 1))
    assert recall.asked == 0
