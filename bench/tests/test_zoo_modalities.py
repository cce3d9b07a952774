"""Each modality there and back on data made by hand, and every recipe trains on a little of it."""

from __future__ import annotations

import dataclasses
import io
import json
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from geoshrink import sample
from geoshrink_bench import zoo
from geoshrink_bench.zoo import train as training
from geoshrink_bench.zoo.autoencoder import Autoencoder, autoencoder_loss
from geoshrink_bench.zoo.modalities import Audiovisual, Clips, Motion, Objects, Pictures, Sound
from geoshrink_bench.zoo.modalities.motion import SHORTEST
from geoshrink_bench.zoo.modalities.objects import MEAN, STD, clusters, mesh_of, surface_of
from geoshrink_bench.zoo.modalities.sound import GAIN, JITTER, SAMPLES, compress, expand
from geoshrink_bench.zoo.network import DiT
from geoshrink_bench.zoo.recipes import RECIPES, Recipe

# Data in the formats that the recipes read


def packed(path: Path, pictures: np.ndarray, labels: np.ndarray, frames: int | None = None) -> Path:
    """Pictures (n, height, width, 3) as lossless WEBP files in one archive."""
    blobs = []
    for picture in pictures:
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "WEBP", lossless=True)
        blobs.append(file.getvalue())
    archive: dict[str, Any] = dict(
        data=np.frombuffer(b"".join(blobs), dtype=np.uint8),
        off=np.cumsum([0, *map(len, blobs)]),
        labels=labels.astype(np.int16),
        classes=np.array(["a", "b", "c"]),
    )
    if frames is not None:
        archive["frames"] = frames
    np.savez(path, **archive)
    return path


