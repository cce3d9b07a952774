"""Servers to load: tiny pipelines that answer with their latents, clients, faults, and a stopwatch.

What a pipeline here returns has the tensor's own bytes in place of a PNG's, so that an answer can
be compared to the last bit.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import http.client
import importlib.util
import io
import json
import random
import socket
import statistics
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from torch import Tensor, nn

import geoshrink
from geoshrink.hosts.handle import Handle
from geoshrink.hosts.seam import Seam
from geoshrink.hosts.serving import Policy
from hosts import image

ROOT = Path(__file__).parents[2]


def load_example(name: str) -> Any:
    """A script of examples/ as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / f"examples/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- pipelines ---------------------------------------------------------------------------------


class Raw:
    """In place of a picture: save() writes a tensor's bytes."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def save(self, file: BinaryIO, kind: str) -> None:
        file.write(self.tensor.contiguous().numpy().tobytes())


def conditioned(prompt: str, tensor: Tensor) -> Tensor:
    """Another tensor for every prompt."""
    draw = torch.Generator().manual_seed(sum(prompt.encode()))
    return tensor + torch.randn(tensor.shape, generator=draw)


def flux() -> Any:
    """diffusers' FluxPipeline, tiny; a prompt changes its embeddings."""
    pipe, own = image.PIPELINES["FluxPipeline"]()

    class Flux(type(pipe)):
        def __call__(self, prompt: str = "", **more: Any) -> Any:
            embeds = {"prompt_embeds": conditioned(prompt, own["prompt_embeds"])}
            made = super().__call__(**{**own, **embeds, **more})
            return SimpleNamespace(images=[Raw(made.images)])

    pipe.__class__ = Flux
    return pipe


class ToyTransformer(ModelMixin, ConfigMixin):
    """A network that takes no time to speak of, and is not linear."""

    @register_to_config
    def __init__(self, width: int = 4):
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(width, width, generator=draw) / 2)

    def forward(self, hidden_states: Tensor, timestep: Tensor, condition: Tensor) -> Tensor:
        time = timestep / 1000
        return torch.tanh((hidden_states + condition) @ self.weight) * (1 + time)


class ToyPipeline(DiffusionPipeline):
    """The usual loop of a diffusers pipeline, and nothing else."""

    transformer: Any
    scheduler: Any
    _guidance_scale = 1.0

    def __init__(self, transformer: Any, scheduler: Any):
        super().__init__()
        self.register_modules(transformer=transformer, scheduler=scheduler)

    @torch.no_grad()
    def __call__(
        self,
        prompt: str = "",
        num_inference_steps: int = 12,
        guidance_scale: float = 1.0,
        height: int = 8,
        generator: Any = None,
        callback_on_step_end: Any = None,
    ) -> Any:
        self._guidance_scale = guidance_scale
        self.scheduler.set_timesteps(num_inference_steps)
        self._num_timesteps = len(self.scheduler.timesteps)
        x = torch.randn(1, height, 4, generator=generator)
        condition = conditioned(prompt, torch.zeros(4))
        for i, t in enumerate(self.scheduler.timesteps):
            free = self.transformer(x, t, torch.zeros_like(condition))
            given = self.transformer(x, t, condition)
            velocity = free + self._guidance_scale * (given - free)
            x = self.scheduler.step(velocity, t, x, return_dict=False)[0]
            if callback_on_step_end is not None:
                x = callback_on_step_end(self, i, t, {"latents": x}).get("latents", x)
        return SimpleNamespace(images=[Raw(x)])


def toy() -> Any:
    return ToyPipeline(ToyTransformer(), image.flow(shift=3.0))


BUILDERS: dict[str, Callable[[], Any]] = {"flux": flux, "toy": toy}


def alone(name: str, asked: Any, fields: dict[str, Any]) -> tuple[bytes, int | None]:
    """(the answer to one request, model calls) by a pipeline of its own that nobody else knows."""
    pipe, given = BUILDERS[name](), dict(fields)
    pipe.set_progress_bar_config(disable=True)
    options, _ = Policy().options(asked)
    generator = torch.Generator().manual_seed(given.pop("seed", 0))
    handle = None if options is None else geoshrink.accelerate(pipe, **options)
    pipe(**given, generator=generator).images[0].save(file := io.BytesIO(), "PNG")
    report = None if handle is None else handle.report
    return file.getvalue(), None if report is None else report.evaluations


# --- server and clients ------------------------------------------------------------------------


class LoadedServer(ThreadingHTTPServer):
    request_queue_size = 64  # clients come all at once


@contextlib.contextmanager
def serving(example: Any, pipe: Any, own: Any = None, runs: int = 4) -> Iterator[int]:
    """The port of a server of one's own, on this machine only."""
    names = dict(pipe=pipe, policy=Policy(own), turns=threading.BoundedSemaphore(runs))
    handler: Any = type("Quiet", (example.Handler,), {**names, "log_message": lambda *_: None})
    with LoadedServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def ask(port: int, fields: Any, header: str | None = None) -> tuple[int, Any, bytes]:
    """(status, what x-geoshrink says, the body)."""
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request("POST", "/", body, {} if header is None else {"x-geoshrink": header})
        answer = link.getresponse()
        return answer.status, json.loads(answer.getheader("x-geoshrink") or "null"), answer.read()
    finally:
        link.close()


def ask_and_go(port: int, fields: Any, header: str | None, seconds: float) -> None:
    """Closes the connection after a while, whatever has come by then."""
    body = json.dumps(fields).encode()
    asked = "" if header is None else f"x-geoshrink: {header}\r\n"
    head = f"POST / HTTP/1.1\r\nhost: here\r\n{asked}content-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(head.encode() + body)
        time.sleep(seconds)


