"""The probe pass: the time of a step by part. It is a training of its own after the window, so it cannot disturb that.

A loop reports when it enters and leaves a phase. Each time a mark goes into the device's queue (the clock on a CPU), so
that the stretches between marks cover the whole time. A stretch belongs to the innermost phase that is open, and to
`overhead` where none is. On an asynchronous device the marks follow the device's own time line. So waiting for data
counts only while the device has nothing left to do.

The exchange of gradients overlaps with the backward pass, and its cost shows nowhere by itself. So after the first
steps as many are trained without the exchange (`DistributedDataParallel.no_sync`). The time saved is communication,
waiting for the slowest rank included.
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
"""Steps before each half that do not count: first calls, allocations, a changed exchange."""

FEWEST_PROBED_STEPS = 3
"""Steps of a pass whose steps are so long that more would not fit into `measure.min_seconds`."""

UNSEEN_REASONS = {
    "backward": "no backward pass of torch.autograd was seen in these steps: if there was any, it is in forward_share",
    "optimizer": "no optimiser of torch.optim stepped in these steps: if another did, it is in the other shares",
}
"""Parts that a step of training has and that can escape our notice, with the reason why they have no share then."""

T = TypeVar("T")


@dataclass(frozen=True)
class Half:
    """Seconds per step by phase over some steps, and the share of steps at whose end the device was behind.

    `stalls` are those of the steps, and `whole_seconds` the time of all of them.
    """

    seconds: dict[str, float]
    behind: float | None
    stalls: RankStalls = NO_STALLS
    whole_seconds: float = 0.0


class PhaseTimer:
    """Cuts the time into stretches, each with the phase that it belongs to."""

    def __init__(self, device: TimedDevice, clock: Clock = monotonic) -> None:
        """Nothing is marked before `begin`."""
        self._device, self._clock = device, clock
        self._open: list[str] = []
        self._marks: Marks | None = None
        self._phases: list[str] = []
        self._last_end = 0
        self._step_ends: list[int] = []
        self._behind: list[bool] = []
        self._work = CpuTimer()

    @property
    def depth(self) -> int:
        """The number of open phases."""
        return len(self._open)

    @property
    def innermost(self) -> str | None:
        """The phase that the present stretch belongs to; None outside of all."""
        return self._open[-1] if self._open else None

    def leave_to(self, depth: int) -> None:
        """Close the innermost phases until `depth` of them are open."""
        while self.depth > depth:
            self.leave()

    def enter(self, phase: str) -> None:
        """Open a phase, perhaps inside another one, whose stretch ends here."""
        self._cut()
        self._open.append(phase)

    def leave(self) -> None:
        """Close the innermost phase."""
        self._cut()
        self._open.pop()

    def around(self, phase: str, call: Callable[..., T]) -> Callable[..., T]:
        """Return `call` with the phase around it."""

        @functools.wraps(call)
        def timed(*arguments: Any, **options: Any) -> T:
            self.enter(phase)
            try:
                return call(*arguments, **options)
            finally:
                self.leave()

        return timed

    def fetching(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield `batches`; fetching each of them is `data_wait`."""
        fetch = self.around("data_wait", functools.partial(next, iter(batches), _END))
        while (batch := fetch()) is not _END:
            yield batch

    def begin(self) -> None:
        """Wait for the device and begin to look."""
        self._device.synchronise()
        self._phases, self._last_end, self._behind, self._step_ends = [], 0, [], []
        self._work.start()
        self._marks = self._device.marks(self._clock)

    def step_done(self) -> None:
        """End a step here."""
        self._cut()
        if self._marks is not None:
            self._behind.append(self._marks.reached() <= self._last_end)
            self._last_end = len(self._phases)
            self._step_ends.append(self._last_end)
            self._work.step_done(len(self._step_ends))

    def end(self) -> Half:
        """Wait for the device and return the times since `begin`."""
        assert self._marks is not None, "begin() comes first"
        self._device.synchronise()
        self._work.stop()
        seconds, steps, stretches = dict.fromkeys(PARTS, 0.0), len(self._behind), self._marks.seconds()
        for phase, stretch in zip(self._phases, stretches, strict=True):
            seconds[phase] += stretch / steps
        lengths = [sum(stretches[begin:end]) for begin, end in pairwise([0, *self._step_ends])]
        stalls = self._work.summarise(find_stalls(lengths, sum(lengths)))
        self._marks = None
        later = self._behind[1:]  # before the first step there is none that the device could be behind with
        behind = sum(later) / len(later) if later and self._device.asynchronous else None
        return Half(seconds, behind, stalls, sum(lengths))

    def _cut(self) -> None:
        if self._marks is not None:
            self._marks.add()
            self._phases.append(self._open[-1] if self._open else "overhead")


_END: Any = object()


