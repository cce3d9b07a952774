"""Hosts with a library of their own, which must be importable; its loader gets the folder."""

from __future__ import annotations

import contextlib
import inspect
import io
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from geoshrink.compare.inputs import DTYPES
from geoshrink.hosts.odehosts import methods_of

from ..methods.stack import replaced
from ..samples import Sample
from .host import Host


class Upstream(Host):
    """module: what is imported; source: where to get it."""

    module, source = "", ""

    def check(self, folder: str | Path) -> Path:
        package = self.module.partition(".")[0]
        if package not in sys.modules and find_spec(package) is None:
            raise ImportError(f"{self.kind} needs the package {package!r}: {self.source}")
        return super().check(folder)

    def library(self) -> Any:
        return import_module(self.module)


class TangoFlux(Upstream):
    kind, precision, blocks = "TangoFluxInference", "fp32", True
    inner, step = "model.transformer", ("model.noise_scheduler", "step")
    files = ("config.json", "tangoflux.safetensors", "vae.safetensors")
    module, source = "tangoflux", "pip install --no-deps tangoflux==0.1.0"

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        """Its constructor only knows names on the hub: here the download is the folder."""
        library = self.library()
        with replaced(library, "snapshot_download", lambda repo_id: repo_id):
            return library.TangoFluxInference(name=str(folder), device=self.device)

    def call(self, prompt: str, seed: int, steps: int, **arguments: Any) -> Any:
        """generate(), with a seed: newer versions of inference_flow set their own."""
        flow = self.pipe.model.inference_flow
        seeded = {"seed": seed} if "seed" in inspect.signature(flow).parameters else {}
        arguments = {"duration": 10, **arguments, **seeded}
        with torch.no_grad():
            latents = flow(prompt, num_inference_steps=steps, disable_progress=True, **arguments)
            wave = self.pipe.vae.decode(latents.transpose(2, 1)).sample[0]
        return wave[:, : int(arguments["duration"] * self.pipe.vae.config.sampling_rate)]


class Hunyuan3D(Upstream):
    """Of N steps the last has no length: N − 1 are stages for geoshrink, and the forward of the
    last is spared.
    """

    kind, pictures, inner = "Hunyuan3DDiTFlowMatchingPipeline", True, "model"
    part = "hunyuan3d-dit-v2-0"
    files = (f"{part}/config.yaml",)
    module, source = "hy3dgen.shapegen", "pip install --no-deps hy3dgen==2.0.2"

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        half = (folder / self.part / "model.fp16.safetensors").is_file()
        return self.library().Hunyuan3DDiTFlowMatchingPipeline.from_pretrained(
            str(folder),
            subfolder=self.part,
            variant="fp16" if half else None,
            use_safetensors=True,
            device=self.device,
            dtype=DTYPES[dtype],
        )


class Trellis(Upstream):
    """The stage of the structured latents; the sparse structure before it is always the same.

    call: sparse_structure_steps, and arguments of both samplers.
    """

    kind, precision = "TrellisTextTo3DPipeline", "the checkpoint's own precision"
    files, step = ("pipeline.json",), ("slat_sampler", "sample_once")
    module = "trellis.pipelines"
    source = "clone microsoft/TRELLIS with its requirements, and put it on PYTHONPATH"

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        pipe = self.library().TrellisTextTo3DPipeline.from_pretrained(str(folder))
        pipe.to(self.device)
        return pipe

    def network(self) -> Any:
        return self.pipe.models["slat_flow_model"]

    def call(
        self, prompt: str, seed: int, steps: int, sparse_structure_steps: int = 25, **shared: Any
    ) -> Any:
        first = {**shared, "steps": sparse_structure_steps}
        both = dict(sparse_structure_sampler_params=first, slat_sampler_params=shared)
        return super().call(prompt, seed, steps, **both, formats=["mesh", "gaussian"])

    def read(self, output: Any) -> Sample:
        centres = output["gaussian"][0].get_xyz.detach().float().cpu()
        return Sample({**super().read(output).parts, "centres": centres})


class HYMotion(Upstream):
    """Its prompts are neither rewritten nor their duration estimated: that is its runtime's."""

    kind, precision, whole, inner = "MotionFlowMatching", "fp32", True, "motion_transformer"
    files = ("config.yml", "latest.ckpt")
    module = "hymotion.utils.t2m_runtime"
    source = (
        "clone Tencent-Hunyuan/HY-Motion-1.0 with its requirements, put it on PYTHONPATH and run "
        "in its folder, where it looks for its skeleton"
    )

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            runtime = self.library().T2MRuntime(
                config_path=str(folder / "config.yml"),
                ckpt_name=str(folder / "latest.ckpt"),
                device_ids=[self.device.index or 0],
                force_cpu=self.device.type == "cpu",
                disable_prompt_engineering=True,
            )
        pipe = runtime.pipelines[0].eval()
        pipe._noise_scheduler_cfg = {"method": "euler"}
        return pipe

    def ends(self) -> list[tuple[Any, str]]:
        """The solver, in the module that imported it."""
        return [(sys.modules[methods_of(type(self.pipe))["generate"].__module__], "odeint")]

    def call(self, prompt: str, seed: int, steps: int, **arguments: Any) -> Any:
        with contextlib.redirect_stdout(io.StringIO()):
            return super().call(prompt, seed, steps, **arguments)

    def read(self, output: Any) -> Sample:
        joints = output["keypoints3d"][0].float().cpu()
        if not joints.isfinite().all():
            raise ValueError("the motion is infinite or no number")
        return Sample({"joints": joints})


class AceStep1(Upstream):
    """ACE-Step v1: up to three decode() calls a stage."""

    kind, whole, inner = "ACEStepPipeline", True, "ace_step_transformer"
    files = ("ace_step_transformer", "music_dcae_f8c8", "music_vocoder", "umt5-base")
    module = "acestep.pipeline_ace_step"
    source = "clone ace-step/ACE-Step and pip install it (the one on the package index is broken)"

    def build(self, folder: Path, dtype: str, offload: str | None) -> Any:
        names = {"bf16": "bfloat16", "fp32": "float32"}
        if dtype not in names:
            raise ValueError(f"{self.kind} runs in {' or '.join(names)}, not in {dtype}")
        index = self.device.index or 0
        pipe = self.library().ACEStepPipeline(str(folder), device_id=index, dtype=names[dtype])
        pipe.load_checkpoint(str(folder))
        self.device = torch.device(pipe.device)
        return pipe

    def enter(self) -> tuple[Any, str]:
        return self.network(), "decode"

    def ends(self) -> list[tuple[Any, str]]:
        return [(self.pipe, "text2music_diffusion_process")]
