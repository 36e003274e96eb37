"""The cost of isolating a run: wall seconds per run beyond the training itself, forked, spawned, and by hand.

    python benchmarks/overhead.py [RUNS] [ROUNDS]

Every run trains the same 200 steps of the small CNN on digits with Lightning, on one CPU thread. In each round a
executor that forks measures RUNS (6) runs, and one that spawns as many. A loop of `python bare_train.py` does so too.
The three take turns for ROUNDS (2) rounds, so that a slow machine is slow for all. The executor's time before its
first run (imports, once per block) is printed apart, and with each run's share of it. Exit code 1 if a forked run costs
more than one eighth of a fresh interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median

import pyarrow.parquet

from accelsweep.devices.linux import usable_cores
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.run_record import Record

STEPS = 200
WANTED_RATIO = 8.0
OVERRIDES = [
    "accelerator=cpu",
    "threads=1",
    "batch_size=32",
    "model=small_cnn",
    "data=digits",
    "loop=lightning",
    "measure.warmup_steps=50",
    f"measure.min_steps={STEPS - 50}",
    f"measure.max_steps={STEPS}",
    "measure.min_seconds=0.0",
    "measure.quality_samples=null",
    "measure.probe_steps=null",
    "repeats=1",
]
BARE = Path(__file__).with_name("bare_train.py")


@dataclass
class Costs:
    """Seconds by run beyond its training (`each`), and by block before the first run began (`starts`)."""

    each: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)


def isolated(launcher: str, runs: int, costs: Costs) -> None:
    """Measure a block of `runs` settings that differ in their seed."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        seeds = ",".join(str(1000 * number) for number in range(runs))
        plan = make_plan(home, [*OVERRIDES, f"launcher={launcher}", f"seed={seeds}"], name="overhead")
        folder = write_plan(home, plan)
        (block,) = plan.manifest.blocks
        started_at = time.time()  # compared with the records' times of day
        command = [sys.executable, "-m", "accelsweep.executor", str(folder.block(block.name))]
        subprocess.run(command, cwd=home, check=True, stdout=subprocess.DEVNULL)
        ended_at = time.time()
        records = sorted((Record.read(folder.record(run)) for run in block.runs), key=lambda record: record.started_at)
        assert all(record.outcome == "measured" for record in records), [record.reason for record in records]
        begins = [datetime.fromisoformat(record.started_at).timestamp() for record in records]
        costs.starts.append(begins[0] - started_at)
        for record, begin, end in zip(records, begins, [*begins[1:], ended_at], strict=True):
            costs.each.append(end - begin - training_seconds(folder, record))


def training_seconds(folder: SweepFolder, record: Record) -> float:
    """Return the sum of all step times of a run, warm-up included."""
    table = pyarrow.parquet.read_table(folder.steps(record.run), columns=["step_seconds"])
    return float(sum(table["step_seconds"].to_pylist()))


def by_hand(runs: int, costs: Costs) -> None:
    """Measure `runs` fresh interpreters."""
    for seed in range(runs):
        started = time.perf_counter()
        command = [sys.executable, str(BARE), str(STEPS), str(seed)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        trained = float(done.stdout.rpartition("seconds ")[2])
        costs.each.append(time.perf_counter() - started - trained)


def main(runs: int = 6, rounds: int = 2) -> int:
    """Run all three in turn, print the table, return the exit code."""
    found = {"fork": Costs(), "spawn": Costs(), "by hand": Costs()}
    with tempfile.TemporaryDirectory() as leases:
        os.environ["ACCELSWEEP_LEASES"] = leases
        for _ in range(rounds):
            isolated("fork", runs, found["fork"])
            isolated("spawn", runs, found["spawn"])
            by_hand(runs, found["by hand"])
    print(
        f"{rounds} rounds of {runs} runs of {STEPS} steps; seconds per run beyond training, on {usable_cores()} cores"
    )
    print(f"{'':8} {'median':>8} {'least':>8} {'most':>8} {'start of block':>15} {'with its share':>15}")
    for name, costs in found.items():
        start = median(costs.starts) if costs.starts else 0.0
        seconds = [median(costs.each), min(costs.each), max(costs.each)]
        shared = median(costs.each) + start / runs
        print(f"{name:8} {seconds[0]:8.3f} {seconds[1]:8.3f} {seconds[2]:8.3f} {start:15.3f} {shared:15.3f}")
    fork = median(found["fork"].each)
    ratios = {name: median(found[name].each) / fork for name in ("spawn", "by hand")}
    for name, ratio in ratios.items():
        print(f"{name} / fork: {ratio:.1f} x (wanted: at least {WANTED_RATIO:g} x)")
    return 0 if min(ratios.values()) >= WANTED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
