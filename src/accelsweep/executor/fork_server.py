"""`python -m accelsweep.executor.fork_server DESCRIPTOR`: the server, as the head starts it.

It imports torch and Lightning once, never the user's code. From then on it forks a supervisor for each job that asks.
DESCRIPTOR is a socket that the head listens on already: a job that comes early waits for the imports to end. The server
has no other state, and dies with the head. A supervisor does not: it ends with the job that asked for it.
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
from typing import Any, NoReturn

from accelsweep.errors import EXIT_INCOMPLETE
from accelsweep.executor.block import main as supervise
from accelsweep.executor.fork_client import Inherited, differences, surroundings
from accelsweep.executor.ipc import receive, receive_streams, same_user, send
from accelsweep.executor.launch import Launchers, UnsafeFork, prepare_to_fork
from accelsweep.planning.source_digests import versions

_PATIENCE_SECONDS = 10.0


def main() -> int:
    """Serve until killed; return an exit code at once where forking is not safe, and jobs import for themselves."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    here, before = {**surroundings(), **versions()}, dict(os.environ)
    try:
        prepare_to_fork()
    except UnsafeFork as error:
        sys.stderr.write(f"forking is not safe here ({error}); every block imports torch itself\n")
        return EXIT_INCOMPLETE
    added = {name: value for name, value in os.environ.items() if before.get(name) != value}  # by imports, to be kept
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are waited for by those who asked for them
    while True:
        connection, _ = listener.accept()
        with connection:
            _serve(connection, listener, here, added)


def _serve(connection: socket.socket, listener: socket.socket, here: Inherited, added: dict[str, str]) -> None:
    connection.settimeout(_PATIENCE_SECONDS)
    streams: list[int] = []
    try:
        if not same_user(connection):
            return
        streams = receive_streams(connection)
        asked = receive(connection)
        if asked is None or len(streams) < 3:
            return
        unlike = differences(
            here, {**asked["surroundings"], **versions()}
        )  # as they are now, and torch when it was loaded
        if unlike:
            send(connection, {"refused": f"other surroundings: {', '.join(unlike)}"})
            return
        connection.settimeout(None)
        if os.fork() == 0:
            listener.close()
            asked["environment"] |= added
            _live(connection, streams, asked)
    except (OSError, ValueError, KeyError):  # the job has died, or what it said is no question: it must do without us
        traceback.print_exc()
    finally:
        for stream in streams:
            os.close(stream)


def _live(connection: socket.socket, streams: list[int], asked: dict[str, Any]) -> NoReturn:
    """Be the supervisor that was asked for. A forked child must never return into the server."""
    try:
        os.setsid()  # signals for the group of the server are not for a supervisor
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _hang_up_with(connection)
        os.register_at_fork(after_in_child=connection.close)  # else a rank's child would outlive it with our job's line
        send(connection, {"pid": os.getpid()})
        _become(streams, asked)
        send(connection, {"code": _exit_code()})
    except BaseException:  # noqa: BLE001 - see above; without a code the job knows that something went wrong
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _exit_code() -> int:
    try:
        code = supervise(Launchers(safe=True))
    except SystemExit as end:  # of wrong arguments
        code = end.code if isinstance(end.code, int) else EXIT_INCOMPLETE
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _hang_up_with(connection: socket.socket) -> None:
    """Have SIGHUP sent to this process when the job dies: it writes nothing, so that only its end can be read."""
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGHUP)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)


def _become(streams: list[int], asked: dict[str, Any]) -> None:
    """Take over the streams, the folder, the environment and the path of imports of the job."""
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[:] = asked["path"]
    importlib.invalidate_caches()
    tempfile.tempdir = None  # the job's TMPDIR counts, not the one that the server's imports asked for
    sys.argv = ["accelsweep.executor", *asked["arguments"]]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
