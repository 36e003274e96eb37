"""The timed window: a warm-up, followed by a number of steps that is determined when the warm-up ends.

The number is determined in advance because ranks that ended the window based on their own clocks would deadlock in
collectives, and because a window that ends when a time is over holds too many of the long steps. The warm-up has a
fixed number of steps, because adaptive trimming would make it differ between runs (V. Stinner, pyperf); only settings
with very slow steps have fewer. The window does not depend on what its steps do: a loop calls `begin` once and
`step_done` after each step, until `step_done` returns True.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from accelsweep.devices.clock import Clock, Marks, TimedDevice, monotonic
from accelsweep.measure.memory import MemoryWatch, part_ends
from accelsweep.measure.stalls import RankStalls
from accelsweep.metrics import Metric
from accelsweep.run_config import Measure


class Group(Protocol):
    """The ranks of a run, as seen by one of them."""

    @property
    def rank(self) -> int:
        """The zero-based rank of this process."""

    @property
    def size(self) -> int:
        """The number of ranks."""

    def barrier(self) -> None:
        """Return once every rank has arrived."""

    def broadcast(self, value: int) -> int:
        """Return the value that rank 0 passed."""

    def gather(self, value: Any) -> list[Any]:
        """Return all ranks' values, ordered by rank, on every rank."""


class SingleProcess:
    """The group for a run with one rank."""

    rank = 0
    size = 1

    def barrier(self) -> None:
        """Return immediately."""

    def broadcast(self, value: int) -> int:
        """Return `value`."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return `[value]`."""
        return [value]


class DistributedGroup:
    """The ranks in torch.distributed's default process group, which must be initialised."""

    def __init__(self) -> None:
        """Read the rank of this process and the number of ranks."""
        import torch.distributed as distributed

        self._distributed = distributed
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()

    def barrier(self) -> None:
        """Return once every rank has arrived."""
        self._distributed.barrier()

    def broadcast(self, value: int) -> int:
        """Return the value that rank 0 passed."""
        box = [value]
        self._distributed.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Return all ranks' values, ordered by rank, on every rank. Values must be picklable."""
        box: list[Any] = [None] * self.size
        self._distributed.all_gather_object(box, value)
        return box


def group_of(world_size: int) -> Group:
    """Return the group for a run with `world_size` ranks."""
    return DistributedGroup() if world_size > 1 else SingleProcess()


COMPACT_EVERY = 256
"""The number of steps after which scalars are stacked into one tensor: CUDA's allocator uses 512 bytes per scalar."""

_ON_DEVICE = object()
"""Placeholder for a loss that is stored on the device."""


class StepValues:
    """A value of each step, such as its loss, kept on its device until after the window; None if a step has none."""

    def __init__(self) -> None:
        """Start with no steps."""
        self._recent: list[Any] = []
        self._stacked: list[tuple[list[Any], Any]] = []

    def add(self, value: Any) -> None:
        """Add a step's value: a detached tensor with one element, a number, or None. Never waits."""
        self._recent.append(value)
        if len(self._recent) == COMPACT_EVERY:
            self._stack()

    def values(self) -> list[float | None]:
        """Return all values as numbers. Waits for the device, so only call this after the window."""
        self._stack()
        values: list[float | None] = []
        for recent, tensor in self._stacked:
            numbers = iter([] if tensor is None else tensor.cpu().double().tolist())
            values.extend(next(numbers) if value is _ON_DEVICE else value for value in recent)
        return values

    def _stack(self) -> None:
        recent, self._recent = self._recent, []
        tensors = [value.reshape(()) for value in recent if hasattr(value, "detach")]
        values = [
            _ON_DEVICE if hasattr(value, "detach") else None if value is None else float(value) for value in recent
        ]
        if tensors:
            import torch

            self._stacked.append((values, torch.stack(tensors)))
        else:
            self._stacked.append((values, None))


def first_not_finite(losses: list[float | None]) -> int | None:
    """Return the zero-based index of the first step with a NaN or infinite loss, or None."""
    return next((step for step, loss in enumerate(losses) if loss is not None and not math.isfinite(loss)), None)


LENGTH_MARGIN = 1.1
"""Windows are planned to exceed the requested length by this factor, as the warm-up yields only rough step times."""

FEWEST_STEPS = 10
"""A warm-up or a window never has fewer steps than this because of `measure.max_seconds`."""


