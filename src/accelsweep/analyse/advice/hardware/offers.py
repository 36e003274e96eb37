"""The ways to do a whole training: settings measured here, and devices that the best of them is projected onto.

Hours are samples over a rate. Several devices are projected from this sweep's own scaling over GPUs, or else from
published efficiencies. Nothing is projected onto several machines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from accelsweep.config.prices import Bill, Prices
from accelsweep.config.setting import axes_in_words
from accelsweep.core.derived.advised import Offer, Tier
from accelsweep.core.findings.projections import Elsewhere, Projected
from accelsweep.devices.datasheets import Datasheet, datasheet, datasheet_of
from accelsweep.project.scaling import COUNTS, Efficiency, beyond_the_published, published_efficiency, times
from accelsweep.records.estimates import Estimate, Range
from accelsweep.records.findings import CellFinding, Findings
from accelsweep.significant_digits import SECONDS_PER_HOUR

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
    found = findings.elsewhere
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
    chosen = None if findings.elsewhere is None else findings.elsewhere.cell
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
