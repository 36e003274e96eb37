"""A stopwatch in somebody else's training loop, which calls `step` after each step. It knows nothing of accelsweep.

With STOPWATCH_FILE set, it writes the time and the samples of each step to that file. With STOPWATCH_SECONDS, it times
so many seconds after a warm-up, prints samples per second, and ends the process. As in accelsweep, a step that takes
longer than five usual ones contains a pause, such as an evaluation, which is not counted.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import time
from typing import Any

WARMUP_SECONDS = 1.0
WARMUP_STEPS = 20

PAUSE_FACTOR = 5.0
LEAST_PAUSE_SECONDS = 0.1


def synchronised() -> float:
    """Return the time, once the device has done its work."""
    torch: Any = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter()


def finish(samples: int, seconds: float) -> None:
    """Print samples per second of this rank, and end the process."""
    print(f"\nstopwatch {samples / seconds}", flush=True)
    os._exit(0)


def pauses(times: list[float]) -> float:
    """Return how much longer than a usual step the steps with a pause took."""
    spent = [after - before for before, after in itertools.pairwise(times)]
    usual = statistics.median(spent)
    least = max(PAUSE_FACTOR * usual, usual + LEAST_PAUSE_SECONDS)
    return sum(seconds - usual for seconds in spent if seconds > least)


class Stopwatch:
    """The steps so far: those of the warm-up, and the times and samples of those after it."""

    def __init__(self) -> None:
        """Read from the environment what is wanted."""
        file = os.environ.get("STOPWATCH_FILE")
        self._file = open(file, "w") if file else None  # noqa: SIM115  the process ends in the middle of its training
        self._seconds = float(os.environ.get("STOPWATCH_SECONDS", "inf"))
        self._born, self._warmup, self._samples = time.perf_counter(), 0, 0
        self._times: list[float] = []

    def step(self, samples: int) -> None:
        """Note that a step with so many samples has ended."""
        if self._file is not None:
            self._file.write(f"{time.perf_counter()} {samples}\n")
            self._file.flush()
            return
        if not self._times:
            self._warmup += 1
            if self._warmup >= WARMUP_STEPS and time.perf_counter() - self._born >= WARMUP_SECONDS:
                self._times.append(synchronised())
            return
        self._times.append(time.perf_counter())
        self._samples += samples
        if self._times[-1] - self._times[0] >= self._seconds:
            finish(self._samples, synchronised() - self._times[0] - pauses(self._times))


_stopwatches: list[Stopwatch] = []


def step(samples: int) -> None:
    """Note that a step has ended; the first one starts the stopwatch."""
    if not _stopwatches:
        _stopwatches.append(Stopwatch())
    _stopwatches[0].step(samples)


def callback() -> Any:
    """Return a callback that notes the steps of Hugging Face's Trainer, whose loop is not in the script."""
    transformers: Any = __import__("transformers")

    class Noting(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, *_: Any, **__: Any) -> None:
            step(args.train_batch_size * args.gradient_accumulation_steps)

    return Noting()
