"""Generates the page about doubts: each code with its message and remedy, taken from the place that raises it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from sources import LEFT_OUT, called, calls, functions, trees, words
from tables import code, plain, table

HEAD = """# Doubts

A doubt is a reason to distrust a number, found by accelsweep itself. It is shown next to the number in tables, in the
report, in MLflow (tag `doubts`) and in `record.json`. [The method](../method.md) states how often a doubt may be a
false alarm.

In a message, `{name}` and `...` are placeholders for values that a run fills in.

"""


class Raised(NamedTuple):
    """A place in the source that raises a doubt."""

    code: str
    message: str
    remedy: str
    where: str


def page() -> str:
    """Return the page, in Markdown."""
    rows = [[code(one.code), plain(one.message), plain(one.remedy), code(one.where)] for one in sorted(set(raised()))]
    return HEAD + table(["doubt", "message", "remedy", "module"], rows)


def raised() -> Iterator[Raised]:
    """Yield every doubt in the package whose code is a literal in the source."""
    for path, tree in trees().items():
        relays = {found.name: found for found in functions(tree) if {"code", "message", "remedy"} <= _arguments(found)}
        for call, names in calls(tree):
            given = _given(call, relays)
            if isinstance(given.get("code"), ast.Constant):
                said = {
                    part: words(given[part], names).replace("{}", LEFT_OUT) for part in ("code", "message", "remedy")
                }
                yield Raised(**said, where=f"accelsweep/{path}")


def _arguments(function: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in function.args.args}


def _given(call: ast.Call, relays: dict[str, ast.FunctionDef]) -> dict[str, ast.expr]:
    given = {word.arg: word.value for word in call.keywords if word.arg}
    if called(call) in relays:
        arguments = relays[called(call)].args.args
        return {argument.arg: value for argument, value in zip(arguments, call.args, strict=False)} | given
    return given if called(call) == "Doubt" else {}
