"""Your own host: full, direct and geoshrink from the same noise, measured, as one page."""

from typing import Any

from .bench import Watch as Watch
from .bench import compare as compare
from .bench import distinct as distinct
from .bench import run_compare as run_compare
from .compared import Compared as Compared
from .inputs import Settings as Settings
from .inputs import check_out as check_out
from .inputs import read_kwargs as read_kwargs
from .inputs import read_prompts as read_prompts
from .kinds import ELSEWHERE, kind_of
from .kinds import register_kind as register_kind
from .pictures import Pictures as Pictures
from .pictures import floats as floats
from .showing import shown as shown


def __getattr__(name: str) -> Any:
    """Sounds, Films, Meshes and Motions, where geoshrink-bench is installed."""
    if name in ELSEWHERE:
        return kind_of(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
