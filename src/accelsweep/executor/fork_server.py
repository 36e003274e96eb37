"""`python -m accelsweep.executor.fork_server DESCRIPTOR`: imports torch once and forks an executor for each block.

DESCRIPTOR is a socket on which the driver already listens, so an early client simply waits for the imports to finish.
The server never imports user code, has no state, and dies with the driver. An executor ends with the job that requested
it, not with the driver. The driver itself requests the processes that compose the config of the user's own project and
that try its script, which import what the server has imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from accelsweep.errors import EXIT_INCOMPLETE
from accelsweep.executor import trial
from accelsweep.executor.block import main as run_executor
from accelsweep.executor.launch import Launcher, preload
from accelsweep.fork_client import ForkedModule, ProcessState, differences, process_state
from accelsweep.ipc import receive, receive_descriptors, same_user, send
from accelsweep.planning.source_digests import core_versions
from accelsweep.worker import project_config
from accelsweep.worker.forking import UnsafeFork, prepare_to_fork

_REQUEST_TIMEOUT_SECONDS = 10.0

_MAINS: dict[ForkedModule, Callable[[], int | None]] = {
    "accelsweep.executor": lambda: run_executor(Launcher(safe=True)),
    "accelsweep.executor.trial": trial.main,
    "accelsweep.worker.project_config": project_config.main,
}


def main() -> int:
    """Serve until killed; return an exit code immediately if forking is not safe."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    state, before = {**process_state(), **core_versions()}, dict(os.environ)
    try:
        prepare_to_fork(preload)
    except UnsafeFork as error:
        sys.stderr.write(f"forking is not safe here ({error}); every block imports torch itself\n")
        return EXIT_INCOMPLETE
    set_by_imports = {name: value for name, value in os.environ.items() if before.get(name) != value}
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the clients wait for the executors; the server does not
    while True:
        connection, _ = listener.accept()
        with connection:
            _serve(connection, listener, state, set_by_imports)


def _serve(
    connection: socket.socket, listener: socket.socket, state: ProcessState, set_by_imports: dict[str, str]
) -> None:
    connection.settimeout(_REQUEST_TIMEOUT_SECONDS)
    streams: list[int] = []
    try:
        if not same_user(connection):
            return
        streams = receive_descriptors(connection)
        request = receive(connection)
        if request is None or len(streams) < 3:
            return
        # the versions as installed now: torch may have been upgraded since it was imported
        if unlike := differences(state, {**request["process_state"], **core_versions()}):
            send(connection, {"refused": f"a different process environment: {', '.join(unlike)}"})
            return
        connection.settimeout(None)
        if os.fork() == 0:
            listener.close()
            request["environment"] |= set_by_imports
            _run_module(connection, streams, request)
    except (OSError, ValueError, KeyError):  # the client died or sent an invalid request: no reply is sent
        traceback.print_exc()
    finally:
        for stream in streams:
            os.close(stream)


def _run_module(connection: socket.socket, streams: list[int], request: dict[str, Any]) -> NoReturn:
    """Run the requested module in a forked child, which must never return into the server's loop."""
    try:
        os.setsid()  # signals to the server's group are not meant for an executor
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
        _hang_up_with(connection)
        os.register_at_fork(after_in_child=connection.close)  # otherwise a leftover child of a rank would keep it open
        send(connection, {"pid": os.getpid()})
        _take_over(streams, request)
        try:
            code = _MAINS[request["module"]]() or 0
        except SystemExit as error:  # such as argparse's
            code = error.code if isinstance(error.code, int) else EXIT_INCOMPLETE
        sys.stdout.flush()
        sys.stderr.flush()
        send(connection, {"code": code})
    except BaseException:  # noqa: BLE001 - see above; the client recognises the failure by the missing code
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _hang_up_with(connection: socket.socket) -> None:
    """Request a SIGHUP when the client dies. The client sends nothing more, so any input means that it is gone."""
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGHUP)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)


def _take_over(streams: list[int], request: dict[str, Any]) -> None:
    """Take over the client's streams, working directory, environment, import path and arguments."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    ours = _exported_path()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    others = (entry for entry in sys.path if entry not in ours)
    sys.path[:] = request["path"] or dict.fromkeys([*_exported_path(), *others])
    importlib.invalidate_caches()
    tempfile.tempdir = None  # imports may have cached the server's TMPDIR
    sys.argv = [request["module"], *request["arguments"]]


def _exported_path() -> list[str]:
    """Return the entries of the import path that an interpreter started here would take from PYTHONPATH."""
    exported = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return list(dict.fromkeys(str(Path(entry).absolute()) for entry in exported if entry))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
