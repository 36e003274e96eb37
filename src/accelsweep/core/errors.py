"""The errors that a user may meet: each says what is wrong, where, and which knob mends it, and has an exit code."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

EXIT_OK = 0
EXIT_INCOMPLETE = 1
EXIT_INPUT = 2
EXIT_REGRESSION = 3
EXIT_INTERRUPTED = 130


class AccelsweepError(Exception):
    """An error with a message meant for the user; `exit_code` is what the command line returns for it."""

    exit_code = EXIT_INCOMPLETE


class InputError(AccelsweepError):
    """The user's input (override, config, name, price) is wrong. Raised before anything is written."""

    exit_code = EXIT_INPUT


class DamagedFile(AccelsweepError):
    """A file of ours is truncated, altered, of another kind or of another format. It is named, never used."""

    def __init__(self, path: Path, why: str) -> None:
        """`path` is the file, `why` what is wrong with it."""
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Unsupported(Exception):
    """A run that cannot be done here; the message says why. It is an answer, not a failure."""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the known word closest to `word`, or an empty string if none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{close[0]}'?)" if close else ""
