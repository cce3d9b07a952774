"""The nodes: both forms of each, what they show, Compare, Profile, and the pack as it is loaded."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from support import fakes
from support.fakes import (
    Flow,
    Guider,
    KSampler,
    Model,
    Patcher,
    ProgressBar,
    Told,
    noise_like,
    pack,
)
from torch import Tensor, nn

import geoshrink

api, seam, pictures, telling = pack("api"), pack("seam"), pack("pictures"), pack("telling")
NODES = {node.id: node for node in pack("nodes").NODES}
IDS = [
    "GeoShrink",
    "GeoShrinkReport",
    "GeoShrinkProfile",
    "GeoShrinkCompare",
    "GeoShrinkDemoModel",
    "GeoShrinkDemoClass",
    "GeoShrinkDemoLatent",
]
ADVANCED = {"budget", "target_db", "plan", "space", "rule", "correct"}


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """A server that keeps texts; pictures and plans go to a folder of the test's."""
    for name in ("temp", "output"):
        folder = str(tmp_path / name)
        monkeypatch.setattr(
            fakes.MODULES["folder_paths"], f"get_{name}_directory", lambda folder=folder: folder
        )
    monkeypatch.setattr(Told, "texts", [])
    monkeypatch.setattr(Told, "instance", Told())
    with fakes.installed():
        yield Told.texts


# ------------------------------------------------------------------------------ V1 and V3 forms


def extension(takes_aliases: bool = True) -> tuple[Any, type]:
    """(io, ComfyExtension) of a server with V3 nodes, as far as nodes are declared with them."""

    class Declared:
        def __init__(self, id: str, optional: bool = False, tooltip: Any = None):
            self.id, self.optional, self.tooltip, self.extra_dict = id, optional, tooltip, None

    class Widget(Declared):
        def __init__(
            self, id: str, optional: bool = False, tooltip: Any = None, default: Any = None
        ):
            super().__init__(id, optional, tooltip)
            self.default = default

    class Choice(Widget):
        def __init__(self, id: str, options: Any, **more: Any):
            super().__init__(id, **more)
            self.options = options

    def kind(name: str, base: type = Declared) -> Any:
        output = type(
            "Output",
            (),
            {"__init__": lambda self, display_name: setattr(self, "name", display_name)},
        )
        kinds = {
            "Input": type("Input", (base,), {"kind": name}),
            "Output": type("O", (output,), {"kind": name}),
        }
        return SimpleNamespace(**kinds)

    @dataclass
    class Old:
        node_id: str
        display_name: str
        category: str
        description: str
        inputs: list[Any]
        outputs: list[Any]
        hidden: list[Any]
        is_output_node: bool

    @dataclass
    class New(Old):
        search_aliases: list[str]

    class Hidden(Enum):
        unique_id = "UNIQUE_ID"

    class NodeOutput:
        def __init__(self, *values: Any, ui: Any = None):
            self.values, self.ui = values, ui

    names = {"Float": "FLOAT", "Int": "INT", "Boolean": "BOOLEAN", "String": "STRING"}
    io = SimpleNamespace(
        Schema=New if takes_aliases else Old,
        Custom=kind,
        Combo=kind("COMBO", Choice),
        Hidden=Hidden,
        NodeOutput=NodeOutput,
        ComfyNode=type("ComfyNode", (), {}),
        **{name: kind(own, Widget) for name, own in names.items()},
    )
    return io, type("ComfyExtension", (), {})


def test_the_nodes() -> None:
    assert list(NODES) == IDS
    outputs = {node.id: node.is_output for node in NODES.values()}
    assert [name for name in IDS if outputs[name]] == IDS[1:4]
    for node in NODES.values():
        names = [one.name for one in node.inputs]
        assert len(set(names)) == len(names) and node.about.endswith(".") and node.title


