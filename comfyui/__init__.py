"""GeoShrink for ComfyUI: the same pictures with a fraction of the model calls.

ComfyUI loads this folder from custom_nodes/. It gets V3 nodes where it knows them, else V1 nodes.
"""

from __future__ import annotations

import os

from .api import entry, v1
from .nodes import NODES

WEB_DIRECTORY = "./web"  # the help pages of the nodes

try:
    if os.environ.get("GEOSHRINK_COMFYUI_V1"):
        raise ImportError("V1 nodes are asked for")
    from comfy_api.latest import ComfyExtension, io
except ImportError:
    NODE_CLASS_MAPPINGS = {node.id: v1(node) for node in NODES}
    NODE_DISPLAY_NAME_MAPPINGS = {node.id: node.title for node in NODES}
else:
    comfy_entrypoint = entry(NODES, io, ComfyExtension)
