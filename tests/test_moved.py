"""Old names of modules: each imports the new module itself, and says where it is."""

import importlib
import subprocess
import sys

import pytest

from geoshrink import moved

#: One name that people imported from each module.
NAMES = {
    "geoshrink.anchors": "sigma_anchors",
    "geoshrink.universal": "universal_anchors",
    "geoshrink.placement": "choose_anchors",
    "geoshrink.retention": "Statistics",
    "geoshrink.slot": "Slot",
    "geoshrink.record": "Record",
    "geoshrink.refining": "RefinedHistory",
    "geoshrink.reserve": "Reserve",
    "geoshrink.sharding": "check_group",
    "geoshrink.masks": "check_mask",
    "geoshrink.kernels": "fused",
    "geoshrink.bench.store": "Store",
    "geoshrink.bench.methods.direct": "Direct",
    "geoshrink.zoo.recipes": "Recipe",
}


@pytest.fixture(autouse=True)
def forgotten():
    """Every test imports the old names for the first time."""
    for name in [name for name in sys.modules if moved.new_name(name)]:
        del sys.modules[name]


@pytest.mark.parametrize("old", [*moved.MOVED, *NAMES])
def test_an_old_name_is_the_new_module(old):
    new = moved.new_name(old)
    assert new is not None
    with pytest.warns(DeprecationWarning, match=" has moved: import ") as said:
        module = importlib.import_module(old)
    assert f"{old} has moved: import {new}" in [str(warning.message) for warning in said]
    assert module is importlib.import_module(new) and module.__name__ == new
    assert {warning.filename for warning in said} >= {importlib.__file__}
    if old in NAMES:
        assert hasattr(module, NAMES[old])


def test_a_part_of_a_moved_package_is_not_loaded_twice():
    from geoshrink_bench.zoo import recipes

    with pytest.warns(DeprecationWarning, match=r"geoshrink\.zoo"):
        old = importlib.import_module("geoshrink.zoo.recipes")
    assert old is recipes


def test_other_names_are_left_alone():
    assert moved.new_name("geoshrink.plan") is None and moved.new_name("anchors") is None
    with pytest.raises(ModuleNotFoundError, match=r"geoshrink\.nowhere"):
        importlib.import_module("geoshrink.nowhere")


def test_old_names_are_looked_up_before_all_others_and_once(monkeypatch):
    others = [finder for finder in sys.meta_path if not isinstance(finder, moved.Finder)]
    monkeypatch.setattr(sys, "meta_path", [*others])
    moved.install()
    moved.install()
    assert isinstance(sys.meta_path[0], moved.Finder) and sys.meta_path[1:] == others


def test_without_the_bench_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "geoshrink_bench"]:
        monkeypatch.delitem(sys.modules, name)

    class NotInstalled:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "geoshrink_bench":
                raise ModuleNotFoundError("No module named 'geoshrink_bench'", name=name)

    monkeypatch.setattr(sys, "meta_path", [NotInstalled, *sys.meta_path])
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(ModuleNotFoundError, match="demo: pip install geoshrink-bench"),
    ):
        importlib.import_module("geoshrink.demo")


def test_the_product_does_not_load_the_proof():
    code = "import geoshrink, sys; assert not [m for m in sys.modules if 'geoshrink_bench' in m]"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
