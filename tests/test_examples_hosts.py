"""examples/sdnext_script.py and xdit.py as they stand, with imitations of their hosts around tiny
diffusers pipelines.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn

from geoshrink import pace

d: Any = pytest.importorskip("diffusers")
image: Any = pytest.importorskip("hosts.image")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]
EXAMPLES = Path(__file__).parents[1] / "examples"
STEPS = 12


class Stop(Exception):
    """A fault that a test raises."""


def modules(**names: dict[str, Any]) -> dict[str, ModuleType]:
    """Modules of these names, with these contents; a dot is written as two underscores."""
    made = {}
    for name, contents in names.items():
        made[name.replace("__", ".")] = module = ModuleType(name.replace("__", "."))
        vars(module).update(contents)
    return made


def marks(pipe: Any) -> list[tuple[str, set[str]]]:
    """What our hooks would change; a run's own attributes are left out."""
    parts = [p for p in pipe.components.values() if isinstance(p, nn.Module)]
    ours = {"step", "set_timesteps"} & set(vars(pipe.scheduler))
    return [(type(p).__name__, set(vars(p))) for p in parts] + [(str(type(pipe)), ours)]


def counted(module: nn.Module) -> list[int]:
    calls: list[int] = []
    module.register_forward_pre_hook(lambda module, args: calls.append(len(calls)))
    return calls


# --- SD.Next -----------------------------------------------------------------------------------


class Script:
    """What SD.Next's Script has that is used here."""

    args_from = args_to = 0


class Slider:
    def __init__(self, *_: Any, **__: Any):
        self.value = __["value"]


class SDNext:
    """Its way through a generation: which hooks are called, with what, and which faults it hides.

    Processing is what process_images, process_images_inner and process_base do, in their order.
    """

    def __init__(self, pipe: Any):
        self.shared, self.after, self.shown = SimpleNamespace(sd_model=pipe), [], []
        self.always = object()
        names = dict(
            scripts_manager=SimpleNamespace(Script=Script, AlwaysVisible=self.always),
            script_callbacks=SimpleNamespace(on_after_process=self.after.append),
            shared=self.shared,
        )
        self.modules = modules(gradio=dict(Slider=Slider), modules=names)
        with pytest.MonkeyPatch.context() as patch:
            for name, made in self.modules.items():
                patch.setitem(sys.modules, name, made)
            names = runpy.run_path(str(EXAMPLES / "sdnext_script.py"))
        (kind,) = [
            k
            for k in names.values()
            if type(k) is type and issubclass(k, Script) and k is not Script
        ]
        self.script: Any = kind()
        assert self.script.title() and self.script.show(False) is self.always
        self.script.args_to = len(self.script.ui(False))

    def hook(self, name: str, p: Any, **more: Any) -> None:
        """Only of scripts that have controls; what they raise is displayed."""
        method = getattr(self.script, name, None)
        if method is not None and self.script.args_to > 0:
            try:
                method(p, *p.script_args, **more)
            except Exception as error:
                self.shown.append(str(error))

    def process_images(self, p: Any, call: Any, prepare: Any = lambda: None) -> Any:
        try:
            self.hook("process", p)
            prepare()  # update_pipeline, update_sampler, process_pre
            made = call()
            self.hook("postprocess_batch", p, images=made, batch_number=0)
            if not p.interrupted:
                self.hook("postprocess", p, processed=made)
            return made
        finally:
            for callback in self.after:
                callback(p)


class Processing:
    def __init__(self, speedup: float):
        self.script_args, self.interrupted = [speedup], False
        self.extra_generation_params: dict[str, Any] = {}


@pytest.fixture
def flux() -> Any:
    pipe, kwargs = image.PIPELINES["FluxPipeline"]()
    image.run(pipe, kwargs, 2)
    return pipe, kwargs


