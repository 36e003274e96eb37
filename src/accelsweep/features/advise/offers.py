"""Offers: ways to complete a training run, on locally measured settings or on devices projected from the best one.

Hours are the number of samples divided by a rate. Projections onto several devices use the GPU scaling measured in this
sweep, or else published efficiencies. There are no projections onto several machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field, model_validator

from accelsweep.config.prices import PaymentOption, Prices
from accelsweep.config.setting import label
from accelsweep.devices.datasheets import Datasheet, datasheet, datasheet_of
from accelsweep.features.projection.model import MemoryFit, Projection, Projections, Range
from accelsweep.features.projection.scaling import (
    COUNTS,
    Efficiency,
    multi_device_rate,
    published_efficiency,
    scaling_refusal,
)
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.significant_digits import SECONDS_PER_HOUR


class Tier(StrEnum):
    """How much hardware an offer requires, in ascending order."""

    none = "no GPU"
    one = "one GPU"
    several = "several GPUs"
    cluster = "a cluster"


class Fit(StrEnum):
    """Whether an offer meets a bound: its whole interval does, part of it does, none of it does, or unknown."""

    surely = "surely"
    perhaps = "perhaps"
    no = "no"
    unknown = "not known"


class Offer(Frozen):
    """A way to complete a training run on `count` devices called `name`; `reason` explains why there are no numbers.

    Hours and USD are for the entire training run, either measured or projected. `key` identifies the device in the
    table of boards. `paid` is the payment model, empty if there is no price; `outlay_usd` is the upfront cost of a
    purchase. `source` is where the numbers come from; `notes` are caveats.
    """

    tier: Tier
    name: str
    count: int = 1
    key: str | None = None
    form: str = ""
    reason: str | None = None
    hours_measured: Estimate | None = None
    usd_measured: Estimate | None = None
    hours_projected: Range | None = None
    usd_projected: Range | None = None
    usd_per_hour: float | None = None
    paid: str = ""
    outlay_usd: float | None = None
    room: MemoryFit = MemoryFit.unknown
    in_time: Fit = Fit.unknown
    in_budget: Fit = Fit.unknown
    notes: tuple[str, ...] = ()
    source: str = ""

    @model_validator(mode="after")
    def _one_basis(self) -> Offer:
        if [self.hours_measured, self.hours_projected, self.reason].count(None) != 2:
            raise ValueError("an offer must be measured, be projected, or state why it is neither")
        return self

    @property
    def measured(self) -> bool:
        """Whether the numbers were measured locally."""
        return self.hours_measured is not None

    @property
    def devices(self) -> str:
        """The devices in words, such as `8 x H100 SXM`."""
        return self.name if self.tier is Tier.none or self.key is None else f"{self.count} x {self.name}"


class Advice(Frozen):
    """The least hardware that meets the bounds, the cheapest such offer, and the assumptions behind both."""

    headline: str = Field(description="the answer in words")
    tier: Tier | None = Field(default=None, description="the least hardware that certainly meets the bounds")
    choice: int | None = Field(
        default=None, description="zero-based index in `offers` of the cheapest that certainly meets the bounds"
    )
    offers: tuple[Offer, ...] = Field(
        default=(), description="every way to run the training, ranked; projections have 90 % intervals"
    )
    changes: tuple[str, ...] = Field(default=(), description="what would change the choice")
    next_steps: tuple[str, ...] = Field(default=(), description="what to measure to be certain")
    monthly: tuple[str, ...] = Field(
        default=(), description="the hours per month above which a different payment model is cheaper"
    )
    assumptions: tuple[str, ...] = Field(default=(), description="the assumptions behind all numbers")


NO_CLUSTER = "no rate measured on several machines has an interval; measure num_nodes=1,2 on a cluster, then try again"


@dataclass(frozen=True)
class Training:
    """The training run: the total number of samples, and the number of epochs."""

    samples: float
    epochs: float


def offers_of(findings: Findings, prices: Prices, training: Training) -> tuple[Offer, ...]:
    """Return an offer for each measured tier, then the projections. Raises ValueError if there are no projections."""
    projections = findings.section(Projections)
    if projections is None or projections.reason is not None:
        raise ValueError("there are no projections")
    measured = tuple(_measured(findings, projections, prices, training))
    projected = tuple(_projected(findings, projections, prices, training))
    no_cluster = Offer(tier=Tier.cluster, name="several machines", reason=NO_CLUSTER)
    has_cluster = any(offer.tier is Tier.cluster for offer in measured)
    return (*measured, *projected, *(() if has_cluster else (no_cluster,)))


def _measured(findings: Findings, projections: Projections, prices: Prices, training: Training) -> Iterator[Offer]:
    """Yield an offer for each measured tier, preferring the setting that was projected to the fastest one."""
    best: dict[Tier, tuple[SettingFinding, Estimate]] = {}
    rated = [(setting, rate) for setting in findings.settings if (rate := rate_of(setting)) is not None]
    for setting, rate in sorted(rated, key=lambda pair: (pair[0].setting != projections.setting, -pair[1].value)):
        best.setdefault(tier_of(setting), (setting, rate))
    for tier in Tier:
        if tier in best:
            yield _measured_offer(*best[tier], tier, prices, training)


def rate_of(setting: SettingFinding) -> Estimate | None:
    """Return a setting's samples per second, without an interval if settings are compared on a different rate."""
    if setting.rate is not None and setting.rate.unit == "1/s":
        return setting.rate
    summary = setting.metrics.get("samples_per_second")
    if summary is None or not summary.median:
        return None
    reason = "settings are compared on a different rate"
    return Estimate(
        value=summary.median, low=None, high=None, unit="1/s", confidence=0.9, count=summary.count, reason=reason
    )


