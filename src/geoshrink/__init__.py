"""geoshrink: diffusion and flow sampling with a fraction of the model calls, at the solver's own
grid.
"""

from . import moved, teaching
from .blocks import Blocks as Blocks
from .correction import Correction as Correction
from .grid import Grid as Grid
from .hosts import Handle as Handle
from .hosts import Host as Host
from .hosts import accelerate as accelerate
from .hosts import register_adapter as register_adapter
from .hosts import register_host as register_host
from .hosts.odeint import odeint as odeint
from .learning import Learned as Learned
from .learning import Learning as Learning
from .learning import teacher
from .meshes import certificate as certificate
from .meshes import geometric_anchors as geometric_anchors
from .meshes import register_mesh as register_mesh
from .meshes import sigma_anchors as sigma_anchors
from .meshes import uniform_anchors as uniform_anchors
from .outputs import register_output as register_output
from .plan import METHODS as METHODS
from .plan import Plan as Plan
from .planning import Profile as Profile
from .planning import profile as profile
from .report import Report as Report
from .rules import Rule as Rule
from .rules import register_rule as register_rule
from .run import Run as Run
from .sampling import sample as sample
from .solvers import register_solver as register_solver

moved.install()
teaching.TEACHERS.append(teacher)

__version__ = "0.1.0"
