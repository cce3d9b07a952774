"""The nodes, one file each."""

from . import accelerate, compare, demo, profile, report

NODES = (accelerate.NODE, report.NODE, profile.NODE, compare.NODE, *demo.NODES)
