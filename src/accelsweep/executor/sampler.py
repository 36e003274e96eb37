"""Reads the machine, the devices and the ranks of a run at regular intervals, in a process beside the ranks.

A thread in a rank would compete with the training for the interpreter, and a thread in the executor would make forking
ranks unsafe. The process is forked, so it imports nothing; it ends when the executor closes the connection, or dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self

from accelsweep.devices import linux
from accelsweep.devices.clock import monotonic
from accelsweep.devices.kinds import kind_of, telemetry_session
from accelsweep.executor.device_lease import Lease
from accelsweep.ipc import Signals
from accelsweep.measure.series import DeviceReader, HostReader, PackageReader, RankReader, Sampling

SAMPLES_FILE = "samples.jsonl"
"""The file in an attempt's folder that a sampler writes; the record replaces it with a table."""


def samples_path(folder: Path, node: int = 0) -> Path:
    """Return the file that the sampler on this node of a run writes."""
    return folder / (f"{node}.{SAMPLES_FILE}" if node else SAMPLES_FILE)


_ROWS_BETWEEN_WRITES = 20

_MESSAGE_BYTES = 1 << 16

_PATIENCE_SECONDS = 5.0
"""How long a run's end waits for the last reading, and a sampler's end for its process."""


class Sampler:
    """Samples one run after another, in a process that is forked for the first one and ends with the with-block.

    With a process for each run, every run would wait for a fork of this process, which has torch loaded, and for its
    end. `process` is the ID of the process, or None.
    """

    def __init__(self) -> None:
        """No process is running yet."""
        self.process: int | None = None
        self._connection: socket.socket | None = None

    @contextmanager
    def sample(
        self,
        folder: Path,
        seconds: float | None,
        accelerator: str,
        lease: Lease,
        node: int = 0,
        *,
        whole_process: bool = False,
    ) -> Iterator[Callable[[Mapping[int, int]], None]]:
        """Sample the machine and the leased devices inside the with-block, every `seconds`; None does nothing.

        Yields a function that has ranks sampled too, given their process IDs. If `whole_process`, a rank only starts
        the user's command, so its descendants are read as well. The samples are written to a file in `folder`, one JSON
        document per line: the first contains the time since 1970 at which the monotonic clock was 0, the last one the
        reasons for what is missing, and the CPU seconds that sampling took.
        """
        if seconds is None or sys.platform != "linux":  # elsewhere, a fork of this process may not go on
            yield lambda _ranks: None
            return
        if self._connection is None:
            self._connection = self._start(lease)
        request = _Request(str(samples_path(folder, node)), seconds, accelerator, lease.names, node, whole_process)
        self._send(asdict(request))
        try:
            yield self._send
        finally:
            self._send(None)
            self._await_last_reading()

    def __enter__(self) -> Self:
        """Return the sampler."""
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self, lease: Lease) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_PATIENCE_SECONDS)
        parent = os.getpid()
        with theirs, Signals.blocked():  # until the child has its own handlers
            self.process = os.fork()
            if self.process == 0:
                ours.close()
                _run_child(theirs, parent, lease)
        return ours

    def _send(self, message: Mapping[Any, Any] | None) -> None:
        if self._connection is not None:
            with suppress(OSError):  # a sampler that was killed, or hangs in a driver
                self._connection.send(json.dumps(message).encode())

    def _await_last_reading(self) -> None:
        """Wait until the run's file is complete, but not for a driver that does not answer any more."""
        assert self._connection is not None, "a run is being sampled"
        try:
            alive = bool(self._connection.recv(1))
        except TimeoutError:
            assert self.process is not None
            os.kill(self.process, signal.SIGKILL)
            alive = False
        except ConnectionError:
            alive = False
        if not alive:  # the next run gets another process
            self._end()

    def _end(self) -> None:
        if self._connection is None or self.process is None:
            return
        self._connection.close()
        end = time.monotonic() + _PATIENCE_SECONDS
        with suppress(ChildProcessError):
            while os.waitpid(self.process, os.WNOHANG) == (0, 0):
                if time.monotonic() > end:
                    os.kill(self.process, signal.SIGKILL)
                    break
                time.sleep(0.005)
        self._connection = self.process = None


@dataclass(frozen=True)
class _Request:
    """What to sample: the arguments of `Sampler.sample`, with the file and the names of the leased devices."""

    path: str
    seconds: float
    accelerator: str
    devices: Sequence[str]
    node: int
    whole_process: bool


def _run_child(connection: socket.socket, parent: int, lease: Lease) -> NoReturn:
    """Sample one run after another, until the connection is closed."""
    code = 1
    try:
        os.setpgid(0, 0)  # Ctrl-C and the end of the ranks' group are none of its business
        linux.die_with_parent(parent)
        Signals.reset_in_child()
        for descriptor in lease.descriptors:  # a driver that hangs must not keep the lease
            os.close(descriptor)
        while message := connection.recv(_MESSAGE_BYTES):
            _sample(_Request(**json.loads(message)), connection)
            connection.send(b".")
        code = 0
    except ConnectionError:
        pass  # it was given up
    except Exception:  # noqa: BLE001  a run without a series is still a run
        traceback.print_exc()
    finally:
        os._exit(code)


