"""A container's way to other nodes: `python -m accelsweep.supervise.processes.outside CONTAINER... -P -m MODULE BLOCK`.

This process starts the block's supervisor, MODULE, in the container. It stays outside on the first node, where srun is.
When the supervisor asks, srun starts the same container on each node. Signals go both ways: what Slurm sends here
reaches the supervisor, and what the supervisor wishes reaches srun. It imports no torch.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from pydantic import ValidationError

from accelsweep.base.bounds import first_wrong
from accelsweep.base.entry import answer
from accelsweep.base.errors import AccelsweepError
from accelsweep.machine import linux
from accelsweep.supervise.processes.messages import OUTSIDE_VARIABLE, address, receive, receive_streams, same_user, send
from accelsweep.supervise.processes.srun import SRUN_END_SECONDS, SrunWish, start_srun
from accelsweep.supervise.signals import Signals

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
