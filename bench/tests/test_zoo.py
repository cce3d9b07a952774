"""The zoo's models: network, noise, grids and guidance; their weights are what their cards say."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save as tensors_to_bytes

from geoshrink import sample
from geoshrink_bench import zoo
from geoshrink_bench.zoo.autoencoder import Autoencoder
from geoshrink_bench.zoo.classifier import TASKS
from geoshrink_bench.zoo.model import Model, find
from geoshrink_bench.zoo.network import DiT, JointDiT, Patcher
from geoshrink_bench.zoo.recipes import RECIPES

SMALL: dict[str, Any] = dict(width=16, depth=2, heads=2, condition=8)
MOST = 12_000_000  # bytes of a weight file
KINDS = ("classifier", "real")  # of files about a classifier
MADE = {"fruit-video": "video", "digits-audio": "sound", "digits-av": "film", "motion": "motion"}
MADE |= {"objects": "mesh"}  # the others make pictures
CLASSES = {"fruit-video": 255, "digits-audio": 60, "digits-av": 60, "motion": 26, "objects": 12}
CLONE = Path(__file__).parents[2] / "zoo"
PACKAGE = Path(str(files("geoshrink_bench.zoo"))) / "weights"
PLACES = {name: PACKAGE if name == "fruit" else CLONE for name in RECIPES}
PRESENT = [n for n, place in PLACES.items() if (place / f"{n}.safetensors").is_file()]
FILES = sorted([*PACKAGE.glob("*.safetensors"), *CLONE.glob("*.safetensors")])


def awake(network):
    """A network whose zeroed layers say something."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return network.eval().requires_grad_(False)


def toy(name: str, **network: Any) -> Model:
    """A model of the recipe that is small and has learnt nothing, with classes a, b, c."""
    recipe = RECIPES[name]
    recipe = dataclasses.replace(recipe, network=recipe.network | SMALL | network)
    return Model(recipe, awake(recipe.build(3)), {"classes": ["a", "b", "c"]}, "")


PICTURE: dict[str, Any] = dict(shape=(3, 8, 8), patch=(4, 4))


@pytest.fixture(scope="module")
def fruit():
    return toy("fruit", **PICTURE)


@pytest.fixture(scope="module")
def pair():
    return toy("digits-av", shapes=((1, 4, 4), (1, 16)), patches=((2, 2), (4,)))


@pytest.fixture(scope="module")
def motion():
    return toy("motion", shape=(6, 10))


@pytest.fixture(scope="module")
def objects():
    return toy("objects", shape=(1, 4, 4, 4), patch=(2, 2, 2))


# The network


@pytest.mark.parametrize(
    ("shape", "patch"), [((3, 8, 12), (4, 2)), ((2, 12), (3,)), ((1, 4, 6, 8), (2, 3, 4))]
)
def test_patches_go_back_where_they_came_from(shape, patch):
    patcher, x = Patcher(shape, patch), torch.randn(2, *shape)
    tokens = patcher.fold(x)
    assert tokens.shape == (2, patcher.tokens, patcher.features)
    assert torch.equal(patcher.unfold(tokens), x)
    corner = x[(slice(None), slice(None), *(slice(p) for p in patch))]
    assert torch.equal(tokens[:, 0], corner.flatten(1))


def test_a_patch_that_does_not_tile_is_refused():
    with pytest.raises(ValueError, match=r"\(5,\).*\(12,\)"):
        Patcher((1, 12), (5,))


def test_an_untrained_network_says_nothing():
    network = DiT((1, 4, 4), (2, 2), classes=3, **SMALL)
    out = network(torch.randn(2, 1, 4, 4), torch.tensor([0.1, 0.9]), torch.tensor([0, 3]))
    assert out.shape == (2, 1, 4, 4) and not out.any()
    joint = JointDiT([(1, 4, 4), (2, 6)], [(2, 2), (3,)], classes=3, **SMALL)
    xs = torch.randn(2, 1, 4, 4), torch.randn(2, 2, 6)
    outs = joint(xs, torch.rand(2, 2), torch.tensor([0, 3]))
    assert [o.shape for o in outs] == [x.shape for x in xs] and not any(o.any() for o in outs)


