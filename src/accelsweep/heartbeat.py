"""A rank's heartbeat and its number of finished steps: mapped memory that the worker writes and the executor reads."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from pathlib import Path

from accelsweep.errors import DamagedFile
from accelsweep.files import read_regular

PROGRESS_FILE = "progress"
"""The file of an attempt that holds rank 0's number of finished steps."""

_NO_MAPS = frozenset({errno.ENODEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What file systems without shared memory maps answer, such as 9p, and FUSE with direct I/O."""


def shared_memory(file: int, size: int) -> mmap.mmap | bytearray:
    """Return the first `size` bytes of an open file as shared memory; where the disk has none, private memory.

    Nobody sees what is written to the latter. A system call for each step would cost more than a heartbeat is worth.
    """
    try:
        return mmap.mmap(file, size)
    except OSError as error:
        if error.errno not in _NO_MAPS:
            raise
        return bytearray(size)


_HEARTBEAT = struct.Struct("<qq")  # process id, for whoever looks; steps since the last pause, 0 for a pause


class Heartbeat:
    """The writer's side. `step` is a write to memory, without a system call; without a path it goes nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        """Make the file, paused, or take over an earlier phase's. Raises OSError where there is no room for it.

        On a disk without shared memory maps the rank always looks paused.
        """
        self._process, self._steps = os.getpid(), 0
        self._memory: mmap.mmap | bytearray = bytearray(_HEARTBEAT.size)
        if path is not None:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                os.pwrite(file, _HEARTBEAT.pack(self._process, 0), 0)  # a hole could not be filled on a full disk
                self._memory = shared_memory(file, _HEARTBEAT.size)
            finally:
                os.close(file)

    def step(self, *, pauses: bool = False) -> None:
        """Count a finished step; with `pauses`, something else than a step follows."""
        self._steps = 0 if pauses else self._steps + 1
        _HEARTBEAT.pack_into(self._memory, 0, self._process, self._steps)

    def pause(self) -> None:
        """Note that something else than a step follows, which may take any time."""
        self.step(pauses=True)


class HeartbeatReader:
    """The reader's side: it asks the file system until the file is there, and from then on only reads memory."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist yet."""
        self._path = path
        self._memory: mmap.mmap | None = None

    @property
    def steps(self) -> int:
        """The steps since the rank's last pause; 0 while it pauses, and before its first heartbeat."""
        if self._memory is None:
            try:
                with self._path.open("rb") as file:
                    self._memory = mmap.mmap(file.fileno(), _HEARTBEAT.size, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # not there yet, or still empty
                return 0
        _, steps = _HEARTBEAT.unpack_from(self._memory)
        return int(steps)


_COUNT = struct.Struct("<q")


class StepCount:
    """The number of finished steps. Readers of the file see it at once, without a system call here."""

    def __init__(self, path: Path) -> None:
        """Make the file with 0 in it, which it keeps on a disk without shared memory maps."""
        path.write_bytes(_COUNT.pack(0))
        with path.open("r+b") as file:
            self._memory = shared_memory(file.fileno(), _COUNT.size)

    def __call__(self, steps: int) -> None:
        """Write the number of finished steps."""
        _COUNT.pack_into(self._memory, 0, steps)


def read_progress(path: Path) -> int | None:
    """Return the number of finished steps in the file at `path`; None where there is no such file (yet)."""
    try:
        content = read_regular(path)
    except (FileNotFoundError, DamagedFile):
        return None
    return int(_COUNT.unpack(content)[0]) if len(content) == _COUNT.size else None
