"""The embedded model: it loads, it is what its card says, and its recipe trains."""

from __future__ import annotations

import dataclasses
import io
import json
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from geoshrink import sample, zoo
from geoshrink.zoo import train as training
from geoshrink.zoo.network import DiT, Patcher
from geoshrink.zoo.recipes import FRUIT, read_images


@pytest.fixture(scope="module")
def model():
    return zoo.load("fruit")


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
    network = DiT((1, 4, 4), (2, 2), classes=3, width=16, depth=1, heads=2, condition=8)
    out = network(torch.randn(2, 1, 4, 4), torch.tensor([0.1, 0.9]), torch.tensor([0, 3]))
    assert out.shape == (2, 1, 4, 4) and not out.any()


def test_the_model_is_what_its_card_says(model):
    parameters = sum(p.numel() for p in model.network.parameters())
    blob = (files("geoshrink.zoo") / "weights" / "fruit.safetensors").read_bytes()
    assert parameters == model.facts["parameters"] <= 6_000_000
    assert len(blob) <= 12_000_000
    assert f"{parameters:,}" in model.card and "CC BY-SA 4.0" in model.card
    assert "Fruits-360" in model.card and f"{model.facts['steps']:,}" in model.card
    assert len(model.classes) == 258


def test_damaged_weights_are_noticed(monkeypatch):
    facts = json.loads((files("geoshrink.zoo") / "weights" / "fruit.json").read_text())
    monkeypatch.setattr(json, "loads", lambda text: facts | {"sha256": "0" * 64})
    with pytest.raises(ValueError, match=r"fruit are damaged"):
        zoo.load("fruit")


def test_unknown_names_are_quoted(model):
    with pytest.raises(ValueError, match=r"no 'vegetable'; it has fruit"):
        zoo.load("vegetable")
    for label in ("Kiwi", 258, -1, 1.5):
        with pytest.raises(ValueError, match=f"no class {label!r}"):
            model.labels([label])
    assert model.labels(["Kiwi 1", 3]).tolist() == [model.classes.index("Kiwi 1"), 3]


def test_noise_is_the_same_everywhere(model):
    assert torch.equal(model.noise(2, seed=5), model.noise(2, seed=5))
    assert not torch.equal(model.noise(2, seed=5), model.noise(2, seed=6))


def test_guidance_is_linear_between_the_branches(model):
    x, labels = model.noise(1), ["Banana 1"]
    at = {g: model.velocity(labels, g)(x, 0.7) for g in (0.0, 1.0, 3.0)}
    torch.testing.assert_close(at[3.0], at[0.0] + 3 * (at[1.0] - at[0.0]), rtol=1e-3, atol=1e-4)


def test_the_grid_is_shifted():
    assert zoo.shifted_sigmas(4) == [1.0, 0.75, 0.5, 0.25, 0.0]
    assert zoo.shifted_sigmas(2, 3.0) == pytest.approx([1, 0.75, 0])
    for steps, shift in ((0, 1.0), (4, 0.0), (4, float("nan"))):
        with pytest.raises(ValueError, match="a grid needs"):
            zoo.shifted_sigmas(steps, shift)


def test_it_draws_a_banana(model):
    """Eight calls on the full grid: yellow in the middle, white around."""
    x = sample(model.velocity(["Banana 1"], 3.0), model.noise(1), model.sigmas(50), 8)
    red, green, blue = model.pixels(x)[0]
    image = model.decode(x)[0]
    assert image.size == (64, 64)
    assert float(model.pixels(x)[0, :, :2, :2].mean()) > 0.9
    fruit = blue < 0.5
    assert 0.05 < float(fruit.float().mean()) < 0.9
    assert float((red[fruit] + green[fruit]).mean()) / 2 > float(blue[fruit].mean()) + 0.15


def packed(folder, n=12, side=8):
    rng, blobs = np.random.default_rng(0), []
    for _ in range(n):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 255, (side, side, 3), dtype=np.uint8)).save(file, "WEBP")
        blobs.append(file.getvalue())
    path = folder / "pictures.npz"
    np.savez(
        path,
        data=np.frombuffer(b"".join(blobs), dtype=np.uint8),
        off=np.cumsum([0, *map(len, blobs)]),
        labels=np.arange(n) % 3,
        classes=np.array(["a", "b", "c"]),
    )
    return path


def test_a_few_steps_of_the_recipe(tmp_path):
    path = packed(tmp_path)
    pictures, labels, classes = read_images(path)
    assert pictures.shape == (12, 3, 8, 8) and classes == ["a", "b", "c"] and len(labels) == 12
    network: dict[str, Any] = dict(shape=(3, 8, 8), patch=(4, 4), width=32, depth=1, heads=2)
    recipe = dataclasses.replace(
        FRUIT, network=network, training=FRUIT.training | dict(batch=16, rate=2e-2)
    )
    average, facts = training.train(recipe, path, minutes=1, device="cpu", max_steps=60)
    assert facts["steps"] == 60 and facts["classes"] == classes
    x0 = recipe.normalise(pictures)

    @torch.no_grad()
    def loss(network):
        torch.manual_seed(0)
        return float(
            torch.stack([training.flow_loss(network, x0, labels) for _ in range(8)]).mean()
        )

    learnt, fresh = loss(average), loss(DiT(classes=3, **network))
    assert learnt < 0.97 * fresh
    training.save(average, facts, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "fruit.json").read_text())["sha256"]
    assert (tmp_path / "out" / "fruit.safetensors").stat().st_size > 1000
