"""Aggregates a profile's events by operator and by module, as self time in an average step.

A backward operator is attributed to the module whose forward operator created it. autograd numbers its nodes, and the
profiler records this number with both operators: https://docs.pytorch.org/docs/stable/autograd.html, under `emit_nvtx`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
from torch import nn
from torch.profiler import record_function

from accelsweep.devices.clock import TimedDevice, monotonic
from accelsweep.features.profile.step_profile import (
    PYTHON,
    ModuleTime,
    OperatorTime,
    StepPart,
    StepProfile,
    trace_of,
)
from accelsweep.heartbeat import StepCount
from accelsweep.worker.loops.loop import ModuleDriver
from accelsweep.worker.rank_measurement import RankReport
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity


# Markers around the forward pass of each module in a trace, set by hooks.

MODULE_MARK = "module: "
"""The prefix of a marker's name, followed by the module's path."""


def mark_modules(root: nn.Module) -> dict[str, str]:
    """Put markers around every module of `root`; return the modules' classes keyed by path, which is "" for `root`."""
    found = {name: module for name, module in root.named_modules() if not isinstance(module, torch.jit.ScriptModule)}
    for name, module in found.items():
        _mark(name, module)
    return {name: type(module).__name__ for name, module in found.items()}


def _mark(name: str, module: nn.Module) -> None:
    opened: list[Any] = []

    def enter(*_: Any) -> None:
        if not torch.compiler.is_compiling():
            opened.append(record_function(MODULE_MARK + name))
            opened[-1].__enter__()

    def leave(*_: Any) -> None:
        if not torch.compiler.is_compiling() and opened:
            opened.pop().__exit__(None, None, None)

    module.register_forward_pre_hook(enter, prepend=True)
    module.register_forward_hook(leave, always_call=True)


_STEP = "ProfilerStep"

_BACKWARD = "autograd::engine::evaluate_function: "

_BACKWARD_SCOPE = 1

_BY_NAME: dict[str, StepPart] = {"Optimizer.": "optimizer", "enumerate(DataLoader)": "data"}
"""The prefixes of torch's own markers around an optimiser's work and around fetching a batch."""

Key = TypeVar("Key", bound=Hashable)


class _Place(NamedTuple):
    """The module (as a path) and the part of the step that an event belongs to."""

    module: str
    part: StepPart


_OUTSIDE = _Place("", "outside")


class _Sum:
    """The number of calls, and the time on host and device in microseconds."""

    def __init__(self) -> None:
        self.calls, self.host, self.device = 0, 0.0, 0.0

    def add(self, event: Any, *, calls: int) -> None:
        self.calls += calls
        self.host += event.self_cpu_time_total
        self.device += 0.0 if event.is_user_annotation else event.self_device_time_total

    def over(self, steps: int, *, has_device: bool) -> dict[str, Any]:
        """Return the means over this number of steps, in seconds."""
        device = self.device * 1e-6 / steps if has_device else None
        return {"calls": self.calls / steps, "host_seconds": self.host * 1e-6 / steps, "device_seconds": device}


def host_events(events: Iterable[Any]) -> list[Any]:
    """Return the host's nested events, in order of start time."""
    found = [event for event in events if event.device_type.name == "CPU" and not event.is_async]
    return sorted(found, key=lambda event: (event.time_range.start, -event.time_range.end))


def operators(events: Iterable[Any], steps: int, *, has_device: bool) -> tuple[OperatorTime, ...]:
    """Return the operators of an average step, longest first; self time of markers and steps is interpreter time."""
    sums = _summed(host_events(events), lambda event: PYTHON if _is_mark(event) else event.name, lambda _: 1)
    rows = [OperatorTime(name=name, **one.over(steps, has_device=has_device)) for name, one in sums.items()]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))


def modules(
    events: Iterable[Any], steps: int, classes: Mapping[str, str], *, has_device: bool
) -> tuple[ModuleTime, ...]:
    """Return the modules of an average step, longest first, given the classes of the marked modules."""
    ordered = host_events(events)
    places = _places(ordered)
    sums = _summed(ordered, lambda event: places[id(event)], _calls_of_module)
    rows = [
        ModuleTime(
            name=place.module,
            form=classes.get(place.module, "") if place.part in ("forward", "backward") else "",
            part=place.part,
            **one.over(steps, has_device=has_device),
        )
        for place, one in sums.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name, row.part)))


def _calls_of_module(event: Any) -> int:
    return int(event.name.startswith(MODULE_MARK))


def _summed(events: Iterable[Any], key_of: Callable[[Any], Key], calls_of: Callable[[Any], int]) -> dict[Key, _Sum]:
    sums: dict[Key, _Sum] = {}
    for event in events:
        sums.setdefault(key_of(event), _Sum()).add(event, calls=calls_of(event))
    return sums


def _is_mark(event: Any) -> bool:
    return bool(event.name.startswith((_STEP, MODULE_MARK)))


