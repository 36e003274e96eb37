"""`python -m accelsweep.engines.grid_engine.submit SWEEP BLOCK OPTIONS... SCRIPT`: Snakemake's way to qsub.

It prints the job's number. Where qsub refuses the job, it prints qsub's words, because Snakemake logs no others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from accelsweep.engines.grid_engine.environment import open_to_all
from accelsweep.engines.grid_engine.options import IN_TURN, LOGS, job_name


def main(arguments: list[str]) -> int:
    """Submit a block's job from the working directory and return the exit code."""
    sweep, block, *options, script = arguments
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
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=open_to_all(os.environ))
    sys.stdout.write(done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
