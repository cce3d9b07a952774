"""Your own pipeline: full, direct and GeoShrink from the same noise, measured, as one page."""

from .bench import Compared as Compared
from .bench import distinct as distinct
from .bench import run_compare as run_compare
from .inputs import Settings as Settings
from .inputs import check_out as check_out
from .inputs import read_kwargs as read_kwargs
from .inputs import read_prompts as read_prompts
from .running import Watch as Watch
from .showing import floats as floats
from .showing import shown as shown
