"""A stand-in for the package vllm, so that vllm_omni's own classes run without CUDA.

Every module of vllm and cache_dit exists, and every name in it is a class that takes anything. What
vllm_omni's request path really uses is written out below.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import socket
import sys
from abc import ABCMeta
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypedDict


class Anything(ABCMeta):
    """Classes that have every class attribute, too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Stub

    def __or__(cls, other: Any) -> Any:
        return Any

    __ror__ = __or__


@dataclass(init=False, repr=False, eq=False)
class Stub(metaclass=Anything):
    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else Stub()  # a decorator

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class StubModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = Anything(name, (Stub,), {"__module__": self.__name__})
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname.split(".")[0] in ("vllm", "cache_dit"):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(WRITTEN.get(module.__name__, {}))


class Logger(logging.Logger):
    def warning_once(self, *args: Any, **kwargs: Any) -> None:
        self.warning(*args)

    def info_once(self, *args: Any, **kwargs: Any) -> None:
        self.info(*args)

    def debug_once(self, *args: Any, **kwargs: Any) -> None:
        self.debug(*args)


def init_logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    logger.__class__ = Logger
    return logger


class IntermediateTensors:
    pass


class RequestOutput:
    pass


class CompletionOutput:
    pass


class Platform:
    """The host's processor; what else a platform is asked to do is nothing."""

    device_type, device_name, dispatch_key = "cpu", "cpu", "CPU"

    @classmethod
    def is_available(cls) -> bool:
        return False

    @classmethod
    def get_device_capability(cls, *args: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: 0


def no_gpu() -> None:
    raise ImportError("there is no GPU here")


def resolve_obj_by_qualname(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def get_open_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class DeviceMemoryProfiler(Stub):
    consumed_memory = 0


class Registry(Stub):
    def _try_load_model_cls(self, name: str) -> None:
        return None


ALONE = {
    "get_tensor_model_parallel_rank": lambda: 0,
    "get_tensor_model_parallel_world_size": lambda: 1,
}


class Prompt(TypedDict, total=False):
    prompt: str


def config(kind: Any = None, **options: Any) -> Any:
    """vllm's decorator of its dataclasses."""
    made = dataclass(kw_only=options.get("kw_only", False))
    return made if kind is None else made(kind)


WRITTEN: dict[str, dict[str, Any]] = {
    "vllm": {"__version__": "0.30.0", "__version_tuple__": (0, 30, 0)},
    "vllm.version": {"__version_tuple__": (0, 30, 0)},
    "vllm.envs": {"VLLM_PLUGINS": None, "VLLM_USE_MODELSCOPE": False},
    "vllm.logger": {"init_logger": init_logger},
    "vllm.sequence": {"IntermediateTensors": IntermediateTensors},
    "vllm.outputs": {"RequestOutput": RequestOutput, "CompletionOutput": CompletionOutput},
    "vllm.config": {"config": config},
    "vllm.config.utils": {"config": config},
    "vllm.distributed": ALONE,
    "vllm.distributed.parallel_state": ALONE,
    "vllm.inputs": dict.fromkeys(("EmbedsPrompt", "TextPrompt", "TokensPrompt"), Prompt),
    "vllm.inputs.engine": {"TokensInput": Prompt},
    "vllm.model_executor.layers.quantization": {"QUANTIZATION_METHODS": []},
    "vllm.model_executor.models.registry": {"_ModelRegistry": Registry},
    "vllm.platforms": {"Platform": Platform},
    "vllm.platforms.interface": {"Platform": Platform},
    "vllm.utils.import_utils": {
        "import_pynvml": no_gpu,
        "resolve_obj_by_qualname": resolve_obj_by_qualname,
    },
    "vllm.utils.network_utils": {"get_open_port": get_open_port},
    "vllm.utils.mem_utils": {
        "GiB_bytes": 1 << 30,
        "DeviceMemoryProfiler": DeviceMemoryProfiler,
    },
}


#: Modules of vllm_omni that change or extend vllm's language models, which there are none of here.
LEFT_OUT = (
    "vllm_omni.patch",
    "vllm_omni.transformers_utils.configs",
    "vllm_omni.transformers_utils.parsers",
    "vllm_omni.config.model",
    "vllm_omni.model_executor.models.registry",
)


#: What the package of Wan imports for pictures, where it is not installed.
PICTURES = ("torchvision", "torchvision.transforms", "torchvision.transforms.functional")


def install() -> None:
    """Once, where there is a vllm_omni."""
    if importlib.util.find_spec("vllm_omni") is None:
        raise ImportError("vllm_omni is not installed: pip install --no-deps vllm-omni")
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
        for name in LEFT_OUT:
            sys.modules[name] = StubModule(name)


def with_pictures(name: str) -> Any:
    """A module that needs torchvision, imported without."""
    missing = [each for each in PICTURES if each not in sys.modules]
    sys.modules.update({each: StubModule(each) for each in missing})
    try:
        return importlib.import_module(name)
    finally:
        for each in missing:
            del sys.modules[each]
