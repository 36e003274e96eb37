"""User-facing errors, each with an exit code. Messages name the fault, its location and the key that fixes it."""

from __future__ import annotations

import difflib
import errno
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

EXIT_OK = 0
"""Every planned run has an answer, and at least one could run.

With `--fail-if`, everything was judged, and no interval supports a regression.
"""

EXIT_INCOMPLETE = 1
"""Some runs have no answer, nothing could run, a gate was inconclusive, or something failed; a message says."""

EXIT_INPUT = 2
"""The input is invalid: the message names the fault, its location and the closest valid word. Nothing was written."""

EXIT_REGRESSION = 3
"""`--fail-if` found a regression that the intervals support, or a feature's gate failed."""

EXIT_INTERRUPTED = 130
"""Ctrl-C, SIGTERM or SIGHUP; the same command resumes."""


DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})
"""Errors raised when a disk rejects reads or writes; they share one remedy."""


class AccelsweepError(Exception):
    """An error with a message meant for the user; `exit_code` is the command line's exit code for it."""

    exit_code = EXIT_INCOMPLETE


class InputError(AccelsweepError):
    """The user's input (override, config, name, price) is wrong. Raised before anything is written."""

    exit_code = EXIT_INPUT


class DamagedFile(AccelsweepError):
    """One of our files is truncated, altered, or of a different kind or format. It is reported and never used."""

    def __init__(self, path: Path, reason: str) -> None:
        """`reason` describes what is wrong with the file at `path`."""
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class OlderFile(InputError):
    """One of our files was written by a version before 0.2 in a format no longer supported. It is never set aside."""

    def __init__(self, path: Path, ours: str, earlier: str) -> None:
        """`earlier` is the version that wrote the file."""
        super().__init__(
            f"{path}: written by accelsweep {earlier}, but {ours} cannot read files from before 0.2; measure again "
            f"under another name (--name), or install accelsweep {earlier}"
        )


class NewerFile(InputError):
    """One of our files is intact, but this version cannot read it. It is rejected and never set aside."""

    def __init__(self, path: Path, ours: str, later: str | None, what: str) -> None:
        """`later` is the version that wrote the file, or None if it is not known to be later than `ours`."""
        writer = f"accelsweep {later}" if later else "another version of accelsweep"
        remedy = f"install accelsweep {later}" if later else "use the version that measured this sweep"
        super().__init__(f"{path}: written by {writer}, but this is {ours}, which does not know {what}; {remedy}")


class Unsupported(Exception):
    """A run is impossible on this machine; the message explains why. This is an outcome, not a failure."""


class MissingDevice(Exception):
    """A device from the plan's inventory is missing. This is treated as a machine fault, so the run is retried."""


def describe_os_error(error: OSError) -> str:
    """Return the operating system's message, with a remedy if a read or write was rejected or a folder is missing."""
    if isinstance(error, FileNotFoundError) and (deleted := _deleted_working_folder()):
        return deleted
    if isinstance(error, NotADirectoryError | FileExistsError) and error.filename:
        path = Path(os.fsdecode(error.filename))
        file = next((part for part in (path, *path.parents) if os.path.lexists(part) and not part.is_dir()), None)
        if file is not None:
            return f"{error}: {file} is not a folder. Move it away: {shlex.join(['mv', str(file), f'{file}.old'])}"
    remedy = "; make the folder writable or free up space on its disk" if error.errno in DISK_ERRORS else ""
    return f"{error}{remedy}"


def _deleted_working_folder() -> str | None:
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd does no more
    except FileNotFoundError:
        folder = os.environ.get("PWD", "")
        remedy = f"cd {shlex.quote(folder)}" if folder and Path(folder).is_dir() else "cd to a folder that exists"
        return f"the working folder {folder} was deleted or replaced while this shell was in it: {remedy}"
    return None


RENAMED = {
    "head": "driver",
    "cell": "setting",
    "frontier": "largest_batch",
    "memory_frontier": "largest_batch",
    "side_by_side": "independent_ranks",
}
"""Words renamed since 0.1, mapped to their current names so that messages can suggest them."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the known word closest to `word`, or "" if no word is close."""
    known = list(known)
    renamed = RENAMED.get(word)
    close = [renamed] if renamed in known else difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