def test_padding_is_not_looked_at_and_its_output_is_zero():
    network = awake(DiT((2, 6), (1,), classes=3, **SMALL))
    x, sigma, label = torch.randn(2, 2, 6), torch.tensor([0.2, 0.7]), torch.tensor([0, 3])
    length = torch.tensor([4, 6])
    out = network(x, sigma, label, length)
    assert not out[0, :, 4:].any() and out[0, :, :4].all() and out[1].all()
    other = x.clone()
    other[0, :, 4:] = 100 * torch.randn(2, 2)
    torch.testing.assert_close(network(other, sigma, label, length), out)
    whole = network(x, sigma, label)
    torch.testing.assert_close(out[1], whole[1])
    assert not torch.allclose(out[0, :, :4], whole[0, :, :4], atol=1e-3)


@pytest.mark.parametrize("changed", [0, 1])
def test_each_modality_hears_its_own_noise_level(changed):
    """Without blocks, and so without attention, a modality depends on its own σ alone."""
    network = awake(JointDiT([(1, 4, 4), (2, 6)], [(2, 2), (3,)], 3, **SMALL | dict(depth=0)))
    xs, label = (torch.randn(2, 1, 4, 4), torch.randn(2, 2, 6)), torch.tensor([0, 3])
    sigma = torch.full((2, 2), 0.5)
    before = network(xs, sigma, label)
    sigma[:, changed] = 0.9
    after = network(xs, sigma, label)
    assert torch.equal(after[1 - changed], before[1 - changed])
    assert not torch.allclose(after[changed], before[changed], atol=1e-2)


def test_modalities_attend_to_each_other():
    network = awake(JointDiT([(1, 4, 4), (2, 6)], [(2, 2), (3,)], 3, **SMALL))
    xs, sigma = [torch.randn(1, 1, 4, 4), torch.randn(1, 2, 6)], torch.full((1, 2), 0.5)
    before = network(xs, sigma, torch.tensor([1]))
    after = network([xs[0], xs[1] + 1], sigma, torch.tensor([1]))
    assert not torch.allclose(after[0], before[0], atol=1e-3)


def test_networks_run_in_bf16():
    x, sigma, label = torch.randn(2, 2, 6), torch.tensor([0.2, 0.7]), torch.tensor([0, 3])
    network = awake(DiT((2, 6), (1,), classes=3, **SMALL | dict(depth=1)))
    length = torch.tensor([4, 6])
    exact = network(x, sigma, label, length)
    rounded = network.bfloat16()(x.bfloat16(), sigma, label, length)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() < 0.05 * exact.norm()
    joint = awake(JointDiT([(1, 4, 4), (2, 6)], [(2, 2), (3,)], 3, **SMALL)).bfloat16()
    xs = torch.randn(2, 1, 4, 4).bfloat16(), x.bfloat16()
    assert {o.dtype for o in joint(xs, torch.rand(2, 2), label)} == {torch.bfloat16}


@pytest.mark.parametrize("name", RECIPES)
def test_weight_files_stay_small(name):
    recipe = RECIPES[name]
    weights = dict(recipe.build(CLASSES.get(name, 258)).state_dict())
    if recipe.latent is not None:
        inner = Autoencoder(**recipe.latent).state_dict()
        weights |= {f"autoencoder.{key}": value for key, value in inner.items()}
    size = len(tensors_to_bytes({key: value.half() for key, value in weights.items()}))
    assert 6_000_000 < size <= MOST


# The model


def test_labels_are_names_or_numbers(fruit):
    assert fruit.labels(["c", 0, "a"]).tolist() == [2, 0, 0]
    for label in ("Kiwi", 3, -1, 1.5):
        with pytest.raises(ValueError, match=f"fruit knows no class {label!r}; it has 3"):
            fruit.velocity([0, label])


