"""An srun, for a supervisor that can call it and for one that cannot.

In a container there is none: the program, its plugins and munge's socket belong to the host. A supervisor there asks
the process that stays outside, and signals it, over a socket (see outside.py).
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
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pydantic import ValidationError

from accelsweep.devices import linux
from accelsweep.errors import AccelsweepError
from accelsweep.executor.device_lease import NotEnoughDevices
from accelsweep.executor.ipc import (
    OUTSIDE_VARIABLE,
    Signals,
    address,
    receive,
    receive_streams,
    same_user,
    send,
    send_streams,
)
from accelsweep.json_documents import Frozen, first_wrong
from accelsweep.schedulers.select import this_job
from accelsweep.signals import answer

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


# A container's way to other nodes: `python -m accelsweep.executor.srun CONTAINER... -P -m MODULE BLOCK`.

_WAIT_SECONDS = 60.0  # whatever matters wakes us before

_PATIENCE_SECONDS = 10.0

_NOT_STARTED = 127  # a shell's code for a command that it cannot start


def main() -> int:
    """Start the container and serve its supervisor until its end; return its exit code."""
    command, signals = sys.argv[1:], Signals()
    name = f"accelsweep-outside-{secrets.token_hex(16)}"
    with signals.caught(), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(name))
        listener.listen()
        listener.setblocking(False)
        inside = subprocess.Popen(
            command,
            env={**os.environ, OUTSIDE_VARIABLE: name},
            preexec_fn=partial(linux.die_with_parent, os.getpid()),  # noqa: PLW1509 - there is one thread
        )
        code = _Outside(inside, command[:-4], signals).serve(listener)
    return code if code >= 0 else 128 - code


@dataclass
class _Outside:
    """`inside` is the container's process, and `python` the words that start Python in another one."""

    inside: subprocess.Popen[bytes]
    python: Sequence[str]
    signals: Signals
    _told: bool = field(default=False, init=False)

    def serve(self, listener: socket.socket) -> int:
        """Start what the supervisor asks for, one srun at a time; return its exit code when it has ended."""
        while (code := self.inside.poll()) is None:
            self._wait(listener)
            with contextlib.suppress(BlockingIOError):
                connection, _ = listener.accept()
                with connection:
                    self._answer(connection)
        return code

    def _wait(self, connection: socket.socket) -> None:
        """Sleep until something happens; hand a wish to stop on to the supervisor, once."""
        self.signals.wait(_WAIT_SECONDS, [connection.fileno()])
        if self.signals.stop is not None and not self._told:
            self.inside.send_signal(self.signals.stop)
            self._told = True

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_PATIENCE_SECONDS)
        log: list[int] = []
        try:
            if not same_user(connection):
                return
            log = receive_streams(connection)
            asked = receive(connection)
            if asked is not None and log and (code := self._to_the_end(asked, log[0], connection)) is not None:
                send(connection, {"code": code, "stop": self.signals.stop})  # the container may be later with it
        except OSError as error:  # of a supervisor that has gone, which asks no more
            sys.stderr.write(f"the supervisor in the container is gone: {error}\n")
        finally:
            for descriptor in log:  # after the code: the end of its log wakes the supervisor
                os.close(descriptor)

    def _to_the_end(self, asked: dict[str, object], log: int, connection: socket.socket) -> int | None:
        """Start srun and return its exit code; None if whoever asked for it has gone before its end."""
        try:
            srun = start_srun(SrunWish.model_validate(asked), self.python, log)
        except ValidationError as error:
            os.write(log, f"the container asked for no srun that can be started: {first_wrong(error)}\n".encode())
            return _NOT_STARTED
        except (AccelsweepError, OSError) as error:
            os.write(log, f"{error}\n".encode())
            return _NOT_STARTED
        while srun.poll() is None:
            self._wait(connection)
            heard = bool(select.select([connection], [], [], 0)[0])
            message = receive(connection) if heard else None
            if message is not None:
                srun.send_signal(int(message["signal"]))
            elif heard or self.inside.poll() is not None:
                _end(srun)
                return None
        return srun.returncode


def _end(srun: subprocess.Popen[bytes]) -> None:
    srun.terminate()
    try:
        srun.wait(SRUN_END_SECONDS)
    except subprocess.TimeoutExpired:
        srun.kill()
        srun.wait()


if __name__ == "__main__":
    sys.exit(answer(main))
