"""Finds stalls (steps that took far longer than usual) and checks whether our processes were working during them.

A stopped process (SIGSTOP, `scontrol suspend`, a paused container), a hung file system or a long garbage collection
affects a single step. It changes the whole window's rate but hardly affects medians. A stall is flagged; if every rank
was idle, the cause is outside the run.

A sleeping machine is different: the clock that measures durations stops as well, so no step takes longer. This case is
detected by `run_doubts.clock_gap`.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from accelsweep.devices.host import children

LARGE_SHARE = 0.1
LONG_SECONDS = 1.0
SMALL_SHARE = 0.02
"""A stall's excess time is at least LARGE_SHARE of the total time, or at least LONG_SECONDS and SMALL_SHARE of it."""
HICCUP_SECONDS = 0.1
"""Shorter pauses occur on any system and do not count as stalls, however short the window."""
MIN_FACTOR = 3.0
MAX_FACTOR = 20.0
"""A stall exceeds the median by a factor in this range; the more step times vary, the higher the factor."""
SPREAD_EXPONENT = 6.0
"""The factor is the ratio of the median to the 10th percentile, raised to this power.

If step times are log-normally distributed, this corresponds to 7.7 standard deviations of their logarithms. The upper
half of the distribution is not used, because it includes the stalls.
"""
MIN_STEPS = 3
"""With fewer steps of the same kind, their usual duration cannot be determined."""
MAX_IDLE_STALLS = 3
"""More stalls than this are attributed to slow storage or occasional work rather than to a stopped process."""
IDLE_CORES = 0.05
"""Processes that used fewer cores than this count as idle: computing or spinning uses one core.

If ten other processes compete for each of the machine's cores, usage drops to a tenth of a core.
"""
SAMPLE_SECONDS = 0.01
"""The minimum time between two readings of CPU time, so that short steps are not slowed down by them."""


PAUSE_FACTOR = 5.0


def pause_limit(usual_seconds: float) -> float:
    """Return how long a step may take: a longer one contains a pause, such as an evaluation or a checkpoint."""
    return max(PAUSE_FACTOR * usual_seconds, usual_seconds + HICCUP_SECONDS)


@dataclass(frozen=True)
class Stall:
    """The steps from `begin` up to, but not including, `end` took `seconds` longer than usual.

    If both are equal, the stall followed the last step.
    """

    begin: int
    end: int
    seconds: float


@dataclass(frozen=True)
class RankStalls:
    """One rank's stalls: excess seconds, number of stalls, and whether the rank was idle in all of them."""

    seconds: float = 0.0
    count: int = 0
    idle: bool = False


NO_STALLS = RankStalls()


def stall_threshold(total_seconds: float) -> float:
    """Return the minimum excess, in seconds, that counts as a stall in a window of `total_seconds`."""
    long_enough = max(LONG_SECONDS, SMALL_SHARE * total_seconds)
    return max(HICCUP_SECONDS, min(LARGE_SHARE * total_seconds, long_enough))


