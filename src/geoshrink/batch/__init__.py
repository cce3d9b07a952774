"""Batch: many prompts through one model, here or on many machines; also the engine of the proof."""

from .jobs import Done as Done
from .jobs import Failed as Failed
from .jobs import Job as Job
from .jobs import Worker as Worker
from .jobs import drive as drive
from .on_processes import OnProcesses as OnProcesses
from .on_ray import OnRay as OnRay
from .prompts import read_prompts as read_prompts
from .results import Results as Results
from .running import Batch as Batch
from .running import run as run
