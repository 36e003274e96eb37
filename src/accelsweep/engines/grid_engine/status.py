"""`python -m accelsweep.engines.grid_engine.status NUMBER`: Snakemake's question after a job, in a word.

It never fails, because Snakemake would end for that. A job may be fine although it left the queue, and although qacct
does not know it after a while. Snakemake then looks at its files.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path

from accelsweep.engines.grid_engine.ends import last_word, log_of, read_account, succeeded
from accelsweep.errors import AccelsweepError
from accelsweep.schedulers.protocol import ask
from accelsweep.signals import exit_code_of, parser_for

_NEVER_BEGAN_SECONDS = 10.0
"""The time for which a job's log may be invisible here: one deleted in the queue has neither log nor account."""

_PATIENCE_SECONDS = 60.0
"""The time within which qacct knows of a job: Grid Engine writes its accounts some seconds later."""


def state(number: str, home: Path) -> str:
    """Return `running`, `success` or `failed` for a job that was submitted from `home`."""
    try:
        ask("qstat", "-j", number)
    except AccelsweepError as error:
        if "do not exist" not in str(error):
            return "running"  # nobody answers
    else:
        return "running"
    mark = log_of(number, home).with_suffix(".gone")
    try:
        found = _ended(number, home, mark)
    except OSError:
        return "running"  # a full disk, for example: there may be room at the next question
    if found != "running":
        with contextlib.suppress(OSError):
            mark.unlink(missing_ok=True)
    return found


def _ended(number: str, home: Path, mark: Path) -> str:
    """Return the state of a job that is in the queue no more, and leave what ended it in its log."""
    log = log_of(number, home)
    try:
        account = read_account(ask("qacct", "-j", number))
    except AccelsweepError:
        return _without_account(log, mark)
    if succeeded(account):
        return "success"
    if line := last_word(account):
        with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    return "failed"


def _without_account(log: Path, mark: Path) -> str:
    """Return the state of a job that nobody knows: deleted before it began, or ended some time ago.

    `mark` is a file as old as our not knowing.
    """
    if not mark.exists():
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
    gone = time.time() - mark.stat().st_mtime
    if not log.exists():
        return "failed" if gone > _NEVER_BEGAN_SECONDS else "running"
    return "success" if gone > _PATIENCE_SECONDS else "running"


def main(arguments: list[str] | None = None) -> int:
    """Print the word for the job that the command line names, and return the exit code."""
    parser = parser_for("engines.grid_engine.status", __doc__)
    parser.add_argument("number", help="the job's, as qsub gave it")
    number = parser.parse_args(arguments).number
    return exit_code_of(lambda: print(state(number, Path.cwd())))  # noqa: T201 - Snakemake reads it


if __name__ == "__main__":
    sys.exit(main())
