"""An srun, for a supervisor that can call it and for one that cannot.

In a container there is none: the program, its plugins and munge's socket belong to the host. A supervisor there asks
the process that stays outside, and signals it, over a socket (see outside.py).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from accelsweep.base.documents import Frozen
from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.this_job import this_job
from accelsweep.machine import linux
from accelsweep.supervise.leases import NotEnoughDevices
from accelsweep.supervise.processes.messages import OUTSIDE_VARIABLE, address, receive, same_user, send, send_streams

SRUN_END_SECONDS = 20.0
"""An srun ends by itself once it has killed its step; after so long it is killed."""


class Srun(Protocol):
    """The process that stands for all that srun starts: `subprocess.Popen`, or what looks like it."""

    @property
    def returncode(self) -> int | None:
        """The exit code as of the last `poll`, negative for a signal; None before the end."""

    def poll(self) -> int | None:
        """Return the exit code, None before the end."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal, unless it has ended."""


class SrunWish(Frozen):
    """The command to start: `program`, Python's arguments, once on each of `nodes`, with `cpus` CPU cores.

    `environment` is added to the job's own.
    """

    nodes: int
    cpus: int
    program: tuple[str, ...]
    environment: dict[str, str]


def start_srun(wish: SrunWish, python: Sequence[str], log: int) -> subprocess.Popen[bytes]:
    """Start srun with the words that start `python` on a node, and `log` for its output. It dies with this process."""
    job = this_job()
    command = None if job is None else job.across_nodes(wish.nodes, wish.cpus, python)
    if command is None:
        raise AccelsweepError(f"nothing here starts ranks on {wish.nodes} nodes: this is no Slurm job")
    return subprocess.Popen(
        [*command, *wish.program],
        env={**os.environ, **wish.environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        process_group=0,
        preexec_fn=partial(linux.die_with_parent, os.getpid()),  # noqa: PLW1509 - a supervisor has one thread
    )


def reach() -> socket.socket:
    """Return a connection to the process outside. Raises NotEnoughDevices with the key that mends it otherwise."""
    name = os.environ.get(OUTSIDE_VARIABLE)
    if name is None:
        raise NotEnoughDevices(
            f"site.slurm.container has to hand the job's variables on, and {OUTSIDE_VARIABLE} is not set here "
            "(podman: --env-host)"
        )
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address(name))
        if not same_user(connection):
            raise ConnectionRefusedError("it is another user's")
    except OSError as error:
        connection.close()
        raise NotEnoughDevices(
            f"the process outside the container, which starts ranks on other nodes, cannot be reached ({error}). "
            "site.slurm.container has to leave the host's network to it (podman: --network=host)"
        ) from None
    return connection


class SrunOutside:
    """An srun that the process outside the container starts and watches. It ends with this process."""

    def __init__(self, wish: SrunWish, log: int) -> None:
        """Ask for it. Raises NotEnoughDevices as `reach` does."""
        self.returncode: int | None = None
        self._connection = reach()
        with contextlib.suppress(OSError):  # whoever is gone by now is noticed at the first `poll`
            send_streams(self._connection, (log,))
            send(self._connection, wish.model_dump())

    def poll(self) -> int | None:
        """Return srun's exit code, None before its end. Where nobody outside is left, it was killed.

        If the process outside was asked to stop, this process is asked, too, before it looks how the ranks ended. A
        container hands a signal on after Slurm has ended the ranks by it: they would seem to have crashed.
        """
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            answer = receive(self._connection) or {"code": -signal.SIGKILL}
            self._connection.close()
            self.returncode = int(answer["code"])
            if stop := answer.get("stop"):
                signal.raise_signal(int(stop))
        return self.returncode

    def send_signal(self, sig: int, /) -> None:
        """Have a signal sent to srun."""
        if self.returncode is None:
            with contextlib.suppress(OSError):
                send(self._connection, {"signal": int(sig)})
