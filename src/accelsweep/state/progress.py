"""The number of finished steps, shared with the supervisor through eight bytes of mapped memory."""

from __future__ import annotations

import struct
from pathlib import Path

from accelsweep.base.documents import read_whole
from accelsweep.base.errors import DamagedFile
from accelsweep.state.attempts import RunFolder
from accelsweep.state.file_names import LOG_FILE, PROGRESS_FILE
from accelsweep.state.folders import SweepFolder
from accelsweep.state.pulse import Heard, shared_memory

_COUNT = struct.Struct("<q")


class StepCount:
    """Call it with the number of finished steps; readers of the file see it at once, without a system call here."""

    def __init__(self, path: Path) -> None:
        """Make the file, with 0 in it, which it keeps on a disk without shared memory maps."""
        path.write_bytes(_COUNT.pack(0))
        with path.open("r+b") as file:
            self._memory = shared_memory(file.fileno(), _COUNT.size)

    def __call__(self, steps: int) -> None:
        """Show `steps` finished steps."""
        _COUNT.pack_into(self._memory, 0, steps)


def steps_done(folder: SweepFolder, run: str) -> int | None:
    """Return the number of steps that the present attempt at `run` has done; None where none has begun to count."""
    place = RunFolder(folder.run(run), run)
    number = place.latest()
    return read_progress(place.attempt(number) / PROGRESS_FILE) if place.is_open(number) else None


def signs_of(folder: SweepFolder, run: str) -> tuple[int, ...]:
    """Return numbers of which one changes whenever the present attempt at `run` moves.

    They are the attempt's, the steps in the window and in the present phase, and the bytes in its log. Steps that
    another machine has mapped into its memory may not be seen here.
    """
    place = RunFolder(folder.run(run), run)
    number = place.latest()
    attempt = place.attempt(number)
    try:
        log_bytes = (attempt / LOG_FILE).stat().st_size
    except OSError:
        log_bytes = 0
    return number, read_progress(attempt / PROGRESS_FILE) or 0, Heard(attempt / "pulse-0").steps, log_bytes


def read_progress(path: Path) -> int | None:
    """Return the number of finished steps that the file at `path` shows; None where there is no such file (yet)."""
    try:
        content = read_whole(path)
    except (FileNotFoundError, DamagedFile):
        return None
    return int(_COUNT.unpack(content)[0]) if len(content) == _COUNT.size else None
