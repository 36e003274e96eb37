"""Show what watching a script without a Lightning Trainer costs per step, once its first steps have been watched.

    python benchmarks/script_overhead.py [--rounds 20]

A tiny module trains with SGD on the batches of a DataLoader, on one thread. Blocks of steps take turns: without hooks;
with a run's timed window and heartbeat, which every loop has, called directly; with the hooks of a run, which call
them; and with those of `accelsweep watch`. Each round is the median of the differences between blocks of one turn. For
`accelsweep watch`, the processor time of a comparison is measured as well.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from one_run import interval, spec_of
from torch.utils.data import DataLoader, dataloader

from accelsweep.devices.cpu import CpuDevice
from accelsweep.features.watch.live_rate import WARMUP_STEPS, LiveRate
from accelsweep.features.watch.measured_rate import Expectation, MeasuredRate
from accelsweep.heartbeat import StepCount
from accelsweep.measure.timed_window import SingleProcess, Window, WindowRules
from accelsweep.worker.loops.script import WATCHED_STEPS, SampleCount, WatchedSteps

BATCH, BLOCK, TURNS = 8, 50, 40
"""Samples per batch, steps per block, and turns per round."""

HOOKS: dict[int, Any] = import_module("torch.optim.optimizer")._global_optimizer_post_hooks
ITERATOR: Any = dataloader._BaseDataLoaderIter


def run_hooks(folder: str) -> WatchedSteps:
    """Install the hooks of a run whose window stays open."""
    rules = WindowRules(warmup_steps=2 * BLOCK, min_steps=10**9, min_seconds=0.0, max_steps=10**9)
    spec = spec_of(folder, {}, 1, loop="script", steps=1, batch_size=BATCH, data={}, optimizer=None)

    def measure() -> None:
        watched.count = SampleCount(watched.watched, BATCH, None)
        progress = StepCount(Path(folder) / "progress")
        watched.drive(Window(rules, device=CpuDevice(), group=SingleProcess(), progress=progress))

    watched = WatchedSteps(spec, measure)
    return watched


def direct(watched: WatchedSteps) -> Callable[..., None]:
    """Return a hook that does no more than call the run's window and heartbeat."""

    def step(*_: Any) -> None:
        assert watched._listener is not None, "the run's first steps are over"
        watched._listener.step_done(BATCH, None)
        watched._heartbeat.step()

    return step


def watch_hooks() -> LiveRate:
    """Install the hooks of `accelsweep watch`, which never become due."""
    rate = MeasuredRate(
        *("setting", "batch 8", 1.0, 1, "2026-01-01", None, None, {}, {}),
        *(BATCH, BATCH, 1, "cpu", "32-true", torch.get_num_threads()),
    )
    live = LiveRate(Expectation("sweep", (rate,), is_named=True, every_seconds=1e9), lambda _: None)
    live.start()
    return live


def install(state: tuple[dict[int, Any], Any]) -> None:
    """Install the hooks of optimisers, and how loaders fetch."""
    hooks, ITERATOR.__next__ = state
    HOOKS.clear()
    HOOKS.update(hooks)


def blocks(rounds: int, folder: str) -> tuple[list[list[float]], float]:
    """Return the microseconds per step of each block, by what is installed, and milliseconds per comparison."""
    torch.set_num_threads(1)
    bare = (dict(HOOKS), ITERATOR.__next__)
    watched = run_hooks(folder)
    run = (dict(HOOKS), ITERATOR.__next__)
    install(bare)
    live = watch_hooks()
    watch = (dict(HOOKS), ITERATOR.__next__)
    states = [bare, ({0: direct(watched)}, bare[1]), run, watch]
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = len(states) * TURNS * (rounds + 1)  # the first round is a warm-up
    first, second = WATCHED_STEPS, WARMUP_STEPS + BLOCK  # steps for the run to see, and for `accelsweep watch`
    batches: Any = [torch.zeros(BATCH, 4)] * (first + second + count * BLOCK)
    times = list[float]()
    for number, batch in enumerate(DataLoader(batches, batch_size=None), 1):
        if number in (1, first + 1):
            install(run if number == 1 else watch)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        if number >= first + second and (number - first - second) % BLOCK == 0:
            install(states[len(times) % len(states)])
            times.append(time.perf_counter())
    spent = [(after - before) / BLOCK * 1e6 for before, after in itertools.pairwise(times)][len(states) * TURNS :]
    assert live._comparison is not None, "its warm-up is over"
    began = time.process_time()
    for _ in range(TURNS):
        live._comparison.causes.since_last_call(0.0)
    return [spent[place :: len(states)] for place in range(len(states))], (time.process_time() - began) / TURNS * 1e3


def said(slow: list[float], fast: list[float]) -> str:
    """Return the difference of two kinds of blocks with its interval."""
    differences = [one - other for one, other in zip(slow, fast, strict=False)]
    found = [statistics.median(differences[begin : begin + TURNS]) for begin in range(0, len(differences), TURNS)]
    return f"{statistics.median(found):.1f} us per step (95 % interval " + "{1:.1f} to {2:.1f})".format(
        *interval(found, 0.95)
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (bare, window, run, watch), comparison = blocks(options.rounds, folder)
    print(f"hooks of a run, after its first {WATCHED_STEPS} steps: {said(run, window)}")
    print(f"its timed window and heartbeat, called directly: {said(window, bare)}")
    print(f"hooks of accelsweep watch: {said(watch, bare)}; a comparison takes {comparison:.1f} ms of a core")
    print(f"{options.rounds} rounds; a step takes {statistics.median(bare):.0f} us without them")
    sys.stdout.flush()
    os._exit(0)  # the window is still open


if __name__ == "__main__":
    main()