@pytest.mark.parametrize("name", IDS)
def test_both_forms_agree(name: str) -> None:
    node, (io, _) = NODES[name], extension()
    old, schema = api.v1(node), api.v3(node, io).define_schema()
    groups = old.INPUT_TYPES()
    assert groups["hidden"] == {"node_id": "UNIQUE_ID"} and schema.hidden == [io.Hidden.unique_id]
    assert {**groups["required"], **groups["optional"]}.keys() == {one.id for one in schema.inputs}
    for one, given in zip(schema.inputs, node.inputs):
        group = groups["optional" if given.optional else "required"]
        kind, settings = group[one.id]
        assert one.optional == given.optional
        assert one.tooltip == settings.get("tooltip") == (given.about or None)
        assert one.kind == ("COMBO" if isinstance(kind, list) else kind)
        if isinstance(kind, list):
            assert one.options == kind and given.default in kind
        rest = {k: v for k, v in settings.items() if k not in ("tooltip", "default")}
        assert one.extra_dict == rest
        assert getattr(one, "default", None) == settings.get("default") == given.default
        assert ("advanced" in settings) == given.advanced
    assert [(o.kind, o.name) for o in schema.outputs] == list(node.outputs)
    assert list(zip(old.RETURN_TYPES, old.RETURN_NAMES)) == list(node.outputs)
    assert (schema.node_id, schema.display_name) == (
        node.id,
        node.title,
    ) and old.__name__ == node.id
    assert schema.category == old.CATEGORY == "sampling/geoshrink"
    assert schema.description == old.DESCRIPTION == node.about
    assert schema.is_output_node == old.OUTPUT_NODE == node.is_output
    assert schema.search_aliases == old.SEARCH_ALIASES == list(node.aliases)
    assert callable(getattr(old(), old.FUNCTION))


def test_the_main_node() -> None:
    inputs = {one.name: one for one in NODES["GeoShrink"].inputs}
    assert list(inputs)[:3] == ["model", "speedup", "learn"]
    assert {name for name, one in inputs.items() if one.advanced} == ADVANCED
    defaults = {name: one.default for name, one in inputs.items() if name != "model"}
    assert pack("options").Options(**defaults) == pack("options").Options()
    assert inputs["speedup"].limits == {"min": 1.0, "max": 20.0, "step": 0.1}
    assert inputs["speedup"].settings()["default"] == 3.0
    settings = api.v1(NODES["GeoShrink"]).INPUT_TYPES()
    rest = {**settings["required"], **settings["optional"]}
    assert rest["plan"][1]["default"] == "" and rest["learn"][1]["default"] is False
    own = {"default": 0, "tooltip": inputs["budget"].about, "advanced": True}
    assert rest["budget"][1] == {**own, "min": 0, "max": 10000}
    assert rest["correct"][0] == ["auto", "on", "off"] and rest["space"][0] == [
        "auto",
        "output",
        "data",
    ]


def test_choices_are_asked_for_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another pack may add a sampler after ours is loaded."""
    monkeypatch.setattr(KSampler, "SAMPLERS", ("euler", "a new one"))
    for name in ("GeoShrinkCompare",):
        assert api.v1(NODES[name]).INPUT_TYPES()["required"]["sampler_name"][0] == [
            "euler",
            "a new one",
        ]


def test_a_server_without_aliases() -> None:
    io, _ = extension(takes_aliases=False)
    schema = api.v3(NODES["GeoShrink"], io).define_schema()
    assert schema.node_id == "GeoShrink" and not hasattr(schema, "search_aliases")


def test_what_a_form_executes() -> None:
    """The node's number, the inputs by name, the values, and what is shown."""
    ran: list[Any] = []

    def run(node_id: str, **words: Any) -> Any:
        ran.append((node_id, words))
        return api.Result((1, "b"), shown)

    io, _ = extension()
    for shown in (None, {"text": ("a",)}):
        node = api.Node("Id", "title", "about.", (), (("INT", "a"), ("STRING", "b")), run)
        made = api.v1(node)().execute(node_id="7", steps=3)
        assert made == ((1, "b") if shown is None else {"ui": shown, "result": (1, "b")})
        new = api.v3(node, io)
        new.hidden = SimpleNamespace(unique_id="8")
        output = new.execute(steps=4)
        assert output.values == (1, "b") and output.ui == shown
        assert ran[-2:] == [("7", {"steps": 3}), ("8", {"steps": 4})]
    api.v1(node)().execute(steps=5)
    assert ran[-1] == ("", {"steps": 5})


