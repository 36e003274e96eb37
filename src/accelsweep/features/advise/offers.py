"""The ways to do a whole training: settings measured here, and devices that the best of them is projected onto.

Hours are samples over a rate. Several devices are projected from this sweep's own scaling over GPUs, or else from
published efficiencies. Nothing is projected onto several machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pydantic import model_validator

from accelsweep.config.prices import Bill, Prices
from accelsweep.config.setting import axes_in_words
from accelsweep.devices.datasheets import Datasheet, datasheet, datasheet_of
from accelsweep.features.projection.model import Elsewhere, Projected, Room
from accelsweep.features.projection.time_model import (
    COUNTS,
    Efficiency,
    beyond_the_published,
    published_efficiency,
    times,
)
from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Range
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.significant_digits import SECONDS_PER_HOUR

# Advice on hardware for one's own training: what is measured here and what is projected, ranked and never mixed.


class Tier(StrEnum):
    """The amount of hardware that an offer takes, from least to most."""

    none = "no GPU"
    one = "one GPU"
    several = "several GPUs"
    cluster = "a cluster"


class Fit(StrEnum):
    """Whether an offer keeps to a bound: with its whole interval, with its middle only, not, or nobody knows."""

    surely = "surely"
    perhaps = "perhaps"
    no = "no"
    unknown = "not known"


class Offer(Frozen):
    """One way to do the whole training: on `count` devices called `name`; `reason` says why it has no numbers.

    Hours and USD are for the whole training, measured or projected, never both. `key` is the device's in the table of
    boards. `paid` says how it is paid for, empty without a price; `outlay_usd` is paid at once for what is bought
    first. `source` says where the numbers come from, `notes` what weakens them.
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
    room: Room = Room.unknown
    in_time: Fit = Fit.unknown
    in_budget: Fit = Fit.unknown
    notes: tuple[str, ...] = ()
    source: str = ""

    @model_validator(mode="after")
    def _one_basis(self) -> Offer:
        if sum(one is not None for one in (self.hours_measured, self.hours_projected, self.reason)) != 1:
            raise ValueError("an offer is measured, or projected, or has the reason why it is neither")
        return self

    @property
    def measured(self) -> bool:
        """Whether the numbers were measured here."""
        return self.hours_measured is not None

    @property
    def words(self) -> str:
        """The devices: `8 x H100 SXM`."""
        return self.name if self.tier is Tier.none or self.key is None else f"{self.count} x {self.name}"


class Advised(Frozen):
    """The answer: the least tier that keeps to the bounds, the cheapest offer that does, and how far to trust both.

    `headline` is the answer in words. `tier` is None where no offer surely keeps to the bounds, `choice` the place of
    the cheapest in `offers`, which are ranked. `changes` would turn the answer, and `next_steps` are measurements that
    would make it sure. `monthly` says from how many hours a month another way to pay is cheaper. All rests on the
    `assumptions`.
    """

    headline: str
    tier: Tier | None = None
    choice: int | None = None
    offers: tuple[Offer, ...] = ()
    changes: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    monthly: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


RATE = "samples_per_second"

NO_CLUSTER = (
    "no rates of several machines are held here with an interval; measure num_nodes=1,2 on a cluster, then ask again"
)


@dataclass(frozen=True)
class Training:
    """The training that is asked about: how many samples in all, and what counts as one pass over the data."""

    samples: float
    epochs: float


def offers_of(findings: Findings, prices: Prices, training: Training) -> tuple[Offer, ...]:
    """Return every way to do the training: one measured setting for each tier, then the projections.

    Raises ValueError where the findings have no projections, or the reason why there are none.
    """
    found = findings.section(Elsewhere)
    if found is None or found.reason is not None:
        raise ValueError("there are no projections")
    measured = tuple(_measured(findings, prices, training))
    projected = tuple(_projected(findings, found, prices, training))
    cluster = () if any(one.tier is Tier.cluster for one in measured) else (_no_cluster(),)
    return (*measured, *projected, *cluster)


def _no_cluster() -> Offer:
    return Offer(tier=Tier.cluster, name="several machines", reason=NO_CLUSTER)


def _measured(findings: Findings, prices: Prices, training: Training) -> Iterator[Offer]:
    """Yield an offer for each tier that was measured: the setting that is projected, or else the fastest one."""
    best: dict[Tier, CellFinding] = {}
    projections = findings.section(Elsewhere)
    chosen = None if projections is None else projections.cell
    rated = [cell for cell in findings.cells if rate_of(cell) is not None]
    for cell in sorted(rated, key=lambda one: (one.cell != chosen, -_middle(one))):
        best.setdefault(tier_of(cell), cell)
    for tier in Tier:
        if tier in best:
            yield _offer_of(best[tier], tier, prices, training)


def _middle(cell: CellFinding) -> float:
    rate = rate_of(cell)
    return 0.0 if rate is None else rate.value


