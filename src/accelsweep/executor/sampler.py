"""Reads the machine, the devices and the ranks of a run at regular intervals, in a process beside the ranks.

A thread in a rank would compete with the training for the interpreter, and a thread in the executor would make forking
ranks unsafe. The process is forked, so it imports nothing; it ends when the executor closes its pipe, or dies.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

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

_PATIENCE_SECONDS = 5.0
"""How long a run's end waits for the sampler's last reading."""


class Sampler:
    """Samples a run, between the start and the end of the with-block, into a file of one JSON document per line.

    The first line contains the time since 1970 at which the monotonic clock was 0, the last one the reasons for what is
    missing, and the CPU seconds that sampling took. `process` is the ID of the process that samples, or None.
    """

    def __init__(
        self,
        folder: Path,
        seconds: float | None,
        accelerator: str,
        lease: Lease,
        node: int = 0,
        *,
        whole_process: bool = False,
    ) -> None:
        """Rows are written to a file in `folder` every `seconds`; None does nothing. `lease` has the run's devices.

        If `whole_process`, a rank only starts the user's command, so its descendants are read as well.
        """
        self._path, self._node, self._whole_process = samples_path(folder, node), node, whole_process
        self._seconds, self._accelerator, self._lease = seconds, accelerator, lease
        self.process: int | None = None
        self._pipe = -1

    def __enter__(self) -> Sampler:
        """Start sampling the machine and the devices."""
        if self._seconds is None or sys.platform != "linux":  # elsewhere, a fork of this process may not go on
            return self
        reader, self._pipe = os.pipe()
        parent = os.getpid()
        with Signals.blocked():  # until the child has its own handlers
            process = os.fork()
            if process == 0:
                self._run_child(reader, parent)
        os.close(reader)
        self.process = process
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            os.close(self._pipe)
            with suppress(ChildProcessError):
                self._wait(self.process)

    def _wait(self, process: int) -> None:
        """Wait for the process, but not for a driver that does not answer any more."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while os.waitpid(process, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(process, signal.SIGKILL)
                return
            time.sleep(0.005)

    def watch(self, ranks: Mapping[int, int]) -> None:
        """Sample these ranks too, given their process IDs."""
        if self.process is not None:
            with suppress(BrokenPipeError):
                os.write(self._pipe, "".join(f"{rank} {pid}\n" for rank, pid in ranks.items()).encode())

    def _run_child(self, pipe: int, parent: int) -> NoReturn:
        code = 1
        try:
            os.setpgid(0, 0)  # Ctrl-C and the end of the ranks' group are none of its business
            linux.die_with_parent(parent)
            Signals.reset_in_child()
            for descriptor in (self._pipe, *self._lease.descriptors):  # a driver that hangs must not keep the lease
                os.close(descriptor)
            assert self._seconds is not None, "the caller has checked"
            readers = _readers(self._accelerator, device_identities(self._lease), self._node, self._whole_process)
            _sample(self._path, self._seconds, self._accelerator, readers, pipe)
            code = 0
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


@dataclass
class _Readers:
    """What is sampled, the process IDs of the ranks, and whether the ranks' descendants are read as well."""

    sampling: Sampling
    ranks: set[int]
    descendants: bool


def _readers(accelerator: str, identities: Sequence[str], node: int, descendants: bool) -> _Readers:
    ranks = set[int]()
    first = node * len(identities)
    devices = [DeviceReader(first + index, name, accelerator, ranks) for index, name in enumerate(identities)]
    return _Readers(Sampling([HostReader(node), PackageReader(node), *devices]), ranks, descendants)


def _sample(path: Path, seconds: float, accelerator: str, readers: _Readers, pipe: int) -> None:
    sampling = readers.sampling
    rows: list[dict[str, float]] = []
    began, number, pending = monotonic(), 0, b""
    with path.open("w", encoding="utf-8") as file, ExitStack() as stack:
        stack.enter_context(telemetry_session(accelerator))
        file.write(json.dumps({"epoch": time.time() - monotonic()}) + "\n")
        while True:
            rows.append(sampling.sample(last := monotonic()))
            if number == 0:
                set_up = time.process_time()  # which includes loading the driver's library
            if len(rows) == _ROWS_BETWEEN_WRITES:
                _write(file, rows)
            number += 1
            while (left := began + number * seconds - monotonic()) > 0:
                if not select.select([pipe], [], [], left)[0]:
                    break
                pending += (received := os.read(pipe, 1 << 16))
                *lines, pending = pending.split(b"\n")
                for rank, pid in (map(int, line.split()) for line in lines):
                    sampling.readers.append(RankReader(rank, pid, descendants=readers.descendants))
                    readers.ranks.add(pid)
                if not received:  # the run has ended
                    if monotonic() - last > seconds / 2 or number == 1:  # counters are too coarse for a rate over less
                        rows.append(sampling.sample(monotonic()))
                    _write(file, rows)
                    cpu_seconds = time.process_time() - set_up
                    file.write(json.dumps({"reasons": sampling.reasons, "cpu_seconds": cpu_seconds}) + "\n")
                    return
            number = max(number, int((monotonic() - began) / seconds))  # after a suspend, no readings to catch up with


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
