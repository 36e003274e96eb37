"""Arguments of Lightning's Trainer: those that a run sets itself, and those that the installed Lightning accepts.

Planning and runs both reject arguments that a run sets itself. Lightning's source is read without importing it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
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
    "min_epochs": "measure.*, because training ends with the window",
    "max_time": "limits.run_seconds",
    "limit_train_batches": "measure.max_steps",
    "num_sanity_val_steps": "accelsweep, which validates in a separate phase",
    "val_check_interval": "accelsweep, which validates in a separate phase",
    "check_val_every_n_epoch": "accelsweep, which validates in a separate phase",
    "fast_dev_run": "measure.*",
    "logger": "accelsweep, which writes logged values to the record",
    "enable_checkpointing": "accelsweep, which keeps no checkpoints",
    "enable_progress_bar": "accelsweep, which shows the sweep's progress",
    "enable_model_summary": "accelsweep",
}
"""Trainer arguments not allowed in `trainer` -> what controls each of them instead."""

DEFAULTS: Mapping[str, Any] = {
    "strategy": "auto",
    "accumulate_grad_batches": 1,
    "use_distributed_sampler": True,
    "deterministic": False,
    "benchmark": None,
}
"""Trainer arguments allowed in `trainer`, with their defaults."""

_FIXED_BEHAVIOUR: dict[str, tuple[Any, ...]] = {
    "strategy": (DEFAULTS["strategy"], "ddp"),
    "accumulate_grad_batches": (DEFAULTS["accumulate_grad_batches"],),
    "use_distributed_sampler": (DEFAULTS["use_distributed_sampler"],),
}
"""Arguments whose behaviour is fixed in loops without a Trainer -> the values that describe that behaviour."""

LENGTH_ARGUMENTS = ("max_epochs", "max_steps")
"""Arguments from which schedules derive the length of training; `measure` alone determines when a run ends."""

FSDP = ("fsdp", "fsdp_cpu_offload")
"""The values of `trainer.strategy` that select Fully Sharded Data Parallel."""


def requested_length(trainer: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the epochs and the optimizer steps for which schedules are designed; None if `trainer` does not set them.

    They do not end a run: `measure` sets the number of steps. Raises InputError for anything but a positive integer.
    """
    lengths = []
    for name in LENGTH_ARGUMENTS:
        value = trainer.get(name)
        if value == -1:  # Lightning's value for no limit
            value = None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"trainer.{name}={value}: must be an integer of at least 1, or null")
        lengths.append(value)
    epochs, steps = lengths
    return epochs, steps


def reserved_message(name: str) -> str:
    """Return the message that rejects `trainer.NAME`, one of `RESERVED_ARGUMENTS`."""
    return f"trainer.{name} cannot be set, because it is controlled by {RESERVED_ARGUMENTS[name]}"


def ineffective_arguments(trainer: Mapping[str, Any], what: str) -> str | None:
    """Return a message rejecting arguments that have no effect in `what`, or None.

    `what` is something without a Trainer, such as `loop=raw`.
    """
    refused = [f"trainer.{name}={value}" for name, value in sorted(trainer.items()) if not _is_harmless(name, value)]
    if not refused:
        return None
    remedy = "use loop=lightning, or remove it" if what == "loop=raw" else "remove it"
    return f"{what} has no {', '.join(refused)}: {remedy}"


def _is_harmless(name: str, value: Any) -> bool:
    if name in _FIXED_BEHAVIOUR:
        return value is None or value in _FIXED_BEHAVIOUR[name]
    return not value or name == "log_every_n_steps"


def trainer_argument_hint(key: str, value: str = "VALUE") -> str | None:
    """Describe where the Trainer argument `key` is set; None if the Trainer has no such argument."""
    if key in RESERVED_ARGUMENTS:
        return f"{key} cannot be passed to Lightning's Trainer, because it is controlled by {RESERVED_ARGUMENTS[key]}"
    if key in trainer_arguments():
        return f"{key} is an argument of Lightning's Trainer: +trainer.{key}={value}"
    return None


@cache
def trainer_arguments() -> frozenset[str]:
    """Return the installed Lightning's Trainer arguments; empty if Lightning is not installed."""
    for source in _lightning_sources("trainer/trainer.py"):
        for node in ast.parse(source.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name == "Trainer":
                init = next(
                    child for child in node.body if isinstance(child, ast.FunctionDef) and child.name == "__init__"
                )
                return frozenset(arg.arg for arg in (*init.args.args[1:], *init.args.kwonlyargs))
    return frozenset()


@cache
def strategy_names() -> frozenset[str]:
    """Return the names of the installed Lightning's strategies; empty if Lightning is not installed.

    The names are the strings that a strategy's module registers, or sets as `strategy_name`.
    """
    names = set()
    for source in _lightning_sources("strategies/*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if (isinstance(node, ast.FunctionDef) and node.name == "register_strategies") or (
                isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("strategy_name", "self.strategy_name")
            ):
                constants = (child.value for child in ast.walk(node) if isinstance(child, ast.Constant))
                names |= {text for text in constants if isinstance(text, str) and re.fullmatch("[a-z][a-z0-9_]+", text)}
    return frozenset({*names, DEFAULTS["strategy"]}) if names else frozenset()


def _lightning_sources(pattern: str) -> Iterator[Path]:
    spec = find_spec("lightning")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from Path(folder, "pytorch").glob(pattern)
