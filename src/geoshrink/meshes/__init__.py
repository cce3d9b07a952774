"""The meshes: where to query. One file each; register_mesh takes yours, too."""

from . import auto, corrected, paper, sigma, uniform
from .auto import universal_anchors
from .paper import (
    certificate,
    closure_root,
    continuous_mesh,
    geometric_anchors,
    project,
    retention_floor,
)
from .placement import by_regime as by_regime
from .placement import check_budget, share_budget
from .registry import MESHES as MESHES
from .registry import Mesh as Mesh
from .registry import register_mesh as register_mesh
from .sigma import sigma_anchors
from .uniform import uniform_anchors

for module in (auto, corrected, sigma, paper, uniform):
    register_mesh(module.MESH)
