"""Whether a release can go out: make release-check. Each step is printed with its time.

python scripts/release_check.py               # oldest and newest supported Python of this machine
python scripts/release_check.py --every       # all of them
python scripts/release_check.py --tag v0.1.0  # the tag must be the version, the changelog dated

The distributions are left in dist/, a bill of materials in .release/sbom.json. Tools and Pythons
are installed into .release/, torch once for each Python; later calls take them from there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import release_pythons as pythons
import version
import zoo_manifest
from release_pythons import HOME, INSTALL, ROOT, Stop, call

DIST = ROOT / "dist"
TOOLS = (
    "build==1.6.1",
    "check-wheel-contents==0.6.3",
    "cyclonedx-bom==7.5.0",
    "hatch-fancy-pypi-readme==25.1.0",
    "hatchling==1.33.0",
    "pip-audit==2.10.1",
    "twine==7.0.0",
    "validate-pyproject==0.27",
)
#: Distribution → its folder, and the most megabytes that its wheel and its sdist may have.
PROJECTS = {"geoshrink": (ROOT, 1.0, 2.0), "geoshrink_bench": (ROOT / "bench", 15.0, 15.0)}
#: What pip-audit says where its advisories cannot be reached.
OFFLINE = ("ConnectionError", "ConnectTimeout", "Max retries", "Name or service", "HTTPError")
NOT_OURS = ("pip",)  # of the environment, not a dependency
SMOKE = Path(__file__).with_name("release_smoke.py")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Whether a release can go out.")
    parser.add_argument("--tag", help="the tag that will be published, such as v0.1.0")
    parser.add_argument("--every", action="store_true", help="every supported Python there is")
    args = parser.parse_args(argv)
    HOME.mkdir(exist_ok=True)
    begun = time.perf_counter()
    try:
        check(args.tag, args.every)
    except Stop as error:
        print(f"\nrelease-check stopped: {error}", file=sys.stderr)
        return 1
    print(f"{time.perf_counter() - begun:6.1f} s  in all; nothing stands against a release")
    return 0


def check(tag: str | None, every: bool) -> None:
    with step(f"version {version.version()}" + (f", tag {tag}" if tag else "")):
        wrong = version.differences() + (version.tag_differences(tag) if tag else [])
        if wrong:
            raise Stop("\n".join(wrong))
    with step("tools"):
        tools = made_tools()
    with step("pyproject.toml of both"):
        for folder, *_ in PROJECTS.values():
            words = [tools / "validate-pyproject", folder / "pyproject.toml"]
            call(words, f"{folder / 'pyproject.toml'} is not valid")
    with step("sdists, and wheels from them"):
        build(tools)
    with step("metadata, contents, sizes"):
        inspect(tools)
    mirror = HOME / "mirror"
    with step("mirror of the zoo's weights"):
        zoo_manifest.mirror(mirror)
    found = pythons.here()
    if absent := [name for name in pythons.supported() if name not in found]:
        print(f"          not on this machine, so not tried: Python {', '.join(absent)}")
    if not found:
        raise Stop(f"none of the supported Pythons is here: {', '.join(pythons.supported())}")
    names = list(found)
    if not every:
        names = names[:1] + names[1:][-1:]  # the oldest and the newest
    last = Path()
    for name in names:
        with step(f"geoshrink alone on Python {name}: import, sample, accelerate, command"):
            alone(name, found[name])
        with step(f"geoshrink-bench on Python {name}: demo, weights from a URL"):
            last = with_bench(name, found[name], mirror)
    with step("known vulnerabilities"):
        audit(tools, last, pythons.base(names[-1], found[names[-1]]))
    with step("bill of materials"):
        words = [tools / "cyclonedx-py", "environment", last, "-o", HOME / "sbom.json"]
        call(words, "no bill of materials")


@contextmanager
def step(words: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    print(f"{time.perf_counter() - begun:6.1f} s  {words}", flush=True)


def made_tools() -> Path:
    """The folder of the tools' programs."""
    folder = HOME / "tools"
    done = folder / "done.txt"
    if not done.is_file() or done.read_text() != str(TOOLS):
        own = pythons.fresh(folder, Path(sys.executable))
        call([own, *INSTALL, *TOOLS], "the tools could not be installed: is an index reachable?")
        done.write_text(str(TOOLS))
    return pythons.program_of(folder).parent


