"""Scores of tools that pin packages of their own, and so run in an environment of their own.

Each tool has three functions. export() writes samples into a folder as the tool wants them,
command() gives what to type in the tool's environment, read() takes the scores from what it wrote:

    vbench.export("films", clips, prompts, fps=8)
    print(vbench.command("films"))
    vbench.read("films").dimensions

Their metrics take such a folder in place of samples, and are skipped until the tool has run.
"""

from . import chronomagic, imagereward, vbench
from .chronomagic import MTSCORE
from .imagereward import IMAGE_REWARD
from .vbench import VBENCH
