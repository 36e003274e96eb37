"""The cost of following a sweep: rates of runs while a publisher copies them to MLflow, against runs left alone.

    python benchmarks/follow.py [PAIRS]

An executor measures pairs of blocks in turn; each block has four runs of the small CNN on digits. A publisher follows
one block of each pair (SQLite store, as `accelsweep run` starts it), and the other is left alone. There are PAIRS (8)
of them. The publisher is started before its block and given time to load. Prints the paired 95 % t-interval of the
ratio of rates; exit code 1 if the interval does not hold 1.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import exp, log
from pathlib import Path
from statistics import fmean

from accelsweep.analysis.intervals import Family, t_interval
from accelsweep.planning.plan import make_plan, write_plan
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.run_record import Record

RUNS = 4
LOAD_SECONDS = 6.0
OVERRIDES = [
    "experiment=quickstart",
    "accelerator=cpu",
    "devices=1",
    "batch_size=32",
    "precision=32-true",
    f"seed={','.join(str(seed) for seed in range(RUNS))}",
    "measure.quality_samples=null",
    "measure.probe_steps=null",
]


@contextmanager
def followed(folder: SweepFolder) -> Iterator[None]:
    """Follow the sweep for the length of the block."""
    command = [sys.executable, "-m", "accelsweep.tracking.live_publishing", str(folder.root), "--follow"]
    publisher = subprocess.Popen(command, cwd=folder.home, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    time.sleep(LOAD_SECONDS)
    try:
        yield
    finally:
        publisher.terminate()
        publisher.wait()


def log_rate(folder: SweepFolder, block: str, runs: tuple[str, ...]) -> float:
    """Measure a block; return the mean log rate of its runs."""
    command = [sys.executable, "-m", "accelsweep.executor", str(folder.block(block))]
    subprocess.run(command, cwd=folder.home, check=True, stdout=subprocess.DEVNULL)
    rates = [Record.read(folder.record(run)).metrics["samples_per_second"].value for run in runs]
    return fmean(log(rate) for rate in rates if rate is not None)


def main() -> int:
    """Measure the pairs and print the ratio of followed to alone."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    with tempfile.TemporaryDirectory() as scratch:
        folder = write_plan(
            Path(scratch), make_plan(Path(scratch), [*OVERRIDES, f"repeats={2 * pairs}"], name="follow")
        )
        blocks = Manifest.read(folder.manifest).blocks
        differences = []
        for pair in range(pairs):
            first, second = blocks[2 * pair], blocks[2 * pair + 1]
            watched, alone = (first, second) if pair % 2 else (second, first)
            with followed(folder):
                with_publisher = log_rate(folder, watched.name, watched.runs)
            without = log_rate(folder, alone.name, alone.runs)
            differences.append(with_publisher - without)
            print(f"pair {pair + 1}: followed / alone = {exp(differences[-1]):.4f}", flush=True)
    interval = t_interval(differences, Family())
    if interval.low is None or interval.high is None:
        print("no interval: give at least two pairs")
        return 1
    low, high = exp(interval.low), exp(interval.high)
    print(f"followed / alone: {exp(interval.center):.4f} [{low:.4f}, {high:.4f}], 95 %, {pairs} pairs of {RUNS} runs")
    return 0 if low <= 1.0 <= high else 1


if __name__ == "__main__":
    sys.exit(main())