def rate_of(cell: CellFinding) -> Estimate | None:
    """Return a setting's rate in samples per second; one that is compared by another rate has it without interval."""
    if cell.rate is not None and cell.rate.unit == "1/s":
        return cell.rate
    summary = cell.metrics.get(RATE)
    if summary is None or not summary.median:
        return None
    why = "settings are compared by another rate"
    return Estimate(
        value=summary.median, low=None, high=None, unit="1/s", confidence=0.9, count=summary.count, reason=why
    )


def tier_of(cell: CellFinding) -> Tier:
    """Return how much hardware a setting was measured on."""
    if cell.num_nodes > 1:
        return Tier.cluster
    if cell.accelerator == "cpu":
        return Tier.none
    return Tier.several if cell.world_size > 1 else Tier.one


def _offer_of(cell: CellFinding, tier: Tier, prices: Prices, training: Training) -> Offer:
    rate, names = rate_of(cell), cell.device_names
    assert rate is not None, "only settings with a rate are offered"
    count = 1 if tier is Tier.none else cell.world_size
    found = prices.of_names([*_names_of(names), str(cell.accelerator)])
    usd = None if found is None else found[1].usd_per_hour * count
    hours = _over(rate, training.samples / SECONDS_PER_HOUR, "h")
    disturbed = ("others used the machine while it was measured",) if _disturbed(cell) else ()
    sheet = datasheet_of(names[0]) if names else None
    device = names[0].removeprefix("NVIDIA ") if names else "the measured device"
    return Offer(
        tier=tier,
        name=f"this machine ({device})" if tier is Tier.none else device,
        count=count,
        key=None if sheet is None else sheet.key,
        form=axes_in_words(cell.axes),
        hours_measured=hours,
        usd_measured=None if usd is None else _over(rate, training.samples / SECONDS_PER_HOUR * usd, "USD"),
        usd_per_hour=usd,
        paid="" if found is None else f"{usd:.3g} USD/h, by the price of {found[0]}",
        notes=disturbed,
        source="measured in this sweep",
    )


def _names_of(names: Sequence[str]) -> list[str]:
    keys = [sheet.key for name in names if (sheet := datasheet_of(name)) is not None]
    return list(dict.fromkeys([*names, *keys]))


def _disturbed(cell: CellFinding) -> bool:
    return any(doubt.disturbing for doubt in cell.doubts)


def _over(rate: Estimate, amount: float, unit: str) -> Estimate:
    """Return `amount` over a rate: a higher rate is a lower value."""
    low, high = (None if end is None else amount / end for end in (rate.high, rate.low))
    return rate.model_copy(update={"value": amount / rate.value, "low": low, "high": high, "unit": unit})


def _projected(findings: Findings, found: Elsewhere, prices: Prices, training: Training) -> Iterator[Offer]:
    own, parameters = _own_scaling(findings), _parameters(findings, found)
    for key in dict.fromkeys(one.device for one in found.devices):
        forms = [one for one in found.devices if one.device == key]
        one, sheet = next((form for form in forms if form.rate is not None), forms[0]), datasheet(key)
        if one.rate is None:
            yield Offer(tier=Tier.one, name=one.name, key=key, form=one.form, reason=one.reason)
            continue
        yield _priced(one, 1, one.rate, one.source, prices, training)
        for count in COUNTS:
            yield _several(one, count, own.get(count), sheet, found.batch, parameters, prices, training)


def _several(
    one: Projected,
    count: int,
    own: Efficiency | None,
    sheet: Datasheet,
    batch: int,
    parameters: float | None,
    prices: Prices,
    training: Training,
) -> Offer:
    """Return the projection onto `count` devices: from the efficiency `own` that was measured, or a published one."""
    share, why = own, None
    if share is None:
        share, why = published_efficiency(sheet, count), beyond_the_published(one, batch, parameters)
    if share is None or why is not None:
        reason = why or f"too few rates of {count} such devices were published"
        return Offer(tier=Tier.several, name=one.name, count=count, key=one.device, form=one.form, reason=reason)
    return _priced(one, count, times(one, count, share), f"{one.source}; scaling: {share.source}", prices, training)


def _priced(one: Projected, count: int, rate: Range, source: str, prices: Prices, training: Training) -> Offer:
    """Return an offer with hours, and with USD where the device has a price."""
    hours = _range(training.samples / SECONDS_PER_HOUR, rate)
    price = prices.of_names(_board_names(one.device))
    usd = None if price is None else price[1].usd_per_hour * count
    return Offer(
        tier=Tier.one if count == 1 else Tier.several,
        name=one.name,
        count=count,
        key=one.device,
        form=one.form,
        hours_projected=hours,
        usd_projected=None if usd is None else _range(training.samples / SECONDS_PER_HOUR * usd, rate),
        usd_per_hour=usd,
        paid="" if usd is None else _paid(usd, count, bills_of(one.device, prices)),
        outlay_usd=_outlay(bills_of(one.device, prices), count),
        room=one.room,
        notes=one.notes,
        source=source,
    )


