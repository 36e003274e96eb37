"""The errors that a user may meet: each names the fault, its place and the key that mends it, and has an exit code."""

from __future__ import annotations

import difflib
import errno
import os
import shlex
from collections.abc import Iterable
from pathlib import Path

EXIT_OK = 0
"""Every planned run has an answer; with `--fail-if`, all was judged and no interval supports a regression."""

EXIT_INCOMPLETE = 1
"""Some runs have no answer, a gate could not judge, or something failed, which the message names."""

EXIT_INPUT = 2
"""The input is wrong: the message names the fault, its place, and the nearest right word. Nothing was written."""

EXIT_REGRESSION = 3
"""`compare --fail-if` or `ab --fail-if` found a regression that the intervals support, or `fleet` a sick node."""

EXIT_INTERRUPTED = 130
"""Ctrl-C, SIGTERM or SIGHUP; the same command goes on."""


REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO})
"""Errors of a disk that does not read or write: all of them have the same remedy."""


class AccelsweepError(Exception):
    """An error with a message meant for the user; `exit_code` is the command line's exit code for it."""

    exit_code = EXIT_INCOMPLETE


class InputError(AccelsweepError):
    """The user's input (override, config, name, price) is wrong. Raised before anything is written."""

    exit_code = EXIT_INPUT


class DamagedFile(AccelsweepError):
    """A file of ours is truncated, altered, of another kind or of another format. It is named, never used."""

    def __init__(self, path: Path, why: str) -> None:
        """`path` is the file, `why` its fault."""
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class NewerFile(InputError):
    """A file of ours is whole, but this version cannot read it. It is refused, and never set aside."""

    def __init__(self, path: Path, ours: str, later: str | None, what: str) -> None:
        """`later` is the version that wrote the file at `path`, None where it is not known to be later than `ours`."""
        writer = f"accelsweep {later}" if later else "another version of accelsweep"
        remedy = f"install accelsweep {later}" if later else "use the version that measured this sweep"
        super().__init__(f"{path}: {writer} wrote it, and this is {ours}, which does not know {what}; {remedy}")


class Unsupported(Exception):
    """A run that cannot be done here; the message says why. It is an answer, not a failure."""


class AbsentDevice(Exception):
    """A device that the plan's inventory promises is not there: a fault of the machine, so the run is tried again."""


def words_of(error: OSError) -> str:
    """Return what the operating system said, with the remedy where a disk refused, or where no folder is."""
    if isinstance(error, FileNotFoundError) and (gone := _working_folder_gone()):
        return gone
    if isinstance(error, NotADirectoryError | FileExistsError) and error.filename:
        path = Path(os.fsdecode(error.filename))
        stranger = next((one for one in (path, *path.parents) if os.path.lexists(one) and not one.is_dir()), None)
        if stranger is not None:
            away = shlex.join(["mv", str(stranger), f"{stranger}.old"])
            return f"{error}: {stranger} is no folder. Move it away: {away}"
    remedy = "; make the folder writable or make room on its disk" if error.errno in REFUSALS else ""
    return f"{error}{remedy}"


def _working_folder_gone() -> str | None:
    """Return the words for a working folder that was deleted; None where it is there."""
    try:
        os.getcwd()  # noqa: PTH109 - Path.cwd does no more
    except FileNotFoundError:
        place = os.environ.get("PWD", "")
        there = f"cd {shlex.quote(place)}" if place and Path(place).is_dir() else "cd to a folder that exists"
        return f"the working folder {place} was deleted or replaced while this shell stood in it: {there}"
    return None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the known word closest to `word`, or an empty string if none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
