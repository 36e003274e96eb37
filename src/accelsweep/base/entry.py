"""The calls of `python -m accelsweep.MODULE`: one way to read their arguments, and one to report an error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, words_of
from accelsweep.base.secrets import masked
from accelsweep.base.terminal import escaped


def parser_for(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of `python -m accelsweep.MODULE`. It answers wrong arguments itself, with exit code 2."""
    return argparse.ArgumentParser(prog=f"python -m accelsweep.{module}", description=description)


def answer(work: Callable[[], int | None], tell: Callable[[str], None] | None = None) -> int:
    """Return the exit code of `work`, 0 where it gives none. An error meant for the user becomes one line and its code.

    So does an error of the operating system: a file that is not there, a disk that refuses.

    `tell` gets the line; by default it goes to the standard error output.
    """
    try:
        return work() or EXIT_OK
    except (AccelsweepError, OSError) as error:
        words, code = told(error)
        (tell or _tell)(f"error: {words}")
        return code


def told(error: AccelsweepError | OSError) -> tuple[str, int]:
    """Return what a user reads of an error, its secrets masked, and the exit code."""
    if isinstance(error, AccelsweepError):
        return masked(str(error)), error.exit_code
    return masked(words_of(error)), EXIT_INCOMPLETE


def _tell(line: str) -> None:
    sys.stderr.write(f"{escaped(line)}\n")