def _paid(usd: float, count: int, bills: Sequence[Bill]) -> str:
    each = "" if count == 1 else " each"
    words, outlay = bills[0].words, bills[0].outlay_usd
    return f"{words}{each}" if outlay is None else f"{usd / count:.2g} USD/h{each}, {words}"


def bills_of(key: str, prices: Prices) -> tuple[Bill, ...]:
    """Return how a board of the table can be paid for, by the hour first."""
    return prices.bills(_board_names(key))


def _board_names(key: str) -> tuple[str, ...]:
    sheet = datasheet(key)
    return (*sheet.reported, sheet.name, sheet.key)


def _outlay(bills: Sequence[Bill], count: int) -> float | None:
    """Return what must be paid at once for devices that can only be bought."""
    outlay = bills[0].outlay_usd if bills else None
    return None if outlay is None else outlay * count


def _range(amount: float, rate: Range) -> Range:
    value, low, high = (float(f"{amount / end:.2g}") for end in (rate.value, rate.high, rate.low))
    return Range(value=value, low=low, high=high)


def _parameters(findings: Findings, found: Elsewhere) -> float | None:
    cell = next((one for one in findings.cells if one.cell == found.cell), None)
    summary = None if cell is None else cell.metrics.get("parameters")
    return None if summary is None else summary.median


def _own_scaling(findings: Findings) -> Mapping[int, Efficiency]:
    """Return what this sweep measured of several GPUs that keep their batch: the efficiency, by their number."""
    gpus = {one.cell: tier_of(one) is Tier.several for one in findings.cells if one.effective}
    shares: dict[int, Efficiency] = {}
    for point in findings.scaling:
        share = point.efficiency
        if share is None or point.kind != "weak" or not gpus.get(point.cell) or not share.low or not share.high:
            continue
        if math.isfinite(share.high):
            words = f"measured in this sweep with {point.devices} GPUs"
            shares[point.devices] = Efficiency(share.value, share.low, share.high, words)
    return shares


# The offers that keep to a deadline and a budget, and the order in which they are offered.


@dataclass(frozen=True)
class Terms:
    """The deadline in hours and the budget in USD; None is no bound."""

    hours: float | None = None
    usd: float | None = None


class Ends(NamedTuple):
    """A value with the ends of its interval, measured or projected; ends are None where there is no interval."""

    value: float
    low: float | None
    high: float | None


def hours_of(offer: Offer) -> Ends | None:
    """Return an offer's hours, or None if it has no numbers."""
    one = offer.hours_measured or offer.hours_projected
    return None if one is None else Ends(one.value, one.low, one.high)


def usd_of(offer: Offer) -> Ends | None:
    """Return an offer's USD for the whole training, or None without a price."""
    one = offer.usd_measured or offer.usd_projected
    return None if one is None else Ends(one.value, one.low, one.high)


def fit(span: Ends | None, bound: float | None) -> Fit:
    """Return whether a span keeps to a bound: surely with its whole interval, perhaps with its middle or one end."""
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
    """Return the offer with its fits. The price of a purchase is held against the budget as a whole."""
    in_budget = fit(usd_of(offer), terms.usd)
    if terms.usd is not None and offer.outlay_usd is not None and offer.outlay_usd > terms.usd:
        in_budget = Fit.no
    return offer.model_copy(update={"in_time": fit(hours_of(offer), terms.hours), "in_budget": in_budget})


def ranked(offers: Sequence[Offer], terms: Terms) -> tuple[Offer, ...]:
    """Return the offers by what they keep to, then by cost; of equal ones, by the number of devices."""
    return tuple(sorted((judged(one, terms) for one in offers), key=_place))


def standing(offer: Offer) -> int:
    """Return 0 for an offer that surely keeps to both bounds and fits in memory, 1 for one that may, 2 for the others.

    A setting that was measured here fitted.
    """
    if offer.reason is not None or offer.room is Room.too_large or Fit.no in (offer.in_time, offer.in_budget):
        return 2
    fits = offer.measured or offer.room is Room.fits
    return 0 if fits and offer.in_time is Fit.surely and offer.in_budget is Fit.surely else 1


def sure_and_priced(offers: Sequence[Offer]) -> Offer | None:
    """Return the cheapest offer that surely keeps to both bounds, or None. `offers` are ranked."""
    return next((one for one in offers if standing(one) == 0 and usd_of(one) is not None), None)


def _place(offer: Offer) -> tuple[bool, int, float, int, float, str]:
    usd, hours = usd_of(offer), hours_of(offer)
    cost = math.inf if usd is None else usd.value
    time = math.inf if hours is None else hours.value
    return offer.reason is not None, standing(offer), cost, offer.count, time, offer.name


def named(offer: Offer) -> str:
    """Return an offer's devices, called projected where they are."""
    return offer.words if offer.measured else f"{offer.words} (projected)"


def time_unit(hours: float) -> tuple[float, str]:
    """Return the factor and the unit in which so many hours are read."""
    return next((scale, unit) for most, scale, unit in _UNITS if hours < most)


_UNITS = ((0.03, 3600.0, "s"), (1.0, 60.0, "min"), (math.inf, 1.0, "h"))
