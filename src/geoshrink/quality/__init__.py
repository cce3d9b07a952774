"""How far a run is from the full run, known without a reference, and how many calls it needs."""

from .estimate import Estimate as Estimate
from .goal import Goal as Goal
