"""A ControlNet of one seeded projection, applied by ComfyUI's own ControlNetApplyAdvanced."""

from __future__ import annotations

import torch
from comfy.controlnet import ControlBase

from .inputs import noise


class TinyControl(ControlBase):
    """Adds a projection of x to the hidden states of an SD1.5 UNet or an SD3 transformer."""

    def __init__(self, width: int, patch: int):
        super().__init__()
        self.width, self.patch = width, patch

    def get_control(self, x_noisy, t, cond, batched_number, transformer_options=None):
        start, end = self.timestep_range
        if t[0] > start or t[0] < end:
            return None
        parts = torch.nn.functional.pixel_unshuffle(x_noisy, self.patch)
        weight = noise((self.width, parts.shape[1]), 11) / parts.shape[1] ** 0.5
        hidden = torch.einsum("oc,bchw->bohw", weight.to(parts), torch.tanh(parts))
        if self.patch == 1:
            return self.control_merge({"middle": [hidden]}, None, None)
        tokens = hidden.flatten(2).transpose(1, 2).contiguous()
        return self.control_merge({"output": [tokens]}, None, None)

    def copy(self):
        other = TinyControl(self.width, self.patch)
        self.copy_to(other)
        return other


class TestControl:
    """`patch` 1 for a UNet of hidden width `width`, the patch size for a transformer."""

    RETURN_TYPES = ("CONTROL_NET",)
    FUNCTION = "make"
    CATEGORY = "geoshrink/test"

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"width": ("INT", {"default": 320}), "patch": ("INT", {"default": 1})}}

    def make(self, width, patch):
        return (TinyControl(width, patch),)