def test_noise_is_the_same_for_a_seed(fruit, pair):
    assert fruit.noise(2, seed=5).shape == (2, 3, 8, 8)
    assert torch.equal(fruit.noise(2, seed=5), fruit.noise(2, seed=5))
    assert not torch.equal(fruit.noise(2, seed=5), fruit.noise(2, seed=6))
    picture, sound = pair.noise(2, seed=5)
    assert picture.shape == (2, 1, 4, 4) and sound.shape == (2, 1, 16)
    assert torch.equal(sound, pair.noise(2, seed=5)[1])
    assert not torch.equal(picture.flatten(1), sound.flatten(1))


@pytest.mark.parametrize("name", ["fruit", "motion", "pair"])
def test_guidance_is_linear_between_the_branches(name, request):
    model = request.getfixturevalue(name)
    options = dict(lengths=[7, 10]) if name == "motion" else {}
    sigma = (0.9, 0.6) if name == "pair" else 0.6
    x = model.noise(2)
    at = {g: model.velocity(["a", 1], g, **options)(x, sigma) for g in (0.0, 1.0, 3.0)}
    parts = list(zip(*at.values())) if name == "pair" else [tuple(at.values())]
    for free, given, guided in parts:
        assert not torch.allclose(free, given, atol=1e-2)
        torch.testing.assert_close(guided, free + 3 * (given - free), rtol=1e-3, atol=1e-3)
    label, nothing = torch.tensor([0, 1]), torch.tensor([3, 3])
    if name == "fruit":
        for row, branch in ((parts[0][1], label), (parts[0][0], nothing)):
            torch.testing.assert_close(row, model.network(x, torch.full((2,), 0.6), branch))


def test_guidance_is_the_judged_one_unless_given(fruit):
    x = fruit.noise(1)
    judged = fruit.velocity([0], RECIPES["fruit"].judged_at["guidance"])(x, 0.5)
    assert torch.equal(fruit.velocity([0])(x, 0.5), judged)


def test_each_part_is_told_its_own_level(pair):
    x, velocity = pair.noise(1), pair.velocity([0], 1.0)
    picture, sound = pair.network(x, torch.tensor([[0.9, 0.6]]), torch.tensor([0]))
    for out, part in zip(velocity(x, (0.9, 0.6)), (picture, sound)):
        torch.testing.assert_close(out, part)
    for out, part in zip(velocity(x, 0.6), velocity(x, (0.6, 0.6))):
        assert torch.equal(out, part)


def test_the_grid_is_shifted():
    assert zoo.shifted_sigmas(4) == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert zoo.shifted_sigmas(2, 3.0) == pytest.approx([1, 0.75, 0])
    for steps, shift in ((0, 1.0), (4, 0.0), (4, float("nan"))):
        with pytest.raises(ValueError, match="a grid needs"):
            zoo.shifted_sigmas(steps, shift)


def test_a_flow_knows_where_its_data_is(fruit):
    (track,) = fruit.grid(10).tracks
    assert track.prediction == "flow" and track.data == 0 and track.alphas is None
    assert track.sigmas == tuple(fruit.sigmas(10)) and track.sigmas[0] == 1
    assert fruit.grid().steps == RECIPES["fruit"].judged_at["steps"]
    assert fruit.grid(4, 1.0).tracks[0].sigmas == (1.0, 0.75, 0.5, 0.25, 0.0)


def test_a_noise_prediction_lives_on_the_sphere():
    """τ = σ/(α + σ) is spread evenly from just below 1: at α = 0 noise says nothing of the data."""
    model = toy("fruit-epsilon", **PICTURE)
    (track,) = model.grid(10).tracks
    assert track.prediction == "epsilon" and track.alphas is not None
    assert [a * a + s * s for a, s in zip(track.alphas, track.sigmas)] == pytest.approx([1] * 11)
    top = model.recipe.top
    assert 0.9 < top < 1
    assert track.tau == pytest.approx([top * (1 - i / 10) for i in range(11)], abs=1e-12)
    for tau, sigma in zip(track.tau, track.sigmas):
        assert float(model.time(sigma, 1, 1)) == pytest.approx(tau, abs=1e-6)


def test_a_data_prediction_says_so():
    (track,) = toy("fruit-x0", **PICTURE).grid(10).tracks
    assert track.prediction == "sample" and track.alphas is not None
    assert track.alphas == pytest.approx([1 - s for s in track.sigmas])


