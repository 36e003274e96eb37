"""From a model's traits, a measured rate and a device's datasheet to a projection: one pure function.

The time per sample is the fitted one. Where a known GPU was measured, it is that GPU's measured time times the ratio of
the fitted ones. The measured wait for data is added: it does not shrink with the device (Amdahl). Refused are networks
without published relatives, operations of unknown cost, and devices whose datasheet lacks a figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from accelsweep.config.prices import Bill
from accelsweep.devices.datasheets import Datasheet
from accelsweep.features.projection.model import Projected
from accelsweep.features.projection.time_model import Fitted, Form, NotProjected, family, fitted, room, seconds
from accelsweep.records.estimates import Range, shortened
from accelsweep.records.run_record import NetworkFamily, Traits

MOST_UNKNOWN = 0.1
"""A model is not projected if operations of unknown cost write a larger share of its numbers."""

HOST_SPREAD = math.log(3)
"""Starting kernels costs a third to three times the published time: it depends on processor, loop and versions."""

USUAL_BACKWARD = (2.2, 3.2)
"""Operations of a training step over those of its forward pass. Outside, part of the model is not trained."""

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


@dataclass(frozen=True)
class Workload:
    """The subject of a projection: a model's traits, its batch per device, its optimiser.

    `wait_seconds` is the measured wait for data per sample, None where it was not measured. `step_flops` are the
    operations of a training step per sample, None for inference or where they were not counted.
    """

    traits: Traits
    batch: int
    optimizer: str = "none"
    wait_seconds: float | None = None
    step_flops: float | None = None


@dataclass(frozen=True)
class Anchor:
    """The measurement behind a projection: samples per second, and on which known board in which form, if on one.

    `usd_per_hour` is the price of the machine, `epoch_samples` the size of a pass over the data; None if not known.
    """

    rate: float
    device: Datasheet | None = None
    form: str | None = None
    usd_per_hour: float | None = None
    epoch_samples: float | None = None


@dataclass(frozen=True)
class _Time:
    """Logarithm of the device's seconds per sample, half of its 90 % interval, and what was found on the way."""

    log: float
    half: float
    shares: dict[str, float]
    notes: list[str] = field(default_factory=list)


def project(
    workload: Workload, anchor: Anchor, device: Datasheet, form: Form, usd_per_hour: float | None = None
) -> Projected:
    """Return the projection of `workload` onto one `device` in one `form`; `usd_per_hour` is the device's price."""
    name = device.name.removeprefix("NVIDIA ")
    try:
        time = _time(workload, anchor, device, fitted()[form.key], form)
    except NotProjected as error:
        return Projected(device=device.key, name=name, form=form.title, reason=str(error))
    wait = workload.wait_seconds or 0.0
    slow, fast = (math.exp(time.log + sign * time.half) + wait for sign in (1, -1))
    middle = math.exp(time.log) + wait
    rate = _range(1 / middle, 1 / slow, 1 / fast)
    return Projected(
        device=device.key,
        name=name,
        form=form.title,
        rate=rate,
        ratio=_range(*(value / anchor.rate for value in (1 / middle, 1 / slow, 1 / fast))),
        usd_per_hour=usd_per_hour,
        usd_per_million_samples=_money(usd_per_hour, 1e6, (middle, fast, slow)),
        usd_per_epoch=_money(usd_per_hour, anchor.epoch_samples, (middle, fast, slow)),
        joules_per_sample_at_most=None if device.power_watts is None else _short(device.power_watts * slow),
        room=room(workload.traits, workload.batch, workload.optimizer, form, device.memory_bytes),
        limit="data loading" if wait > middle / 2 else _limit(time.shares),
        cheaper=_cheaper(anchor, usd_per_hour, (slow, fast)),
        notes=tuple(time.notes),
        source=device.source,
    )


def _time(workload: Workload, anchor: Anchor, device: Datasheet, model: Fitted, form: Form) -> _Time:
    traits, kind = workload.traits, _family(workload, form)
    parts = seconds(traits, workload.batch, device, form)
    shares, log = model.shares(parts), model.log_seconds(parts, kind)
    half, notes = model.spread.half(kind), []
    if kind not in model.spread.families:
        notes.append(f"few rates of {kind} were published in this form, so the interval is that of an unseen kind")
    if anchor.device is not None and anchor.form == form.key:
        known = model.log_seconds(seconds(traits, workload.batch, anchor.device, form), kind)
        log += math.log(max(1 / anchor.rate - (workload.wait_seconds or 0.0), 0.1 / anchor.rate)) - known
        if model.spread.transfer is not None:
            half = model.spread.transfer
        notes.append(f"starts from the rate measured on the {anchor.device.name}")
    if shares["kernels"] > 0.2:
        half = math.hypot(half, shares["kernels"] * HOST_SPREAD)
    if shares["kernels"] > 0.5:
        notes.append(
            "mostly waits for the host to start kernels, which no published rate tells of: take a larger batch"
        )
    return _Time(log, half, shares, notes)


