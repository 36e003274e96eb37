"""The share of several devices' rates that is left when they train one model: efficiencies of published rates.

An efficiency is the rate of k devices over k times that of one, each with its own batch. `data/scaling.csv` has such
rates for machines of up to eight devices, with their source. A device that is in the table has its own networks'
efficiencies. Another one has those of all devices that are connected as it is. The interval is one for a further
network: mean and spread of the logarithms, by t's quantile.
"""

from __future__ import annotations

import csv
import math
import statistics
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scipy import special

from accelsweep.core.findings.projections import Projected
from accelsweep.devices.datasheets import Datasheet, datasheet
from accelsweep.records.estimates import Range

SCALING_TABLE = Path(__file__).parent / "data" / "scaling.csv"
COUNTS = (2, 4, 8)
"""The numbers of devices of the published machines."""
FAST_LINK = 250e9
"""Bytes a second: devices with a faster link than this exchange gradients over NVLink, others over PCIe."""
MOST_GRADIENT_BYTES = 4e9
"""Bytes of gradients per second of a step: BERT large, of 336 million parameters, at batches of 16 to 112. No published
network exchanges more, so nothing is known of one that does."""
FEWEST_EFFICIENCIES = 3
"""From fewer efficiencies there is no interval."""


class Efficiency(NamedTuple):
    """The share of the devices' rates that is left, with its 90 % interval, and where it comes from."""

    value: float
    low: float
    high: float
    source: str


def published_efficiency(device: Datasheet, count: int) -> Efficiency | None:
    """Return the efficiency of `count` devices of a kind in one machine; None where too little was published.

    More devices are never taken to scale better than fewer: machines of eight were published for servers only.
    """
    found = [_at(device, one) for one in COUNTS if one <= count]
    if count not in COUNTS or found[-1] is None:
        return None
    worst = [one for one in found if one is not None]
    return Efficiency(
        value=min(one.value for one in worst),
        low=min(one.low for one in worst),
        high=min(one.high for one in worst),
        source=found[-1].source,
    )


def _at(device: Datasheet, count: int) -> Efficiency | None:
    """Return what was published of just so many devices."""
    own = _logs((device.key,), count)
    alike = tuple(
        key for key in dict.fromkeys(row["board"] for row in _rows()) if _fast(datasheet(key)) is _fast(device)
    )
    logs, of_whom = (own, f"of the {device.name}") if own else (_logs(alike, count), _words(device))
    if len(logs) < FEWEST_EFFICIENCIES:
        return None
    middle, spread = statistics.mean(logs), statistics.stdev(logs) * math.sqrt(1 + 1 / len(logs))
    half = float(special.stdtrit(len(logs) - 1, 0.95)) * spread
    low, value, high = (math.exp(min(0.0, middle + sign * half)) for sign in (-1, 0, 1))
    return Efficiency(value, low, high, f"{len(logs)} published rates {of_whom} (Lambda, deeplearning-benchmark)")


def beyond_the_published(one: Projected, batch: int, parameters: float | None) -> str | None:
    """Return why published efficiencies say nothing of this model on several devices, or None."""
    if one.rate is None:
        return one.reason
    if not one.form.startswith("training"):
        return "published rates of several devices are of training"
    if one.limit in ("data loading", "starting kernels"):
        return f"one device is limited by {one.limit} already, and no published network is"
    if parameters is None:
        return "the number of parameters is not known, and so not what the devices exchange"
    gradients = 4 * parameters * one.rate.value / batch
    if gradients > MOST_GRADIENT_BYTES:
        more = gradients / MOST_GRADIENT_BYTES
        return f"at batches of {batch} it exchanges {more:.1f} times the gradients of any published network"
    return None


def times(one: Projected, count: int, share: Efficiency) -> Range:
    """Return the rate of `count` devices, given the projection for one and the share that is left."""
    assert one.rate is not None, "refused before"
    middle = one.rate.value * count * share.value
    below = math.hypot(math.log(one.rate.value / one.rate.low), math.log(share.value / share.low))
    above = math.hypot(math.log(one.rate.high / one.rate.value), math.log(share.high / share.value))
    return Range(value=middle, low=middle * math.exp(-below), high=middle * math.exp(above))


def _fast(device: Datasheet) -> bool:
    """Say whether the device always comes with a fast link: a card for a slot may lack its bridge."""
    link = device.link_bytes_per_second
    return link is not None and link > FAST_LINK and not device.key.endswith("pcie")


def _words(device: Datasheet) -> str:
    return "of devices with NVLink" if _fast(device) else "of devices on PCIe"


def _logs(boards: tuple[str, ...], count: int) -> list[float]:
    """Return the logarithms of the efficiencies of these boards' networks."""
    rates = {(row["board"], int(row["devices"])): row for row in _rows()}
    pairs = [(rates[board, 1], rates[board, count]) for board in boards if (board, count) in rates]
    networks = [name for name in _rows()[0] if name not in ("board", "devices")]
    return [math.log(float(many[name]) / (count * float(one[name]))) for one, many in pairs for name in networks]


@cache
def _rows() -> list[dict[str, str]]:
    lines = SCALING_TABLE.read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))
