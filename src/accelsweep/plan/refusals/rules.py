"""Rules of the plan alone: combinations that the config or the declared inventory make impossible.

Such a cell stays as an `unsupported` row with its reason. The machine that plans is never asked; other failures are
decided where the run happens.
"""

from __future__ import annotations

from accelsweep.base.digits import count_of
from accelsweep.base.extras import loadgen_missing
from accelsweep.core.cells.accelerators import AUTOMATIC, words_for
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.sites.site import Site
from accelsweep.engines.known import engine_of
from accelsweep.machine.devices import kind_of
from accelsweep.plan.blocks.resources import held_gpus, needs
from accelsweep.plan.nodes import serving
from accelsweep.plan.refusals.strategies import cannot_distribute
from accelsweep.plan.refusals.trees import cannot_boost


def resolve_auto(site: Site) -> str:
    """Return the accelerator for `accelerator: auto`: the first of cuda, xpu, mps and cpu that the site has."""
    present = {device.accelerator for device in site.devices if device.count}
    return next((accelerator for accelerator in AUTOMATIC if accelerator in present), "cpu")


def unsupported(config: CellConfig, site: Site) -> str | None:
    """Return why a cell with this checked config cannot run at `site`, or None if nothing speaks against it.

    Raises InputError where the config names a kind of node that the site lacks, or none of several.
    """
    return (
        _by_config(config)
        or _by_inventory(config, site)
        or _by_limit(config, site)
        or _by_load(config, site)
        or cannot_boost(config, site)
        or cannot_distribute(config, site)
    )


def _by_load(config: CellConfig, site: Site) -> str | None:
    """Return why queries cannot be served. Only where this machine measures is it asked for the load generator."""
    if config.work != "serving":
        return None
    remedy = loadgen_missing() if site.probe else None
    return None if remedy is None else f"measure.scenario=server needs MLPerf's LoadGen: {remedy}"


def _by_config(config: CellConfig) -> str | None:
    kind = kind_of(config.accelerator)
    if refused := kind.refuses(config.precision):
        return refused
    if kind.most is not None and config.devices > kind.most:
        in_words = "one device" if kind.most == 1 else f"{kind.most} devices"
        return f"{kind.accelerator} has {in_words} per machine"
    if config.work == "serving" and config.num_nodes > 1:
        return f"measure.scenario=server has one queue on one node, not on {config.num_nodes}: raise devices instead"
    if config.work == "serving" and config.serving is not None and config.serving.latency_ms == 0:
        return "serving.latency_ms=0: no answer takes no time"
    return None


def _by_inventory(config: CellConfig, site: Site) -> str | None:
    accelerator, devices, nodes = config.accelerator, config.devices, config.num_nodes
    others = [device.model for device in site.devices if device.accelerator == accelerator]
    site = serving(config, site)
    have, units = site.count(accelerator), words_for(accelerator).units
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


def _by_limit(config: CellConfig, site: Site) -> str | None:
    """Return why a setting keeps more GPUs from others than its kind of node, or the whole site, lets a sweep keep."""
    own = serving(config, site)
    held = held_gpus(needs(config, own), own)
    for one in (own, site):
        most = one.jobs.max_gpus
        if words_for(config.accelerator).scheduled and most is not None and held > most:
            exclusive = f", and {count_of(config.num_nodes, 'exclusive node')} would keep {held} from others"
            asked = f"{config.world_size} GPUs are asked for{'' if held == config.world_size else exclusive}"
            return f"{asked}; {one.jobs_key}.max_gpus of the site '{one.name}' allows {most}"
    return None
