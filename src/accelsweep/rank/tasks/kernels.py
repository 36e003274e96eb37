"""`task: kernels`: one operation again and again, `batch_size` calls a step: operations and bytes per second.

The number format follows `precision`; a mixed precision is that of its lower format. A call is a sample, so that
`samples_per_second` are calls per second, and `step_seconds` over `batch_size` is how long one takes.
"""

from __future__ import annotations

import torch

from accelsweep.errors import Unsupported
from accelsweep.measure.flops import number_format, torch_format
from accelsweep.records.run_record import Metric
from accelsweep.records.sweep_progress import Pulse
from accelsweep.worker.loops.loop import Listener
from accelsweep.worker.loops.raw_parts import device_of, precision_of, refuse_trainer_arguments
from accelsweep.worker.measurement import Account, Measurement
from accelsweep.worker.rank_setup import RankPlace, join_group, seed_all
from accelsweep.worker.run_spec import ANY_FAILURE, RunSpec
from accelsweep.workloads.kernels import Kernel, build_kernel


class Calling:
    """Calls a kernel."""

    name, strategy, optimizer, accumulate = "kernels", "one kernel per rank", "none", 1
    optimizer_steps = None
    epoch_ends: list[int]

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """Build the kernel. Raises Unsupported where this device has no such number format."""
        self._seed, self._calls = spec.run.seed, spec.config.batch_size
        self.device = device_of(spec.config.accelerator, place)
        self.precision = precision_of(spec, self.device, "task=kernels")
        refuse_trainer_arguments(spec, "task=kernels")
        found = number_format(self.precision, self.device.type)
        if found is None:
            raise Unsupported(
                f"task=kernels knows no number format for precision={self.precision}: set precision=32-true"
            )
        self.format_name = found
        join_group(place, spec, self.device.type)
        self._pulse = Pulse(spec.pulse(place.rank))
        self.epoch_ends = []
        self.kernel = build_kernel(spec.config)

    def drive(self, listener: Listener) -> None:
        """Call until `listener` has enough."""
        seed_all(self._seed)
        call, calls = self.kernel.on(self.device, self.format_name), range(self._calls)
        with torch.inference_mode():
            listener.begin()
            while True:
                for _ in calls:
                    call()
                enough = listener.step_done(self._calls, None)
                self._pulse.beat(rests=enough)
                if enough:
                    return


class Kernels:
    """Calls one kernel through the window."""

    rate_survives = ANY_FAILURE

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` names the kernel, `place` this rank among the others."""
        self._spec, self._place = spec, place
        self._driver: Calling | None = None

    def driver(self) -> Calling:
        """Return the driver that calls the kernel."""
        self._driver = Calling(self._spec, self._place)
        return self._driver

    def closed(self, measured: Measurement, account: Account) -> None:
        """Add operations and bytes per second."""
        driver, self._driver = self._driver, None
        assert driver is not None, "driver() comes first"
        calls_per_second = measured.metrics["samples_per_second"].value
        assert calls_per_second is not None, "a closed window has a rate"
        account.metrics |= achieved(driver.kernel, calls_per_second, driver.format_name)

    def after(self, account: Account) -> None:
        """Nothing is left to measure."""


def achieved(kernel: Kernel, calls_per_second: float, format_name: str) -> dict[str, Metric]:
    """Return `flops_per_second` (FLOP/s) and `bytes_per_second` (B/s) of all ranks, counted from the algorithm."""
    scope, provenance = f"all ranks, {format_name}", "counted over the window's rate"
    moved = kernel.traffic * torch_format(format_name).itemsize * calls_per_second
    done = Metric(value=None, unit="FLOP/s", reason="this kernel computes nothing", scope=scope)
    if kernel.flops is not None:
        done = Metric(value=kernel.flops * calls_per_second, unit="FLOP/s", scope=scope, provenance=provenance)
    return {
        "flops_per_second": done,
        "bytes_per_second": Metric(value=moved, unit="B/s", scope=scope, provenance=provenance),
    }
