"""The present process as one rank: its place among the others, its threads, its seeds, its process group."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import NoReturn

from accelsweep.machine.cpu import usable_cores
from accelsweep.rank.spec import RunSpec

COLLECTIVE_TIMEOUT = timedelta(minutes=5)
"""The least time that a collective waits for a rank that is alive but silent. A rank that dies is noticed at once."""

AFTER_SILENCE = timedelta(minutes=1)
"""The time that it waits beyond the watch for silence: the watch comes first, because it can say which step hung."""

STACKS_SIGNAL = signal.SIGUSR2
"""The signal that makes a rank print the stacks of its threads. A module that handles it itself gets it instead."""


@dataclass(frozen=True)
class RankPlace:
    """A rank's place: `local_size` ranks share this host."""

    rank: int
    local_rank: int
    size: int
    local_size: int

    @classmethod
    def of(cls, spec: RunSpec) -> RankPlace:
        """Read the place from RANK, LOCAL_RANK and WORLD_SIZE; raise RuntimeError where they contradict the plan."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size != spec.world_size:
            raise RuntimeError(f"WORLD_SIZE={size}, but the plan has {spec.world_size} ranks")
        return cls(
            int(os.environ.get("RANK", "0")),
            int(os.environ.get("LOCAL_RANK", "0")),
            size,
            spec.config.devices,
        )


def share_of_cores(spec: RunSpec, place: RankPlace) -> int:
    """Return the CPU threads for this rank: the config's `threads`, the plan's, or an equal share of usable cores."""
    return spec.config.threads or spec.threads or max(1, usable_cores() // place.local_size)


def use_threads(count: int) -> None:
    """Give torch `count` threads. The variable keeps Lightning from deciding anew, and is for loader workers."""
    import torch

    os.environ["OMP_NUM_THREADS"] = str(count)
    torch.set_num_threads(count)


def seed_all(seed: int) -> None:
    """Seed Python, numpy and torch (all devices), the same on every rank, so that ranks build equal modules."""
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def show_stacks_when_asked() -> None:
    """Print the stacks of all threads to stderr on STACKS_SIGNAL, also in a C call that never returns to Python.

    Loader workers that are forked from this process inherit it.
    """
    faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True, chain=False)


@contextlib.contextmanager
def before_exits(tell: Callable[[int, FrameType], None]) -> Iterator[None]:
    """Call `tell` with the code and the caller where this process calls `os._exit`, which skips every `except`.

    A forked child (a loader's worker, say) ends as it likes.
    """
    leave, ours = os._exit, os.getpid()

    def told(status: int) -> NoReturn:
        if os.getpid() == ours:
            tell(status, sys._getframe(1))
            sys.stderr.flush()
        leave(status)

    os._exit = told
    try:
        yield
    finally:
        os._exit = leave


def collective_timeout(spec: RunSpec) -> timedelta:
    """Return how long a collective waits for a rank that is alive but silent."""
    if spec.silence_seconds is None:
        return COLLECTIVE_TIMEOUT
    return max(COLLECTIVE_TIMEOUT, timedelta(seconds=spec.silence_seconds) + AFTER_SILENCE)


def join_group(place: RankPlace, spec: RunSpec, accelerator: str, collectives: str | None = None) -> None:
    """Initialise torch.distributed's process group from MASTER_ADDR and MASTER_PORT; Lightning then uses this one.

    `accelerator` is the kind of device, as it was chosen. `collectives` is torch's name of the library that exchanges;
    None takes that of the kind.
    """
    import torch.distributed as distributed

    from accelsweep.measure.devices.kinds import torch_kind

    if place.size == 1 or distributed.is_initialized():
        return
    kind, timeout = torch_kind(accelerator), collective_timeout(spec)
    kind.of_rank(place.local_rank)
    collectives = collectives or kind.collectives
    if collectives == "gloo" and spec.config.num_nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    distributed.init_process_group(collectives, timeout=timeout, rank=place.rank, world_size=place.size)


def leave_group() -> None:
    """Tear down the process group, if there is one. Only after this rank's result is on disk."""
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
