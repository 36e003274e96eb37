"""`python -m accelsweep.engines.grid_engine.status NUMBER`: Snakemake's question after a job, in a word.

It never fails, because Snakemake would end for that. A job that is in the queue no more, and that qacct does not know
after a while, may be fine: Snakemake then looks at what it left.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from accelsweep.base.errors import AccelsweepError
from accelsweep.engines.ask import ask
from accelsweep.engines.grid_engine.ends import last_word, log_of, read_account, succeeded

_PATIENCE_SECONDS = 60.0
"""How long qacct may take to know of a job: Grid Engine writes its accounts some seconds later."""


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
        return "success" if _long_gone(log_of(number, home).with_suffix(".gone")) else "running"
    if succeeded(account):
        return "success"
    with open(log_of(number, home), "a", encoding="utf-8") as log:
        log.write(f"{last_word(account)}\n")
    return "failed"


def _long_gone(mark: Path) -> bool:
    """Return whether `mark`, which this makes, has stood for long enough."""
    if not mark.exists():
        mark.touch()
    return time.time() - mark.stat().st_mtime > _PATIENCE_SECONDS


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the head, which needs an answer
    sys.stdout.write(f"{state(sys.argv[1], Path.cwd())}\n")
