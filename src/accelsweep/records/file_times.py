"""Files of a sweep that are stamped in the future: by a clock that was set back, by another machine's, in a backup.

Snakemake refuses an output that is older than what it was made from, and stamps each output itself. So a file from the
future would fail every command until that time has come. An input of a step is never left in the future.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from accelsweep.records.file_lock import now_on
from accelsweep.records.layout import SweepFolder
from accelsweep.significant_digits import format_duration

_TOLERATED_SECONDS = 60.0


def bring_back(paths: Iterable[Path], place: Path) -> float:
    """Set the stamps that lie in the future to now; return by how many seconds the latest of them was ahead, or 0.

    Now is the earlier of this machine's clock and of the clock that stamps the files in the folder `place`.
    """
    theirs, ahead = now_on(place), 0.0
    now = time.time() if theirs is None else min(theirs, time.time())
    for path in paths:
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours to stamp
            stamp = path.stat().st_mtime
            if stamp > now:
                os.utime(path, (now, now))
                ahead = max(ahead, stamp - now)
    return ahead


def bring_all_back(folder: SweepFolder) -> float:
    """Bring back everything that Snakemake compares of a sweep; return as `bring_back` does."""
    return bring_back(_compared(folder), folder.root)


def clocks_that_differ(folder: SweepFolder, ahead: float) -> Iterator[str]:
    """Yield what to tell the user of clocks; `ahead` is how far into the future files were stamped, in seconds."""
    place = folder.root.relative_to(folder.home)
    theirs = now_on(folder.root)
    if theirs is not None and abs(apart := theirs - time.time()) > _TOLERATED_SECONDS:
        which = "ahead of" if apart > 0 else "behind"
        yield f"warning: the clock of the disk of {place} is {format_duration(abs(apart))} {which} this machine's"
    if ahead > _TOLERATED_SECONDS:
        yield (
            f"warning: files of {place} were stamped {format_duration(ahead)} in the future: a clock was set back, or "
            "another machine's runs ahead. They are stamped now"
        )


def _compared(folder: SweepFolder) -> Iterator[Path]:
    yield from folder.root.glob("blocks/b*.json")
    yield from (folder.manifest, folder.records, folder.findings, folder.copied)
    yield from folder.report.glob("*.*")
