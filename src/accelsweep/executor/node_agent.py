"""`python -m accelsweep.executor.node_agent SPEC`: started by srun to run one node's ranks of a multi-node run.

It leases the node's devices and starts the ranks as an executor does, forwards requests to stop, and writes how each
rank ended to a file in the attempt's folder (`multi_node.NodeReport`).
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

from accelsweep.devices import linux
from accelsweep.executor.device_lease import Lease, NotEnoughDevices, leased
from accelsweep.executor.launch import Launch, Launcher, LaunchMethod, children, kill_leftovers
from accelsweep.executor.multi_node import NodeReport, stacks_request
from accelsweep.executor.sampler import Sampler
from accelsweep.executor.stack_traces import print_stacks
from accelsweep.ipc import Interrupted, Signals
from accelsweep.results import Outcome, RankResult
from accelsweep.schedulers.protocol import SCRATCH_VARIABLE
from accelsweep.schedulers.slurm import node_name, node_number
from accelsweep.signals import exit_code_of, parser_for
from accelsweep.worker.run_spec import RunSpec

_LEASE_TIMEOUT_SECONDS = 60.0
"""The longest wait for a node that is timing another run; otherwise, two runs could wait for each other's nodes."""

_POLL_SECONDS = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run this node's ranks of the spec named on the command line; return the exit code."""
    parser = parser_for("executor.node_agent", "Run the ranks of a run on one of its nodes.")
    parser.add_argument("spec", type=Path, help="the run's spec file")
    parser.add_argument("--python", help="the interpreter of the ranks' environment, if it is not this one")
    parser.add_argument("--sample-seconds", type=float, help="the interval at which the node is sampled")
    options = parser.parse_args(arguments)
    return exit_code_of(lambda: run_node(RunSpec.read(options.spec), options.python, options.sample_seconds))


def run_node(spec: RunSpec, python: str | None = None, sample_seconds: float | None = None) -> None:
    """Run this node's ranks of `spec` with the interpreter `python`, by default this one, and sample the node.

    Slurm's variables provide the node's number; ours provide the rendezvous and, for another environment, its path.
    """
    node, signals = node_number(), Signals()
    local_size = int(os.environ["LOCAL_WORLD_SIZE"])
    ranks = range(node * local_size, (node + 1) * local_size)
    linux.adopt_orphans()
    report = NodeReport(node=node, host=node_name(), exit_codes={})
    report.write(NodeReport.path(spec, node))
    with signals.caught(), _scratch_folder(node):
        try:
            holder, models = f"{spec.run.name} of {spec.sweep}", spec.device_models
            folder, accelerator = Path(spec.attempt_folder), spec.config.accelerator
            with (
                leased(spec.config, holder, _pause_until_timeout(signals), _say, models) as lease,
                Sampler() as sampler,
                sampler.sample(folder, sample_seconds, accelerator, lease, node) as watch,
            ):
                _run(spec, report, ranks, lease, signals, python, watch)
        except NotEnoughDevices as error:
            _fail(spec, report, ranks, f"{report.host}: {error}")
        except Interrupted:
            if signals.stop is None:
                _fail(spec, report, ranks, f"{report.host} was busy with another run for {_LEASE_TIMEOUT_SECONDS:g} s")


@contextlib.contextmanager
def _scratch_folder(node: int) -> Iterator[None]:
    """Create the TMPDIR folder; at the end, remove the job's own scratch folder, if any, except on the first node.

    On the first node, the job's script creates and removes `site.slurm.scratch`.
    """
    try:
        Path(os.environ.get("TMPDIR", "")).mkdir(parents=True, exist_ok=True)
    except OSError as error:  # programs then fall back to another folder; this one may exist only on the login node
        _say(f"the TMPDIR folder cannot be created on this node: {error}")
    yield
    if node and (scratch := os.environ.get(SCRATCH_VARIABLE)):
        shutil.rmtree(scratch, ignore_errors=True)


def _run(
    spec: RunSpec,
    report: NodeReport,
    ranks: range,
    lease: Lease,
    signals: Signals,
    python: str | None,
    watch: Callable[[Mapping[int, int]], None],
) -> None:
    launcher, oom_kills_before, unrelated = Launcher(), linux.oom_kills(), children()  # such as the sampler
    # another environment's fork server would serve a single run
    method: LaunchMethod = "spawn" if python is not None else launcher.method_for(spec.config, _say)
    environment = {**os.environ, "NODE_RANK": str(report.node), **lease.environment, **spec.config.env}
    local = launcher.start(Launch(spec, method, environment, 2, lease.descriptors, python), ranks)
    watch(local.running())
    terminated, written = False, 0
    while not local.all_ended:
        if signals.stop is not None and not terminated:
            local.signal(signal.SIGTERM)
            terminated = True
        signals.wait(_POLL_SECONDS)
        local.poll()
        if local.all_ended:
            kill_leftovers(unrelated)
        # checked by listing the folder, because that refreshes the NFS cache
        if not report.stacks and stacks_request(spec) in Path(spec.attempt_folder).iterdir():
            print_stacks(local.running())
            report, written = report.model_copy(update={"stacks": True}), -1
        if len(local.exit_codes) > written:
            written = len(local.exit_codes)
            codes = {rank: code for rank, code in local.exit_codes.items() if code is not None}
            _report(spec, report, codes, linux.oom_kills() - oom_kills_before)


def _report(spec: RunSpec, report: NodeReport, exit_codes: dict[int, int], oom_kills: int = 0) -> None:
    changed = {"exit_codes": exit_codes, "oom_kills": oom_kills}
    report.model_copy(update=changed).write(NodeReport.path(spec, report.node))


def _fail(spec: RunSpec, report: NodeReport, ranks: range, reason: str) -> None:
    """Report the node's ranks as crashed before they were started."""
    for rank in ranks:
        result = RankResult(rank=rank, outcome=Outcome.crashed, reason=reason, error_kind="none")
        result.write(spec.rank_result(rank))
    _report(spec, report, dict.fromkeys(ranks, 0))


def _pause_until_timeout(signals: Signals) -> Callable[[float], bool]:
    deadline = time.monotonic() + _LEASE_TIMEOUT_SECONDS
    return lambda seconds: signals.pause(seconds) or time.monotonic() > deadline


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    sys.exit(main())
