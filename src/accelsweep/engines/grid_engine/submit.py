"""`python -m accelsweep.engines.grid_engine.submit SWEEP BLOCK OPTIONS... SCRIPT`: Snakemake's way to qsub.

It prints the job's number. Where qsub refuses the job, it prints qsub's words, because Snakemake logs no others.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from accelsweep.engines.grid_engine.options import IN_TURN, LOGS, job_name
from accelsweep.schedulers.job_environment import for_jobs
from accelsweep.signals import exit_code_of, parser_for


def main(arguments: list[str] | None = None) -> int:
    """Submit the block's job that the command line names and return the exit code; errors go where qsub's words go."""
    parser = parser_for("engines.grid_engine.submit", __doc__)
    parser.add_argument("sweep")
    parser.add_argument("block")
    parser.add_argument(
        "job", nargs=argparse.REMAINDER, metavar="OPTIONS... SCRIPT", help="options of qsub, the script"
    )
    given = parser.parse_args(arguments)
    if not given.job:
        parser.error("the job's script is missing")
    return exit_code_of(lambda: _submit(given.sweep, given.block, given.job), report=print)


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


if __name__ == "__main__":
    sys.exit(main())
