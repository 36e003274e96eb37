"""`accelsweep retry`: re-open runs that ended badly or were disturbed; the next `accelsweep run` measures them."""

from __future__ import annotations

from pathlib import Path

from accelsweep.answers.rows import in_words, listed, outcome_named
from accelsweep.base.errors import InputError
from accelsweep.core.planned.plans import Manifest
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.drive.head import refuse_while_run
from accelsweep.drive.terminal.console import say
from accelsweep.state.attempts import RunFolder
from accelsweep.state.folders import SweepFolder, existing_sweep

DISTURBED = "disturbed"
"""A word beside the outcomes: runs that were measured while others used the machine."""

_KEPT = {
    Outcome.measured: "it is an answer; more of them: accelsweep run ... --add-repeats K",
    Outcome.not_run: "there is nothing to re-open; the same `accelsweep run` measures it",
}


def retry_runs(home: Path, name: str, outcome: str) -> None:
    """Re-open every run of the sweep that ended as `outcome`, and say which; their records stay as earlier attempts.

    `disturbed` re-opens the measured runs during which others used the machine.
    """
    wanted = DISTURBED if outcome == DISTURBED else outcome_named(outcome)
    if isinstance(wanted, Outcome) and wanted in _KEPT:
        raise InputError(f"runs that are {wanted} cannot be retried: {_KEPT[wanted]}")
    folder = existing_sweep(home, name)
    refuse_while_run(folder)
    opened = 0
    for row in listed(folder).runs:
        reason = row.disturbed if wanted == DISTURBED else row.reason
        if reason is None if wanted == DISTURBED else row.outcome is not wanted:
            continue
        if row.run is None:
            say(f"stays {wanted}: {in_words(row)}: {reason}")
        else:
            opened += RunFolder(folder.run(row.run), row.run).reopen()
            say(f"re-opened: {in_words(row)} (was {wanted}: {reason})")
    _forget_done(folder)
    say(f"{name}: {opened} runs re-opened" + ("; the same `accelsweep run` measures them" if opened else ""))


def _forget_done(folder: SweepFolder) -> None:
    for block in Manifest.read(folder.manifest).blocks:
        if any(not folder.record(run).exists() for run in block.runs):
            folder.done(block.name).unlink(missing_ok=True)
