"""Rules of the plan alone: combinations that the config or the declared inventory make impossible.

Such a setting stays as an `unsupported` row with its reason. The machine that plans is never asked; other failures are
decided where the run happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from accelsweep import registry
from accelsweep.config.site import Site
from accelsweep.devices.kinds import AUTO_ACCELERATORS, kind_of, kind_or_unknown
from accelsweep.planning.resources import allocated_gpus, required_resources, site_for
from accelsweep.run_config import SettingConfig
from accelsweep.schedulers.select import engine_of
from accelsweep.significant_digits import count_of
from accelsweep.tasks import task_of
from accelsweep.trainer_arguments import FSDP, ineffective_arguments

# Configs that a strategy of Lightning's Trainer cannot train, as far as known without importing it.

OUR_FULLY_SHARDED = "accelsweep.worker.loops.strategies.FullySharded"


def cannot_distribute(config: SettingConfig, site: Site) -> str | None:
    """Return why `trainer.strategy` cannot train a setting. Only a machine that measures is asked for packages."""
    if task_of(config.task, config.raw).without_loop is not None:
        return None
    if config.loop == "raw":
        return ineffective_arguments(config.trainer, "loop=raw")
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


def _cannot_shard(config: SettingConfig, named: str, target: str, strategy: Any) -> str | None:
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


def _cannot_speed(config: SettingConfig, named: str, site: Site) -> str | None:
    if config.accelerator != "cuda":
        return f"{named} trains on CUDA devices only, not with accelerator={config.accelerator}"
    if config.trainer.get("gradient_clip_val") and config.trainer.get("gradient_clip_algorithm") == "value":
        return f"{named} clips no values, only the norm: {_CLIP}=norm"
    if site.probe and find_spec("deepspeed") is None:
        return f"{named} needs the package deepspeed: pip install deepspeed"
    return None


_CLIP = "+trainer.gradient_clip_algorithm"


def resolve_auto(site: Site) -> str:
    """Return the accelerator for `accelerator: auto`: the first of cuda, xpu, mps and cpu that the site has."""
    present = {device.accelerator for device in site.devices if device.count}
    return next((accelerator for accelerator in AUTO_ACCELERATORS if accelerator in present), "cpu")


def why_unsupported(config: SettingConfig, site: Site) -> str | None:
    """Return why a setting with this checked config cannot run at `site`, or None if nothing speaks against it.

    Raises InputError where the config names a kind of node that the site lacks, or none of several.
    """
    return (
        _by_config(config)
        or _by_task(config, site)
        or _by_inventory(config, site)
        or _by_limit(config, site)
        or cannot_distribute(config, site)
    )


def _by_task(config: SettingConfig, site: Site) -> str | None:
    check = task_of(config.task, config.raw).unsupported
    reason: str | None = registry.load(check)(config, site) if check is not None else None
    return reason


def _by_config(config: SettingConfig) -> str | None:
    kind = kind_of(config.accelerator)
    if refused := kind.unsupported_precision(config.precision):
        return refused
    if kind.max_per_machine is not None and config.devices > kind.max_per_machine:
        in_words = "one device" if kind.max_per_machine == 1 else f"{kind.max_per_machine} devices"
        return f"{kind.accelerator} has {in_words} per machine"
    return None


def _by_inventory(config: SettingConfig, site: Site) -> str | None:
    accelerator, devices, nodes = config.accelerator, config.devices, config.num_nodes
    others = [device.model for device in site.devices if device.accelerator == accelerator]
    site = site_for(config, site)
    have, units = site.count(accelerator), kind_or_unknown(accelerator).site_units
    if not have and others and config.device_model:
        return f"the site '{site.name}' has no {accelerator}:{config.device_model}; it has: {', '.join(others)}"
    if not have:
        return f"the site '{site.name}' has no {units}"
    if devices > have:
        return f"{devices} {units} per node are asked for, a node of the site '{site.name}' has {have}"
    if nodes > 1 and site.scheduler == "local":
        return f"num_nodes={nodes} needs a cluster; the site '{site.name}' is a single machine"
    if nodes > site.nodes:
        return f"{nodes} nodes are asked for, the site '{site.name}' has {site.nodes}"
    if nodes > 1 and (engine := engine_of(site)) is not None and not engine.starts_ranks:
        return f"num_nodes={nodes}: nothing here starts ranks on several nodes of a job of {engine.name}; Slurm does"
    return None


def _by_limit(config: SettingConfig, site: Site) -> str | None:
    """Return why a setting keeps more GPUs from others than its kind of node, or the whole site, lets a sweep keep."""
    own = site_for(config, site)
    held = allocated_gpus(required_resources(config, own), own)
    for one in (own, site):
        most = one.jobs.max_gpus
        if kind_or_unknown(config.accelerator).scheduled_as_gpu and most is not None and held > most:
            exclusive = f", and {count_of(config.num_nodes, 'exclusive node')} would keep {held} from others"
            asked = f"{config.world_size} GPUs are asked for{'' if held == config.world_size else exclusive}"
            return f"{asked}; {one.jobs_key}.max_gpus of the site '{one.name}' allows {most}"
    return None
