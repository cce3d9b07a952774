"""Samples as PIL images: pure functions of a sample and a size in pixels, with no plotting library.

The contact sheets and the report pages share them.
"""

from .canvas import contact_sheet as contact_sheet
from .canvas import notes_of as notes_of
from .canvas import save_picture as save_picture
from .field import draw_object as draw_object
from .figure import draw_motion as draw_motion
from .figure import moving_figure as moving_figure
from .film import draw_clip as draw_clip
from .film import save_animation as save_animation
from .spectrogram import draw_pair as draw_pair
from .spectrogram import draw_sound as draw_sound
