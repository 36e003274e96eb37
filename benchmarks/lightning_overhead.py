"""The cost of Lightning per step, in microseconds: against the bare loop, on one and two processes, without its flag.

    python benchmarks/lightning_overhead.py [--pairs 10] [--steps 400] [--batch-size 32]

With more than one process Lightning broadcasts a flag before every step (has a rank received SIGTERM?) and reads it
back. Here each kind of loop trains the same MLP on digits with one CPU thread per rank. The kinds take turns in random
order. Each measurement is a group of processes of its own, forked from one that has torch loaded. `Without the flag` is
Lightning with that broadcast taken out, which only a benchmark may do. Each difference is the mean over pairs of the
seconds per step, with its 95 % paired t interval. An interval that holds 0 shows no cost.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import statistics
import tempfile

from one_run import interval, metric_of, spec_of

from accelsweep.devices.linux import usable_cores
from accelsweep.records.run_files import read_rank_result
from accelsweep.worker.main import preload, run_rank
from accelsweep.worker.run_spec import RunSpec

KINDS = {1: ("raw", "lightning"), 2: ("raw", "lightning", "lightning without the flag")}


def step_microseconds(options: argparse.Namespace, kind: str, processes: int, seed: int) -> float:
    """Return the mean step of one group of processes, as accelsweep records it."""
    model = {"_target_": "accelsweep.workloads.image_models.MLP", "width": 64}
    shape = {"steps": options.steps, "batch_size": options.batch_size, "devices": processes}
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_of(folder, model, seed, loop=kind.split()[0], **shape)
        port = free_port()
        children = [start(spec, rank, port, "without" in kind) for rank in range(processes)]
        for child in children:
            os.waitpid(child, 0)
        return metric_of(read_rank_result(spec.rank_result(0)), "step_seconds") * 1e6


def start(spec: RunSpec, rank: int, port: int, without_flag: bool) -> int:
    """Fork one rank, silent; return its process id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": spec.world_size, "MASTER_PORT": port}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in place.items()}}
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            if without_flag:
                take_out_the_flag()
            run_rank(spec)
            code = 0
        finally:
            os._exit(code)
    return child


def take_out_the_flag() -> None:
    """Leave out the broadcast, a method of Lightning's own, in this process; without the method the benchmark ends."""
    from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop

    assert callable(_TrainingEpochLoop._broadcast_sigterm_tensor)
    _TrainingEpochLoop._broadcast_sigterm_tensor = lambda _loop: None  # type: ignore[method-assign,assignment]


def free_port() -> int:
    """Return a port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    preload()
    plan = [(kind, processes) for processes, kinds in KINDS.items() for kind in kinds]
    found: dict[tuple[str, int], list[float]] = {key: [] for key in plan}
    order = random.Random(1)
    for pair in range(options.pairs):
        for kind, processes in order.sample(plan, len(plan)):
            found[kind, processes].append(step_microseconds(options, kind, processes, pair + 1))
    print(f"{options.pairs} pairs of {options.steps} steps, batch {options.batch_size}, {usable_cores()} cores")
    for (kind, processes), values in found.items():
        print(f"  {kind:27} on {processes}: median {statistics.median(values):8.0f} us per step")
    difference("Lightning on 1 process", found["lightning", 1], found["raw", 1])
    difference("Lightning on 2 processes", found["lightning", 2], found["raw", 2])
    difference("  without the flag", found["lightning without the flag", 2], found["raw", 2])
    difference("  the flag alone", found["lightning", 2], found["lightning without the flag", 2])


def difference(name: str, slow: list[float], bare: list[float]) -> None:
    """Print how much more the first kind costs than the second."""
    mean, low, high = interval([one - other for one, other in zip(slow, bare, strict=True)], 0.95)
    print(f"{name:26} {mean:7.0f} us per step, 95 % interval {low:.0f} to {high:.0f}")


if __name__ == "__main__":
    main()
