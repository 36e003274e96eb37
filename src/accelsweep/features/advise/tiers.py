"""Advice on hardware for a training run: the least that meets the bounds, the cheapest, and what would change either.

A pure function of offers and bounds. Projections are always marked as such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from accelsweep.features.advise.offers import (
    Advice,
    Ends,
    Fit,
    Offer,
    Terms,
    Tier,
    grade,
    hours_of,
    named,
    ranked,
    sure_and_priced,
    time_unit,
    usd_of,
)
from accelsweep.features.projection.model import MemoryFit, shortened
from accelsweep.significant_digits import interval_digits, significant

MAX_RIVALS = 3
"""Maximum number of alternatives to list whose interval or price would change the choice."""


def changes(offers: Sequence[Offer], terms: Terms) -> tuple[str, ...]:
    """Return what would change the choice among these ranked offers, one sentence each."""
    choice = sure_and_priced(offers)
    found = [*_of_bound(offers, terms, choice, "hours"), *_of_bound(offers, terms, choice, "usd")]
    if choice is not None:
        found += [*_of_memory(offers, choice), *_of_ends(offers, choice), *_of_prices(offers, choice)]
    return tuple(found)


def _of_bound(offers: Sequence[Offer], terms: Terms, choice: Offer | None, which: str) -> Iterator[str]:
    """Yield what a tighter or looser deadline or budget would change."""
    bound = terms.hours if which == "hours" else terms.usd
    if bound is None:
        return
    spans = {one.devices: _span(one, which) for one in offers}
    tops = sorted({top for span in spans.values() if span is not None and (top := span.high or span.value) > 0})
    word = "deadline" if which == "hours" else "budget"
    own = None if choice is None else _span(choice, which)
    if choice is not None and own is not None and own.high is not None:
        then = _choice(offers, terms, which, own.high * 0.999)
        yield f"With a {word} under {_amount(own.high, which)}: {_name(then)}."
    for top in (top for top in tops if top > bound):
        then = _choice(offers, terms, which, top)
        if _name(then) != _name(choice):
            yield f"With a {word} of {_amount(top, which)} or more: {_name(then)}."
            return


def _span(offer: Offer, which: str) -> Ends | None:
    return hours_of(offer) if which == "hours" else usd_of(offer)


def _choice(offers: Sequence[Offer], terms: Terms, which: str, bound: float) -> Offer | None:
    changed = replace(terms, hours=bound) if which == "hours" else replace(terms, usd=bound)
    return sure_and_priced(ranked(offers, changed))


def _of_memory(offers: Sequence[Offer], choice: Offer) -> Iterator[str]:
    """Yield which devices would be cheaper if the batch were known to fit in their memory."""
    cost = _cost(choice, lambda span: span.value)
    unsure = [one for one in offers if one.room is MemoryFit.unsure and grade(one) == 1]
    cheaper = [one for one in unsure if Fit.perhaps not in (one.in_time, one.in_budget)]
    names = dict.fromkeys(one.devices for one in cheaper if _cost(one, lambda span: span.value) < cost)
    if names:
        yield f"If the batch turned out to fit on {_either(names)}, it would be cheaper than {choice.devices}."


def _either(names: Iterable[str]) -> str:
    return " or ".join([*names][:MAX_RIVALS])


def _of_ends(offers: Sequence[Offer], choice: Offer) -> Iterator[str]:
    """Yield which ends of intervals would make another device kind the cheapest; within a kind, errors are shared."""
    own, rivals = usd_of(choice), _rivals(offers, choice)
    if own is None or own.high is None:
        return
    dearer = next((one for one in rivals if _cost(one, lambda span: span.value) < own.high), None)
    if dearer is not None:
        yield f"If {choice.devices} came out at the slow end of its interval, {dearer.devices} would be cheaper."
    fast = _either(one.devices for one in rivals if _cost(one, lambda span: span.low) < own.value)
    if fast:
        yield f"If {fast} came out at the fast end of its interval, it would be cheaper than {choice.devices}."


def _of_prices(offers: Sequence[Offer], choice: Offer) -> Iterator[str]:
    """Yield the price at which the next cheapest device kind would be chosen."""
    own = usd_of(choice)
    for rival in _rivals(offers, choice)[:1]:
        usd = usd_of(rival)
        if own is not None and usd is not None and rival.usd_per_hour and own.value < usd.value:
            each = rival.usd_per_hour / rival.count * own.value / usd.value
            yield f"Below about {shortened(each)} USD/h per device, {rival.devices} would be cheaper."


def _rivals(offers: Sequence[Offer], choice: Offer) -> list[Offer]:
    """Return the next cheapest device kinds that may meet the bounds and fit in memory, each once."""
    able = [one for one in offers if grade(one) < 2 and one.room is not MemoryFit.unsure and usd_of(one) is not None]
    kinds: dict[str, Offer] = {}
    for one in sorted(able, key=lambda one: _cost(one, lambda span: span.value)):
        kinds.setdefault(one.name, one)
    kinds.pop(choice.name, None)
    return list(kinds.values())[:MAX_RIVALS]


def _cost(offer: Offer, end: Callable[[Ends], float | None]) -> float:
    span = usd_of(offer)
    value = None if span is None else end(span)
    return float("inf") if value is None else value


def _name(offer: Offer | None) -> str:
    return "no offer with a price is certain to meet it" if offer is None else named(offer)


def _amount(value: float, which: str) -> str:
    """Return a deadline or a budget in words: `16 h`, `39 s`, `74 USD`."""
    scale, unit = time_unit(value) if which == "hours" else (1.0, "USD")
    return f"{shortened(value * scale)} {unit}"


def advise_on(offers: Sequence[Offer], terms: Terms) -> Advice:
    """Return the advice on these offers, ranked, within the bounds."""
    found = ranked(offers, terms)
    choice, least = sure_and_priced(found), least_tier(found)
    return Advice(
        headline=_headline(found, choice, least, terms),
        tier=None if least is None else least.tier,
        choice=None if choice is None else found.index(choice),
        offers=found,
        changes=changes(found, terms),
    )


def least_tier(offers: Sequence[Offer]) -> Offer | None:
    """Return the best-ranked offer in the lowest tier that certainly meets both bounds, or None.

    This machine is already available, so if no price is known for it, its cost does not count towards the budget.
    """
    for tier in Tier:
        for one in offers:
            here = one.tier is Tier.none and one.in_time is Fit.surely and one.in_budget is Fit.unknown
            if one.tier is tier and (grade(one) == 0 or here):
                return one
    return None


def _headline(offers: Sequence[Offer], choice: Offer | None, least: Offer | None, terms: Terms) -> str:
    if least is None:
        return f"{_perhaps(offers)} {_at_least(offers, terms)}".strip()
    first = f"{_TIERS[least.tier]}: {named(least)} {in_words(least)}."
    if choice is None:
        return f"{first} The cheapest cannot be determined, because no offer within the bounds has a price."
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
    maybe = next((one for one in offers if grade(one) == 1), None)
    if maybe is None:
        return "Nothing that was measured or projected meets the bounds."
    return f"Nothing is certain to meet the bounds. Possibly {named(maybe)}, which {in_words(maybe)}."


def _at_least(offers: Sequence[Offer], terms: Terms) -> str:
    """Describe how many of the fastest devices the deadline would require, assuming perfect scaling."""
    single = [one for one in offers if one.tier is Tier.one and hours_of(one) is not None]
    fastest = min(single, key=lambda one: (hours_of(one) or (math.inf,))[0], default=None)
    hours = None if fastest is None else hours_of(fastest)
    if fastest is None or hours is None or terms.hours is None or hours.value <= terms.hours:
        return ""
    count = math.ceil(hours.value / terms.hours)
    kind = "" if fastest.measured else " at its projected rate"
    return f"Meeting the deadline takes at least {count} x {fastest.name}{kind}, assuming perfect scaling."


def in_words(offer: Offer) -> str:
    """Format time and cost: `takes 3.1 h [3.0, 3.2]`, or `would take about 9.1 h, 6.2 to 13, for about 7 USD`."""
    cost = ", and has no price" if usd_of(offer) is None else f", for {span_words(offer, 'usd')}"
    return f"{'takes' if offer.measured else 'would take'} {span_words(offer, 'hours')}{cost}"


def span_words(offer: Offer, which: str) -> str:
    """Format the time or the cost with its interval: in brackets if measured, with `about` if projected."""
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
