"""Projects a workload onto a device, based on the model's traits, a measured rate and the device's datasheet.

The time per sample comes from the fitted time model; if the measurement was made on a known GPU, it is the measured
time scaled by the ratio of the fitted times. The measured wait for data is added, because it does not shrink on a
faster device (Amdahl's law). Networks from families without published rates, operations of unknown cost, and devices
with incomplete datasheets are rejected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from accelsweep.config.prices import PaymentOption
from accelsweep.devices.datasheets import Datasheet
from accelsweep.features.projection.model import Projection, Range, shortened
from accelsweep.features.projection.time_model import (
    Fitted,
    Form,
    NotProjected,
    family,
    fitted,
    memory_fit,
    part_seconds,
)
from accelsweep.records.run_record import NetworkFamily
from accelsweep.results import Traits
from accelsweep.significant_digits import SECONDS_PER_HOUR

MAX_UNKNOWN_SHARE = 0.1
"""A model is not projected if operations of unknown cost produce a larger share of its outputs."""

LAUNCH_SPREAD = math.log(3)
"""Launching kernels takes a third to three times the published time, depending on processor, loop and versions."""

TRAINING_FLOPS_RATIO = (2.2, 3.2)
"""Range of the number of operations in a training step, relative to its forward pass.

Outside this range, part of the model is frozen.
"""

LIMITS = {
    "convolutions": "operations",
    "products": "operations",
    "attention": "operations",
    "grouped": "operations",
    "activations": "bandwidth",
    "others": "bandwidth",
    "parameters": "bandwidth",
    "kernels": "starting kernels",
}
"""The bottleneck that each part of the time model represents."""


@dataclass(frozen=True)
class Workload:
    """What is projected: a model's traits, its batch size per device and its optimiser.

    `wait_seconds` is the measured wait for data per sample, None if unknown. `step_flops` is the number of operations
    per sample in a training step, None for inference or if not counted.
    """

    traits: Traits
    batch: int
    optimizer: str = "none"
    wait_seconds: float | None = None
    step_flops: float | None = None


@dataclass(frozen=True)
class Anchor:
    """The measurement behind a projection: its rate in samples per second, and its board and form, if known.

    `usd_per_hour` is the price of the machine, `epoch_samples` the size of an epoch.
    """

    rate: float
    device: Datasheet | None = None
    form: str | None = None
    usd_per_hour: float | None = None
    epoch_samples: float | None = None


@dataclass(frozen=True)
class _Time:
    """The logarithm of the seconds per sample, the half-width of its 90 % interval, the parts' shares, and notes."""

    log: float
    half: float
    shares: dict[str, float]
    notes: list[str]


def project(
    workload: Workload, anchor: Anchor, device: Datasheet, form: Form, usd_per_hour: float | None = None
) -> Projection:
    """Return the projection of `workload` onto one `device` in one `form`; `usd_per_hour` is the device's price."""
    name = device.name.removeprefix("NVIDIA ")
    try:
        time = _time(workload, anchor, device, fitted()[form.key], form)
    except NotProjected as error:
        return Projection(device=device.key, name=name, form=form.title, reason=str(error))
    wait = workload.wait_seconds or 0.0
    fast, middle, slow = (math.exp(time.log + sign * time.half) + wait for sign in (-1, 0, 1))

    def cost_of(samples: float | None) -> Range | None:
        if usd_per_hour is None or not samples:
            return None
        return _range(*(usd_per_hour / SECONDS_PER_HOUR * samples * seconds for seconds in (middle, fast, slow)))

    by_limit: dict[str, float] = {}
    for part, share in time.shares.items():
        by_limit[LIMITS[part]] = by_limit.get(LIMITS[part], 0.0) + share
    return Projection(
        device=device.key,
        name=name,
        form=form.title,
        rate=_range(1 / middle, 1 / slow, 1 / fast),
        ratio=_range(*(1 / seconds / anchor.rate for seconds in (middle, slow, fast))),
        usd_per_hour=usd_per_hour,
        usd_per_million_samples=cost_of(1e6),
        usd_per_epoch=cost_of(anchor.epoch_samples),
        joules_per_sample_at_most=None if device.power_watts is None else _two_digits(device.power_watts * slow),
        room=memory_fit(workload.traits, workload.batch, workload.optimizer, form, device.memory_bytes),
        limit="data loading" if wait > middle / 2 else max(by_limit, key=lambda limit: by_limit[limit]),
        cheaper=_compare_cost(anchor, usd_per_hour, fast, slow),
        notes=tuple(time.notes),
        source=device.source,
    )


