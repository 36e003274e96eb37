"""A real Slurm (see cluster.sh) for the length of the session, and a home whose sweeps go to it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_home import ClusterHome
from grid_engine_home import CLUSTER as GRID
from grid_engine_home import GridEngineHome
from slurm_home import CLUSTER, SlurmHome, running_cluster, why_no


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """The test cluster, started if need be, stopped at the end."""
    yield from running_cluster()


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
def home(cluster: None, tmp_path: Path) -> Iterator[SlurmHome]:
    made = SlurmHome(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
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


def _of(scheduler: str, *marks: pytest.MarkDecorator) -> object:
    """Return a parameter: what starts the scheduler, for one worker."""
    return pytest.param(scheduler, marks=[pytest.mark.xdist_group(scheduler), *marks])


# Slurm's own tests beside these begin, wait and end in the same ways
@pytest.fixture(params=[_of("cluster", pytest.mark.slurm, pytest.mark.long), _of("grid", pytest.mark.grid_engine)])
def any_home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterHome]:
    """A home on each scheduler. Slurm's are all long here, because its own tests are beside them."""
    request.getfixturevalue(request.param)
    made = SlurmHome(tmp_path) if request.param == "cluster" else GridEngineHome(tmp_path)
    yield made
    made.close()
