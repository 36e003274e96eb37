"""Defines a sweep's site: nodes, devices, and how jobs are submitted. The site never affects a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, model_validator

from accelsweep import registry
from accelsweep.devices.device_kind import Device
from accelsweep.devices.kinds import KINDS, accelerator_with_alias
from accelsweep.errors import nearest
from accelsweep.json_documents import AtLeast0, AtLeast1, Frozen, JobMemory


class JobOptions(Frozen):
    """How blocks are submitted as jobs, on any scheduler.

    None means the cluster's default. `gpu_model` is the cluster's name for the GPU type. `mem_mb` is per node.
    `max_minutes` bounds a job's time limit, `max_gpus` bounds the number of GPUs that the sweep makes unavailable to
    others at any time, and `max_jobs` bounds the number of its jobs in the queue. `scratch` is a node-local directory
    used as TMPDIR. `modules` are loaded before a block. `container` is the command that starts a program in the blocks'
    container, and `container_python` is the Python interpreter inside that container. `interface` is the network
    interface between nodes. `exclusive` keeps other jobs off a block's nodes, and `extra` is passed to the submit
    command. `fake_gpus` is for tests only: a CPU setting requests this many GPUs per node without using them.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)

    gpu_model: str | None = None
    cpus_per_gpu: AtLeast1 = 1
    mem_mb: JobMemory | None = None
    max_minutes: AtLeast1 | None = None
    max_gpus: AtLeast1 | None = None
    max_jobs: AtLeast1 | None = None
    scratch: str | None = None
    modules: tuple[str, ...] = ()
    container: str | None = None
    container_python: str = "python3"
    interface: str | None = None
    exclusive: bool = True
    extra: str | None = None
    fake_gpus: AtLeast0 = 0

    @property
    def has_cpu_partition(self) -> bool:
        """Whether jobs without GPUs run on separate nodes."""
        return False


class Slurm(JobOptions):
    """How blocks are submitted as Slurm jobs at a site.

    `partition` is used for all blocks or, if `cpu_partition` is set, only for blocks with GPUs. `gpu_request` is the
    sbatch option that requests GPUs: `--gpus`, `--gres=gpu:...` or `--gpus-per-node`. `secrets` lists environment
    variables that are passed to jobs although their names suggest a secret. `driver` configures the job in which a
    background driver runs; by default, that job uses the partition for CPU blocks and the time limit `max_minutes`.
    """

    partition: str | None = None
    cpu_partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gpu_request: Literal["gpus", "gres", "per_node"] = "gpus"
    secrets: tuple[str, ...] = ()
    driver: dict[str, Any] | None = None

    @property
    def has_cpu_partition(self) -> bool:
        """Whether jobs without GPUs run in a different partition."""
        return self.cpu_partition is not None


def _scheduler_models() -> dict[str, str]:
    """Return the features' schedulers, mapped to the dotted names of their options models."""
    return {scheduler.name: scheduler.options for scheduler in registry.schedulers()}


def _known_scheduler(value: str) -> str:
    known = ["local", "slurm", *_scheduler_models()]
    if value not in known:
        raise ValueError(f"is not a scheduler{nearest(value, known)}; they are: {', '.join(known)}")
    return value


class _SchedulerOptions(Frozen):
    """Job options by scheduler: for Slurm, and for features' schedulers, keyed by name (`registry.SchedulerEntry`)."""

    model_config = ConfigDict(coerce_numbers_to_str=True, extra="allow")

    slurm: Slurm = Slurm()

    @model_validator(mode="after")
    def _validate_features_options(self) -> Self:
        options, models = self.__pydantic_extra__ or {}, _scheduler_models()
        for name in options:
            if name not in models:
                raise ValueError(f"unknown key '{name}'{nearest(name, [*type(self).model_fields, *models])}")
        for name, given in options.items():
            options[name] = registry.load(models[name]).model_validate(given or {})
        return self

    def job_options_for(self, scheduler: str) -> JobOptions:
        """Return a scheduler's job options, or its defaults if none are set."""
        if scheduler in ("slurm", "local"):
            return self.slurm
        given: JobOptions | None = (self.__pydantic_extra__ or {}).get(scheduler)
        options: JobOptions = given or registry.load(_scheduler_models()[scheduler])()
        return options


def _known_kind(device: Device) -> Device:
    if device.accelerator not in KINDS:
        alias = accelerator_with_alias(device.accelerator)
        hint = f" (did you mean '{alias}'?)" if alias else nearest(device.accelerator, KINDS)
        raise ValueError(f"unknown device kind {device.accelerator!r}{hint}; choose one of: {', '.join(KINDS)}")
    return device


KnownDevice = Annotated[Device, AfterValidator(_known_kind)]


class NodeKind(_SchedulerOptions):
    """A node kind at a site: the number of nodes, the inventory of one node, and how jobs are submitted to them.

    Omitted job options are inherited from the site.
    """

    name: str
    nodes: AtLeast1 = 1
    inventory: tuple[KnownDevice, ...]


class Site(_SchedulerOptions):
    """The declared inventory of a node, and how jobs are submitted.

    A cluster with several node kinds sets `kinds` instead of `nodes` and `inventory`.
    """

    name: str
    probe: bool = False
    nodes: AtLeast1 = 1
    inventory: tuple[KnownDevice, ...] = ()
    scheduler: Annotated[str, AfterValidator(_known_scheduler)] = "local"
    kinds: tuple[NodeKind, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _inherit_job_options(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(kinds := value.get("kinds"), list | tuple):
            return value
        for scheduler in ("slurm", *_scheduler_models()):
            if isinstance(inherited := value.get(scheduler) or {}, Mapping):
                kinds = [_with_inherited(kind, scheduler, inherited) for kind in kinds]
        return {**value, "kinds": kinds}

    @property
    def jobs(self) -> JobOptions:
        """The job options of the site's scheduler."""
        return self.job_options_for(self.scheduler)

    @property
    def jobs_key(self) -> str:
        """The config key of `jobs`."""
        return f"site.{'slurm' if self.scheduler == 'local' else self.scheduler}"

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of one node of each node kind."""
        return (*self.inventory, *(device for kind in self.kinds for device in kind.inventory))

    def count(self, accelerator: str) -> int:
        """Return the number of devices (cores for `cpu`) with this accelerator in each of the site's nodes."""
        return sum(device.count for device in self.inventory if device.accelerator == accelerator)

    def of_kind(self, name: str | None) -> Site:
        """Restrict the site to its nodes of this kind; return the site itself if the name is None."""
        kind = next((kind for kind in self.kinds if kind.name == name), None)
        if kind is None:
            return self
        fields = {"name": f"{self.name}: {kind.name}", "nodes": kind.nodes, "inventory": kind.inventory, "kinds": ()}
        return self.model_copy(update={**fields, "slurm": kind.slurm, **(kind.__pydantic_extra__ or {})})


def _with_inherited(kind: Any, scheduler: str, inherited: Mapping[str, Any]) -> Any:
    if not inherited or not isinstance(kind, Mapping) or not isinstance(given := kind.get(scheduler) or {}, Mapping):
        return kind
    return {**kind, scheduler: {**inherited, **given}}
