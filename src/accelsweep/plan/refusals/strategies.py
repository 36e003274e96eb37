"""Configs that a strategy of Lightning's Trainer cannot train, as far as known without importing it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from accelsweep.core.cells.config import CellConfig
from accelsweep.core.cells.trainer import FSDP, without_effect
from accelsweep.core.sites.site import Site

WITHOUT_TRAINER = ("inference", "kernels", "boosting")
"""Tasks that no Trainer drives."""

OUR_FULLY_SHARDED = "accelsweep.rank.loops.fully_sharded.FullySharded"


def cannot_distribute(config: CellConfig, site: Site) -> str | None:
    """Return why `trainer.strategy` cannot train a setting. Only a machine that measures is asked for packages."""
    if config.task in WITHOUT_TRAINER:
        return None
    if config.loop == "raw":
        return without_effect(config.trainer, "loop=raw")
    if precision := _own_precision(config.trainer.get("plugins")):
        return f"trainer.plugins holds {precision}: the precision is decided by the top-level key precision"
    strategy = config.trainer.get("strategy")
    target = str(strategy.get("_target_")) if isinstance(strategy, Mapping) else str(strategy)
    named = f"trainer.strategy={target}"
    if target in FSDP or target.endswith((".FSDPStrategy", ".FullySharded")):
        return _cannot_shard(config, named, target, strategy)
    if target.startswith("deepspeed") or target.endswith(".DeepSpeedStrategy"):
        return _cannot_speed(config, named, site)
    return None


def _own_precision(plugins: Any) -> str | None:
    """Return the first plugin that is a precision by its class's name. Lightning refuses one beside the key."""
    several = plugins if isinstance(plugins, list | tuple) else [plugins]
    targets = [str(plugin.get("_target_")) for plugin in several if isinstance(plugin, Mapping)]
    return next((target for target in targets if target.endswith("Precision")), None)


def _cannot_shard(config: CellConfig, named: str, target: str, strategy: Any) -> str | None:
    on = config.accelerator
    offloads = target == "fsdp_cpu_offload" or (isinstance(strategy, Mapping) and strategy.get("cpu_offload"))
    if on not in ("cpu", "cuda"):
        return f"{named} shards a model over CUDA devices or over a CPU's processes, not with accelerator={on}"
    if on == "cpu" and offloads:
        return f"{named} moves shards from a GPU to the CPU's memory; on a CPU take trainer.strategy=fsdp"
    if on == "cpu" and target.endswith(".FSDPStrategy"):
        return f"{named} is for GPUs; {OUR_FULLY_SHARDED} takes the same arguments and shards on a CPU too"
    if config.precision == "64-true":
        return f"{named} has no precision=64-true in Lightning"
    if config.trainer.get("gradient_clip_val") and config.trainer.get("gradient_clip_algorithm") != "value":
        return f"{named} clips no norm in Lightning, where no rank has all gradients: {_CLIP}=value"
    return None


def _cannot_speed(config: CellConfig, named: str, site: Site) -> str | None:
    if config.accelerator != "cuda":
        return f"{named} trains on CUDA devices only, not with accelerator={config.accelerator}"
    if config.trainer.get("gradient_clip_val") and config.trainer.get("gradient_clip_algorithm") == "value":
        return f"{named} clips no values, only the norm: {_CLIP}=norm"
    if site.probe and find_spec("deepspeed") is None:
        return f"{named} needs the package deepspeed: pip install deepspeed"
    return None


_CLIP = "+trainer.gradient_clip_algorithm"
