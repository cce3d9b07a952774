"""The paper's tables and figures as suites that run on its real checkpoints."""

from .command import run as run
from .suite import read as read
from .suite import suites as suites