def build(tools: Path) -> None:
    for old in DIST.glob("geoshrink*"):
        old.unlink()
    for folder, *_ in PROJECTS.values():
        words = [tools / "python", "-m", "build", "--no-isolation", "--outdir", DIST, folder]
        call(words, f"{folder} could not be built")


def wheel(name: str) -> Path:
    return DIST / f"{name}-{version.version()}-py3-none-any.whl"


def inspect(tools: Path) -> None:
    """Stops where metadata, contents or sizes of the distributions are wrong."""
    made = sorted(DIST.glob("geoshrink*"))
    call([tools / "twine", "check", "--strict", *made], "an index would refuse the metadata")
    for name, (_, most, most_sdist) in PROJECTS.items():
        sdist = DIST / f"{name}-{version.version()}.tar.gz"
        for path, limit in ((wheel(name), most), (sdist, most_sdist)):
            if not path.is_file():
                raise Stop(f"{path.name} is not among {[each.name for each in made]}")
            size = path.stat().st_size / 1e6
            print(f"          {path.name}: {size:.2f} MB of {limit:g}")
            if size > limit:
                raise Stop(f"{path.name} has {size:.2f} MB, more than {limit:g}: what came in?")
        call([tools / "check-wheel-contents", wheel(name)], f"the wheel of {name} is odd")
        strange = [each for each in names_in(wheel(name)) if not each.startswith(name)]
        if strange:
            raise Stop(f"{wheel(name).name} holds what is not of {name}: {strange[:5]}")
        if dead := relative_links(metadata(wheel(name))):
            raise Stop(f"links of {name}'s README that lead nowhere on an index: {dead[:5]}")


def names_in(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def metadata(path: Path) -> str:
    """What an index is told, the README included."""
    with zipfile.ZipFile(path) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return archive.read(name).decode()


def relative_links(text: str) -> list[str]:
    """
    >>> relative_links("[a](https://b.c) [d](e.md) [f](#g) ![h](i.png)")
    ['e.md', 'i.png']
    """
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\((?!https?:|#)([^)\s]+)\)", prose)


def alone(name: str, python: Path) -> None:
    own = pythons.clean(name, python, "geoshrink")
    why = f"the wheel does not install on Python {name} where only torch and numpy are"
    call([own, *INSTALL, "--no-index", wheel("geoshrink")], why)
    call([own, "-I", SMOKE, version.version()], f"geoshrink's wheel fails on Python {name}")


def with_bench(name: str, python: Path, mirror: Path) -> Path:
    """The Python of the environment, with both wheels in it."""
    own = pythons.clean(name, python, "bench")
    limits = HOME / "constraints.txt"
    limits.write_text("\n".join(pythons.pins(("pillow", "pyyaml", "safetensors", "tqdm"))) + "\n")
    why = f"the wheels do not install on Python {name}: is an index reachable?"
    call([own, *INSTALL, "-c", limits, wheel("geoshrink"), wheel("geoshrink_bench")], why)
    words = [own, "-I", SMOKE, version.version(), mirror.as_uri()]
    call(words, f"geoshrink-bench's wheel fails on Python {name}")
    return own


def audit(tools: Path, python: Path, base: Path) -> None:
    """Stops at a dependency with a known vulnerability; says so where none can be looked up."""
    out = HOME / "audit.json"
    out.unlink(missing_ok=True)
    words = [tools / "pip-audit", "--progress-spinner", "off", "--timeout", "10", "--format"]
    words += ["json", "--output", out, "--path", pythons.packages(python), "--path", base]
    try:
        call(words, "pip-audit failed")
    except Stop as error:  # it also fails where it finds something, and writes the file then
        if not out.is_file() and not any(sign in str(error) for sign in OFFLINE):
            raise
    found = json.loads(out.read_text(encoding="utf-8"))["dependencies"] if out.is_file() else []
    looked_up = [each for each in found if "vulns" in each and each["name"] not in NOT_OURS]
    if not looked_up:
        print("          skipped: the advisories cannot be reached from here")
        return
    print(f"          {len(looked_up)} of {len(found)} packages looked up")
    if bad := [f"{each['name']} {each['version']}" for each in looked_up if each["vulns"]]:
        raise Stop(f"known vulnerabilities in {', '.join(bad)}: {out} says which; raise the floor")


if __name__ == "__main__":
    sys.exit(main())