def find_stalls(
    step_seconds: Sequence[float], total_seconds: float, restarts: Sequence[int] = (), multiple_of: int = 1
) -> list[Stall]:
    """Return the stalls among a window's steps, and between its last step and its end.

    Steps that restart the training data (`restarts`) are only compared with each other. Steps are grouped into
    optimiser steps of `multiple_of` batches, because the last batch of each may take longest.
    """
    threshold, starts = stall_threshold(total_seconds), set(restarts)
    ends = [*range(multiple_of, len(step_seconds), multiple_of), len(step_seconds)]
    kinds: dict[bool, list[tuple[int, int, float]]] = {True: [], False: []}
    for begin, end in zip([0, *ends], ends, strict=False):
        restarted = not starts.isdisjoint(range(begin, end))
        kinds[restarted].append((begin, end, math.fsum(step_seconds[begin:end])))
    stalls = []
    for steps in kinds.values():
        if len(steps) < MIN_STEPS:
            continue
        durations = sorted(seconds for *_, seconds in steps)
        usual, quick = statistics.median_low(durations), durations[len(durations) // 10]
        spread = (usual / quick) ** SPREAD_EXPONENT if quick > 0 else math.inf
        limit = usual * min(max(MIN_FACTOR, spread), MAX_FACTOR)
        stalls += [
            Stall(begin, end, seconds - usual)
            for begin, end, seconds in steps
            if seconds - usual >= threshold and seconds > limit
        ]
    rest = total_seconds - math.fsum(step_seconds)
    if len(step_seconds) >= MIN_STEPS and rest >= threshold:
        stalls.append(Stall(len(step_seconds), len(step_seconds), rest))
    return sorted(stalls, key=lambda stall: stall.begin)


@dataclass(frozen=True)
class _Reading:
    """The number of finished steps, the clock time, and the CPU seconds used so far by this rank's processes."""

    steps: float
    at: float
    used: float


class CpuTimer:
    """Tracks the CPU time of this process and its children, step by step.

    A step is charged for the CPU time between the last reading before it and the first reading after it. A reading is
    always taken at the end of a long step.
    """

    def __init__(self) -> None:
        """No readings are taken before `start`."""
        self._children: frozenset[int] = frozenset()
        self._readings: list[_Reading] = []
        self._complete = True

    def start(self) -> None:
        """Take the first reading, before the first step."""
        self._children = children()
        self._readings, self._complete = [], True
        self._read(0, time.monotonic())

    def step_done(self, steps: int) -> None:
        """Take a reading unless the last one is recent. Does nothing before `start`.

        `steps` is the number of steps finished since `start`.
        """
        if self._readings and (now := time.monotonic()) - self._readings[-1].at >= SAMPLE_SECONDS:
            self._read(steps, now)

    def stop(self) -> None:
        """Take the last reading, once all work is done."""
        self._read(math.inf, time.monotonic())
        self._complete = self._complete and children() == self._children

    def cores_during(self, stall: Stall) -> float | None:
        """Return the average number of cores busy during a stall beyond these processes' usual use; None if unknown.

        It is unknown if children started or ended, or if only the device was slow and this host did not wait.
        """
        before = max((reading for reading in self._readings if reading.steps <= stall.begin), key=lambda r: r.steps)
        after = next(reading for reading in self._readings if reading.steps >= stall.end and reading is not before)
        first, last = self._readings[0], self._readings[-1]
        waited, used = after.at - before.at, after.used - before.used
        if not self._complete or waited < stall.seconds / 2:
            return None
        other_seconds = last.at - first.at - waited
        usual_cores = (last.used - first.used - used) / other_seconds if other_seconds > 0 else 0.0
        return max(0.0, used - usual_cores * max(0.0, waited - stall.seconds)) / stall.seconds

    def summarise(self, stalls: Sequence[Stall]) -> RankStalls:
        """Summarise this rank's stalls."""
        return summarise([(stall.seconds, self.cores_during(stall)) for stall in stalls])

    def _read(self, steps: float, now: float) -> None:
        used = time.process_time()
        try:
            used += sum(map(_cpu_seconds, self._children))
        except OSError:  # a child has ended
            self._complete = False
        self._readings.append(_Reading(steps, now, used))


def summarise(stalls: Sequence[tuple[float, float | None]]) -> RankStalls:
    """Summarise a rank's stalls, given each stall's seconds and busy cores."""
    idle = 0 < len(stalls) <= MAX_IDLE_STALLS and all(cores is not None and cores < IDLE_CORES for _, cores in stalls)
    return RankStalls(math.fsum(seconds for seconds, _ in stalls), len(stalls), idle)


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of a process in seconds, read from its CPU-time clock (clock_getcpuclockid(3)).

    Raises OSError if the process has ended.
    """
    if sys.platform != "linux":
        raise ProcessLookupError("only Linux provides a clock per process")
    return time.clock_gettime((~process << 3) | 2)


def all_idle(ranks: Sequence[RankStalls]) -> bool:
    """Return whether every rank was idle in its stalls and the ranks stalled for similar times.

    The shortest total stall time must be at least half the longest.
    """
    longest = max(rank.seconds for rank in ranks)
    return longest > 0 and all(rank.idle and rank.seconds >= longest / 2 for rank in ranks)
