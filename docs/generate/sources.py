"""The package's sources as syntax trees, and the texts of messages whose values are known only at run time."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "accelsweep"
LEFT_OUT = "..."
"""Placeholder for a value without a short name."""


@cache
def trees() -> Mapping[Path, ast.Module]:
    """Return every module in the package, keyed by its path relative to `src/accelsweep`, in sorted order."""
    return {path.relative_to(PACKAGE): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield every function and method below `tree`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


@cache
def calls(tree: ast.AST) -> list[tuple[ast.Call, dict[str, ast.expr]]]:
    """Return every call below `tree`, with the values that simple names have at that point.

    The value of a name is the last one assigned before the call in the innermost function (or the module).
    """
    found = []
    for scope in (tree, *functions(tree)):
        inside = list(_own(scope))
        assigns = [node for node in inside if isinstance(node, ast.Assign)]
        found += [(node, assigned(assigns, node.lineno)) for node in inside if isinstance(node, ast.Call)]
    return found


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in `scope`, except those in nested functions."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from _own(node)


def assigned(nodes: Iterable[ast.AST], before: float = math.inf) -> dict[str, ast.expr]:
    """Return the last value assigned to each simple name in `nodes`, up to the line `before`."""
    found: dict[str, ast.expr] = {}
    for node in nodes:
        if not isinstance(node, ast.Assign) or node.lineno > before:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            found[target.id] = value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=True)
            found |= {name.id: part for name, part in pairs if isinstance(name, ast.Name)}
    return found


def called(node: ast.Call) -> str:
    """Return the last part of the called name, or an empty string."""
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def words(value: ast.expr | None, names: Mapping[str, ast.expr]) -> str:
    """Return the text that `value` evaluates to, with `{name}` in place of parts known only at run time.

    `names` maps local names to the expressions assigned to them.
    """
    if isinstance(value, ast.Constant):
        return str(value.value)
    if isinstance(value, ast.JoinedStr):
        return "".join(words(part, names) for part in value.values)
    if isinstance(value, ast.FormattedValue):
        return _placeholder(value.value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return words(value.left, names) + words(value.right, names)
    if isinstance(value, ast.IfExp):
        return words(value.body, names) or words(value.orelse, names)
    if isinstance(value, ast.Name) and value.id in names:
        return words(names[value.id], {name: text for name, text in names.items() if name != value.id})
    return _placeholder(value)


def _placeholder(value: ast.expr | None) -> str:
    if isinstance(value, ast.Name):
        return f"{{{value.id}}}"
    if isinstance(value, ast.Attribute):
        return f"{{{value.attr}}}"
    return LEFT_OUT
