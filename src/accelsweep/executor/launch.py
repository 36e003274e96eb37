"""The start of a run's ranks: forked from a supervisor that has torch loaded already, or as fresh interpreters.

Either way all ranks of a run form one process group, die with the supervisor, and write to the run's log. They get the
environment variables of torchrun. A fork is safe because the parent never imports the user's code, never runs an
operation and never touches CUDA. Nor has it a thread that survives a trial fork. NumPy's and SciPy's OpenBLAS start
threads when they are imported and end them, in the parent, whenever it forks. Any other thread makes us spawn instead.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from accelsweep.config.schema import CellConfig
from accelsweep.devices import linux
from accelsweep.executor.ipc import Signals
from accelsweep.schedulers.protocol import INTERFACE_VARIABLE
from accelsweep.schedulers.slurm import node_name
from accelsweep.worker.run_spec import RunSpec

RankEntry = Callable[[RunSpec], None]

LaunchKind = Literal["fork", "spawn", "srun"]
"""The ways to start ranks; `srun` starts one process on each node, which forks or spawns that node's ranks."""

SPAWN_COMMAND = (sys.executable, "-P", "-m", "accelsweep.worker.main")
"""The fresh interpreter that runs one rank; the path of the spec is added.

`-P`, as for every interpreter of ours in the user's folder: what we import is never a file of the user's.
"""


class UnsafeFork(Exception):
    """A forked run could hang here or find a broken CUDA; the message names the state of the supervisor."""


def run_rank(spec: RunSpec) -> None:
    """Run one rank of `spec` with accelsweep's own code, imported only now."""
    from accelsweep.worker import main

    main.run_rank(spec)


def preload() -> None:
    """Import torch, Lightning and our own code, never the user's, so that forked ranks need not."""
    from accelsweep.worker import main

    main.preload()


def prepare_to_fork(preload: Callable[[], None] = preload) -> None:
    """Call `preload` and make sure that forking from here is safe. Raises UnsafeFork if it is not."""
    if sys.platform != "linux":
        raise UnsafeFork(f"forking a process with torch loaded is not safe on {sys.platform}")
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # a call of CUDA itself would break CUDA in every child
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # pyarrow's allocator would start a thread
    gc.disable()  # modules stay: to look for garbage while they load takes a sixth of the time that they take
    try:
        preload()
    finally:
        gc.enable()
    if "torch" in sys.modules:
        from accelsweep.devices.inventory import kinds

        if used := [name for name, kind in kinds().items() if kind.initialised()]:
            raise UnsafeFork(f"{', '.join(used)} was initialised by an import")
    _trial_fork()
    if len(linux.thread_names()) > 1:
        raise UnsafeFork(f"an import left threads behind: {', '.join(linux.thread_names())}")
    gc.collect()
    gc.freeze()  # keeps the collector from copying the shared pages in every child


def _trial_fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@dataclass(frozen=True)
class Launch:
    """The common arguments of one attempt's ranks: spec, environment (with `rendezvous`), log and lease descriptors.

    `python` is the interpreter that ranks are spawned with, None for this process's own.
    """

    spec: RunSpec
    kind: LaunchKind
    environment: Mapping[str, str]
    log: int
    leases: tuple[int, ...] = ()
    python: str | None = None


@dataclass
class Launchers:
    """The start of ranks: a forked one calls `entry`, a fresh interpreter runs `spawn_command`.

    `safe` says whether this process may fork them; None until it has prepared itself.
    """

    entry: RankEntry = run_rank
    spawn_command: tuple[str, ...] = SPAWN_COMMAND
    preload: Callable[[], None] = preload
    safe: bool | None = None

    def kind_for(self, config: CellConfig, say: Callable[[str], None]) -> LaunchKind:
        """Return how a cell's ranks are started; `say` is told if a fork was wanted but would not be safe."""
        if config.launcher == "spawn" or config.env:
            return "spawn"  # variables such as OMP_NUM_THREADS are read when libraries load: too late in a fork
        if self.safe is None:
            try:
                prepare_to_fork(self.preload)
                self.safe = True
            except UnsafeFork as error:
                say(f"forking is not safe here ({error}); every run gets a fresh interpreter")
                self.safe = False
        return "fork" if self.safe else "spawn"

    def start(self, launch: Launch, ranks: range | None = None) -> list[int]:
        """Start `ranks` (all of them by default) in one new process group; return their process ids, its leader first.

        A rank's place on its node follows from LOCAL_WORLD_SIZE in the launch's environment.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        processes: list[int] = []
        try:
            for rank in range(launch.spec.world_size) if ranks is None else ranks:
                local_rank = rank % int(launch.environment["LOCAL_WORLD_SIZE"])
                environment = {**launch.environment, "RANK": str(rank), "LOCAL_RANK": str(local_rank)}
                processes.append(self._fork(launch, environment, processes[:1]))
        except OSError:
            for process in processes:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            raise
        return processes

    def _fork(self, launch: Launch, environment: Mapping[str, str], leader: list[int]) -> int:
        parent = os.getpid()
        with Signals.held_back():  # until the child has its own handlers: the supervisor's would lose a signal
            child = os.fork()
            if child == 0:
                self._live(launch, environment, leader[0] if leader else 0, parent)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the child does the same; either may be first
            os.setpgid(child, leader[0] if leader else child)
        return child

    def _live(self, launch: Launch, environment: Mapping[str, str], group: int, parent: int) -> NoReturn:
        code = 1
        try:
            os.setpgid(0, group)
            linux.die_with_parent(parent)
            linux.volunteer_for_oom_kill()
            _use_streams(launch.log)
            Signals.reset_in_child()
            os.environ.update(environment)
            if launch.kind == "spawn":
                _become(self.spawn_command, launch)
            code = call(self.entry, launch.spec)
        except BaseException:  # noqa: BLE001 - whatever happens, a forked child must never return into the supervisor
            traceback.print_exc()
        finally:
            os._exit(code)


def _become(command: Sequence[str], launch: Launch) -> NoReturn:
    for lease in launch.leases:
        os.set_inheritable(lease, True)
    fresh = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    program = launch.python or command[0]
    os.execve(program, [program, *command[1:], str(launch.spec.file())], fresh)  # noqa: S606 - arguments, no shell


def call(entry: RankEntry, spec: RunSpec) -> int:
    """Call `entry` as the main program of this process; return its exit code. Its own errors go to stderr."""
    faulthandler.enable()
    code = 0
    try:
        entry(spec)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stderr.write(f"the run called sys.exit({end.code!r})\n")
    except BaseException:  # noqa: BLE001 - the traceback is all that this process can still say
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _use_streams(log: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def rendezvous(spec: RunSpec) -> dict[str, str]:
    """Return the environment with which the ranks of `spec` find each other, on this machine or from its node on.

    Between nodes INTERFACE_VARIABLE may name the network interface.
    """
    nodes = spec.config.num_nodes
    found = {
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.config.devices),
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1" if nodes == 1 else node_name(),
        "MASTER_PORT": str(_free_port("127.0.0.1" if nodes == 1 else "")),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    if nodes > 1:
        interface = os.environ.get(INTERFACE_VARIABLE)
        return found | ({"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {})
    if sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in os.environ:
        found["GLOO_SOCKET_IFNAME"] = (
            "lo"  # otherwise gloo looks this host's name up, and hangs where it does not resolve
        )
    return found


def _free_port(address: str) -> int:
    with socket.socket() as listener:
        listener.bind((address, 0))
        return int(listener.getsockname()[1])
