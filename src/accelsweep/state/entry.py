"""The calls of `python -m accelsweep.MODULE`: one way to name a sweep, and one to report an error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from accelsweep.base.errors import EXIT_INCOMPLETE, EXIT_OK, AccelsweepError, words_of
from accelsweep.base.secrets import masked
from accelsweep.base.terminal import escaped
from accelsweep.state.folders import SweepFolder, existing_sweep


def parser_for(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of `python -m accelsweep.MODULE`. It answers wrong arguments itself, with exit code 2."""
    return argparse.ArgumentParser(prog=f"python -m accelsweep.{module}", description=description)


def sweep_parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose first argument is `sweep`, the path of a sweep's folder."""
    parser = parser_for(module, description)
    parser.add_argument("sweep", type=Path, metavar="sweeps/NAME", help="the sweep's folder")
    return parser


def planned_sweep(path: Path) -> SweepFolder:
    """Return the planned sweep whose folder is `path`; raise InputError where there is none."""
    folder = SweepFolder.of(path)
    return existing_sweep(folder.home, folder.name)


def answer(work: Callable[[], int | None], tell: Callable[[str], None] | None = None) -> int:
    """Return the exit code of `work`, 0 where it gives none. An error meant for the user becomes one line and its code.

    So does an error of the operating system, with code 1: a file that is not there, a disk that refuses.

    `tell` gets the line; by default it goes to the standard error output.
    """
    try:
        return work() or EXIT_OK
    except AccelsweepError as error:
        (tell or _tell)(f"error: {masked(str(error))}")
        return error.exit_code
    except OSError as error:
        (tell or _tell)(f"error: {masked(words_of(error))}")
        return EXIT_INCOMPLETE


def _tell(line: str) -> None:
    sys.stderr.write(f"{escaped(line)}\n")
