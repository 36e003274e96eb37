"""A rank's sign of life: the steps of its present phase, in mapped memory that its supervisor reads.

Only steps are signs. Building, compiling, downloading and validating have none. So a rank is at rest until the first
step of a phase is done, and whenever something else than a step is to come.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from pathlib import Path

_NO_MAPS = frozenset({errno.ENODEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What file systems answer that have no shared memory maps, such as 9p, and FUSE with direct input and output."""


def shared_memory(file: int, size: int) -> mmap.mmap | bytearray:
    """Return the first `size` bytes of an open file as memory; on a disk without shared maps, memory of our own.

    What is written to the latter nobody sees. A system call for each step would cost more than such a sign is worth.
    """
    try:
        return mmap.mmap(file, size)
    except OSError as error:
        if error.errno not in _NO_MAPS:
            raise
        return bytearray(size)


_PULSE = struct.Struct("<qq")  # process id, for whoever looks; steps since the last rest, 0 for a rest


class Pulse:
    """The writer's side. `beat` is a write to memory, without a system call; without a path nobody hears it."""

    def __init__(self, path: Path | None = None) -> None:
        """Make the file, at rest, or take an earlier phase's over. Raises OSError where there is no room for it.

        On a disk without shared memory maps the rank stays at rest for all who listen.
        """
        self._process, self._steps = os.getpid(), 0
        self._memory: mmap.mmap | bytearray = bytearray(_PULSE.size)
        if path is not None:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                os.pwrite(file, _PULSE.pack(self._process, 0), 0)  # a hole could not be filled once the disk is full
                self._memory = shared_memory(file, _PULSE.size)
            finally:
                os.close(file)

    def beat(self, *, rests: bool = False) -> None:
        """Say that a step is done. It `rests` where something else than a step follows."""
        self._steps = 0 if rests else self._steps + 1
        _PULSE.pack_into(self._memory, 0, self._process, self._steps)

    def rest(self) -> None:
        """Say that something else than a step follows, which may take any time."""
        self.beat(rests=True)


class Heard:
    """The reader's side: it asks the file system until the file is there, and then only memory."""

    def __init__(self, path: Path) -> None:
        """`path` need not exist yet."""
        self._path = path
        self._memory: mmap.mmap | None = None

    @property
    def steps(self) -> int:
        """The steps since the rank last rested; 0 while it rests, and before its first sign."""
        if self._memory is None:
            try:
                with self._path.open("rb") as file:
                    self._memory = mmap.mmap(file.fileno(), _PULSE.size, access=mmap.ACCESS_READ)
            except (OSError, ValueError):  # not there yet, or still empty
                return 0
        _, steps = _PULSE.unpack_from(self._memory)
        return int(steps)
