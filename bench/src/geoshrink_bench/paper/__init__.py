"""The paper's tables and figures as suites that run on its real checkpoints."""

from .asked import is_folder as is_folder
from .command import resume as resume
from .command import run as run
from .formats import report as report
from .suite import is_suite as is_suite
from .suite import read as read
from .suite import suites as suites
