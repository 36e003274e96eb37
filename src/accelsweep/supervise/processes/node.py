"""`python -m accelsweep.supervise.processes.node SPEC`: the ranks of a run on one of its nodes, started there by srun.

It leases the node's devices and starts the ranks as a supervisor would: forked where that is safe. It passes a wish to
stop on to them, and keeps its report up to date until the last of them has ended. The supervisor on the first node
decides everything else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from accelsweep.base.entry import answer, parser_for
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.engines.node import SCRATCH_VARIABLE
from accelsweep.engines.this_job import node_name, node_number
from accelsweep.machine import linux
from accelsweep.rank.spec import ErrorKind, RankResult, RunSpec
from accelsweep.supervise.leases import Lease, NotEnoughDevices, leased
from accelsweep.supervise.processes.launchers import Launch, Launchers
from accelsweep.supervise.processes.nodes import NodeReport, report_file, stacks_mark
from accelsweep.supervise.processes.ranks import LocalRanks, end_leftovers
from accelsweep.supervise.processes.stacks import print_stacks
from accelsweep.supervise.signals import Interrupted, Signals

BUSY_SECONDS = 60.0
"""The longest wait for a node that times another run. Without a limit two runs could wait for each other's nodes."""

_LOOK_SECONDS = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run this node's ranks of the spec named on the command line and return the exit code."""
    parser = parser_for("supervise.processes.node", __doc__)
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
        signals.wait(_LOOK_SECONDS)
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
