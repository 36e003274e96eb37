"""The resources of a block's allocation, computed from its settings. The rules of the workflow only pass them on.

`nodes` machines have one task each (a supervisor, or a launcher of ranks). `cpus` are per task, and `gpus` are the sum
over all nodes. `minutes` are the time limits of all runs plus start-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from accelsweep.config.site import NodeKind, Site
from accelsweep.config.sweep_options import Limits
from accelsweep.devices.datasheets import matches_model
from accelsweep.devices.device_kind import Device
from accelsweep.devices.kinds import KINDS, kind_of
from accelsweep.errors import InputError, nearest
from accelsweep.run_config import SettingConfig
from accelsweep.schedulers.protocol import Resources
from accelsweep.significant_digits import count_of

# The kind of node that serves a setting, at a site that has several.


def site_for(config: SettingConfig, site: Site) -> Site:
    """Return `site` as this setting sees it: with the nodes of its kind alone, and of devices the model that it names.

    Raises InputError where none of the site's kinds of node is meant, or several are.
    """
    if not site.kinds:
        return _of_model(config, site)
    kind = node_kind_for(config, site)
    named = config.device_model in (None, kind.name)
    own = site.of_kind(kind.name)
    return own if named else _of_model(config, own)


def node_kind_for(config: SettingConfig, site: Site) -> NodeKind:
    """Return the kind of node of `site` that serves this setting; raise InputError where that is none, or not one."""
    having = [kind for kind in site.kinds if any(one.accelerator == config.accelerator for one in kind.inventory)]
    if (model := config.device_model) is None:
        fitting = [kind for kind in having if _nothing_else(kind, config.accelerator)] or having
    else:
        fitting = [kind for kind in site.kinds if kind.name == model] or [
            kind for kind in having if any(is_model(config, one) for one in kind.inventory)
        ]
    if len(fitting) == 1:
        return fitting[0]
    asked = config.accelerator if model is None else f"{config.accelerator}:{model}"
    if fitting:
        each = " or ".join(f"accelerator={config.accelerator}:{kind.name}" for kind in fitting)
        raise InputError(f"accelerator={asked}: the site '{site.name}' has several kinds of node for it; say {each}")
    names = [kind.name for kind in site.kinds]
    hint = "" if model is None else nearest(model, names)
    raise InputError(
        f"accelerator={asked}: the site '{site.name}' has no such kind of node{hint}; it has: {', '.join(names)}"
    )


def is_model(config: SettingConfig, device: Device) -> bool:
    """Return whether the config's accelerator, and the model that it names if any, mean this device."""
    if device.accelerator != config.accelerator:
        return False
    return config.device_model is None or matches_model(config.device_model, device.model)


def device_models_for(config: SettingConfig, site: Site) -> tuple[str, ...]:
    """Return the device models that may run this setting; empty where its config names none and any will do."""
    if config.device_model is None:
        return ()
    return tuple(one.model for one in site_for(config, site).inventory if one.accelerator == config.accelerator)


def _of_model(config: SettingConfig, site: Site) -> Site:
    """Return the site without devices of other models than the config names."""
    if config.device_model is None:
        return site
    kept = [one for one in site.inventory if one.accelerator != config.accelerator or is_model(config, one)]
    return site.model_copy(update={"inventory": tuple(kept)})


def _nothing_else(kind: NodeKind, accelerator: str) -> bool:
    return all(device.accelerator == accelerator for device in kind.inventory)


START_UP_SECONDS = 120.0
"""Allowed for starting a block: an upper bound for imports over a slow shared file system, not a measurement."""


TIMES_LONGER = 3.0

FEWEST_MINUTES = 5
"""The time limit of a job whose settings were measured before: so many times as long as they took, so long at least."""


def resource_class(config: SettingConfig, site: Site) -> tuple[Any, ...]:
    """Return what settings must have in common to share a block: nothing on one machine, the nodes on a cluster.

    A job that holds whole nodes has all their devices, so settings with fewer share it. On shared nodes a setting with
    one device would keep the others' devices idle.
    """
    if site.scheduler == "local":
        return ()
    kind = node_kind_for(config, site).name if site.kinds else None
    devices = None if site.of_kind(kind).jobs.exclusive else config.devices
    return (config.accelerator, kind, devices, config.num_nodes)


def required_resources(config: SettingConfig, site: Site) -> Resources:
    """Return the needs of one run of this setting, its time apart.

    A rank takes `threads` CPU cores. Where that is open, a GPU's rank takes the site's `cpus_per_gpu`. Without that
    value it takes its share of all the node's cores, as on a machine of one's own. Against a single core every GPU
    would look good. A CPU setting asks for `fake_gpus` of the site per node, in tests alone.
    """
    kind = node_kind_for(config, site).name if site.kinds else None
    return _asked(site_for(config, site), kind, config.accelerator, config.devices, config.num_nodes, config.threads)


def trial_jobs(site: Site) -> tuple[Resources, ...]:
    """Return the jobs by which a site is tried: of one device, of a whole node, and of all nodes, for each kind.

    A node with GPUs is tried without them only where `accelerator=cpu` would go there. Each job lasts as long as the
    site lets any last.
    """
    found = [size for kind in site.kinds or (None,) for size in _sizes(site, kind)]
    return tuple(dict.fromkeys(found))


def _sizes(site: Site, kind: NodeKind | None) -> Iterator[Resources]:
    name = kind.name if kind else None
    own = site.of_kind(name)
    accelerators = tuple(dict.fromkeys(device.accelerator for device in own.inventory))
    lasting = {"minutes": own.jobs.max_minutes or minutes(1, Limits())}
    for accelerator in accelerators:
        if kind is not None and accelerator == "cpu" and len(accelerators) > 1:
            continue
        whole = own.count(accelerator) if kind_of(accelerator).scheduled_as_gpu else 1
        for devices, nodes in ((1, 1), (whole, 1), (whole, own.nodes)):
            yield _asked(own, name, accelerator, devices, nodes, None).model_copy(update=lasting)