def test_picture_and_sound_have_their_own_grids(pair):
    u = np.linspace(1, 0, 31)
    for sigmas, shift in zip(pair.sigmas(), (12.0, 3.0)):
        assert sigmas == pytest.approx(list(shift * u / (1 + (shift - 1) * u)))
    assert [t.sigmas for t in pair.grid().tracks] == [tuple(s) for s in pair.sigmas()]
    assert pair.sigmas(4, 1.0) == ([1.0, 0.75, 0.5, 0.25, 0.0],) * 2


def guided_at(model: Model, sigmas: list[float], interval: Any) -> list[bool]:
    """Whether guidance acts, at each σ."""
    x = model.noise(1)
    velocity, plain = model.velocity([0], 4.0, interval=interval), model.velocity([0], 1.0)
    always = model.velocity([0], 4.0)
    acts = []
    for sigma in sigmas:
        out = velocity(x, sigma)
        assert torch.equal(out, always(x, sigma)) != torch.equal(out, plain(x, sigma))
        acts.append(torch.equal(out, always(x, sigma)))
    return acts


@pytest.mark.parametrize(
    ("steps", "shift", "interval"),
    [(25, 3.0, (0.5, 0.95)), (25, 3.0, (0.0, 0.6)), (10, 1.0, (0.3, 0.8)), (10, 1.0, (0.7, 1.0))],
    ids=["judged", "to the end", "upper end on the grid", "lower end on the grid"],
)
def test_guidance_acts_within_its_interval_and_the_grid_says_where_it_switches(
    objects, steps, shift, interval
):
    sigmas = objects.sigmas(steps, shift)[:-1]
    acts = guided_at(objects, sigmas, interval)
    assert acts == [interval[0] <= s <= interval[1] for s in sigmas]
    assert any(acts) and not all(acts)
    switches = tuple(i for i in range(1, steps) if acts[i] != acts[i - 1])
    assert objects.grid(steps, shift, interval).regimes == switches
    assert objects.grid(steps, shift).regimes == ()


def test_an_interval_is_of_the_noise_level_on_the_sphere_too():
    model = toy("fruit-epsilon", **PICTURE)
    interval = (0.3, 0.7)
    sigmas = model.sigmas(20)[:-1]
    acts = guided_at(model, sigmas, interval)
    assert acts == [0.3 <= s <= 0.7 for s in sigmas]
    switches = tuple(i for i in range(1, 20) if acts[i] != acts[i - 1])
    assert model.grid(20, interval=interval).regimes == switches


def test_an_interval_is_of_the_first_part(pair):
    lead = pair.sigmas(10)[0]
    inside = [0.6 <= s <= 0.95 for s in lead[:-1]]
    switches = tuple(i for i in range(1, 10) if inside[i] != inside[i - 1])
    assert pair.grid(10, interval=(0.6, 0.95)).regimes == switches


def test_lengths_are_checked(motion, fruit):
    x = motion.noise(2)
    out = motion.velocity([0, 1], 3.0, lengths=[4, 10])(x, 0.5)
    assert not out[0, :, 4:].any() and out[0, :, :4].all() and out[1].all()
    for lengths in ([4], [4, 0], [4, 11]):
        with pytest.raises(ValueError, match=rf"2 numbers from 1 to 10, got \{lengths}"):
            motion.velocity([0, 1], lengths=lengths)
    with pytest.raises(ValueError, match="fruit has samples of one size; leave lengths out"):
        fruit.velocity([0], lengths=[4])


# Where weights lie


def test_unknown_models_are_quoted():
    with pytest.raises(ValueError, match=r"no 'vegetable'; it has digits-audio, .*motion"):
        zoo.load("vegetable")


def test_missing_weights_say_where_they_were_looked_for(monkeypatch, tmp_path):
    monkeypatch.delenv("GEOSHRINK_ZOO", raising=False)
    with pytest.raises(FileNotFoundError) as missing:
        find("vegetable", None)
    for part in ("vegetable", str(PACKAGE), str(CLONE), "clone it", "folder="):
        assert part in str(missing.value)
    with pytest.raises(FileNotFoundError) as missing:
        zoo.load("motion", folder=tmp_path)
    assert str(tmp_path) in str(missing.value) and str(CLONE) not in str(missing.value)


