"""Whether an installed wheel works: run by scripts/release_check.py, away from the source tree.

python -I release_smoke.py VERSION            # geoshrink alone, with torch and numpy
python -I release_smoke.py VERSION MIRROR-URL # geoshrink-bench too, its weights from that URL
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

SIGMAS = [1 - n / 20 for n in range(21)]


def main(version: str, url: str | None = None) -> None:
    import torch

    import geoshrink

    installed(geoshrink, version)
    assert (files(geoshrink) / "py.typed").is_file(), "py.typed is not in the wheel"
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    samples(geoshrink, x)
    accelerates(geoshrink, x)
    assert command("--version").strip() == version
    assert "compare" in command("--help")
    if url is None:
        assert "pip install geoshrink-bench" in command("demo", status=2)
    else:
        bench(version, url)


def installed(package: ModuleType, version: str) -> None:
    """Fails unless the package is the wheel's, in this environment."""
    place = Path(package.__file__ or "").resolve()
    assert place.is_relative_to(Path(sys.prefix).resolve()), f"{place} is not of this environment"
    assert package.__version__ == version, f"{package.__name__} {package.__version__}"


def velocity(x: Any, sigma: Any) -> Any:
    """Of the flow that turns noise into 0.3·noise: smooth, and never constant."""
    return x * (1.0 - 0.3) / (0.3 + (1.0 - 0.3) * float(sigma))


def samples(geoshrink: Any, noise: Any) -> None:
    """All calls are the plain solver to the last bit; ten are near it."""
    plain = noise
    for sigma, after in pairwise(SIGMAS):
        plain = plain + (after - sigma) * velocity(plain, sigma)
    full = geoshrink.sample(velocity, noise, SIGMAS, budget=20)
    fast = geoshrink.sample(velocity, noise, SIGMAS, budget=10)
    assert full.equal(plain), "a budget of all steps is not the plain solver"
    assert 0 < (fast - plain).norm() < 0.05 * plain.norm(), "ten calls are far off"


class Loop:
    """A host of our own: somebody's loop over σ."""

    run: Any = None

    def paint(self, x: Any) -> Any:
        run = self.run() if self.run else lambda n, call, x: call()
        for n in range(20):
            v = run(n, lambda n=n, x=x: velocity(x, SIGMAS[n]), x)
            x = x + (SIGMAS[n + 1] - SIGMAS[n]) * v
        return x


def attach(host: Loop, budget: int | None = None, **options: Any) -> Any:
    import geoshrink

    runs: list[Any] = []

    def start() -> Any:
        runs.append(geoshrink.Run(SIGMAS, budget, **options))
        return runs[-1]

    host.run = start
    return geoshrink.Handle(lambda: [run.report for run in runs], lambda: vars(host).pop("run"))


def accelerates(geoshrink: Any, noise: Any) -> None:
    """accelerate() finds the host, makes as many calls as asked, and leaves it as it was."""
    geoshrink.register_host(geoshrink.Host("loop", lambda host: isinstance(host, Loop), attach))
    loop = Loop()
    plain = loop.paint(noise)
    with geoshrink.accelerate(loop, budget=8) as handle:
        loop.paint(noise)
        assert "8 of 20" in str(handle.report), handle.report
    assert loop.paint(noise).equal(plain)


def command(*words: str, status: int = 0) -> str:
    """What `geoshrink WORDS` of this environment prints."""
    program = Path(sys.prefix) / ("Scripts" if os.name == "nt" else "bin") / "geoshrink"
    made = subprocess.run([str(program), *words], capture_output=True, text=True)
    assert made.returncode == status, f"geoshrink {words}: {made.returncode}, {made.stderr}"
    return made.stdout + made.stderr


def bench(version: str, url: str) -> None:
    """The demo with the weights of the wheel, and a model whose weights are brought."""
    import geoshrink_bench
    from geoshrink_bench import zoo

    installed(geoshrink_bench, version)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GEOSHRINK_ZOO_URL"], os.environ["GEOSHRINK_ZOO_CACHE"] = url, folder
        model = zoo.load("fruit-latent")
        page = Path(folder) / "demo.html"
        told = command("demo", "--steps", "8", "--budgets", "4", "--out", str(page))
        assert page.stat().st_size > 10_000 and "direct" in told
    assert model.decode(model.noise(1))[0].size == (64, 64)


if __name__ == "__main__":
    main(*sys.argv[1:])
    print("ok")
