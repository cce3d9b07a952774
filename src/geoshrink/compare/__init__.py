"""Your own host: full, direct and GeoShrink from the same noise, measured, as one page."""

from .bench import compare as compare
from .bench import distinct as distinct
from .bench import run_compare as run_compare
from .compared import Compared as Compared
from .inputs import Settings as Settings
from .inputs import check_out as check_out
from .inputs import read_kwargs as read_kwargs
from .inputs import read_prompts as read_prompts
from .meshes import Meshes as Meshes
from .motions import Motions as Motions
from .pictures import Films as Films
from .pictures import Pictures as Pictures
from .pictures import floats as floats
from .running import Watch as Watch
from .showing import shown as shown
from .sounds import Sounds as Sounds
