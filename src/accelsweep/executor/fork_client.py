"""Request an executor from the fork server, forward signals to the executor, and return its exit code.

A fork inherits what a fresh interpreter would read for itself, so the server only serves clients whose process
environment (variables, limits, cores, interpreter) is identical to its own.
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
from pathlib import Path
from types import FrameType

from accelsweep.devices.linux import CGROUP_MEMBERSHIP, allowed_cores
from accelsweep.errors import EXIT_INCOMPLETE
from accelsweep.ipc import (
    FORK_SERVER_VARIABLE,
    STOP_SIGNALS,
    address,
    receive,
    same_user,
    send,
    send_descriptors,
)

_IGNORED_VARIABLES = re.compile(
    r"(ACCELSWEEP|MLFLOW|SNAKEMAKE)_.*|PWD|OLDPWD|SHLVL|_|COLUMNS|LINES|TMP|TEMP|TMPDIR|TEMPDIR|PYTHONSAFEPATH"
)
"""Variables that may differ, because no library reads them at import or because `sys.flags` reflects them."""

ProcessState = dict[str, str]


def process_state() -> ProcessState:
    """Return the state that a fork inherits and that libraries may have read at import, by human-readable name."""
    variables = {
        f"variable {name}": value for name, value in os.environ.items() if not _IGNORED_VARIABLES.fullmatch(name)
    }
    limits = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        **variables,
        **{name: str(resource.getrlimit(number)) for name, number in limits.items()},
        "interpreter": f"{sys.executable} {sys.version} {sys.flags}",
        "user": f"{os.getuid()} {os.getgid()} {sorted(os.getgroups())}",
        "cores": str(sorted(allowed_cores())),
        "priority": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "control group": CGROUP_MEMBERSHIP.read_text(),
        "umask": re.findall(r"^Umask:.*$", Path("/proc/self/status").read_text(), re.MULTILINE)[0],
    }


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the names of the entries that differ."""
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def run_in_fork_server(arguments: Sequence[str]) -> int | None:
    """Have the fork server run `python -m accelsweep.executor ARGUMENTS`; return the exit code.

    Returns None if there is no fork server or it declines; the caller must then act as the executor.
    """
    name = os.environ.get(FORK_SERVER_VARIABLE)
    if not name or sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address(name))
            if not same_user(server):
                return None
            send_descriptors(server)
            request = {"arguments": list(arguments), "cwd": str(Path.cwd()), "path": sys.path}
            send(server, {**request, "environment": dict(os.environ), "process_state": process_state()})
            reply = receive(server)
        except OSError:
            return None
        if reply is None:
            return None
        if "pid" in reply:
            return _wait(server, int(reply["pid"]))
    sys.stderr.write(f"this process imports torch itself, because the fork server has {reply['refused']}\n")
    return None


def _wait(server: socket.socket, executor: int) -> int:
    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(executor, number)

    for number in STOP_SIGNALS:
        signal.signal(number, forward)
    exit_message = receive(server)
    if exit_message is None:
        sys.stderr.write(f"the executor, process {executor}, was killed\n")
        return EXIT_INCOMPLETE
    return int(exit_message["code"])
