"""A run on several nodes, seen from the supervisor on the first: one `srun` with one process per node (`run_node`).

In a container there is no srun. Then a process of ours outside starts it (`executor.srun`).
The process on each node reports on the shared file system, in the attempt's folder, how each of its ranks ended. If a
node goes silent, srun ends the others. The silent node's ranks count as lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from accelsweep.config.schema import CellConfig
from accelsweep.devices import linux
from accelsweep.errors import DamagedFile
from accelsweep.executor.device_lease import Lease, NotEnoughDevices, leased
from accelsweep.executor.ipc import OUTSIDE_VARIABLE, Interrupted, Signals
from accelsweep.executor.launch import Launch, Launchers
from accelsweep.executor.processes import LocalRanks, RunLog, end_leftovers, print_stacks
from accelsweep.executor.srun import SRUN_END_SECONDS, Srun, SrunOutside, SrunWish, reach, start_srun
from accelsweep.json_documents import Document
from accelsweep.records.run_record import Outcome
from accelsweep.schedulers.protocol import SCRATCH_VARIABLE
from accelsweep.schedulers.select import this_job
from accelsweep.schedulers.slurm import node_name, node_number
from accelsweep.signals import answer, parser_for
from accelsweep.worker.run_spec import ErrorKind, RankResult, RunSpec

STACKS_SECONDS = 35.0
"""The time in which the nodes may write the stacks of their ranks."""

VISIBLE_SECONDS = 60.0
"""The time within which a shared file system shows files of another node here (NFS caches so long)."""

_LOOK_SECONDS = 0.5


class NodeReport(Document):
    """The endings of one node's ranks so far, and the number of processes killed there for lack of memory.

    `stacks` says whether it has written the stacks of its ranks, which it was asked for.
    """

    kind: ClassVar[str] = "node-report"

    node: int
    host: str
    statuses: dict[int, int]
    oom_kills: int = 0
    stacks: bool = False


def stacks_mark(spec: RunSpec) -> Path:
    """The path of the empty file that asks the process on each node for the stacks of its ranks."""
    return Path(spec.attempt_folder) / "stacks"


def report_file(spec: RunSpec, node: int) -> Path:
    """The path of the report of node number `node`."""
    return Path(spec.attempt_folder) / f"node-{node}.json"


def check_job(config: CellConfig, container: str | None = None) -> None:
    """Raise NotEnoughDevices where there is no Slurm job whose nodes a run of several could use from a `container`."""
    if container is not None:
        reach().close()
    job = this_job()
    if job is None or job.across_nodes(config.num_nodes, 1, (sys.executable,)) is None:
        raise NotEnoughDevices(f"it asks for {config.num_nodes} nodes; this supervisor is not in a Slurm job")


def start_across_nodes(launch: Launch, cpus: int) -> RanksAcrossNodes:
    """Start the ranks of `launch`, on each node in one process that has `cpus` CPU cores."""
    wish = SrunWish(
        nodes=launch.spec.config.num_nodes,
        cpus=cpus,
        program=("-P", "-m", "accelsweep.executor.multi_node", str(launch.spec.file())),
        environment={**launch.environment, "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"},
    )
    if OUTSIDE_VARIABLE in os.environ:
        return RanksAcrossNodes(launch.spec, SrunOutside(wish, launch.log))
    return RanksAcrossNodes(launch.spec, start_srun(wish, (sys.executable,), launch.log))


@dataclass
class RanksAcrossNodes:
    """The ranks of a run on several nodes; `srun` is the process that stands for all of them here."""

    spec: RunSpec
    srun: Srun
    statuses: dict[int, int | None] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    oom_kills: int = 0
    visible_seconds: float = VISIBLE_SECONDS
    _forced_at: float | None = None

    @property
    def gone(self) -> bool:
        """Whether srun has ended and every rank is accounted for."""
        return self.srun.returncode is not None and len(self.statuses) == self.spec.world_size

    def look(self) -> None:
        """Read the nodes' reports; once srun has ended, a rank in no report is lost."""
        over = self.srun.poll() is not None
        if over:
            self._wait_for_files()
        reports = self._reports()
        self.oom_kills = sum(report.oom_kills for report in reports.values())
        for report in reports.values():
            self.statuses.update(report.statuses)
        if over:
            self._count_lost(reports)

    def signal(self, number: signal.Signals) -> None:
        """Ask politely through srun, which passes SIGUSR1 on; or make it kill its step, by SIGTERM."""
        with contextlib.suppress(ProcessLookupError):
            if number is not signal.SIGKILL:
                self.srun.send_signal(signal.SIGUSR1)
            elif self._forced_at is None:
                self._forced_at = time.monotonic()
                self.srun.send_signal(signal.SIGTERM)
            elif time.monotonic() - self._forced_at > SRUN_END_SECONDS:
                self.srun.send_signal(signal.SIGKILL)

    def write_stacks(self, log: RunLog, wait: Callable[[float], None]) -> bool:
        """Ask the process on each node, whose words srun brings into the log, and wait until all have answered."""
        stacks_mark(self.spec).touch()
        deadline, answered = time.monotonic() + STACKS_SECONDS, 0
        while answered < self.spec.config.num_nodes and time.monotonic() < deadline and self.srun.poll() is None:
            wait(_LOOK_SECONDS)
            log.pump()
            answered = sum(report.stacks for report in self._reports().values())
        return answered > 0

    def _reports(self) -> dict[int, NodeReport]:
        found = {}
        for node in range(self.spec.config.num_nodes):
            with contextlib.suppress(FileNotFoundError, DamagedFile):
                found[node] = NodeReport.read(report_file(self.spec, node))
        return found

    def _count_lost(self, reports: Mapping[int, NodeReport]) -> None:
        for rank in set(range(self.spec.world_size)) - self.statuses.keys():
            node = rank // self.spec.config.devices
            self.statuses[rank] = None
            where = f"on {reports[node].host}, which" if node in reports else "which"
            what = "did not say how it ended" if node in reports else "gave no sign of life"
            self.lost[rank] = f"node {node} {where} {what}; srun ended with exit code {self.srun.returncode}"

    def _wait_for_files(self) -> None:
        """Give files of other nodes time to appear here, where srun reports success and some are missing."""
        deadline = time.monotonic() + self.visible_seconds
        while self.srun.returncode == 0 and self._missing() and time.monotonic() < deadline:
            time.sleep(0.5)

    def _missing(self) -> bool:
        there = set(Path(self.spec.attempt_folder).iterdir())  # a listing refreshes NFS's cache
        nodes = (report_file(self.spec, node) for node in range(self.spec.config.num_nodes))
        ended_well = (rank for report in self._reports().values() for rank, code in report.statuses.items() if not code)
        return not there.issuperset((*nodes, *map(self.spec.rank_result, ended_well)))


