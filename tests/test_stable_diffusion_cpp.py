"""The C of docs/stable_diffusion_cpp.md, compiled as it stands, beside geoshrink.Run."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from geoshrink import Run, geometric_anchors

PAGE = (Path(__file__).parents[1] / "docs/stable_diffusion_cpp.md").read_text(encoding="utf-8")
COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="NO C COMPILER: the page is not checked")
Floats = ctypes.POINTER(ctypes.c_float)


class State(ctypes.Structure):
    _fields_ = [
        ("steps", ctypes.c_int),
        ("sigmas", Floats),
        ("anchors", ctypes.POINTER(ctypes.c_bool)),
        ("paper", ctypes.c_bool),
        ("size", ctypes.c_size_t),
        ("v", Floats),
        ("dv", Floats),
        ("seen", ctypes.c_int),
        ("latest", ctypes.c_int),
        *((name, ctypes.c_double) for name in ("span", "S", "P", "D")),
    ]


def floats(array: np.ndarray) -> Any:
    return array.ctypes.data_as(Floats)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Any:
    (code,) = re.findall(r"```c\n(.*?)```", PAGE, flags=re.DOTALL)
    folder = tmp_path_factory.mktemp("c")
    (folder / "geoshrink.c").write_text(code, encoding="utf-8")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    command = [str(COMPILER), *flags, "-o", "geoshrink.so", "geoshrink.c", "-lm"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    found = ctypes.CDLL(str(folder / "geoshrink.so"))
    found.geoshrink_should_predict.restype = ctypes.c_bool
    return found


class Cache:
    """The three functions, as stable-diffusion.cpp would call them."""

    def __init__(self, library: Any, sigmas: np.ndarray, anchors: Any, paper: bool, size: int):
        self.library, self.sigmas = library, sigmas
        self.arrays = np.full((2, size), np.nan, dtype=np.float32)  # what is in them is not read
        self.asked = (ctypes.c_bool * (len(sigmas) - 1))(*anchors)
        held = [floats(array) for array in self.arrays]
        self.state = State(len(sigmas) - 1, floats(sigmas), self.asked, paper, size, *held)

    def should_predict(self, n: int) -> bool:
        return self.library.geoshrink_should_predict(ctypes.byref(self.state), n)

    def predict(self, n: int, x: np.ndarray, denoised: np.ndarray) -> None:
        self.library.geoshrink_predict(ctypes.byref(self.state), n, floats(x), floats(denoised))

    def update(self, n: int, x: np.ndarray, denoised: np.ndarray) -> None:
        self.library.geoshrink_update(ctypes.byref(self.state), n, floats(x), floats(denoised))


def velocity(x: Tensor, sigma: float) -> Tensor:
    """Bends and turns back along the way, so that ω is not the same everywhere."""
    tau = sigma / (1 + sigma)
    u = x / (1 + sigma)
    return torch.sin(2 * u + 6 * tau) + u + torch.cos(torch.tensor(18 * tau))


def grid(steps: int, shift: float, top: float = 1.0) -> np.ndarray:
    times = np.linspace(1, 0, steps + 1)
    return (top * shift * times / (1 + (shift - 1) * times)).astype(np.float32)


def sampled(cache: Cache, x: np.ndarray) -> tuple[list[int], list[np.ndarray]]:
    """(steps that asked the model, x and denoised at every step) of Euler's loop."""
    asked, path, denoised = [], [], np.full_like(x, np.nan)
    for n, (sigma, after) in enumerate(zip(cache.sigmas, cache.sigmas[1:])):
        if cache.should_predict(n):
            cache.predict(n, x, denoised)
        else:
            denoised = x - sigma * velocity(torch.from_numpy(x), float(sigma)).numpy()
            cache.update(n, x, denoised)
            asked.append(n)
        path += [x, denoised.copy()]
        x = x + (x - denoised) / sigma * (after - sigma)
    return asked, path


def expected(run: Run, sigmas: np.ndarray, start: np.ndarray) -> list[np.ndarray]:
    """The same by geoshrink.Run, one sample."""
    x, path = torch.from_numpy(start)[None], []
    for n, (sigma, after) in enumerate(zip(sigmas.tolist(), sigmas.tolist()[1:])):
        v = run(n, lambda x=x, sigma=sigma: velocity(x, sigma))
        path += [x[0].numpy(), (x - sigma * v)[0].numpy()]
        x = x + (after - sigma) * v
    return path


