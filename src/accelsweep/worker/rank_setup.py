"""The present process as one rank: its place among the others, its threads, its seeds, its process group."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import NoReturn

from accelsweep.devices.linux import usable_cores
from accelsweep.errors import AccelsweepError
from accelsweep.installation import in_installed
from accelsweep.run_config import TREE_VARIABLE
from accelsweep.temporary_folders import remove_abandoned_folders, temporary_folder
from accelsweep.worker.run_spec import RunSpec

COLLECTIVE_TIMEOUT = timedelta(minutes=5)
"""The minimum timeout of a collective for a rank that is alive but silent. A dead rank is noticed at once."""

AFTER_SILENCE = timedelta(minutes=1)
"""The time that it waits beyond the executor's watchdog, which goes first because it can say which step hung."""

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


def add_working_directory_to_path() -> None:
    """Put the working directory on the import path, so that the user's own modules are found there."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)


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
    import torch

    random.seed(seed)
    with contextlib.suppress(ImportError):  # torch does without it, too
        import numpy

        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def show_stacks_when_asked() -> None:
    """Print the stacks of all threads to stderr on STACKS_SIGNAL, also in a C call that never returns to Python.

    Loader workers that are forked from this process inherit it.
    """
    faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True, chain=False)


@contextlib.contextmanager
def before_exits(report: Callable[[int, FrameType], None]) -> Iterator[None]:
    """Call `report` with the code and the caller where this process calls `os._exit`, which skips every `except`.

    A forked child (a loader's worker, say) ends as it likes.
    """
    leave, ours = os._exit, os.getpid()

    def reported_exit(status: int) -> NoReturn:
        if os.getpid() == ours:
            report(status, sys._getframe(1))
            sys.stderr.flush()
        leave(status)

    os._exit = reported_exit
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

    from accelsweep.devices.kinds import kind_of

    if place.size == 1 or distributed.is_initialized():
        return
    kind, timeout = kind_of(accelerator), collective_timeout(spec)
    kind.select_device(place.local_rank)
    collectives = collectives or kind.distributed_backend
    if collectives == "gloo" and spec.config.num_nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    distributed.init_process_group(collectives, timeout=timeout, rank=place.rank, world_size=place.size)


def leave_group() -> None:
    """Tear down the process group, if there is one. Only after this rank's result is on disk."""
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


# The caches of torch.compile and Triton: empty for each run, unless its setting asks for a warm cache.

CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""The variables of the caches' folders; a setting that sets one in its `env` asks for a warm cache."""


def is_warm(spec: RunSpec) -> bool:
    """Return whether the setting's own `env` names a compile cache, so that its first step may be warm."""
    return any(name in spec.config.env for name in CACHE_VARIABLES)


@contextlib.contextmanager
def fresh_caches(spec: RunSpec) -> Iterator[None]:
    """Give compilers empty caches of this run's own, so that compiling is warm only on purpose, never by accident."""
    if is_warm(spec):
        yield
        return
    remove_abandoned_folders()
    with temporary_folder("compile") as caches:
        os.environ |= {name: str(caches / name.lower()) for name in CACHE_VARIABLES}
        yield


# A run of a version: its modules come from that version's tree, or the run is refused.


@dataclass(frozen=True)
class OwnTree:
    """The tree of a run's version: its `folders` are on the path, and `packages` must come from below `tree`."""

    name: str
    tree: Path
    checkout: Path
    folders: tuple[str, ...]
    packages: Collection[str]

    @classmethod
    def of_this_run(cls) -> OwnTree | None:
        """Return the tree that the environment names, or None for a run without versions."""
        variable = os.environ.get(TREE_VARIABLE)
        if variable is None:
            return None
        given = json.loads(variable)
        tree, checkout = Path(given["tree"]), Path(given["checkout"])
        return cls(given["name"], tree, checkout, tuple(given["folders"]), given["packages"])

    def put_first(self) -> None:
        """Put the tree on the path of imports, and take the repository off it."""
        kept = [entry for entry in sys.path if entry not in self.folders and not self._is_elsewhere(Path(entry))]
        sys.path[:] = [*self.folders, *kept]

    def refuse_other_modules(self) -> None:
        """Raise AccelsweepError, with both paths, for a loaded module that is not the version's."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not isinstance(file, str) or not Path(file).is_absolute():  # torch gives some of its modules a bare name
                continue
            ours = name.partition(".")[0] in self.packages
            if not ours and self.checkout.name not in file:  # of thousands of modules few have a path to take apart
                continue
            place = Path(file).absolute()
            if self._is_elsewhere(place) or (ours and self.tree not in place.parents):
                raise AccelsweepError(
                    f"the module {name} came from {place}, but version {self.name} lies in {self.tree}. "
                    "Uninstall the package from this environment, or install it in a way that puts a folder on the path"
                )

    def _is_elsewhere(self, place: Path) -> bool:
        """Return whether a path lies in the repository, but neither in the tree nor among installed packages."""
        place = place.absolute()
        if place == self.tree or self.tree in place.parents:
            return False
        if place != self.checkout and self.checkout not in place.parents:
            return False
        return not in_installed(place.relative_to(self.checkout))