def device_identities(lease: Lease) -> Sequence[str]:
    """Return the names of the leased devices in their driver's telemetry; none if their kind has no telemetry."""
    kind = kind_of(lease.accelerator)
    if kind.telemetry is None:
        return ()
    return [gpu.identity for gpu in kind.gpus() or () if gpu.name in lease.names]


def _sample(request: _Request, connection: socket.socket) -> None:
    """Sample a run until None is received."""
    ranks = set[int]()
    identities = device_identities(Lease(request.accelerator, tuple(request.devices), ()))
    first = request.node * len(identities)
    devices = [DeviceReader(first + index, name, request.accelerator, ranks) for index, name in enumerate(identities)]
    sampling = Sampling([HostReader(request.node), PackageReader(request.node), *devices])
    rows: list[dict[str, float]] = []
    began, number = monotonic(), 0
    with Path(request.path).open("w", encoding="utf-8") as file, telemetry_session(request.accelerator):
        file.write(json.dumps({"epoch": time.time() - monotonic()}) + "\n")
        while True:
            rows.append(sampling.sample(last := monotonic()))
            if number == 0:
                set_up = time.process_time()  # which includes loading the driver's library
            if len(rows) == _ROWS_BETWEEN_WRITES:
                _write(file, rows)
            number += 1
            while (left := began + number * request.seconds - monotonic()) > 0:
                if not select.select([connection], [], [], left)[0]:
                    break
                named = json.loads(connection.recv(_MESSAGE_BYTES) or "null")
                if named is None:  # the run has ended
                    # counters are too coarse for a rate over less
                    if monotonic() - last > request.seconds / 2 or number == 1:
                        rows.append(sampling.sample(monotonic()))
                    _write(file, rows)
                    cpu_seconds = time.process_time() - set_up
                    file.write(json.dumps({"reasons": sampling.reasons, "cpu_seconds": cpu_seconds}) + "\n")
                    return
                for rank, pid in named.items():
                    sampling.readers.append(RankReader(int(rank), pid, descendants=request.whole_process))
                    ranks.add(pid)
            number = max(number, int((monotonic() - began) / request.seconds))  # do not catch up after a suspend


def _write(file: Any, rows: list[dict[str, float]]) -> None:
    file.writelines(json.dumps(row) + "\n" for row in rows)
    file.flush()
    rows.clear()


@dataclass
class Samples:
    """What was sampled during a run: rows in order of time, reasons for what is missing, and the cost of sampling.

    `cpu_seconds` is that of all readings after the first, whose driver must be loaded; None if a sampler did not get to
    its end.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    cpu_seconds: float | None = None

    @property
    def span(self) -> tuple[float, float] | None:
        """The times of the first and the last row; None if there is no time between them."""
        return (self.rows[0]["seconds"], self.rows[-1]["seconds"]) if len(self.rows) > 1 else None


def read_samples(folder: Path) -> Samples:
    """Return what the samplers have written to an attempt's folder, on the clock of the first node.

    The clocks of several nodes are compared through the time of day.
    """
    found, first_epoch = Samples(), None
    for path in sorted(folder.glob(f"*{SAMPLES_FILE}"), key=lambda path: (path.name != SAMPLES_FILE, path.name)):
        shift, before, cpu_seconds = 0.0, None, 0.0
        for line in path.read_text("utf-8").splitlines():
            try:
                document = json.loads(line)
            except ValueError:  # the last one of a sampler that was killed
                sys.stderr.write(f"{path.name}: a line is damaged\n")
                continue
            if "seconds" in document:
                row = {**document, "seconds": document["seconds"] + shift}
                found.rows.append(row if before is None else {**row, "since": before})
                before = row["seconds"]
            elif "epoch" in document:
                if path.name == SAMPLES_FILE:
                    first_epoch = document["epoch"]
                elif first_epoch is None:  # without the first node, nothing is known about its clock
                    break
                shift, before = document["epoch"] - first_epoch, None
            else:
                found.reasons |= document["reasons"]
                cpu_seconds += document["cpu_seconds"]  # a file has several trials
                found.cpu_seconds = max(found.cpu_seconds or 0.0, cpu_seconds)
    found.rows.sort(key=lambda row: row["seconds"])
    return found


def discard_samples(folder: Path) -> None:
    """Remove what the samplers have written to an attempt's folder, once it is in a table, or of no use."""
    for path in folder.glob(f"*{SAMPLES_FILE}"):
        path.unlink()


def append_samples(folder: Path, source: Path) -> None:
    """Append what was sampled in the folder `source`, such as that of a trial, to the files in `folder`."""
    for path in source.glob(f"*{SAMPLES_FILE}"):
        with (folder / path.name).open("ab") as file:
            file.write(path.read_bytes())
