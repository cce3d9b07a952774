"""The proof of geoshrink: trained models, rivals, metrics, and a runner that never loses a cell."""

from .command import compare as compare
from .command import run as run

__version__ = "0.1.0"
