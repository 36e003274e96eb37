"""The advice on hardware for one's own training, from a sweep's findings: offers, ranked, with what they rest on."""

from __future__ import annotations

from collections.abc import Iterator

from accelsweep.analyse.advice.hardware.bounds import Terms, named, standing
from accelsweep.analyse.advice.hardware.offers import Training, bills_of, offers_of
from accelsweep.analyse.advice.hardware.tiers import advised
from accelsweep.config.prices import Prices
from accelsweep.core.derived.advised import Advised, Offer, Tier
from accelsweep.project.monthly import rent_or_buy
from accelsweep.records.findings import Findings
from accelsweep.significant_digits import count_of


def advise(findings: Findings, prices: Prices, training: Training, terms: Terms) -> Advised:
    """Return the advice on hardware for `training` within `terms`. Raises ValueError if nothing can be projected."""
    offers = offers_of(findings, prices, training)
    found = advised(offers, terms)
    return found.model_copy(
        update={
            "next_steps": tuple(_next(findings, found)),
            "monthly": tuple(_monthly(findings, prices)),
            "assumptions": tuple(_assumed(findings, training, offers)),
        }
    )


def epoch_samples(findings: Findings) -> float | None:
    """Return the size of the data set that the projected setting was measured with, or None if it is not known."""
    found = findings.elsewhere
    cell = next((one for one in findings.cells if found is not None and one.cell == found.cell), None)
    summary = None if cell is None else cell.metrics.get("epoch_samples")
    return summary.median if summary is not None and summary.minimum == summary.maximum else None


def _next(findings: Findings, found: Advised) -> Iterator[str]:
    """Yield what to measure, or to say, to be sure of the answer."""
    choice = None if found.choice is None else found.offers[found.choice]
    if findings.elsewhere is not None and findings.elsewhere.disturbed:
        yield f"Others used this machine: `accelsweep retry {findings.sweep} --outcome disturbed`, then the same sweep."
    for one in found.offers:
        if one.measured and one.hours_measured is not None and one.hours_measured.low is None:
            yield f"The rate on {one.words} has no interval: repeat it with --add-repeats."
        if one.tier is Tier.none and one.measured and one.usd_per_hour is None:
            yield "This machine has no price: give prices.devices.cpu (USD/h), or prices.purchase.cpu."
    wanted = choice or next((one for one in found.offers if standing(one) < 2), None)
    if wanted is None:
        return
    if wanted.measured:
        yield f"{wanted.words} was measured. Nothing more is needed, unless a price or a bound changes."
        return
    price = "" if wanted.usd_per_hour is None else f" (about {wanted.usd_per_hour / wanted.count:.2g} USD)"
    yield (
        f"{named(wanted)}: rent one for an hour{price} and run this sweep there with accelerator=cuda. Then "
        "`accelsweep export` it, `import` it here, and advise from that sweep: projections start from its rate."
    )


def _monthly(findings: Findings, prices: Prices) -> Iterator[str]:
    """Yield the break-evens with this machine, and of renting against buying, each device once."""
    devices = findings.elsewhere.devices if findings.elsewhere is not None else ()
    told = dict.fromkeys(line for one in devices if one.form == _first_form(findings) for line in one.monthly)
    yield from told
    for name, key in dict.fromkeys((one.name, one.device) for one in devices):
        bills = bills_of(key, prices)
        if len(bills) == 2:
            yield rent_or_buy(*bills, name)


def _first_form(findings: Findings) -> str:
    devices = findings.elsewhere.devices if findings.elsewhere is not None else ()
    return devices[0].form if devices else ""


def _assumed(findings: Findings, training: Training, offers: tuple[Offer, ...]) -> Iterator[str]:
    each = training.samples / training.epochs
    passes = f"{training.epochs:g} epoch{'' if training.epochs == 1 else 's'}"
    yield f"The training is {passes} of {each:,.0f} samples, {training.samples:,.0f} in all."
    yield "Hours are of steady steps. Validation, checkpoints and the wait for a machine come on top."
    if findings.elsewhere is not None:
        batch = count_of(findings.elsewhere.batch, "sample")
        yield f"Every projected device has a batch of {batch}. Another batch in all can change what is learned."
    if any(one.usd_projected is not None for one in offers):
        yield "Rent counts by the second, and several devices cost as many times one. Offers of providers differ."
    if any(one.outlay_usd is not None for one in offers):
        yield "What is bought counts per hour of its stated lifetime and use. The budget must pay all of it at once."
