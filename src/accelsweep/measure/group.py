"""The ranks that measure together: a barrier, one broadcast and one exchange, outside of the timed steps."""

from __future__ import annotations

from typing import Any, Protocol


class Group(Protocol):
    """All ranks of a run, seen from one of them."""

    @property
    def rank(self) -> int:
        """The rank of this process, from 0."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def barrier(self) -> None:
        """Return once every rank has arrived."""

    def broadcast(self, value: int) -> int:
        """Return the value that rank 0 gave."""

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, by rank, on every rank."""


class Alone:
    """A run with one rank."""

    rank = 0
    size = 1

    def barrier(self) -> None:
        """Return at once."""

    def broadcast(self, value: int) -> int:
        """Return `value`."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return `[value]`."""
        return [value]


class ProcessGroup:
    """The ranks of torch.distributed's default process group, which must have been initialised."""

    def __init__(self) -> None:
        """Find this rank and the number of ranks."""
        import torch.distributed as distributed

        self._distributed = distributed
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()

    def barrier(self) -> None:
        """Return once every rank has arrived."""
        self._distributed.barrier()

    def broadcast(self, value: int) -> int:
        """Return the value that rank 0 gave."""
        box = [value]
        self._distributed.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's value, by rank, on every rank. Values must be picklable."""
        box: list[Any] = [None] * self.size
        self._distributed.all_gather_object(box, value)
        return box


def group_of(world_size: int) -> Group:
    """Return the group of a run with `world_size` ranks."""
    return ProcessGroup() if world_size > 1 else Alone()
