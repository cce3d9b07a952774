"""Hosts: somebody else's loops. accelerate(host) finds the file here that knows one."""

from . import denoised as denoised
from . import odeint as odeint
from .handle import Handle as Handle
from .host import Host as Host
from .profiling import profile_pipeline
from .registry import accelerate as accelerate
from .registry import host_of as host_of
from .registry import register_adapter as register_adapter
from .registry import register_host as register_host

Handle.profiler = profile_pipeline