class ProbePass:
    """A listener that trains some steps under a `PhaseTimer`, then as many without exchanging gradients."""

    def __init__(self, timer: PhaseTimer, steps: int, disable_gradient_sync: Callable[[], bool] | None = None) -> None:
        """`disable_gradient_sync` makes the loop train without gradient exchange from the next step on, if it can.

        None is for a single rank, which exchanges nothing.
        """
        self._timer, self._steps, self._stop_exchange = timer, steps, disable_gradient_sync
        self._done = 0
        self.halves: list[Half] = []

    def begin(self) -> None:
        """Do nothing: training begins, and the first steps do not count."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count the step; True once both halves are over."""
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


def probe_steps(asked: int, seconds: float, step_seconds: float, multiple_of: int) -> int:
    """Return `asked`, or as many steps as fit into `seconds` (at least a few), rounded up to whole optimiser steps."""
    fitting = max(FEWEST_PROBED_STEPS, int(seconds / step_seconds))
    return -(-min(asked, fitting) // multiple_of) * multiple_of


def seconds_by_part(halves: list[Half]) -> dict[str, float]:
    """Return one rank's seconds per step by part, from one half, or from two of which the second had no exchange."""
    seconds = dict(halves[0].seconds)
    if len(halves) == 2:
        for phase in ("forward", "backward"):
            exchange = max(0.0, seconds[phase] - halves[1].seconds[phase])
            seconds[phase] -= exchange
            seconds["communication"] += exchange
    return seconds


def idle_reason(ranks: list[list[Half]]) -> str | None:
    """Return why a pass in which all processes of all ranks stood still tells nothing; None where none did."""
    for halves in zip(*ranks, strict=True):
        if all_idle([half.stalls for half in halves]):
            seconds = max(half.stalls.seconds for half in halves)
            share = f"{seconds:.3g} s of the {max(half.whole_seconds for half in halves):.3g} s"
            return f"withheld: all processes stood still for {share} of the probe pass"
    return None


def breakdown_of(ranks: list[list[Half]], steps: int) -> Breakdown:
    """Return the breakdown over all ranks (each given by its halves), which count alike."""
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


def breakdown_metrics(found: Breakdown | str) -> dict[str, Metric]:
    """Return `PART_share` for every part, and `device_behind_share`; without a breakdown, with this reason."""
    scope = "probe pass, mean of all ranks"
    if isinstance(found, str):
        return {name: Metric(value=None, unit="1", reason=found) for name in SHARES}
    apart = "not measured: this strategy cannot train without exchange, so that it is in the other shares"
    why = {"communication": apart, **UNSEEN_REASONS}
    behind = found.device_behind
    metrics = {
        name: Metric(value=found.shares[part], unit="1", scope=scope, provenance="clock or device events")
        if part in found.shares
        else Metric(value=None, unit="1", reason=why[part], scope=scope)
        for part, name in _NAMES.items()
    }
    metrics["device_behind_share"] = Metric(
        value=behind, unit="1", scope=scope, reason="a CPU is never behind itself" if behind is None else None
    )
    return metrics


_NAMES = {part: f"{part}_share" for part in PARTS}

SHARES = (*_NAMES.values(), "device_behind_share")
"""The names of the metrics of a breakdown."""


@contextmanager
def time_manual_optimization(timer: PhaseTimer) -> Iterator[None]:
    """Time gradients that are taken, and optimisers that step, within a forward phase (manual optimisation).

    A closure that an optimiser calls is forward again. So is what `training_step` does after all of this.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    depths: list[int | None] = []

    def before(_: object, given: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        within = timer.innermost == "forward"
        depths.append(timer.depth if within else None)
        if within:
            timer.enter("optimizer")
            given = tuple(_forward(timer, one) if callable(one) else one for one in given)
            options = {name: _forward(timer, one) if name == "closure" else one for name, one in options.items()}
        return given, options

    def after(*_: object) -> None:
        if (depth := depths.pop()) is not None:
            timer.leave_to(depth)

    passes = {name: getattr(torch.autograd, name) for name in ("backward", "grad")}
    hooks = register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)
    try:
        for name, call in passes.items():
            setattr(torch.autograd, name, _backward(timer, call))
        yield
    finally:
        for name, call in passes.items():
            setattr(torch.autograd, name, call)
        for hook in hooks:
            hook.remove()


def _backward(timer: PhaseTimer, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def timed(*given: Any, **options: Any) -> Any:
        if timer.innermost != "forward":
            return call(*given, **options)
        return timer.around("backward", call)(*given, **options)

    return timed


def _forward(timer: PhaseTimer, closure: Any) -> Any:
    if closure is None:
        return None

    def timed() -> Any:
        depth = timer.depth
        timer.enter("forward")
        try:
            return closure()
        finally:
            timer.leave_to(depth)

    return timed
