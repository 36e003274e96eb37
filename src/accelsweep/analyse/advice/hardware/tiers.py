"""Advice on hardware for a whole training: how much of it is needed, which is the cheapest, and what would change that.

A pure function of offers and bounds. Two answers are given, because they differ: the least hardware that keeps to the
bounds, and the cheapest result. A projection is called one wherever it is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from accelsweep.analyse.advice.hardware.bounds import (
    Terms,
    hours_of,
    named,
    ranked,
    standing,
    sure_and_priced,
    time_unit,
    usd_of,
)
from accelsweep.analyse.advice.hardware.sensitivity import changes
from accelsweep.core.derived.advised import Advised, Fit, Offer, Tier
from accelsweep.records.estimates import shortened
from accelsweep.significant_digits import interval_digits, significant


def advised(offers: Sequence[Offer], terms: Terms) -> Advised:
    """Return the advice on these offers, ranked, within the bounds."""
    found = ranked(offers, terms)
    choice, least = sure_and_priced(found), least_tier(found)
    return Advised(
        headline=_headline(found, choice, least, terms),
        tier=None if least is None else least.tier,
        choice=None if choice is None else found.index(choice),
        offers=found,
        changes=changes(found, terms),
    )


def least_tier(offers: Sequence[Offer]) -> Offer | None:
    """Return the best ranked offer of the least tier that surely keeps to both bounds, or None.

    This machine is there already. Where it has no price, its cost is held against no budget.
    """
    for tier in Tier:
        for one in offers:
            here = one.tier is Tier.none and one.in_time is Fit.surely and one.in_budget is Fit.unknown
            if one.tier is tier and (standing(one) == 0 or here):
                return one
    return None


def _headline(offers: Sequence[Offer], choice: Offer | None, least: Offer | None, terms: Terms) -> str:
    if least is None:
        return f"{_perhaps(offers)} {_at_least(offers, terms)}".strip()
    first = f"{_TIERS[least.tier]}: {named(least)} {in_words(least)}."
    if choice is None:
        return f"{first} Which is cheapest cannot be told, because no offer within the bounds has a price."
    if choice == least:
        return f"{first} It is also the cheapest of all within the bounds."
    priced = "" if usd_of(least) is not None else " that has a price"
    return f"{first} The cheapest within the bounds{priced}: {named(choice)} {in_words(choice)}."


_TIERS = {
    Tier.none: "No GPU is needed",
    Tier.one: "One GPU is enough",
    Tier.several: "Several GPUs are needed",
    Tier.cluster: "A cluster is needed",
}


def _perhaps(offers: Sequence[Offer]) -> str:
    maybe = next((one for one in offers if standing(one) == 1), None)
    if maybe is None:
        return "Nothing that was measured or projected keeps to the bounds."
    return f"Nothing is sure to keep to the bounds. Perhaps {named(maybe)}, which {in_words(maybe)}."


def _at_least(offers: Sequence[Offer], terms: Terms) -> str:
    """Return how many of the fastest device are needed at the very least: as if none waited for another."""
    single = [one for one in offers if one.tier is Tier.one and hours_of(one) is not None]
    fastest = min(single, key=lambda one: (hours_of(one) or (math.inf,))[0], default=None)
    hours = None if fastest is None else hours_of(fastest)
    if fastest is None or hours is None or terms.hours is None or hours.value <= terms.hours:
        return ""
    count = math.ceil(hours.value / terms.hours)
    kind = "" if fastest.measured else ", by its projected rate"
    return f"In time takes at least {count} x {fastest.name}{kind}, if none waited for another."


def in_words(offer: Offer) -> str:
    """Return what an offer takes: `takes 3.1 h [3.0, 3.2]`, or `would take about 9.1 h, 6.2 to 13, for about 7 USD`."""
    cost = ", and has no price" if usd_of(offer) is None else f", for {span_words(offer, 'usd')}"
    return f"{'takes' if offer.measured else 'would take'} {span_words(offer, 'hours')}{cost}"


def span_words(offer: Offer, which: str) -> str:
    """Return the time or the USD with the interval: brackets for what was measured, `about` for what is projected."""
    projected = offer.hours_projected if which == "hours" else offer.usd_projected
    measured = offer.hours_measured if which == "hours" else offer.usd_measured
    one = projected or measured
    if one is None:
        return "-"
    scale, unit = time_unit(one.value) if which == "hours" else (1.0, "USD")
    if projected is not None:
        middle, low, high = (shortened(end * scale) for end in (projected.value, projected.low, projected.high))
        return f"about {middle} {unit} ({low} to {high})"
    if one.low is None or one.high is None:
        return f"{significant(one.value * scale)} {unit} (no interval)"
    middle, left, right = interval_digits(one.value * scale, one.low * scale, one.high * scale)
    return f"{middle} {unit} [{left}, {right}]"
