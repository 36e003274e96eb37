"""The matmul ceiling: the fastest dense matrix product that this device does in this number format, measured here.

It is what utilisation is relative to, beside the datasheet: clocks, power limits, threads and libraries are those of
the run. One square product is made larger until it takes long enough to be timed; the best of some rounds counts,
because a ceiling is what the device can do when nothing is in its way. The operands are random: zeros run too fast.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from accelsweep.core.documents import canonical_json, write_bytes_atomically
from accelsweep.measure.clock import Clock, Device, monotonic

SMALLEST, LARGEST = 256, 8192
LONG_ENOUGH = 0.005
"""Seconds that one product should take; its size is doubled up to there."""
TRIES = 3
"""Products of one size whose best decides whether it is large enough: the first is cold, any may be disturbed."""
ROUNDS, BUDGET = 8, 0.25
"""At most so many more rounds, and none begins after so many seconds in all."""

FORMATS = {
    "32": torch.float32,
    "64": torch.float64,
    "bf16": torch.bfloat16,
    "16": torch.float16,
}
"""Lightning's precisions, by what stands before the dash."""


@dataclass(frozen=True)
class Ceiling:
    """Operations per second of a product of two square matrices with `size` rows."""

    flops_per_second: float
    size: int


def number_format(precision: str, device_type: str) -> str | None:
    """Return the format that matrix products have at this precision: torch's name, `tf32`, or None if unknown."""
    dtype = FORMATS.get(precision.partition("-")[0])
    if dtype is None:
        return None
    if dtype is torch.float32 and device_type == "cuda" and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return str(dtype).removeprefix("torch.")


def matmul_ceiling(product: Callable[[int], Callable[[], object]], device: Device, clock: Clock = monotonic) -> Ceiling:
    """Return the ceiling. `product(size)` gives a function that multiplies two matrices of that size once."""
    began = clock()
    size = SMALLEST
    multiply = product(size)
    while (best := min(_seconds(multiply, device, clock) for _ in range(TRIES))) < LONG_ENOUGH and size < LARGEST:
        size *= 2
        multiply = product(size)
    for _ in range(ROUNDS):
        if clock() - began > BUDGET:
            break
        best = min(best, _seconds(multiply, device, clock))
    return Ceiling(2.0 * size**3 / best, size)


def _seconds(multiply: Callable[[], object], device: Device, clock: Clock) -> float:
    device.synchronise()
    began = clock()
    multiply()
    device.synchronise()
    return clock() - began


def torch_product(device: torch.device, format_name: str) -> Callable[[int], Callable[[], object]]:
    """Return how `matmul_ceiling` multiplies with torch on `device`."""
    dtype = torch.float32 if format_name == "tf32" else getattr(torch, format_name)

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
            known = json.loads(path.read_text())
            return Ceiling(float(known[key]["flops_per_second"]), int(known[key]["size"]))
        except (ValueError, TypeError):
            known = {}
        except KeyError:
            pass
    ceiling = measure()
    if path is not None:
        write_bytes_atomically(path, canonical_json({**known, key: asdict(ceiling)}).encode())
    return ceiling