def load(name: str, more: dict[str, ModuleType] | None = None) -> ModuleType:
    """The pack as ComfyUI loads it: its __init__.py, under some name."""
    place = fakes.PACK / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name, place, submodule_search_locations=[str(fakes.PACK)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with fakes.installed(more):
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        finally:
            for loaded in [key for key in sys.modules if key.split(".")[0] == name]:
                del sys.modules[loaded]
    return module


def server_with_v3() -> dict[str, ModuleType]:
    above, latest = ModuleType("comfy_api"), ModuleType("comfy_api.latest")
    above.__path__ = []
    latest.io, latest.ComfyExtension = extension()  # type: ignore[attr-defined]
    return {"comfy_api": above, "comfy_api.latest": latest}


def test_the_pack_on_a_server_with_v3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEOSHRINK_COMFYUI_V1", raising=False)
    module = load("pack_v3", server_with_v3())
    assert not hasattr(module, "NODE_CLASS_MAPPINGS")
    made = asyncio.run(module.comfy_entrypoint())
    assert type(made).__mro__[1].__name__ == "ComfyExtension"
    assert [node.define_schema().node_id for node in asyncio.run(made.get_node_list())] == IDS


@pytest.mark.parametrize("asked", [True, False])
def test_the_pack_on_a_server_with_v1(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEOSHRINK_COMFYUI_V1", "1" if asked else "")
    module = load("pack_v1", server_with_v3() if asked else None)
    assert not hasattr(module, "comfy_entrypoint")
    assert list(module.NODE_CLASS_MAPPINGS) == IDS
    assert {name: NODES[name].title for name in IDS} == module.NODE_DISPLAY_NAME_MAPPINGS
    assert (fakes.PACK / module.WEB_DIRECTORY).is_dir()


# ---------------------------------------------------------------------------- what the nodes do


def test_the_node_tells_its_server(server: list[tuple[str, str]]) -> None:
    patcher = Patcher(Model())
    (model,) = NODES["GeoShrink"].run("12", patcher, budget=8).values
    assert model is not patcher and seam.accelerated(patcher) is None and not server
    Guider(model).sample(noise_like(), KSampler(fakes.euler), Flow().levels(20))
    assert server == [("12", seam.accelerated(model).text)]


def test_a_server_that_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def send_progress_text(self, *_: Any) -> None:
            raise ConnectionError

    for instance in (None, object(), Failing()):
        monkeypatch.setattr(Told, "instance", instance)
        telling.tell(3)("a text")
    monkeypatch.setitem(sys.modules, "server", None)
    telling.tell(3)("a text")


def test_a_number_is_told_as_text(server: list[tuple[str, str]]) -> None:
    telling.tell(3)("a text")
    assert server == [("3", "a text")]


def picture_of(shown: dict[str, Any], tmp_path: Path) -> Image.Image:
    (entry,) = shown["images"]
    assert entry["subfolder"] == "" and entry["type"] == "temp"
    with Image.open(tmp_path / "temp" / entry["filename"]) as picture:
        return picture.copy()


def test_the_report(tmp_path: Path, server: list[tuple[str, str]]) -> None:
    (model,) = NODES["GeoShrink"].run("1", Patcher(Model()), budget=8).values
    latent = Guider(model).sample(noise_like(), KSampler(fakes.euler), Flow().levels(20))
    result = NODES["GeoShrinkReport"].run("2", model, {"samples": latent})
    text, bar = result.values
    found = seam.accelerated(model)
    assert text == found.full and result.shown["text"] == (text,)
    assert torch.equal(bar, pictures.bar_of(found.anchors, 20)) and bar.shape == (1, 40, 640, 3)
    shown = picture_of(result.shown, tmp_path)
    assert torch.equal(pictures.as_image([shown]), bar)
    assert ("2", found.text) in server


def test_the_report_of_another_model() -> None:
    result = NODES["GeoShrinkReport"].run("2", Patcher(Model()), None)
    assert result.values[0] == "this model has not been through a GeoShrink node"
    assert (result.values[1] == 1).all()
    strange = Patcher(Model())
    strange.model_options["transformer_options"]["geoshrink"] = "another pack's"
    assert NODES["GeoShrinkReport"].run("2", strange, None).values[0] == result.values[0]
    bare = Patcher(Model())
    bare.model_options = {}
    assert seam.accelerated(bare) is None and seam.accelerated(seam.without(bare)) is None
    assert seam.accelerated(seam.Accelerated(pack("options").Options(), print).attach(bare))


@pytest.mark.parametrize("steps", [1, 20, 50, 300, 1000])
def test_the_bar(steps: int) -> None:
    """A block for every step, in order, dark where the model was queried."""
    anchors = {0, steps // 3, steps - 1}
    bar = (pictures.bar_of(sorted(anchors), steps)[0] * 255).round().int()
    row = bar[20].tolist()
    assert bar.shape == (40, 640, 3) and row[0] == row[-1] == [255, 255, 255]
    for n in range(steps):
        if steps <= 300:
            at = round(4 + 632 * n / steps)
            colour = pictures.EXACT if n in anchors else pictures.PREDICTED
            assert row[at] == list(colour), n
    gaps = sum(a != [255] * 3 and b == [255] * 3 for a, b in itertools.pairwise(row))
    assert gaps == steps if steps <= 50 else gaps >= 1
    assert (bar[:5] == 255).all() and (bar[-5:] == 255).all()


def test_a_sheet() -> None:
    """Columns side by side, the first pictures of each below a label."""
    red, green = (torch.zeros(5, 100, 300, 3) for _ in range(2))
    red[..., 0], green[..., 1] = 1.0, 2.0  # too bright is white, no error
    sheet = pictures.sheet_of([("red", red), ("green", green)], rows=3)[0]
    high, wide, _ = sheet.shape
    assert wide == 604 and 3 * 104 + 20 <= high < 4 * 104
    assert sheet[-1, 0].tolist() == [1, 0, 0] and sheet[-1, -1].tolist() == [0, 1, 0]
    assert sheet[-1, 300].tolist() == [1, 1, 1]  # between the columns
    assert sheet[-102, 0].tolist() == [1, 1, 1]  # between the rows
    band = sheet[: high - 3 * 104 + 4]
    assert (band[:, :300] < 0.5).any() and (band[:, 304:] < 0.5).any()  # the labels
    assert torch.equal(sheet[-100:, :300], red[0])


def test_a_sheet_of_small_pictures_and_of_films() -> None:
    small = torch.rand(2, 8, 8, 3)
    sheet = pictures.sheet_of([("a", small)])[0]
    assert sheet.shape[1] == 256 and sheet.shape[0] > 512
    film = torch.stack([torch.full((8, 256, 3), k / 4) for k in range(4)])[None]
    assert pictures.sheet_of([("film", film)])[0][-1, 0].tolist() == pytest.approx(
        [0.5] * 3, abs=0.01
    )
    four = torch.rand(1, 8, 256, 4)
    assert pictures.sheet_of([("four channels", four)]).shape[-1] == 3


class Vae:
    """Pictures are the latents, in [0, 1]."""

    def __init__(self) -> None:
        self.decoded: list[Tensor] = []

    def decode(self, latent: Tensor) -> Tensor:
        self.decoded.append(latent)
        return (latent.movedim(1, -1) / 4 + 0.5).to(torch.bfloat16)


def compared(model: Patcher, **more: Any) -> tuple[Any, Tensor, str]:
    words = dict(
        positive=[{"prompt": 1.0}], negative=[], seed=5, cfg=2.0, sampler_name="euler",
        scheduler="simple", denoise=1.0, latent_image={"samples": torch.zeros(2, 3, 8, 8)},
        steps=20, speedup=2.5,
    )  # fmt: skip
    words = {"vae": Vae(), **words, **more}
    result = NODES["GeoShrinkCompare"].run("4", model=model, **words)
    return result, *result.values


def test_compare(server: list[tuple[str, str]], tmp_path: Path) -> None:
    model = Patcher(Model())
    result, sheet, text = compared(model)
    assert model.model.calls == 20 + 8 + 8
    assert sheet.shape[2] == 3 * (256 + 4) - 4
    lines = text.splitlines()
    assert lines[0].startswith("full, 20 ") and lines[1].startswith("direct, 8 calls: PSNR ")
    assert lines[2].startswith("geoshrink, 8 calls: PSNR ")
    direct, ours = (float(line.split()[4]) for line in lines[1:3])
    assert direct != ours
    assert result.shown["text"] == (text,) and ("4", text) in server
    assert [words.split()[0].strip(",") for _, words in server[:3]] == [
        "full",
        "geoshrink",
        "direct",
    ]
    assert picture_of(result.shown, tmp_path).size == (sheet.shape[2], sheet.shape[1])
    assert ProgressBar.made[-1].total == ProgressBar.made[-1].done == 60
    assert seam.accelerated(model) is None


def test_compare_after_a_node() -> None:
    """The options of a GeoShrink node before it decide, and it is left as it was."""
    patcher = Patcher(Model())
    (model,) = NODES["GeoShrink"].run("1", patcher, budget=6).values
    _, _, text = compared(model)
    assert "geoshrink, 6 calls" in text and patcher.model.calls == 20 + 6 + 6
    assert seam.accelerated(model).text == "nothing was sampled yet"


def test_compare_where_nothing_is_skipped() -> None:
    model = Patcher(Model())
    _, _, text = compared(model, sampler_name="heun")
    assert "more than once a step" in text


def test_compare_starts_from_the_same_noise() -> None:
    """With a speedup of 1 all three are the same picture."""
    model = Patcher(Model())
    compared(model, speedup=1.0)
    calls = model.model.sigmas
    assert calls[:20] == calls[20:40] and len(calls) in (40, 60)


def test_compare_of_a_part_and_with_a_mask() -> None:
    mask = torch.ones(2, 1, 8, 8)
    latent = {"samples": torch.zeros(2, 3, 8, 8), "noise_mask": mask, "batch_index": [0, 1]}
    model = Patcher(Model())
    mask[..., 5:] = 0
    _, _, text = compared(model, denoise=0.5, latent_image=latent, vae=(vae := Vae()))
    assert "8 calls" in text and max(model.model.sigmas) < 1
    for latents in vae.decoded:
        assert latents[..., 5:].abs().max() < 1e-5 < latents[..., :5].abs().min()


def test_compare_begins_with_the_noise_of_the_seed() -> None:
    seen: list[Tensor] = []

    class Watched(Model):
        def __call__(self, x: Tensor, *rest: Any) -> Any:
            seen.append(x.clone())
            return super().__call__(x, *rest)

    compared(Patcher(Watched()), seed=7)
    noise = fakes.prepare_noise(torch.zeros(2, 3, 8, 8), 7)
    assert all(torch.equal(seen[n], noise) for n in (0, 20, 28))


def test_psnr() -> None:
    compare = pack("nodes.compare")
    full = torch.zeros(2, 4, 4, 3)
    assert compare.psnr(full, full) == pytest.approx(100)
    assert compare.psnr(full + 0.1, full) == pytest.approx(20)
    both = torch.stack([torch.full((4, 4, 3), 0.1), torch.full((4, 4, 3), 0.01)])
    assert compare.psnr(both, full) == pytest.approx(30)
    assert compare.psnr(full - 5, full) == pytest.approx(100)  # as it is seen


def profiled(model: Patcher, **more: Any) -> Any:
    words = dict(
        latent_image={"samples": torch.zeros(1, 3, 4, 4)}, seed=3, steps=12, cfg=2.0,
        scheduler="simple", positive=[{"prompt": 1.0}], negative=[], speedup=2.0, pictures=4,
        name="my-model",
    )  # fmt: skip
    return NODES["GeoShrinkProfile"].run("5", model=model, **{**words, **more})


def test_profile(tmp_path: Path, server: list[tuple[str, str]]) -> None:
    """The plan is written, and GeoShrink takes it for the same steps."""
    (model,) = NODES["GeoShrink"].run("1", Patcher(Model()), budget=4).values
    result = profiled(model)
    path, text = result.values
    assert Path(path) == tmp_path / "output" / "geoshrink" / "my-model.plan.json"
    plan = geoshrink.Plan.from_json(Path(path).read_text(encoding="utf-8"))
    assert plan.budget == 6 and plan.steps == 12 and json.loads(Path(path).read_text())
    assert path in text and result.shown["text"] == (text,) and server[-1] == ("5", text)
    assert 12 * 4 <= model.model.calls <= 10 * 12 * 4
    assert ProgressBar.made[-1].done == ProgressBar.made[-1].total == 10 * 12 * 4
    fast = fakes.sampled(plan=path, steps=12)
    assert fast.node.anchors == plan.anchors
    assert seam.accelerated(model).text == "nothing was sampled yet"


def test_the_plan_of_a_profile() -> None:
    """It is that of geoshrink.profile on the same velocity and noise."""
    plan = geoshrink.Plan.from_json(Path(profiled(Patcher(Model())).values[0]).read_text())
    model = Model()

    def velocity(x: Tensor, sigma: Any) -> Tensor:
        at = torch.full((len(x),), float(sigma))
        return (x - model(x, at, [1.0], 2.0)) / float(sigma)

    parts = [fakes.prepare_noise(torch.zeros(1, 3, 4, 4), 3 + i) for i in range(4)]
    levels = Flow().levels(12).double().tolist()
    asked: dict[str, Any] = {"prediction": "flow", "data": 0.0, "quiet": True}
    expected = geoshrink.profile([velocity] * 4, parts, levels, **asked)
    assert plan == expected.plan(6)
    least = profiled(Patcher(Model()), steps=8, speedup=20.0).values[0]
    assert geoshrink.Plan.from_json(Path(least).read_text()).budget == 4


def test_profile_learns_from_other_noise() -> None:
    """Pictures have seeds of their own; the first latent of a batch gives the size."""
    seen: list[Tensor] = []

    class Watched(Model):
        def __call__(self, x: Tensor, *rest: Any) -> Any:
            seen.append(x.clone())
            return super().__call__(x, *rest)

    model = Watched()
    batch = {"samples": torch.zeros(3, 3, 4, 4)}
    profiled(Patcher(model), latent_image=batch, steps=8, speedup=20.0)
    assert all(x.shape == (1, 3, 4, 4) for x in seen)
    expected = [fakes.prepare_noise(torch.zeros(1, 3, 4, 4), 3 + i) for i in range(4)]
    for noise in expected:
        assert any(torch.allclose(x, noise) for x in seen)
    first = {tuple(x.flatten().tolist()) for x, sigma in zip(seen, model.sigmas) if sigma == 1}
    assert len(first) == 4


@pytest.mark.parametrize(
    "name", ["", "..", ".hidden", "a/b", "a\\b", "../up", "a b", "/etc/x", "é\n", "a\x00"]
)
def test_bad_names_of_a_profile(name: str, tmp_path: Path) -> None:
    """Refused before anything runs, and nothing is written."""
    model = Patcher(Model())
    with pytest.raises(ValueError, match="name=") as refused:
        profiled(model, name=name)
    assert repr(name) in str(refused.value)
    assert model.model.calls == 0 and not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("name", ["flux-30", "a.b_c", "Ü"])
def test_good_names_of_a_profile(name: str, tmp_path: Path) -> None:
    path = pack("nodes.profile").path_of(name)
    assert Path(path).parent == tmp_path / "output" / "geoshrink"
    assert Path(path).name == f"{name}.plan.json"


# -------------------------------------------------------------------------------------- the demo


class Fruit:
    """As much of the demo model as the nodes use."""

    classes = ("Kiwi 1", "Banana 1")
    recipe = SimpleNamespace(shapes=[(3, 8, 8)])

    def __init__(self) -> None:
        self.network = Network()

    def values(self, latent: Tensor) -> Tensor:
        return latent / 2 + 0.5


class Network(nn.Module):
    def forward(self, x: Tensor, t: Tensor, label: Tensor, mask: Any) -> Tensor:
        assert mask is None and label.dtype == torch.int64
        return x * t.reshape(-1, 1, 1, 1) + label.reshape(-1, 1, 1, 1)


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    module = pack("nodes.demo")
    monkeypatch.setattr(module, "fruit", Fruit)
    return module


def test_the_demo_model(demo: Any) -> None:
    model, vae = NODES["GeoShrinkDemoModel"].run("1").values
    assert isinstance(model, Patcher)
    picture = vae.decode(torch.tensor([[-3.0, 0.0, 3.0]]).reshape(1, 3, 1, 1))
    assert picture.shape == (1, 1, 1, 3) and picture.flatten().tolist() == [0, 0.5, 1]
    network, x = model.model.diffusion_model, torch.ones(2, 3, 8, 8)
    context = torch.tensor([1.0, 2.0]).reshape(2, 1, 1)
    made = network(x, torch.tensor([500.0, 1000.0]), context)
    assert made[:, 0, 0, 0].tolist() == [1.5, 3.0]
    given: list[Tensor] = []

    def wrapper(run: Any, x: Tensor, *rest: Any, **more: Any) -> Tensor:
        given.append(x)
        return -run(x, *rest, **more)

    wrapped = {"wrappers": {"diffusion_model": {"k": [wrapper]}}}
    again = network(x, torch.tensor([500.0, 1000.0]), context, transformer_options=wrapped)
    assert torch.equal(again, -made) and given[0] is not x
    conds = model.model.extra_conds(cross_attn=context)
    assert conds == {"c_crossattn": ("regular", context)} and model.model.extra_conds() == {}


def test_the_demo_class_and_latent(demo: Any) -> None:
    positive, negative = NODES["GeoShrinkDemoClass"].run("1", "Banana 1").values
    assert float(positive[0][0]) == 1 and float(negative[0][0]) == 2
    assert positive[0][0].shape == (1, 1, 1) and positive[0][1] == {}
    (latent,) = NODES["GeoShrinkDemoLatent"].run("1", 3).values
    assert latent["samples"].shape == (3, 3, 8, 8) and not latent["samples"].any()


def test_a_demo_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = pack("nodes.demo")
    module.fruit.cache_clear()
    monkeypatch.setattr(module, "entry_points", lambda group: [SimpleNamespace(name="another")])
    with pytest.raises(RuntimeError, match="pip install geoshrink-bench"):
        NODES["GeoShrinkDemoLatent"].run("1", 3)
    module.fruit.cache_clear()
