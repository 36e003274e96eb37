"""Forks the ranks of runs in another environment: imports torch and Lightning there once, so that each run need not.

`main` starts the server with that environment's interpreter and a socket on which its starter already listens; it dies
with its starter. An executor requests a process that runs `serve_ranks` with a socket as its standard input. Each
message on it names a spec and the environment variables of each rank, and passes the descriptors of the log and the
leases. The process answers with the process IDs and, later, the exit code of each rank. It ends with the executor.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from accelsweep.devices import linux
from accelsweep.errors import EXIT_INCOMPLETE
from accelsweep.ipc import Signals, receive, receive_descriptors, send
from accelsweep.worker import environment_check, project_config
from accelsweep.worker.fork_requests import ForkServer
from accelsweep.worker.forking import UnsafeFork, call, redirect_streams
from accelsweep.worker.main import preload, run_rank
from accelsweep.worker.run_spec import RunSpec

_MOST_DESCRIPTORS = 64  # the log, the machine's lock, and one for each device


def main(descriptor: int, *, with_lightning: bool) -> None:
    """Serve requests on a listening socket until the starter exits."""
    linux.die_with_parent(os.getppid())
    mains = {
        "accelsweep.worker.environment_check": environment_check.main,
        "accelsweep.worker.project_fork_server": serve_ranks,
        "accelsweep.worker.project_config": project_config.main,
    }
    try:
        ForkServer(mains, foreign=True).serve(
            socket.socket(fileno=descriptor), partial(preload, with_lightning=with_lightning)
        )
    except (UnsafeFork, ImportError) as error:
        sys.stderr.write(f"{sys.executable} cannot fork runs: {type(error).__name__}: {error}\n")
        sys.exit(EXIT_INCOMPLETE)


def serve_ranks() -> None:
    """Serve the executor at the other end of standard input until it exits or a signal stops this process."""
    linux.adopt_orphans()  # which the executor finds below this process
    connection = socket.socket(fileno=os.dup(0))
    signals = Signals()
    with signals.caught(), suppress(ConnectionError):  # the executor may have ended without reading every message
        while signals.stop is None:
            signals.wait(60.0, [connection.fileno()])
            _report_ended(connection)
            if select.select([connection], [], [], 0)[0] and not _serve(connection):
                return


def _report_ended(connection: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        send(connection, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _serve(connection: socket.socket) -> bool:
    """Fork the ranks of one request; return whether the executor is still there."""
    descriptors = receive_descriptors(connection, _MOST_DESCRIPTORS)
    request = receive(connection)
    if request is None or not descriptors:
        return False
    pids: list[int] = []
    for environment in request["environments"]:
        group = pids[0] if pids else 0
        with Signals.blocked():
            pid = os.fork()
            if pid == 0:
                _run_child(connection, request, environment, group, descriptors[0])
        pids.append(pid)
    for descriptor in descriptors:
        os.close(descriptor)
    send(connection, {"pids": pids})
    return True


def _run_child(
    connection: socket.socket, request: dict[str, Any], environment: dict[str, str], group: int, log: int
) -> NoReturn:
    """Run one rank in a forked child, which keeps the leases' descriptors open until it exits."""
    code = 1
    try:
        parent = os.getppid()
        os.setpgid(0, group)
        linux.die_with_parent(parent)
        linux.volunteer_for_oom_kill()
        connection.close()
        redirect_streams(log)
        Signals.reset_in_child()
        os.environ.update(environment)
        os.chdir(request["cwd"])
        signal.set_wakeup_fd(-1)
        code = call(run_rank, RunSpec.read(Path(request["spec"])))
    except BaseException:  # noqa: BLE001  a forked child must never return into the server's loop
        traceback.print_exc()
    finally:
        os._exit(code)
