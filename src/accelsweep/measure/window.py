"""The timed window: warm-up of a fixed length, then a number of steps that is fixed before the first of them begins.

The length is fixed beforehand, because a window that each rank ends by its own clock deadlocks collectives. Warm-up is
fixed, because adaptive trimming gives runs different warm-ups (V. Stinner, pyperf). The window is independent of the
work in its steps: a loop calls `begin` once and `step_done` after each step, until that returns True.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from accelsweep.core.cells.config import Measure
from accelsweep.measure.clock import Clock, Marks, WaitedDevice, monotonic
from accelsweep.measure.group import Group
from accelsweep.measure.growth import MemoryWatch, part_ends
from accelsweep.measure.losses import Losses

PLANNED_LONGER = 1.1
"""The window is planned longer than asked by this factor, since warm-up only estimates the pace."""


@dataclass(frozen=True)
class WindowRules:
    """The length of warm-up and window. Steps are batches; `multiple_of` is the batches per optimiser step."""

    warmup_steps: int
    min_steps: int
    min_seconds: float
    max_steps: int
    multiple_of: int = 1

    @classmethod
    def from_config(cls, measure: Measure, multiple_of: int = 1) -> WindowRules:
        """Read the rules from the config's `measure`, of which the plan refuses what cannot be (`plan.refusals`)."""
        return cls(
            warmup_steps=measure.warmup_steps,
            min_steps=measure.min_steps,
            min_seconds=measure.min_seconds,
            max_steps=measure.max_steps,
            multiple_of=multiple_of,
        )

    @property
    def warmup(self) -> int:
        """Warm-up steps, rounded up to whole optimiser steps."""
        return _round_up(self.warmup_steps, self.multiple_of)

    def window_steps(self, warmup_seconds: Sequence[float]) -> int:
        """Return how many steps the window gets, given the seconds of each warm-up step.

        The pace is the lower quartile of the second half of the warm-up: one hiccup in it must not shorten the window.
        """
        half = sorted(warmup_seconds[len(warmup_seconds) // 2 :])
        pace = half[len(half) // 4]
        enough = math.ceil(PLANNED_LONGER * self.min_seconds / pace) if pace > 0 else self.max_steps
        return _round_up(min(max(enough, self.min_steps), self.max_steps), self.multiple_of)


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


class Probe(Protocol):
    """A reading at both ends of the window, outside of the timed steps."""

    def start(self) -> None:
        """Read as the window is about to open."""

    def stop(self) -> None:
        """Read as the window has just closed."""


@dataclass(frozen=True)
class RankWindow:
    """One rank's measurements: seconds and samples of each step, warm-up first. `seconds` is the window's duration.

    `began_at` is the clock's reading before the first batch was fetched.
    """

    began_at: float
    warmup_steps: int
    first_step_seconds: float
    seconds: float
    step_seconds: list[float]
    step_samples: list[int]
    losses: list[float | None]

    @property
    def window_step_seconds(self) -> list[float]:
        """Seconds of each step inside the window."""
        return self.step_seconds[self.warmup_steps :]

    @property
    def samples(self) -> int:
        """Samples that this rank processed inside the window."""
        return sum(self.step_samples[self.warmup_steps :])


class Window:
    """The state machine: first step, rest of the warm-up, window, closed."""

    def __init__(
        self,
        rules: WindowRules,
        *,
        device: WaitedDevice,
        group: Group,
        clock: Clock = monotonic,
        probes: Sequence[Probe] = (),
        watch: MemoryWatch | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """`watch` looks at both ends of the window and a few times between.

        `progress` is called with the number of finished steps after each one; it must be a fast memory write.
        """
        self._rules, self._device, self._group, self._clock, self._probes = rules, device, group, clock, probes
        self._watch, self._progress = watch or MemoryWatch({}), progress
        self._losses, self._samples = Losses(), list[int]()
        self._done, self._next_turn = 0, 1
        self._later_turns: list[int] = []
        self._warmup_seconds: list[float] = []
        self._began_at = self._first_step_seconds = self._opened = self._seconds = math.nan
        self._marks: Marks | None = None

    def begin(self) -> None:
        """Call once, before the first batch is fetched."""
        self._device.synchronise()
        self._began_at = self._clock()
        self._marks = self._device.marks(self._clock)

    def step_done(self, samples: int, loss: Any = None) -> bool:
        """Call after each step with the samples that it processed and its loss. True when the window has closed."""
        assert self._marks is not None, "begin() comes first"
        self._marks.add()
        self._samples.append(samples)
        self._losses.add(loss)
        self._done += 1
        if self._progress is not None:
            self._progress(self._done)
        return self._done == self._next_turn and self._turn()

    def _turn(self) -> bool:
        if self._done == 1:
            self._device.synchronise()
            self._first_step_seconds = self._clock() - self._began_at
            self._next_turn = self._rules.warmup
            return False
        if self._done == self._rules.warmup:
            self._open()
            return False
        if self._later_turns:
            self._watch.look(self._done - self._rules.warmup)
            self._next_turn = self._later_turns.pop(0)
            return False
        self._close()
        return True

    def _open(self) -> None:
        assert self._marks is not None
        self._device.synchronise()
        self._warmup_seconds = self._marks.seconds()
        steps = self._group.broadcast(self._rules.window_steps(self._warmup_seconds))
        ends = [*part_ends(steps, self._rules.multiple_of), steps]
        self._next_turn, *self._later_turns = (self._rules.warmup + end for end in ends)
        self._watch.look(0)
        for probe in self._probes:
            probe.start()
        self._group.barrier()
        self._opened = self._clock()
        self._marks = self._device.marks(self._clock)

    def _close(self) -> None:
        self._device.synchronise()
        self._seconds = self._clock() - self._opened
        for probe in reversed(self._probes):  # the last probe read before the window is read first after it
            probe.stop()
        self._watch.look(self._done - self._rules.warmup)
        self._group.barrier()

    def result(self) -> RankWindow:
        """Return this rank's measurements. Reads the device, so call it once the window has closed."""
        if math.isnan(self._seconds) or self._marks is None:
            raise RuntimeError(f"the window is still open after {self._done} steps: the training data ended too early")
        return RankWindow(
            began_at=self._began_at,
            warmup_steps=self._rules.warmup,
            first_step_seconds=self._first_step_seconds,
            seconds=self._seconds,
            step_seconds=self._warmup_seconds + self._marks.seconds(),
            step_samples=self._samples,
            losses=self._losses.values(),
        )
