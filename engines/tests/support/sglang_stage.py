"""SGLang's own denoising stage on a CPU: its loop, its guidance, its schedulers, a small network.

What a stage needs of a server (residency of weights, progress, NVTX) is left out.
"""

from __future__ import annotations

import importlib.machinery
import sys
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import import_utils


class Hollow(ModuleType):
    """A module in which every name is a class."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def hollow(*names: str) -> None:
    """Modules that only exist as CUDA builds, and of which nothing is used here."""
    import_utils.is_torchvision_available()  # transformers must not find what follows
    for name in names:
        sys.modules[name] = module = Hollow(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)


hollow("torchvision", "torchvision.transforms", "torchvision.transforms.functional")

from sglang.multimodal_gen.configs.pipeline_configs.base import PipelineConfig  # noqa: E402
from sglang.multimodal_gen.configs.sample.sampling_params import SamplingParams  # noqa: E402
from sglang.multimodal_gen.runtime.distributed.cfg_policy import CFGBranch, CFGPolicy  # noqa: E402
from sglang.multimodal_gen.runtime.models.schedulers import (  # noqa: E402
    scheduling_flow_match_euler_discrete as euler,
)
from sglang.multimodal_gen.runtime.models.schedulers import (  # noqa: E402
    scheduling_flow_unipc_multistep as unipc,
)
from sglang.multimodal_gen.runtime.pipelines_core.schedule_batch import Req  # noqa: E402
from sglang.multimodal_gen.runtime.pipelines_core.stages.denoising import (  # noqa: E402
    DenoisingContext,
    DenoisingStage,
)

SCHEDULERS = {
    "euler": lambda: euler.FlowMatchEulerDiscreteScheduler(shift=3.0),
    "unipc": lambda: unipc.FlowUniPCMultistepScheduler(shift=3.0),
}


class Net(nn.Module):
    """Counts its calls. Twice the same input gives twice the same output."""

    def __init__(self, seed: int = 0, width: int = 6, fail_at: int | None = None):
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.calls, self.fail_at = nn.Linear(width, width), 0, fail_at

    def forward(self, hidden_states: Tensor, timestep: Tensor, shift: float = 0.0) -> Tensor:
        self.calls += 1
        if self.calls == self.fail_at:
            raise RuntimeError("the device is gone")
        time = (timestep / 1000).reshape(-1, *[1] * (hidden_states.ndim - 1))
        return torch.sin(self.inner(hidden_states) + time + shift)


class Stage(DenoisingStage):
    """The real stage without a server around it."""

    def __init__(self, transformer: nn.Module, transformer_2: nn.Module | None = None):
        nothing = SimpleNamespace(enable_breakable_cuda_graph=False, enable_cfg_parallel=False)
        self.server_args = self.args = nothing
        self.args.comfyui_mode, self.args.disable_autocast = False, True
        self.args.pipeline_config = PipelineConfig()
        self.transformer, self.transformer_2 = transformer, transformer_2
        self._cache_dit_enabled = False
        self._extra_func_kwarg_names_cache: dict[int, Any] = {}
        self._component_residency_manager: Any = None

    def pause(self) -> None:
        """Before every step."""

    def _prepare_step_state(self, *args: Any, **kwargs: Any) -> Any:
        self.pause()
        return super()._prepare_step_state(*args, **kwargs)

    def progress_bar(self, *args: Any, **kwargs: Any) -> Any:
        return nullcontext(SimpleNamespace(update=lambda: None))

    def _manage_dit_use_site(self, *args: Any, **kwargs: Any) -> None: ...
    def _build_attn_metadata(self, *args: Any, **kwargs: Any) -> None: ...
    def _apply_nvtx_gate(self, is_warmup: bool) -> bool:
        return False

    @property
    def current_use_nvtx(self) -> bool:
        return False

    def _finish_active_component_use(self) -> None: ...
    def log_info(self, *args: Any, **kwargs: Any) -> None: ...
    def step_profile(self) -> None: ...


def request(
    asked: Any = None,
    *,
    scheduler: str | Any = "euler",
    steps: int = 24,
    shape: tuple[int, ...] = (1, 4, 6),
    guidance: float = 3.0,
    guidance_2: float | None = None,
    boundary: float | None = None,
    seed: int = 0,
    warmup: bool = False,
    **settings: Any,
) -> tuple[Any, Any]:
    """(context, request) as SGLang has them when its loop begins."""
    made = SCHEDULERS[scheduler]() if isinstance(scheduler, str) else scheduler
    made.set_timesteps(steps, device="cpu")
    params = SamplingParams(prompt="a lighthouse", num_inference_steps=steps, **settings)
    params.guidance_scale, params.guidance_scale_2 = guidance, guidance_2
    req = Req(sampling_params=params)
    req.validate()
    req.scheduler, req.timesteps, req.is_warmup = made, made.timesteps, warmup
    req.raw_latent_shape = shape  # type: ignore[assignment]
    if asked is not None:
        req.extra["diffusers_kwargs"] = {"geoshrink": asked}
    req.latents = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    branches = [CFGBranch("conditional", True, {"shift": 0.0})]
    if guidance > 1:
        branches.append(CFGBranch("unconditional", False, {"shift": 0.4}))
    ctx = DenoisingContext(
        scheduler=made,
        extra_step_kwargs={},
        target_dtype=torch.float32,
        autocast_enabled=False,
        timesteps=made.timesteps,
        num_inference_steps=steps,
        num_warmup_steps=0,
        image_kwargs={},
        pos_cond_kwargs={},
        neg_cond_kwargs={},
        latents=req.latents,
        boundary_timestep=boundary,
        z=None,
        reserved_frames_mask=None,
        seq_len=None,
        guidance=torch.ones(1),
        is_warmup=warmup,
        cfg_policy=CFGPolicy(branches),
    )
    return ctx, req


def run(stage: Stage, ctx: Any, req: Any) -> Tensor:
    with torch.no_grad():
        stage._run_denoising_loop(ctx, req, stage.args)
    return ctx.latents
