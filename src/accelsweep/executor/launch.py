"""Start, signal and reap the processes of a run's ranks, forked with torch loaded or spawned as fresh interpreters.

All ranks of a run form one process group, die with the executor, write to the run's log, and receive the environment
variables that torchrun would set. Forking is safe because the parent never imports user code, runs no torch operation,
never touches CUDA, and has no threads left after a trial fork (the first fork ends NumPy's and SciPy's OpenBLAS
threads). If any of this does not hold, ranks are spawned.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn, Protocol

import psutil

from accelsweep.devices import linux
from accelsweep.executor.run_log import RunLog
from accelsweep.executor.stack_traces import dump_stacks
from accelsweep.fork_client import Fork, project_server, request_fork
from accelsweep.installation import FOREIGN_PROLOGUE, foreign_command
from accelsweep.ipc import PROJECT_SERVERS_VARIABLE, Signals, listening, receive, send, send_descriptors
from accelsweep.run_config import SettingConfig
from accelsweep.schedulers.protocol import INTERFACE_VARIABLE
from accelsweep.schedulers.slurm import node_name
from accelsweep.worker.forking import RankEntry, UnsafeFork, call, prepare_to_fork, redirect_streams
from accelsweep.worker.lightning_alias import PACKAGE_VARIABLE
from accelsweep.worker.run_spec import RunSpec

LaunchMethod = Literal["fork", "spawn", "srun"]
"""How ranks are started; `srun` starts one process on each node, which forks or spawns that node's ranks."""

SPAWN_COMMAND = (sys.executable, "-P", "-m", "accelsweep.worker.main")
"""The command of a spawned rank, without the path of its spec. `-P` keeps the user's files from shadowing ours."""


def run_rank(spec: RunSpec) -> None:
    """Run one rank of `spec`."""
    from accelsweep.worker import main

    main.run_rank(spec)


def preload() -> None:
    """Import torch, Lightning and our own worker code, never the user's, so that forked ranks need not do so."""
    import pandas as pd  # noqa: F401 - pyarrow imports it to write a run's steps
    import pyarrow.parquet  # noqa: F401

    from accelsweep.worker import main

    main.preload()


class Ranks(Protocol):
    """The processes of a run's ranks, on one node or several."""

    exit_codes: dict[int, int | None]
    """The exit code of each rank that has ended: negative if a signal ended it, None if the rank was lost."""

    lost: dict[int, str]
    """For each lost rank, its node and how contact with it was lost."""

    oom_kills: int
    """The number of out-of-memory kills on other nodes."""

    @property
    def all_ended(self) -> bool:
        """Whether all processes of the run have ended."""

    def descriptors(self) -> list[int]:
        """Return descriptors that become readable when `poll` has something to do; SIGCHLD announces the rest."""

    def poll(self) -> None:
        """Update `exit_codes` without waiting."""

    def signal(self, number: signal.Signals) -> None:
        """Send SIGTERM or SIGKILL to all remaining ranks."""

    def dump_stacks(self, log: RunLog, wait: Callable[[float], None]) -> bool:
        """Write the stacks of all remaining ranks to `log`; return whether any rank was notified. `wait` sleeps."""