def test_the_environment_names_a_folder(monkeypatch, tmp_path):
    (tmp_path / "motion.safetensors").touch()
    monkeypatch.setenv("GEOSHRINK_ZOO", str(tmp_path))
    assert find("motion", None) == tmp_path
    other = tmp_path / "other"
    other.mkdir()
    (other / "motion.safetensors").touch()
    assert find("motion", other) == other


def test_fruit_comes_with_the_package_whatever_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("GEOSHRINK_ZOO", str(tmp_path))
    assert zoo.load("fruit").name == "fruit"


def test_damaged_weights_are_noticed(tmp_path):
    for end in ("json", "safetensors"):
        (tmp_path / f"fruit.{end}").write_bytes((PACKAGE / f"fruit.{end}").read_bytes())
    assert zoo.load("fruit", folder=tmp_path).card == ""
    file = tmp_path / "fruit.safetensors"
    blob = bytearray(file.read_bytes())
    blob[-1] ^= 1
    file.write_bytes(blob)
    with pytest.raises(ValueError, match=r"fruit in .* are damaged \(sha256 differs\)"):
        zoo.load("fruit", folder=tmp_path)


# What is there


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_weight_files_are_those_of_their_facts(file):
    facts = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    blob = file.read_bytes()
    others = {f"{task}-{kind}" for task in TASKS for kind in KINDS}
    assert facts["name"] == file.stem in {*RECIPES, *others}
    assert hashlib.sha256(blob).hexdigest() == facts["sha256"]
    assert len(blob) <= MOST


LICENCES = {"fruit": "CC BY-SA 4.0", "digits": "CC BY-SA 4.0", "motion": "CMU", "objects": "CC BY"}
CREDITS = {
    "fruit": ["Fruits-360", "Mihai Oltean"],
    "digits": ["Free Spoken Digit Dataset"],
    "motion": ["mocap.cs.cmu.edu"],
    "objects": ["Google Scanned Objects"],
}


@pytest.mark.parametrize("name", PRESENT)
def test_a_model_is_what_its_card_says(name):
    model, kind = zoo.load(name), name.split("-")[0]
    modules = [m for m in (model.network, model.autoencoder) if m is not None]
    count = sum(tensor.numel() for m in modules for tensor in m.state_dict().values())
    assert count == model.facts["parameters"] <= 6_000_000
    assert len(model.classes) == CLASSES.get(name, 258) == len(set(model.classes))
    assert (PLACES[name] / f"{name}.md").is_file()
    for part in (f"{count:,}", f"{model.facts['steps']:,}", LICENCES[kind], *CREDITS[kind]):
        assert part in model.card, f"the card of {name} does not say {part!r}"


# Whether they are any good


def trained(name: str) -> Model:
    if name not in PRESENT:
        pytest.skip(f"the weights of {name} are not in {PLACES[name]}")
    return zoo.load(name)


@pytest.mark.parametrize("name", ["fruit", "fruit-epsilon", "fruit-x0", "fruit-latent"])
def test_it_draws_a_banana(name):
    """Eight calls on the full grid: yellow in the middle, white around."""
    model = trained(name)
    x = sample(model.velocity(["Banana 1"], 3.0), model.noise(1), model.grid(50), 8)
    pixels = model.values(x)[0]
    (image,) = model.decode(x)
    assert image.size == (64, 64)
    assert float(pixels[:, :2, :2].mean()) > 0.9
    red, green, blue = pixels
    banana = blue < 0.5
    assert 0.05 < float(banana.float().mean()) < 0.9
    assert float((red[banana] + green[banana]).mean()) / 2 > float(blue[banana].mean()) + 0.15


