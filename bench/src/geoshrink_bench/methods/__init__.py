"""Every method on one interface: one file each, each as strong as its authors made it."""

from .base import Case as Case
from .base import Method as Method
from .base import Outcome as Outcome
