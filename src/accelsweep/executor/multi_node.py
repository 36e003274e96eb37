"""A run on several nodes, as seen by its executor on the first node: one `srun` with a node agent on every node.

Node agents write how their ranks ended to the attempt's folder on the shared file system. If a node goes silent, srun
ends the other nodes, and the silent node's ranks are considered lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from accelsweep.errors import DamagedFile
from accelsweep.executor.device_lease import NotEnoughDevices
from accelsweep.executor.launch import Launch
from accelsweep.executor.run_log import RunLog
from accelsweep.executor.srun import SRUN_END_SECONDS, ProxiedSrun, Srun, SrunRequest, connect_to_proxy, start_srun
from accelsweep.ipc import SRUN_PROXY_VARIABLE
from accelsweep.json_documents import Document
from accelsweep.run_config import SettingConfig
from accelsweep.schedulers.select import this_job
from accelsweep.worker.run_spec import RunSpec

_DUMP_STACKS_SECONDS = 35.0

_FILE_VISIBLE_SECONDS = 60.0
"""How long NFS may cache a directory listing before files written by another node become visible."""

_POLL_SECONDS = 0.5


class NodeReport(Document):
    """How the ranks of one node have ended so far, and the number of out-of-memory kills on that node.

    `stacks` is set once the node has dumped the stacks of its ranks on request.
    """

    kind: ClassVar[str] = "node-report"

    node: int
    host: str
    exit_codes: dict[int, int]
    oom_kills: int = 0
    stacks: bool = False

    @classmethod
    def path(cls, spec: RunSpec, node: int) -> Path:
        """Return the path of the report from node number `node`."""
        return Path(spec.attempt_folder) / f"node-{node}.json"


def stacks_request(spec: RunSpec) -> Path:
    """Return the path of the empty file that makes all node agents dump the stacks of their ranks."""
    return Path(spec.attempt_folder) / "stacks"


def check_multi_node(config: SettingConfig, container: str | None = None) -> None:
    """Raise NotEnoughDevices unless this is a Slurm job that can call srun (from a `container`, through the proxy)."""
    if container is not None:
        connect_to_proxy().close()
    job = this_job()
    if job is None or job.across_nodes(config.num_nodes, 1, (sys.executable,)) is None:
        raise NotEnoughDevices(f"the run requires {config.num_nodes} nodes, but this executor is not in a Slurm job")


def start_on_nodes(launch: Launch, cpus: int, sample_seconds: float | None) -> RemoteRanks:
    """Start the ranks of `launch`: a node agent with `cpus` CPU cores on each node, which samples the node."""
    options: tuple[str, ...] = () if launch.python is None else ("--python", launch.python)
    options += () if sample_seconds is None else ("--sample-seconds", str(sample_seconds))
    request = SrunRequest(
        nodes=launch.spec.config.num_nodes,
        cpus=cpus,
        arguments=("-P", "-m", "accelsweep.executor.node_agent", str(launch.spec.file()), *options),
        environment={**launch.environment, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"},
    )
    if SRUN_PROXY_VARIABLE in os.environ:
        return RemoteRanks(launch.spec, ProxiedSrun(request, launch.log))
    return RemoteRanks(launch.spec, start_srun(request, (sys.executable,), launch.log))


@dataclass
class RemoteRanks:
    """The ranks of a run on several nodes, controlled through `srun`."""

    spec: RunSpec
    srun: Srun
    exit_codes: dict[int, int | None] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    oom_kills: int = 0
    file_visible_seconds: float = _FILE_VISIBLE_SECONDS
    _forced_at: float | None = None

    @property
    def all_ended(self) -> bool:
        """Whether srun has ended and every rank is accounted for."""
        return self.srun.returncode is not None and len(self.exit_codes) == self.spec.world_size

    def descriptors(self) -> list[int]:
        """Return none: reports are files."""
        return []

    def poll(self) -> None:
        """Read the nodes' reports; once srun has ended, a rank without a report is lost."""
        srun_ended = self.srun.poll() is not None
        if srun_ended:
            self._wait_for_files()
        reports = self._reports()
        self.oom_kills = sum(report.oom_kills for report in reports.values())
        for report in reports.values():
            self.exit_codes.update(report.exit_codes)
        if not srun_ended:
            return
        for rank in sorted(set(range(self.spec.world_size)) - self.exit_codes.keys()):
            self.exit_codes[rank] = None
            node = rank // self.spec.config.devices
            where = f"on {reports[node].host}, which" if node in reports else "which"
            what = "did not report how it ended" if node in reports else "never reported"
            self.lost[rank] = f"node {node} {where} {what}; srun ended with exit code {self.srun.returncode}"

    def signal(self, number: signal.Signals) -> None:
        """Stop ranks with SIGUSR1, which srun forwards; for SIGKILL, have srun end its step (SIGTERM), then kill it."""
        with contextlib.suppress(ProcessLookupError):
            if number is not signal.SIGKILL:
                self.srun.send_signal(signal.SIGUSR1)
            elif self._forced_at is None:
                self._forced_at = time.monotonic()
                self.srun.send_signal(signal.SIGTERM)
            elif time.monotonic() - self._forced_at > SRUN_END_SECONDS:
                self.srun.send_signal(signal.SIGKILL)

    def dump_stacks(self, log: RunLog, wait: Callable[[float], None]) -> bool:
        """Notify all node agents, whose output srun copies to the log, and wait until each has responded."""
        stacks_request(self.spec).touch()
        deadline, answers = time.monotonic() + _DUMP_STACKS_SECONDS, 0
        while answers < self.spec.config.num_nodes and time.monotonic() < deadline and self.srun.poll() is None:
            wait(_POLL_SECONDS)
            log.pump()
            answers = sum(report.stacks for report in self._reports().values())
        return answers > 0

    def _reports(self) -> dict[int, NodeReport]:
        reports = {}
        for node in range(self.spec.config.num_nodes):
            with contextlib.suppress(FileNotFoundError, DamagedFile):
                reports[node] = NodeReport.read(NodeReport.path(self.spec, node))
        return reports

    def _wait_for_files(self) -> None:
        """If srun succeeded but files are missing, give other nodes' files time to appear on this node."""
        deadline = time.monotonic() + self.file_visible_seconds
        while self.srun.returncode == 0 and self._files_missing() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _files_missing(self) -> bool:
        present = set(Path(self.spec.attempt_folder).iterdir())  # listing a folder refreshes the NFS cache
        reports = (NodeReport.path(self.spec, node) for node in range(self.spec.config.num_nodes))
        successful = (
            rank for report in self._reports().values() for rank, code in report.exit_codes.items() if not code
        )
        return not present.issuperset((*reports, *map(self.spec.rank_result, successful)))