def tier_of(setting: SettingFinding) -> Tier:
    """Return the tier of the hardware on which a setting was measured."""
    if setting.num_nodes > 1:
        return Tier.cluster
    if setting.accelerator == "cpu":
        return Tier.none
    return Tier.several if setting.world_size > 1 else Tier.one


def _measured_offer(setting: SettingFinding, rate: Estimate, tier: Tier, prices: Prices, training: Training) -> Offer:
    names = setting.device_names
    count = 1 if tier is Tier.none else setting.world_size
    keys = [sheet.key for name in names if (sheet := datasheet_of(name)) is not None]
    price = prices.of_names([*dict.fromkeys([*names, *keys]), str(setting.accelerator)])
    usd = None if price is None else price[1].usd_per_hour * count
    hours = _over(rate, training.samples / SECONDS_PER_HOUR, "h")
    disturbed = any(doubt.disturbing for doubt in setting.doubts)
    sheet = datasheet_of(names[0]) if names else None
    device = names[0].removeprefix("NVIDIA ") if names else "the measured device"
    return Offer(
        tier=tier,
        name=f"this machine ({device})" if tier is Tier.none else device,
        count=count,
        key=None if sheet is None else sheet.key,
        form=label(setting.axes),
        hours_measured=hours,
        usd_measured=None if usd is None else _over(rate, training.samples / SECONDS_PER_HOUR * usd, "USD"),
        usd_per_hour=usd,
        paid="" if price is None else f"{usd:.3g} USD/h, by the price of {price[0]}",
        notes=("there was other load on the machine during the measurement",) if disturbed else (),
        source="measured in this sweep",
    )


def _over(rate: Estimate, amount: float, unit: str) -> Estimate:
    """Return `amount` divided by a rate."""
    low, high = (None if end is None else amount / end for end in (rate.high, rate.low))
    return rate.model_copy(update={"value": amount / rate.value, "low": low, "high": high, "unit": unit})


def _projected(findings: Findings, projections: Projections, prices: Prices, training: Training) -> Iterator[Offer]:
    measured = _measured_scaling(findings)
    setting = next((setting for setting in findings.settings if setting.setting == projections.setting), None)
    summary = None if setting is None else setting.metrics.get("parameters")
    parameters = None if summary is None else summary.median
    for key in dict.fromkeys(device.device for device in projections.devices):
        forms = [device for device in projections.devices if device.device == key]
        device, sheet = next((form for form in forms if form.rate is not None), forms[0]), datasheet(key)
        if device.rate is None:
            yield Offer(tier=Tier.one, name=device.name, key=key, form=device.form, reason=device.reason)
            continue
        yield _priced(device, 1, device.rate, device.source, prices, training)
        for count in COUNTS:
            scaling = measured.get(count)
            yield _several(device, count, scaling, sheet, projections.batch, parameters, prices, training)


def _several(
    device: Projection,
    count: int,
    measured: Efficiency | None,
    sheet: Datasheet,
    batch: int,
    parameters: float | None,
    prices: Prices,
    training: Training,
) -> Offer:
    """Return the projection onto `count` devices, based on the measured efficiency or else a published one."""
    efficiency, reason = measured, None
    if efficiency is None:
        efficiency, reason = published_efficiency(sheet, count), scaling_refusal(device, batch, parameters)
    if efficiency is None or reason is not None:
        reason = reason or f"too few rates were published for {count} such devices"
        return Offer(
            tier=Tier.several, name=device.name, count=count, key=device.device, form=device.form, reason=reason
        )
    source = f"{device.source}; scaling: {efficiency.source}"
    return _priced(device, count, multi_device_rate(device, count, efficiency), source, prices, training)


def _priced(device: Projection, count: int, rate: Range, source: str, prices: Prices, training: Training) -> Offer:
    """Return an offer with hours, and with USD if the device's price is known."""
    hours = _range(training.samples / SECONDS_PER_HOUR, rate)
    price, bills = prices.of_names(_board_names(device.device)), bills_of(device.device, prices)
    outlay = bills[0].upfront_usd if bills else None
    usd = None if price is None else price[1].usd_per_hour * count
    return Offer(
        tier=Tier.one if count == 1 else Tier.several,
        name=device.name,
        count=count,
        key=device.device,
        form=device.form,
        hours_projected=hours,
        usd_projected=None if usd is None else _range(training.samples / SECONDS_PER_HOUR * usd, rate),
        usd_per_hour=usd,
        paid="" if usd is None else _paid(usd, count, bills),
        outlay_usd=None if outlay is None else outlay * count,
        room=device.room,
        notes=device.notes,
        source=source,
    )


