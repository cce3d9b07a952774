"""Registries: what they take, and the words with which they refuse."""

import pytest

from geoshrink import register_mesh, register_rule, register_solver
from geoshrink.registry import Registry


class Thing:
    def __init__(self, name: object):
        self.name = name


class Special(Thing):
    name = "special"


def test_an_object_of_the_kind_or_a_class_of_it_is_found_by_its_name():
    things = Registry("thing", Thing)
    one = Thing("a-1+b")
    things.add(one)
    things.add(Special)
    assert things == {"a-1+b": one, "special": Special}


@pytest.mark.parametrize("name", ["", "A", "1a", "a b", "a_b", "ä", None, 3, b"a"])
def test_a_badly_written_name_is_refused_and_quoted(name):
    things = Registry("thing", Thing)
    with pytest.raises(ValueError, match="a thing's name is of small letters") as error:
        things.add(Thing(name))
    assert repr(name) in str(error.value) and not things


def test_a_class_without_a_name_is_refused():
    with pytest.raises(ValueError, match="not None"):
        Registry("thing", Thing).add(Thing)


def test_a_name_that_is_taken_is_refused():
    things = Registry("thing", Thing)
    first = Thing("a")
    things.add(first)
    with pytest.raises(ValueError, match="thing 'a' is already registered: choose another name"):
        things.add(Thing("a"))
    assert things == {"a": first}


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (register_rule, r"^register_rule takes a geoshrink\.rules\.Form, got 'x'$"),
        (register_mesh, r"^register_mesh takes a geoshrink\.meshes\.Mesh, got 'x'$"),
        (register_solver, r"^register_solver takes a geoshrink\.solvers\.Solver, got 'x'$"),
    ],
)
def test_what_is_not_of_the_kind_is_told_where_the_kind_is(register, words):
    with pytest.raises(TypeError, match=words):
        register("x")