@dataclass
class LocalRanks:
    """Ranks that are child processes of this one, numbered from `first` up; the first one leads the process group."""

    processes: list[int]
    first: int = 0
    exit_codes: dict[int, int | None] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    oom_kills: int = 0

    @property
    def all_ended(self) -> bool:
        """Whether all ranks have been reaped."""
        return len(self.exit_codes) == len(self.processes)

    def running(self) -> dict[int, int]:
        """Return the process IDs of the ranks that have not been reaped, by rank."""
        numbered = enumerate(self.processes, self.first)
        return {rank: pid for rank, pid in numbered if rank not in self.exit_codes}

    def descriptors(self) -> list[int]:
        """Return none: SIGCHLD announces the end of each rank."""
        return []

    def poll(self) -> None:
        """Reap the ranks that have ended."""
        for rank, pid in self.running().items():
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                self.exit_codes[rank] = os.waitstatus_to_exitcode(status)

    def signal(self, number: signal.Signals) -> None:
        """Signal the process group. Its ID cannot be reused until all of its processes have been reaped."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.processes[0], number)

    def dump_stacks(self, log: RunLog, wait: Callable[[float], None]) -> bool:
        """Dump the stacks of one rank after another."""
        return dump_stacks(self.running(), log, wait)


@dataclass(frozen=True)
class Launch:
    """What the ranks of an attempt share: spec, environment (with `rendezvous`), log and lease descriptors.

    `python` is the interpreter for spawned ranks; None for this process's interpreter.
    """

    spec: RunSpec
    method: LaunchMethod
    environment: Mapping[str, str]
    log: int
    leases: tuple[int, ...] = ()
    python: str | None = None


class RankForker:
    """A process that forks ranks with the interpreter `python` of a project. It ends with this process.

    It is forked by the command's server for that interpreter or, if that cannot be used, by a server of this process.
    If neither can fork, `unsafe` is the reason.
    """

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        """Wait until the server has loaded torch and Lightning."""
        self.unsafe: str | None = None
        self.has_own_server = False
        self._server: subprocess.Popen[bytes] | None = None
        self._process: psutil.Process | None = None
        self._connection, theirs = socket.socketpair()
        with theirs:
            if sys.platform != "linux":
                self.unsafe = f"a process with torch loaded cannot be forked safely on {sys.platform}"
                return
            streams, variables = (theirs.fileno(), 1, 2), {**os.environ, **environment}
            shared = project_server(python, environment.get(PACKAGE_VARIABLE))
            if shared is not None:
                self._request(shared, streams, variables)
            if self._process is None:
                self._start_server(python, streams, variables)

    def _request(self, server: str, streams: Sequence[int], variables: Mapping[str, str]) -> None:
        fork = request_fork(
            "accelsweep.worker.project_fork_server", [], server=server, streams=streams, environment=variables
        )
        if isinstance(fork, Fork):
            self._fork = fork
            with contextlib.suppress(psutil.NoSuchProcess):
                self._process = psutil.Process(fork.pid)

    def _start_server(self, python: str, streams: Sequence[int], variables: Mapping[str, str]) -> None:
        self.has_own_server, name = True, f"accelsweep-{secrets.token_hex(16)}"
        with listening(name) as descriptor:
            command = project_server_command(python, descriptor)
            self._server = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, pass_fds=[descriptor])
        self._request(name, streams, variables)
        if self._process is None:
            self._server.terminate()
            self.unsafe = f"its fork server ended with exit code {self._server.wait()}"

    def start(self, launch: Launch, ranks: range, local_size: int) -> ProjectRanks:
        """Start the ranks of a run in one new process group. Raises OSError if the process is gone."""
        environments = [
            {**launch.environment, "RANK": str(rank), "LOCAL_RANK": str(rank % local_size)} for rank in ranks
        ]
        send_descriptors(self._connection, [launch.log, *launch.leases])
        send(
            self._connection,
            {"spec": str(launch.spec.file()), "cwd": str(Path.cwd()), "environments": environments},
        )
        answer = receive(self._connection)
        while answer is not None and "pids" not in answer:  # a late exit code from an earlier run
            answer = receive(self._connection)
        if answer is None:
            raise ConnectionError("the process that forks runs in the project's environment has ended")
        return ProjectRanks(answer["pids"], ranks.start, forker=self)

    def fileno(self) -> int:
        """Return the descriptor of the connection to the process."""
        return self._connection.fileno()

    def ended(self) -> dict[int, int] | None:
        """Return the exit codes received since the last call, by process ID; None if the process is gone."""
        codes: dict[int, int] = {}
        while select.select([self._connection], [], [], 0)[0]:
            answer = receive(self._connection)
            if answer is None:
                return None
            codes[answer["ended"]] = answer["code"]
        return codes

    def has_died(self) -> bool:
        """Return whether the process has ended although it could fork."""
        return self.unsafe is None and self.ended() is None

    def kill_leftovers(self) -> None:
        """Kill what ranks have left behind, which the process has adopted and reaps."""
        assert self._process is not None, "it has forked ranks"
        with contextlib.suppress(psutil.NoSuchProcess):
            while left := self._process.children(recursive=True):
                for process in left:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                psutil.wait_procs(left, timeout=1.0)

    def close(self) -> None:
        """End the process, and the server that has forked it if that is this process's own."""
        self._connection.close()
        if self._process is not None:
            self._fork.connection.close()
        if self._server is not None:
            self._server.kill()
            self._server.wait()


