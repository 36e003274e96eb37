"""Arguments of Lightning's Trainer that a run decides by itself: the plan refuses them, and so does a run."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelsweep.errors import InputError

RESERVED_ARGUMENTS = {
    "accelerator": "the top-level key accelerator",
    "devices": "the top-level key devices",
    "num_nodes": "the top-level key num_nodes",
    "precision": "the top-level key precision",
    "min_steps": "measure.min_steps",
    "min_epochs": "measure.*: training ends with the window",
    "max_time": "limits.run_seconds",
    "limit_train_batches": "measure.max_steps",
    "num_sanity_val_steps": "nothing: validation has a phase of its own",
    "val_check_interval": "nothing: validation has a phase of its own",
    "check_val_every_n_epoch": "nothing: validation has a phase of its own",
    "fast_dev_run": "measure.*",
    "logger": "accelsweep: logged values go into the record",
    "enable_checkpointing": "accelsweep: runs keep no checkpoints",
    "enable_progress_bar": "accelsweep: progress is shown by the sweep",
    "enable_model_summary": "accelsweep",
}
"""Trainer arguments that a run does not take from `trainer`, and where each is decided instead."""

DEFAULTS: Mapping[str, Any] = {
    "strategy": "auto",
    "accumulate_grad_batches": 1,
    "use_distributed_sampler": True,
    "deterministic": False,
    "benchmark": None,
}
"""Arguments of the Trainer that `trainer` may hold, with the values that it has anyway."""

_DONE_ANYWAY: dict[str, tuple[Any, ...]] = {
    "strategy": (DEFAULTS["strategy"], "ddp"),
    "accumulate_grad_batches": (DEFAULTS["accumulate_grad_batches"],),
    "use_distributed_sampler": (DEFAULTS["use_distributed_sampler"],),
}
"""Arguments for the fixed behaviour of work without a Trainer, with the values that describe it."""

LENGTH_ARGUMENTS = ("max_epochs", "max_steps")
"""Arguments that say how long training is to those who ask, such as schedules; a run ends by `measure` all the same."""

FSDP = ("fsdp", "fsdp_cpu_offload")
"""The values of `trainer.strategy` that shard the model (Fully Sharded Data Parallel)."""


def requested_length(trainer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the epochs and the optimiser steps for which schedules are made; None where `trainer` does not say.

    They end no run, which takes as many steps as `measure` says. Raises InputError for what is no such number.
    """
    epochs, steps = (_asked(trainer, name) for name in LENGTH_ARGUMENTS)
    return epochs, steps


def _asked(trainer: Mapping[str, Any], name: str) -> int | None:
    value = trainer.get(name)
    if value is None or value == -1:  # Lightning's words for no limit
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"trainer.{name}={value}: must be a whole number above 0, or null")
    return value


def reserved_message(name: str) -> str:
    """Return the refusal of `trainer.NAME`, where NAME is one of `RESERVED_ARGUMENTS`."""
    return f"trainer.{name} has no effect here and is refused; it is decided by {RESERVED_ARGUMENTS[name]}"


def ineffective_arguments(trainer: Mapping[str, Any], what: str) -> str | None:
    """Return the refusal of arguments without effect in `what` (`loop=raw`, ...), which has no Trainer; or None."""
    refused = [f"trainer.{name}={value}" for name, value in sorted(trainer.items()) if not _harmless(name, value)]
    if not refused:
        return None
    remedy = "use loop=lightning, or leave it out" if what == "loop=raw" else "leave it out"
    return f"{what} has no {', '.join(refused)}: {remedy}"


def _harmless(name: str, value: Any) -> bool:
    if name in _DONE_ANYWAY:
        return value is None or value in _DONE_ANYWAY[name]
    return not value or name == "log_every_n_steps"


# The arguments of Lightning's Trainer, found without importing it, and the place where such a key belongs.


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


def trainer_argument_hint(key: str, value: str = "VALUE") -> str | None:
    """Return a sentence that says where the Trainer's argument `key` is given; None for a key that is none."""
    if key in RESERVED_ARGUMENTS:
        return f"Lightning's Trainer is not given {key} here: it is decided by {RESERVED_ARGUMENTS[key]}"
    if key in trainer_arguments():
        return f"{key} is an argument of Lightning's Trainer: +trainer.{key}={value}"
    return None
