"""Stalls: steps that took far longer than their like, and whether our processes worked meanwhile.

A stopped process (SIGSTOP, `scontrol suspend`, a paused container), a hung file system or a garbage collection of
seconds falls into one step. It moves the rate of the whole window and hardly shows in medians. A stall is a doubt.
Where every rank stood still and used no processor, its cause lies outside of the run.

A machine that sleeps is another matter: the clock of durations stands still meanwhile, so no step shows it. See
`clock_gap` in `measure.run_doubts`.
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
"""A stall takes LARGE_SHARE of the whole, or LONG_SECONDS where these are SMALL_SHARE of it: enough for a verdict."""
HICCUP_SECONDS = 0.1
"""What is shorter than this happens on any system now and then, and counts only in very short windows."""
TIMES = 3.0
MOST_TIMES = 20.0
"""A step is far longer than its like from so many times the median on; where steps vary, from at most so many."""
FENCE = 6.0
"""Where steps vary: so many times the distance, in logarithms, from the median down to the lowest tenth.

For a normal distribution of the logarithms these are 7.7 standard deviations. The upper half is not asked, because the
stall itself is in it.
"""
FEWEST_STEPS = 3
"""With fewer steps of a kind none of them is the usual one."""
MOST_STALLS = 3
"""More stalls than this recur, as a slow storage or a rare part of the work does, so they are not taken for a halt."""
IDLE_CORES = 0.05
"""Processes that used fewer cores than this stood still: what computes, or spins while it waits, uses one.

On a machine that ten others keep busy too it gets a tenth of one.
"""
LOOK_SECONDS = 0.01
"""The processor time is looked at this often at most, so that short steps do not pay for it."""


@dataclass(frozen=True)
class Stall:
    """Steps `begin` up to `end` of a window took `seconds` more than usual; equal ones mean the time after the last."""

    begin: int
    end: int
    seconds: float


@dataclass(frozen=True)
class RankStalls:
    """All stalls of one rank: seconds beyond the usual, their number, and whether it stood still in all of them."""

    seconds: float = 0.0
    count: int = 0
    idle: bool = False


NO_STALLS = RankStalls()


def stall_threshold(whole_seconds: float) -> float:
    """Return how long a stall is at least in a window of `whole_seconds`."""
    most = max(LONG_SECONDS, SMALL_SHARE * whole_seconds)
    return max(HICCUP_SECONDS, min(LARGE_SHARE * whole_seconds, most))


def find_stalls(
    step_seconds: Sequence[float], whole_seconds: float, restarts: Sequence[int] = (), multiple_of: int = 1
) -> list[Stall]:
    """Return the stalls among a window's steps, and between the last step and the window's end.

    `restarts` are steps that began with the training data's restart: their usual length is one of their own. A step
    here is an optimiser step of `multiple_of` batches, whose last batch may be the longest each time.
    """
    least, starts = stall_threshold(whole_seconds), set(restarts)
    ends = [*range(multiple_of, len(step_seconds), multiple_of), len(step_seconds)]
    kinds: dict[bool, list[tuple[int, int, float]]] = {True: [], False: []}
    for begin, end in zip([0, *ends], ends, strict=False):
        restarted = not starts.isdisjoint(range(begin, end))
        kinds[restarted].append((begin, end, math.fsum(step_seconds[begin:end])))
    found = []
    for steps in kinds.values():
        if len(steps) < FEWEST_STEPS:
            continue
        lengths = sorted(seconds for *_, seconds in steps)
        usual, quick = statistics.median_low(lengths), lengths[len(lengths) // 10]
        varied = (usual / quick) ** FENCE if quick > 0 else math.inf
        limit = usual * min(max(TIMES, varied), MOST_TIMES)
        found += [
            Stall(begin, end, seconds - usual)
            for begin, end, seconds in steps
            if seconds - usual >= least and seconds > limit
        ]
    rest = whole_seconds - math.fsum(step_seconds)
    if len(step_seconds) >= FEWEST_STEPS and rest >= least:
        found.append(Stall(len(step_seconds), len(step_seconds), rest))
    return sorted(found, key=lambda stall: stall.begin)


@dataclass(frozen=True)
class _Look:
    """A moment: the steps done by then, the clock, and the processor seconds of this rank's processes so far."""

    steps: float
    at: float
    used: float


class CpuTimer:
    """The processor time of this process and its children, from step to step.

    A step is charged with what was used between the last look before it and the first one after it. A long step is
    looked at as it ends.
    """

    def __init__(self) -> None:
        """Nothing is looked at before `start`."""
        self._children: frozenset[int] = frozenset()
        self._looks: list[_Look] = []
        self._known = True

    def start(self) -> None:
        """Look for the first time, before the first step."""
        self._children = children()
        self._looks, self._known = [], True
        self._look(0, time.monotonic())

    def step_done(self, steps: int) -> None:
        """Look if the last time is long ago; `steps` are done since `start`. Does nothing before that."""
        if self._looks and (now := time.monotonic()) - self._looks[-1].at >= LOOK_SECONDS:
            self._look(steps, now)

    def stop(self) -> None:
        """Look for the last time, with all work done."""
        self._look(math.inf, time.monotonic())
        self._known = self._known and children() == self._children

    def cores_during(self, stall: Stall) -> float | None:
        """Return the cores that were busy in a stall, beyond what the same processes use otherwise; None if unknown.

        It is unknown where children came or went, and where this host did not wait: a device fell behind alone.
        """
        before = max((look for look in self._looks if look.steps <= stall.begin), key=lambda look: look.steps)
        after = next(look for look in self._looks if look.steps >= stall.end and look is not before)
        first, last = self._looks[0], self._looks[-1]
        waited, used = after.at - before.at, after.used - before.used
        if not self._known or waited < stall.seconds / 2:
            return None
        elsewhere = last.at - first.at - waited
        pace = (last.used - first.used - used) / elsewhere if elsewhere > 0 else 0.0
        return max(0.0, used - pace * max(0.0, waited - stall.seconds)) / stall.seconds

    def summarise(self, stalls: Sequence[Stall]) -> RankStalls:
        """Return what this rank did in its stalls."""
        return summarise([(stall.seconds, self.cores_during(stall)) for stall in stalls])

    def _look(self, steps: float, now: float) -> None:
        used = time.process_time()
        try:
            used += sum(map(_used_by, self._children))
        except OSError:  # a child has ended
            self._known = False
        self._looks.append(_Look(steps, now, used))


def summarise(stalls: Sequence[tuple[float, float | None]]) -> RankStalls:
    """Return what a rank did in its stalls, each given by its seconds and its cores."""
    still = 0 < len(stalls) <= MOST_STALLS and all(cores is not None and cores < IDLE_CORES for _, cores in stalls)
    return RankStalls(math.fsum(seconds for seconds, _ in stalls), len(stalls), still)


def _used_by(process: int) -> float:
    """Return the processor seconds of another process, by its clock (clock_getcpuclockid(3)); OSError if it is gone."""
    if sys.platform != "linux":
        raise ProcessLookupError("only Linux has a clock for each process")
    return time.clock_gettime((~process << 3) | 2)


def all_idle(ranks: Sequence[RankStalls]) -> bool:
    """Return whether every rank stood still in a stall, the shortest at least half as long as the longest."""
    longest = max(rank.seconds for rank in ranks)
    return longest > 0 and all(rank.idle and rank.seconds >= longest / 2 for rank in ranks)
