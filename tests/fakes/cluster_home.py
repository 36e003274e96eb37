"""A user's working directory on the login node of a cluster that a test has started, whichever scheduler it has."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import psutil
from polling import PATIENCE_SECONDS

from accelsweep.records.file_lock import read_lock
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import LockOwner, Manifest
from accelsweep.records.run_record import Record

REPOSITORY = Path(__file__).resolve().parents[2]

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


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until `condition()` is true; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s for: {what}"
        time.sleep(0.2)


def told(*command: str) -> str:
    """Return what a command prints, which must succeed."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS).stdout


class ClusterHome:
    """The working directory, with an experiment, the sites of the cluster, and a quick profile."""

    wait_for = staticmethod(wait_for)
    profile: ClassVar[str]
    quicker: ClassVar[dict[str, str]]
    """What a test's profile has in place of the shipped one's lines: waits that nobody here needs."""

    def __init__(self, path: Path, sites: dict[str, Path]) -> None:
        """Make the folder `path` a home that knows these `sites`."""
        self.path = path
        self.drivers: list[subprocess.Popen[str]] = []
        self.environment = os.environ | {"ACCELSWEEP_LEASES": str(path / "leases"), "COLUMNS": "200"}
        files = {f"site/{name}.yaml": site.read_text("utf-8") for name, site in sites.items()}
        for name, text in {"experiment/tiny.yaml": EXPERIMENT, **files}.items():
            file = path / "conf" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        profile = (REPOSITORY / "workflows" / "profiles" / self.profile / "profile.yaml").read_text()
        for shipped, quick in self.quicker.items():
            assert shipped in profile
            profile = profile.replace(shipped, quick)
        (path / "quick").mkdir()
        (path / "quick" / "profile.yaml").write_text(profile)

    @property
    def folder(self) -> SweepFolder:
        """The sweep's folder."""
        return SweepFolder(self.path, "tiny")

    def accelsweep(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Give any command of accelsweep to its end."""
        command = [sys.executable, "-m", "accelsweep", *arguments]
        return subprocess.run(
            command,
            cwd=self.path,
            env=self.environment,
            timeout=PATIENCE_SECONDS,
            capture_output=True,
            text=True,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the sweep's driver."""
        command = [sys.executable, "-m", "accelsweep", "run", "experiment=tiny", "site=box", "--profile", "quick"]
        driver = subprocess.Popen(
            [*command, *arguments],
            cwd=self.path,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.drivers.append(driver)
        return driver

    def run(self, *arguments: str) -> str:
        """Run the sweep to its end, which must be a good one; return what the driver printed."""
        return self.finished(self.start(*arguments))

    def finished(self, driver: subprocess.Popen[str], code: int = 0) -> str:
        """Return what a driver printed to its end, which must have this exit code."""
        output, _ = driver.communicate(timeout=PATIENCE_SECONDS)
        assert driver.returncode == code, f"{output}\n{self.log()}"
        return output

    def log(self) -> str:
        """Return all logs of the sweep, for a test that fails."""
        logs = [
            self.folder.snakemake_log,
            *self.folder.root.glob("logs/b*.log"),
            *self.path.glob("slurm-logs/*/*/*.log"),
            *self.path.glob("grid-engine-logs/*.log"),
        ]
        return "\n".join(f"== {log}\n{log.read_text()}" for log in logs if log.is_file())

    def running(self) -> LockOwner | None:
        """The owner of an executor lock with a run in progress, if there is one."""
        holds = [read_lock(path) for path in self.folder.root.glob("blocks/*.lock.json")]
        return next((owner for owner in holds if owner and owner.run), None)

    def in_a_run(self) -> LockOwner:
        """Wait for a run that is being measured in a job; return the owner of its lock."""
        wait_for(self.running, "a run that is being measured", 120)
        owner = self.running()
        assert owner is not None
        assert owner.job is not None
        return owner

    def in_another_run(self, than: LockOwner) -> None:
        """Wait for the run after this one."""
        wait_for(lambda: (owner := self.running()) and owner.run != than.run, "the second run", 150)

    def records(self) -> dict[str, Record]:
        """The records of all runs that have one."""
        manifest = Manifest.read(self.folder.manifest)
        found = {run: self.folder.record(run) for run in manifest.wanted_runs()}
        return {run: Record.read(path) for run, path in found.items() if path.exists()}

    def processes(self, module: str = "") -> list[psutil.Process]:
        """The living processes that work here and were started as this module; forks of them are left out."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                here = process.cwd() == str(self.path) and process.status() != psutil.STATUS_ZOMBIE
                parent = process.parent()
                own = parent is None or process.cmdline() != parent.cmdline()
                if here and own and module in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def say(self, *arguments: str) -> str:
        """What an accelsweep command prints, which must succeed."""
        command = [sys.executable, "-m", "accelsweep", *arguments]
        return subprocess.run(
            command, cwd=self.path, env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def submitted(self) -> list[str]:
        """The numbers of all jobs that this home ever submitted."""
        raise NotImplementedError

    def cancel(self, *jobs: str) -> None:
        """Cancel jobs as their user would."""
        raise NotImplementedError

    def left(self) -> list[str]:
        """The numbers of the jobs of this home that wait or run."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing behind: drivers, jobs, and what outlived them (a Snakemake was seen that ignored SIGTERM)."""
        for driver in self.drivers:
            if driver.poll() is None:
                driver.kill()
                driver.wait()
        if left := self.left():
            self.cancel(*left)
            wait_for(lambda: not self.left(), "cancelled jobs", 30)
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        wait_for(lambda: not self.processes(), "the end of what was killed", 30)
