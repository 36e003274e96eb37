"""A real Slurm (see cluster.sh) for the length of the session, and a home whose sweeps go to it.

Its GPUs run no CUDA: `fake_gpus` of the site makes CPU cells ask for them.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import psutil
import pytest
from cluster_home import ClusterHome, told, wait_for
from grid_engine_home import CLUSTER as GRID
from grid_engine_home import GridEngineHome

CLUSTER = Path(__file__).parent / "cluster.sh"
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol")
NODE = "accelsweep.supervise.processes.node"
SITE, KINDS = CLUSTER.with_name("site.yaml"), CLUSTER.with_name("kinds.yaml")


def why_no(what: str) -> str:
    """Why this machine's cluster has no `accounting`, `cgroups` or `energy`; empty where it has."""
    return told(str(CLUSTER), "can", what).strip()


class Home(ClusterHome):
    """A user's working directory on the login node of a Slurm cluster."""

    profile = "slurm"
    quicker: ClassVar[dict[str, str]] = {
        "status-checks: 10": "status-checks: 1",
        "latency-wait: 60": "latency-wait: 10",
    }
    slurm = staticmethod(told)
    why_no = staticmethod(why_no)
    engine, version = "Slurm", "slurm"
    nowhere = ("site.slurm.partition=nonesuch", "invalid partition specified: nonesuch; ")
    unprepared = "+site.slurm"
    take, pieces = "ones", 10
    little_memory = ("site.slurm.mem_mb=2000",)
    short: tuple[str, ...] = ()
    over = "TIMEOUT"

    def __init__(self, path: Path) -> None:
        super().__init__(path, {"box": SITE, "kinds": KINDS})

    def submitted(self) -> list[str]:
        """The ids of all jobs that this home ever had in Slurm, and that Slurm still knows."""
        listing = told("squeue", "--noheader", "--states=all", "--format=%i %Z")
        return [line.split()[0] for line in listing.splitlines() if line.split()[1] == str(self.path)]

    def left(self) -> list[str]:
        listing = told("squeue", "--noheader", "--format=%i %Z").splitlines()
        return [line.split()[0] for line in listing if line.split()[1] == str(self.path)]

    def told(self, job: str) -> str:
        """All that Slurm says of a job."""
        return told("scontrol", "show", "job", job)

    def has(self, *arguments: str) -> None:
        """Do something to the cluster (see cluster.sh)."""
        subprocess.run([CLUSTER, *arguments], capture_output=True, check=True)

    def state(self, job: str) -> str:
        return told("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", job).strip()

    def cancel(self, *jobs: str) -> None:
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


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """The test cluster, started if need be, stopped at the end."""
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


@pytest.fixture(scope="session")
def accounting(cluster: None) -> None:
    """The cluster's accounts with their limits (see accounting.sh)."""
    if why := why_no("accounting"):
        pytest.skip(f"the cluster has no accounting: {why}")


def _in_mode(mode: str) -> Iterator[None]:
    """Start the cluster again in a mode of its own (see cluster.sh), and as it was at the end."""
    if why := why_no(mode):
        pytest.skip(f"no cluster with {mode} here: {why}")
    subprocess.run([CLUSTER, "up", mode], capture_output=True, text=True, check=True)
    yield
    subprocess.run([CLUSTER, "up"], capture_output=True, check=True)


@pytest.fixture(scope="module")
def cgroups(cluster: None) -> Iterator[None]:
    """The cluster with jobs that are held by cgroups, as long as the module's tests run."""
    yield from _in_mode("cgroups")


@pytest.fixture(scope="module")
def metered(accounting: None) -> Iterator[None]:
    """The cluster with nodes that draw 100 W each by Slurm's own counters, as long as the module's tests run."""
    yield from _in_mode("energy")


@pytest.fixture
def home(cluster: None, tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="session")
def grid() -> Iterator[None]:
    """The test's Grid Engine, started if need be, stopped at the end."""
    if os.getuid() != 0:
        pytest.skip("a Grid Engine of our own needs root")
    if not (shutil.which("qsub") and shutil.which("sge_qmaster", path=f"{os.environ['PATH']}:/usr/sbin")):
        pytest.skip("Grid Engine is not installed: tests/install-system.sh installs it")
    started = subprocess.run([GRID, "up"], capture_output=True, text=True, check=False)
    if started.returncode != 0:
        subprocess.run([GRID, "down"], capture_output=True, check=False)
        pytest.fail(f"the test's Grid Engine did not start: {started.stdout}{started.stderr}")
    yield
    subprocess.run([GRID, "down"], capture_output=True, check=True)


def _of(engine: str, *marks: pytest.MarkDecorator) -> object:
    """Return a parameter: what starts the engine, for one worker."""
    return pytest.param(engine, marks=[pytest.mark.xdist_group(engine), *marks])


# Slurm's own tests beside these begin, wait and end in the same ways
@pytest.fixture(params=[_of("cluster", pytest.mark.slurm, pytest.mark.long), _of("grid", pytest.mark.grid_engine)])
def any_home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterHome]:
    """A home on each engine. Slurm's are all long here, because its own tests are beside them."""
    request.getfixturevalue(request.param)
    made = Home(tmp_path) if request.param == "cluster" else GridEngineHome(tmp_path)
    yield made
    made.close()
