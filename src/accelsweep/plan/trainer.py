"""The arguments of Lightning's Trainer, found without importing it, and the place where such a key belongs."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from accelsweep.core.cells.trainer import DECIDED_HERE, DEFAULTS


@cache
def trainer_arguments() -> frozenset[str]:
    """Return the arguments of the installed Lightning's Trainer, read in its source; none where that is not found."""
    spec = find_spec("lightning")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for source in (Path(folder, "pytorch", "trainer", "trainer.py") for folder in folders):
        if source.is_file():
            return frozenset(_arguments(ast.parse(source.read_text(encoding="utf-8"))))
    return frozenset()


@cache
def strategy_names() -> frozenset[str]:
    """Return the names by which the installed Lightning knows strategies, read in its source; none without it."""
    spec = find_spec("lightning")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    sources = [path for folder in folders for path in Path(folder, "pytorch", "strategies").glob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources]
    words = {text for tree in trees for text in _words(tree)}
    return frozenset({*words, DEFAULTS["strategy"]}) if words else frozenset()


def _words(tree: ast.Module) -> list[str]:
    """Return the texts in a strategy's module that can name one: what it registers, or sets as `strategy_name`."""
    registering = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.FunctionDef) and node.name == "register_strategies")
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("strategy_name", "self.strategy_name"))
    ]
    constants = [part.value for node in registering for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return [text for text in constants if isinstance(text, str) and re.fullmatch(r"[a-z][a-z0-9_]+", text)]


def _arguments(module: ast.Module) -> list[str]:
    methods = [
        function
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == "Trainer"
        for function in node.body
        if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    ]
    return [argument.arg for init in methods for argument in (*init.args.args[1:], *init.args.kwonlyargs)]


def trainers_place(key: str, value: str = "VALUE") -> str | None:
    """Return a sentence that says where the Trainer's argument `key` is given; None for a key that is none."""
    if key in DECIDED_HERE:
        return f"Lightning's Trainer is not given {key} here: it is decided by {DECIDED_HERE[key]}"
    if key in trainer_arguments():
        return f"{key} is an argument of Lightning's Trainer: +trainer.{key}={value}"
    return None
