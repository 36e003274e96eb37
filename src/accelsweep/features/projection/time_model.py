"""The time model: a step's time is a fitted sum of parts, each of which is work divided by a device capacity.

The shipped coefficients and their errors on held-out devices and families are in `data/fitted.json`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from accelsweep.devices.datasheets import Datasheet
from accelsweep.features.projection.model import HoldoutError, MemoryFit
from accelsweep.json_documents import Frozen
from accelsweep.records.run_record import NetworkFamily
from accelsweep.results import Traits

WORK_PARTS = ("convolutions", "products", "attention", "grouped", "activations", "others", "kernels", "parameters")
"""The parts, in coefficient order."""

KERNEL_SECONDS = 5e-6
"""Launch overhead of a kernel, before the fitted coefficient is applied."""

GROUPED_SHARE, ATTENTION_SHARE, MAIN_SHARE = 0.03, 0.005, 0.8
"""Shares of a model's operations that determine its family."""


@dataclass(frozen=True)
class Form:
    """A task in a number format with published rates, such as training in mixed precision.

    Matrix products use the first of `formats` that the device supports; `bytes_each` is the size of an activation.
    """

    key: str
    title: str
    formats: tuple[str, ...]
    bytes_each: int

    @property
    def trains(self) -> bool:
        """Whether a step includes a backward pass."""
        return self.key.startswith("training")


INFERENCE = Form("inference-amp", "inference, mixed precision", ("float16",), 2)

TRAINING = Form("training-amp", "training, mixed precision", ("float16",), 2)

TRAINING_32 = Form("training-fp32", "training, 32 bits (TF32)", ("tf32",), 4)

FORMS = {form.key: form for form in (INFERENCE, TRAINING, TRAINING_32)}


class NotProjected(Exception):
    """No projection is possible; the message explains why."""


def family(traits: Traits) -> NetworkFamily:
    """Return the network's family, based on the operations that do most of its work."""
    if traits.recurrent:
        return NetworkFamily.recurrent
    products = (traits.flops_product + traits.flops_attention) / traits.flops
    if products > MAIN_SHARE:
        attends = traits.flops_attention > ATTENTION_SHARE * traits.flops or traits.others > traits.activations
        return NetworkFamily.attention if attends else NetworkFamily.dense
    if traits.flops_grouped > GROUPED_SHARE * traits.flops:
        return NetworkFamily.depthwise
    return NetworkFamily.convolution if traits.flops_convolution > MAIN_SHARE * traits.flops else NetworkFamily.hybrid


def part_seconds(traits: Traits, batch: float, device: Datasheet, form: Form) -> tuple[float, ...]:
    """Return each part's seconds per sample, before coefficients, in the order of `WORK_PARTS`.

    Raises NotProjected if the datasheet lacks a required figure.
    """
    peak = next((device.flops_per_second[name] for name in form.formats if name in device.flops_per_second), None)
    plain, bandwidth = device.flops_per_second.get("float32"), device.bandwidth_bytes_per_second
    figures = {f"peak in {' or '.join(form.formats)}": peak, "peak in float32": plain, "bandwidth": bandwidth}
    if peak is None or plain is None or bandwidth is None:
        missing = next(name for name, figure in figures.items() if figure is None)
        raise NotProjected(f"the datasheet of the {device.name} states no {missing}")
    dense, bytes_seconds = math.sqrt(peak * 2 * plain), form.bytes_each / bandwidth
    return (
        traits.flops_convolution / dense,
        traits.flops_product / dense,
        traits.flops_attention / dense,
        traits.flops_grouped / plain,
        traits.activations * bytes_seconds,
        traits.others * bytes_seconds,
        traits.kernels * KERNEL_SECONDS / batch,
        traits.parameters * bytes_seconds / batch,
    )


FITTED = Path(__file__).parent / "data" / "fitted.json"


class Spread(Frozen):
    """Half-widths of 90 % intervals of the log ratio of published to projected rates.

    `device` covers the error common to all of a device's rates; `families` (by family) and `within` (all families
    together) cover the differences between rates of the same device. `family` is added for a family that is not in the
    fit. `transfer` applies to a rate projected from another board's measured rate, and is None if no two boards were
    compared.
    """

    device: float
    within: float
    families: Mapping[NetworkFamily, float]
    family: float
    transfer: float | None

    def half(self, kind: NetworkFamily) -> float:
        """Return the half-width for a model on an unseen device."""
        if kind in self.families:
            return math.hypot(self.device, self.families[kind])
        return math.hypot(self.device, self.within, self.family)


class Fitted(Frozen):
    """The model for a form: seconds = sum(coefficients * parts) * exp(family's term)."""

    form: str
    coefficients: tuple[float, ...]
    families: Mapping[NetworkFamily, float]
    spread: Spread
    unseen_devices: HoldoutError
    unseen_families: HoldoutError

    def shares(self, parts: tuple[float, ...]) -> dict[str, float]:
        """Return each part's share of the projected time, keyed by part name."""
        times = [factor * part for factor, part in zip(self.coefficients, parts, strict=True)]
        return {name: time / sum(times) for name, time in zip(WORK_PARTS, times, strict=True)}

    def log_seconds(self, parts: tuple[float, ...], kind: NetworkFamily) -> float:
        """Return the natural logarithm of the seconds per sample."""
        total = sum(factor * part for factor, part in zip(self.coefficients, parts, strict=True))
        return math.log(total) + self.families.get(kind, 0.0)


@cache
def fitted() -> Mapping[str, Fitted]:
    """Return the shipped models, keyed by form."""
    forms = json.loads(FITTED.read_text(encoding="utf-8"))["forms"]
    return {form["form"]: Fitted.model_validate(form) for form in forms}


USABLE_MEMORY = 0.9
"""The share of a board's memory that a model may use: driver, libraries and fragmentation need the rest."""

FLOAT32_BYTES = 4

OPTIMIZER_STATES = {"SGD": 1, "Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "RMSprop": 1, "Adagrad": 1, "none": 0}
"""The number of values that an optimiser stores per parameter; unlisted optimisers are treated like Adam."""


def memory_fit(traits: Traits, batch: int, optimizer: str, form: Form, memory_bytes: int | None) -> MemoryFit:
    """Return whether `batch` samples fit into `memory_bytes`."""
    if memory_bytes is None:
        return MemoryFit.unknown
    least, most = memory_bounds(traits, batch, optimizer, form)
    if most <= USABLE_MEMORY * memory_bytes:
        return MemoryFit.fits
    return MemoryFit.too_large if least > USABLE_MEMORY * memory_bytes else MemoryFit.unsure


def memory_bounds(traits: Traits, batch: int, optimizer: str, form: Form) -> tuple[float, float]:
    """Return the minimum and maximum number of bytes that a step needs."""
    parameters = FLOAT32_BYTES * traits.parameters
    all_outputs = (traits.activations + traits.others) * FLOAT32_BYTES * batch
    if not form.trains:
        return parameters, parameters + all_outputs
    states = parameters * (2 + OPTIMIZER_STATES.get(optimizer, 2))  # parameters, gradients and optimiser state
    return states + traits.activations * form.bytes_each * batch, states + all_outputs