def _paid(usd: float, count: int, bills: Sequence[PaymentOption]) -> str:
    each = "" if count == 1 else " each"
    words, outlay = bills[0].description, bills[0].upfront_usd
    return f"{words}{each}" if outlay is None else f"{usd / count:.2g} USD/h{each}, {words}"


def bills_of(key: str, prices: Prices) -> tuple[PaymentOption, ...]:
    """Return the ways to pay for a board, hourly rates first."""
    return prices.payment_options(_board_names(key))


def _board_names(key: str) -> tuple[str, ...]:
    sheet = datasheet(key)
    return (*sheet.reported, sheet.name, sheet.key)


def _range(amount: float, rate: Range) -> Range:
    value, low, high = (float(f"{amount / end:.2g}") for end in (rate.value, rate.high, rate.low))
    return Range(value=value, low=low, high=high)


def _measured_scaling(findings: Findings) -> Mapping[int, Efficiency]:
    """Return this sweep's weak-scaling efficiency by number of GPUs."""
    gpus = {setting.setting: tier_of(setting) is Tier.several for setting in findings.settings if setting.effective}
    shares: dict[int, Efficiency] = {}
    for point in findings.scaling:
        share = point.efficiency
        if share is None or point.kind != "weak" or not gpus.get(point.setting) or not share.low or not share.high:
            continue
        if math.isfinite(share.high):
            words = f"measured in this sweep with {point.devices} GPUs"
            shares[point.devices] = Efficiency(share.value, share.low, share.high, words)
    return shares


@dataclass(frozen=True)
class Terms:
    """Deadline in hours and budget in USD; None if unbounded."""

    hours: float | None = None
    usd: float | None = None


class Ends(NamedTuple):
    """A value with its interval, measured or projected; the ends are None if there is no interval."""

    value: float
    low: float | None
    high: float | None


def hours_of(offer: Offer) -> Ends | None:
    """Return an offer's hours, or None if there are no numbers."""
    hours = offer.hours_measured or offer.hours_projected
    return None if hours is None else Ends(hours.value, hours.low, hours.high)


def usd_of(offer: Offer) -> Ends | None:
    """Return an offer's cost in USD for the entire training run, or None if there is no price."""
    usd = offer.usd_measured or offer.usd_projected
    return None if usd is None else Ends(usd.value, usd.low, usd.high)


def fit(span: Ends | None, bound: float | None) -> Fit:
    """Return whether an interval meets a bound: certainly if all of it does, possibly if part of it does."""
    if bound is None:
        return Fit.surely
    if span is None:
        return Fit.unknown
    if span.low is None or span.high is None:
        return Fit.perhaps if span.value <= bound else Fit.no
    if span.high <= bound:
        return Fit.surely
    return Fit.perhaps if span.low <= bound else Fit.no


def judged(offer: Offer, terms: Terms) -> Offer:
    """Return the offer with `in_time` and `in_budget` set. A purchase counts towards the budget at full price."""
    in_budget = fit(usd_of(offer), terms.usd)
    if terms.usd is not None and offer.outlay_usd is not None and offer.outlay_usd > terms.usd:
        in_budget = Fit.no
    return offer.model_copy(update={"in_time": fit(hours_of(offer), terms.hours), "in_budget": in_budget})


def ranked(offers: Sequence[Offer], terms: Terms) -> tuple[Offer, ...]:
    """Return the offers sorted by the bounds they meet, then by cost and number of devices."""
    return tuple(sorted((judged(offer, terms) for offer in offers), key=_sort_key))


def grade(offer: Offer) -> int:
    """Return 0 if the offer certainly meets both bounds and fits in memory, 1 if it possibly does, and 2 otherwise."""
    if offer.reason is not None or offer.room is MemoryFit.too_large or Fit.no in (offer.in_time, offer.in_budget):
        return 2
    fits = offer.measured or offer.room is MemoryFit.fits
    return 0 if fits and offer.in_time is Fit.surely and offer.in_budget is Fit.surely else 1


def sure_and_priced(offers: Sequence[Offer]) -> Offer | None:
    """Return the cheapest offer that certainly meets both bounds, or None. `offers` must be ranked."""
    return next((offer for offer in offers if grade(offer) == 0 and usd_of(offer) is not None), None)


def _sort_key(offer: Offer) -> tuple[bool, int, float, int, float, str]:
    usd, hours = usd_of(offer), hours_of(offer)
    cost = math.inf if usd is None else usd.value
    time = math.inf if hours is None else hours.value
    return offer.reason is not None, grade(offer), cost, offer.count, time, offer.name


def named(offer: Offer) -> str:
    """Format an offer's devices, with a note if its numbers are projected."""
    return offer.devices if offer.measured else f"{offer.devices} (projected)"


def time_unit(hours: float) -> tuple[float, str]:
    """Return the factor and unit for printing this number of hours."""
    return next((scale, unit) for most, scale, unit in _UNITS if hours < most)


_UNITS = ((0.03, 3600.0, "s"), (1.0, 60.0, "min"), (math.inf, 1.0, "h"))