def _family(workload: Workload, form: Form) -> NetworkFamily:
    """Return the kind of network. Raises NotProjected for what no published rate speaks of."""
    traits = workload.traits
    if traits.unknown_share > MOST_UNKNOWN:
        names = ", ".join(traits.unknown_names)
        raise NotProjected(f"{traits.unknown_share:.0%} of its numbers come from operations of unknown cost: {names}")
    if traits.flops == 0:
        raise NotProjected("no operation with a known formula was counted")
    kind = family(traits)
    if kind is NetworkFamily.recurrent:
        raise NotProjected("recurrent networks: too few rates were published")
    times = None if workload.step_flops is None else workload.step_flops / traits.flops
    if form.trains and times is not None and not USUAL_BACKWARD[0] <= times <= USUAL_BACKWARD[1]:
        raise NotProjected(f"its training step has {times:.1f} times the operations of its forward pass, usual are 3")
    return kind


def _limit(shares: dict[str, float]) -> str:
    found: dict[str, float] = {}
    for part, share in shares.items():
        found[LIMITS[part]] = found.get(LIMITS[part], 0.0) + share
    return max(found, key=lambda name: found[name])


def _money(usd_per_hour: float | None, samples: float | None, times: Sequence[float]) -> Range | None:
    if usd_per_hour is None or not samples:
        return None
    return _range(*(usd_per_hour / 3600 * samples * time for time in times))


def _cheaper(anchor: Anchor, usd_per_hour: float | None, times: tuple[float, float]) -> str:
    """Return how the device's price compares with this machine's for the same work, at both ends of the interval."""
    if usd_per_hour is None or anchor.usd_per_hour is None:
        return ""
    here = anchor.usd_per_hour / anchor.rate
    slow, fast = (usd_per_hour * time for time in times)
    below = anchor.usd_per_hour / (anchor.rate * times[0])
    even = f"break-even with this machine: at least {below:.2g} USD/h"
    if slow < here:
        return f"projected cheaper for the same work; {even}"
    return f"projected dearer for the same work; {even}" if fast > here else f"cannot tell which is cheaper; {even}"


def _range(value: float, low: float, high: float) -> Range:
    return Range(value=_short(value), low=_short(low), high=_short(high))


def _short(value: float) -> float:
    """Return `value` with two digits: a projection has no more."""
    return float(f"{value:.2g}")


# From how many hours of training a month one way to pay is cheaper than another: bills are straight lines.

MONTH = 730.5
"""Hours of a month: 8766 / 12. Nothing trains longer in one."""


def break_even(here: Bill, there: Bill, name: str, ratio: Range) -> str:
    """Return how the bill of the device `name` compares with this machine's, which has 1 / `ratio` of its rate."""
    middle, low, high = (_crossing(here, there, end) for end in (ratio.value, ratio.low, ratio.high))
    what = f"{name} ({there.words}) is projected cheaper than this machine ({here.words})"
    if not middle.sign == low.sign == high.sign:
        return f"whether {name} ({there.words}) is cheaper than this machine ({here.words}) cannot be told"
    if middle.hours is None or low.hours is None or high.hours is None:
        return f"at any number of hours a month, {what if middle.sign < 0 else _dearer(what)}"
    ends = sorted((low.hours, high.hours))
    if ends[0] > MONTH:
        early = middle.sign > 0
        return f"at any number of hours a month, {what if early else _dearer(what)}"
    words = (
        f"about {shortened(middle.hours)} ({shortened(ends[0])} to {shortened(ends[1])}) hours of training a month here"
    )
    return f"{'up to' if middle.sign > 0 else 'from'} {words}, {what}"


def rent_or_buy(rented: Bill, bought: Bill, name: str) -> str:
    """Return from how many hours a month a device is cheaper bought than rented: prices alone tell."""
    found = _crossing(rented, bought, 1.0)
    if found.hours is None or found.hours > MONTH:
        renting = f"renting {name} ({rented.words})"
        return f"at any number of hours a month, {renting} is cheaper than buying it ({bought.words})"
    buying = f"buying {name} ({bought.words})"
    return f"from {shortened(found.hours)} hours a month on it, {buying} is cheaper than renting it ({rented.words})"


class _Crossing(NamedTuple):
    """The crossing of two bills: `hours`, None if nowhere. `sign` is -1 if the other device is cheaper beyond it."""

    hours: float | None
    sign: int


def _crossing(here: Bill, there: Bill, ratio: float) -> _Crossing:
    offset = there.usd_per_month - here.usd_per_month
    slope = there.usd_per_hour / ratio - here.usd_per_hour
    sign = -1 if slope < 0 or (slope == 0 and offset < 0) else 1
    crosses = slope != 0 and -offset / slope > 0
    return _Crossing(-offset / slope if crosses else None, sign)


def _dearer(what: str) -> str:
    return what.replace("is projected cheaper", "is projected dearer")
