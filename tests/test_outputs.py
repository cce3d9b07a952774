"""Outputs as trees of tensors: every container comes back as it was, leaves in order."""

import gc
import weakref
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import geoshrink
from geoshrink.outputs import _REGISTRY, flatten, flatten_sigmas, register_output
from geoshrink.plan import Plan

modest = settings(deadline=None, max_examples=80)


def t(*values: float) -> Tensor:
    return torch.tensor(values)


class Pair(NamedTuple):
    first: Any
    second: Any


Triple = namedtuple("Triple", "x y z")


class MyList(list):
    pass


class MyTuple(tuple):
    __slots__ = ()


class MyDict(dict):
    pass


@pytest.fixture
def registry() -> Iterator[None]:
    before = dict(_REGISTRY)
    yield
    _REGISTRY.clear()
    _REGISTRY.update(before)


def same_tree(a: Any, b: Any) -> bool:
    """The same types all the way down, and the very same tensors."""
    if isinstance(a, Tensor):
        return a is b
    if type(a) is not type(b) or len(a) != len(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_tree(a[k], b[k]) for k in a)
    return all(same_tree(x, y) for x, y in zip(a, b))


# --- there and back ---------------------------------------------------------------------------

A, B, C = t(1.0), t(2.0, 2.0), t(3.0, 3.0, 3.0)
TREES: list[tuple[Any, list[Tensor]]] = [
    (A, [A]),
    ((A,), [A]),
    ((A, B), [A, B]),
    ([A, B, C], [A, B, C]),
    ({"a": A, "b": B}, [A, B]),
    ({1: A, 2: B}, [A, B]),
    (OrderedDict(y=A, z=B), [A, B]),
    (((A, [B]), {"c": C}), [A, B, C]),
    ([[[[[A]]]], B], [A, B]),
    (Pair(A, Pair(B, C)), [A, B, C]),
    (Triple(A, B, C), [A, B, C]),
    (MyList([A, B]), [A, B]),
    (MyTuple((A, B)), [A, B]),
    (MyDict(a=A, b=B), [A, B]),
    ((A, A), [A, A]),
]


@pytest.mark.parametrize(("tree", "leaves"), TREES, ids=[repr(type(x)) for x, _ in TREES])
def test_containers_come_back_as_they_were(tree, leaves):
    found, unflatten = flatten(tree)
    assert len(found) == len(leaves) and all(x is y for x, y in zip(found, leaves))
    assert same_tree(unflatten(found), tree)


def test_a_parameter_is_a_tensor():
    weight = torch.nn.Parameter(A)
    leaves, unflatten = flatten(weight)
    assert leaves[0] is weight and unflatten([B]) is B


