"""The place of a sweep: its nodes, their devices, and the words of its engine. Nothing in it changes a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, SerializerFunctionWrapHandler, model_serializer, model_validator

from accelsweep.base.bounds import AtLeast1
from accelsweep.base.documents import Frozen
from accelsweep.core.sites.device import Device
from accelsweep.core.sites.grid_engine import GridEngine
from accelsweep.core.sites.jobs import JobSettings
from accelsweep.core.sites.slurm import Slurm


class _Engines(Frozen):
    """The words of each engine. Those of Grid Engine came later: without them a file is as it was before."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    slurm: Slurm = Slurm()
    grid_engine: GridEngine | None = None

    @model_serializer(mode="wrap")
    def _as_before(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = written(self)
        if self.grid_engine is None:
            found.pop("grid_engine", None)
        return found


class NodeKind(_Engines):
    """Nodes of one kind at a site: how many, the inventory of one, and how jobs reach them.

    The words of an engine inherit what they leave out from the site's.
    """

    name: str
    nodes: AtLeast1 = 1
    inventory: tuple[Device, ...]


class Site(_Engines):
    """The place of a sweep: the declared inventory of a node, and how jobs are submitted there.

    A cluster of unlike nodes has `kinds` in place of `nodes` and `inventory`.
    """

    name: str
    probe: bool = False
    nodes: AtLeast1 = 1
    inventory: tuple[Device, ...] = ()
    scheduler: Literal["local", "slurm", "grid_engine"] = "local"
    kinds: tuple[NodeKind, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _inherited(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(kinds := value.get("kinds"), list | tuple):
            return value
        for engine in ("slurm", "grid_engine"):
            if isinstance(shared := value.get(engine) or {}, Mapping):
                kinds = [_with_shared(kind, engine, shared) for kind in kinds]
        return {**value, "kinds": kinds}

    @property
    def jobs(self) -> JobSettings:
        """The site's words on its jobs, for its engine."""
        return (self.grid_engine or GridEngine()) if self.scheduler == "grid_engine" else self.slurm

    @property
    def jobs_key(self) -> str:
        """The key of `jobs`, as a user writes it."""
        return "site.grid_engine" if self.scheduler == "grid_engine" else "site.slurm"

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
        own |= {"slurm": kind.slurm, "grid_engine": kind.grid_engine}
        return self.model_copy(update={"name": f"{self.name}: {kind.name}", **own})


def _with_shared(kind: Any, engine: str, shared: Mapping[str, Any]) -> Any:
    if not shared or not isinstance(kind, Mapping) or not isinstance(own := kind.get(engine) or {}, Mapping):
        return kind
    return {**kind, engine: {**shared, **own}}
