"""What a source file does, as far as its text says: its syntax tree without comments, docstrings,
layout and annotations; the modules that it imports; a hash of it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cached_property
from typing import Any

#: Annotations that a dataclass reads.
READ = {"ClassVar", "InitVar", "KW_ONLY"}
#: Fields of a node that say nothing, or what another field says as well.
SILENT = {"ctx", "kind", "type_comment", "type_ignores", "returns"}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)


class Plain(ast.NodeTransformer):
    """Takes out what does not act; `annotated` are the names that stood in annotations."""

    def __init__(self) -> None:
        self.annotated: set[str] = set()

    def drop(self, annotation: ast.expr | None) -> None:
        self.annotated |= names_in(annotation) if annotation else set()

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if text else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        if "TYPE_CHECKING" not in names_in(node.test):
            return self.generic_visit(node)
        self.drop(node.test)
        return None

    def visit_arg(self, node: ast.arg) -> ast.AST:
        self.drop(node.annotation)
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if not names_in(node.annotation) & READ:
            self.drop(node.annotation)
            node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.drop(node.returns)
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: Any) -> ast.AST:
        return self.visit_FunctionDef(node)


class Statement:
    """One statement of a file, at its top."""

    def __init__(self, node: ast.stmt, package: str):
        self.node, self.defines = node, defined_in(node)
        self.names: set[str] = set()
        self.imports: list[str] = []
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                self.names.add(each.id)
            elif isinstance(each, (*IMPORTS, ast.Call)):
                self.imports += imported_by(each, package)

    @cached_property
    def text(self) -> str:
        return written(self.node)

    def without(self, names: set[str], package: str) -> list[Statement]:
        """Itself, but for the imports of some names."""
        if not isinstance(self.node, IMPORTS) or not self.defines & names:
            return [self]
        aliases = [alias for alias in self.node.names if bound(alias) not in names]
        if not aliases:
            return []
        if isinstance(self.node, ast.Import):
            return [Statement(ast.Import(aliases), package)]
        return [Statement(ast.ImportFrom(self.node.module, aliases, self.node.level), package)]


class Module:
    """One source file.

    package     what a leading dot means in it
    """

    def __init__(self, package: str, text: str):
        plain = Plain()
        tree = plain.visit(ast.parse(text))
        self.package = package
        every = [Statement(node, package) for node in tree.body]
        self.body = self.without(every, plain.annotated - names_of(every))

    def part(self, name: str) -> list[Statement]:
        """The statements that a definition needs: itself, what it names of this module, the
        imports of that, and every statement that defines nothing.
        """
        needed, kept = {name}, set[int]()
        while more := [
            i
            for i, each in enumerate(self.body)
            if i not in kept and (not each.defines or each.defines & needed)
        ]:
            kept.update(more)
            needed |= names_of(self.body[i] for i in more)
        chosen = [self.body[i] for i in sorted(kept)]
        given = {n for each in chosen if isinstance(each.node, IMPORTS) for n in each.defines}
        return self.without(chosen, given - needed)

    def without(self, body: list[Statement], names: set[str]) -> list[Statement]:
        return [left for each in body for left in each.without(names, self.package)]


def names_of(body: Iterable[Statement]) -> set[str]:
    return {name for each in body for name in each.names}


def imports_of(body: Iterable[Statement]) -> list[str]:
    """Modules that are imported anywhere in the statements, and names that may be modules."""
    return [name for each in body for name in each.imports]


def digest(body: Iterable[Statement]) -> str:
    return hashlib.sha256("\n".join(each.text for each in body).encode()).hexdigest()


def written(node: Any) -> str:
    """A node as text, the same in every version of Python: what is empty is left out.

    >>> written(ast.parse("f(1)  # once").body[0])
    'Expr(value=Call(func=Name(id=f),args=[Constant(value=1)]))'
    """
    if isinstance(node, ast.JoinedStr):  # from 3.12 on f"{x:{y}}" has an empty text at its end
        parts = [each for each in node.values if getattr(each, "value", None) != ""]
        return f"JoinedStr({f'values={written(parts)}' if parts else ''})"
    if isinstance(node, ast.Constant):
        return f"Constant(value={node.value!r})"
    if isinstance(node, ast.AST):
        fields = [
            f"{name}={written(value)}"
            for name in node._fields
            if name not in SILENT and (value := getattr(node, name, None)) not in (None, [])
        ]
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(map(written, node))}]"
    return str(node)


def names_in(node: ast.AST) -> set[str]:
    """Names that stand in an expression, the last part of a dotted one included."""
    nodes = list(ast.walk(node))
    attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    return attributes | {each.id for each in nodes if isinstance(each, ast.Name)}


def defined_in(node: ast.stmt) -> set[str]:
    """The names that a statement gives to a module; none where it acts by itself."""
    if isinstance(node, DEFINITIONS):
        return {node.name}
    if isinstance(node, IMPORTS):
        return set(map(bound, node.names))
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        plain = all(isinstance(target, (ast.Name, ast.Tuple)) for target in targets)
        return {name for target in targets for name in names_in(target)} if plain else set()
    return set()


def bound(alias: ast.alias) -> str:
    """The name that an import gives."""
    return (alias.asname or alias.name).partition(".")[0]


def imported_by(node: ast.AST, package: str) -> list[str]:
    """By an import, or by import_module("…")."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = absolute(package, node.level, node.module or "")
        return [base, *(f"{base}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Call) and called(node) == "import_module" and node.args:
        given = getattr(node.args[0], "value", None)
        if isinstance(given, str):
            dots = len(given) - len(given.lstrip("."))
            return [absolute(package, dots, given[dots:])]
    return []


def absolute(package: str, level: int, name: str) -> str:
    """
    >>> absolute("a.b", 2, "c"), absolute("a.b", 0, "c.d"), absolute("a.b", 1, "")
    ('a.c', 'c.d', 'a.b')
    """
    if not level:
        return name
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", "")
