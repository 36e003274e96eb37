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
from pathlib import Path
from typing import Any, NoReturn

from accelsweep.devices import linux
from accelsweep.devices.clock import monotonic
from accelsweep.devices.device_kind import process_group
from accelsweep.devices.kinds import kind_of, telemetry_session
from accelsweep.executor.device_lease import Lease
from accelsweep.ipc import Signals
from accelsweep.measure.series import DeviceReader, HostReader, PackageReader, RankReader, Sampling

SAMPLES_FILE = "samples.jsonl"
"""The file in an attempt's folder that a sampler writes; the record replaces it with a table."""

_ROWS_BETWEEN_WRITES = 20

_PATIENCE_SECONDS = 5.0
"""How long a run's end waits for the sampler's last reading."""


class Sampler:
    """Samples a run, between the start and the end of the with-block, into a file of one JSON document per line.

    The last line contains the reasons for what is missing, and the CPU seconds that sampling took. `process` is the ID
    of the process that samples; None if there is none.
    """

    def __init__(self, path: Path, seconds: float | None, accelerator: str, lease: Lease) -> None:
        """Rows are written to `path` every `seconds`; None does nothing. `lease` contains the run's devices."""
        self._path, self._seconds, self._accelerator, self._lease = path, seconds, accelerator, lease
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
            _sample(self._path, self._seconds, self._accelerator, _identities(self._accelerator, self._lease), pipe)
            code = 0
        except Exception:  # noqa: BLE001  a run without a series is still a run
            traceback.print_exc()
        finally:
            os._exit(code)


def _identities(accelerator: str, lease: Lease) -> Sequence[str]:
    kind = kind_of(accelerator)
    if kind.telemetry is None:
        return ()
    return [gpu.identity for gpu in kind.gpus() or () if gpu.name in lease.names]


def _sample(path: Path, seconds: float, accelerator: str, identities: Sequence[str], pipe: int) -> None:
    sampling = Sampling([HostReader(), PackageReader()])
    groups = set[int]()
    sampling.readers += [
        DeviceReader(number, identity, accelerator, groups) for number, identity in enumerate(identities)
    ]
    rows: list[dict[str, float]] = []
    began, number, pending = monotonic(), 0, b""
    with path.open("w", encoding="utf-8") as file, ExitStack() as stack:
        stack.enter_context(telemetry_session(accelerator))
        while True:
            rows.append(sampling.sample(monotonic()))
            if len(rows) == _ROWS_BETWEEN_WRITES:
                _write(file, rows)
            number += 1
            while (left := began + number * seconds - monotonic()) > 0:
                if not select.select([pipe], [], [], left)[0]:
                    break
                pending += (received := os.read(pipe, 1 << 16))
                *lines, pending = pending.split(b"\n")
                for rank, pid in (map(int, line.split()) for line in lines):
                    sampling.readers.append(RankReader(rank, pid))
                    groups |= {group for group in [process_group(pid)] if group is not None}
                if not received:  # the run has ended
                    if left < seconds / 2:  # counters are too coarse for a rate over less
                        rows.append(sampling.sample(monotonic()))
                    _write(file, rows)
                    file.write(json.dumps({"reasons": sampling.reasons, "cpu_seconds": time.process_time()}) + "\n")
                    return
            number = max(number, int((monotonic() - began) / seconds))  # after a suspend, no readings to catch up with


def _write(file: Any, rows: list[dict[str, float]]) -> None:
    file.writelines(json.dumps(row) + "\n" for row in rows)
    file.flush()
    rows.clear()


def read_samples(path: Path) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """Return the rows that a sampler has written, and its last line; both are empty if there are none."""
    rows, summary = list[dict[str, float]](), dict[str, Any]()
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return rows, summary
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:  # the last one of a sampler that was killed
            sys.stderr.write(f"{path.name}: a line is damaged\n")
            continue
        if "seconds" in document:
            rows.append(document)
        else:
            summary = document
    return rows, summary