def project_server_command(python: str, descriptor: int, *, with_lightning: bool = True) -> list[str]:
    """Return the command that serves a listening socket with a project's interpreter."""
    call = f"main({descriptor}, with_lightning={with_lightning})"
    return [python, "-c", f"{FOREIGN_PROLOGUE}from accelsweep.worker.project_fork_server import main; {call}"]


@dataclass
class ProjectRanks(LocalRanks):
    """Ranks that are children of a `RankForker`'s process."""

    forker: RankForker | None = field(default=None, kw_only=True)

    def descriptors(self) -> list[int]:
        """Return that of the connection on which exit codes arrive."""
        assert self.forker is not None, "it made this"
        return [self.forker.fileno()]

    def poll(self) -> None:
        """Record the exit codes of ranks that have ended, and kill what the last one has left behind."""
        assert self.forker is not None, "it made this"
        ended = self.forker.ended()
        for rank, pid in self.running().items():
            if ended is None:
                self.exit_codes[rank] = -signal.SIGKILL  # ranks die with their parent
            elif pid in ended:
                self.exit_codes[rank] = ended[pid]
        if self.all_ended and ended is not None:
            self.forker.kill_leftovers()


@dataclass
class Launcher:
    """Starts ranks: a fork calls `entry`, a fresh interpreter runs `spawn_command`.

    `safe` is whether this process may fork ranks; None until it has prepared to fork.
    """

    entry: RankEntry = run_rank
    spawn_command: tuple[str, ...] = SPAWN_COMMAND
    preload: Callable[[], None] = preload
    safe: bool | None = None
    forkers: dict[tuple[str, str | None], RankForker] = field(default_factory=dict)

    def method_for(self, config: SettingConfig, say: Callable[[str], None]) -> LaunchMethod:
        """Return how to start a setting's ranks; `say` receives the reason if forking was requested but is not safe."""
        if config.whole_process:
            return "spawn"  # it needs no torch, and the peak memory of its command would begin at that of a fork
        if config.launcher == "spawn" or config.env:
            return "spawn"  # variables such as OMP_NUM_THREADS are read at import, before any fork
        if self.safe is None:
            try:
                prepare_to_fork(self.preload)
                self.safe = True
            except UnsafeFork as error:
                say(f"forking is not safe here ({error}); every run gets a fresh interpreter")
                self.safe = False
        return "fork" if self.safe else "spawn"

    def project_method(
        self, config: SettingConfig, python: str, environment: Mapping[str, str], say: Callable[[str], None]
    ) -> LaunchMethod:
        """Return how to start a setting's ranks with another environment's interpreter.

        A process that forks them is started if necessary; `say` receives the reason if there can be none, or if it
        cannot come from the command's server.
        """
        if config.launcher == "spawn" or config.env:
            return "spawn"
        key = python, environment.get(PACKAGE_VARIABLE)  # a server has imported one of the Lightning packages
        if key in self.forkers and self.forkers[key].has_died():
            self.forkers.pop(key).close()
        if key not in self.forkers:
            self.forkers[key] = forker = RankForker(python, environment)
            if forker.unsafe is not None:
                say(f"forking is not safe with {python} ({forker.unsafe}); every run gets a fresh interpreter")
            elif forker.has_own_server and PROJECT_SERVERS_VARIABLE in os.environ:
                say(f"torch is imported here, because the command has no fork server for {python} in this environment")
        return "spawn" if self.forkers[key].unsafe else "fork"

    def close(self) -> None:
        """End the processes that fork ranks with other environments' interpreters."""
        for forker in self.forkers.values():
            forker.close()
        self.forkers.clear()

    def start(self, launch: Launch, ranks: range | None = None) -> LocalRanks:
        """Start `ranks` (by default all) in one new process group."""
        ranks = range(launch.spec.world_size) if ranks is None else ranks
        sys.stdout.flush()
        sys.stderr.flush()
        local_size = int(launch.environment["LOCAL_WORLD_SIZE"])
        if launch.method == "fork" and launch.python is not None:
            forker = self.forkers[launch.python, launch.environment.get(PACKAGE_VARIABLE)]
            return forker.start(launch, ranks, local_size)
        processes: list[int] = []
        try:
            for rank in ranks:
                numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank % local_size)}
                group = processes[0] if processes else 0
                processes.append(self._fork(launch, {**launch.environment, **numbers}, group))
        except OSError:
            for process in processes:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
            raise
        return LocalRanks(processes, ranks.start)

    def _fork(self, launch: Launch, environment: Mapping[str, str], group: int) -> int:
        parent = os.getpid()
        with Signals.blocked():  # until the child has its own handlers; the executor's would swallow a signal
            child = os.fork()
            if child == 0:
                self._run_child(launch, environment, group, parent)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # parent and child race; either may come first
            os.setpgid(child, group or child)
        return child

    def _run_child(self, launch: Launch, environment: Mapping[str, str], group: int, parent: int) -> NoReturn:
        code = 1
        try:
            os.setpgid(0, group)
            linux.die_with_parent(parent)
            linux.volunteer_for_oom_kill()
            redirect_streams(launch.log)
            Signals.reset_in_child()
            os.environ.update(environment)
            if launch.method == "spawn":
                for lease in launch.leases:
                    os.set_inheritable(lease, True)
                command: Sequence[str] = self.spawn_command
                if launch.python is not None:
                    command = foreign_command(launch.python, "accelsweep.worker.main")
                program, *arguments = [*command, str(launch.spec.file())]
                unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
                os.execve(program, [program, *arguments], unbuffered)  # noqa: S606 - arguments, no shell
            code = call(self.entry, launch.spec)
        except BaseException:  # noqa: BLE001 - whatever happens, a forked child must never return into the executor
            traceback.print_exc()
        finally:
            os._exit(code)