def noise(seed: int, size: int = 300) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("top", [1.0, 14.6], ids=["flow", "noise to 14.6"])
@pytest.mark.parametrize("shift", [1.0, 3.0])
@pytest.mark.parametrize("steps, budget", [(12, 5), (20, 8), (28, 10), (50, 10), (30, 4)])
@pytest.mark.parametrize("paper", [True, False], ids=["paper", "uncorrected"])
def test_a_run_is_geoshrinks(library, paper, steps, budget, shift, top):
    """To 1e-5 of the noise's size."""
    sigmas, x = grid(steps, shift, top), np.float32(top) * noise(steps)
    options: dict[str, Any] = {"anchors": "geometric", "rule": "chordal"} if paper else {}
    data: dict[str, Any] = {} if top == 1.0 else {"prediction": "epsilon", "alphas": "ve"}
    run = Run(sigmas.tolist(), budget, **options, **data)
    want = expected(run, sigmas, x)
    anchors = [n in run.plan.anchors for n in range(steps)]
    cache = Cache(library, sigmas, anchors, paper, x.size)
    asked, path = sampled(cache, x)
    assert asked == [*run.plan.anchors] and len(asked) == budget < steps
    for n, (mine, its) in enumerate(zip(path, want)):
        assert abs(mine - its).max() < 1e-5 * top, (n // 2, ("x", "denoised")[n % 2])


def test_the_kept_fraction_varies(library):
    """Else the comparison would not see a wrong ω."""
    forms: list[dict[str, Any]] = [{"anchors": "geometric", "rule": "chordal"}, {}]
    for options in forms:
        sigmas = grid(28, 3.0)
        run = Run(sigmas.tolist(), 10, **options)
        expected(run, sigmas, noise(28))
        kept = [stage.omega for stage in run.report.stages if stage.omega]
        assert len(kept) > 8 and max(kept) - min(kept) > 0.1


def test_anchors_are_the_papers(library):
    for steps in range(4, 61):
        for budget in range(4, steps + 2):
            found = (ctypes.c_bool * steps)()
            library.geoshrink_anchors(steps, budget, found)
            anchors = tuple(n for n in range(steps) if found[n])
            assert anchors == geometric_anchors(steps, min(budget, steps)), (steps, budget)


def test_all_steps_are_the_full_run(library):
    sigmas, x = grid(20, 3.0), noise(0)
    asked, path = sampled(Cache(library, sigmas, [True] * 20, True, x.size), x)
    full = expected(Run(sigmas.tolist(), 20), sigmas, x)
    assert asked == [*range(20)] and all(abs(a - b).max() < 1e-5 for a, b in zip(path, full))


def test_a_struct_is_used_again(library):
    sigmas = grid(20, 3.0)
    anchors = [n in geometric_anchors(20, 7) for n in range(20)]
    used = Cache(library, sigmas, anchors, True, 300)
    sampled(used, noise(1))
    used.state.seen = used.state.latest = 0
    used.state.S = 0.0
    fresh = sampled(Cache(library, sigmas, anchors, True, 300), noise(2))
    again = sampled(used, noise(2))
    assert again[0] == fresh[0] and all((a == b).all() for a, b in zip(again[1], fresh[1]))


def test_a_change_of_the_model_starts_the_history_again(library):
    """As the page says: seen = 0, latest = n, S = 0; the anchor that follows is held at first."""
    sigmas, x = grid(12, 1.0), noise(3)
    cache = Cache(library, sigmas, [True] * 12, False, x.size)
    for n in range(4):
        cache.update(n, x, x - sigmas[n] * noise(10 + n))
    cache.state.seen, cache.state.latest, cache.state.S = 0, 4, 0.0
    assert not cache.should_predict(4) and not cache.should_predict(5)
    v, denoised = noise(20), np.empty_like(x)
    cache.update(4, x, x - sigmas[4] * v)
    cache.asked[5] = False
    assert cache.should_predict(5)
    cache.predict(5, x, denoised)
    assert abs((x - denoised) / sigmas[5] - v).max() < 1e-5


def test_nothing_is_predicted_outside_the_run(library):
    cache = Cache(library, grid(12, 1.0), [False] * 12, True, 300)
    assert not any(cache.should_predict(n) for n in range(-3, 15))
    cache.update(3, noise(0), noise(1))
    found = [n for n in range(-3, 15) if cache.should_predict(n)]
    assert found == [*range(4, 12)]


@pytest.mark.parametrize("paper", [True, False], ids=["paper", "uncorrected"])
@pytest.mark.parametrize("spoilt", [None, 0, 1, 2, 4])
def test_whatever_the_outputs_are(library, paper, spoilt):
    """Anchors far apart from the start, and an output that is not finite: held as by Run."""
    sigmas, anchors = grid(12, 1.0), [0, 1, 4, 6, 9]
    outputs = {n: noise(n) + n * noise(100) for n in anchors}
    if spoilt in outputs:
        outputs[spoilt][::7] = np.nan
    run = Run(sigmas.tolist(), anchors=anchors, rule="chordal" if paper else "signed time")
    cache = Cache(library, sigmas, [n in anchors for n in range(12)], paper, 300)
    x, denoised = np.zeros(300, dtype=np.float32), np.empty(300, dtype=np.float32)
    for n in range(12):
        want = run(n, lambda n=n: torch.from_numpy(outputs[n])[None])[0].numpy()
        if n in anchors:
            cache.update(n, x, x - sigmas[n] * outputs[n])
        else:
            cache.predict(n, x, denoised)
            assert np.allclose(-denoised / sigmas[n], want, atol=3e-5, equal_nan=True), n


def test_the_table_is_made_as_the_page_says(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(code, {})
    line = [int(word) for word in capsys.readouterr().out.split(",")]
    assert len(line) == 28 and sum(line) == 10 and line[:2] == [1, 1]