def coloured(side: int, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """(pictures of one bright square on black, red, green or blue by their label, labels)."""
    labels = np.arange(n) % 3
    pictures = np.zeros((n, side, side, 3), dtype=np.uint8)
    for picture, label in zip(pictures, labels):
        picture[side // 4 : -side // 4, side // 4 : -side // 4, label] = 255
    return pictures, labels


def write_pictures(path: Path, side: int = 8) -> Path:
    return packed(path, *coloured(side))


def write_clips(path: Path, frames: int = 4, side: int = 8) -> Path:
    """Each clip gets brighter with time."""
    pictures, labels = coloured(side)
    ramp = np.linspace(0.25, 1, frames)[None, :, None, None, None]
    clips = (pictures[:, None] * ramp).astype(np.uint8)
    return packed(path, clips.reshape(-1, side, side, 3), labels, frames)


SPEAKERS = ("ann", "bob")


def write_speech(path: Path) -> Path:
    """Tones, one pitch per digit, twice by each of two people; one recording is too long."""
    digits = np.tile(np.arange(10), 4)
    speakers = np.array([SPEAKERS[i // 10 % 2] for i in range(40)])
    lengths = 2000 + 100 * np.arange(40)
    lengths[5] = SAMPLES - 2 * JITTER + 1  # too long by one sample
    lengths[6] = SAMPLES - 2 * JITTER
    tones = [
        (100 * (1 + i)) * np.sin(2 * np.pi * (200 + 100 * d) * np.arange(n) / 8000)
        for i, (d, n) in enumerate(zip(digits, lengths))
    ]
    audio = np.concatenate(tones).astype(np.int16)
    np.savez(path, audio=audio, length=lengths, digit=digits.astype(np.uint8), speaker=speakers)
    return path


PARENTS = [-1, 0, 1, 1, 3]
HIDDEN = 1  # the joint that lies on its parent


def skeleton(frames: int = 32, n: int = 6) -> np.ndarray:
    """Hips that go forward and up and down, one joint upon them, two limbs that swing, a foot."""
    t = np.arange(frames)[None] / 10 + np.arange(n)[:, None]
    joints = np.zeros((n, frames, 5, 3))
    speed = 0.05 * (1 + np.arange(n))[:, None]
    joints[:, :, 0] = np.stack([speed * t, 0.9 + 0.05 * np.sin(3 * t), -speed * t**1.5], -1)
    joints[:, :, 1] = joints[:, :, 0]
    for joint, parent, length, rate in ((2, 1, 0.5, 1.0), (3, 1, 0.4, 1.7), (4, 3, 0.3, 0.6)):
        bone = np.stack([np.sin(rate * t), -np.cos(rate * t), 0 * t], -1)
        joints[:, :, joint] = joints[:, :, parent] + length * bone
    return joints.astype(np.float32)


def write_motion(path: Path, frames: int = 32) -> Path:
    joints = skeleton(frames)
    np.savez(
        path,
        joints=joints,
        labels=np.arange(len(joints), dtype=np.int16) % 2,
        label_names=np.array(["walk", "run"]),
        joint_names=np.array(["Hips", "Pelvis", "Arm", "Leg", "Foot"]),
        parents=np.array(PARENTS, dtype=np.int16),
    )
    return path


def ball(radius: float, centre: tuple[float, float, float] = (0, 0, 0), side: int = 32):
    """The signed distance of a ball in [−1, 1]³ at the centres of the cells."""
    axis = (np.arange(side) + 0.5) * 2 / side - 1
    place = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1) - np.array(centre)
    return np.linalg.norm(place, axis=-1) - radius


def write_objects(path: Path, side: int = 8) -> Path:
    fields = [ball(r, (x, 0, 0), side) for r in np.linspace(0.3, 0.8, 9) for x in (-0.15, 0.1)]
    clipped = np.clip(np.stack(fields), -0.15, 0.15) / 0.15
    np.savez(path, sdf=np.round(127.5 * (clipped + 1)).astype(np.uint8))
    return path


# Pictures and clips


def test_pictures_come_back(tmp_path):
    path = write_pictures(tmp_path / "pictures.npz")
    modality, pick = Pictures(), torch.arange(12)
    data = modality.read(path)
    assert data.classes == ["a", "b", "c"] and data.labels.tolist() == [0, 1, 2] * 4
    (x,), length = modality.batch(data, pick)
    assert length is None and x.shape == (12, 3, 8, 8) and x.min() == -1 and x.max() == 1
    want = coloured(8)[0]  # a mirrored square is the same square
    for image, picture in zip(modality.decode(x, {}, None), want):
        assert image.size == (8, 8) and np.array_equal(np.asarray(image), picture)
    values = modality.values(3 * x, {})
    assert values.min() == 0 and values.max() == 1


def test_half_of_the_pictures_are_mirrored_sideways(tmp_path):
    torch.manual_seed(0)
    picture = np.zeros((1, 8, 8, 3), dtype=np.uint8)
    picture[0, 0, 0] = 255
    path = packed(tmp_path / "corner.npz", picture, np.array([0]))
    (x,), _ = Pictures().batch(Pictures().read(path), torch.zeros(200, dtype=torch.long))
    left, right = (x[:, 0, 0, 0] > 0).sum(), (x[:, 0, 0, 7] > 0).sum()
    assert left + right == 200 and 70 < left < 130
    assert not (x[:, 0, 1:] > -1).any()


def test_frames_keep_their_order(tmp_path, monkeypatch):
    path = write_clips(tmp_path / "clips.npz")
    modality = Clips()
    data = modality.read(path)
    assert data.parts[0].shape == (12, 3, 4, 8, 8) and len(data.labels) == 12
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.ones(*shape))  # nothing mirrored
    (x,), _ = modality.batch(data, torch.tensor([4]))
    assert (x[0, 1, :, 4, 4].diff() > 0).all() and (x[0, 0] == -1).all()  # label 1: green
    (frames,) = modality.decode(x, {}, None)
    assert [f.getpixel((4, 4))[1] for f in frames] == [63, 127, 191, 255]
    assert modality.values(x, {}).shape == (1, 3, 4, 8, 8)


def test_clips_run_backwards_as_often_as_forwards(tmp_path):
    torch.manual_seed(0)
    data = Clips().read(write_clips(tmp_path / "clips.npz"))
    (x,), _ = Clips().batch(data, torch.ones(200, dtype=torch.long))
    rises = x[:, 1, :, 4, 4].diff()
    forwards = (rises > 0).all(1)
    assert ((rises > 0).all(1) | (rises < 0).all(1)).all() and 70 < forwards.sum() < 130


# Sound


def test_expand_undoes_compress():
    wave = torch.linspace(-1, 1, 101)
    torch.testing.assert_close(expand(compress(wave)), wave)
    assert compress(torch.tensor([-0.25, 0.0, 1.0])).tolist() == [-GAIN / 2, 0, GAIN]


def test_recordings_have_peak_one_and_long_ones_are_left_out(tmp_path):
    data = Sound().read(write_speech(tmp_path / "speech.npz"))
    (waves,) = data.parts
    assert waves.shape == (39, SAMPLES) and len(data.labels) == 39
    torch.testing.assert_close(waves.float().abs().amax(1), torch.ones(39), atol=2e-3, rtol=0)
    assert data.classes == [f"{d} {s}" for d in range(10) for s in SPEAKERS]
    digits = [d for i, d in enumerate([*range(10)] * 4) if i != 5]
    assert [data.classes[i][0] for i in data.labels.tolist()] == list(map(str, digits))
    assert data.classes[int(data.labels[0])] == "0 ann"
    assert data.classes[int(data.labels[-1])] == "9 bob"
    pitch = np.fft.rfft(waves.float().numpy()).__abs__().argmax(1) * 8000 / SAMPLES
    assert pitch == pytest.approx([200 + 100 * d for d in digits], abs=5)


def test_recordings_move_a_little_and_never_wrap(tmp_path):
    torch.manual_seed(0)
    data = Sound().read(write_speech(tmp_path / "speech.npz"))
    longest = 5  # of those that are kept: the seventh, which is as long as may be
    (x,), _ = Sound().batch(data, torch.full((50,), longest))
    heard = Sound().values(x, data.facts)
    assert x.shape == (50, 1, SAMPLES) and heard.shape == (50, SAMPLES)
    began = (heard.abs() > 1e-4).int().argmax(1)
    assert began.unique().numel() > 20 and began.max() <= 2 * JITTER + 8
    stored = data.parts[0][longest].float()
    for row in heard[:5]:
        shift = int((row.abs() > 1e-4).int().argmax() - (stored.abs() > 1e-4).int().argmax())
        assert abs(shift) <= JITTER
        torch.testing.assert_close(row, stored.roll(shift), atol=1e-3, rtol=0)
    assert Sound().decode(2 * x, data.facts, None)[0].max() == 1


# Sound with a picture


def test_picture_and_sound_are_of_the_same_digit(tmp_path, monkeypatch):
    """Every pixel of a picture is its digit; a recording's pitch says its own."""
    datasets = pytest.importorskip("sklearn.datasets")
    target = np.repeat(np.arange(10), 1 + np.arange(10))[::-1].copy()  # unequal counts
    images = np.ones((len(target), 8, 8)) * target[:, None, None]
    images[:, 0, 0] = np.arange(len(target)) / len(target)  # which picture it is
    digits = types.SimpleNamespace(target=target, images=images)
    monkeypatch.setattr(datasets, "load_digits", lambda: digits)
    torch.manual_seed(0)
    modality = Audiovisual()
    data = modality.read(write_speech(tmp_path / "speech.npz"))
    pick = torch.randint(len(data.labels), (1000,))
    (pictures, waves), length = modality.batch(data, pick)
    assert length is None and pictures.shape == (1000, 1, 8, 8)
    assert waves.shape == (1000, 1, SAMPLES)
    seen, heard = modality.values((pictures, waves), data.facts)
    assert torch.equal(seen[:, 0, 1:].amax((1, 2)), seen[:, 0, 1:].amin((1, 2)))
    written = (16 * seen[:, 0, 4, 4]).round()
    pitch = torch.fft.rfft(heard).abs().argmax(1) * 8000 / SAMPLES
    assert torch.equal(written, ((pitch - 200) / 100).round())
    nines = seen[written == 9][:, 0, 0, 0].unique()
    assert nines.numel() == 10  # every picture of a digit is shown
    assert written.unique().numel() == 10


# Motion


def test_a_skeleton_comes_back(tmp_path):
    path, joints = write_motion(tmp_path / "motion.npz"), torch.from_numpy(skeleton())
    modality = Motion()
    data = modality.read(path)
    facts = data.facts
    assert facts["bones"] == [2, 3, 4] and data.classes == ["walk", "run"]
    assert facts["parents"] == PARENTS and facts["joint_names"][0] == "Hips"
    (x,) = data.parts
    assert x.shape == (6, 3 + 3 * 3, 32)
    spread = x.std((0, 2))
    assert x.mean((0, 2)).abs().max() < 1e-4
    assert ((spread - 1).abs() < 1e-2).sum() == 9 and spread.max() < 1.01  # bones stay in a plane
    back = modality.values(x, facts)
    want = joints - joints[:, :1, :1] * torch.tensor([1.0, 0, 1])
    torch.testing.assert_close(back, want, atol=1e-4, rtol=0)


def test_bones_are_rigid_whatever_the_network_says(tmp_path):
    data = Motion().read(write_motion(tmp_path / "motion.npz"))
    joints = Motion().values(torch.randn(2, 12, 32), data.facts)
    lengths = (joints - joints[:, :, PARENTS])[:, :, 1:].norm(dim=-1)
    assert lengths.std(1).max() < 1e-5
    assert not lengths[:, :, HIDDEN - 1].any() and lengths[:, :, 1:].min() > 0.1


def test_clips_are_cropped_and_padded_with_zeros(tmp_path):
    torch.manual_seed(0)
    data = Motion().read(write_motion(tmp_path / "motion.npz", frames=40))
    pick = torch.randint(6, (400,))
    (x,), length = Motion().batch(data, pick)
    assert length.min() == SHORTEST and length.max() == 40
    assert 0.4 < (length == 40).float().mean() < 0.65
    starts = set()
    for row, i, n in zip(x[:60], pick.tolist(), length.tolist()):
        assert not row[:, n:].any() and row[:, n - 1].any()
        windows = data.parts[0][i].unfold(1, n, 1)  # (features, starts, n)
        (found,) = (windows == row[:, None, :n]).all(2).all(0).nonzero()[0].tolist()
        starts.add(found)
    assert len(starts) > 5


def test_motion_ends_where_its_length_says(tmp_path):
    data = Motion().read(write_motion(tmp_path / "motion.npz"))
    x = data.parts[0][:2].clone()
    short, whole = Motion().decode(x, data.facts, [20, 32])
    assert short.shape == (20, 5, 3) and whole.shape == (32, 5, 3)
    x[0, :, 20:] = 100
    again, _ = Motion().decode(x, data.facts, [20, 32])
    assert np.array_equal(short, again)
    values = Motion().values(x, data.facts, [20, 32]).numpy()
    np.testing.assert_allclose(values[0, :20], short, atol=1e-6)
    np.testing.assert_allclose(values[1], whole, atol=1e-6)
    assert not values[0, 20:].any()


# Objects


def test_clusters_are_the_same_every_time(tmp_path):
    torch.manual_seed(0)
    middles = torch.tensor([[0.0, 0], [10, 0], [20, 5]])
    points = (middles[:, None] + torch.randn(3, 20, 2)).flatten(0, 1)[torch.randperm(60)]
    labels = clusters(points, 3)
    torch.manual_seed(1)
    assert torch.equal(clusters(points, 3), labels)
    nearest = torch.cdist(points, middles).argmin(1)
    assert len({(a, b) for a, b in zip(labels.tolist(), nearest.tolist())}) == 3
    path = write_objects(tmp_path / "objects.npz")
    assert torch.equal(Objects().read(path).labels, Objects().read(path).labels)


def test_distances_come_back(tmp_path):
    data = Objects().read(write_objects(tmp_path / "objects.npz"))
    assert len(data.classes) == 12 and data.parts[0].shape == (18, 1, 8, 8, 8)
    (x,), _ = Objects().batch(data, torch.arange(18))
    field = Objects().values(x, data.facts)
    want = torch.from_numpy(np.stack([ball(r, (0.1, 0, 0), 8) for r in np.linspace(0.3, 0.8, 9)]))
    want = want.clamp(-0.15, 0.15)
    for row, ideal in zip(field[1::2], want):  # either way round along the mirrored axis
        ways = (row - ideal).abs().max(), (row - ideal.flip(0)).abs().max()
        assert min(ways) < 0.15 / 127 < max(ways)


def test_a_mirrored_object_is_an_object_of_the_same_class(tmp_path):
    torch.manual_seed(0)
    data = Objects().read(write_objects(tmp_path / "objects.npz"))
    stored = data.parts[0][1]
    (x,), _ = Objects().batch(data, torch.ones(200, dtype=torch.long))
    back = (127.5 * (x * STD + MEAN + 1)).round().byte()
    same, flipped = ((back == side).flatten(1).all(1) for side in (stored, stored.flip(1)))
    assert (same | flipped).all() and 70 < same.sum() < 130
    path, some = tmp_path / "mirrored.npz", data.parts[0][:, 0].clone()
    some[::3] = some[::3].flip(1)
    np.savez(path, sdf=some.numpy())
    assert torch.equal(Objects().read(path).labels, data.labels)


def test_a_ball_has_the_volume_of_a_ball():
    pytest.importorskip("trimesh")
    pytest.importorskip("skimage")
    field = np.clip(ball(0.6, (0.1, -0.2, 0.3)), -0.15, 0.15)
    x = torch.from_numpy((field / 0.15 - MEAN) / STD)[None, None]
    (mesh,) = Objects().decode(x, {"truncation": 0.15}, None)
    assert mesh.is_watertight
    assert mesh.volume == pytest.approx(4 / 3 * np.pi * 0.6**3, rel=0.02)  # normals look outwards
    assert mesh.bounds.mean(0) == pytest.approx([0.1, -0.2, 0.3], abs=0.01)


def test_what_leaves_the_cube_is_closed_and_nothing_is_nothing():
    pytest.importorskip("trimesh")
    pytest.importorskip("skimage")
    cut = mesh_of(np.clip(ball(0.6, (0.9, 0, 0)), -0.15, 0.15))
    assert cut.is_watertight and 0 < cut.volume < 0.75 * 4 / 3 * np.pi * 0.6**3
    assert mesh_of(np.full((8, 8, 8), 0.15)).is_empty


def test_only_the_largest_piece_is_kept():
    pytest.importorskip("trimesh")
    pytest.importorskip("skimage")
    field = np.minimum(ball(0.2, (-0.7, -0.7, -0.7)), ball(0.5, (0.3, 0.3, 0.3)))
    assert surface_of(field).body_count == 2
    mesh = mesh_of(field)
    assert mesh.body_count == 1 and mesh.is_watertight
    assert mesh.bounds.mean(0) == pytest.approx([0.3, 0.3, 0.3], abs=0.01)
    assert mesh.volume == pytest.approx(4 / 3 * np.pi * 0.5**3, rel=0.03)


# The loss


@pytest.mark.parametrize("kind", ["flow", "epsilon", "sample"])
def test_who_knows_the_answer_has_no_loss(kind):
    """Data that are one point c: the network can work out ε from x_τ, and so all three targets."""
    c = torch.full((64, 2, 5), 0.7)

    def network(x, tau, label, length):
        t = tau[:, None, None]
        assert 0 < float(tau.min()) < 0.3 < 0.7 < float(tau.max()) < 1
        mixed = x * torch.hypot(t, 1 - t) if kind == "epsilon" else x
        noise = (mixed - (1 - t) * c) / t
        return {"flow": noise - c, "epsilon": noise, "sample": c}[kind]

    label: Any = torch.zeros(64, dtype=torch.long)
    torch.manual_seed(0)
    assert training.loss_of(network, kind, (c,), label, None) < 1e-6  # type: ignore[arg-type]

    def silent(x, tau, label, length):
        return torch.zeros_like(x)

    assert training.loss_of(silent, kind, (c,), label, None) > 0.1  # type: ignore[arg-type]


def test_padding_has_no_loss():
    x, length = torch.zeros(8, 2, 10), torch.tensor([3] * 4 + [10] * 4)
    valid = torch.arange(10) < length[:, None, None]

    def loss(wrong: float) -> float:
        def network(x, tau, label, length):
            return x / tau[:, None, None] + torch.where(valid, wrong, 1000.0)

        torch.manual_seed(0)
        wronged: Any = network
        return float(training.loss_of(wronged, "flow", (x,), torch.zeros(8), length))

    assert loss(0.0) < 1e-6
    assert loss(2.0) == pytest.approx(4, rel=1e-4)  # the mean over what is not padding


def test_parts_have_noise_levels_of_their_own():
    a, b = torch.zeros(64, 1, 4), torch.ones(64, 1, 2, 2)

    def network(xs, tau, label, length):
        assert tau.shape == (64, 2) and (tau[:, 0] != tau[:, 1]).all()
        levels = tau[:, 0, None, None], tau[:, 1, None, None, None]
        return tuple((x - c) / t for x, c, t in zip(xs, (a, b), levels))

    torch.manual_seed(0)
    joint: Any = network
    assert training.loss_of(joint, "flow", (a, b), torch.zeros(64), None) < 1e-6


# The recipes

TINY: dict[str, Any] = dict(width=32, depth=1, heads=2, condition=16)
PICTURE: dict[str, Any] = dict(shape=(3, 8, 8), patch=(4, 4))
NETWORKS: dict[str, dict[str, Any]] = {
    "fruit": PICTURE,
    "fruit-epsilon": PICTURE,
    "fruit-x0": PICTURE,
    "fruit-latent": dict(patch=(4, 4)),
    "fruit-video": dict(shape=(3, 4, 8, 8), patch=(2, 4, 4)),
    "digits-audio": dict(patch=(256,)),
    "digits-av": dict(patches=((4, 4), (256,))),
    "motion": dict(shape=(12, 32)),
    "objects": dict(shape=(1, 8, 8, 8)),
}
WRITERS = {
    "fruits64.npz": write_pictures,
    "fruits_turning_48.npz": write_clips,
    "fsdd_8k.npz": write_speech,
    "cmu_mocap_20fps.npz": write_motion,
    "gso_sdf32.npz": write_objects,
}


def tiny(name: str, **training_options: Any) -> Recipe:
    recipe = RECIPES[name]
    return dataclasses.replace(
        recipe,
        network=recipe.network | TINY | NETWORKS[name],
        training=recipe.training | dict(batch=16, rate=1e-2) | training_options,
        latent=None if recipe.latent is None else dict(width=8, latent=4),
    )


def write_data(recipe: Recipe, folder: Path) -> Path:
    if recipe.latent is not None:
        return write_pictures(folder / recipe.data, 64)
    return WRITERS[recipe.data](folder / recipe.data)


def check_decoded(name: str, decoded: list[Any]) -> None:
    assert len(decoded) == 2
    for n, thing in zip((20, 32), decoded):
        if name in ("fruit", "fruit-epsilon", "fruit-x0", "fruit-latent"):
            assert isinstance(thing, Image.Image)
            assert thing.size == ((64, 64) if name == "fruit-latent" else (8, 8))
        elif name == "fruit-video":
            assert [frame.size for frame in thing] == [(8, 8)] * 4
        elif name == "digits-audio":
            assert thing.shape == (SAMPLES,) and np.abs(thing).max() <= 1
        elif name == "digits-av":
            picture, wave = thing
            assert picture.size == (8, 8) and picture.mode == "L" and wave.shape == (SAMPLES,)
        elif name == "motion":
            assert thing.shape == (n, 5, 3)
        else:
            assert type(thing).__name__ == "Trimesh"


SHAPES = {
    "fruit-latent": (2, 3, 64, 64),
    "fruit-video": (2, 3, 4, 8, 8),
    "digits-audio": (2, SAMPLES),
    "motion": (2, 32, 5, 3),
    "objects": (2, 8, 8, 8),
}


def test_training_goes_on_from_earlier_weights(tmp_path, monkeypatch):
    recipe = tiny("fruit", ema=0.0)
    path, out = write_data(recipe, tmp_path), tmp_path / "out"
    weights, facts = training.train(recipe, path, minutes=5, device="cpu", max_steps=40)
    training.save(weights, facts, out)
    monkeypatch.setitem(RECIPES, "fruit", recipe)
    slow = dataclasses.replace(recipe, training=recipe.training | dict(rate=1e-9))
    again, more = training.train(slow, path, 5, "cpu", max_steps=2, start=out)
    for key, value in again.items():
        torch.testing.assert_close(value, weights[key], rtol=1e-3, atol=1e-5)
    assert more["steps"] == 42 and more["seconds"] >= facts["seconds"]
    with pytest.raises(ValueError, match="fruit-latent trains its autoencoder anew"):
        latent = tiny("fruit-latent")
        training.train(latent, write_data(latent, tmp_path), 5, "cpu", max_steps=1, start=out)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_trains_and_its_weights_sample(name, tmp_path, monkeypatch):
    if name == "digits-av":
        pytest.importorskip("sklearn")
    if name == "objects":
        pytest.importorskip("trimesh")
        pytest.importorskip("skimage")
    monkeypatch.setattr(training, "WARM_UP", 5)
    recipe = tiny(name)
    path, steps = write_data(recipe, tmp_path), 2 if recipe.latent else 60
    weights, facts = training.train(recipe, path, minutes=5, device="cpu", max_steps=steps)
    assert facts["steps"] == steps and facts["name"] == name and facts["batch"] == 16
    assert facts["classes"] == recipe.modality.read(path).classes

    training.save(weights, facts, tmp_path / "out")
    monkeypatch.setitem(RECIPES, name, recipe)
    model = zoo.load(name, folder=tmp_path / "out")
    saved = json.loads((tmp_path / "out" / f"{name}.json").read_text(encoding="utf-8"))
    assert model.facts == saved and model.facts["data"] == facts["data"]
    for key, value in model.network.state_dict().items():
        torch.testing.assert_close(value, weights[key], rtol=1e-3, atol=1e-6)

    lengths = [20, 32] if name == "motion" else None
    interval = recipe.judged_at.get("interval")
    velocity = model.velocity([0, 1], interval=interval, lengths=lengths)
    calls = []

    def counted(x, sigma):
        calls.append(sigma)
        return velocity(x, sigma)

    x = sample(counted, model.noise(2), model.grid(12, interval=interval), 6)
    assert len(calls) == 6
    values = model.values(x, lengths)
    if name == "digits-av":
        assert values[0].shape == (2, 1, 8, 8) and values[1].shape == (2, SAMPLES)
    else:
        assert values.shape == SHAPES.get(name, (2, 3, 8, 8)) and values.isfinite().all()
    check_decoded(name, model.decode(x, lengths))
    if model.autoencoder is None:
        assert loss_on(recipe, path, model.network) < 0.9 * loss_on(recipe, path)
    else:
        data = recipe.modality.read(path)
        z = model.autoencoder.encode(recipe.modality.batch(data, torch.arange(12))[0][0])
        torch.testing.assert_close(z.std((0, 2, 3)), torch.ones(4), atol=0.02, rtol=0)


@torch.no_grad()
def loss_on(recipe: Recipe, path: Path, network: Any = None) -> float:
    """The loss on the data it has learnt from, of the untrained network unless given."""
    data = recipe.modality.read(path)
    network = network or recipe.build(len(data.classes))
    torch.manual_seed(0)
    pick = torch.arange(len(data.labels)).repeat(256 // len(data.labels))
    x0, length = recipe.modality.batch(data, pick)
    return float(training.loss_of(network, recipe.prediction, x0, data.labels[pick], length))


def test_labels_are_dropped_as_often_as_the_recipe_says(tmp_path, monkeypatch):
    seen: list[torch.Tensor] = []
    loss_of = training.loss_of

    def listening(network, kind, x0, label, length, shift):
        seen.append(label)
        return loss_of(network, kind, x0, label, length, shift)

    monkeypatch.setattr(training, "loss_of", listening)
    recipe = tiny("fruit", batch=200, label_drop=0.25)
    training.train(recipe, write_data(recipe, tmp_path), 1, "cpu", max_steps=5)
    labels = torch.cat(seen)
    assert set(labels.tolist()) == {0, 1, 2, 3}
    assert 0.2 < (labels == 3).float().mean() < 0.3


def test_the_same_seed_trains_the_same_weights(tmp_path):
    recipe = tiny("motion")
    path = write_data(recipe, tmp_path)
    runs = [training.train(recipe, path, 600, "cpu", 3, seed)[0] for seed in (0, 0, 1)]
    assert all(torch.equal(runs[0][key], runs[1][key]) for key in runs[0])
    assert not torch.equal(runs[0]["position"], runs[2]["position"])


def test_a_diverging_training_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "WARM_UP", 1)
    recipe = tiny("motion", rate=1e4)
    with pytest.raises(RuntimeError, match=r"motion diverges: loss [\d.]+, at step 100 "):
        training.train(recipe, write_data(recipe, tmp_path), 1, "cpu", max_steps=101)


def test_weights_that_are_not_finite_are_not_handed_out(tmp_path, monkeypatch):
    """Whatever the step at which training ends: not only at those that print a line."""
    monkeypatch.setattr(training, "WARM_UP", 1)
    recipe = tiny("motion", rate=1e30)
    with pytest.raises(RuntimeError, match="motion diverges: loss"):
        training.train(recipe, write_data(recipe, tmp_path), 1, "cpu", max_steps=20)


def test_the_average_follows_the_weights(tmp_path):
    """With ema = 0 it is the weights; one step moves them by the warm-up's share of the rate."""
    recipe = tiny("fruit", ema=0.0, rate=1.0)
    model = DiT(classes=3, **recipe.network)
    x0, label = torch.randn(8, 3, 8, 8), torch.zeros(8, dtype=torch.long)

    def loss():
        return training.loss_of(model, "flow", (x0,), label, None)

    average, steps, last = training.optimise(
        model, loss, recipe, training.Clock(60, 1), gpu=False, name="fruit"
    )
    assert steps == 1 and last > 0
    assert all(torch.equal(a, b) for a, b in zip(average.parameters(), model.parameters()))
    moved = average.head.weight.abs().max()
    assert float(moved) == pytest.approx(1 / training.WARM_UP, rel=1e-2)


def test_a_clock_counts_steps_or_seconds():
    assert [step for step, _ in training.Clock(60, 3).steps()] == [0, 1, 2]
    assert [round(done, 1) for _, done in training.Clock(60, 5).steps()] == [0, 0.2, 0.4, 0.6, 0.8]
    assert sum(1 for _ in training.Clock(0.01, None).steps()) > 1
    assert list(training.Clock(0.0001, 10**9).steps())[-1][0] < 10**6


# The autoencoder


def test_latents_are_standardised_and_pictures_learnt():
    torch.manual_seed(0)
    model = Autoencoder(width=8, latent=4)
    pictures = torch.from_numpy(coloured(16)[0]).permute(0, 3, 1, 2).float() / 127.5 - 1
    with torch.no_grad():
        untrained = float(autoencoder_loss(model, pictures))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        optimizer.zero_grad()
        autoencoder_loss(model, pictures).backward()
        optimizer.step()
    with torch.no_grad():
        assert float(autoencoder_loss(model, pictures)) < 0.5 * untrained
        model.standardise(pictures)
        z = model.encode(pictures)
        assert z.shape == (12, 4, 4, 4)
        torch.testing.assert_close(z.mean((0, 2, 3)), torch.zeros(4), atol=1e-4, rtol=0)
        torch.testing.assert_close(z.std((0, 2, 3)), torch.ones(4), atol=1e-4, rtol=0)
        plain = model.decoder(model.encoder(pictures))
        torch.testing.assert_close(model.decode(z), plain, atol=1e-4, rtol=1e-4)
