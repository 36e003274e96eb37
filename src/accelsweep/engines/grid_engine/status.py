"""`python -m accelsweep.engines.grid_engine.status NUMBER`: Snakemake's question after a job, in a word.

It never fails, because Snakemake would end for that. A job may be fine although it left the queue, and although qacct
does not know it after a while. Snakemake then looks at its files.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask
from accelsweep.engines.grid_engine.ends import last_word, log_of, read_account, succeeded

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
    try:
        account = read_account(ask("qacct", "-j", number))
    except AccelsweepError:
        return _without_account(log_of(number, home))
    if succeeded(account):
        return "success"
    if line := last_word(account):
        with open(log_of(number, home), "a", encoding="utf-8") as log:
            log.write(f"{line}\n")
    return "failed"


def _without_account(log: Path) -> str:
    """Return the state of a job that nobody knows: deleted before it began, or ended some time ago."""
    mark = log.with_suffix(".gone")
    if not mark.exists():
        mark.touch()
    gone = time.time() - mark.stat().st_mtime
    if not log.exists():
        return "failed" if gone > _NEVER_BEGAN_SECONDS else "running"
    return "success" if gone > _PATIENCE_SECONDS else "running"


if __name__ == "__main__":
    sys.stdout.write(f"{state(sys.argv[1], Path.cwd())}\n")