def _asked(site: Site, kind: str | None, accelerator: str, devices: int, nodes: int, threads: int | None) -> Resources:
    scheduled = kind_of(accelerator).scheduled_as_gpu
    share = max(1, site.count("cpu") // devices)
    per_rank = threads or (site.jobs.cpus_per_gpu if scheduled else share)
    gpus = nodes * (devices if scheduled else site.jobs.fake_gpus)
    return Resources(
        nodes=nodes,
        tasks=nodes,
        cpus=min(devices * per_rank, site.count("cpu") or devices * per_rank),
        gpus=gpus,
        gpu_model=site.jobs.gpu_model if gpus else None,
        mem_mb=site.jobs.mem_mb,
        node_kind=kind,
    )


def allocated_gpus(required_resources: Resources, site: Site) -> int:
    """Return how many GPUs a job with these `needs` keeps from others: all of its nodes where these are exclusive.

    A job without GPUs holds those of its nodes, too, where the site has no other partition for it.
    """
    site = site.of_kind(required_resources.node_kind)
    if not site.jobs.exclusive or (not required_resources.gpus and site.jobs.has_cpu_partition):
        return required_resources.gpus
    on_a_node = sum(site.count(name) for name, kind in KINDS.items() if kind.scheduled_as_gpu)
    return max(required_resources.gpus, required_resources.nodes * on_a_node)


def allocated_cpus(required_resources: Resources, site: Site) -> int:
    """Return how many CPU cores a job with these `needs` keeps from others: all of its exclusive nodes."""
    site, asked = site.of_kind(required_resources.node_kind), required_resources.tasks * required_resources.cpus
    return max(asked, required_resources.nodes * site.count("cpu")) if site.jobs.exclusive else asked


def idle_resources(required_resources: Resources, site: Site) -> str:
    """Return what a job of whole nodes holds and does not use, and the key that shares nodes; empty where it uses all.

    `whole nodes: 8 CPUs are held, 1 is used; site.slurm.exclusive=false shares them`.
    """
    pairs = [
        (allocated_cpus(required_resources, site), required_resources.tasks * required_resources.cpus, "CPU"),
        (allocated_gpus(required_resources, site), required_resources.gpus, "GPU"),
    ]
    idle = [
        f"{count_of(held, word)} {'is' if held == 1 else 'are'} held, {used} {'is' if used == 1 else 'are'} used"
        for held, used, word in pairs
        if held > used
    ]
    return f"whole nodes: {', '.join(idle)}; site.{site.scheduler}.exclusive=false shares them" if idle else ""


def threads_per_rank(config: SettingConfig, site: Site) -> int | None:
    """Return the CPU threads of each rank of this setting; None lets the ranks of a node share the available cores.

    On a cluster they are the setting's own request, because a block may hold settings that ask for more.
    """
    if config.threads is not None or site.scheduler == "local":
        return config.threads
    return max(1, required_resources(config, site).cpus // config.devices)


def fits_in(setting: Resources, block: Resources) -> bool:
    """Return whether a run with the needs of `setting` can be measured in an allocation that offers `block`.

    It must not leave more than half of the nodes idle: a baseline of one node has no place among sixteen.
    """
    gpus_fit = setting.gpus * block.nodes <= block.gpus * setting.nodes  # per node
    if setting.node_kind != block.node_kind:
        return False
    return setting.nodes <= block.nodes <= 2 * setting.nodes and setting.cpus <= block.cpus and gpus_fit


def combined(each: Sequence[Resources], runs: int, limits: Limits) -> Resources:
    """Return the allocation in which `runs` runs, of settings that need `each`, can be measured one after another."""
    memory = [need.mem_mb for need in each if need.mem_mb is not None]
    return Resources(
        nodes=max(need.nodes for need in each),
        tasks=max(need.tasks for need in each),
        cpus=max(need.cpus for need in each),
        gpus=max(need.gpus for need in each),
        gpu_model=next((need.gpu_model for need in each if need.gpu_model), None),
        mem_mb=max(memory, default=None),
        minutes=minutes(runs, limits),
        node_kind=each[0].node_kind,
    )


def minutes(runs: int, limits: Limits) -> int:
    """Return the whole minutes that an allocation for `runs` runs must last: their time limits plus start-up.

    With `limits.block_seconds` the last run begins before these are spent.
    """
    seconds = runs * _seconds(limits)
    if limits.block_seconds is not None:
        seconds = min(seconds, limits.block_seconds + _seconds(limits))
    return math.ceil((START_UP_SECONDS + seconds) / 60)


def with_observed_limit(required_resources: Resources, took: Sequence[float]) -> Resources:
    """Return the needs of a job whose runs took so many seconds before, each the longest of its setting so far.

    Its time limit is three times that, and `FEWEST_MINUTES` at least: a short job finds its place in the queue sooner.
    It never exceeds the planned limit.
    """
    if required_resources.minutes is None:
        return required_resources
    limit = max(FEWEST_MINUTES, math.ceil((START_UP_SECONDS + TIMES_LONGER * sum(took)) / 60))
    return required_resources.model_copy(update={"minutes": min(required_resources.minutes, limit)})


def max_runs_within(limits: Limits, within_minutes: float) -> int:
    """Return how many runs' time limits fit into an allocation of this many minutes; may be 0."""
    return max(0, math.floor((within_minutes * 60 - START_UP_SECONDS) / _seconds(limits)))


def _seconds(limits: Limits) -> float:
    return limits.run_seconds + limits.stop_grace_seconds
