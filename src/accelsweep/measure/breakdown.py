"""The probe pass, which measures how a step's time is spent. It runs after the window so as not to disturb it.

A loop reports when it enters and leaves a phase. Each time, a mark is queued on the device (on a CPU, the clock is
read), so that the intervals between marks cover the entire pass. An interval belongs to the innermost open phase, or to
`overhead`. On an asynchronous device the marks follow the device's own timeline, so waiting for data counts only while
the device is idle.

Gradient exchange overlaps with the backward pass, so its cost cannot be timed directly. Instead, the second half of the
pass trains without the exchange (`DistributedDataParallel.no_sync`). The time saved counts as communication, including
the wait for the slowest rank.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from accelsweep.devices.clock import Clock, Marks, TimedDevice, monotonic
from accelsweep.measure.stalls import NO_STALLS, CpuTimer, RankStalls, all_idle, find_stalls
from accelsweep.metrics import Metric
from accelsweep.results import PARTS, Breakdown, bottleneck

SETTLING_STEPS = 3
"""The number of steps discarded before each half, so that first calls and allocations are excluded."""

MIN_PROBED_STEPS = 3
"""The minimum number of steps, even if they take longer than `measure.min_seconds`."""

UNSEEN_REASONS = {
    "backward": "no backward pass of torch.autograd was detected in these steps: any time it took is in forward_share",
    "optimizer": "no optimiser from torch.optim ran in these steps: any other's time is in the other shares",
}
"""Maps parts that occur in every training step but may go undetected to the reason given for the missing share."""

T = TypeVar("T")


@dataclass(frozen=True)
class PassHalf:
    """The seconds per step in each phase, and the share of steps after which the device still lagged behind the host.

    `stalls` and `total_seconds` are totals over all steps.
    """

    seconds: dict[str, float]
    behind: float | None
    stalls: RankStalls = NO_STALLS
    total_seconds: float = 0.0


class PhaseTimer:
    """Divides the time into intervals, each assigned to a phase."""

    def __init__(self, device: TimedDevice, clock: Clock = monotonic) -> None:
        """Timing starts only when `begin` is called."""
        self._device, self._clock = device, clock
        self._open: list[str] = []
        self._marks: Marks | None = None
        self._phases: list[str] = []
        self._last_end = 0
        self._step_ends: list[int] = []
        self._behind: list[bool] = []
        self._cpu = CpuTimer()

    @property
    def depth(self) -> int:
        """The number of open phases."""
        return len(self._open)

    @property
    def innermost(self) -> str | None:
        """The innermost open phase, or None."""
        return self._open[-1] if self._open else None

    def leave_to(self, depth: int) -> None:
        """Close the innermost phases until only `depth` phases remain open."""
        while self.depth > depth:
            self.leave()

    def enter(self, phase: str) -> None:
        """Open a phase, possibly inside another phase."""
        self._mark()
        self._open.append(phase)

    def leave(self) -> None:
        """Close the innermost phase."""
        self._mark()
        self._open.pop()

    def around(self, phase: str, call: Callable[..., T]) -> Callable[..., T]:
        """Return a version of `call` that is timed as this phase."""

        @functools.wraps(call)
        def timed(*arguments: Any, **options: Any) -> T:
            self.enter(phase)
            try:
                return call(*arguments, **options)
            finally:
                self.leave()

        return timed

    def fetching(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield `batches`; fetching each batch counts as `data_wait`."""
        end: Any = object()
        fetch = self.around("data_wait", functools.partial(next, iter(batches), end))
        while (batch := fetch()) is not end:
            yield batch

    def begin(self) -> None:
        """Wait for the device and start timing."""
        self._device.synchronise()
        self._phases, self._last_end, self._behind, self._step_ends = [], 0, [], []
        self._cpu.start()
        self._marks = self._device.marks(self._clock)

    def step_done(self) -> None:
        """End a step."""
        self._mark()
        if self._marks is not None:
            self._behind.append(self._marks.reached() <= self._last_end)
            self._last_end = len(self._phases)
            self._step_ends.append(self._last_end)
            self._cpu.step_done(len(self._step_ends))

    def end(self) -> PassHalf:
        """Wait for the device, stop timing, and return the times since `begin`."""
        assert self._marks is not None, "begin() must be called first"
        self._device.synchronise()
        self._cpu.stop()
        seconds, steps, intervals = dict.fromkeys(PARTS, 0.0), len(self._behind), self._marks.seconds()
        for phase, interval in zip(self._phases, intervals, strict=True):
            seconds[phase] += interval / steps
        step_seconds = [sum(intervals[begin:end]) for begin, end in pairwise([0, *self._step_ends])]
        stalls = self._cpu.summarise(find_stalls(step_seconds, sum(step_seconds)))
        self._marks = None
        later = self._behind[1:]  # after the first step, there is no previous step that could be unfinished
        behind = sum(later) / len(later) if later and self._device.asynchronous else None
        return PassHalf(seconds, behind, stalls, sum(step_seconds))

    def _mark(self) -> None:
        if self._marks is not None:
            self._marks.add()
            self._phases.append(self._open[-1] if self._open else "overhead")


class ProbePass:
    """A listener that times a number of steps with a `PhaseTimer`, then the same number without gradient exchange."""

    def __init__(self, timer: PhaseTimer, steps: int, disable_gradient_sync: Callable[[], bool] | None = None) -> None:
        """`disable_gradient_sync` is the loop's method of that name; None for a single rank."""
        self._timer, self._steps, self._stop_exchange = timer, steps, disable_gradient_sync
        self._done = 0
        self.halves: list[PassHalf] = []

    def begin(self) -> None:
        """Do nothing: the first steps do not count."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count the step; return True once both halves are over."""
        del samples, loss
        self._timer.step_done()
        self._done += 1
        if self._done == SETTLING_STEPS:
            self._timer.begin()
        if self._done < SETTLING_STEPS + self._steps:
            return False
        self.halves.append(self._timer.end())
        self._done = 0
        return len(self.halves) == 2 or self._stop_exchange is None or not self._stop_exchange()


