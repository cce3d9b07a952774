"""A node as plain data, and the two forms in which ComfyUI takes it: V3, and V1 on old servers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

CATEGORY = "sampling/geoshrink"


@dataclass(frozen=True)
class Input:
    """kind is ComfyUI's name of a type (MODEL, FLOAT …), or a list to choose from."""

    name: str
    kind: str | list[str] | Callable[[], list[str]]
    default: Any = None
    about: str = ""
    advanced: bool = False
    optional: bool = False
    limits: dict[str, Any] = field(default_factory=dict)  # min, max, step, multiline …

    @property
    def choices(self) -> list[str] | None:
        return (
            self.kind
            if isinstance(self.kind, list)
            else self.kind()
            if callable(self.kind)
            else None
        )

    def settings(self) -> dict[str, Any]:
        own = {
            "default": self.default,
            "tooltip": self.about or None,
            "advanced": self.advanced or None,
        }
        return {k: v for k, v in (own | self.limits).items() if v is not None}


@dataclass(frozen=True)
class Result:
    """What a node returns, and what is shown on it."""

    values: tuple[Any, ...]
    shown: dict[str, Any] | None = None


@dataclass(frozen=True)
class Node:
    """run(node_id, **inputs) is a Result."""

    id: str
    title: str
    about: str
    inputs: tuple[Input, ...]
    outputs: tuple[tuple[str, str], ...]  # (kind, name)
    run: Callable[..., Result]
    aliases: tuple[str, ...] = ()
    is_output: bool = False


def v3(node: Node, io: Any) -> type:
    """The node as a class of comfy_api."""

    def define_schema(cls: Any) -> Any:
        fields = {f.name for f in dataclasses.fields(io.Schema)}
        asked = dict(
            node_id=node.id,
            display_name=node.title,
            category=CATEGORY,
            description=node.about,
            inputs=[v3_input(one, io) for one in node.inputs],
            outputs=[io.Custom(kind).Output(display_name=name) for kind, name in node.outputs],
            hidden=[io.Hidden.unique_id],
            is_output_node=node.is_output,
            search_aliases=list(node.aliases),
        )
        return io.Schema(**{k: v for k, v in asked.items() if k in fields})

    def execute(cls: Any, **inputs: Any) -> Any:
        result = node.run(cls.hidden.unique_id, **inputs)
        return io.NodeOutput(*result.values, ui=result.shown)

    methods = dict(define_schema=classmethod(define_schema), execute=classmethod(execute))
    return type(node.id, (io.ComfyNode,), methods)


def v3_input(one: Input, io: Any) -> Any:
    settings = one.settings()
    common = dict(optional=one.optional, tooltip=settings.pop("tooltip", None))
    kinds = {"FLOAT": io.Float, "INT": io.Int, "BOOLEAN": io.Boolean, "STRING": io.String}
    kind = kinds.get(str(one.kind))
    if one.choices is not None:
        default = settings.pop("default", None)
        made = io.Combo.Input(one.name, options=one.choices, default=default, **common)
    elif kind is not None:
        made = kind.Input(one.name, default=settings.pop("default", None), **common)
    else:
        made = io.Custom(one.kind).Input(one.name, **common)
    made.extra_dict = {**(made.extra_dict or {}), **settings}  # no constructor takes all of them
    return made


def v1(node: Node) -> type:
    """The node as a class of the older interface."""

    def input_types(cls: Any) -> dict[str, Any]:
        groups: dict[str, Any] = {"required": {}, "optional": {}}
        for one in node.inputs:
            kind = one.kind if one.choices is None else one.choices
            groups["optional" if one.optional else "required"][one.name] = (kind, one.settings())
        return {**groups, "hidden": {"node_id": "UNIQUE_ID"}}

    def execute(self: Any, node_id: str = "", **inputs: Any) -> Any:
        result = node.run(node_id, **inputs)
        return (
            result.values if result.shown is None else {"ui": result.shown, "result": result.values}
        )

    return type(
        node.id,
        (),
        dict(
            INPUT_TYPES=classmethod(input_types),
            RETURN_TYPES=tuple(kind for kind, _ in node.outputs),
            RETURN_NAMES=tuple(name for _, name in node.outputs),
            FUNCTION="execute",
            CATEGORY=CATEGORY,
            DESCRIPTION=node.about,
            OUTPUT_NODE=node.is_output,
            SEARCH_ALIASES=list(node.aliases),
            execute=execute,
        ),
    )


def entry(nodes: Sequence[Node], io: Any, extension: type) -> Callable[[], Any]:
    """comfy_entrypoint() of a server that has V3 nodes."""

    async def get_node_list(self: Any) -> list[type]:
        return [v3(node, io) for node in nodes]

    made = type("GeoShrinkExtension", (extension,), dict(get_node_list=get_node_list))

    async def comfy_entrypoint() -> Any:
        return made()

    return comfy_entrypoint