def rendezvous(spec: RunSpec) -> dict[str, str]:
    """Return the variables through which the ranks of `spec` find each other, with this node as the master.

    INTERFACE_VARIABLE may specify the network interface that connects the nodes.
    """
    several_nodes = spec.config.num_nodes > 1
    with socket.socket() as listener:
        listener.bind(("" if several_nodes else "127.0.0.1", 0))
        free_port = int(listener.getsockname()[1])
    variables = {
        "WORLD_SIZE": str(spec.world_size),
        "LOCAL_WORLD_SIZE": str(spec.config.devices),
        "NODE_RANK": "0",
        "MASTER_ADDR": node_name() if several_nodes else "127.0.0.1",
        "MASTER_PORT": str(free_port),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }
    if several_nodes:
        if interface := os.environ.get(INTERFACE_VARIABLE):
            variables |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    elif sys.platform == "linux" and "GLOO_SOCKET_IFNAME" not in os.environ:
        variables["GLOO_SOCKET_IFNAME"] = "lo"  # otherwise gloo looks up the host name and hangs if that fails
    return variables


def children() -> frozenset[int]:
    """Return the process IDs of this process's children."""
    return frozenset(child.pid for child in psutil.Process().children())


def kill_leftovers(unrelated: frozenset[int]) -> None:
    """Kill and reap adopted processes left behind by ranks (loader workers, daemons); spare `unrelated` children."""
    while left := [child for child in psutil.Process().children(recursive=True) if _is_leftover(child, unrelated)]:
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for pid in children() - unrelated:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _is_leftover(process: psutil.Process, unrelated: frozenset[int]) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return not ({process.pid, *(parent.pid for parent in process.parents())} & unrelated)
    return False