def probe_steps(requested: int, seconds: float, step_seconds: float, multiple_of: int) -> int:
    """Return a pass's step count: at most `requested`, and no more than fit into `seconds` or MIN_PROBED_STEPS.

    It is rounded up to whole optimiser steps.
    """
    fitting = max(MIN_PROBED_STEPS, int(seconds / step_seconds))
    return -(-min(requested, fitting) // multiple_of) * multiple_of


def seconds_by_part(halves: list[PassHalf]) -> dict[str, float]:
    """Return the seconds per step that one rank spent on each part.

    The second half, if any, ran without gradient exchange.
    """
    seconds = dict(halves[0].seconds)
    if len(halves) == 2:
        for phase in ("forward", "backward"):
            exchange = max(0.0, seconds[phase] - halves[1].seconds[phase])
            seconds[phase] -= exchange
            seconds["communication"] += exchange
    return seconds


def idle_reason(ranks: list[list[PassHalf]]) -> str | None:
    """Return why the result of a pass is withheld (a stall in which all processes were idle), or None if it is not."""
    for halves in zip(*ranks, strict=True):
        if all_idle([half.stalls for half in halves]):
            seconds = max(half.stalls.seconds for half in halves)
            total = max(half.total_seconds for half in halves)
            return f"withheld: all processes were idle for {seconds:.3g} s of the {total:.3g} s of the probe pass"
    return None


def breakdown_of(ranks: list[list[PassHalf]], steps: int) -> Breakdown:
    """Return the breakdown as the mean over all ranks, given each rank's halves."""
    seconds = dict.fromkeys(PARTS, 0.0)
    for halves in ranks:
        for part, spent in seconds_by_part(halves).items():
            seconds[part] += spent / len(ranks)
    if len(ranks) > 1 and len(ranks[0]) == 1:
        del seconds["communication"]
    for part in UNSEEN_REASONS:
        if not seconds[part]:
            del seconds[part]
    total = sum(seconds.values())
    shares = {part: spent / total for part, spent in seconds.items()}
    behind = [halves[0].behind for halves in ranks if halves[0].behind is not None]
    device_behind = sum(behind) / len(behind) if behind else None
    verdict, evidence = bottleneck(shares, device_behind)
    return Breakdown(
        steps=steps,
        step_seconds=total,
        shares=shares,
        device_behind=device_behind,
        verdict=verdict,
        evidence=evidence,
    )


def breakdown_metrics(breakdown: Breakdown | str) -> dict[str, Metric]:
    """Return `PART_share` for every part, and `device_behind_share`.

    If there is no breakdown, pass the reason as text instead.
    """
    scope = "probe pass, mean of all ranks"
    if isinstance(breakdown, str):
        return {name: Metric(value=None, unit="1", reason=breakdown) for name in SHARES}
    not_separable = "not measured: this strategy cannot train without exchange, so its time is in the other shares"
    reasons = {"communication": not_separable, **UNSEEN_REASONS}
    behind = breakdown.device_behind
    metrics = {
        name: Metric(value=breakdown.shares[part], unit="1", scope=scope, provenance="clock or device events")
        if part in breakdown.shares
        else Metric(value=None, unit="1", reason=reasons[part], scope=scope)
        for part, name in _NAMES.items()
    }
    metrics["device_behind_share"] = Metric(
        value=behind, unit="1", scope=scope, reason="a CPU cannot lag behind itself" if behind is None else None
    )
    return metrics


_NAMES = {part: f"{part}_share" for part in PARTS}

SHARES = (*_NAMES.values(), "device_behind_share")
"""The names of a breakdown's metrics."""


@contextmanager
def time_manual_optimization(timer: PhaseTimer) -> Iterator[None]:
    """Time backward passes and optimiser steps that run inside a forward phase (manual optimisation).

    A closure called by an optimiser counts as forward, as does the remainder of `training_step`.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    depths: list[int | None] = []

    def before(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        within_forward = timer.innermost == "forward"
        depths.append(timer.depth if within_forward else None)
        if within_forward:
            timer.enter("optimizer")
            args = tuple(_forward(timer, arg) if callable(arg) else arg for arg in args)
            if kwargs.get("closure") is not None:
                kwargs = kwargs | {"closure": _forward(timer, kwargs["closure"])}
        return args, kwargs

    def after(*_: object) -> None:
        if (depth := depths.pop()) is not None:
            timer.leave_to(depth)

    originals = {name: getattr(torch.autograd, name) for name in ("backward", "grad")}
    hooks = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    try:
        for name, call in originals.items():
            setattr(torch.autograd, name, _backward(timer, call))
        yield
    finally:
        for name, call in originals.items():
            setattr(torch.autograd, name, call)
        for hook in hooks:
            hook.remove()


def _backward(timer: PhaseTimer, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if timer.innermost != "forward":
            return call(*args, **kwargs)
        return timer.around("backward", call)(*args, **kwargs)

    return timed


def _forward(timer: PhaseTimer, closure: Callable[[], Any]) -> Callable[[], Any]:
    def timed() -> Any:
        depth = timer.depth
        timer.enter("forward")
        try:
            return closure()
        finally:
            timer.leave_to(depth)

    return timed
