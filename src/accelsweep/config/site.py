"""The place of a sweep: its nodes, their devices, and the words of its engine. Nothing in it changes a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, model_validator

from accelsweep import registry
from accelsweep.devices.device_kind import Device
from accelsweep.devices.kinds import KINDS, accelerator_with_alias
from accelsweep.errors import nearest
from accelsweep.json_documents import AtLeast0, AtLeast1, Frozen, JobMemory

# The words on a site's jobs for every engine: their size, their limits, and how a node is prepared for a block.


class JobOptions(Frozen):
    """The form in which blocks become jobs, on any engine. Where a value is None, the cluster's default holds.

    `gpu_model` is the cluster's name of the GPU type. `mem_mb` is per node. `max_minutes` bounds a job's time limit,
    `max_gpus` the GPUs that the sweep keeps from others at once, `max_jobs` its jobs in the queue. `scratch` is a
    node-local folder that becomes TMPDIR. `modules` are loaded before a block. `container` is the command that starts a
    program in the blocks' container, and `container_python` the Python in it. `interface` is the network interface
    between nodes. `exclusive` keeps other jobs off the nodes of a block, and `extra` is handed to the command that
    submits. `fake_gpus` is for tests alone: a CPU setting asks for so many GPUs per node and uses none of them.
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
        """Whether jobs without GPUs go to nodes of their own."""
        return False


# The words of a site on its jobs, as Slurm has them.


class Slurm(JobOptions):
    """The form in which blocks become Slurm jobs at a site.

    `partition` takes every block, or those with GPUs where `cpu_partition` takes the others. `gpu_request` is the
    option of sbatch that asks for GPUs: `--gpus`, `--gres=gpu:...` or `--gpus-per-node`. `secrets` are the names of
    environment variables that jobs get although they tell of a secret. `head` is for heads that are
    handed over; without it they take the partition of CPU blocks, and `max_minutes`.
    """

    partition: str | None = None
    cpu_partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    gpu_request: Literal["gpus", "gres", "per_node"] = "gpus"
    secrets: tuple[str, ...] = ()
    head: dict[str, Any] | None = None

    @property
    def has_cpu_partition(self) -> bool:
        """Whether jobs without GPUs go to another partition."""
        return self.cpu_partition is not None


def _scheduler(name: str) -> str:
    known = ["local", "slurm", *(scheduler.name for scheduler in registry.schedulers())]
    if name not in known:
        raise ValueError(f"is no scheduler{nearest(name, known)}; they are: {', '.join(known)}")
    return name


class _Engines(Frozen):
    """The words of each engine: Slurm's, and those of features' schedulers under their names (`registry.Scheduler`)."""

    model_config = ConfigDict(coerce_numbers_to_str=True, extra="allow")

    slurm: Slurm = Slurm()

    @model_validator(mode="after")
    def _read_by_their_features(self) -> Self:
        words = self.__pydantic_extra__ or {}
        models = {scheduler.name: scheduler.options for scheduler in registry.schedulers()}
        for name in set(words) - set(models):
            raise ValueError(f"unknown key '{name}'{nearest(name, [*type(self).model_fields, *models])}")
        for name, given in words.items():
            words[name] = registry.load(models[name]).model_validate(given or {})
        return self

    def job_options_for(self, scheduler: str) -> JobOptions:
        """Return the words of the engine that a scheduler's name means; the defaults where none are given."""
        if scheduler in ("slurm", "local"):
            return self.slurm
        given: JobOptions | None = (self.__pydantic_extra__ or {}).get(scheduler)
        models = {one.name: one.options for one in registry.schedulers()}
        words: JobOptions = given or registry.load(models[scheduler])()
        return words


def _of_known_kind(device: Device) -> Device:
    if device.accelerator not in KINDS:
        alias = accelerator_with_alias(device.accelerator)
        hint = f" (did you mean '{alias}'?)" if alias else nearest(device.accelerator, KINDS)
        raise ValueError(f"no kind of device is called {device.accelerator!r}{hint}; known are {', '.join(KINDS)}")
    return device


KnownDevice = Annotated[Device, AfterValidator(_of_known_kind)]


class NodeKind(_Engines):
    """Nodes of one kind at a site: how many, the inventory of one, and how jobs reach them.

    The words of an engine inherit what they leave out from the site's.
    """

    name: str
    nodes: AtLeast1 = 1
    inventory: tuple[KnownDevice, ...]


class Site(_Engines):
    """The place of a sweep: the declared inventory of a node, and how jobs are submitted there.

    A cluster of unlike nodes has `kinds` in place of `nodes` and `inventory`.
    """

    name: str
    probe: bool = False
    nodes: AtLeast1 = 1
    inventory: tuple[KnownDevice, ...] = ()
    scheduler: Annotated[str, AfterValidator(_scheduler)] = "local"
    kinds: tuple[NodeKind, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _inherited(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(kinds := value.get("kinds"), list | tuple):
            return value
        for engine in ("slurm", *(scheduler.name for scheduler in registry.schedulers())):
            if isinstance(shared := value.get(engine) or {}, Mapping):
                kinds = [_with_shared(kind, engine, shared) for kind in kinds]
        return {**value, "kinds": kinds}

    @property
    def jobs(self) -> JobOptions:
        """The site's words on its jobs, for its engine."""
        return self.job_options_for(self.scheduler)

    @property
    def jobs_key(self) -> str:
        """The key of `jobs`, as a user writes it."""
        return f"site.{'slurm' if self.scheduler == 'local' else self.scheduler}"

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices of a node of every kind that the site has."""
        return (*self.inventory, *(device for kind in self.kinds for device in kind.inventory))

    def count(self, accelerator: str) -> int:
        """Return how many devices (cores for `cpu`) of this kind one node of the site has."""
        return sum(device.count for device in self.inventory if device.accelerator == accelerator)

    def of_kind(self, name: str | None) -> Site:
        """Return the site as if it had nodes of this kind alone; itself for None."""
        kind = next((kind for kind in self.kinds if kind.name == name), None)
        if kind is None:
            return self
        own = {"nodes": kind.nodes, "inventory": kind.inventory, "kinds": ()}
        own |= {"slurm": kind.slurm, **(kind.__pydantic_extra__ or {})}
        return self.model_copy(update={"name": f"{self.name}: {kind.name}", **own})


def _with_shared(kind: Any, engine: str, shared: Mapping[str, Any]) -> Any:
    if not shared or not isinstance(kind, Mapping) or not isinstance(own := kind.get(engine) or {}, Mapping):
        return kind
    return {**kind, engine: {**shared, **own}}