trees = st.recursive(
    st.integers(0, 3).map(lambda n: torch.zeros(n)),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4),
        st.lists(inner, min_size=1, max_size=4).map(tuple),
        st.lists(inner, min_size=1, max_size=3).map(MyList),
        st.tuples(inner, inner).map(lambda p: Pair(*p)),
        st.dictionaries(st.text(max_size=3), inner, min_size=1, max_size=4),
        st.dictionaries(st.integers(), inner, min_size=1, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


def count(tree: Any) -> int:
    if isinstance(tree, Tensor):
        return 1
    return sum(map(count, tree.values() if isinstance(tree, dict) else tree))


@modest
@given(trees)
def test_random_trees_come_back(tree):
    leaves, unflatten = flatten(tree)
    assert len(leaves) == count(tree)
    assert same_tree(unflatten(leaves), tree)
    fresh = [torch.full((2,), float(i)) for i in range(len(leaves))]
    rebuilt = unflatten(fresh)
    again, _ = flatten(rebuilt)
    assert all(x is y for x, y in zip(again, fresh)) and len(again) == len(fresh)
    assert same_tree(unflatten(leaves), tree)  # an unflatten can be used twice
    assert count(tree) == len(leaves)  # and the original is left alone


def test_torch_s_own_named_results():
    result = torch.max(torch.eye(3), 0)
    leaves, unflatten = flatten(result)
    assert [leaf.tolist() for leaf in leaves] == [[1, 1, 1], [0, 1, 2]]
    back = unflatten([A, B])
    assert type(back) is type(result) and back.values is A and back.indices is B


def test_user_dicts_come_back():
    back = flatten(UserDict(a=A))[1]([B])
    assert isinstance(back, UserDict) and back["a"] is B


def test_default_dicts_come_back():
    # Was: type(output)(zip(…)) is defaultdict(zip): "first argument must be callable or None".
    box: Any = defaultdict(list, a=A)
    back = flatten(box)[1]([B])
    assert back["a"] is B and isinstance(back, dict)


def test_read_only_mappings_come_back():
    # Was: mappingproxy() argument must be a mapping, not zip.
    back = flatten(MappingProxyType({"a": A}))[1]([B])
    assert back["a"] is B


# --- outputs of the two libraries everybody uses ----------------------------------------------


class BaseOutput(OrderedDict):
    """diffusers.utils.BaseOutput, its relevant part word for word."""

    def __post_init__(self):
        class_fields = fields(self)  # type: ignore[arg-type]
        first_field = getattr(self, class_fields[0].name)
        others = all(getattr(self, field.name) is None for field in class_fields[1:])
        if others and isinstance(first_field, dict):
            for key, value in first_field.items():
                self[key] = value
        else:
            for field in class_fields:
                value = getattr(self, field.name)
                if value is not None:
                    self[field.name] = value

    def __setattr__(self, name, value):
        if name in self and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class ModelOutput(BaseOutput):
    """transformers.utils.ModelOutput also takes one iterable of (key, value) pairs."""

    def __post_init__(self):
        class_fields = fields(self)  # type: ignore[arg-type]
        first = getattr(self, class_fields[0].name)
        others = all(getattr(self, field.name) is None for field in class_fields[1:])
        if others and not isinstance(first, Tensor) and first is not None:
            for key, value in first:
                setattr(self, key, value)
                self[key] = value
            return
        super().__post_init__()


@dataclass
class Transformer2DModelOutput(BaseOutput):
    sample: Tensor


@dataclass
class DecoderOutput(BaseOutput):
    sample: Tensor
    commit_loss: Tensor | None = None


@dataclass
class CausalOutput(ModelOutput):
    loss: Tensor | None = None
    logits: Tensor | None = None


@pytest.mark.parametrize(
    "output",
    [
        Transformer2DModelOutput(sample=A),
        DecoderOutput(sample=A),
        DecoderOutput(sample=A, commit_loss=B),
        CausalOutput(loss=A, logits=B),
        CausalOutput(logits=B),
    ],
    ids=lambda o: f"{type(o).__name__}({', '.join(o)})",
)
def test_dataclass_outputs_come_back(output):
    # Was: type(output)(zip(keys, parts)) hands the zip to the first field: diffusers' outputs come
    # back with sample=<zip object>, silently.
    before = dict(output)
    leaves, unflatten = flatten(output)
    assert sorted(map(id, leaves)) == sorted(id(value) for value in output.values())
    back = unflatten([leaf + 10 for leaf in leaves])
    assert type(back) is type(output) and list(back) == list(output)
    for key in output:
        assert back[key].equal(output[key] + 10) and getattr(back, key) is back[key]
    for field in fields(output):
        if field.name not in output:
            assert getattr(back, field.name) is None
    assert dict(output) == before  # the original is untouched


def test_an_attribute_beside_the_mapping_is_kept():
    """A dict subclass whose constructor takes no pairs: rebuilt whole."""

    class Named(dict):
        def __init__(self, name: str):
            super().__init__()
            self.name = name

    output: Any = Named("unet")
    output["x"] = A
    # Was: comes back as an empty Named whose name is a zip object, silently.
    back = flatten(output)[1]([B])
    assert back["x"] is B and back.name == "unet"


# --- registered types -------------------------------------------------------------------------


class Sparse:
    def __init__(self, coords: Any, feats: Any):
        self.coords, self.feats = coords, feats


class FinerSparse(Sparse):
    pass


@pytest.mark.usefixtures("registry")
def test_registered_types_and_their_subclasses():
    register_output(Sparse, lambda o: [o.feats], lambda o, parts: type(o)(o.coords, parts[0]))
    for kind in (Sparse, FinerSparse):
        leaves, unflatten = flatten({"x": kind("coords", A), "y": B})
        assert leaves[0] is A and leaves[1] is B
        back = unflatten([C, A])
        assert type(back["x"]) is kind and back["x"].coords == "coords"
        assert back["x"].feats is C and back["y"] is A


@pytest.mark.usefixtures("registry")
def test_the_nearest_registered_class_wins():
    register_output(Sparse, lambda o: [o.feats], lambda o, parts: Sparse(o.coords, parts[0]))
    register_output(FinerSparse, lambda o: [o.coords], lambda o, p: FinerSparse(p[0], o.feats))
    assert flatten(FinerSparse(A, B))[0][0] is A
    assert flatten(Sparse(A, B))[0][0] is B
    register_output(Sparse, lambda o: [o.coords], lambda o, parts: Sparse(parts[0], o.feats))
    assert flatten(Sparse(A, B))[0][0] is A  # the latest registration counts


@pytest.mark.usefixtures("registry")
def test_a_registration_comes_before_the_built_in_ways():
    register_output(MyDict, lambda o: [o["a"]], lambda o, parts: MyDict(o, a=parts[0]))
    leaves, unflatten = flatten(MyDict(a=A, note="kept"))
    assert len(leaves) == 1
    assert unflatten([B]) == {"a": B, "note": "kept"}


@pytest.mark.usefixtures("registry")
def test_registered_parts_may_be_trees_and_generators():
    register_output(
        Sparse,
        lambda o: (part for part in (o.coords, o.feats)),
        lambda o, parts: Sparse(*parts),
    )
    leaves, unflatten = flatten(Sparse([A, B], {"c": C}))
    assert len(leaves) == 3
    back = unflatten([C, B, A])
    assert back.coords[0] is C and back.coords[1] is B and back.feats["c"] is A


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("nested", [False, True])
def test_the_way_back_holds_no_tensor(nested):
    # Was: hollow() leaves a registered type's part alone if it is a list or dict of tensors, so
    # the way back keeps those tensors alive for the whole run.
    register_output(
        Sparse, lambda o: [o.coords, o.feats], lambda o, parts: Sparse(parts[0], parts[1])
    )
    x, y = torch.ones(5), torch.ones(6)
    parts: Any = ([x], {"y": y}) if nested else (x, y)
    watched = [weakref.ref(x), weakref.ref(y)]
    _, unflatten = flatten([Sparse(*parts), (A, B)])
    del x, y, parts, _
    gc.collect()
    assert [ref() for ref in watched] == [None, None]
    back = unflatten([A, B, C, A])[0]
    assert flatten(back)[0][0] is A and flatten(back)[0][1] is B


@pytest.mark.usefixtures("registry")
def test_a_registered_type_without_parts_is_empty():
    # Was: join(output, []) is called for the hollow copy before anybody looks: IndexError.
    register_output(Sparse, lambda o: [], lambda o, parts: Sparse(o.coords, parts[0]))
    with pytest.raises(ValueError, match="empty Sparse"):
        flatten(Sparse(A, B))


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("kind", ["registered", "dict"])
def test_deep_trees_are_flattened_in_reasonable_time(kind):
    # Was: every level hollows its parts twice (children() and hollow() both do), so the work
    # doubles with each level: half a second for 16 nested dicts, at every anchor.
    joined = []

    def join(output: Any, parts: list[Any]) -> Sparse:
        joined.append(1)
        return Sparse(output.coords, parts[0])

    register_output(Sparse, lambda o: [o.feats], join)
    depth = 10
    tree: Any = Sparse("leaf", A)
    for _ in range(depth):
        tree = Sparse("inner", tree) if kind == "registered" else {"x": tree}
    leaves, unflatten = flatten(tree)
    assert len(leaves) == 1
    assert len(joined) <= (depth + 2) ** 2
    assert flatten(unflatten([B]))[0][0] is B


def test_an_unregistered_type_says_how_to_register_it():
    with pytest.raises(TypeError, match=r"returned a Sparse.*geoshrink\.register_output"):
        flatten(Sparse(A, B))
    assert geoshrink.register_output is register_output


# --- what is no output ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [None, 5, 0.5, "text", b"bytes", np.ones(3), {1, 2}, object(), print]
)
def test_leaves_are_tensors(bad):
    for tree in (bad, (A, bad), [bad], {"x": bad}, {"x": (A, [bad])}):
        with pytest.raises(TypeError, match=f"returned a {type(bad).__name__}, not a tensor"):
            flatten(tree)