def _time(workload: Workload, anchor: Anchor, device: Datasheet, model: Fitted, form: Form) -> _Time:
    traits, kind = workload.traits, _checked_family(workload, form)
    parts = part_seconds(traits, workload.batch, device, form)
    shares, log = model.shares(parts), model.log_seconds(parts, kind)
    half, notes = model.spread.half(kind), []
    if kind not in model.spread.families:
        notes.append(f"few rates of {kind} were published in this form, so the interval is that of an unseen family")
    if anchor.device is not None and anchor.form == form.key:
        known = model.log_seconds(part_seconds(traits, workload.batch, anchor.device, form), kind)
        log += math.log(max(1 / anchor.rate - (workload.wait_seconds or 0.0), 0.1 / anchor.rate)) - known
        if model.spread.transfer is not None:
            half = model.spread.transfer
        notes.append(f"based on the rate measured on the {anchor.device.name}")
    if shares["kernels"] > 0.2:
        half = math.hypot(half, shares["kernels"] * LAUNCH_SPREAD)
    if shares["kernels"] > 0.5:
        notes.append("mostly waits for the host to start kernels, which no published rate covers: use a larger batch")
    return _Time(log, half, shares, notes)


def _checked_family(workload: Workload, form: Form) -> NetworkFamily:
    """Return the network's family. Raises NotProjected for networks unlike those with published rates."""
    traits = workload.traits
    if traits.unknown_share > MAX_UNKNOWN_SHARE:
        names = ", ".join(traits.unknown_names)
        raise NotProjected(f"{traits.unknown_share:.0%} of its outputs come from operations of unknown cost: {names}")
    if traits.flops == 0:
        raise NotProjected("no operation with a known formula was counted")
    kind = family(traits)
    if kind is NetworkFamily.recurrent:
        raise NotProjected("recurrent networks: too few rates were published")
    if form.trains and workload.step_flops is not None:
        ratio = workload.step_flops / traits.flops
        if not TRAINING_FLOPS_RATIO[0] <= ratio <= TRAINING_FLOPS_RATIO[1]:
            raise NotProjected(
                f"its training step has {ratio:.1f} times the operations of its forward pass, not about 3"
            )
    return kind


def _compare_cost(anchor: Anchor, usd_per_hour: float | None, fast: float, slow: float) -> str:
    """Return how the device's cost for the same work compares with this machine's, at both ends of the interval."""
    if usd_per_hour is None or anchor.usd_per_hour is None:
        return ""
    here = anchor.usd_per_hour / anchor.rate
    even = f"break-even with this machine: at least {here / slow:.2g} USD/h"
    if usd_per_hour * slow < here:
        return f"projected cheaper for the same work; {even}"
    if usd_per_hour * fast > here:
        return f"projected more expensive for the same work; {even}"
    return f"cannot tell which is cheaper; {even}"


def _range(value: float, low: float, high: float) -> Range:
    return Range(value=_two_digits(value), low=_two_digits(low), high=_two_digits(high))


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


HOURS_PER_MONTH = 730.5


def break_even(here: PaymentOption, there: PaymentOption, name: str, ratio: Range) -> str:
    """Compare the bill for the device `name` with this machine's, which runs at 1 / `ratio` of the device's rate.

    Bills are linear in the hours of training per month.
    """
    middle, low, high = (_crossing(here, there, end) for end in (ratio.value, ratio.low, ratio.high))
    device, machine = f"{name} ({there.description})", f"this machine ({here.description})"
    if not middle.sign == low.sign == high.sign:
        return f"it cannot be determined whether {device} is cheaper than {machine}"
    cheaper = f"{device} is projected cheaper than {machine}"
    costlier = f"{device} is projected more expensive than {machine}"
    if middle.hours is None or low.hours is None or high.hours is None:
        return f"at any number of hours a month, {cheaper if middle.sign < 0 else costlier}"
    first, last = sorted((low.hours, high.hours))
    if first > HOURS_PER_MONTH:
        return f"at any number of hours a month, {cheaper if middle.sign > 0 else costlier}"
    hours = f"about {shortened(middle.hours)} ({shortened(first)} to {shortened(last)}) hours of training a month here"
    return f"{'up to' if middle.sign > 0 else 'from'} {hours}, {cheaper}"


def rent_or_buy(rented: PaymentOption, bought: PaymentOption, name: str) -> str:
    """Return the hours per month above which buying a device is cheaper than renting; this depends only on prices."""
    hours = _crossing(rented, bought, 1.0).hours
    if hours is None or hours > HOURS_PER_MONTH:
        renting = f"renting {name} ({rented.description})"
        return f"at any number of hours a month, {renting} is cheaper than buying it ({bought.description})"
    buying = f"buying {name} ({bought.description})"
    return f"from {shortened(hours)} hours a month on it, {buying} is cheaper than renting it ({rented.description})"


class _Crossing(NamedTuple):
    """The hours per month at which two bills cross, if any; above them, the other device is cheaper if `sign` is -1."""

    hours: float | None
    sign: int


def _crossing(here: PaymentOption, there: PaymentOption, ratio: float) -> _Crossing:
    offset = there.usd_per_month - here.usd_per_month
    slope = there.usd_per_hour / ratio - here.usd_per_hour
    sign = -1 if slope < 0 or (slope == 0 and offset < 0) else 1
    crosses = slope != 0 and -offset / slope > 0
    return _Crossing(-offset / slope if crosses else None, sign)
