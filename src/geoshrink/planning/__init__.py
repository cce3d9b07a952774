"""Planned anchors: profile a model once, get the best plan for any budget."""

from .choosing import Prediction as Prediction
from .profiles import Profile as Profile
from .profiles import plan_for as plan_for
from .profiles import profile as profile
