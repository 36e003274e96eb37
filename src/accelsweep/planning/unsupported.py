"""Detects, at plan time, settings that the config or the declared inventory rules out.

Such a setting stays in the plan as an `unsupported` row with a reason. The planning machine is never queried; all other
failures are detected on the machine that executes the run.
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
from accelsweep.schedulers.select import scheduler_of
from accelsweep.significant_digits import count_of
from accelsweep.tasks import task_of
from accelsweep.trainer_arguments import FSDP, ineffective_arguments

CPU_FSDP_STRATEGY = "accelsweep.worker.loops.strategies.FullySharded"

_CLIP = "+trainer.gradient_clip_algorithm"


def resolve_auto(site: Site) -> str:
    """Resolve `accelerator: auto` to the first of cuda, xpu, mps and cpu that the site declares."""
    present = {device.accelerator for device in site.devices if device.count}
    return next((accelerator for accelerator in AUTO_ACCELERATORS if accelerator in present), "cpu")


def why_unsupported(config: SettingConfig, site: Site) -> str | None:
    """Explain why a setting with this checked config cannot run at `site`; None if it can.

    Raises InputError unless exactly one of the site's node kinds matches the config.
    """
    return (
        _device_reason(config)
        or _process_reason(config)
        or _loader_reason(config)
        or _task_reason(config, site)
        or _inventory_reason(config, site)
        or _gpu_limit_reason(config, site)
        or _strategy_reason(config, site)
    )


def _device_reason(config: SettingConfig) -> str | None:
    kind = kind_of(config.accelerator)
    if reason := kind.unsupported_precision(config.precision):
        return reason
    if kind.max_per_machine is not None and config.devices > kind.max_per_machine:
        most = "one device" if kind.max_per_machine == 1 else f"{kind.max_per_machine} devices"
        return f"{kind.accelerator} supports at most {most} per machine"
    return None


def _process_reason(config: SettingConfig) -> str | None:
    """Explain why a command that is started once, in one process, cannot use the devices of a setting."""
    if not config.whole_process:
        return None
    if config.numa == "auto":
        return "numa=auto: which devices a command uses is not known: set numa=NUMBER"
    if config.num_nodes > 1:
        return f"num_nodes={config.num_nodes}: measure.scope=process starts one process, on one node"
    assert config.entry is not None, "the validation has checked"
    passed_on = "devices" in config.entry.targets or "devices" in config.entry.placeholders
    if config.devices > 1 and not config.on_gpu and not passed_on:
        return (
            f"devices={config.devices} has no effect: measure.scope=process starts one process, and neither an "
            "argument nor a placeholder passes the number on to it"
        )
    return None


def _loader_reason(config: SettingConfig) -> str | None:
    """Explain why loader arguments contradict each other."""
    given = config.loader.replaced
    needs_workers = [name for name in ("prefetch_factor", "persistent_workers") if given.get(name)]
    if given.get("num_workers") == 0 and needs_workers:
        return f"loader.{needs_workers[0]}={given[needs_workers[0]]} needs workers, but loader.num_workers=0 has none"
    if given and config.measure.fake_loader:
        return "loader arguments have no effect with measure.fake_loader=true, which repeats one batch"
    if given.get("pin_memory") and config.accelerator in ("cpu", "mps"):
        return f"loader.pin_memory=true has no effect with accelerator={config.accelerator}"
    return None


def _task_reason(config: SettingConfig, site: Site) -> str | None:
    check = task_of(config.task, config.raw).unsupported
    reason: str | None = registry.load(check)(config, site) if check is not None else None
    return reason


def _inventory_reason(config: SettingConfig, site: Site) -> str | None:
    accelerator, devices, nodes = config.accelerator, config.devices, config.num_nodes
    models = [device.model for device in site.devices if device.accelerator == accelerator]
    site = site_for(config, site)
    available, units = site.count(accelerator), kind_or_unknown(accelerator).site_units
    if not available and models and config.device_model:
        return f"the site '{site.name}' has no {accelerator}:{config.device_model}; it has: {', '.join(models)}"
    if not available:
        return f"the site '{site.name}' has no {units}"
    if devices > available:
        return f"{devices} {units} per node are requested, but a node of the site '{site.name}' has {available}"
    if nodes > 1 and site.scheduler == "local":
        return f"num_nodes={nodes} needs a cluster; the site '{site.name}' is a single machine"
    if nodes > site.nodes:
        return f"{nodes} nodes are requested, but the site '{site.name}' has {site.nodes}"
    if nodes > 1 and (scheduler := scheduler_of(site)) is not None and not scheduler.starts_ranks:
        return f"num_nodes={nodes}: a {scheduler.name} job cannot start ranks on several nodes; only Slurm can"
    return None


def _gpu_limit_reason(config: SettingConfig, site: Site) -> str | None:
    """Return a reason if a job allocates more GPUs than the `max_gpus` of its node kind or of the whole site."""
    if not kind_or_unknown(config.accelerator).scheduled_as_gpu:
        return None
    node_site = site_for(config, site)
    allocated = allocated_gpus(required_resources(config, node_site), node_site)
    for limited in (node_site, site):
        most = limited.jobs.max_gpus
        if most is not None and allocated > most:
            exclusive = f", and {count_of(config.num_nodes, 'exclusive node')} would keep {allocated} from others"
            requested = f"{config.world_size} GPUs are requested{'' if allocated == config.world_size else exclusive}"
            return f"{requested}; {limited.jobs_key}.max_gpus of the site '{limited.name}' allows {most}"
    return None


def _strategy_reason(config: SettingConfig, site: Site) -> str | None:
    """Explain why `trainer.strategy` cannot train a setting, as far as this is known without importing Lightning."""
    if task_of(config.task, config.raw).without_loop is not None:
        return None
    if config.loop == "raw":
        return ineffective_arguments(config.trainer, "loop=raw")
    plugins = config.trainer.get("plugins")
    for plugin in plugins if isinstance(plugins, list | tuple) else [plugins]:
        target = str(plugin.get("_target_")) if isinstance(plugin, Mapping) else ""
        if target.endswith("Precision"):  # Lightning accepts no precision plugin alongside `precision`
            return f"trainer.plugins contains {target}: the precision is controlled by the top-level key precision"
    strategy = config.trainer.get("strategy")
    target = str(strategy.get("_target_")) if isinstance(strategy, Mapping) else str(strategy)
    if target in FSDP or target.endswith((".FSDPStrategy", ".FullySharded")):
        return _fsdp_reason(config, target, strategy)
    if target.startswith("deepspeed") or target.endswith(".DeepSpeedStrategy"):
        return _deepspeed_reason(config, target, site)
    return None


def _fsdp_reason(config: SettingConfig, target: str, strategy: Any) -> str | None:
    accelerator, key = config.accelerator, f"trainer.strategy={target}"
    offloads = target == "fsdp_cpu_offload" or (isinstance(strategy, Mapping) and strategy.get("cpu_offload"))
    if accelerator not in ("cpu", "cuda"):
        return f"{key} shards a model over CUDA devices or CPU processes, not with accelerator={accelerator}"
    if accelerator == "cpu" and offloads:
        return f"{key} moves shards from a GPU to CPU memory; on a CPU, use trainer.strategy=fsdp"
    if accelerator == "cpu" and target.endswith(".FSDPStrategy"):
        return f"{key} is for GPUs; {CPU_FSDP_STRATEGY} takes the same arguments and shards on a CPU too"
    if config.precision == "64-true":
        return f"{key} has no precision=64-true in Lightning"
    if config.trainer.get("gradient_clip_val") and config.trainer.get("gradient_clip_algorithm") != "value":
        return f"{key} cannot clip by norm in Lightning, because no rank has all gradients: {_CLIP}=value"
    return None


def _deepspeed_reason(config: SettingConfig, target: str, site: Site) -> str | None:
    key = f"trainer.strategy={target}"
    if config.accelerator != "cuda":
        return f"{key} trains on CUDA devices only, not with accelerator={config.accelerator}"
    if config.trainer.get("gradient_clip_val") and config.trainer.get("gradient_clip_algorithm") == "value":
        return f"{key} clips by norm only, not by value: {_CLIP}=norm"
    if site.probe and find_spec("deepspeed") is None:  # only the measuring machine can tell
        return f"{key} needs the package deepspeed: pip install deepspeed"
    return None
