"""A user's working directory on the login node of the Grid Engine of tests/grid_engine/cluster.sh."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import ClassVar

from cluster_home import REPOSITORY, ClusterHome, told

CLUSTER = REPOSITORY / "tests" / "grid_engine" / "cluster.sh"


class GridEngineHome(ClusterHome):
    """The working directory of a user of Grid Engine."""

    profile = "grid_engine"
    quicker: ClassVar[dict[str, str]] = {
        "status-checks: 10": "status-checks: 1",
        "latency-wait: 60": "latency-wait: 10",
    }
    scheduler, version = "Grid Engine", "Grid Engine ("
    nowhere: ClassVar[tuple[str, str]] = (
        "site.grid_engine.queue=nonesuch.q",
        "Job was rejected because job requests unknown queue ",
    )
    unprepared = "+site.grid_engine"
    take, pieces = "empty", 60  # h_vmem counts what is mapped, used or not
    little_memory: ClassVar[tuple[str, ...]] = ("+site.grid_engine.mem_mb=16000",)
    short: ClassVar[tuple[str, ...]] = ("+site.grid_engine.extra='-l h_rt=60'",)
    over = "time limit"

    def __init__(self, path: Path) -> None:
        """Make the folder `path` a home that knows the test's cluster."""
        super().__init__(path, {"box": CLUSTER.with_name("site.yaml")})
        self.environment |= cluster_environment()

    def submitted(self) -> list[str]:
        """The numbers of all jobs that have a log here, in order."""
        return sorted((log.stem for log in self.path.glob("grid-engine-logs/*.log")), key=int)

    def _ask(self, *command: str) -> str:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False).stdout

    def left(self) -> list[str]:
        """The numbers of all jobs in the queue, which no other home has."""
        return re.findall(r"^ *(\d+) ", self._ask("qstat"), re.MULTILINE)

    def cancel(self, *jobs: str) -> None:
        """Cancel jobs by qdel."""
        self._ask("qdel", *jobs)

    def has(self, *arguments: str) -> None:
        """Do something to the cluster (see cluster.sh)."""
        told(str(CLUSTER), *arguments)

    def shorten(self, job: str) -> None:
        """Do nothing: `short` has asked for little time."""

    def ended(self, job: str) -> str:
        """Return how a job ended, as its log tells by qacct's words."""
        return (self.path / "grid-engine-logs" / f"{job}.log").read_text("utf-8")

    def hold_back(self) -> None:
        """Let no job begin."""
        self._ask("qmod", "-d", "all.q")

    def let_go(self) -> None:
        """Let jobs begin again."""
        self._ask("qmod", "-e", "all.q")


def cluster_environment() -> dict[str, str]:
    """Return the variables by which the commands of Grid Engine find the cluster."""
    stated = told(str(CLUSTER), "environment")
    found = dict(line.split("=", 1) for line in stated.splitlines())
    return {**found, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
