"""What `geoshrink batch` keeps of sounds, films, meshes and motions can be read again."""

from __future__ import annotations

import io
import wave
import zipfile

import numpy as np
import pytest
import torch

from geoshrink.compare import Pictures
from geoshrink_bench.kinds.films import Films
from geoshrink_bench.kinds.meshes import Meshes
from geoshrink_bench.kinds.motions import Motions
from geoshrink_bench.kinds.sounds import Sounds

Image = pytest.importorskip("PIL.Image")


def heard(content: bytes) -> tuple[np.ndarray, int]:
    """(samples of each channel, rate)"""
    with wave.open(io.BytesIO(content)) as file:
        assert file.getsampwidth() == 2
        frames = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return frames.reshape(-1, file.getnchannels()).T / 32767, file.getframerate()


@pytest.mark.parametrize("channels", [1, 2])
def test_a_sound_is_a_wav_with_all_channels(channels: int):
    waves = torch.rand(2, channels, 500) * 2 - 1
    content, suffix = Sounds(waves, 8000).file(1)
    found, rate = heard(content)
    assert suffix == ".wav" and rate == 8000 and found.shape == (channels, 500)
    assert np.abs(found - waves[1].numpy()).max() < 1 / 32767


def test_a_sound_is_kept_whole():
    """Not only what a page plays."""
    content, _ = Sounds(torch.zeros(1, 100 * 70), 100).file(0)
    assert heard(content)[0].shape == (1, 7000)


@pytest.mark.parametrize("moving, suffix", [(True, ".webp"), (False, ".png")])
def test_a_film_is_a_zip_of_both(moving: bool, suffix: str):
    video = Pictures(torch.rand(1, 3 if moving else 1, 3, 8, 8), moving=moving)
    film = Films(video, Sounds(torch.rand(1, 2, 400), 8000))
    content, kind = film.file(0)
    with zipfile.ZipFile(io.BytesIO(content)) as kept:
        assert kind == ".zip" and kept.testzip() is None
        assert kept.namelist() == [f"film{suffix}", "film.wav"]
        assert kept.read(f"film{suffix}") == video.file(0)[0]
        assert heard(kept.read("film.wav"))[0].shape == (2, 400)
        with Image.open(io.BytesIO(kept.read(f"film{suffix}"))) as image:
            assert image.size == (8, 8)
    assert film.file(0)[0] == content  # no time of day in it


def test_a_mesh_is_a_ply():
    vertices = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    faces = np.array([[0, 1, 2], [2, 3, 4]])
    content, suffix = Meshes([(vertices, faces)]).file(0)
    head, _, body = content.partition(b"end_header\n")
    lines = head.decode("ascii").splitlines()
    assert suffix == ".ply" and lines[:2] == ["ply", "format binary_little_endian 1.0"]
    assert "element vertex 5" in lines and "element face 2" in lines
    assert len(body) == 5 * 12 + 2 * 13
    assert np.array_equal(np.frombuffer(body, "<f4", 15).reshape(5, 3), vertices)
    rows = np.frombuffer(body, np.dtype([("n", "u1"), ("corners", "<i4", 3)]), 2, 60)
    assert np.array_equal(rows["corners"], faces) and (rows["n"] == 3).all()


def test_another_library_reads_the_ply():
    trimesh = pytest.importorskip("trimesh")
    vertices = np.eye(3, dtype=np.float32)
    content, _ = Meshes([(vertices, np.array([[0, 1, 2]]))]).file(0)
    found = trimesh.load(io.BytesIO(content), file_type="ply", process=False)
    assert np.allclose(found.vertices, vertices) and found.faces.tolist() == [[0, 1, 2]]


def test_a_motion_is_a_file_of_arrays():
    joints = torch.rand(2, 6, 3, 3)
    motion = Motions(joints, [-1, 0, 1], ["root", "L", "R"], fps=30)
    content, suffix = motion.file(1)
    with np.load(io.BytesIO(content)) as kept:
        assert suffix == ".npz" and {*kept} == {"joints", "parents", "names", "fps"}
        assert np.array_equal(kept["joints"], joints[1].numpy())
        assert kept["parents"].tolist() == [-1, 0, 1] and kept["fps"] == 30
        assert kept["names"].tolist() == ["root", "L", "R"]
    assert motion.file(1)[0] == content


def test_a_motion_is_kept_without_its_padding():
    motion = Motions(torch.rand(2, 6, 1, 3), [-1], lengths=[6, 4])
    with np.load(io.BytesIO(motion.file(1)[0])) as kept:
        assert kept["joints"].shape == (4, 1, 3)
