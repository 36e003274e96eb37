"""The job's side: it asks for a supervisor, hands signals on to it, and ends with its exit code."""

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
from typing import Any

from accelsweep.devices.linux import MEMBERSHIP, allowed_cores
from accelsweep.errors import EXIT_INCOMPLETE
from accelsweep.executor.ipc import FORK_SERVER_VARIABLE, STOPPING, address, receive, same_user, send, send_streams

# The inheritance of a process from its starter. A fork server answers only those who have what it has itself.

_FREE = re.compile(
    r"(ACCELSWEEP|MLFLOW|SNAKEMAKE)_.*|PWD|OLDPWD|SHLVL|_|COLUMNS|LINES|TMP|TEMP|TMPDIR|TEMPDIR|PYTHONSAFEPATH"
)
"""The variables that no library heeds when it is imported, or that the interpreter's flags show: they may differ."""

Inherited = dict[str, str]


def surroundings() -> Inherited:
    """Return what this process inherited and what libraries may have heeded at their import, by its name in words."""
    variables = {f"variable {name}": value for name, value in os.environ.items() if not _FREE.fullmatch(name)}
    limits = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}
    return {
        **variables,
        **{name: str(resource.getrlimit(number)) for name, number in limits.items()},
        "interpreter": f"{sys.executable} {sys.version} {sys.flags}",
        "user": f"{os.getuid()} {os.getgid()} {sorted(os.getgroups())}",
        "cores": str(sorted(allowed_cores())),
        "priority": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "control group": MEMBERSHIP.read_text(),
        "umask": re.findall(r"^Umask:.*$", Path("/proc/self/status").read_text(), re.MULTILINE)[0],
    }


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Return the names of what is not the same in both."""
    return sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))


def ask(arguments: Sequence[str]) -> int | None:
    """Have a supervisor forked for `python -m accelsweep.executor ARGUMENTS`; return its exit code when it has ended.

    None if there is no fork server, or if it refuses: then this process has to be the supervisor itself.
    """
    name = os.environ.get(FORK_SERVER_VARIABLE)
    if not name or sys.platform != "linux":
        return None
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address(name))
            answer = _answer(server, arguments) if same_user(server) else None
        except OSError:
            return None
        if answer is None:
            return None
        if "pid" in answer:
            return _wait(server, int(answer["pid"]))
    sys.stderr.write(f"this process imports torch itself, because the fork server has {answer['refused']}\n")
    return None


def _answer(server: socket.socket, arguments: Sequence[str]) -> dict[str, Any] | None:

    send_streams(server)
    environment = {"environment": dict(os.environ), "surroundings": surroundings()}
    send(server, {"arguments": list(arguments), "cwd": str(Path.cwd()), "path": sys.path, **environment})
    return receive(server)


def _wait(server: socket.socket, supervisor: int) -> int:
    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, number)

    for number in STOPPING:
        signal.signal(number, hand_on)
    ended = receive(server)
    if ended is None:
        sys.stderr.write(f"the supervisor, process {supervisor}, was killed\n")
        return EXIT_INCOMPLETE
    return int(ended["code"])
