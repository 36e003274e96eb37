"""Sets up the current process as one rank: its position, threads, seeds, process group, compile caches and imports."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import NoReturn

from accelsweep.devices.linux import usable_cores
from accelsweep.errors import AccelsweepError, Unsupported
from accelsweep.installation import in_installed
from accelsweep.run_config import THREADS_VARIABLE, TREE_VARIABLE
from accelsweep.temporary_folders import remove_abandoned_folders, temporary_folder
from accelsweep.worker.run_spec import RunSpec

COLLECTIVE_TIMEOUT = timedelta(minutes=5)
"""The minimum time that collectives wait for a rank that is alive but silent. A dead rank is detected immediately."""

WATCHDOG_MARGIN = timedelta(minutes=1)
"""How much later than the executor's watchdog collectives time out, because only the watchdog reports the hung step."""

STACKS_SIGNAL = signal.SIGUSR2
"""The signal that makes a rank print the stacks of its threads, unless a module installs its own handler."""

CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables for the cache folders of torch.compile and Triton. Setting one of them in `env` requests a warm cache."""


@dataclass(frozen=True)
class RankPlace:
    """A rank's position among all ranks, `local_size` of which share this host."""

    rank: int
    local_rank: int
    size: int
    local_size: int

    @classmethod
    def of(cls, spec: RunSpec) -> RankPlace:
        """Read RANK, LOCAL_RANK and WORLD_SIZE. Raises RuntimeError if they contradict the plan."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size != spec.world_size:
            raise RuntimeError(f"WORLD_SIZE={size}, but the plan has {spec.world_size} ranks")
        rank, local_rank = (int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK"))
        return cls(rank, local_rank, size, spec.config.devices)


def threads_of(spec: RunSpec, place: RankPlace, sharing: int | None = None) -> int:
    """Return this rank's CPU thread count, from the config or the plan, or else its share of the usable cores.

    `sharing` is the number of ranks that share these cores; by default all of this host.
    """
    return spec.config.fixed_threads or spec.threads or max(1, usable_cores() // (sharing or place.local_size))


def bind_to_numa_node(spec: RunSpec, place: RankPlace) -> tuple[int, int] | None:
    """Bind this rank to its NUMA node; return the node and the number of this host's ranks on it.

    Returns None if `numa` is not set. With `auto`, ranks on a CPU are distributed evenly, and any other rank gets the
    node of its device. Raises Unsupported if there is no such node, or only one.
    """
    from accelsweep.devices import numa

    if spec.config.numa is None:
        return None
    nodes = list(numa.nodes())
    if len(nodes) < 2:
        raise Unsupported(f"numa={spec.config.numa} has no effect: this process may use the cores of one NUMA node")
    chosen = [_numa_node(spec, nodes, rank, place.local_size) for rank in range(place.local_size)]
    node = chosen[place.local_rank]
    numa.bind(node)
    return node, chosen.count(node)


def _numa_node(spec: RunSpec, nodes: Sequence[int], local_rank: int, local_size: int) -> int:
    """Return the node of one of this host's ranks. Raises Unsupported if it cannot be told."""
    import torch

    from accelsweep.devices import numa
    from accelsweep.devices.kinds import kind_of

    if isinstance(spec.config.numa, int):
        return spec.config.numa
    if not spec.config.on_gpu:
        return nodes[local_rank * len(nodes) // local_size]
    kind = kind_of(spec.config.accelerator)
    identity = None
    if kind.unavailable_reason() is None:
        identity = kind.telemetry_identity(torch.device(kind.accelerator, local_rank))
    node = None if identity is None else numa.node_of_gpu(identity)
    if node is None:
        raise Unsupported("numa=auto: the system does not say which NUMA node the device is near: set numa=NUMBER")
    return node


def set_threads(count: int) -> None:
    """Limit torch to `count` threads. OMP_NUM_THREADS passes the number on to Lightning and loader workers."""
    import torch

    os.environ[THREADS_VARIABLE] = str(count)
    torch.set_num_threads(count)


def seed_all(seed: int) -> None:
    """Seed Python, numpy and torch (all devices) identically on every rank, so that ranks build identical modules."""
    import torch

    random.seed(seed)
    with contextlib.suppress(ImportError):  # torch does not require numpy
        import numpy

        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def dump_stacks_on_signal() -> None:
    """Print the stacks of all threads to stderr on STACKS_SIGNAL, even inside a C call that never returns.

    Loader workers forked from this process inherit the handler.
    """
    faulthandler.register(STACKS_SIGNAL, file=2, all_threads=True, chain=False)


@contextlib.contextmanager
def intercept_os_exit(report: Callable[[int, FrameType], None]) -> Iterator[None]:
    """Make `os._exit`, which no `except` clause catches, first call `report` with the exit code and the caller's frame.

    Forked children, such as loader workers, are not affected.
    """
    os_exit, process = os._exit, os.getpid()

    def reporting_exit(status: int) -> NoReturn:
        if os.getpid() == process:
            report(status, sys._getframe(1))
            sys.stderr.flush()
        os_exit(status)

    os._exit = reporting_exit
    try:
        yield
    finally:
        os._exit = os_exit


def collective_timeout(spec: RunSpec) -> timedelta:
    """Return how long collectives wait for a rank that is alive but silent."""
    if spec.silence_seconds is None:
        return COLLECTIVE_TIMEOUT
    return max(COLLECTIVE_TIMEOUT, timedelta(seconds=spec.silence_seconds) + WATCHDOG_MARGIN)


def init_process_group(place: RankPlace, spec: RunSpec, accelerator: str, backend: str | None = None) -> None:
    """Initialise torch.distributed's process group from MASTER_ADDR and MASTER_PORT; Lightning then uses this group.

    `accelerator` is the device kind. `backend` defaults to that of the kind.
    """
    import torch.distributed as distributed

    from accelsweep.devices.kinds import kind_of

    if place.size == 1 or distributed.is_initialized():
        return
    kind = kind_of(accelerator)
    kind.select_device(place.local_rank)
    backend = backend or kind.distributed_backend
    if backend == "gloo" and spec.config.num_nodes == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    timeout = collective_timeout(spec)
    distributed.init_process_group(backend, timeout=timeout, rank=place.rank, world_size=place.size)


def destroy_process_group() -> None:
    """Destroy the process group, if there is one. Call this only once this rank's result is on disk."""
    if "torch.distributed" not in sys.modules:
        return
    import torch.distributed as distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def has_warm_cache(spec: RunSpec) -> bool:
    """Return whether the setting's `env` sets a compile cache, in which case the first step may be warm."""
    return any(name in spec.config.env for name in CACHE_VARIABLES)


@contextlib.contextmanager
def empty_compile_caches(spec: RunSpec) -> Iterator[None]:
    """Point compilers at empty caches used only by this run, unless the setting requests a warm cache."""
    if has_warm_cache(spec):
        yield
        return
    remove_abandoned_folders()
    with temporary_folder("compile") as caches:
        os.environ |= {name: str(caches / name.lower()) for name in CACHE_VARIABLES}
        yield


@dataclass(frozen=True)
class VersionTree:
    """The source tree of the version that this run measures.

    Its `folders` are added to the import path, and `packages` must be imported from inside `tree`. Modules from
    elsewhere in the `checkout` are rejected, because they would belong to a different version.
    """

    name: str
    tree: Path
    checkout: Path
    folders: tuple[str, ...]
    packages: Collection[str]

    @classmethod
    def from_environment(cls) -> VersionTree | None:
        """Return the tree specified by the environment, or None if the sweep does not compare versions."""
        variable = os.environ.get(TREE_VARIABLE)
        if variable is None:
            return None
        given = json.loads(variable)
        return cls(
            given["name"], Path(given["tree"]), Path(given["checkout"]), tuple(given["folders"]), given["packages"]
        )

    def prepend_to_path(self) -> None:
        """Put the tree first on the import path, and remove the checkout from it."""
        others = [entry for entry in sys.path if entry not in self.folders and not self._is_elsewhere(Path(entry))]
        sys.path[:] = [*self.folders, *others]

    def check_modules(self) -> None:
        """Raise AccelsweepError, with both paths, if a loaded module does not belong to this version."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not isinstance(file, str) or not Path(file).is_absolute():  # some torch modules set a bare file name
                continue
            versioned = name.partition(".")[0] in self.packages
            if not versioned and self.checkout.name not in file:  # fast path: skips nearly all modules
                continue
            path = Path(file).absolute()
            if self._is_elsewhere(path) or (versioned and self.tree not in path.parents):
                raise AccelsweepError(
                    f"the module {name} was imported from {path}, but version {self.name} is in {self.tree}. "
                    "Uninstall the package from this environment, or install it so that a folder is added to sys.path"
                )

    def _is_elsewhere(self, path: Path) -> bool:
        """Return whether `path` is in the checkout, but not in the tree or in an installed package."""
        path = path.absolute()
        if path == self.tree or self.tree in path.parents:
            return False
        if path != self.checkout and self.checkout not in path.parents:
            return False
        return not in_installed(path.relative_to(self.checkout))


def set_up_imports() -> VersionTree | None:
    """Make the user's modules importable from the working directory or the version's tree, and return the tree."""
    del sys.argv[1:]  # user modules that parse sys.argv on import must not see our arguments
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    version_tree = VersionTree.from_environment()
    if version_tree is not None:
        version_tree.prepend_to_path()
    else:
        os.environ.pop("PYTHONSAFEPATH", None)  # set for Snakemake; processes started by user code must not inherit it
    return version_tree
