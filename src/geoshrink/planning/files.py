"""A profile as a file: JSON, with its matrices packed as base64 of float64 or float32.

A file of version 2 is read only if its sha256 is that of the rest of it. Version 1 had none, and is
read if its shapes fit and its numbers are finite.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path
from reprlib import repr as cut
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..files import version as geoshrink_version
from ..files import write_whole
from ..grid import read_grid
from ..plan_json import LETTERS, MADE_BY, PROFILE
from ..purpose import Purpose
from .runs import Batch, Kind, Runs, Trial

VERSIONS = 1, 2
VERSION = VERSIONS[-1]
KIND, DIGEST = PROFILE, "sha256"
TYPES = {"<f8", "<f4"}
#: The fields of a profile that JSON holds as they are; LATER ones are not in every old file.
PLAIN, LATER = ("complete", "model", "guidance", "dtype", "stages"), ("solver", "origin", "made")


def write(profile: Runs, file: str | Path, small: bool = False) -> None:
    """Writes the file; `small` packs its numbers as float32."""
    write_whole(file, text_of(profile, small))


def text_of(profile: Runs, small: bool = False) -> str:
    """The contents of the file."""
    kind = "<f4" if small else "<f8"
    body = {
        KIND: VERSION,
        **{name: getattr(profile, name) for name in (*PLAIN, *LATER)},
        MADE_BY: geoshrink_version(),
        "purpose": None if profile.purpose is None else profile.purpose.to_json(),
        "samples": profile.samples,
        "grid": asdict(profile.grid),
        "trials": [asdict(trial) for trial in profile.trials],
        "batches": [
            {
                "grams": [pack(upper(g), kind) for g in batch.grams],
                "energies": [pack(e, kind) for e in batch.energies],
                "gains": [pack(g, kind) for g in batch.gains],
            }
            for batch in profile.batches
        ],
    }
    return json.dumps(body | {DIGEST: digest(body)})


def read(kind: type[Kind], file: str | Path, whole: bool = True) -> Kind:
    """The profile in a file; whole=False also reads one that was interrupted."""
    try:
        body = json.loads(Path(file).read_text(encoding="utf-8"))
        body[KIND]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{file} is not a geoshrink profile, or it is damaged") from None
    return parsed(kind, body, file, whole)


def parsed(kind: type[Kind], body: dict[str, Any], file: str | Path, whole: bool = True) -> Kind:
    """The profile in what JSON text was decoded to; `file` is what errors call it."""
    version = body[KIND]
    if version not in VERSIONS:
        raise ValueError(
            f"{file} has version {cut(version)}, this geoshrink reads {VERSION}: update geoshrink, "
            "or profile again"
        )
    recorded = body.pop(DIGEST, None)
    if recorded != digest(body) and (version, recorded) != (1, None):
        raise ValueError(f"{file} is damaged (its {DIGEST} is another one): profile again")
    try:
        profile = kind(**parse(body))
        check(profile, body["samples"])
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{file} is damaged ({repr(error)[:LETTERS]}): profile again") from None
    if whole and not profile.complete:
        raise ValueError(
            f"{file} is of a profiling run that was interrupted: call profile(…, file=…) or "
            "geoshrink plan … --out again with the same arguments, and it goes on"
        )
    return profile


def parse(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a profile."""
    grid = read_grid(body["grid"])
    batches = tuple(
        Batch(
            tuple(symmetric(unpack(g), grid.steps + 1) for g in batch["grams"]),
            tuple(unpack(e) for e in batch["energies"]),
            tuple(unpack(g) for g in batch["gains"]),
        )
        for batch in body["batches"]
    )
    trials = (t | {"anchors": tuple(t["anchors"]), "db": tuple(t["db"])} for t in body["trials"])
    plain = {name: body[name] for name in (*PLAIN, *(name for name in LATER if name in body))}
    return dict(
        {name: tuple(v) if isinstance(v, list) else v for name, v in plain.items()},
        grid=grid,
        purpose=Purpose.of(body.get("purpose")),
        batches=batches,
        trials=tuple(Trial(**trial) for trial in trials),
    )


def digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def check(profile: Runs, samples: int) -> None:
    """All numbers finite, but for gains, which are NaN where nothing was perturbed."""
    if profile.samples != samples:
        raise ValueError(f"it names {samples} samples and has {profile.samples}")
    for batch in profile.batches:
        if not all(t.isfinite().all() for t in (*batch.grams, *batch.energies)):
            raise ValueError("a product of its outputs is not finite")
    for t in profile.trials:
        if not all(map(math.isfinite, (t.surrogate, *t.db))):
            raise ValueError(f"the real run of {t.recipe!r} with {t.budget} calls is not finite")


def pack(t: Tensor, kind: str) -> dict[str, Any]:
    values = np.ascontiguousarray(t.numpy(), dtype=kind)
    data = base64.b64encode(values.tobytes()).decode()
    return {"type": kind, "shape": list(values.shape), "data": data}


def unpack(packed: dict[str, Any]) -> Tensor:
    kind = packed.get("type", "<f8")
    if kind not in TYPES:
        raise ValueError(f"numbers of type {kind!r}")
    values = np.frombuffer(base64.b64decode(packed["data"], validate=True), dtype=kind)
    return torch.from_numpy(values.reshape(packed["shape"]).astype(np.float64))


def upper(gram: Tensor) -> Tensor:
    """The upper triangle of every matrix, as a row."""
    i, j = torch.triu_indices(gram.shape[1], gram.shape[1])
    return gram[:, i, j]


def symmetric(rows: Tensor, size: int) -> Tensor:
    """The matrices of these upper triangles."""
    if rows.ndim != 2 or rows.shape[1] != size * (size + 1) // 2:  # else it would be broadcast
        raise ValueError(f"{[*rows.shape]} numbers are not triangles of {size} rows")
    i, j = torch.triu_indices(size, size)
    gram = rows.new_zeros(len(rows), size, size)
    gram[:, i, j] = rows
    gram[:, j, i] = rows
    return gram
