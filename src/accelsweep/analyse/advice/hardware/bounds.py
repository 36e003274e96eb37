"""The offers that keep to a deadline and a budget, and the order in which they are offered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from accelsweep.core.derived.advised import Fit, Offer
from accelsweep.core.findings.projections import Room


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
