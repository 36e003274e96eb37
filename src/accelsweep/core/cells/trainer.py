"""Arguments of Lightning's Trainer that a run decides by itself: the plan refuses them, and so does a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DECIDED_HERE = {
    "accelerator": "the top-level key accelerator",
    "devices": "the top-level key devices",
    "num_nodes": "the top-level key num_nodes",
    "precision": "the top-level key precision",
    "max_steps": "measure.max_steps",
    "max_epochs": "measure.*: training ends with the window",
    "min_steps": "measure.min_steps",
    "min_epochs": "measure.*: training ends with the window",
    "max_time": "limits.run_seconds",
    "limit_train_batches": "measure.max_steps",
    "limit_val_batches": "nothing: validation has a phase of its own",
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

FSDP = ("fsdp", "fsdp_cpu_offload")
"""The values of `trainer.strategy` that shard the model (Fully Sharded Data Parallel)."""


def accumulated(trainer: Mapping[str, Any]) -> int:
    """Return the batches of one optimiser step, as the Trainer's arguments say."""
    return int(trainer.get("accumulate_grad_batches") or DEFAULTS["accumulate_grad_batches"])


def decided_words(name: str) -> str:
    """Return the refusal of `trainer.NAME`, where NAME is one of `DECIDED_HERE`."""
    return f"trainer.{name} has no effect here and is refused; it is decided by {DECIDED_HERE[name]}"


def without_effect(trainer: Mapping[str, Any], what: str) -> str | None:
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