@dataclass(frozen=True)
class WindowRules:
    """The lengths of the warm-up and window, in batches; `multiple_of` is the number of batches per optimiser step.

    Neither is planned to last longer than `max_seconds`, unless it has no more than `FEWEST_STEPS` batches.
    """

    warmup_steps: int
    min_steps: int
    min_seconds: float
    max_steps: int
    max_seconds: float = math.inf
    multiple_of: int = 1

    @classmethod
    def from_config(cls, measure: Measure, multiple_of: int = 1) -> WindowRules:
        """Read the rules from the config's `measure`, which the plan has validated."""
        return cls(
            warmup_steps=measure.warmup_steps,
            min_steps=measure.min_steps,
            min_seconds=measure.min_seconds,
            max_steps=measure.max_steps,
            max_seconds=measure.longest_seconds,
            multiple_of=multiple_of,
        )

    @property
    def least_warmup(self) -> int:
        """The number of warm-up steps after which the rest of the warm-up is determined."""
        return _round_up(min(self.warmup_steps, FEWEST_STEPS), self.multiple_of)

    def warmup(self, first_seconds: Sequence[float]) -> int:
        """Return the number of warm-up steps, given the durations of the first `least_warmup` of them in seconds."""
        steps = max(self.least_warmup, self._at_most(self.warmup_steps, _step_seconds(first_seconds)))
        return _round_up(steps, self.multiple_of)

    def window_steps(self, warmup_seconds: Sequence[float]) -> int:
        """Return the number of steps in the window, given the duration of each warm-up step in seconds."""
        estimate = _step_seconds(warmup_seconds)
        enough = math.ceil(LENGTH_MARGIN * self.min_seconds / estimate) if estimate > 0 else self.max_steps
        steps = min(self._at_most(max(enough, self.min_steps), estimate), self.max_steps)
        return _round_up(steps, self.multiple_of)

    def _at_most(self, steps: int, step_seconds: float) -> int:
        """Return as many of these steps as fit into `max_seconds`, but no fewer than `FEWEST_STEPS` of them."""
        if steps * step_seconds <= self.max_seconds:
            return steps
        return min(steps, max(FEWEST_STEPS, math.floor(self.max_seconds / step_seconds)))


