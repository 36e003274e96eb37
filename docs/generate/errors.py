"""Generates the page about errors: every message with which accelsweep may exit, from the place that raises it."""

from __future__ import annotations

import ast
from collections import defaultdict
from itertools import pairwise

from sources import LEFT_OUT, PACKAGE, assigned, called, calls, trees, words
from tables import cell, code, plain, table

from accelsweep.errors import AccelsweepError, Unsupported
from accelsweep.results import Outcome

HEAD = """# Errors, outcomes and exit codes

"""
MESSAGES = """## Messages

A message says what is wrong, where, and which key fixes it. In a message, `{name}` and `...` are placeholders for
values that are filled in. These are the kinds:

"""


def page() -> str:
    """Return the page, in Markdown."""
    kinds = _kinds()
    told = [
        [code(name), cell(text), str(number) if number is not None else ""] for name, (text, number) in kinds.items()
    ]
    parts = [HEAD, "## Exit codes\n\n", _exit_codes(), "\n## Outcomes of a run\n\n", _outcomes(), "\n", MESSAGES]
    parts += [table(["kind", "meaning", "exit code"], told)]
    for module, rows in _messages(set(kinds)).items():
        parts.append(f"\n### `{module}`\n\n{table(['kind', 'message'], rows)}")
    return "".join(parts)


def _documented(module: str) -> dict[str, tuple[ast.Assign, str]]:
    """Return every assignment in a module or its classes that is followed by a string, its description."""
    found = {}
    tree = ast.parse((PACKAGE / module).read_text())
    for body in (tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))):
        for one, after in pairwise(body):
            if isinstance(one, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[ast.unparse(one.targets[0])] = (one, str(after.value.value))
    return found


def _exit_codes() -> str:
    codes = {name: said for name, said in _documented("errors.py").items() if name.startswith("EXIT_")}
    rows = [[ast.unparse(assign.value), cell(text)] for assign, text in codes.values()]
    return table(["exit code", "meaning"], rows)


def _outcomes() -> str:
    said = _documented("results.py")
    rows = [[code(one), cell(said[one][1]), "yes" if one.settled else "no"] for one in Outcome]
    return table(["outcome", "meaning", "final: not retried"], rows)


def _kinds() -> dict[str, tuple[str, int | None]]:
    """Return our error classes and their subclasses, wherever they are defined: name -> meaning, exit code."""
    kinds: dict[str, tuple[str, int | None]] = {
        each.__name__: ((each.__doc__ or "").strip(), getattr(each, "exit_code", None))
        for each in (AccelsweepError, Unsupported)
    }
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases_of = [(one, [ast.unparse(base).split(".")[-1] for base in one.bases]) for one in classes]
    known = 0
    while known < len(kinds):
        known = len(kinds)
        for one, bases in bases_of:
            ours = [base for base in bases if base in kinds]
            if ours and one.name not in kinds:
                stated = assigned(one.body).get("exit_code")
                _, inherited = kinds[ours[0]]
                kinds[one.name] = (ast.get_docstring(one) or "", _number(stated) if stated else inherited)
    return kinds


def _number(stated: ast.expr) -> int:
    assign, _ = _documented("errors.py")[ast.unparse(stated)]
    return int(ast.unparse(assign.value))


def _messages(kinds: set[str]) -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = defaultdict(list)
    for path, tree in trees().items():
        rows = found[f"accelsweep/{path}"]
        for call, names in calls(tree):
            if called(call) in kinds and call.args:
                said = ": ".join(words(argument, names) for argument in call.args)
                row = [code(called(call)), plain(said)]
                if any(letter.isalpha() for letter in said.replace(LEFT_OUT, "")) and row not in rows:
                    rows.append(row)
    return {module: rows for module, rows in found.items() if rows}