def test_the_script_is_short():
    text = (EXAMPLES / "sdnext_script.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60


@pytest.mark.parametrize("speedup, calls", [(3, 4), (2, 6), (1, STEPS)])
def test_sdnext(flux, speedup, calls):
    pipe, kwargs = flux
    plain, before, seen = image.run(pipe, kwargs, STEPS), marks(pipe), counted(pipe.transformer)
    host, p = SDNext(pipe), Processing(speedup)
    made = host.process_images(p, lambda: image.run(host.shared.sd_model, kwargs, STEPS))
    assert len(seen) == calls and torch.equal(made, plain) == (speedup == 1) and not host.shown
    told = p.extra_generation_params.get("GeoShrink")
    assert told == (f"{calls} of 12 stages exact, {12 - calls} predicted" if speedup > 1 else None)
    assert marks(pipe) == before and torch.equal(image.run(pipe, kwargs, STEPS), plain)
    assert not [name for name in vars(p) if "geoshrink" in name]


@pytest.mark.parametrize("fault", ["error", "interrupt"])
def test_sdnext_behind_faults(flux, fault):
    pipe, kwargs = flux
    plain, before = image.run(pipe, kwargs, STEPS), marks(pipe)
    host, p = SDNext(pipe), Processing(3)

    def stop(pipe: Any, i: int, t: Any, tensors: dict) -> dict:
        if i == 5 and fault == "error":
            raise Stop
        pipe._interrupt = p.interrupted = i >= 5
        return tensors

    call = {**kwargs, "callback_on_step_end": stop}
    with pytest.raises(Stop) if fault == "error" else contextlib.nullcontext():
        host.process_images(p, lambda: image.run(pipe, call, STEPS))
    assert marks(pipe) == before and torch.equal(image.run(pipe, kwargs, STEPS), plain)
    assert p.interrupted == (fault == "interrupt")


def test_sdnext_puts_another_sampler_in(flux):
    """As update_sampler does, behind the hook: the run is accelerated all the same."""
    pipe, kwargs = flux
    host, p, seen = SDNext(pipe), Processing(3), counted(pipe.transformer)

    def update_sampler() -> None:
        pipe.scheduler = image.flow(shift=2.0)

    host.process_images(p, lambda: image.run(pipe, kwargs, STEPS), update_sampler)
    assert len(seen) == 4 and "4 of 12" in p.extra_generation_params["GeoShrink"]
    assert not {"step", "set_timesteps"} & set(vars(pipe.scheduler))


def test_sdnext_runs_another_pipeline(flux):
    """As for image to image: with a scheduler of its own it is exact, and that is said."""
    pipe, kwargs = flux
    host, p, seen = SDNext(pipe), Processing(3), counted(pipe.transformer)

    def update_pipeline() -> None:
        other = d.FluxImg2ImgPipeline(**{**pipe.components, "scheduler": image.flow()})
        other.set_progress_bar_config(disable=True)
        host.shared.sd_model = other

    given = {**kwargs, "image": image.picture(), "strength": 1.0}
    host.process_images(p, lambda: image.run(host.shared.sd_model, given, STEPS), update_pipeline)
    assert len(seen) == STEPS
    assert "not accelerated" in p.extra_generation_params["GeoShrink"]


def test_sdnext_puts_a_cache_in(flux, monkeypatch):
    """Its caches are applied behind the hook: the run stops, and says why."""
    pipe, kwargs = flux
    before, host, p = marks(pipe), SDNext(pipe), Processing(3)

    def process_pre() -> None:
        monkeypatch.setattr(pipe.transformer, "_is_cached", True, raising=False)

    with pytest.raises(ValueError, match="cache enabled; use one or the other"):
        host.process_images(p, lambda: image.run(pipe, kwargs, STEPS), process_pre)
    monkeypatch.undo()
    assert marks(pipe) == before


def test_sdnext_has_no_pipeline_for_us(flux):
    """What accelerate() raises is displayed, and the picture is made without it."""
    pipe, kwargs = flux
    host, p = SDNext(SimpleNamespace()), Processing(3)
    made = host.process_images(p, lambda: image.run(pipe, kwargs, STEPS))
    assert torch.equal(made, image.run(pipe, kwargs, STEPS))
    assert "does not know how to accelerate" in host.shown[0]
    assert "GeoShrink" not in p.extra_generation_params


# --- xDiT --------------------------------------------------------------------------------------


class Gathering(d.FluxTransformer2DModel):
    """Gives away its part of the tokens and gathers the whole, as xDiT's transformers do."""

    calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor]:
        type(self).calls += 1
        (whole,) = super().forward(*args, **{**kwargs, "return_dict": False})
        if not distributed.is_initialized():
            return (whole,)
        world, rank = distributed.get_world_size(), distributed.get_rank()
        mine = whole.chunk(world, dim=-2)[rank].contiguous()
        parts = [torch.empty_like(mine) for _ in range(world)]
        distributed.all_gather(parts, mine)
        return (torch.cat(parts, dim=-2),)


