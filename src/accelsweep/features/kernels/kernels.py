"""Single operations, for `task: kernels`: a device's best rate, and the size from which on it pays off.

A kernel is any class with `flops`, `traffic` and `on`; `model._target_` names it, its sizes are keys. Operands are
random, because zeros run too fast. The product is the one that the ceiling of utilisation is measured with
(`measure.flops.matmul_ceiling`). Operations and bytes are the algorithm's: each value is read and written once,
whatever caches do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from hydra.utils import instantiate
from torch import Tensor

from accelsweep.config.schema import CellConfig
from accelsweep.errors import InputError, Unsupported, nearest
from accelsweep.measure.flops import number_format, torch_format, torch_product
from accelsweep.records.run_record import Metric
from accelsweep.records.sweep_progress import Pulse
from accelsweep.worker.loops.loop import Listener
from accelsweep.worker.loops.raw_parts import device_of, precision_of, refuse_trainer_arguments
from accelsweep.worker.measurement import Account, Measurement
from accelsweep.worker.rank_setup import RankPlace, join_group, seed_all
from accelsweep.worker.run_spec import ANY_FAILURE, RunSpec


@runtime_checkable
class Kernel(Protocol):
    """One operation of a given size."""

    flops: float | None
    """Floating-point operations of a call; None where it computes nothing."""

    traffic: int
    """Elements that a call reads and writes; bytes are this times the size of an element."""

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that calls the kernel once, with operands on `device` in a number format (`tf32`, ...)."""


class Matmul:
    """The product of two square matrices with `size` rows: 2 size^3 operations (a multiplication and an addition)."""

    def __init__(self, size: int = 2048) -> None:
        """`size` is the number of rows and columns."""
        self._size = _positive(size)
        self.flops = 2.0 * size**3
        self.traffic = 3 * size**2

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that multiplies once."""
        return torch_product(device, format_name)(self._size)


class Operation(NamedTuple):
    """An element-wise operation on `operands` vectors, written into one; it counts as one operation an element."""

    call: Callable[..., Any]
    operands: int


OPERATIONS = {
    "add": Operation(torch.add, 2),
    "multiply": Operation(torch.mul, 2),
    "relu": Operation(partial(torch.clamp_min, min=0), 1),  # torch.relu writes into no given vector
    "sigmoid": Operation(torch.sigmoid, 1),
    "tanh": Operation(torch.tanh, 1),
    "exp": Operation(torch.exp, 1),
}


class Elementwise:
    """An element-wise `operation` over vectors of `size` elements."""

    def __init__(self, size: int = 1_000_000, operation: str = "relu") -> None:
        """`operation` is one of `OPERATIONS`. Raises InputError for others."""
        if operation not in OPERATIONS:
            known = ", ".join(OPERATIONS)
            raise InputError(f"model.operation={operation}: must be one of {known}{nearest(operation, OPERATIONS)}")
        self._size, self._operation = _positive(size), OPERATIONS[operation]
        self.flops = float(size)
        self.traffic = (self._operation.operands + 1) * size

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that goes over the vectors once."""
        call, count = self._operation
        operands = [_random(self._size, device, format_name) for _ in range(count)]
        into = torch.empty_like(operands[0])
        return lambda: call(*operands, out=into)


class Copy:
    """A copy of a vector of `size` elements to another on the same device: each is read once and written once."""

    flops = None

    def __init__(self, size: int = 100_000_000) -> None:
        """`size` is the number of elements."""
        self._size = _positive(size)
        self.traffic = 2 * size

    def on(self, device: torch.device, format_name: str) -> Callable[[], object]:
        """Return a function that copies once."""
        source = _random(self._size, device, format_name)
        into = torch.empty_like(source)
        return lambda: into.copy_(source)


def build_kernel(config: CellConfig) -> Kernel:
    """Return the kernel that `config.model` names. Raises InputError where it is none."""
    kernel = instantiate({"_convert_": "all", **config.model})
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"task=kernels: model._target_={config.model_target} is no kernel (it lacks flops, traffic or on): "
            "take model=kernel_matmul, kernel_elementwise or kernel_copy"
        )
    return kernel


def _positive(size: int) -> int:
    if size < 1:
        raise InputError(f"model.size={size}: must be at least 1")
    return size


def _random(size: int, device: torch.device, format_name: str) -> Tensor:
    return torch.randn(size, device=device).to(torch_format(format_name))


# The thin typed check of a config: the keys that accelsweep itself reads, and nothing below `model` or `data`.


# Whether a cell's settings fit its task. Unfit ones are refused while nothing has been written yet.


# `task: kernels`: one operation again and again, `batch_size` calls a step: operations and bytes per second.


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
