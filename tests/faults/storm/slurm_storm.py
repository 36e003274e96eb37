"""One case of the storm on a real Slurm: a fresh sweep of two runs, its faults, and the same command until it ends.

Everything else is as in `storm`, whose promises hold here, too. No job of the sweep may be left in the queue either.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from grammar import Fault
from polling import until
from promises import left_running
from scene import Scene
from slurm_grammar import DAEMONS, JOB_STRIKES, WAITING
from slurm_home import SlurmHome
from storm import Storm

COMMAND = ["run", "experiment=tiny", "site=box", "--profile", "quick", "measure.min_seconds=1"]
TWO_JOBS = "block.size=1"
"""The sweep's two runs are in a job each where the seed is odd, otherwise one after the other in one job."""

_PAUSE_SECONDS = 3.0
_LEAVING_SECONDS = 20.0
"""A job that has ended may be on its way out of the queue for so long (KillWait and more)."""

_HURRY = """\
while sleep 2; do
  squeue --noheader --states=PENDING --format='%i %r' | while read -r job reason; do
    [ "$reason" != BeginTime ] || scontrol update jobid="$job" starttime=now
  done
done
"""
"""Slurm holds a job that it queues again back for two minutes, which no test needs."""


class SlurmStorm(Storm):
    """A case while it happens, on the cluster of tests/slurm/cluster.sh."""

    longest_seconds = 600.0
    cluster: SlurmHome

    def _prepare(self, stack: ExitStack) -> None:
        self.place.temporary.mkdir(exist_ok=True)
        self.cluster = SlurmHome(self.home)
        site = self.home / "conf" / "site" / "box.yaml"
        scratch = f'scratch: "{self.place.temporary}/$SLURM_JOB_ID", '
        site.write_text(site.read_text().replace("{partition", "{" + scratch + "partition"))
        stack.callback(self.cluster.close)
        shutil.copy2(self.place.empty_database, self.home / "mlflow.db")
        hurry = subprocess.Popen(["bash", "-c", _HURRY], start_new_session=True, stderr=subprocess.DEVNULL)
        stack.callback(hurry.wait)
        stack.callback(hurry.send_signal, signal.SIGTERM)
        if any(fault.what in DAEMONS for fault in self.case.faults):
            stack.callback(self.cluster.has, "up")

    def _command(self, number: int) -> int:
        if any(fault.when == WAITING and fault.command == number for fault in self.case.faults):
            self.cluster.hold_back()
            self.until_it_ends.callback(self.cluster.let_go)
        return super()._command(number)

    def _arguments(self) -> list[str]:
        return [*COMMAND, TWO_JOBS] if self.case.seed % 2 else COMMAND

    def _environment(self, own_server: bool) -> dict[str, str]:
        own = {"PYTHONUNBUFFERED": "1", "COLUMNS": "300", "TMPDIR": str(self.place.temporary)}
        return self.cluster.environment | own

    def _strike(self, fault: Fault, scene: Scene | None) -> bool:
        try:
            if fault.what not in JOB_STRIKES and fault.what not in DAEMONS:
                return super()._strike(fault, scene)
            met = self._of_a_job(fault) if fault.what in JOB_STRIKES else self._of_a_daemon(fault)
            self.struck += [fault] if met else []
            return met
        finally:
            if fault.when == WAITING:
                self.cluster.let_go()

    def _of_a_job(self, fault: Fault) -> bool:
        jobs = sorted(self.cluster.left(), key=int)
        if not jobs:
            return False
        job = jobs[fault.dice % len(jobs)]
        first, *others = (command.format(job=job).split() for command in JOB_STRIKES[fault.what])
        done = subprocess.run(first, capture_output=True, text=True, check=False)
        if done.returncode:  # it has just ended, or it has not begun
            time.sleep(0.5)
            return False
        self.log.append(" ".join(first))
        for command in others:
            time.sleep(_PAUSE_SECONDS)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.log.append(f"{' '.join(command)} -> {done.returncode} {done.stderr.strip()}")
        return True

    def _of_a_daemon(self, fault: Fault) -> bool:
        seconds = str(round(8 * random.Random(fault.dice).random(), 1))
        if DAEMONS[fault.what] == "slurmctld":
            self.log.append(f"slurmctld is away for {seconds} s")
            self.cluster.has("controller-away", seconds)
            return True
        nodes = self.cluster.nodes()
        for node in nodes:
            self.log.append(f"slurmd of {node} is killed, and back after {seconds} s")
            self.cluster.has("node-killed", node, seconds)
        return bool(nodes)

    def _check_nothing_left(self) -> None:
        until(lambda: not (self.cluster.left() or left_running(self.home, self.place.temporary)), _LEAVING_SECONDS)
        # what a killed job leaves is its node's to remove: its scratch folder, its Snakemake's files, torch's cache
        for own in ("[0-9]*", "snakemake*", "torchinductor_*"):
            for folder in self.place.temporary.glob(own):
                shutil.rmtree(folder)
        super()._check_nothing_left()

    def keep_evidence(self, folder: Path) -> None:
        """Copy what is left of the user's working directory, and what was said."""
        super().keep_evidence(folder)
        shown = subprocess.run(["scontrol", "show", "job"], capture_output=True, text=True, check=False)
        (folder / "jobs.txt").write_text(shown.stdout)
