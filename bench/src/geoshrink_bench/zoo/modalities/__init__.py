"""What the zoo's models make: pictures, clips, sound, sound with a picture, motion, objects.

A modality reads its data, turns stored data into what a network sees, and back into what a person
looks at or listens to.
"""

from .audiovisual import Audiovisual as Audiovisual
from .base import Data as Data
from .base import Modality as Modality
from .clips import Clips as Clips
from .motion import Motion as Motion
from .objects import Objects as Objects
from .pictures import Pictures as Pictures
from .sound import Sound as Sound
