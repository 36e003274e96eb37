"""The matmul ceiling: the fastest dense matrix product on this device in this number format, measured here.

Utilisation is relative to it, and to the datasheet. Clocks, power limits, threads and libraries are those of the run.
Square products are made larger as long as the time allows. The best of all counts, because a ceiling is the speed of an
undisturbed device. The operands are random: zeros run too fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from accelsweep.base.documents import canonical_json, parsed_json, read_whole, write_bytes_atomically
from accelsweep.base.errors import DamagedFile
from accelsweep.measure.clock import Clock, WaitedDevice, monotonic
from accelsweep.measure.devices.kinds import torch_kind

SMALLEST, LARGEST = 256, 8192
TRIES = 4
"""Products of one size: the first is cold, and any may be disturbed by others on the machine."""
BUDGET = 0.25
"""No product begins after so many seconds, and no size whose first product would end later."""

CEILING_DTYPES = {
    "32": torch.float32,
    "64": torch.float64,
    "bf16": torch.bfloat16,
    "16": torch.float16,
}
"""Number types by the part of Lightning's precision before the dash."""


@dataclass(frozen=True)
class Ceiling:
    """Operations per second of a product of two square matrices with `size` rows."""

    flops_per_second: float
    size: int


def number_format(precision: str, device_type: str) -> str | None:
    """Return the format that matrix products have at this precision: torch's name, `tf32`, or None if unknown."""
    dtype = CEILING_DTYPES.get(precision.partition("-")[0])
    if dtype is None:
        return None
    if dtype is torch.float32 and torch_kind(device_type).tf32 and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return str(dtype).removeprefix("torch.")


def matmul_ceiling(
    product: Callable[[int], Callable[[], object]], device: WaitedDevice, clock: Clock = monotonic
) -> Ceiling:
    """Return the ceiling. `product(size)` gives a function that multiplies two matrices of that size once."""
    began = clock()
    size, found = SMALLEST, Ceiling(0.0, SMALLEST)
    while True:
        multiply, fastest = product(size), math.inf
        for _ in range(TRIES):
            fastest = min(fastest, _seconds(multiply, device, clock))
            if clock() - began > BUDGET:
                break
        found = max(found, Ceiling(2.0 * size**3 / fastest, size), key=lambda one: one.flops_per_second)
        if size == LARGEST or clock() - began + 8 * fastest > BUDGET:  # twice the size is eight times the work
            return found
        size *= 2


def _seconds(multiply: Callable[[], object], device: WaitedDevice, clock: Clock) -> float:
    device.synchronise()
    began = clock()
    multiply()
    device.synchronise()
    return clock() - began


def torch_format(format_name: str) -> torch.dtype:
    """Return the type of numbers in a format as `number_format` names it; tf32 is a way to multiply float32."""
    dtype: torch.dtype = torch.float32 if format_name == "tf32" else getattr(torch, format_name)
    return dtype


def torch_product(device: torch.device, format_name: str) -> Callable[[int], Callable[[], object]]:
    """Return how `matmul_ceiling` multiplies with torch on `device`."""
    dtype = torch_format(format_name)

    def product(size: int) -> Callable[[], object]:
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        into = torch.empty(size, size, device=device, dtype=dtype)
        return lambda: torch.mm(left, right, out=into)

    return product


def remembered(path: Path | None, key: str, measure: Callable[[], Ceiling]) -> Ceiling:
    """Return the ceiling that `path` holds under `key`, or measure it and keep it there for the block's other runs.

    A file that cannot be read is as good as none. Runs of a block follow one another, so there is one writer.
    """
    known: dict[str, dict[str, float]] = {}
    if path is not None and path.exists():
        try:
            known = parsed_json(read_whole(path).decode())
            return Ceiling(float(known[key]["flops_per_second"]), int(known[key]["size"]))
        except (DamagedFile, ValueError, TypeError):
            known = {}
        except KeyError:
            pass
    ceiling = measure()
    if path is not None:
        write_bytes_atomically(path, canonical_json({**known, key: asdict(ceiling)}).encode())
    return ceiling
