"""Where the MLPs of a network are among its branches, and what its branches cost."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from .stack import Stack

DEPTH = 27  # by which the authors divide a block's number, whatever the network


@dataclass(frozen=True)
class Mlp:
    """An MLP, by the numbers of its branches, and what decides its share of fresh tokens.

    enter, leave    its first and last layer: the same branch, where a module is the whole MLP
    beside          the attention that goes through the last layer too (single blocks)
    blocks, depth   the share is fresh · blocks · (1.5 − depth)
    """

    enter: int
    leave: int
    beside: int | None
    blocks: float
    depth: float


def mlps_of(stack: Stack, blocks: float) -> list[Mlp]:
    """Of the zoo's blocks one each, of double ones two (tokens, text), of single ones one.

    Where a network has both, single blocks are counted from 0 anew and double ones have the weight
    2 − blocks, as with the authors; depth is a block's number by 27, in the zoo by its own depth.
    """
    mlps, start, count = list[Mlp](), 0, len(stack.blocks)
    doubles = sum(not hasattr(block, "proj_mlp") for block in stack.blocks)
    for i, (block, branches) in enumerate(zip(stack.blocks, stack.branches)):
        named = dict(block.named_children())
        at = {name: start + branches.index(m) for name, m in named.items() if m in branches}
        if "mlp" in at:
            mlps.append(Mlp(at["mlp"], at["mlp"], None, blocks, i / max(1, count - 1)))
        elif "proj_mlp" in at:
            first, last, beside = at["proj_mlp"], at["proj_out"], at["attn"]
            mlps.append(Mlp(first, last, beside, blocks, (i - doubles) / DEPTH))
        else:
            weight = blocks if doubles == count else 2 - blocks
            whole = [at[name] for name in ("ff", "ff_context") if name in at]
            mlps += [Mlp(branch, branch, None, weight, i / DEPTH) for branch in whole]
        start += len(branches)
    return mlps


def multiplications(module: nn.Module, x: Tensor, text: Tensor | None, attends: bool) -> int:
    """Of a branch over these streams: in its linear layers and, of attention, in its map.

    Layers of attention that the text has for itself are those whose names begin as diffusers' do.
    """
    tokens, texts = x.shape[1], 0 if text is None else text.shape[1]
    sizes = {True: 0, False: 0}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            sizes[name.startswith(("add_", "to_add_"))] += layer.in_features * layer.out_features
    both = tokens if sizes[True] else tokens + texts
    total = sizes[False] * both + sizes[True] * texts
    return total + attends * 2 * (tokens + texts) ** 2 * x.shape[2]
