"""What the benchmark's pages have beyond geoshrink's: folds, lines to choose, sound, meshes."""

from geoshrink.page import add_files

from .choice import Choice as Choice
from .dial import Dial as Dial
from .drawing import drawing as drawing
from .folded import Folded as Folded
from .mesh import Solid as Solid
from .mesh import clustered as clustered
from .mesh import packed as packed
from .shown import Shown as Shown
from .sound import Film as Film
from .sound import Sound as Sound
from .sound import encode_wave as encode_wave

add_files(__name__, "choice.css", "choice.js", "dial.css", "dial.js", "folded.css")
add_files(__name__, "mesh.css", "mesh.js", "turning.js", "sound.css", "sound.js")
