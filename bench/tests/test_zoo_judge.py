"""Whether samples are what was asked for: the classifiers learn, and the measures are right."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from geoshrink_bench.zoo import classifier as classifying
from geoshrink_bench.zoo import judge as judging
from geoshrink_bench.zoo import load
from geoshrink_bench.zoo.classifier import Classifier, Task
from geoshrink_bench.zoo.modalities import Clips, Data, Motion, Pictures, Sound
from geoshrink_bench.zoo.modalities.judging import Samples, meant
from geoshrink_bench.zoo.modalities.motion import features_of, measure
from geoshrink_bench.zoo.modalities.objects import measure_meshes
from geoshrink_bench.zoo.modalities.sound import SAMPLES


def coloured(n=200, side=16):
    """Pictures that are red or blue in the middle, on white."""
    labels = torch.arange(n) // 2 % 2
    pictures = torch.full((n, 3, side, side), 255, dtype=torch.uint8)
    pictures[:, 1, 4:12, 4:12] = 0
    pictures[labels == 0, 2, 4:12, 4:12] = 0
    pictures[labels == 1, 0, 4:12, 4:12] = 0
    return Data((pictures,), labels, ["red", "blue"])


TOY = Task(Pictures(), 3, (8, 16), epochs=3, noise=0.05, shift=1, batch=20, rate=1e-2)


@pytest.fixture(scope="module")
def learnt():
    return classifying.train(TOY, coloured())


def test_it_learns_what_is_easy(learnt):
    assert learnt.held_out_accuracy == 1 and learnt.facts["held_out"] == 20
    pictures = torch.ones(2, 3, 16, 16)
    pictures[0, :2, 4:12, 4:12] = 0
    pictures[1, 1:, 4:12, 4:12] = 0
    assert learnt.predict(pictures) == ["blue", "red"]


def test_what_is_held_out_is_not_learnt_from():
    """Every tenth example is of a third kind, which nobody has shown to the classifier."""
    data = coloured()
    data.parts[0][::10], data.labels[::10] = 0, 2
    data.classes.append("black")
    assert classifying.train(TOY, data).held_out_accuracy == 0


def test_weights_come_back_and_damage_is_noticed(learnt, tmp_path):
    classifying.save_classifier(learnt, "fruit", tmp_path)
    back = classifying.load_classifier("fruit", tmp_path)
    x = torch.rand(4, 3, 16, 16)
    assert torch.equal(back(x), learnt(x)) and back.held_out_accuracy == 1
    assert torch.equal(back.head(back.features(x)), back(x)) and back.features(x).shape == (4, 16)
    file = tmp_path / "fruit-classifier.safetensors"
    blob = bytearray(file.read_bytes())
    blob[-1] ^= 1
    file.write_bytes(blob)
    with pytest.raises(ValueError, match=r"fruit-classifier in .* are damaged"):
        classifying.load_classifier("fruit", tmp_path)


def test_every_kind_of_values_is_seen():
    """A clip is judged by all its frames, a waveform by its spectrum."""
    model = Classifier(Clips(), ["a", "b"], 3, (8, 8)).eval()
    still = Classifier(Pictures(), ["a", "b"], 3, (8, 8)).eval()
    still.load_state_dict(model.state_dict())
    clip = torch.rand(2, 3, 4, 16, 16)
    frames = torch.stack([still.features(clip[:, :, t]) for t in range(4)])
    torch.testing.assert_close(model.features(clip), frames.mean(0))
    wave = torch.sin(2 * torch.pi * 1000 * torch.arange(SAMPLES) / 8000)
    spectrum = Sound().views(wave[None])[0, 0, 0]
    assert spectrum[:, 20].argmax() == 1000 / (8000 / 256)
    for modality, shape in ((Clips(), (3, 4, 8, 8)), (Sound(), (1, SAMPLES))):
        values = modality.values(torch.randn(2, *shape), {})
        channels = 3 if values.ndim == 5 else 1
        assert Classifier(modality, ["a", "b"], channels, (4,))(values).shape == (2, 2)
    with pytest.raises(NotImplementedError, match="no classifier of Motion"):
        Motion().views(clip)


def arm(stretch=0.0, rise=0.0, frames=20):
    """An upright chain of three joints, 1 m each, walking 0.1 m a frame; the last bone breathes."""
    joints = torch.zeros(1, frames, 3, 3)
    time = torch.arange(frames)
    joints[..., 0] = 0.1 * time[:, None]
    joints[..., 1] = rise + torch.tensor([2.0, 1.0, 0.0])
    joints[0, :, 2, 1] -= stretch * (-1.0) ** time
    facts = dict(fps=20, parents=[-1, 0, 1], bones=[1, 2], mean=[0.0] * 9, std=[1.0] * 9)
    return features_of(joints, [-1, 0, 1], [1, 2]), facts


def test_a_stretching_bone_is_measured():
    x, facts = arm(stretch=0.1)
    measured = measure(x, facts)
    torch.testing.assert_close(measured.stretch, torch.tensor([0.0, 0.1]))
    torch.testing.assert_close(measured.lengths, torch.ones(1, 2))


def test_height_and_speed_are_measured_in_metres_and_seconds():
    x, facts = arm(rise=0.25)
    measured = measure(x, facts)
    torch.testing.assert_close(measured.lowest, torch.tensor([0.25]))
    torch.testing.assert_close(measured.speed, torch.tensor([2.0]))
    assert float(measured.stretch.max()) < 1e-6


class Walker:
    """A model of motion as far as Motion.judge looks."""

    def __init__(self, facts):
        self.facts = {"data": facts}
        self.recipe = type("Recipe", (), {"modality": Motion()})


@pytest.mark.parametrize(
    ("change", "failing"),
    [({}, []), (dict(stretch=0.1), [0]), (dict(rise=0.2), [3]), (dict(stretch=0.04), [])],
)
def test_motion_passes_or_fails_for_the_right_reason(change, failing):
    real, facts = arm()
    x, _ = arm(**change)
    data = Data((real,), torch.zeros(1, dtype=torch.long), ["walk"], facts)
    findings = Motion().judge(Samples(Walker(facts), [0], x, data))  # type: ignore[arg-type]
    assert [i for i, finding in enumerate(findings) if finding.passes is False] == failing
    alone = Motion().judge(Samples(Walker(facts), [0], x, None))  # type: ignore[arg-type]
    assert all(finding.real is None for finding in alone)


def test_meshes_that_are_whole_are_counted():
    trimesh = pytest.importorskip("trimesh")
    cube = trimesh.creation.box()
    far = trimesh.creation.box(transform=trimesh.transformations.translation_matrix([3, 0, 0]))
    two = trimesh.util.concatenate([cube, far])
    opened = trimesh.Trimesh(cube.vertices, cube.faces[1:])
    assert measure_meshes([cube], [cube.area]) == (1, 1, 1)
    assert measure_meshes([cube], [two.area]) == (1, 1, pytest.approx(0.5))
    assert measure_meshes([two], [two.area]) == (0, 1, 1)
    assert measure_meshes([opened], [opened.area]) == (0, 0, 1)
    assert measure_meshes([trimesh.Trimesh()], [0.0]) == (0, 0, 0)
    four = [cube, two, opened, cube]
    assert measure_meshes(four, [mesh.area for mesh in four])[:2] == (0.5, 0.75)


def test_fruit_is_judged_from_end_to_end(tmp_path, capsys):
    """By a classifier that always says the first class: one of the two asked for is that."""
    classes = load("fruit").classes
    biased = Classifier(Pictures(), classes, 3, (4,)).eval()
    biased.head.bias.data[0] = 100.0
    biased.facts = dict(classes=classes, channels=3, widths=(4,), held_out_accuracy=0.8)
    classifying.save_classifier(biased, "fruit", tmp_path)
    out = tmp_path / "judged.md"
    command = ["fruit", "--samples", "2", "--steps", "2", "--device", "cpu"]
    command += ["--classifiers", str(tmp_path), "--out", str(out)]
    judging.main(command)
    text = out.read_text()
    assert text.startswith("`python -m geoshrink_bench.zoo.judge fruit --samples 2 --steps 2")
    assert "| 0.500 | 0.800 | ≥ 0.85 of real (is 0.625) | no |" in text
    assert text.endswith(capsys.readouterr().out)


def test_a_class_is_meant_by_its_name():
    assert meant("Kiwi 1", ["Kiwi", "Kiwi 1"]) == "Kiwi 1"
    assert meant("7 jackson", ["6", "7"]) == "7"
    with pytest.raises(ValueError, match=r"no class 'Pear 3'"):
        meant("Pear 3", ["Kiwi"])


def test_samples_do_not_depend_on_the_batch():
    model = load("fruit")
    one, many = (judging.draw(model, [0, 5, 9], 1.0, 2, batch) for batch in (1, 2))
    np.testing.assert_allclose(one.numpy(), many.numpy(), atol=1e-4)


def test_the_facts_are_those_of_the_classifier(learnt, tmp_path):
    classifying.save_classifier(learnt, "fruit", tmp_path)
    facts = json.loads((tmp_path / "fruit-classifier.json").read_text())
    assert facts["classes"] == ["red", "blue"] and len(facts["sha256"]) == 64
    assert {"held_out_accuracy", "seconds", "torch"} <= set(facts)
