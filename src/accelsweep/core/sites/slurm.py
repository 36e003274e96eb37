"""The words of a site on its jobs, as Slurm has them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from accelsweep.core.sites.head import DetachedHead
from accelsweep.core.sites.jobs import JobSettings


class Slurm(JobSettings):
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
    head: DetachedHead | None = None

    @model_serializer(mode="wrap")
    def _without_late(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = written(self)
        return found if self.head is not None else {name: value for name, value in found.items() if name != "head"}

    @property
    def cpu_apart(self) -> bool:
        """Whether jobs without GPUs go to another partition."""
        return self.cpu_partition is not None
