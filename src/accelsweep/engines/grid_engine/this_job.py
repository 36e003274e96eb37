"""The Grid Engine job that this process is in, by its environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

GRID_ENGINE_VARIABLES = ("JOB_ID", "NSLOTS")
"""The variables of a job's environment that a record keeps."""


@dataclass(frozen=True)
class GridEngineJob:
    """A Grid Engine job, seen from inside."""

    number: str
    restarts: int
    stdout: str | None
    engine: str = "Grid Engine"

    @classmethod
    def found(cls) -> GridEngineJob | None:
        """Return the job that this process is in, or None."""
        number = os.environ.get("JOB_ID")
        if number is None or "SGE_TASK_ID" not in os.environ:
            return None
        restarts = os.environ.get("RESTARTED", "0")
        return cls(number, int(restarts) if restarts.isdigit() else 0, os.environ.get("SGE_STDOUT_PATH"))

    def log(self) -> str | None:
        """Return the path of the job's log."""
        return self.stdout

    def across_nodes(self, nodes: int, cpus: int, python: Sequence[str]) -> tuple[str, ...] | None:
        """Return None: nothing here starts ranks on other nodes of such a job."""
        del nodes, cpus, python
        return None
