"""A transformer as a list of blocks: what caches inside a network need to know of it.

Each block takes and returns streams (the tokens; text and picture tokens where they are apart), and
adds to them the outputs of its branches (attention, MLP), which the block itself scales by gates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..zoo.network import Trunk

Streams = tuple[Tensor, ...]
Handler = Callable[[int, Callable[..., Any], tuple, dict], Any]


@dataclass(frozen=True)
class Stack:
    """The blocks of one network, in order.

    branches                for each block its branches, in the order they run
    take(i, args, kwargs)   the streams that go into block i
    put(i, streams)         the same as block i returns them
    read(i, output)         the streams in what block i returned
    """

    blocks: tuple[nn.Module, ...]
    branches: tuple[tuple[nn.Module, ...], ...]
    take: Callable[[int, tuple, dict], Streams]
    put: Callable[[int, Streams], Any]
    read: Callable[[int, Any], Streams]


#: diffusers' transformers: whether a block returns the tokens before the text.
TOKENS_FIRST = {
    "FluxTransformer2DModel": False,
    "SD3Transformer2DModel": False,
    "HunyuanVideoTransformer3DModel": True,
}
#: The modules of a block that are branches, or parts of one whose outputs nothing else needs.
BRANCHES = ("attn", "attn2", "ff", "ff_context", "proj_mlp", "proj_out")


def stack_of(network: nn.Module) -> Stack:
    """The stack of a network of the zoo, or of diffusers' FLUX, SD3 and HunyuanVideo."""
    if isinstance(network, Trunk):
        blocks: tuple[Any, ...] = tuple(network.blocks)
        return Stack(
            blocks,
            tuple((block.attention, block.mlp) for block in blocks),
            take=lambda i, args, kwargs: (args[0],),
            put=lambda i, streams: streams[0],
            read=lambda i, output: (output,),
        )
    if type(network).__name__ in TOKENS_FIRST:
        return joint_stack(network, TOKENS_FIRST[type(network).__name__])
    raise TypeError(f"no list of blocks is known for a {type(network).__name__}")


def joint_stack(network: Any, tokens_first: bool) -> Stack:
    """Blocks over tokens and text; the last may give up the text (SD3)."""
    blocks = (*network.transformer_blocks, *getattr(network, "single_transformer_blocks", ()))

    def branches(block: nn.Module) -> tuple[nn.Module, ...]:
        found = [getattr(block, name, None) for name in BRANCHES]
        return tuple(module for module in found if isinstance(module, nn.Module))

    def take(i: int, args: tuple, kwargs: dict) -> Streams:
        given = dict(zip(("hidden_states", "encoder_hidden_states"), args)) | kwargs
        return given["hidden_states"], given["encoder_hidden_states"]

    def put(i: int, streams: Streams) -> Any:
        tokens, text = (*streams, None)[:2]
        return (tokens, text) if tokens_first else (text, tokens)

    def read(i: int, output: Any) -> Streams:
        tokens, text = output if tokens_first else output[::-1]
        return (tokens,) if text is None else (tokens, text)

    return Stack(blocks, tuple(map(branches, blocks)), take, put, read)


@contextmanager
def intercepted(modules: Iterable[nn.Module], handler: Handler) -> Iterator[None]:
    """Inside, the call of modules[i] is handler(i, its own forward, args, kwargs)."""
    with ExitStack() as patches:
        for i, module in enumerate(modules):
            patches.enter_context(replaced(module, "forward", through(handler, i, module.forward)))
        yield


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of an object itself, with another value for a while."""
    own = vars(owner)
    before = own.get(name)
    own[name] = value
    try:
        yield
    finally:
        own.pop(name, None)
        if before is not None:
            own[name] = before


def through(handler: Handler, i: int, forward: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return handler(i, forward, args, kwargs)

    return call
