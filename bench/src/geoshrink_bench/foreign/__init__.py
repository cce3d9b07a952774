"""Trained models of others, brought by recipes: the ground on which defaults are decided.

Nothing of theirs is in this package: a recipe names the release or the repository, the licence and
the hash of every file. Where a model is not on the machine, its benchmark says so and skips it.
"""

from . import models as models
from .files import Missing as Missing
from .files import fetch as fetch
from .model import Model as Model
from .model import load as load
from .recipe import RECIPES as RECIPES
from .recipe import Network as Network
from .recipe import Package as Package
from .recipe import Recipe as Recipe
from .recipe import Repository as Repository
from .recipe import register as register
