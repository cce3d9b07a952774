"""What the benchmark's pages have beyond geoshrink's: folds, lines to choose from, sound."""

from geoshrink.page import add_files

from .choice import Choice as Choice
from .drawing import drawing as drawing
from .folded import Folded as Folded
from .shown import Shown as Shown
from .sound import Sound as Sound
from .sound import encode_wave as encode_wave

add_files(__name__, "choice.css", "choice.js", "folded.css", "sound.css", "sound.js")
