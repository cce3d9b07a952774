"""examples/*.py and the notebooks as they stand, on tiny models; by themselves in slow tests."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import pytest
import torch

from registries import restored

pytest.importorskip("diffusers")
pytest.importorskip("geoshrink_bench")
granted: Any = pytest.importorskip("granted")
saved: Any = pytest.importorskip("readers").saved
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]
EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = EXAMPLES / "notebooks"
LONG = {"serve.py", "xdit.py"}  # whole servers
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Each runs in a folder of its own; what it registers is gone afterwards."""
    monkeypatch.chdir(tmp_path)
    with restored():
        yield tmp_path


@pytest.fixture
def small(monkeypatch):
    granted.zoo(monkeypatch)


def played(name: str, *words: Any) -> dict[str, Any]:
    """What an example has defined when it ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *map(str, words)])
        return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


# --- diffusers -----------------------------------------------------------------------------------


def test_diffusers_image(here, capsys):
    folder = saved("FluxPipeline", here / "flux")
    found = played("diffusers_image.py", folder, "--steps", 14, "--budget", 6, "--size", 16)
    assert (found["report"].evaluations, found["report"].steps) == (6, 14)
    assert (here / "image.png").read_bytes().startswith(b"\x89PNG")
    assert "image.png: 6 model calls of 14" in capsys.readouterr().out


def test_diffusers_video(here):
    from PIL import Image

    folder = saved("WanPipeline", here / "wan")
    size = ("--size", 32, 32, "--frames", 5)
    found = played("diffusers_video.py", folder, "--steps", 14, "--target-db", 20, *size)
    (report,) = found["reports"]
    assert report.evaluations < report.steps == 14
    with Image.open(here / "film.webp") as film:
        assert (film.n_frames, film.size) == (5, (32, 32))  # type: ignore[attr-defined]


def test_diffusers_audio(here):
    folder = saved("LongCatAudioDiTPipeline", here / "longcat")
    words = ("--steps", 14, "--budget", 6, "--seconds", 1)
    found = played("diffusers_audio.py", folder, *words)
    assert (found["report"].evaluations, found["report"].steps) == (6, 14)
    with wave.open(str(here / "sound.wav")) as sound:
        assert (sound.getframerate(), sound.getnframes()) == (32, len(found["samples"]))
        assert len(found["samples"]) >= 32


def test_batch(here, capsys):
    folder = saved("FluxPipeline", here / "flux")
    (here / "prompts.txt").write_text("a cat\na dog\n")
    words = (folder, "prompts.txt", "--steps", 14, "--height", 16, "--width", 16)
    first, again = played("batch.py", *words)["done"], played("batch.py", *words)["done"]
    assert (first.made, first.calls) == (2, 12) and (again.made, again.kept) == (0, 2)
    assert re.search(r"^a dog: \w+\.png, 6 calls$", capsys.readouterr().out, re.MULTILINE)


# --- our own models ------------------------------------------------------------------------------


def test_own_loop(small, here):
    found = played("own_loop.py", "--steps", 16, "--budget", 6)
    assert found["report"].evaluations == 6 and found["db"] > 10
    assert (here / "fruit.png").read_bytes().startswith(b"\x89PNG")


def test_odeint(capsys):
    """In closed form, so the quality is the model's own: ahead of as many longer steps."""
    found = played("odeint.py", "--samples", 200)
    made, direct = found["db"](found["made"][-1]), found["db"](found["direct"])
    assert found["report"].evaluations == 10 and made > direct + 3
    nearest = torch.cdist(found["full"], found["centres"]).amin(1)
    assert nearest.square().mean().sqrt() < 2 * found["spread"]  # it is a sampler of that mixture


def test_profile_and_plan(small, here):
    words = ("--steps", 12, "--budget", 5, "--samples", 4)
    found = played("profile_and_plan.py", *words)
    assert found["plan"].budget == 5 and set(found["db"]) == {"the default", "the plan"}
    assert {path.name for path in (here / "profiles").iterdir()} >= {"profile.json", "plan.json"}


def test_target_quality(small, capsys):
    found = played("target_quality.py", "--targets", 15, 40, "--steps", 20)
    calls = [report.evaluations for report in found["reports"]]
    assert calls[0] < calls[1] <= 25 and capsys.readouterr().out.count(" of 20") == 2


def test_own_rule(small):
    found = played("own_rule.py", "--steps", 16, "--budgets", 6)["found"]
    assert len({*found.values()}) == len(found) == 4  # the rules are not one another


def test_own_mesh(small):
    found = played("own_mesh.py", "--steps", 26, "--budget", 6)["found"]
    assert found["squares"][0] == (0, 1, 4, 9, 16, 25) and len(found) == 4


def test_own_mesh_with_every_stage(small):
    """Anchors are pushed apart, never off the grid."""
    found = played("own_mesh.py", "--steps", 12, "--budget", 11)["found"]
    assert len(found["squares"][0]) == 11


def test_own_host(small):
    found = played("own_host.py", "--steps", 16, "--budget", 6)
    assert found["report"].evaluations == 6 and not torch.equal(found["full"], found["x0"])
    assert "ask" not in vars(found["painter"])  # as it was
    assert torch.equal(found["painter"].paint(0, 16), found["full"])
    with found["attach"](found["painter"], budget=6) as handle:
        for label in range(2):
            found["painter"].paint(label, 16)
        assert [report.evaluations for report in handle.reports] == [6, 6]


# --- notebooks -----------------------------------------------------------------------------------


def test_five_minutes(small):
    found = played("notebooks/five_minutes.py")
    assert found["report"].evaluations == found["CALLS"] == 10
    assert found["strip"].width > 4 * 128 and set(found["scores"]) == {"direct", "geoshrink"}


def test_know_your_model():
    names = played("notebooks/know_your_model.py")
    assert names["first"].evaluations == 24 and names["second"].evaluations == names["CALLS"]
    found = names["found"]
    assert found["planned"] > max(found["learned"], found["default"])
    assert min(found["no profile"], found["profile"]) > 20  # 30 were asked for


@pytest.mark.slow
@pytest.mark.extra
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda path: path.stem)
def test_notebooks_run_as_notebooks(path, here):
    """With the trained models, in a kernel: every cell, and pictures where they are shown."""
    for name in ("jupytext", "nbclient", "ipykernel"):
        pytest.importorskip(name)
    script = runpy.run_path(str(EXAMPLES.parent / "scripts/notebooks.py"))
    notebook = script["executed"](path)
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert "".join(out.get("text", "") for out in outputs).count(" dB") > 3
    shown = {kind for out in outputs for kind in out.get("data", {})}
    assert ("image/png" in shown) == (path.stem == "five_minutes")


# --- the folder ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_short_and_listed(name):
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert name in LONG or len(text.splitlines()) < 60
    assert f"]({name})" in (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert name in LONG | {"sdnext_script.py"} or f"python examples/{name}" in text


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda path: path.stem)
def test_notebooks_are_listed(path):
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert f"](notebooks/{path.name})" in listed


ALONE = ["odeint", "own_loop", "own_host", "own_mesh", "own_rule", "target_quality"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ALONE, "batch", "profile_and_plan"])
def test_examples_run_as_they_stand(name, here):
    """With the trained models and the defaults, in a process of its own."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=here)
    assert done.returncode == 0, done.stderr
    assert done.stdout
