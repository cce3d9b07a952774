"""The meshes: where to query. One file each; register_mesh takes yours, too."""

from . import auto, paper, sigma, uniform
from .auto import universal_anchors as universal_anchors
from .paper import certificate as certificate
from .paper import closure_root as closure_root
from .paper import continuous_mesh as continuous_mesh
from .paper import geometric_anchors as geometric_anchors
from .paper import project as project
from .paper import retention_floor as retention_floor
from .placement import by_regime as by_regime
from .placement import check_budget as check_budget
from .placement import share_budget as share_budget
from .registry import MESHES as MESHES
from .registry import Mesh as Mesh
from .registry import register_mesh as register_mesh
from .sigma import sigma_anchors as sigma_anchors
from .uniform import uniform_anchors as uniform_anchors

for module in (auto, sigma, paper, uniform):
    register_mesh(module.MESH)
