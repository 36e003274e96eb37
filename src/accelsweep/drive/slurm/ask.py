"""Slurm's commands, and words for a machine that has none."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from accelsweep.base.errors import AccelsweepError, InputError

NEEDED = ("sbatch", "squeue", "scancel", "scontrol")
_PATIENCE_SECONDS = 60.0


def refuse_without_slurm(site: str) -> None:
    """Raise InputError where a command of Slurm that a sweep needs is missing."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise InputError(
            f"the site '{site}' submits to Slurm, and this machine has no {missing[0]}: "
            "run this on a login node of the cluster, or choose site=local"
        )


def ask(*command: str, environment: Mapping[str, str] | None = None) -> str:
    """Return what a command of Slurm prints. Raises AccelsweepError where it fails, is missing, or does not answer.

    `environment` is ours unless it is given.
    """
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS, env=environment
        )
    except FileNotFoundError:
        raise AccelsweepError(f"there is no {command[0]} here: run this on a login node of the cluster") from None
    except subprocess.TimeoutExpired:
        raise AccelsweepError(f"{command[0]} did not answer within {_PATIENCE_SECONDS:.0f} s") from None
    if answer.returncode != 0:
        raise AccelsweepError(f"{command[0]} failed: {answer.stderr.strip() or answer.stdout.strip()}")
    return answer.stdout


def outside_of_jobs() -> dict[str, str]:
    """Return our environment without what Slurm says of a job that we are in, if we are: as on a login node.

    What is submitted with it is neither sized nor counted like that job.
    """
    if "SLURM_JOB_ID" not in os.environ:
        return dict(os.environ)
    kept = {"SLURM_CONF"}
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith("SLURM_")}
