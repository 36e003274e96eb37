"""Computes the resources of a block's allocation from its settings; the Snakemake rules only pass them on.

`nodes` is the number of nodes, each of which runs one task (an executor or a rank launcher). `cpus` is per task, `gpus`
is the total over all nodes, and `minutes` is the sum of all runs' time limits plus start-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accelsweep.config.site import NodeKind, Site
from accelsweep.config.sweep_options import Limits
from accelsweep.devices.cpu import number_format
from accelsweep.devices.datasheets import matches_model
from accelsweep.devices.device_kind import Device
from accelsweep.devices.kinds import KINDS, kind_of
from accelsweep.errors import InputError, nearest
from accelsweep.run_config import SettingConfig
from accelsweep.schedulers.protocol import Resources
from accelsweep.significant_digits import count_of

START_UP_SECONDS = 120.0
"""Allowance for starting a block: an upper bound for imports over a slow shared file system, not a measurement."""

TIME_LIMIT_FACTOR = 3.0
"""The time limit of a job with measured settings, as a multiple of the observed time."""

MIN_JOB_MINUTES = 5


def site_for(config: SettingConfig, site: Site) -> Site:
    """Restrict `site` to what can run this setting: the matching node kind and the devices of the requested model.

    Raises InputError unless exactly one node kind matches.
    """
    if site.kinds:
        kind = node_kind_for(config, site)
        site = site.of_kind(kind.name)
        if config.device_model == kind.name:
            return site
    if config.device_model is None:
        return site
    inventory = [
        device
        for device in site.inventory
        if device.accelerator != config.accelerator or _is_requested_model(config, device)
    ]
    return site.model_copy(update={"inventory": tuple(inventory)})


def is_emulated(config: SettingConfig, site: Site) -> bool:
    """Return whether the setting's processor is known to have no instructions for its precision.

    Raises InputError unless exactly one node kind matches.
    """
    if config.accelerator != "cpu":
        return False
    emulated = {name for device in site_for(config, site).inventory for name in device.emulates}
    return number_format(config.precision) in emulated


def node_kind_for(config: SettingConfig, site: Site) -> NodeKind:
    """Return the node kind of `site` that runs this setting; raise InputError unless exactly one matches."""
    accelerator, model = config.accelerator, config.device_model
    having = [kind for kind in site.kinds if any(device.accelerator == accelerator for device in kind.inventory)]
    if model is None:
        dedicated = [kind for kind in having if all(device.accelerator == accelerator for device in kind.inventory)]
        matching = dedicated or having
    else:
        matching = [kind for kind in site.kinds if kind.name == model] or [
            kind for kind in having if any(_is_requested_model(config, device) for device in kind.inventory)
        ]
    if len(matching) == 1:
        return matching[0]
    requested = accelerator if model is None else f"{accelerator}:{model}"
    if matching:
        choices = " or ".join(f"accelerator={accelerator}:{kind.name}" for kind in matching)
        raise InputError(
            f"accelerator={requested}: the site '{site.name}' has several matching kinds of node; set {choices}"
        )
    names = [kind.name for kind in site.kinds]
    hint = "" if model is None else nearest(model, names)
    raise InputError(
        f"accelerator={requested}: the site '{site.name}' has no such kind of node{hint}; it has: {', '.join(names)}"
    )


def _is_requested_model(config: SettingConfig, device: Device) -> bool:
    if device.accelerator != config.accelerator:
        return False
    return config.device_model is None or matches_model(config.device_model, device.model)


def device_models_for(config: SettingConfig, site: Site) -> tuple[str, ...]:
    """Return the device models that may run this setting; empty if its config allows any model."""
    if config.device_model is None:
        return ()
    inventory = site_for(config, site).inventory
    return tuple(device.model for device in inventory if device.accelerator == config.accelerator)


def resource_class(config: SettingConfig, site: Site) -> tuple[Any, ...]:
    """Return a key that settings in the same block must share: empty on one machine, the required nodes on a cluster.

    A job with exclusive nodes occupies all their devices, so settings with fewer devices can share the job. On shared
    nodes, a setting with one device would leave the other devices of the allocation idle.
    """
    if site.scheduler == "local":
        return ()
    kind = node_kind_for(config, site).name if site.kinds else None
    devices = None if site.of_kind(kind).jobs.exclusive else config.devices
    return (config.accelerator, kind, devices, config.num_nodes)


def required_resources(config: SettingConfig, site: Site) -> Resources:
    """Return the resources that one run of this setting needs, excluding its time limit.

    A rank uses `threads` CPU cores. If `threads` is not set, a GPU rank uses the site's `cpus_per_gpu`, and a CPU rank
    uses its share of all the node's cores, as on a dedicated machine: compared with a single core, any GPU would look
    good.
    """
    kind = node_kind_for(config, site).name if site.kinds else None
    return _resources(
        site_for(config, site), kind, config.accelerator, config.devices, config.num_nodes, config.fixed_threads
    )


def resources_of(configs: Mapping[str, SettingConfig], site: Site) -> dict[str, Resources]:
    """Return `required_resources` of each config by name; configs with the same requests share them."""
    known: dict[tuple[Any, ...], Resources] = {}
    needs = {}
    for name, config in configs.items():
        request = (config.accelerator, config.device_model, config.devices, config.num_nodes, config.fixed_threads)
        if request not in known:
            known[request] = required_resources(config, site)
        needs[name] = known[request]
    return needs


def trial_jobs(site: Site) -> tuple[Resources, ...]:
    """Return jobs that test a site: one device, a whole node and all nodes, for each node kind.

    A node with GPUs is tested without them only if `accelerator=cpu` would run there. Each job requests the longest
    time that the site allows.
    """
    return tuple(dict.fromkeys(job for kind in site.kinds or (None,) for job in _trial_jobs(site, kind)))


def _trial_jobs(site: Site, kind: NodeKind | None) -> Iterator[Resources]:
    name = kind.name if kind else None
    site = site.of_kind(name)
    accelerators = tuple(dict.fromkeys(device.accelerator for device in site.inventory))
    time_limit = {"minutes": site.jobs.max_minutes or minutes(1, Limits())}
    for accelerator in accelerators:
        if kind is not None and accelerator == "cpu" and len(accelerators) > 1:
            continue
        per_node = site.count(accelerator) if kind_of(accelerator).scheduled_as_gpu else 1
        for devices, nodes in ((1, 1), (per_node, 1), (per_node, site.nodes)):
            yield _resources(site, name, accelerator, devices, nodes, None).model_copy(update=time_limit)


def _resources(
    site: Site, kind: str | None, accelerator: str, devices: int, nodes: int, threads: int | None
) -> Resources:
    scheduled_as_gpu = kind_of(accelerator).scheduled_as_gpu
    cores = site.count("cpu")
    per_rank = threads or (site.jobs.cpus_per_gpu if scheduled_as_gpu else max(1, cores // devices))
    gpus = nodes * (devices if scheduled_as_gpu else site.jobs.fake_gpus)
    return Resources(
        nodes=nodes,
        tasks=nodes,
        cpus=min(devices * per_rank, cores or devices * per_rank),
        gpus=gpus,
        gpu_model=site.jobs.gpu_model if gpus else None,
        mem_mb=site.jobs.mem_mb,
        node_kind=kind,
    )


def allocated_gpus(needs: Resources, site: Site) -> int:
    """Return how many GPUs a job with these `needs` makes unavailable to others: if exclusive, all GPUs of its nodes.

    This applies even to a job without GPUs, unless the site has a partition for such jobs.
    """
    site = site.of_kind(needs.node_kind)
    if not site.jobs.exclusive or (not needs.gpus and site.jobs.has_cpu_partition):
        return needs.gpus
    per_node = sum(site.count(name) for name, kind in KINDS.items() if kind.scheduled_as_gpu)
    return max(needs.gpus, needs.nodes * per_node)


def idle_resources(needs: Resources, site: Site) -> str:
    """Describe what a job on exclusive nodes allocates but does not use; '' if it uses everything.

    For example: `whole nodes: 8 CPUs are allocated, 1 is used; site.slurm.exclusive=false shares them`.
    """
    site_of_job, used_cpus = site.of_kind(needs.node_kind), needs.tasks * needs.cpus
    cpus = max(used_cpus, needs.nodes * site_of_job.count("cpu")) if site_of_job.jobs.exclusive else used_cpus
    idle = [
        f"{count_of(held, unit)} {'is' if held == 1 else 'are'} allocated, {used} {'is' if used == 1 else 'are'} used"
        for held, used, unit in ((cpus, used_cpus, "CPU"), (allocated_gpus(needs, site), needs.gpus, "GPU"))
        if held > used
    ]
    return f"whole nodes: {', '.join(idle)}; site.{site.scheduler}.exclusive=false shares them" if idle else ""


def threads_per_rank(config: SettingConfig, site: Site) -> int | None:
    """Return the number of CPU threads per rank; if None, a node's ranks share the available cores.

    On a cluster, the number is derived from the setting's own request, because its block may contain settings that
    request more.
    """
    if config.fixed_threads is not None or site.scheduler == "local":
        return config.fixed_threads
    return max(1, required_resources(config, site).cpus // config.devices)


def fits_in(setting: Resources, allocation: Resources) -> bool:
    """Return whether a run with these needs fits into `allocation` without leaving more than half of its nodes idle."""
    return (
        setting.node_kind == allocation.node_kind
        and setting.nodes <= allocation.nodes <= 2 * setting.nodes
        and setting.cpus <= allocation.cpus
        and setting.gpus * allocation.nodes <= allocation.gpus * setting.nodes  # GPUs per node
    )


def combined(needs: Sequence[Resources], runs: int, limits: Limits) -> Resources:
    """Return an allocation in which `runs` runs of settings with these `needs` can be measured sequentially."""
    return Resources(
        nodes=max(need.nodes for need in needs),
        tasks=max(need.tasks for need in needs),
        cpus=max(need.cpus for need in needs),
        gpus=max(need.gpus for need in needs),
        gpu_model=next((need.gpu_model for need in needs if need.gpu_model), None),
        mem_mb=max((need.mem_mb for need in needs if need.mem_mb is not None), default=None),
        minutes=minutes(runs, limits),
        node_kind=needs[0].node_kind,
    )


def minutes(runs: int, limits: Limits) -> int:
    """Return the time limit, in whole minutes, of an allocation for `runs` runs: their own limits plus start-up.

    If `limits.block_seconds` is set, no run starts after that time.
    """
    seconds = runs * _run_seconds(limits)
    if limits.block_seconds is not None:
        seconds = min(seconds, limits.block_seconds + _run_seconds(limits))
    return math.ceil((START_UP_SECONDS + seconds) / 60)


def with_observed_limit(needs: Resources, run_seconds: Sequence[float]) -> Resources:
    """Return `needs` with a time limit based on the longest observed time of each run's setting.

    The limit is `TIME_LIMIT_FACTOR` times the sum of these times, but at least `MIN_JOB_MINUTES` and never more than
    planned. A lower limit is worthwhile because shorter jobs spend less time in the queue.
    """
    if needs.minutes is None:
        return needs
    limit = max(MIN_JOB_MINUTES, math.ceil((START_UP_SECONDS + TIME_LIMIT_FACTOR * sum(run_seconds)) / 60))
    return needs.model_copy(update={"minutes": min(needs.minutes, limit)})


def max_runs_within(limits: Limits, available_minutes: float) -> int:
    """Return how many runs, at their full time limits, fit into an allocation of this many minutes; may be 0."""
    return max(0, math.floor((available_minutes * 60 - START_UP_SECONDS) / _run_seconds(limits)))


def _run_seconds(limits: Limits) -> float:
    return limits.run_seconds + limits.stop_grace_seconds