def _step_seconds(warmup_seconds: Sequence[float]) -> float:
    """Return a step's estimated duration: the lower quartile of the second half, so that outliers do not count."""
    half = sorted(warmup_seconds[len(warmup_seconds) // 2 :])
    return half[len(half) // 4]


def _round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


class Probe(Protocol):
    """Takes readings at both ends of the window, outside the timed steps."""

    def start(self) -> None:
        """Called before the window opens."""

    def stop(self) -> None:
        """Called after the window has closed."""


@dataclass(frozen=True)
class RankWindow:
    """One rank's measurements: seconds, samples and losses of each step, warm-up included.

    `began_at` and `opened_at` are the clock's readings before the first batch was fetched and when the window opened;
    `seconds` is the duration of the window.
    """

    began_at: float
    opened_at: float
    warmup_steps: int
    first_step_seconds: float
    seconds: float
    step_seconds: list[float]
    step_samples: list[int]
    losses: list[float | None]

    @property
    def window_step_seconds(self) -> list[float]:
        """The duration of each step in the window, in seconds."""
        return self.step_seconds[self.warmup_steps :]

    @property
    def samples(self) -> int:
        """The number of samples that this rank processed in the window."""
        return sum(self.step_samples[self.warmup_steps :])


class Window:
    """A listener that times a loop's steps: the first step, the rest of the warm-up, and the window."""

    def __init__(
        self,
        rules: WindowRules,
        *,
        device: TimedDevice,
        group: Group,
        clock: Clock = monotonic,
        probes: Sequence[Probe] = (),
        memory: MemoryWatch | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """`memory` is sampled at both ends of the window and a few times in between.

        `progress` is called after each step with the number of finished steps; it must be fast.
        """
        self._rules, self._device, self._group, self._clock, self._probes = rules, device, group, clock, probes
        self._memory, self._progress = memory or MemoryWatch({}), progress
        self._losses, self._samples = StepValues(), list[int]()
        self._done, self._next_event = 0, 1
        self.warmup_steps = rules.least_warmup
        """The number of warm-up steps, which is final once the window opens."""
        self._memory_samples: list[int] = []
        self._warmup_seconds: list[float] = []
        self._began_at = self._first_step_seconds = self._opened = self._seconds = math.nan
        self._marks: Marks | None = None

    def begin(self) -> None:
        """Start the warm-up. Call once, before the first batch is fetched."""
        self._device.synchronise()
        self._began_at = self._clock()
        self._marks = self._device.marks(self._clock)

    def step_done(self, samples: int, loss: Any = None) -> bool:
        """Record a step's samples and loss. Call after each step; returns True once the window has closed."""
        assert self._marks is not None, "begin() must be called first"
        self._marks.add()
        self._samples.append(samples)
        self._losses.add(loss)
        self._done += 1
        if self._progress is not None:
            self._progress(self._done)
        return self._done == self._next_event and self._event()

    def _event(self) -> bool:
        if self._done == 1:
            self._device.synchronise()
            self._first_step_seconds = self._clock() - self._began_at
            self._next_event = self._rules.least_warmup
            return False
        if math.isnan(self._opened):
            if not self._is_warming_up():
                self._open()
            return False
        if self._memory_samples:
            self._memory.sample(self._done - self.warmup_steps)
            self._next_event = self._memory_samples.pop(0)
            return False
        self._close()
        return True

    def _is_warming_up(self) -> bool:
        assert self._marks is not None
        if self._done == self._rules.least_warmup < self._rules.warmup_steps:
            self._device.synchronise()
            self.warmup_steps = self._group.broadcast(self._rules.warmup(self._marks.seconds()))
            self._next_event = self.warmup_steps
        return self._done < self.warmup_steps

    def _open(self) -> None:
        assert self._marks is not None
        self._device.synchronise()
        self._warmup_seconds = self._marks.seconds()
        steps = self._group.broadcast(self._rules.window_steps(self._warmup_seconds))
        ends = [*part_ends(steps, self._rules.multiple_of), steps]
        self._next_event, *self._memory_samples = (self.warmup_steps + end for end in ends)
        self._memory.sample(0)
        for probe in self._probes:
            probe.start()
        self._group.barrier()
        self._opened = self._clock()
        self._marks = self._device.marks(self._clock)

    def _close(self) -> None:
        self._device.synchronise()
        self._seconds = self._clock() - self._opened
        for probe in reversed(self._probes):  # the probe read last before the window is read first after it
            probe.stop()
        self._memory.sample(self._done - self.warmup_steps)
        self._group.barrier()

    def result(self) -> RankWindow:
        """Return this rank's measurements, once the window has closed. Waits for the device."""
        if math.isnan(self._seconds) or self._marks is None:
            raise RuntimeError(f"the window is still open after {self._done} steps: the training data ended too early")
        return RankWindow(
            began_at=self._began_at,
            opened_at=self._opened,
            warmup_steps=self.warmup_steps,
            first_step_seconds=self._first_step_seconds,
            seconds=self._seconds,
            step_seconds=self._warmup_seconds + self._marks.seconds(),
            step_samples=self._samples,
            losses=self._losses.values(),
        )


VALUES_BEYOND = 10
"""With fewer values beyond a percentile, a single outlier would determine it: the 99th requires 1000 steps."""


def quantile(values: Sequence[float], share: float) -> float:
    """Return the `share`-quantile of `values` by linear interpolation (Hyndman and Fan's type 7)."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def rate_metrics(
    window: RankWindow, seconds: Sequence[float], samples: Sequence[int], stalls: Sequence[RankStalls] = ()
) -> dict[str, Metric]:
    """Return the run's rate (all ranks' samples divided by the slowest rank's seconds) and step times.

    `window` is rank 0's window; `seconds`, `samples` and `stalls` contain one value per rank, for the same steps.
    """
    slowest, total = max(seconds), sum(samples)
    steps = window.window_step_seconds
    clock = {"provenance": "clock"}
    return {
        "samples_per_second": Metric(value=total / slowest, unit="1/s", scope="all ranks", **clock),
        "step_seconds": Metric(value=slowest / len(steps), unit="s", scope="slowest rank", **clock),
        "samples_per_second_without_stalls": _without(stalls, seconds, total),
        "stall_seconds": Metric(
            value=max((rank.seconds for rank in stalls), default=0.0), unit="s", scope="worst rank", **clock
        ),
        "window_seconds": Metric(value=slowest, unit="s", scope="slowest rank", **clock),
        "window_steps": Metric(value=float(len(steps)), unit="steps", scope="one rank"),
        "window_samples": Metric(value=float(total), unit="samples", scope="all ranks"),
        "first_step_seconds": Metric(value=window.first_step_seconds, unit="s", scope="rank 0", **clock),
        "step_seconds_p50": Metric(value=quantile(steps, 0.5), unit="s", scope="rank 0"),
        "step_seconds_p99": percentile(steps, 0.99, "steps", "rank 0"),
        "rank_skew_seconds": _skew(seconds),
    }


def _without(stalls: Sequence[RankStalls], seconds: Sequence[float], samples: int) -> Metric:
    if not any(rank.count for rank in stalls):
        return Metric(value=None, unit="1/s", reason="no step took far longer than the others", scope="all ranks")
    slowest = max(total - rank.seconds for total, rank in zip(seconds, stalls, strict=True))
    return Metric(value=samples / slowest, unit="1/s", scope="all ranks", provenance="clock")


def percentile(seconds: Sequence[float], share: float, what: str, scope: str) -> Metric:
    """Return the `share`-quantile of `seconds`, the durations of `what` (steps, queries).

    The value is withheld if there are too few durations beyond it.
    """
    needed = round(VALUES_BEYOND / (1.0 - share))
    if len(seconds) < needed:
        reason = (
            f"withheld: {len(seconds)} {what}, but a {100 * share:g}th percentile requires {needed} (measure.min_steps)"
        )
        return Metric(value=None, unit="s", reason=reason, scope=scope)
    return Metric(value=quantile(seconds, share), unit="s", scope=scope)


def _skew(seconds: Sequence[float]) -> Metric:
    if len(seconds) == 1:
        return Metric(value=None, unit="s", reason="a single rank has no skew", scope="all ranks")
    return Metric(value=max(seconds) - min(seconds), unit="s", scope="all ranks", provenance="clock")
