"""Learning: the first run in a setting is exact, and places the anchors of the others."""

from .learned import Learned as Learned
from .learning import Learning as Learning
from .learning import teacher as teacher
