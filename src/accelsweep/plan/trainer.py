"""The arguments of Lightning's Trainer, found without importing it, and the place where such a key belongs."""

from __future__ import annotations

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from accelsweep.core.trainer import DECIDED_HERE


@cache
def trainer_arguments() -> frozenset[str]:
    """Return the arguments of the installed Lightning's Trainer, read in its source; none where that is not found."""
    spec = find_spec("lightning")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for source in (Path(folder, "pytorch", "trainer", "trainer.py") for folder in folders):
        if source.is_file():
            return frozenset(_arguments(ast.parse(source.read_text(encoding="utf-8"))))
    return frozenset()


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
