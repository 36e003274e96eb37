"""A real Slurm (see cluster.sh) for the length of the session, and a home whose sweeps go to it.

Its GPUs run no CUDA: `fake_gpus` of the site makes CPU cells ask for them.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_SECONDS

from accelsweep.core.plans import Hold, Manifest
from accelsweep.core.record import Record
from accelsweep.state.folders import SweepFolder
from accelsweep.state.living import read_hold

REPOSITORY = Path(__file__).resolve().parents[2]
CLUSTER = Path(__file__).parent / "cluster.sh"
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "scontrol")

EXPERIMENT = """\
# @package _global_
hydra: {sweeper: {params: {batch_size: "16,32"}}}
accelerator: cpu
threads: 1
baseline: {batch_size: 16}
repeats: 1
limits: {run_seconds: 600}
measure: {warmup_steps: 3, min_steps: 10, max_steps: 100000, min_seconds: 0.05, quality_samples: null, probe_steps: 1}
"""

SITE, KINDS = CLUSTER.with_name("site.yaml"), CLUSTER.with_name("kinds.yaml")


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for: {what}"
        time.sleep(0.2)


def why_no(what: str) -> str:
    """Why this machine's cluster has no `accounting` or `cgroups`; empty where it has."""
    return subprocess.run([CLUSTER, "can", what], capture_output=True, text=True, check=True).stdout.strip()


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS).stdout


class Home:
    """A user's working directory on the cluster's login node."""

    wait_for = staticmethod(wait_for)
    slurm = staticmethod(slurm)
    why_no = staticmethod(why_no)

    def __init__(self, path: Path) -> None:
        self.path = path
        self.heads: list[subprocess.Popen[str]] = []
        self.environment = os.environ | {"ACCELSWEEP_LEASES": str(path / "leases"), "COLUMNS": "200"}
        for name, text in {
            "experiment/tiny.yaml": EXPERIMENT,
            "site/box.yaml": SITE.read_text("utf-8"),
            "site/kinds.yaml": KINDS.read_text("utf-8"),
        }.items():
            file = path / "conf" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        shipped = (REPOSITORY / "workflows" / "profiles" / "slurm" / "profile.yaml").read_text()
        quick = shipped.replace("status-checks: 10", "status-checks: 1").replace("latency-wait: 60", "latency-wait: 10")
        assert quick != shipped
        (path / "quick").mkdir()
        (path / "quick" / "profile.yaml").write_text(quick)

    @property
    def folder(self) -> SweepFolder:
        return SweepFolder(self.path, "tiny")

    def accelsweep(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Give any command of accelsweep to its end."""
        command = [sys.executable, "-m", "accelsweep", *arguments]
        options = {"cwd": self.path, "env": self.environment, "timeout": PATIENCE_SECONDS}
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "accelsweep", "run", "experiment=tiny", "site=box", "--profile", "quick"]
        head = subprocess.Popen(
            [*command, *arguments],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.heads.append(head)
        return head

    def run(self, *arguments: str) -> str:
        """Run the sweep to its end, which must be a good one; return what the head printed."""
        return self.finished(self.start(*arguments))

    def finished(self, head: "subprocess.Popen[str]", code: int = 0) -> str:
        output, _ = head.communicate(timeout=PATIENCE_SECONDS)
        assert head.returncode == code, f"{output}\n{self.log()}"
        return output

    def log(self) -> str:
        logs = [
            self.folder.snakemake_log,
            *self.folder.root.glob("logs/b*.log"),
            *self.path.glob("slurm-logs/*/*/*.log"),
        ]
        return "\n".join(f"== {log}\n{log.read_text()}" for log in logs if log.is_file())

    def running(self) -> Hold | None:
        """The hold of a supervisor that is in the middle of a run, if there is one."""
        holds = [read_hold(path) for path in self.folder.root.glob("blocks/*.claim.json")]
        return next((hold for hold in holds if hold and hold.run), None)

    def in_a_run(self) -> Hold:
        wait_for(self.running, "a run that is being measured", 120)
        hold = self.running()
        assert hold is not None
        assert hold.job is not None
        return hold

    def records(self) -> dict[str, Record]:
        manifest = Manifest.read(self.folder.manifest)
        found = {run: self.folder.record(run) for run in manifest.wanted_runs()}
        return {run: Record.read(path) for run, path in found.items() if path.exists()}

    def submitted(self) -> list[str]:
        """The ids of all jobs that this home ever had in Slurm, and that Slurm still knows."""
        listing = slurm("squeue", "--noheader", "--states=all", "--format=%i %Z")
        return [line.split()[0] for line in listing.splitlines() if line.split()[1] == str(self.path)]

    def told(self, job: str) -> str:
        """All that Slurm says of a job."""
        return slurm("scontrol", "show", "job", job)

    def processes(self, module: str = "") -> list[psutil.Process]:
        """The living processes that work here and were started as this module; forks of them are left out."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                here = process.cwd() == str(self.path) and process.status() != psutil.STATUS_ZOMBIE
                if here and module in " ".join(process.cmdline()) and process.cmdline() != process.parent().cmdline():
                    found.append(process)
        return found

    def has(self, *arguments: str) -> None:
        """Do something to the cluster (see cluster.sh)."""
        subprocess.run([CLUSTER, *arguments], capture_output=True, check=True)

    def say(self, *arguments: str) -> str:
        """What an accelsweep command prints."""
        command = [sys.executable, "-m", "accelsweep", *arguments]
        return subprocess.run(
            command, cwd=self.path, env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def state(self, job: str) -> str:
        return slurm("squeue", "--noheader", "--states=all", "--format=%T", "--jobs", job).strip()

    def at_once(self, job: str) -> None:
        """Let a job that was queued again start now; Slurm holds it back for two minutes."""
        wait_for(lambda: self.state(job) == "PENDING", "the job to be queued again", 90)
        slurm("scontrol", "update", f"jobid={job}", "starttime=now")

    def close(self) -> None:
        """Leave nothing behind: heads, jobs, and what outlived them (a Snakemake was seen that ignored SIGTERM)."""
        for head in self.heads:
            if head.poll() is None:
                head.kill()
                head.wait()
        self._cancel_jobs()
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_for(lambda: not self.processes(), "the end of what was killed", 30)

    def _cancel_jobs(self) -> None:
        listing = slurm("squeue", "--noheader", "--format=%i %Z").splitlines()
        if left := [line.split()[0] for line in listing if line.split()[1] == str(self.path)]:
            slurm("scancel", *left)
            wait_for(lambda: not slurm("squeue", "--noheader", "--jobs", ",".join(left)).strip(), "cancelled jobs", 30)


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


@pytest.fixture(scope="module")
def cgroups(cluster: None) -> Iterator[None]:
    """The cluster with jobs that are held by cgroups, as long as the module's tests run."""
    if why := why_no("cgroups"):
        pytest.skip(f"jobs cannot be held by cgroups here: {why}")
    subprocess.run([CLUSTER, "up", "cgroups"], capture_output=True, text=True, check=True)
    yield
    subprocess.run([CLUSTER, "up"], capture_output=True, check=True)


@pytest.fixture
def home(cluster: None, tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.close()
