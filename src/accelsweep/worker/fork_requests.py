"""Serves requests for forks of a process that has imported torch; `fork_client` sends them.

A server imports no user code and has no state. Each request names a module, and gets a process that runs it with the
client's streams, folder, environment and import path, as `python -m MODULE` would. It is hung up when the client dies,
but outlives the server.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from accelsweep.errors import EXIT_INCOMPLETE
from accelsweep.fork_client import ProcessState, differences, is_inherited, process_state
from accelsweep.ipc import receive, receive_descriptors, same_user, send
from accelsweep.worker.forking import prepare_to_fork

_REQUEST_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class ForkServer:
    """What a server runs on request: `mains` has the functions to call, by module.

    `versions` returns the versions of what was imported, as they are installed now. If `foreign`, the interpreter is
    one of the user's project. Only clients in the command's process environment know the name of its socket
    (`project_server`), so they are not compared with it. Its variables are kept: a wrapper around the interpreter may
    have set them.
    """

    mains: Mapping[str, Callable[[], int | None]]
    versions: Callable[[], Mapping[str, str]] = dict
    foreign: bool = False

    def serve(self, listener: socket.socket, preload: Callable[[], None]) -> NoReturn:
        """Call `preload`, and serve until killed. Raises UnsafeFork, and whatever `preload` raises."""
        state, before = {**process_state(), **self.versions()}, dict(os.environ)
        prepare_to_fork(preload)
        set_by_imports = {name: value for name, value in os.environ.items() if before.get(name) != value}
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the clients wait for the forks; the server does not
        while True:
            connection, _ = listener.accept()
            with connection:
                self._serve(connection, listener, state, set_by_imports)

    def _serve(
        self,
        connection: socket.socket,
        listener: socket.socket,
        state: ProcessState,
        set_by_imports: dict[str, str],
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
            theirs = {**request["process_state"], **self.versions()}
            if not self.foreign and (unlike := differences(state, theirs)):
                send(connection, {"refused": f"a different process environment: {', '.join(unlike)}"})
                return
            connection.settimeout(None)
            if os.fork() == 0:
                listener.close()
                request["environment"] |= {**self._kept_variables(), **set_by_imports}
                self._run_module(connection, streams, request)
        except (OSError, ValueError, KeyError):  # the client died or sent an invalid request: no reply is sent
            traceback.print_exc()
        finally:
            for stream in streams:
                os.close(stream)

    def _kept_variables(self) -> dict[str, str]:
        if not self.foreign:
            return {}
        return {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and is_inherited(name)}

    def _run_module(self, connection: socket.socket, streams: list[int], request: dict[str, Any]) -> NoReturn:
        """Run the requested module in a forked child, which must never return into the server's loop."""
        try:
            os.setsid()  # signals to the server's group are not meant for the child
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
            _hang_up_with(connection)
            os.register_at_fork(after_in_child=connection.close)  # otherwise a rank's leftover child would keep it open
            send(connection, {"pid": os.getpid()})
            _take_over(streams, request)
            try:
                code = self.mains[request["module"]]() or 0
            except SystemExit as error:  # such as argparse's
                code = error.code if isinstance(error.code, int) else EXIT_INCOMPLETE
            sys.stdout.flush()
            sys.stderr.flush()
            with suppress(ConnectionError):  # the client may have ended, or closed the connection to end this process
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
