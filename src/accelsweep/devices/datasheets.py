"""Peak rates, memory, bandwidths and power limits of boards, from vendors' datasheets, read from `boards.csv`.

Each board has one row, with its source.

* A peak is the dense matrix-product rate of a format at boost clock, in TFLOP/s, without sparsity. 16-bit and 8-bit
  products are accumulated in 32 bits, as in torch, so a GeForce is listed with half of its advertised peak.
* Bandwidths are in 1e9 bytes per second; links (NVLink, Infinity Fabric) and PCIe count both directions.
* Memory is in GiB, some of which is reserved by the driver and error correction. Power is the board's limit in watts.
* An empty field means that the vendor does not publish the figure, or publishes it only under a name that does not
  identify the board. Nothing is guessed.

Processors are not listed, because their vendors do not publish such figures.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from accelsweep.errors import InputError, nearest

DATASHEET_FORMATS = ("float64", "float32", "tf32", "bfloat16", "float16", "float8", "int8")
"""The number formats for which the table has a column of peaks."""

TABLE = Path(__file__).parent / "boards.csv"

_FIGURES = frozenset({*DATASHEET_FORMATS, "memory_gb", "bandwidth_gb", "power_w", "link_gb", "pcie_gb"})

_IGNORED_WORDS = frozenset({"NVIDIA", "TESLA", "AMD", "INTEL", "R", "GPU"})
"""Words that only some driver versions include in a board's name."""


@dataclass(frozen=True)
class Datasheet:
    """One device as listed by torch.

    A board with several dies is listed as several devices, each with its share of all figures.

    `flops_per_second` maps formats to operations per second, omitting formats for which the vendor publishes no figure;
    other unpublished figures are None. `reported` contains the names that drivers report for the device.
    """

    key: str
    name: str
    reported: tuple[str, ...]
    year: int
    devices_on_board: int
    flops_per_second: Mapping[str, float]
    memory_bytes: int | None
    bandwidth_bytes_per_second: float | None
    power_watts: float | None
    link_bytes_per_second: float | None
    pcie_bytes_per_second: float | None
    source: str


@cache
def datasheets() -> Mapping[str, Datasheet]:
    """Return all boards by key, such as `h100-sxm` or `l4`."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return MappingProxyType({row["key"]: _datasheet(row) for row in csv.DictReader(file)})


def _datasheet(row: Mapping[str, str]) -> Datasheet:
    devices = int(row["devices"])
    figures = {name: float(text) / devices for name, text in row.items() if text and name in _FIGURES}

    def scaled(name: str, scale: float) -> float | None:
        return figures[name] * scale if name in figures else None

    peaks = {name: figures[name] * 1e12 for name in DATASHEET_FORMATS if name in figures}
    return Datasheet(
        key=row["key"],
        name=row["name"],
        reported=tuple(name for name in row["reported"].split("|") if name),
        year=int(row["year"]),
        devices_on_board=devices,
        flops_per_second=MappingProxyType(peaks),
        memory_bytes=int(figures["memory_gb"] * 2**30) if "memory_gb" in figures else None,
        bandwidth_bytes_per_second=scaled("bandwidth_gb", 1e9),
        power_watts=figures.get("power_w"),
        link_bytes_per_second=scaled("link_gb", 1e9),
        pcie_bytes_per_second=scaled("pcie_gb", 1e9),
        source=row["source"],
    )


def datasheet(key: str) -> Datasheet:
    """Return the board with this key; if the key is unknown, raise InputError with the nearest key."""
    if key not in datasheets():
        raise InputError(f"no board {key!r}{nearest(key.lower(), datasheets())}; there are: {', '.join(datasheets())}")
    return datasheets()[key]


def datasheet_of(device_name: str) -> Datasheet | None:
    """Return the board that the driver reports as `device_name`, or None.

    All words must match, because additional words denote similar models, boards with different clocks, and MIG slices.
    """
    return _datasheets_by_words().get(_words(device_name))


@cache
def _datasheets_by_words() -> Mapping[frozenset[str], Datasheet]:
    return {_words(name): sheet for sheet in datasheets().values() for name in sheet.reported}


def _words(device_name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Z0-9]+", device_name.upper())) - _IGNORED_WORDS


def datasheet_flops_per_second(device_name: str, number_format: str) -> float | None:
    """Return the dense peak in one of `DATASHEET_FORMATS` for the device that the driver reports; None if unknown."""
    sheet = datasheet_of(device_name)
    return None if sheet is None else sheet.flops_per_second.get(number_format)


def matches_model(short: str, name: str) -> bool:
    """Return whether `short`, such as `a100`, denotes the device `name`, such as `NVIDIA A100-SXM4-80GB`.

    Every word of `short` must equal a word of `name` or several consecutive words joined; case is ignored. `rtx4090`
    and `4090` match `NVIDIA GeForce RTX 4090`; `a10` does not match an A100.
    """
    words, wanted = (re.findall(r"[a-z0-9.]+", text.lower()) for text in (name, short))
    joined = {"".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, len(words) + 1)}
    return bool(wanted) and joined.issuperset(wanted)
