"""The programs by which Snakemake uses Grid Engine: `python -m` this module with `status` or `submit`.

`status NUMBER` prints the state of a job in a word. It never fails, because Snakemake would end for that. A job may be
fine although it left the queue, and although qacct does not know it after a while. Snakemake then looks at its files.

`submit SWEEP BLOCK OPTIONS... SCRIPT` prints the number of the job. Where qsub refuses the job, it prints qsub's words,
because Snakemake logs no others.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from accelsweep.errors import AccelsweepError
from accelsweep.features.grid_engine.scheduler import (
    IN_TURN,
    LOGS,
    job_name,
    last_word,
    log_of,
    read_account,
    succeeded,
)
from accelsweep.schedulers.job_environment import for_jobs
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


def _submit(sweep: str, block: str, job: Sequence[str]) -> int:
    *options, script = job
    home = Path.cwd()
    (home / LOGS).mkdir(exist_ok=True)
    name = job_name(sweep, home, block)
    if IN_TURN in options:
        options = [option for option in options if option != IN_TURN]
        options += ["-hold_jid", f"{name.removesuffix(block)}*"]
    # -w e refuses what no node could ever run; with -r n Snakemake, not Grid Engine, submits a lost job again
    always = ("-terse", "-cwd", "-V", "-S", "/bin/bash", "-j", "y", "-w", "e", "-r", "n")
    log = ("-o", f"{home}/{LOGS}/$JOB_ID.log")
    command = ("qsub", *always, *log, "-N", name, *options, script)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=for_jobs(os.environ))
    sys.stdout.write(done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}")
    return done.returncode


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says and return the exit code."""
    parser = parser_for("features.grid_engine.snakemake_commands", __doc__)
    programs = parser.add_subparsers(dest="program", required=True)
    of_status = programs.add_parser("status", help="print running, success or failed")
    of_status.add_argument("number", help="the job's, as qsub gave it")
    of_submit = programs.add_parser("submit", help="submit a block's job and print its number")
    of_submit.add_argument("sweep")
    of_submit.add_argument("block")
    of_submit.add_argument(
        "job", nargs=argparse.REMAINDER, metavar="OPTIONS... SCRIPT", help="options of qsub, the script"
    )
    given = parser.parse_args(arguments)
    if given.program == "status":
        return exit_code_of(lambda: print(state(given.number, Path.cwd())))  # noqa: T201 - Snakemake reads it
    if not given.job:
        of_submit.error("the job's script is missing")
    return exit_code_of(lambda: _submit(given.sweep, given.block, given.job), report=print)


if __name__ == "__main__":
    sys.exit(main())