# `python -m accelsweep.executor.multi_node SPEC`: the ranks of a run on one of its nodes, started there by srun.

BUSY_SECONDS = 60.0
"""The longest wait for a node that times another run. Without a limit two runs could wait for each other's nodes."""

_NODE_LOOK_SECONDS = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run this node's ranks of the spec named on the command line and return the exit code."""
    parser = parser_for("executor.multi_node", "Run the ranks of a run on one of its nodes.")
    parser.add_argument("spec", type=Path, help="the run's spec file")
    options = parser.parse_args(arguments)
    return answer(lambda: run_node(options.spec))


def run_node(spec_path: Path) -> None:
    """Run this node's ranks of the spec at `spec_path`; the environment has the node's number and the rendezvous."""
    spec, node, signals = RunSpec.read(spec_path), node_number(), Signals()
    local_size = int(os.environ["LOCAL_WORLD_SIZE"])
    ranks = range(node * local_size, (node + 1) * local_size)
    host = node_name()
    linux.adopt_orphans()
    report = NodeReport(node=node, host=host, statuses={})
    report.write(report_file(spec, node))
    with signals.caught(), _scratch(node):
        try:
            holder, models = f"{spec.run.name} of {spec.sweep}", spec.device_models
            with leased(spec.config, holder, _patience(signals), _say, models) as lease:
                _run(spec, report, ranks, lease, signals)
        except NotEnoughDevices as error:
            _refuse(spec, report, ranks, Outcome.crashed, "none", f"{host}: {error}")
        except Interrupted:
            if signals.stop is None:
                reason = f"{host} was busy with another run for {BUSY_SECONDS:g} s"
                _refuse(spec, report, ranks, Outcome.crashed, "none", reason)


@contextlib.contextmanager
def _scratch(node: int) -> Iterator[None]:
    """Make the folder that TMPDIR names: the job's script made `site.slurm.scratch` on the first node only.

    One that is the job's own is removed again. On the first node the script does that.
    """
    try:
        Path(os.environ.get("TMPDIR", "")).mkdir(parents=True, exist_ok=True)
    except OSError as error:  # programs then use another folder; this one may exist on a login node only
        _say(f"TMPDIR cannot be made on this node: {error}")
    yield
    if node and (own := os.environ.get(SCRATCH_VARIABLE)):
        shutil.rmtree(own, ignore_errors=True)


def _run(spec: RunSpec, report: NodeReport, ranks: range, lease: Lease, signals: Signals) -> None:
    launchers, before = Launchers(), linux.oom_kills()
    kind = launchers.kind_for(spec.config, _say)
    environment = {**os.environ, "NODE_RANK": str(report.node), **lease.environment, **spec.config.env}
    started = LocalRanks(launchers.start(Launch(spec, kind, environment, 2, lease.descriptors), ranks), ranks.start)
    asked, known = False, 0
    while not started.gone:
        if signals.stop is not None and not asked:
            started.signal(signal.SIGTERM)
            asked = True
        signals.wait(_NODE_LOOK_SECONDS)
        started.look()
        if started.gone:
            end_leftovers(frozenset())
        if not report.stacks and _asked_for_stacks(spec):
            print_stacks(started.living())
            report, known = report.model_copy(update={"stacks": True}), -1
        if len(started.statuses) > known:
            known = len(started.statuses)
            _write(spec, report, started.statuses, linux.oom_kills() - before)


def _asked_for_stacks(spec: RunSpec) -> bool:
    mark = stacks_mark(spec)
    return mark in mark.parent.iterdir()  # a listing refreshes NFS's cache


def _write(spec: RunSpec, report: NodeReport, statuses: Mapping[int, int | None], oom_kills: int = 0) -> None:
    ended = {rank: status for rank, status in statuses.items() if status is not None}
    report.model_copy(update={"statuses": ended, "oom_kills": oom_kills}).write(report_file(spec, report.node))


def _refuse(spec: RunSpec, report: NodeReport, ranks: range, outcome: Outcome, kind: ErrorKind, reason: str) -> None:
    """Report the node's ranks as ended before they began."""
    for rank in ranks:
        RankResult(rank=rank, outcome=outcome, reason=reason, error_kind=kind).write(spec.rank_result(rank))
    _write(spec, report, dict.fromkeys(ranks, 0))


def _patience(signals: Signals) -> Callable[[float], bool]:
    deadline = time.monotonic() + BUSY_SECONDS
    return lambda seconds: signals.pause(seconds) or time.monotonic() > deadline


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
