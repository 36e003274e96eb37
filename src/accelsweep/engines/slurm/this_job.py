"""The Slurm job that this process is in, by its environment."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.errors import AccelsweepError

_PATIENCE_SECONDS = 20.0

SLURM_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURMD_NODENAME")
"""The variables of a job's environment that a record keeps."""


@dataclass(frozen=True)
class SlurmJob:
    """A Slurm job, seen from inside."""

    number: str
    restarts: int
    engine: str = "Slurm"

    @classmethod
    def found(cls) -> SlurmJob | None:
        """Return the job that this process is in, or None."""
        restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
        number = os.environ.get("SLURM_JOB_ID")
        return None if number is None else cls(number, int(restarts) if restarts.isdigit() else 0)

    def log(self) -> str | None:
        """Return the path of the job's log, if Slurm says it."""
        command = ("scontrol", "show", "job", "--oneliner", self.number)
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_PATIENCE_SECONDS)
        except (OSError, subprocess.SubprocessError):
            return None  # inside a container, for example
        found = re.search(r"\bStdErr=(\S+)", answer.stdout)
        return found[1] if found else None

    def across_nodes(self, nodes: int, cpus: int, python: Sequence[str]) -> tuple[str, ...] | None:
        """Return the command that starts `python` on each of `nodes` nodes, with `cpus` CPU cores.

        Where srun itself starts the container (pyxis), its options join ours: an srun in each process of another would
        number the nodes anew. The supervisor's step overlaps with this one, which is refused if it overlaps too.
        """
        own = (f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}")
        step = (*own, "--kill-on-bad-exit=1", "--mpi=none", "--input=none", "--quit-on-interrupt")
        if Path(python[0]).name == "srun":
            return (*(word for word in python[:-1] if word != "--overlap"), *step, python[-1])
        return ("srun", *step, *python)


def node_name() -> str:
    """Return this node's name, by which others reach it."""
    return os.environ.get("SLURMD_NODENAME", socket.gethostname())


def node_number() -> int:
    """Return the number of this node in a run across nodes, as srun has set it."""
    number = os.environ.get("SLURM_NODEID")
    if number is None:
        raise AccelsweepError(
            "SLURM_NODEID, which srun sets, is not set here: site.slurm.container has to hand the job's variables on "
            "(podman: --env-host)"
        )
    return int(number)
