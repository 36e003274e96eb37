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
from accelsweep.errors import InputError, nearest
from accelsweep.measure.flops import torch_format, torch_product


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
