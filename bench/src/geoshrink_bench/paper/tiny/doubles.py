"""Doubles of libraries that a dry run does without: their sampling loops over tiny networks.

They have the names and the arguments by which geoshrink knows those libraries, and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from . import hunyuan3d, hymotion, tangoflux, trellis

#: The modules that are there while the doubles are, and what they hold.
MODULES = {
    "trellis.pipelines": {"TrellisTextTo3DPipeline": trellis.TrellisTextTo3DPipeline},
    "hymotion.utils.t2m_runtime": {"T2MRuntime": hymotion.T2MRuntime},
    "tangoflux": {"TangoFluxInference": tangoflux.TangoFluxInference},
    "hy3dgen.shapegen": {
        "Hunyuan3DDiTFlowMatchingPipeline": hunyuan3d.Hunyuan3DDiTFlowMatchingPipeline
    },
}


@contextmanager
def pretended() -> Iterator[None]:
    """The doubles in place of the libraries, whether those are installed or not."""
    parts = [name.split(".") for name in MODULES]
    names = {".".join(words[:i]) for words in parts for i in range(1, len(words) + 1)}
    before = {name: sys.modules[name] for name in names if name in sys.modules}
    sys.modules.update({name: ModuleType(name) for name in names})
    for name, content in MODULES.items():
        vars(sys.modules[name]).update(content)
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
        sys.modules.update(before)
