"""Handles modification times in the future, caused by a clock that was set back, another machine's clock, or a backup.

Snakemake rejects an output that is older than its input, and sets the modification times of all outputs itself. A file
dated in the future would therefore make every command fail until that time has passed, so future modification times are
reset on the inputs of every step.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from accelsweep.records.file_lock import disk_time
from accelsweep.records.layout import SweepFolder
from accelsweep.significant_digits import format_duration

_TOLERATED_SECONDS = 60.0


def clamp_future_times(paths: Iterable[Path], place: Path) -> float:
    """Set modification times in the future to now; return how many seconds the latest was ahead, or 0.

    "Now" is the earlier of this machine's clock and the clock that timestamps files in the folder `place`.
    """
    from_disk, ahead = disk_time(place), 0.0
    now = time.time() if from_disk is None else min(from_disk, time.time())
    for path in paths:
        with contextlib.suppress(OSError):  # removed in the meantime, or owned by another user
            modified = path.stat().st_mtime
            if modified > now:
                os.utime(path, (now, now))
                ahead = max(ahead, modified - now)
    return ahead


def clamp_sweep_times(folder: SweepFolder) -> float:
    """Call `clamp_future_times` for all files of the sweep whose times Snakemake compares."""
    files = (folder.manifest, folder.records, folder.findings, folder.copied)
    return clamp_future_times(
        (*folder.root.glob("blocks/b*.json"), *files, *folder.report.glob("*.*")),
        folder.root,
    )


def clock_warnings(folder: SweepFolder, ahead: float) -> Iterator[str]:
    """Yield warnings about clocks that differ; `ahead` is what `clamp_sweep_times` returned, in seconds."""
    place = folder.root.relative_to(folder.home)
    from_disk = disk_time(folder.root)
    if from_disk is not None and abs(difference := from_disk - time.time()) > _TOLERATED_SECONDS:
        direction = "ahead of" if difference > 0 else "behind"
        yield (
            f"warning: the clock of the file system of {place} is {format_duration(abs(difference))} {direction} this "
            "machine's"
        )
    if ahead > _TOLERATED_SECONDS:
        yield (
            f"warning: files in {place} were stamped {format_duration(ahead)} in the future: a clock was set back, or "
            "another machine's runs ahead. They have been set to the current time"
        )
