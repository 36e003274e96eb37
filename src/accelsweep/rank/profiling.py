"""A profile of a run's steps in place of its measurement: torch's profiler on rank 0, after steps that do not count.

All ranks do the same steps. Nothing is timed but the steps under the profiler, and nothing becomes a record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from accelsweep.core.recorded.profiles import StepProfile
from accelsweep.devices.clock import TimedDevice, monotonic
from accelsweep.records.sweep_progress import StepCount
from accelsweep.worker.loops.loop import ModuleDriver
from accelsweep.worker.measurement import Account
from accelsweep.worker.rank_setup import RankPlace
from accelsweep.worker.run_spec import RunSpec

if TYPE_CHECKING:
    from torch.profiler import ProfilerActivity

FEWEST_WARMUP_STEPS = 5
"""Steps before the profile: first calls, compilation, and the two in which the profiler itself warms up."""

_SETTLING = 2


class ProfiledSteps:
    """A listener that does the steps before the profile and those under it, and times these by the clock.

    `step` is the profiler's, told of every step; `began` gets the module before the first batch.
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
        """Note that the module is there."""
        self._began()

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count a step; True after the last one."""
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


def profile(spec: RunSpec, place: RankPlace, account: Account) -> None:
    """Do the steps that `spec` asks for; rank 0 leaves its trace and puts its profile into `account`.

    Raises the errors of the user's code.
    """
    from accelsweep.devices.kinds import timed_device
    from accelsweep.worker.tasks.task import task_of

    assert spec.profile_steps is not None, "the spec asks for a profile"
    driver = cast(ModuleDriver, task_of(spec, place).driver())
    steps = -(-spec.profile_steps // driver.accumulate) * driver.accumulate
    warmup = max(FEWEST_WARMUP_STEPS, spec.config.measure.warmup_steps)
    device = timed_device(driver.device)
    if place.rank:
        driver.drive(ProfiledSteps(warmup, steps, device, lambda: None, lambda _: None))
        return
    account.profile = _under_the_profiler(spec, driver, device, warmup, steps)


def _under_the_profiler(
    spec: RunSpec, driver: ModuleDriver, device: TimedDevice, warmup: int, steps: int
) -> StepProfile:
    import torch.profiler

    from accelsweep.devices.kinds import device_name
    from accelsweep.measure.profiling.marks import mark_modules
    from accelsweep.measure.profiling.sums import modules, operators

    activities, progress = _activities(driver.device.type), StepCount(spec.progress())
    order = torch.profiler.schedule(wait=warmup - _SETTLING, warmup=_SETTLING, active=steps, repeat=1)
    classes: dict[str, str] = {}
    with torch.profiler.profile(activities=activities, schedule=order, acc_events=True) as profiler:

        def step(done: int) -> None:
            progress(done)
            profiler.step()

        listener = ProfiledSteps(warmup, steps, device, lambda: classes.update(mark_modules(driver.module)), step)
        driver.drive(listener)
    profiler.export_chrome_trace(str(spec.trace()))
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
    """Return what to look at: the host, and the device where torch's profiler knows its kind."""
    from torch.profiler import ProfilerActivity, supported_activities

    from accelsweep.devices.kinds import kind_of

    host, own = ProfilerActivity.CPU, kind_of(kind).profiler_activity
    if own in (None, host) or own not in supported_activities():  # type: ignore[no-untyped-call]
        return [host]
    return [host, own]
