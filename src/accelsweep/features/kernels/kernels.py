"""Single operations for `task: kernels`, to find a device's best rate and the size at which it starts to pay off.

A kernel is any class with `flops`, `traffic` and `on`; `model._target_` specifies it, and the other keys are its
arguments. Operands are random, because kernels run too fast on zeros. `Matmul` is the product used for the utilisation
ceiling (`measure.flops.matmul_ceiling`). Operations and bytes are counted for the algorithm: each value is read or
written once, regardless of caches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.heartbeat import Heartbeat
from accelsweep.measure.flops import number_format, torch_format, torch_matmul
from accelsweep.metrics import Metric
from accelsweep.results import ANY_FAILURE
from accelsweep.run_config import SettingConfig
from accelsweep.worker.loops.loop import StepListener
from accelsweep.worker.loops.trainer_replacement import checked_precision, rank_device, refuse_trainer_arguments
from accelsweep.worker.rank_measurement import Measurement, RankReport
from accelsweep.worker.rank_setup import RankPlace, init_process_group, seed_all
from accelsweep.worker.run_spec import RunSpec
from accelsweep.workloads.targets import instantiate


@runtime_checkable
class Kernel(Protocol):
    """One operation of a given size."""

    flops: float | None
    """Floating-point operations per call; None if the kernel computes nothing."""

    traffic: int
    """Elements read and written per call; multiply by the element size for bytes."""

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that runs the kernel once on `device`, in a number format such as `tf32`."""


class Matmul:
    """The product of two square matrices with `size` rows: 2 size^3 operations, counting multiply and add."""

    def __init__(self, size: int = 2048) -> None:
        """`size` is the number of rows and columns."""
        self._size = _positive(size)
        self.flops = 2.0 * size**3
        self.traffic = 3 * size**2

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that multiplies once."""
        return torch_matmul(device, format_name)(self._size)


class Operation(NamedTuple):
    """An element-wise operation that maps `operands` vectors to one vector, counted as one operation per element."""

    call: Callable[..., Any]
    operands: int


OPERATIONS = {
    "add": Operation(torch.add, 2),
    "multiply": Operation(torch.mul, 2),
    "relu": Operation(partial(torch.clamp_min, min=0), 1),  # `torch.relu` accepts no `out`
    "sigmoid": Operation(torch.sigmoid, 1),
    "tanh": Operation(torch.tanh, 1),
    "exp": Operation(torch.exp, 1),
}


class Elementwise:
    """An element-wise `operation` over vectors of `size` elements."""

    def __init__(self, size: int = 1_000_000, operation: str = "relu") -> None:
        """`operation` must be one of `OPERATIONS`. Raises InputError otherwise."""
        if operation not in OPERATIONS:
            names = ", ".join(OPERATIONS)
            raise InputError(f"model.operation={operation}: must be one of {names}{nearest(operation, OPERATIONS)}")
        self._size, self._operation = _positive(size), OPERATIONS[operation]
        self.flops = float(size)
        self.traffic = (self._operation.operands + 1) * size

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that applies the operation once."""
        call, count = self._operation
        operands = [_random(self._size, device, format_name) for _ in range(count)]
        out = torch.empty_like(operands[0])
        return lambda: call(*operands, out=out)


class Copy:
    """A copy of a vector of `size` elements on the same device."""

    flops = None

    def __init__(self, size: int = 100_000_000) -> None:
        """`size` is the number of elements."""
        self._size = _positive(size)
        self.traffic = 2 * size

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that copies once."""
        source = _random(self._size, device, format_name)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)


def build_kernel(config: SettingConfig) -> Kernel:
    """Return the kernel specified by `config.model`. Raises InputError if it is not a kernel."""
    kernel = instantiate({"_convert_": "all", **config.model})
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"task=kernels: model._target_={config.model_target} is not a kernel (it lacks flops, traffic or on): "
            "use model=kernel_matmul, kernel_elementwise or kernel_copy"
        )
    return kernel


def _positive(size: int) -> int:
    if size < 1:
        raise InputError(f"model.size={size}: must be at least 1")
    return size


def _random(size: int, device: torch.device, format_name: str) -> Tensor:
    return torch.randn(size, device=device).to(torch_format(format_name))


class KernelLoop:
    """Calls a kernel repeatedly: a step is `batch_size` calls."""

    name, strategy, optimizer, accumulate = "kernels", "one kernel per rank", "none", 1
    optimizer_steps = execution = tokens = None
    epoch_ends: list[int]

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """Build the kernel. Raises Unsupported if no number format is known for the precision."""
        self._seed, self._calls = spec.run.seed, spec.config.batch_size
        self.device = rank_device(spec.config.accelerator, place)
        self.precision = checked_precision(spec, self.device, "task=kernels")
        refuse_trainer_arguments(spec, "task=kernels")
        format_name = number_format(self.precision, self.device.type)
        if format_name is None:
            raise Unsupported(
                f"task=kernels has no number format for precision={self.precision}: set precision=32-true"
            )
        self.format_name = format_name
        init_process_group(place, spec, self.device.type)
        self._heartbeat = Heartbeat(spec.heartbeat(place.rank))
        self.epoch_ends = []
        self.kernel = build_kernel(spec.config)

    def drive(self, listener: StepListener) -> None:
        """Call the kernel until the listener ends the phase."""
        seed_all(self._seed)
        call, calls = self.kernel.on(self.device, self.format_name), range(self._calls)
        with torch.inference_mode():
            listener.begin()
            done = False
            while not done:
                for _ in calls:
                    call()
                done = listener.step_done(self._calls, None)
                self._heartbeat.step(pauses=done)


class KernelTask:
    """`task: kernels`: measures one kernel in the window."""

    tolerated_failures = ANY_FAILURE

    def __init__(self, spec: RunSpec, place: RankPlace) -> None:
        """`spec` specifies the kernel."""
        self._spec, self._place = spec, place
        self._driver: KernelLoop | None = None

    def driver(self) -> KernelLoop:
        """Return the driver that calls the kernel in a loop."""
        self._driver = KernelLoop(self._spec, self._place)
        return self._driver

    def window_closed(self, measured: Measurement, report: RankReport) -> None:
        """Add operations and bytes per second."""
        driver, self._driver = self._driver, None
        assert driver is not None, "driver() comes first"
        calls_per_second = measured.metrics["samples_per_second"].value
        assert calls_per_second is not None, "a closed window has a rate"
        report.metrics |= achieved_rates(driver.kernel, calls_per_second, driver.format_name)

    def after_window(self, report: RankReport) -> None:
        """Do nothing: there is nothing left to measure."""


def achieved_rates(kernel: Kernel, calls_per_second: float, format_name: str) -> dict[str, Metric]:
    """Return `flops_per_second` (FLOP/s) and `bytes_per_second` (B/s) of all ranks, as counted for the algorithm."""
    scope, provenance = f"all ranks, {format_name}", "counted over the window's rate"
    moved = kernel.traffic * torch_format(format_name).itemsize * calls_per_second
    flops = Metric(value=None, unit="FLOP/s", reason="this kernel computes nothing", scope=scope)
    if kernel.flops is not None:
        flops = Metric(value=kernel.flops * calls_per_second, unit="FLOP/s", scope=scope, provenance=provenance)
    return {
        "flops_per_second": flops,
        "bytes_per_second": Metric(value=moved, unit="B/s", scope=scope, provenance=provenance),
    }
