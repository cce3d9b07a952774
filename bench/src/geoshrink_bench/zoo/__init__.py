"""Our own small trained models: the ground on which every method here is judged."""

from .model import Model as Model
from .model import load as load
from .model import shifted_sigmas as shifted_sigmas
from .recipes import Recipe as Recipe
from .recipes import register as register