class Runner:
    """xFuserModelRunner, as far as the example sees it."""

    made: Any = None

    def __init__(self, args: dict[str, Any]):
        self.args, self.saved, self.cleaned = args, None, False
        self.model = SimpleNamespace(config=SimpleNamespace(**args), pipe=None)
        Runner.made = self

    def preprocess_args(self, args: dict[str, Any]) -> dict[str, Any]:
        return dict(args)

    def initialize(self, given: dict[str, Any]) -> None:
        pipe, self.kwargs = image.PIPELINES["FluxPipeline"]()
        pipe.transformer.__class__ = Gathering
        self.model.pipe = pipe

    def run(self, given: dict[str, Any]) -> tuple[Any, list[float]]:
        return image.run(self.model.pipe, self.kwargs, given["num_inference_steps"]), [0.0]

    def save(self, output: Any, timings: Any) -> None:
        self.saved = output

    def cleanup(self) -> None:
        self.cleaned = True


class Args:
    @staticmethod
    def add_runner_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        parser.add_argument("--num_inference_steps", type=int, default=STEPS)
        parser.add_argument("--pipefusion_parallel_degree", type=int, default=1)
        parser.add_argument("--cache_method")
        parser.add_argument("--use_hybrid_attn_schedule", action="store_true")
        parser.add_argument("--use_hybrid_gemm_schedule", action="store_true")
        return parser


@contextlib.contextmanager
def xfuser(asked: str | None, *arguments: str) -> Iterator[None]:
    own = modules(
        xfuser=dict(xFuserArgs=Args),
        xfuser__config=dict(FlexibleArgumentParser=argparse.ArgumentParser),
        xfuser__runner=dict(xFuserModelRunner=Runner),
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, made in own.items():
            patch.setitem(sys.modules, name, made)
        patch.setattr(sys, "argv", ["xdit.py", *arguments])
        patch.delenv("GEOSHRINK", raising=False)
        if asked is not None:
            patch.setenv("GEOSHRINK", asked)
        yield


def run_xdit(asked: str | None, *arguments: str) -> Any:
    Gathering.calls = 0
    with xfuser(asked, *arguments):
        runpy.run_path(str(EXAMPLES / "xdit.py"), run_name="__main__")
    return Runner.made


def test_xdit_in_one_process(capsys):
    runner = run_xdit("budget=5")
    assert Gathering.calls == 5 and runner.cleaned and runner.saved is not None
    assert "5 of 12 stages exact" in capsys.readouterr().out
    assert not {"step", "set_timesteps"} & set(vars(runner.model.pipe.scheduler))


REFUSED = {
    "PipeFusion": ("speedup=3", "--pipefusion_parallel_degree", "2"),
    "cache_method": ("speedup=3", "--cache_method", "teacache"),
    "use_hybrid_attn_schedule": ("speedup=3", "--use_hybrid_attn_schedule"),
    "use_hybrid_gemm_schedule": ("speedup=3", "--use_hybrid_gemm_schedule"),
    "target_db=30": ("target_db=30",),
    "learn=": ('{"learn": true, "budget": 5}',),
}


@pytest.mark.parametrize("words", REFUSED)
def test_xdit_refuses(words):
    with pytest.raises(ValueError, match=words):
        run_xdit(*REFUSED[words])
    assert Gathering.calls == 0


@pytest.mark.parametrize("asked", [None, "exact"])
def test_xdit_wants_to_be_asked(asked):
    with pytest.raises(SystemExit, match="GEOSHRINK=speedup=3"):
        run_xdit(asked)


def rank_of_two(rank: int, port: int, queue: Any) -> None:
    try:
        torch.set_num_threads(1)
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        distributed.init_process_group("gloo", rank=rank, world_size=2)
        found = [run_xdit(asked) for asked in ("speedup=3", "budget=12")]
        queue.put((rank, Gathering.calls, [runner.saved.numpy() for runner in found]))
        distributed.barrier()
    except BaseException:
        queue.put((rank, traceback.format_exc(), []))
    finally:
        distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not distributed.is_gloo_available(), reason="needs gloo")
def test_xdit_in_two_processes():
    """Each holds the whole latents; both skip the same stages, and the result is one process's."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    ranks = [context.Process(target=rank_of_two, args=(i, port, queue)) for i in range(2)]
    for process in ranks:
        process.start()
    answers = [queue.get() for _ in ranks]
    for process in ranks:
        process.join()
    for rank, calls, _ in answers:
        assert calls == STEPS, f"rank {rank}: {calls}"
    with mock.patch.object(pace, "readable", lambda errors: False):  # several keep their anchors
        wanted = [run_xdit(asked).saved.numpy() for asked in ("speedup=3", "budget=12")]
    assert abs(wanted[0] - wanted[1]).max() > 1e-4
    for _, _, found in answers:
        assert all((mine == its).all() for mine, its in zip(found, wanted))
