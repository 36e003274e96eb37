"""A rank's heartbeat and step count, in memory-mapped files written by the worker and read by the executor."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from pathlib import Path

from accelsweep.errors import DamagedFile
from accelsweep.files import read_regular

PROGRESS_FILE = "progress"
"""The file in an attempt's folder that stores the number of steps rank 0 has finished."""

_NO_MAPS = frozenset({errno.ENODEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""Errors raised by file systems that do not support shared memory maps, such as 9p and FUSE with direct I/O."""


def shared_memory(file: int, size: int) -> mmap.mmap | bytearray:
    """Map the first `size` bytes of an open file; fall back to private memory, which no reader sees.

    The fallback is for file systems that do not support shared memory maps, because a system call per step would cost
    more than the heartbeat is worth.
    """
    try:
        return mmap.mmap(file, size)
    except OSError as error:
        if error.errno not in _NO_MAPS:
            raise
        return bytearray(size)


_HEARTBEAT = struct.Struct("<qq")  # process id, for debugging; steps since the last pause, 0 while paused


class Heartbeat:
    """Writes a heartbeat. `step` writes to memory without a system call; without a path, heartbeats are discarded."""

    def __init__(self, path: Path | None = None) -> None:
        """Create the file in the paused state, or take over an earlier phase's file.

        If the file system does not support shared memory maps, the rank always appears paused. Raises OSError if the
        disk is full.
        """
        self._process, self._steps = os.getpid(), 0
        self._memory: mmap.mmap | bytearray = bytearray(_HEARTBEAT.size)
        if path is not None:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                os.pwrite(file, _HEARTBEAT.pack(self._process, 0), 0)  # allocate now: a full disk cannot fill a hole
                self._memory = shared_memory(file, _HEARTBEAT.size)
            finally:
                os.close(file)

    def step(self, *, pauses: bool = False) -> None:
        """Count a finished step; set `pauses` if something other than a step follows."""
        self._steps = 0 if pauses else self._steps + 1
        _HEARTBEAT.pack_into(self._memory, 0, self._process, self._steps)

    def pause(self) -> None:
        """Record that something other than a step follows, which may take any amount of time."""
        self.step(pauses=True)


class HeartbeatReader:
    """Reads a heartbeat: polls the file system until the file exists, then only reads memory."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist yet."""
        self._path = path
        self._memory: mmap.mmap | None = None

    @property
    def steps(self) -> int:
        """The steps since the rank's last pause; 0 while it is paused and before its first heartbeat."""
        if self._memory is None:
            try:
                with self._path.open("rb") as file:
                    self._memory = mmap.mmap(file.fileno(), _HEARTBEAT.size, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # absent or still empty
                return 0
        _, steps = _HEARTBEAT.unpack_from(self._memory)
        return int(steps)


_COUNT = struct.Struct("<q")


class StepCount:
    """The number of finished steps, visible to readers of the file immediately, without a system call."""

    def __init__(self, path: Path) -> None:
        """Create the file with a count of 0.

        If the file system does not support shared memory maps, the count stays 0.
        """
        path.write_bytes(_COUNT.pack(0))
        with path.open("r+b") as file:
            self._memory = shared_memory(file.fileno(), _COUNT.size)

    def __call__(self, steps: int) -> None:
        """Write the number of finished steps."""
        _COUNT.pack_into(self._memory, 0, steps)


def read_progress(path: Path) -> int | None:
    """Return the number of finished steps in the file at `path`; None if the file is missing or incomplete."""
    try:
        content = read_regular(path)
    except (FileNotFoundError, DamagedFile):
        return None
    return int(_COUNT.unpack(content)[0]) if len(content) == _COUNT.size else None
