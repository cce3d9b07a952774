"""The paper's models by the names that suites call them. A new one is a class and a line here."""

from __future__ import annotations

from .host import Host
from .pipelines import SD3, AceStep, Flux, HunyuanVideo, MiniMaxH3
from .upstream import AceStep1, Hunyuan3D, HYMotion, TangoFlux, Trellis

HOSTS: dict[str, type[Host]] = {
    "sd3": SD3,
    "flux": Flux,
    "hunyuan-video": HunyuanVideo,
    "minimax-h3": MiniMaxH3,
    "ace-step": AceStep,
    "ace-step-v1": AceStep1,
    "hy-motion": HYMotion,
    "trellis": Trellis,
    "hunyuan3d": Hunyuan3D,
    "tangoflux": TangoFlux,
}
