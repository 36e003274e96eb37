"""Start srun for a run on several nodes: directly, or from inside a container through a proxy on the host.

A container has no srun: the program, its plugins and munge's socket belong to the host. The job therefore starts the
container with `python -m accelsweep.executor.srun CONTAINER... -P -m MODULE BLOCK`. This proxy stays outside, starts an
srun for each request of the executor inside, and passes signals on (docs/design/0010-multiple-nodes-and-containers.md).
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
from accelsweep.ipc import (
    SRUN_PROXY_VARIABLE,
    Signals,
    address,
    receive,
    receive_descriptors,
    same_user,
    send,
    send_descriptors,
)
from accelsweep.json_documents import Frozen, first_error
from accelsweep.schedulers.select import this_job
from accelsweep.signals import exit_code_of

SRUN_END_SECONDS = 20.0
"""How long srun may take to end its step before it is killed."""

_POLL_SECONDS = 60.0  # any relevant event wakes this process earlier

_REQUEST_TIMEOUT_SECONDS = 10.0

_COMMAND_NOT_FOUND = 127


class Srun(Protocol):
    """A running srun: the part of `subprocess.Popen` that we use."""

    @property
    def returncode(self) -> int | None:
        """The exit code as of the last `poll`, negative for a signal; None while srun is running."""

    def poll(self) -> int | None:
        """Return the exit code; None while srun is running."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal, unless srun has ended."""


class SrunRequest(Frozen):
    """A request to start Python with `arguments` once per node, with `cpus` CPU cores and the job's environment.

    The variables in `environment` are added to the job's environment.
    """

    nodes: int
    cpus: int
    arguments: tuple[str, ...]
    environment: dict[str, str]


def start_srun(request: SrunRequest, python: Sequence[str], log: int) -> subprocess.Popen[bytes]:
    """Start srun with `python`, which starts Python on a node; output goes to `log`. srun dies with this process."""
    job = this_job()
    command = None if job is None else job.across_nodes(request.nodes, request.cpus, python)
    if command is None:
        raise AccelsweepError(f"ranks cannot be started on {request.nodes} nodes: this is not a Slurm job")
    return subprocess.Popen(
        [*command, *request.arguments],
        env={**os.environ, **request.environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        process_group=0,
        preexec_fn=partial(linux.die_with_parent, os.getpid()),  # noqa: PLW1509 - an executor has one thread
    )


def connect_to_proxy() -> socket.socket:
    """Return a connection to the srun proxy. Raises NotEnoughDevices, with the remedy, if there is none."""
    name = os.environ.get(SRUN_PROXY_VARIABLE)
    if name is None:
        raise NotEnoughDevices(
            f"site.slurm.container must pass the job's variables on, but {SRUN_PROXY_VARIABLE} is not set here "
            "(podman: --env-host)"
        )
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address(name))
        if not same_user(connection):
            raise ConnectionRefusedError("it belongs to another user")
    except OSError as error:
        connection.close()
        raise NotEnoughDevices(
            f"the process outside the container, which starts ranks on other nodes, cannot be reached ({error}). "
            "site.slurm.container must share the host's network with it (podman: --network=host)"
        ) from None
    return connection


class ProxiedSrun:
    """An srun that the proxy starts and monitors. It ends with this process."""

    def __init__(self, request: SrunRequest, log: int) -> None:
        """Send the request. Raises NotEnoughDevices like `connect_to_proxy`."""
        self.returncode: int | None = None
        self._connection = connect_to_proxy()
        with contextlib.suppress(OSError):  # the first `poll` detects a dead proxy
            send_descriptors(self._connection, (log,))
            send(self._connection, request.model_dump())

    def poll(self) -> int | None:
        """Return srun's exit code; None while srun is running. If the proxy is gone, srun was killed with it.

        If the proxy was told to stop, the signal is also raised in this process before the ranks' exit is examined.
        Slurm signals the ranks before a container passes the signal on, so the run would otherwise appear to have
        crashed.
        """
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            reply = receive(self._connection) or {"code": -signal.SIGKILL}
            self._connection.close()
            self.returncode = int(reply["code"])
            if stop := reply.get("stop"):
                signal.raise_signal(int(stop))
        return self.returncode

    def send_signal(self, sig: int, /) -> None:
        """Have the proxy send a signal to srun."""
        if self.returncode is None:
            with contextlib.suppress(OSError):
                send(self._connection, {"signal": int(sig)})


def main() -> int:
    """Start the container, serve the executor inside it until it ends, and return its exit code."""
    command, signals = sys.argv[1:], Signals()
    name = f"accelsweep-srun-{secrets.token_hex(16)}"
    with signals.caught(), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(name))
        listener.listen()
        listener.setblocking(False)
        container = subprocess.Popen(
            command,
            env={**os.environ, SRUN_PROXY_VARIABLE: name},
            preexec_fn=partial(linux.die_with_parent, os.getpid()),  # noqa: PLW1509 - there is one thread
        )
        code = _Proxy(container, command[:-4], signals).serve(listener)
    return code if code >= 0 else 128 - code


@dataclass
class _Proxy:
    """The proxy. `python` is the command that starts Python in another such container."""

    container: subprocess.Popen[bytes]
    python: Sequence[str]
    signals: Signals
    _stop_forwarded: bool = field(default=False, init=False)

    def serve(self, listener: socket.socket) -> int:
        """Serve one request at a time; return the container's exit code once the container has ended."""
        while (code := self.container.poll()) is None:
            self._wait(listener)
            with contextlib.suppress(BlockingIOError):
                connection, _ = listener.accept()
                with connection:
                    self._serve_request(connection)
        return code

    def _wait(self, connection: socket.socket) -> None:
        """Sleep until something happens; forward a stop signal to the executor, once."""
        self.signals.wait(_POLL_SECONDS, [connection.fileno()])
        if self.signals.stop is not None and not self._stop_forwarded:
            self.container.send_signal(self.signals.stop)
            self._stop_forwarded = True

    def _serve_request(self, connection: socket.socket) -> None:
        connection.settimeout(_REQUEST_TIMEOUT_SECONDS)
        log: list[int] = []
        try:
            if not same_user(connection):
                return
            log = receive_descriptors(connection)
            request = receive(connection)
            if request is not None and log and (code := self._run_srun(request, log[0], connection)) is not None:
                send(connection, {"code": code, "stop": self.signals.stop})  # a container may pass the signal on later
        except OSError as error:
            sys.stderr.write(f"the executor in the container is gone: {error}\n")
        finally:
            for descriptor in log:  # only after the reply, because the end of its log wakes the executor
                os.close(descriptor)

    def _run_srun(self, request: dict[str, object], log: int, connection: socket.socket) -> int | None:
        """Start srun and return its exit code; None if the executor disappeared first."""
        try:
            srun = start_srun(SrunRequest.model_validate(request), self.python, log)
        except ValidationError as error:
            os.write(log, f"the container sent an invalid request for srun: {first_error(error)}\n".encode())
            return _COMMAND_NOT_FOUND
        except (AccelsweepError, OSError) as error:
            os.write(log, f"{error}\n".encode())
            return _COMMAND_NOT_FOUND
        while srun.poll() is None:
            self._wait(connection)
            readable = bool(select.select([connection], [], [], 0)[0])
            message = receive(connection) if readable else None
            if message is not None:
                srun.send_signal(int(message["signal"]))
            elif readable or self.container.poll() is not None:
                srun.terminate()
                try:
                    srun.wait(SRUN_END_SECONDS)
                except subprocess.TimeoutExpired:
                    srun.kill()
                    srun.wait()
                return None
        return srun.returncode


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
