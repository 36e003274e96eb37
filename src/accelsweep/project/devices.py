"""What a projection needs to know of a device: `data/boards.csv`, a row and a source for each board.

A peak is the highest rate of dense matrix products at boost clock, with sums in 32 bits. An empty cell is not stated.
Bandwidths are in 1e9 bytes a second, memory is in 2**30 bytes, power is the board's limit in watts.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from accelsweep.base.errors import InputError, nearest

TABLE = Path(__file__).parent / "data" / "boards.csv"
FORMATS = ("float64", "float32", "tf32", "bfloat16", "float16")


@dataclass(frozen=True)
class TargetBoard:
    """One board. `flops_per_second` maps formats to operations a second; figures that the maker does not state lack.

    `reported` holds the names by which the driver may call it.
    """

    key: str
    name: str
    reported: tuple[str, ...]
    flops_per_second: Mapping[str, float]
    bandwidth_bytes_per_second: float | None
    memory_bytes: int | None
    power_watts: float | None
    source: str


@cache
def devices() -> Mapping[str, TargetBoard]:
    """Return all boards of the table by their keys, such as `h100-sxm` or `l4`."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return MappingProxyType({row["key"]: _device(row) for row in csv.DictReader(file)})


def device(key: str) -> TargetBoard:
    """Return the board with this key; raise InputError that names the nearest key if there is none."""
    if key not in devices():
        raise InputError(f"no board {key!r}{nearest(key.lower(), devices())}; there are: {', '.join(devices())}")
    return devices()[key]


def device_called(name: str) -> TargetBoard | None:
    """Return the board that the driver calls `name`, or None."""
    return next((one for one in devices().values() if name in one.reported), None)


def _device(row: Mapping[str, str]) -> TargetBoard:
    flops = {name: float(row[name]) * 1e12 for name in FORMATS if row[name]}
    return TargetBoard(
        key=row["key"],
        name=row["name"].removeprefix("NVIDIA "),
        reported=tuple(name for name in row["reported"].split("|") if name),
        flops_per_second=MappingProxyType(flops),
        bandwidth_bytes_per_second=float(row["bandwidth_gb"]) * 1e9 if row["bandwidth_gb"] else None,
        memory_bytes=int(float(row["memory_gb"]) * 2**30) if row["memory_gb"] else None,
        power_watts=float(row["power_w"]) if row["power_w"] else None,
        source=row["source"],
    )