def test_it_walks():
    """Forward, where the left hip is to the left, by more than a metre, and on the ground."""
    model, frames = trained("motion"), 60
    velocity = model.velocity(["walk"], lengths=[frames])
    x = sample(velocity, model.noise(1), model.grid(), 12)
    (joints,) = model.decode(x, [frames])
    names = model.facts["data"]["joint_names"]
    assert joints.shape == (frames, len(names), 3)
    hips, left, right = (joints[:, names.index(n)] for n in ("Hips", "LeftUpLeg", "RightUpLeg"))
    forward = np.cross((left - right) * [1, 0, 1], [0, 1, 0])
    forward /= np.linalg.norm(forward, axis=1, keepdims=True)
    assert (np.diff(hips, axis=0) * forward[1:]).sum() > 1
    assert np.abs(joints[:, :, 1].min(1)).max() < 0.15


def test_it_makes_a_solid():
    pytest.importorskip("trimesh")
    pytest.importorskip("skimage")
    model = trained("objects")
    interval = model.judged_at["interval"]
    grid = model.grid(interval=interval)
    (mesh,) = model.decode(sample(model.velocity([3], interval=interval), model.noise(1), grid, 8))
    assert mesh.is_watertight and 0.05 < mesh.volume < 8
    assert np.abs(mesh.bounds).max() <= 1 + 2 / 32


def test_it_speaks():
    """Loud in the middle, quiet at the ends, and no more than full scale."""
    model = trained("digits-audio")
    x = sample(model.velocity(["7 jackson"]), model.noise(1), model.grid(), 8)
    (wave,) = model.decode(x)
    assert wave.shape == (8192,) and np.abs(wave).max() <= 1
    loud = [math.sqrt(float(np.mean(part**2))) for part in np.split(wave, 8)]
    assert max(loud) > 0.05 and max(loud[0], loud[-1]) < 0.1 * max(loud)


@pytest.mark.parametrize("name", PRESENT)
def test_what_it_makes_can_be_scored_and_shown(name):
    if name == "objects":
        pytest.importorskip("skimage")
        pytest.importorskip("trimesh")
    model = zoo.load(name)
    label, noise = [model.classes[0]], model.noise(1)
    full, fast = (model.made(model.sample(label, noise, steps=steps)) for steps in (3, 2))
    skipped: set[str] = set()
    scores = fast.score(full, skipped)
    assert full.noun == MADE.get(name, "picture") and len(full) == 1 and full.is_finite()
    assert len(scores) == len(full.metrics) and scores != full.score(full, skipped)
    assert all(math.isfinite(number) for (number,) in scores) and not skipped
    shown = [made.medium(0, "alt", full) for made in (full, fast)]
    assert shown[0] != shown[1] and 'alt="alt' in shown[0].html()


def test_a_motion_is_made_with_its_own_lengths(motion):
    """Padding is neither scored nor shown."""
    facts = dict(fps=20, joint_names=["Hips", "LFoot"], parents=[-1, 0], bones=[1])
    facts |= dict(mean=[0.0] * 6, std=[1.0] * 6)
    model = dataclasses.replace(motion, facts={**motion.facts, "data": facts})
    x = torch.randn(2, 6, 10, generator=torch.manual_seed(0))
    other = x.clone()
    other[0, :, 4:] = 9
    made, same = model.made(x, [4, 10]), model.made(other, [4, 10])
    assert made.score(same, set())[0] == [0, 0]
    assert made.medium(0, "", made) == same.medium(0, "", made)
    assert model.made(other).score(model.made(x), set())[0][0] > 0


def test_what_does_not_fit_is_quoted(motion, pair, fruit):
    velocity = motion.velocity([0, 1], 2.0)
    for x in (motion.noise(1), torch.randn(2, 5, 10)):
        with pytest.raises(ValueError, match=rf"needs x of shape .*got \[\({len(x)}, "):
            velocity(x, 0.5)
    with pytest.raises(ValueError, match="guidance must be a finite number, got nan"):
        fruit.velocity([0], float("nan"))
    with pytest.raises(ValueError, match=r"interval is .*got \(0.9, 0.5\)"):
        fruit.grid(10, interval=(0.9, 0.5))
    with pytest.raises(ValueError, match=r"2 σ-grids, got the shifts \(1.0, 2.0, 3.0\)"):
        pair.sigmas(5, (1.0, 2.0, 3.0))
    for show in (motion.values, motion.decode):
        with pytest.raises(ValueError, match=r"lengths must be 2 numbers from 1 to 10"):
            show(motion.noise(2), lengths=[5])
