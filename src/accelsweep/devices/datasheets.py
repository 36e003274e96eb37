"""Boards by their makers' datasheets: dense peaks, memory, power. `boards.csv` has a row and a source per board.

* A peak is the highest rate of dense matrix products in a format at boost clock, in TFLOP/s. None counts sparsity. Sums
  of 16 and 8 bits are in 32 bits, as in torch, so a GeForce has half of what its box says.
* Bandwidths are in 1e9 bytes a second. Those of links (NVLink, Infinity Fabric) and of PCIe count both directions.
* Memory is in 2**30 bytes, of which the driver and error correction keep some. Power is the board's limit in watts.
* An empty cell is not stated, or not by a name that tells boards apart. Nothing is guessed.

A processor has no row: its makers print no such number.
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
"""The number formats that a row may have a peak for."""

TABLE = Path(__file__).parent / "boards.csv"

_UNSAID = frozenset({"NVIDIA", "TESLA", "AMD", "INTEL", "R", "GPU"})
"""Words that a driver's name for a board has in one version and lacks in another."""


@dataclass(frozen=True)
class Datasheet:
    """One device as torch shows it. A board of several dies is several devices, each with its share of all figures.

    `flops_per_second` maps formats to operations a second; a format that the maker does not state is absent. Other
    figures that it does not state are None. `reported` holds the names by which the driver may call the device.
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
    """Return all boards of the table by their keys, such as `h100-sxm` or `l4`."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return MappingProxyType({row["key"]: _sheet(row) for row in csv.DictReader(file)})


def datasheet(key: str) -> Datasheet:
    """Return the board with this key; raise InputError that names the nearest key if there is none."""
    if key not in datasheets():
        raise InputError(f"no board {key!r}{nearest(key.lower(), datasheets())}; there are: {', '.join(datasheets())}")
    return datasheets()[key]


def datasheet_of(device_name: str) -> Datasheet | None:
    """Return the board that the driver calls `device_name`, or None.

    All words must agree: other models, boards with other clocks and slices of a board (MIG) have names of more words.
    """
    return _by_words().get(_words(device_name))


def datasheet_flops_per_second(device_name: str, number_format: str) -> float | None:
    """Return the dense peak of the device that the driver calls `device_name`, or None where no sheet is known.

    `number_format` is one of `DATASHEET_FORMATS`.
    """
    found = datasheet_of(device_name)
    return None if found is None else found.flops_per_second.get(number_format)


def _sheet(row: Mapping[str, str]) -> Datasheet:
    devices = int(row["devices"])
    figures = {name: float(text) / devices for name, text in row.items() if text and name in _FIGURES}
    return Datasheet(
        key=row["key"],
        name=row["name"],
        reported=tuple(name for name in row["reported"].split("|") if name),
        year=int(row["year"]),
        devices_on_board=devices,
        flops_per_second=MappingProxyType(
            {name: figures[name] * 1e12 for name in DATASHEET_FORMATS if name in figures}
        ),
        memory_bytes=int(figures["memory_gb"] * 2**30) if "memory_gb" in figures else None,
        bandwidth_bytes_per_second=_times(1e9, figures.get("bandwidth_gb")),
        power_watts=figures.get("power_w"),
        link_bytes_per_second=_times(1e9, figures.get("link_gb")),
        pcie_bytes_per_second=_times(1e9, figures.get("pcie_gb")),
        source=row["source"],
    )


_FIGURES = frozenset({*DATASHEET_FORMATS, "memory_gb", "bandwidth_gb", "power_w", "link_gb", "pcie_gb"})


def _times(scale: float, figure: float | None) -> float | None:
    return None if figure is None else figure * scale


def _words(device_name: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Z0-9]+", device_name.upper())) - _UNSAID


@cache
def _by_words() -> Mapping[frozenset[str], Datasheet]:
    return {_words(name): one for one in datasheets().values() for name in one.reported}


# Whether a device's name is meant by a shorter word, such as `a100` for `NVIDIA A100-SXM4-80GB`.


def meant(short: str, name: str) -> bool:
    """Return whether every word of `short` is a word of `name`, or several of its words in a row written as one.

    Case does not count. `rtx4090` and `4090` mean `NVIDIA GeForce RTX 4090`; `a10` does not mean an A100.
    """
    words = _words_of_name(name)
    known = {"".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, len(words) + 1)}
    asked = _words_of_name(short)
    return bool(asked) and known.issuperset(asked)


def _words_of_name(name: str) -> list[str]:
    return re.findall(r"[a-z0-9.]+", name.lower())