def _places(ordered: Iterable[Any]) -> dict[int, _Place]:
    """Return each event's place, keyed by `id`: its own, or else that of the enclosing event."""
    places: dict[int, _Place] = {}
    made_by: dict[tuple[int, int], _Place] = {}
    for event in ordered:
        around = places.get(id(event.cpu_parent), _OUTSIDE)
        place = places[id(event)] = _own_place(event, around, made_by)
        if place.part != "backward" and event.sequence_nr >= 0:
            # The last event with a given sequence number is the one that created the autograd node.
            made_by[event.thread, event.sequence_nr] = place
    return places


def _own_place(event: Any, around: _Place, made_by: Mapping[tuple[int, int], _Place]) -> _Place:
    backward = around.part == "backward"
    if event.name.startswith(MODULE_MARK):
        return _Place(event.name.removeprefix(MODULE_MARK), "backward" if backward else "forward")
    if event.scope == _BACKWARD_SCOPE or event.name.startswith(_BACKWARD):
        made = made_by.get((event.fwd_thread, event.sequence_nr))
        module = around.module if made is None and backward else made.module if made is not None else ""
        return _Place(module, "backward")
    for beginning, part in _BY_NAME.items():
        if event.name.startswith(beginning):
            return _Place("", part)
    return around


# Profiles a run's steps instead of measuring them: torch's profiler on rank 0, after warm-up steps.

FEWEST_WARMUP_STEPS = 5
"""Minimum warm-up steps, for first calls, compilation, and two steps of the profiler's own warm-up."""

_SETTLING = 2


class ProfiledSteps:
    """A listener that runs the warm-up steps and the profiled steps, and measures the wall time of the latter.

    `step` is the profiler's function, called after every step; `began` is called before the first batch.
    """

    def __init__(
        self,
        warmup: int,
        steps: int,
        device: TimedDevice,
        began: Callable[[], object],
        step: Callable[[int], object],
    ) -> None:
        self._warmup, self._steps, self._device = warmup, steps, device
        self._began, self._step = began, step
        self._done, self._opened = 0, 0.0
        self.step_seconds = 0.0

    def begin(self) -> None:
        """Call `began`."""
        self._began()

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count a step; return True after the last one."""
        del samples, loss
        self._done += 1
        if self._done == self._warmup + self._steps:
            self._device.synchronise()
            self.step_seconds = (monotonic() - self._opened) / self._steps
        elif self._done == self._warmup:
            self._device.synchronise()
        self._step(self._done)
        if self._done == self._warmup:
            self._opened = monotonic()
        return self._done == self._warmup + self._steps


def profile(spec: RunSpec, place: RankPlace, report: RankReport) -> None:
    """Run the steps requested in `spec`; rank 0 writes its trace and stores its profile in `report`.

    Errors in the user's code propagate.
    """
    from accelsweep.devices.kinds import timed_device
    from accelsweep.worker.tasks.task import make_task

    assert spec.extra_steps, "the spec requests a profile"
    driver = cast(ModuleDriver, make_task(spec, place).driver())
    steps = -(-spec.extra_steps // driver.accumulate) * driver.accumulate
    warmup = max(FEWEST_WARMUP_STEPS, spec.config.measure.warmup_steps)
    device = timed_device(driver.device)
    if place.rank:
        driver.drive(ProfiledSteps(warmup, steps, device, lambda: None, lambda _: None))
        return
    report.extra = asdict(_under_the_profiler(spec, driver, device, warmup, steps))


def _under_the_profiler(
    spec: RunSpec, driver: ModuleDriver, device: TimedDevice, warmup: int, steps: int
) -> StepProfile:
    import torch.profiler

    from accelsweep.devices.kinds import device_name

    activities, progress = _activities(driver.device.type), StepCount(spec.progress())
    order = torch.profiler.schedule(wait=warmup - _SETTLING, warmup=_SETTLING, active=steps, repeat=1)
    classes: dict[str, str] = {}
    with torch.profiler.profile(activities=activities, schedule=order, acc_events=True) as profiler:

        def step(done: int) -> None:
            progress(done)
            profiler.step()

        listener = ProfiledSteps(warmup, steps, device, lambda: classes.update(mark_modules(driver.module)), step)
        driver.drive(listener)
    profiler.export_chrome_trace(str(trace_of(spec)))
    events, has_device = profiler.events() or (), len(activities) > 1
    return StepProfile(
        warmup_steps=warmup,
        steps=steps,
        step_seconds=listener.step_seconds,
        device=driver.device.type,
        device_name=device_name(driver.device),
        operators=operators(events, steps, has_device=has_device),
        modules=modules(events, steps, classes, has_device=has_device),
    )


def _activities(kind: str) -> list[ProfilerActivity]:
    """Return what to profile: the host, and the device if torch's profiler supports its kind."""
    from torch.profiler import ProfilerActivity, supported_activities

    from accelsweep.devices.kinds import kind_of

    host, own = ProfilerActivity.CPU, kind_of(kind).profiler_activity
    if own in (None, host) or own not in supported_activities():  # type: ignore[no-untyped-call]
        return [host]
    return [host, own]
