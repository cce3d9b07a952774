"""A folder that is handed to a tool: samples, a manifest of which is which, results.

manifest.json is written last, so that an export that broke off is not taken for whole. The tool's
command writes into results/, and its version into results/version.txt.
"""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .media import CRF, write_mp4


@dataclass(frozen=True)
class Sample:
    """The index-th sample of a prompt, and its file in the folder."""

    file: str
    prompt: str
    index: int


@dataclass(frozen=True)
class Manifest:
    tool: str
    samples: list[Sample]
    facts: dict[str, Any]

    def files(self, prompt: str) -> set[str]:
        """The names of a prompt's files, without folders."""
        return {Path(s.file).name for s in self.samples if s.prompt == prompt}

    def prompts(self) -> list[str]:
        return list(dict.fromkeys(s.prompt for s in self.samples))


def numbered(prompts: Sequence[str]) -> list[tuple[str, int]]:
    """Each prompt with how often it came before; all must come equally often.

    >>> numbered(["a cat", "a dog", "a cat", "a dog"])
    [('a cat', 0), ('a dog', 0), ('a cat', 1), ('a dog', 1)]
    """
    if isinstance(prompts, str) or not len(prompts):
        raise ValueError(f"there must be one prompt per sample, got {prompts!r}")
    found: list[tuple[str, int]] = []
    counts: Counter[str] = Counter()
    for prompt in prompts:
        if not isinstance(prompt, str) or not prompt.strip():
            raise ValueError(f"a prompt must be some words, got {prompt!r}")
        found.append((prompt, counts[prompt]))
        counts[prompt] += 1
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd = [prompt for prompt, count in counts.items() if count != usual]
    if odd:
        raise ValueError(
            f"every prompt must have as many samples as the others; most have {usual}, not so "
            f"{some(odd)}"
        )
    return found


def export(
    tool: str,
    folder: str | Path,
    made: Iterable[Tensor],
    samples: Sequence[Sample],
    write: Callable[[Path, Tensor], None],
    **facts: Any,
) -> None:
    """Writes what was made, one after the other, to the files of the samples; then the manifest."""
    folder = Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name a new folder")
    rest = iter(made)
    for i, sample in enumerate(samples):
        each = next(rest, None)
        if each is None:
            raise ValueError(f"{len(samples)} prompts, but only {i} samples")
        path = folder / sample.file
        if path.exists():
            raise ValueError(f"two samples would both be {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, each)
    if next(rest, None) is not None:
        raise ValueError(f"more samples than the {len(samples)} prompts")
    (folder / "results").mkdir()
    manifest = dict(tool=tool, samples=[asdict(s) for s in samples], facts=facts)
    save_json(folder / "manifest.json", manifest)


def export_films(
    tool: str,
    folder: str | Path,
    clips: Iterable[Tensor],
    samples: Sequence[Sample],
    fps: float,
    **facts: Any,
) -> None:
    facts |= dict(fps=fps, crf=CRF)
    export(tool, folder, clips, samples, lambda path, clip: write_mp4(path, clip, fps), **facts)


def manifest_of(tool: str, folder: str | Path) -> Manifest:
    path = Path(folder) / "manifest.json"
    if not path.is_file():
        raise ValueError(f"{path} is not there: export the samples for {tool} first")
    found = load_json(path)
    if not isinstance(found, dict) or found.get("tool") != tool:
        raise ValueError(f"{path} is not of an export for {tool}")
    return Manifest(tool, [Sample(**s) for s in found["samples"]], found["facts"])


def version_line(package: str, results: str) -> str:
    """What to type, with a package's python, so that version_of() knows its version."""
    asked = f"import importlib.metadata as m; print('{package}', m.version('{package}'))"
    return f'python -c "{asked}" > {results}/version.txt\n'


def version_of(folder: str | Path) -> str:
    path = Path(folder) / "results" / "version.txt"
    version = path.read_text(encoding="utf-8").strip() if path.is_file() else ""
    if not version:
        raise ValueError(f"{path} should name the tool's version: the command's first line does so")
    return version


def check_complete(where: str, missing: Iterable[str], strange: Iterable[str]) -> None:
    """Refuses scores that lack some of the samples, or are of others."""
    missing, strange = list(missing), list(strange)
    if missing:
        raise ValueError(f"{where}: {len(missing)} prompts lack scores: {some(missing)}")
    if strange:
        raise ValueError(f"{where}: scores of samples that were not exported: {some(strange)}")


def quoted(folder: str | Path, *names: str) -> list[str]:
    """Paths of the folder as a shell takes them."""
    return [shlex.quote(str(Path(folder).resolve() / name)) for name in names]


def save_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON, the tool may have broken off: {error}") from None


def number(value: Any, where: str) -> float:
    """A finite number; True and False count as 1 and 0."""
    if not isinstance(value, (bool, int, float)) or not math.isfinite(value):
        raise ValueError(f"{where} must be a finite number, is {value!r:.80}")
    return float(value)


def field(value: Any, key: str, where: str) -> Any:
    if not isinstance(value, dict) or key not in value:
        raise ValueError(f"{where} must have a {key!r}, is {value!r:.80}")
    return value[key]


def some(names: Iterable[str], most: int = 5) -> str:
    """The first few in quotation marks, and how many more.

    >>> some("abc", most=2)
    "'a', 'b' and 1 more"
    """
    names = list(names)
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest
