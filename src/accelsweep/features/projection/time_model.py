"""The share of several devices' rates that is left when they train one model: efficiencies of published rates.

An efficiency is the rate of k devices over k times that of one, each with its own batch. `data/scaling.csv` has such
rates for machines of up to eight devices, with their source. A device that is in the table has its own networks'
efficiencies. Another one has those of all devices that are connected as it is. The interval is one for a further
network: mean and spread of the logarithms, by t's quantile.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scipy import special

from accelsweep.devices.datasheets import Datasheet, datasheet
from accelsweep.features.projection.model import Projected, Room
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Range
from accelsweep.records.run_record import NetworkFamily, Traits

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


# The named parts of a step's time: what a model does, over what a device can do.

WORK_PARTS = ("convolutions", "products", "attention", "grouped", "activations", "others", "kernels", "parameters")
"""The parts in the order of all vectors here."""

KERNEL_SECONDS = 5e-6
"""The fixed time of a kernel before its fitted coefficient, in seconds."""

GROUPED, ATTENTION, RARE = 0.03, 0.005, 0.8
"""Shares of a model's operations that decide its family."""


@dataclass(frozen=True)
class Form:
    """A task in a number format for which rates were published, such as training in mixed precision.

    `formats` are those of its matrix products, the first that a device has counts. `bytes_each` is the size of a number
    that is written.
    """

    key: str
    title: str
    formats: tuple[str, ...]
    bytes_each: int

    @property
    def trains(self) -> bool:
        """Whether a step has a backward pass."""
        return self.key.startswith("training")


INFERENCE = Form("inference-amp", "inference, mixed precision", ("float16",), 2)

TRAINING = Form("training-amp", "training, mixed precision", ("float16",), 2)

TRAINING_32 = Form("training-fp32", "training, 32 bits (TF32)", ("tf32",), 4)

FORMS = {form.key: form for form in (INFERENCE, TRAINING, TRAINING_32)}


class NotProjected(Exception):
    """There is no projection, and the message says why."""


def family(traits: Traits) -> NetworkFamily:
    """Return the kind of network, by the operations that do most of its work."""
    if traits.recurrent:
        return NetworkFamily.recurrent
    products = (traits.flops_product + traits.flops_attention) / traits.flops
    if products > RARE:
        attends = traits.flops_attention > ATTENTION * traits.flops or traits.others > traits.activations
        return NetworkFamily.attention if attends else NetworkFamily.dense
    if traits.flops_grouped > GROUPED * traits.flops:
        return NetworkFamily.depthwise
    return NetworkFamily.convolution if traits.flops_convolution > RARE * traits.flops else NetworkFamily.hybrid


def seconds(traits: Traits, batch: float, device: Datasheet, form: Form) -> tuple[float, ...]:
    """Return each part's seconds per sample before its coefficient, in the order of `WORK_PARTS`.

    Raises NotProjected where the datasheet lacks a figure.
    """
    peak = next((device.flops_per_second[name] for name in form.formats if name in device.flops_per_second), None)
    plain, bandwidth = device.flops_per_second.get("float32"), device.bandwidth_bytes_per_second
    if peak is None or plain is None or bandwidth is None:
        raise NotProjected(f"the datasheet of the {device.name} states no {_lacking(peak, plain, form)}")
    dense, moved = math.sqrt(peak * 2 * plain), form.bytes_each / bandwidth
    return (
        traits.flops_convolution / dense,
        traits.flops_product / dense,
        traits.flops_attention / dense,
        traits.flops_grouped / plain,
        traits.activations * moved,
        traits.others * moved,
        traits.kernels * KERNEL_SECONDS / batch,
        traits.parameters * moved / batch,
    )


def _lacking(peak: float | None, plain: float | None, form: Form) -> str:
    if peak is None:
        return f"peak in {' or '.join(form.formats)}"
    return "peak in float32" if plain is None else "bandwidth"


# The fitted model as it is shipped: coefficients, and how wrong they were on devices that they had not seen.

FITTED = Path(__file__).parent / "data" / "fitted.json"


class Spread(Frozen):
    """The distance of published rates from their projections, as logarithms of a ratio; each half covers 90 %.

    `device` is the half-width that belongs to a device as a whole, `families` that within one device, `within` the same
    for all families together. `family` belongs to a family that the fit has not seen. `transfer` is the half-width of a
    rate that is projected from another board's measured one, None where no two boards were compared.
    """

    device: float
    within: float
    families: Mapping[NetworkFamily, float]
    family: float
    transfer: float | None

    def half(self, kind: NetworkFamily) -> float:
        """Return the half-width of the 90 % interval of a model's log rate on a device that was not seen."""
        if kind in self.families:
            return math.hypot(self.device, self.families[kind])
        return math.hypot(self.device, self.within, self.family)


class Held(Frozen):
    """The error and coverage on unseen devices, or families: `count` rates of so many `networks`."""

    count: int
    networks: int
    devices: int
    median_error: float
    coverage: float


class Fitted(Frozen):
    """One form's model: seconds are the sum of `coefficients` times parts, times the exponential of a family's term."""

    form: str
    coefficients: tuple[float, ...]
    families: Mapping[NetworkFamily, float]
    spread: Spread
    unseen_devices: Held
    unseen_families: Held

    def shares(self, parts: tuple[float, ...]) -> dict[str, float]:
        """Return each part's share of the projected time, by its name."""
        own = [factor * part for factor, part in zip(self.coefficients, parts, strict=True)]
        return {name: value / sum(own) for name, value in zip(WORK_PARTS, own, strict=True)}

    def log_seconds(self, parts: tuple[float, ...], kind: NetworkFamily) -> float:
        """Return the natural logarithm of the seconds per sample."""
        total = sum(factor * part for factor, part in zip(self.coefficients, parts, strict=True))
        return math.log(total) + self.families.get(kind, 0.0)


@cache
def fitted() -> Mapping[str, Fitted]:
    """Return the shipped models by the key of their form."""
    found = json.loads(FITTED.read_text(encoding="utf-8"))
    return {one["form"]: Fitted.model_validate(one) for one in found["forms"]}


# Whether a batch fits in a device's memory, by bounds: what must be kept, and what would be kept at most.

SHARE = 0.9
"""The share of a board's memory that a model may have: driver, libraries and gaps need the rest."""

FLOAT32_BYTES = 4
"""Bytes of a number in 32 bits."""

STATES = {"SGD": 1, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "RMSprop": 1, "Adagrad": 1, "none": 0}
"""Numbers that an optimiser keeps for each parameter; another one is taken for Adam."""


def room(traits: Traits, batch: int, optimizer: str, form: Form, memory_bytes: int | None) -> Room:
    """Return whether `batch` samples fit into `memory_bytes`."""
    if memory_bytes is None:
        return Room.unknown
    least, most = bounds(traits, batch, optimizer, form)
    if most <= SHARE * memory_bytes:
        return Room.fits
    return Room.too_large if least > SHARE * memory_bytes else Room.unsure


def bounds(traits: Traits, batch: int, optimizer: str, form: Form) -> tuple[float, float]:
    """Return the least and the most bytes that a step needs."""
    everything = (traits.activations + traits.others) * FLOAT32_BYTES * batch
    if not form.trains:
        return FLOAT32_BYTES * traits.parameters, FLOAT32_BYTES * traits.parameters + everything
    kept = FLOAT32_BYTES * traits.parameters * (2 + STATES.get(optimizer, 2))
    return kept + traits.activations * form.bytes_each * batch, kept + everything
