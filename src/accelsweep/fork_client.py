"""Request from a fork server a process in which torch and Lightning are loaded already.

A command has a server for accelsweep's own interpreter, or one for each interpreter of the user's project. A fork
inherits what a fresh interpreter would read for itself, so a server only serves clients whose process environment
(variables, limits, cores, interpreter) is identical to its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from accelsweep.devices.linux import CGROUP_MEMBERSHIP, allowed_cores
from accelsweep.errors import EXIT_INCOMPLETE
from accelsweep.ipc import (
    FORK_SERVER_VARIABLE,
    PROJECT_SERVERS_VARIABLE,
    STOP_SIGNALS,
    address,
    receive,
    same_user,
    send,
    send_descriptors,
)
from accelsweep.plain_json import canonical_json, sha256_text

_IGNORED_VARIABLES = re.compile(
    r"(ACCELSWEEP|MLFLOW|SNAKEMAKE)_.*|PWD|OLDPWD|SHLVL|_|COLUMNS|LINES|TMP|TEMP|TMPDIR|TEMPDIR|PYTHONSAFEPATH"
)
"""Variables that may differ, because no library reads them at import or because requests state the import path."""

_IGNORED_FLAGS = re.compile(r"(safe_path|dont_write_bytecode)=[^,)]*")
"""Flags that may differ: requests state the import path, and whether bytecode is kept changes no results."""

_LONGEST_IMPORT_SECONDS = 600.0
"""How long a server may take before it answers: torch may be imported from a slow disk."""

ProcessState = dict[str, str]

ForkedModule = Literal[
    "accelsweep.executor",
    "accelsweep.executor.trial",
    "accelsweep.worker.environment_check",
    "accelsweep.worker.project_fork_server",
    "accelsweep.worker.project_config",
]
"""A module that a fork server can run as `python -m MODULE` would."""


def is_inherited(variable: str) -> bool:
    """Return whether libraries may have read an environment variable at import, so that a fork inherits its value."""
    return not _IGNORED_VARIABLES.fullmatch(variable)


def process_state() -> ProcessState:
    """Return the state that a fork inherits and that libraries may have read at import, by human-readable name."""
    variables = {f"variable {name}": value for name, value in os.environ.items() if is_inherited(name)}
    limits = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        **variables,
        **{name: str(resource.getrlimit(number)) for name, number in limits.items()},
        "interpreter": f"{sys.executable} {sys.version} {_IGNORED_FLAGS.sub('', str(sys.flags))}",
        "user": f"{os.getuid()} {os.getgid()} {sorted(os.getgroups())}",
        "cores": str(sorted(allowed_cores())),
        "priority": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "control group": CGROUP_MEMBERSHIP.read_text(),
        "umask": re.findall(r"^Umask:.*$", Path("/proc/self/status").read_text(), re.MULTILINE)[0],
    }


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the names of the entries that differ."""
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


@dataclass(frozen=True)
class Fork:
    """A process forked by the fork server. It is hung up when the connection is closed, also by our own end."""

    pid: int
    connection: socket.socket


def project_server(python: str, package: str | None) -> str | None:
    """Return the name of the command's fork server for a project's interpreter and its Lightning `package`.

    There need not be one by that name. It depends on this process's state, because only processes like the command's
    own may use the server. Returns None if the command has no such servers.
    """
    command = os.environ.get(PROJECT_SERVERS_VARIABLE)
    if command is None:
        return None
    return f"{command}-{sha256_text(canonical_json([python, package, process_state()]))[:32]}"


def has_project_server(python: str, package: str | None) -> bool:
    """Return whether the command has a fork server for a project's interpreter, even if it is still importing."""
    name = project_server(python, package)
    if name is None:
        return False
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(address(name)) == 0


def request_fork(
    module: ForkedModule,
    arguments: Sequence[str],
    *,
    server: str | None = None,
    streams: Sequence[int] = (0, 1, 2),
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    import_path: Sequence[str] | None = None,
) -> Fork | str | None:
    """Have a fork server run `python -m MODULE ARGUMENTS` with these descriptors as its standard streams.

    `server` is the server's name, by default that of accelsweep's own interpreter. The process gets this one's folder
    and environment, unless others are given. Its import path is `import_path`, or else that of an interpreter started
    with this PYTHONPATH. Returns the reason if the server declines, and None if there is no server.
    """
    name = server or os.environ.get(FORK_SERVER_VARIABLE)
    if not name or sys.platform != "linux":
        return None
    request = {
        "module": module,
        "arguments": list(arguments),
        "cwd": str(cwd or Path.cwd()),
        "path": None if import_path is None else list(import_path),
        "environment": dict(os.environ if environment is None else environment),
        "process_state": process_state(),
    }
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_LONGEST_IMPORT_SECONDS)
    try:
        connection.connect(address(name))
        if same_user(connection):
            send_descriptors(connection, streams)
            send(connection, request)
            reply = receive(connection)
            if reply is not None and "pid" in reply:
                connection.settimeout(None)
                return Fork(int(reply["pid"]), connection)
            connection.close()
            return None if reply is None else str(reply["refused"])
    except OSError:
        pass
    connection.close()
    return None


def run_in_fork_server(arguments: Sequence[str]) -> int | None:
    """Have the fork server run `python -m accelsweep.executor ARGUMENTS`; return the exit code.

    Returns None if there is no fork server or it declines; the caller must then act as the executor.
    """
    fork = request_fork("accelsweep.executor", arguments, import_path=sys.path)
    if isinstance(fork, Fork):
        with fork.connection:
            return _wait(fork)
    if fork is not None:
        sys.stderr.write(f"this process imports torch itself, because the fork server has {fork}\n")
    return None


def _wait(executor: Fork) -> int:
    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(executor.pid, number)

    for number in STOP_SIGNALS:
        signal.signal(number, forward)
    exit_message = receive(executor.connection)
    if exit_message is None:
        sys.stderr.write(f"the executor, process {executor.pid}, was killed\n")
        return EXIT_INCOMPLETE
    return int(exit_message["code"])
