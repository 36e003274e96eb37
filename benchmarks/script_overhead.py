"""Show what accelsweep costs a script without a Lightning Trainer per step, once the first steps have been watched.

    python benchmarks/script_overhead.py [--rounds 20]

A tiny module trains with SGD on the batches of a DataLoader, on one thread. Blocks of steps with the hooks, heartbeat
and timed window of a run take turns with blocks from which the hooks are taken out. Each round is the median of the
differences between neighbouring blocks.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from one_run import interval, spec_of
from torch.utils.data import DataLoader, dataloader

from accelsweep.devices.cpu import CpuDevice
from accelsweep.heartbeat import StepCount
from accelsweep.measure.timed_window import SingleProcess, Window, WindowRules
from accelsweep.worker.loops.script import WATCHED_STEPS, SampleCount, WatchedSteps

BATCH, BLOCK, PAIRS = 8, 50, 40
"""Samples per batch, steps per block, and pairs of blocks per round."""

HOOKS: dict[int, Any] = import_module("torch.optim.optimizer")._global_optimizer_post_hooks
ITERATOR: Any = dataloader._BaseDataLoaderIter


def watch(folder: str) -> None:
    """Install the hooks, and a window that stays open."""
    rules = WindowRules(warmup_steps=2 * BLOCK, min_steps=10**9, min_seconds=0.0, max_steps=10**9)
    spec = spec_of(folder, {}, 1, loop="script", steps=1, batch_size=BATCH, data={}, optimizer=None)

    def measure() -> None:
        watched.count = SampleCount(watched.watched, BATCH, None)
        progress = StepCount(Path(folder) / "progress")
        watched.drive(Window(rules, device=CpuDevice(), group=SingleProcess(), progress=progress))

    watched = WatchedSteps(spec, measure)


def blocks(rounds: int, folder: str) -> list[float]:
    """Return the microseconds per step of each block: with hooks, without, with, ..."""
    torch.set_num_threads(1)
    without = (dict(HOOKS), ITERATOR.__next__)
    watch(folder)
    hooked = (dict(HOOKS), ITERATOR.__next__)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = 2 * PAIRS * (rounds + 1)  # the first round is a warm-up
    batches: Any = [torch.zeros(BATCH, 4)] * (WATCHED_STEPS + count * BLOCK)
    times = list[float]()
    for number, batch in enumerate(DataLoader(batches, batch_size=None), 1 - WATCHED_STEPS):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if number >= 0 and number % BLOCK == 0:
            hooks, ITERATOR.__next__ = without if len(times) % 2 else hooked
            HOOKS.clear()
            HOOKS.update(hooks)
            times.append(time.perf_counter())
    spent = [(after - before) / BLOCK * 1e6 for before, after in itertools.pairwise(times)]
    return spent[2 * PAIRS :]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spent = blocks(options.rounds, folder)
    hooked, without = spent[::2], spent[1::2]
    differences = [slow - bare for slow, bare in zip(hooked, without, strict=True)]
    found = [statistics.median(differences[begin : begin + PAIRS]) for begin in range(0, len(differences), PAIRS)]
    print(
        f"hooks of a script, after its first {WATCHED_STEPS} steps: {statistics.median(found):.1f} us per step "
        "(95 % interval {1:.1f} to {2:.1f}, ".format(*interval(found, 0.95))
        + f"{options.rounds} rounds); a step takes {statistics.median(without):.0f} us without them"
    )
    sys.stdout.flush()
    os._exit(0)  # the window is still open


if __name__ == "__main__":
    main()