class Planted(RuntimeError):
    """A fault of the network's."""


class Faults:
    """Makes calls of a network fail, at random, in whatever thread."""

    def __init__(self, module: nn.Module, chance: float, seed: int = 0):
        self.chance, self.draw, self.lock = chance, random.Random(seed), threading.Lock()
        self.calls = self.planted = 0
        self.hook = module.register_forward_pre_hook(self.on_call)

    def on_call(self, module: nn.Module, args: Any) -> None:
        with self.lock:
            self.calls += 1
            failed = self.draw.random() < self.chance
            self.planted += failed
        if failed:
            raise Planted("planted")


# --- what is left ------------------------------------------------------------------------------


def resident() -> float:
    """MB of this process's memory; 0 where nobody says."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * 4096 / 1e6 if statm.exists() else 0.0


def marks(pipe: Any) -> list[tuple[str, list[str]]]:
    """The class and the names that a pipeline, its networks and its scheduler carry."""
    parts = [pipe, *pipe.components.values()]
    return [(type(p).__qualname__, sorted(vars(p))) for p in parts if hasattr(p, "__dict__")]


def census(pipe: Any, threads: int) -> dict[str, int]:
    """What is alive once all but so many threads have ended."""
    for _ in range(500):
        if threading.active_count() <= threads:
            break
        time.sleep(0.01)
    gc.collect()
    alive: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, Tensor):
            alive["tensors"] += 1
        elif str(kind.__module__).startswith("geoshrink."):
            alive[kind.__qualname__] += 1
    alive["threads"] = threading.active_count()
    alive["classes"] = len(type(pipe).__subclasses__())
    alive["hooks"] = sum(len(names) for _, names in marks(pipe))
    return dict(alive)


# --- the stopwatch -----------------------------------------------------------------------------


class Here(threading.local):
    stage = request = 0.0


class Stopwatch:
    """Seconds inside geoshrink, by kind; the network's and the scheduler's own are subtracted.

    While it is entered, geoshrink's handlers of a host's calls are timed, and so is what they call
    on to. Left out is what leads to a handler: one call in Python. A request is what comes once:
    attach, reading the scheduler, the first stage with the plan, the report, the way back.

    clock   time.thread_time where threads run side by side: waiting for another is not our time
    """

    KINDS = ("exact stage", "skipped stage", "request")

    def __init__(self, clock: Callable[[], float] = time.thread_time):
        self.clock, self.here = clock, Here()
        self.spent: dict[str, list[float]] = {kind: [] for kind in self.KINDS}

    def __enter__(self) -> Stopwatch:
        names = ("on_run", "on_set_timesteps", "on_denoiser", "on_step")
        self.before = {name: getattr(Seam, name) for name in names}
        for name, plain in self.before.items():
            setattr(Seam, name, as_ours(self.timed(name, plain)))
        self.ends = geoshrink.accelerate, Handle.remove
        geoshrink.accelerate = self.attaching(self.ends[0])
        Handle.remove = self.removing(self.ends[1])
        return self

    def __exit__(self, *_: object) -> None:
        geoshrink.accelerate, Handle.remove = self.ends
        for name, plain in self.before.items():
            setattr(Seam, name, plain)

    def timed(self, name: str, plain: Callable) -> Callable:
        clock, note = self.clock, getattr(self, f"after_{name[3:]}")

        def handler(seam: Any, owner: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
            theirs = 0.0

            def inner(*args: Any, **kwargs: Any) -> Any:
                nonlocal theirs
                began = clock()
                try:
                    return call(*args, **kwargs)
                finally:
                    theirs += clock() - began

            functools.update_wrapper(inner, call)
            loop, began = seam.loop, clock()
            result = plain(seam, owner, inner, args, kwargs)
            note(loop, clock() - began - theirs)
            return result

        return handler

    def after_run(self, loop: Any, seconds: float) -> None:
        self.here.request += seconds

    after_set_timesteps = after_run

    def after_denoiser(self, loop: Any, seconds: float) -> None:
        self.here.stage += seconds

    def after_step(self, loop: Any, seconds: float) -> None:
        spent, self.here.stage = self.here.stage + seconds, 0.0
        if loop is None or loop.rounds <= 1:
            self.here.request += spent  # the first stage makes the plan
        else:
            self.spent["skipped stage" if loop.skipping else "exact stage"].append(spent)

    def attaching(self, plain: Callable) -> Any:
        def accelerate(*args: Any, **kwargs: Any) -> Any:
            began = self.clock()
            handle = plain(*args, **kwargs)
            self.here.request, self.here.stage = self.clock() - began, 0.0
            return handle

        return accelerate

    def removing(self, plain: Callable) -> Any:
        def remove(handle: Handle) -> None:
            began = self.clock()
            plain(handle)
            self.spent["request"].append(self.here.request + self.clock() - began)

        return remove

    def rows(self) -> list[tuple[str, int, float, float]]:
        """(kind, how many, p50, p99) in milliseconds."""
        kept = [(kind, self.spent[kind]) for kind in self.KINDS if len(self.spent[kind]) > 1]
        return [(k, len(s), 1e3 * statistics.median(s), 1e3 * percentile(s, 99)) for k, s in kept]


def percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def as_ours(function: Callable) -> Callable:
    """The same function under a module name of ours: who calls a network is looked up on the stack,
    and geoshrink's own frames are left out.
    """
    assert isinstance(function, types.FunctionType)
    names = {**globals(), "__name__": "geoshrink.hosts.timed"}
    twin = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    return twin


if __name__ == "__main__":  # a fresh process: [pipeline, asked, fields] in, the bytes in hex out
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(alone(*json.loads(line))[0].hex(), flush=True)
