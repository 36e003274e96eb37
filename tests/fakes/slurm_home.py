"""A user's working directory on the login node of the Slurm of tests/slurm/cluster.sh, and that Slurm's start and end.

Its GPUs run no CUDA: `fake_gpus` of the site makes CPU settings ask for them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from cluster_home import REPOSITORY, ClusterHome, told, wait_for

CLUSTER = REPOSITORY / "tests" / "slurm" / "cluster.sh"
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol")
NODE = "accelsweep.executor.node_agent"
SITE, KINDS = CLUSTER.with_name("site.yaml"), CLUSTER.with_name("kinds.yaml")


def first_rank(node: psutil.Process) -> psutil.Process:
    """The first of a node's ranks, which leads their process group; the sampler has a group of its own."""
    ((leader, _),) = Counter(os.getpgid(child.pid) for child in node.children()).most_common(1)
    return psutil.Process(leader)


def why_no(what: str) -> str:
    """Why this machine's cluster has no `accounting`, `cgroups` or `energy`; empty where it has."""
    return told(str(CLUSTER), "can", what).strip()


def running_cluster() -> Iterator[None]:
    """Start the test cluster if need be, and stop it at the end. Skips the test where there can be none."""
    missing = [name for name in NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if os.getuid() != 0:
        pytest.skip("a Slurm of our own needs root")
    if missing:
        pytest.skip(f"Slurm is not installed ({', '.join(missing)} missing): tests/install-system.sh installs it")
    started = subprocess.run([CLUSTER, "up"], capture_output=True, text=True, check=False)
    if started.returncode != 0:
        subprocess.run([CLUSTER, "down"], capture_output=True, check=False)
        pytest.fail(f"the test cluster did not start: {started.stderr}")
    yield
    subprocess.run([CLUSTER, "down"], capture_output=True, check=True)


class SlurmHome(ClusterHome):
    """A user's working directory on the login node of a Slurm cluster."""

    profile = "slurm"
    quicker: ClassVar[dict[str, str]] = {
        "status-checks: 10": "status-checks: 1",
        "latency-wait: 60": "latency-wait: 10",
    }
    slurm = staticmethod(told)
    why_no = staticmethod(why_no)
    scheduler, version = "Slurm", "slurm"
    nowhere: ClassVar[tuple[str, str]] = ("site.slurm.partition=nonesuch", "invalid partition specified: nonesuch; ")
    unprepared = "+site.slurm"
    take, pieces = "ones", 10
    little_memory: ClassVar[tuple[str, ...]] = ("site.slurm.mem_mb=2000",)
    short: ClassVar[tuple[str, ...]] = ()
    over = "TIMEOUT"

    def __init__(self, path: Path) -> None:
        """Make the folder `path` a home that knows the test's cluster."""
        super().__init__(path, {"box": SITE, "kinds": KINDS})

    def submitted(self) -> list[str]:
        """The ids of all jobs that this home ever had in Slurm, and that Slurm still knows."""
        listing = told("squeue", "--noheader", "--states=all", "--format=%i %Z")
        return [line.split()[0] for line in listing.splitlines() if line.split()[1] == str(self.path)]

    def left(self) -> list[str]:
        """The ids of the jobs of this home that Slurm has not ended."""
        listing = told("squeue", "--noheader", "--format=%i %Z").splitlines()
        return [line.split()[0] for line in listing if line.split()[1] == str(self.path)]

    def nodes(self) -> list[str]:
        """The nodes on which jobs of this home run."""
        listing = told("squeue", "--noheader", "--states=RUNNING", "--format=%N %Z").splitlines()
        return [line.split()[0] for line in listing if line.split()[-1] == str(self.path)]

    def told(self, job: str) -> str:
        """All that Slurm says of a job."""
        return told("scontrol", "show", "job", job)

    def has(self, *arguments: str) -> None:
        """Do something to the cluster (see cluster.sh)."""
        subprocess.run([CLUSTER, *arguments], capture_output=True, check=True)

    def state(self, job: str) -> str:
        """What Slurm calls the state of a job."""
        return told("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", job).strip()

    def cancel(self, *jobs: str) -> None:
        """Cancel jobs by scancel."""
        told("scancel", *jobs)

    def shorten(self, job: str) -> None:
        """Let a running job have one minute in all."""
        told("scontrol", "update", f"jobid={job}", "timelimit=1")

    ended = state

    def hold_back(self) -> None:
        """Let no job begin."""
        told("scontrol", "update", "partitionname=gpu", "state=down")

    def let_go(self) -> None:
        """Let jobs begin again."""
        told("scontrol", "update", "partitionname=gpu", "state=up")

    def across_nodes(self) -> dict[str, psutil.Process]:
        """The processes of a run on several nodes, by the number that srun gave to the node of each."""
        started = [process for process in self.processes(NODE) if Path(process.exe()).name != "srun"]
        return {process.environ()["SLURM_NODEID"]: process for process in started}

    def at_once(self, job: str) -> None:
        """Let a job that was queued again start now; Slurm holds it back for two minutes."""
        wait_for(lambda: self.state(job) == "PENDING", "the job to be queued again", 90)
        told("scontrol", "update", f"jobid={job}", "starttime=now")