@pytest.mark.parametrize(
    "empty", [(), [], {}, OrderedDict(), MyList()], ids=lambda e: type(e).__name__
)
def test_empty_containers_are_no_output(empty):
    for tree in (empty, (A, empty), {"x": [empty]}):
        with pytest.raises(ValueError, match=f"empty {type(empty).__name__}"):
            flatten(tree)


# --- structures of σ-grids --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sigmas", "grids"),
    [
        ([1, 0.5, 0], [[1, 0.5, 0]]),
        ((1, 0.5, 0), [[1, 0.5, 0]]),
        (range(3, 0, -1), [[3, 2, 1]]),
        ((s for s in (1, 0.5)), [[1, 0.5]]),
        (np.array([1, 0.5, 0]), [[1, 0.5, 0]]),
        (np.array([2, 1, 0]), [[2, 1, 0]]),
        (torch.tensor([1, 0.5, 0]), [[1, 0.5, 0]]),
        (torch.tensor([1, 0.5, 0], dtype=torch.bfloat16), [[1, 0.5, 0]]),
        ([torch.tensor(1.0), np.float32(0.5), 0], [[1, 0.5, 0]]),
        (([1, 0], [2, 0]), [[1, 0], [2, 0]]),
        ([torch.tensor([1, 0]), np.array([2, 0]), (3, 0)], [[1, 0], [2, 0], [3, 0]]),
        ({"a": [1, 0], "b": ([2, 0], {"c": [3, 0]})}, [[1, 0], [2, 0], [3, 0]]),
        (Pair([1, 0], [2, 0]), [[1, 0], [2, 0]]),
        (Pair(1, 0), [[1, 0]]),
        ([], [[]]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_sigma_structures(sigmas, grids):
    found = flatten_sigmas(sigmas)
    assert found == grids
    assert all(type(s) is float for grid in found for s in grid)


@pytest.mark.parametrize("bad", ["abc", 5, None, object(), ["1", "0"], [[1, 0], None], {"a": 5}])
def test_what_is_no_grid_is_quoted(bad):
    with pytest.raises(TypeError, match="sequence of numbers, got"):
        flatten_sigmas(bad)


@pytest.mark.parametrize(
    "bad", [torch.ones(2, 2), np.ones((1, 3)), torch.tensor(1.0), np.array(1.0)]
)
def test_a_grid_has_one_dimension(bad):
    with pytest.raises(ValueError, match=r"one-dimensional, got shape"):
        flatten_sigmas(bad)
    with pytest.raises(ValueError, match=r"one-dimensional, got shape \(2, 2\)"):
        flatten_sigmas([[1.0, 0.0], torch.ones(2, 2)])


def test_a_grid_reaches_the_leaf_of_its_name():
    # Was: both sides go by their own order of insertion, so a model that returns {"b": …, "a": …}
    # is paired with the wrong σ-grids of {"a": …, "b": …}, silently.
    grids = {"a": [1.0, 0.5, 0.4, 0.0], "b": [1.0, 0.9, 0.1, 0.0]}

    def predicted(*order: str) -> dict[str, Tensor]:
        run = geoshrink.Run(grids, anchors=[0, 1], rule="linear")
        outputs = [{key: torch.full((1, 2), 1.0 + n) for key in order} for n in range(3)]
        return [run(n, lambda n=n: outputs[n]) for n in range(3)][2]

    expected = predicted("a", "b")
    assert float(expected["a"][0, 0]) == pytest.approx(2.2)  # λ = 0.1/0.5
    assert float(expected["b"][0, 0]) == pytest.approx(10.0)  # λ = 0.8/0.1
    found = predicted("b", "a")
    assert list(found) == ["b", "a"]
    assert all(found[key].equal(expected[key]) for key in grids)


def test_the_grids_of_a_structure_become_the_tracks_of_a_plan():
    plan = Plan.of({"audio": [1, 0.5, 0.2, 0], "image": ([1, 0.4, 0.1, 0], [0, 0.3, 0.6, 1])})
    assert [plan.track(i).sigmas[1] for i in range(3)] == [0.5, 0.4, 0.3]
