"""The page of doubts: each code with its message and its remedy, as they stand where the doubt is raised."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from sources import LEFT_OUT, called, calls, functions, trees, words
from tables import code, plain, table

HEAD = """# Doubts

A doubt is a reason to distrust a number that accelsweep found itself. It stands beside the number in tables, in the
report, in MLflow (tag `doubts`) and in `record.json`. [The method](../method.md) says how often one may fire for
nothing.

In a message, `{name}` and `...` stand for what a run puts there.

"""


class Raised(NamedTuple):
    """One place where a doubt is raised."""

    code: str
    message: str
    remedy: str
    where: str


def page() -> str:
    """Return the page, in Markdown."""
    rows = [[code(one.code), plain(one.message), plain(one.remedy), code(one.where)] for one in sorted(set(raised()))]
    return HEAD + table(["doubt", "message", "remedy", "module"], rows)


def raised() -> Iterator[Raised]:
    """Yield every doubt that the package raises under a code that stands in the source."""
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
