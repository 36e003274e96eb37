"""The share of a step's time that goes into matrix products: a profiled training of its own, after the window.

torch's profiler says how long each operator took, without those that it called; for a GPU, how long its kernels took.
Convolutions and recurrent layers count as products, because they are computed as such. The share is that of all the
time of the pass. The profiler adds a little to every operator, so that the share is rather too small than too large.
"""

from __future__ import annotations

import re
from typing import Any

from torch.profiler import ProfilerActivity, profile

from accelsweep.core.recorded.record import Metric
from accelsweep.measure.clock import Clock, WaitedDevice, monotonic
from accelsweep.measure.devices.kinds import measured_device, torch_kind
from accelsweep.measure.group import group_of
from accelsweep.rank.loops.make import make_loop
from accelsweep.rank.spec import RunSpec

STEPS_BEFORE_PROFILED = 2
"""Steps before the profiled ones: first calls and allocations."""

PRODUCT = re.compile(
    r"\w+::_*(\w*_)?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|addr|dot|matmul|linear(_pointwise|_backward)?)"
    r"|\w+::\w*(convolution|conv[123]d|rnn|attention)\w*"
)
"""Names of operators that multiply matrices, in torch's own namespaces and in those of its libraries."""


class _Pass:
    """A listener that profiles some steps and then has enough."""

    def __init__(self, steps: int, device: WaitedDevice, activity: ProfilerActivity, clock: Clock = monotonic) -> None:
        self._steps, self._device, self._clock = steps, device, clock
        self._on_host = activity is ProfilerActivity.CPU
        self._profiler = profile(activities=list(dict.fromkeys((ProfilerActivity.CPU, activity))))
        self._done, self._began, self.seconds = 0, 0.0, 0.0

    def begin(self) -> None:
        """Nothing: the first steps do not count."""

    def step_done(self, samples: int, loss: Any) -> bool:
        """Count the step; True once enough were profiled."""
        del samples, loss
        self._done += 1
        if self._done == STEPS_BEFORE_PROFILED:
            self._device.synchronise()
            self._profiler.start()
            self._began = self._clock()
        if self._done < STEPS_BEFORE_PROFILED + self._steps:
            return False
        self._device.synchronise()
        self.seconds = self._clock() - self._began
        self._profiler.stop()
        return True

    def in_products(self) -> float:
        """Return the seconds of all products, on the device."""
        time = "self_cpu_time_total" if self._on_host else "self_device_time_total"
        rows = [row for row in self._profiler.key_averages() if row.device_type.name == "CPU"]
        return sum(float(getattr(row, time)) for row in rows if PRODUCT.fullmatch(row.key)) / 1e6


def matmul_share(spec: RunSpec) -> dict[str, Metric]:
    """Train `measure.matmul_steps` steps under torch's profiler; return their `matmul_time_share`, or nothing.

    Nothing where the key is null. Raises the errors of the user's code.
    """
    steps = spec.config.measure.matmul_steps
    if steps is None:
        return {}
    loop = make_loop(spec)
    activity = torch_kind(loop.device.type).profiler_activity
    if activity is None:
        reason = f"torch's profiler sees no kernels of a device of kind {loop.device.type}"
        return {"matmul_time_share": Metric(value=None, unit="1", reason=reason)}
    listener = _Pass(-(-steps // loop.accumulate) * loop.accumulate, measured_device(loop.device), activity)
    loop.drive(listener)
    shares = group_of(spec.world_size).gather(listener.in_products() / listener.seconds)
    scope = f"mean of all ranks, {steps} profiled steps"
    return {
        "matmul_time_share": Metric(value=sum(shares) / len(shares), unit="1", scope=scope, provenance="torch.profiler")
    }
