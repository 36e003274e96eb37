"""Commands that Snakemake's cluster-generic executor calls to submit a block's job and query its status."""

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
    LOGS,
    ONE_AT_A_TIME,
    job_name,
    log_line,
    log_path,
    read_qacct,
    succeeded,
)
from accelsweep.schedulers.job_environment import for_jobs
from accelsweep.schedulers.protocol import ask
from accelsweep.signals import exit_code_of, parser_for

_LOG_SECONDS = 10.0
"""Maximum delay until a log becomes visible on this machine. A job without a log by then was deleted while queued."""

_QACCT_SECONDS = 60.0
"""Maximum delay until a job that has ended appears in qacct."""


def status(number: str, home: Path) -> str:
    """Return `running`, `success` or `failed` for a job submitted from `home`.

    This never fails, because a failure would stop Snakemake. If an ended job is missing from qacct, the status is
    `success`, and Snakemake checks for the job's files.
    """
    try:
        ask("qstat", "-j", number)
    except AccelsweepError as error:
        if "do not exist" not in str(error):
            return "running"  # qmaster does not answer
    else:
        return "running"
    log = log_path(number, home)
    marker = log.with_suffix(".gone")  # created by our first query after the job left the queue
    try:
        state = _final_status(number, log, marker)
    except OSError:
        return "running"  # for example, a full disk: there may be space at the next query
    if state != "running":
        with contextlib.suppress(OSError):
            marker.unlink(missing_ok=True)
    return state


def _final_status(number: str, log: Path, marker: Path) -> str:
    """Return the status of a job that has left the queue, and append the reason for a failure to its log."""
    try:
        account = read_qacct(ask("qacct", "-j", number))
    except AccelsweepError:
        if not marker.exists():
            marker.parent.mkdir(exist_ok=True)
            marker.touch()
        seconds = time.time() - marker.stat().st_mtime
        if not log.exists():
            return "failed" if seconds > _LOG_SECONDS else "running"
        return "success" if seconds > _QACCT_SECONDS else "running"
    if succeeded(account):
        return "success"
    if line := log_line(account):
        with contextlib.suppress(OSError), open(log, "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    return "failed"


def submit(sweep: str, block: str, job: Sequence[str]) -> int:
    """Submit a block's job, given qsub's options and the script. Returns qsub's exit code."""
    *options, script = job
    home = Path.cwd()
    (home / LOGS).mkdir(exist_ok=True)
    name = job_name(sweep, home, block)
    if ONE_AT_A_TIME in options:
        options = [option for option in options if option != ONE_AT_A_TIME]
        options += ["-hold_jid", f"{name.removesuffix(block)}*"]
    # `-w e` rejects jobs that no node could ever run; `-r n` leaves resubmitting a lost job to Snakemake
    fixed = ("-terse", "-cwd", "-V", "-S", "/bin/bash", "-j", "y", "-w", "e", "-r", "n")
    command = ("qsub", *fixed, "-o", f"{home}/{LOGS}/$JOB_ID.log", "-N", name, *options, script)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=for_jobs(os.environ))
    sys.stdout.write(done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}")
    return done.returncode


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit code. Errors go to stdout, which Snakemake logs."""
    parser = parser_for("features.grid_engine.snakemake_commands", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    submit_parser = commands.add_parser("submit", help="submit a block's job and print its ID")
    submit_parser.add_argument("sweep")
    submit_parser.add_argument("block")
    submit_parser.add_argument("job", nargs=argparse.REMAINDER, metavar="OPTIONS... SCRIPT", help="passed to qsub")
    commands.add_parser("status", help="print running, success or failed").add_argument("number", help="the job ID")
    given = parser.parse_args(arguments)
    if given.command == "status":
        return exit_code_of(lambda: print(status(given.number, Path.cwd())))  # noqa: T201 - Snakemake reads it
    if not given.job:
        submit_parser.error("the job's script is missing")
    return exit_code_of(lambda: submit(given.sweep, given.block, given.job), report=print)


if __name__ == "__main__":
    sys.exit(main())
