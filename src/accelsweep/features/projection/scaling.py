"""The scaling efficiency of several devices in one machine, from published training rates (`data/scaling.csv`).

The efficiency is the rate of k devices divided by k times the rate of one device, at the same batch size per device.
For a device in the table, the efficiencies of the networks measured on it are used; for any other, those of all devices
with the same link type. The interval is a prediction interval for one more network, based on the mean and spread of the
logarithms, with Student's t.
"""

from __future__ import annotations

import csv
import math
import statistics
from functools import cache
from pathlib import Path
from typing import NamedTuple

import scipy

from accelsweep.devices.datasheets import Datasheet, datasheet
from accelsweep.features.projection.model import Projection, Range

SCALING_TABLE = Path(__file__).parent / "data" / "scaling.csv"

COUNTS = (2, 4, 8)
"""The device counts of the machines with published rates."""

NVLINK_BYTES_PER_SECOND = 250e9
"""Devices with a link faster than this exchange gradients over NVLink, others over PCIe."""

MAX_GRADIENT_BYTES_PER_SECOND = 4e9
"""The maximum gradient traffic of a published network: BERT large, 336 million parameters, batches of 16 to 112."""

MIN_EFFICIENCIES = 3
"""Minimum number of efficiencies for an interval."""


class Efficiency(NamedTuple):
    """The efficiency of several devices with its 90 % interval, and its source."""

    value: float
    low: float
    high: float
    source: str


def published_efficiency(device: Datasheet, count: int) -> Efficiency | None:
    """Return the efficiency of `count` devices in one machine; None if there is too little published data.

    More devices are assumed never to scale better than fewer: results for eight were published for servers only.
    """
    smaller = [_efficiency_of(device, other) for other in COUNTS if other <= count]
    if count not in COUNTS or smaller[-1] is None:
        return None
    known = [efficiency for efficiency in smaller if efficiency is not None]
    value, low, high = (min(getattr(efficiency, end) for efficiency in known) for end in ("value", "low", "high"))
    return Efficiency(value, low, high, smaller[-1].source)


def _efficiency_of(device: Datasheet, count: int) -> Efficiency | None:
    """Return the efficiency published for exactly `count` devices."""
    rates = {(row["board"], int(row["devices"])): row for row in _scaling_rows()}
    networks = [name for name in _scaling_rows()[0] if name not in ("board", "devices")]

    def logs(boards: list[str]) -> list[float]:
        pairs = [(rates[board, 1], rates[board, count]) for board in boards if (board, count) in rates]
        return [math.log(float(many[name]) / (count * float(one[name]))) for one, many in pairs for name in networks]

    values, whose = logs([device.key]), f"of the {device.name}"
    if not values:
        boards = dict.fromkeys(row["board"] for row in _scaling_rows())
        values = logs([key for key in boards if _has_nvlink(datasheet(key)) is _has_nvlink(device)])
        whose = "of devices with NVLink" if _has_nvlink(device) else "of devices on PCIe"
    if len(values) < MIN_EFFICIENCIES:
        return None
    middle, spread = statistics.mean(values), statistics.stdev(values) * math.sqrt(1 + 1 / len(values))
    half = float(scipy.special.stdtrit(len(values) - 1, 0.95)) * spread
    low, value, high = (math.exp(min(0.0, middle + sign * half)) for sign in (-1, 0, 1))
    return Efficiency(value, low, high, f"{len(values)} published rates {whose} (Lambda, deeplearning-benchmark)")


def _has_nvlink(device: Datasheet) -> bool:
    """Return whether the device always includes a fast link; PCIe cards may be installed without a bridge."""
    link = device.link_bytes_per_second
    return link is not None and link > NVLINK_BYTES_PER_SECOND and not device.key.endswith("pcie")


@cache
def _scaling_rows() -> list[dict[str, str]]:
    lines = SCALING_TABLE.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def scaling_refusal(projection: Projection, batch: int, parameters: float | None) -> str | None:
    """Return why published efficiencies do not apply to this model, or None."""
    if projection.rate is None:
        return projection.reason
    if not projection.form.startswith("training"):
        return "rates of several devices were published only for training"
    if projection.limit in ("data loading", "starting kernels"):
        return f"one device is already limited by {projection.limit}, unlike any published network"
    if parameters is None:
        return "the number of parameters is unknown, and so is the size of the gradients"
    gradients = 4 * parameters * projection.rate.value / batch
    if gradients > MAX_GRADIENT_BYTES_PER_SECOND:
        more = gradients / MAX_GRADIENT_BYTES_PER_SECOND
        return f"at batches of {batch} it exchanges {more:.1f} times the gradients of any published network"
    return None


def multi_device_rate(projection: Projection, count: int, efficiency: Efficiency) -> Range:
    """Return the rate of `count` devices; the intervals of rate and efficiency add in quadrature."""
    rate = projection.rate
    assert rate is not None, "refused before"
    middle = rate.value * count * efficiency.value
    below = math.hypot(math.log(rate.value / rate.low), math.log(efficiency.value / efficiency.low))
    above = math.hypot(math.log(rate.high / rate.value), math.log(efficiency.high / efficiency.value))
    return Range(value=middle, low=middle * math.exp(-below), high=middle * math.exp(above))
