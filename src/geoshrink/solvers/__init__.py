"""The solvers of sample() and of planning. One file each; register_solver takes yours, too."""

from .ab2 import AB2 as AB2
from .dpmpp import DPMpp2M as DPMpp2M
from .euler import Euler as Euler
from .heun import Heun as Heun
from .registry import SOLVERS as SOLVERS
from .registry import Solver as Solver
from .registry import register_solver as register_solver

for solver in (Euler, AB2, Heun, DPMpp2M):
    register_solver(solver)
