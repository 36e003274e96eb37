"""Changes that would turn an advice on hardware: another deadline, budget or price, or an end of an interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from accelsweep.analyse.advice.hardware.bounds import (
    Ends,
    Terms,
    hours_of,
    named,
    ranked,
    standing,
    sure_and_priced,
    time_unit,
    usd_of,
)
from accelsweep.core.derived.advised import Fit, Offer
from accelsweep.core.findings.projections import Room
from accelsweep.records.estimates import shortened

JUST_BELOW = 0.999
NEAREST = 3
"""So many rivals are named whose interval, or whose price, would change the choice."""


def changes(offers: Sequence[Offer], terms: Terms) -> tuple[str, ...]:
    """Return what would change the choice among these ranked offers, a sentence each."""
    choice = sure_and_priced(offers)
    found = [*_of_bound(offers, terms, choice, "hours"), *_of_bound(offers, terms, choice, "usd")]
    if choice is not None:
        found += [*_of_memory(offers, choice), *_of_ends(offers, choice), *_of_prices(offers, choice)]
    return tuple(found)


def _of_bound(offers: Sequence[Offer], terms: Terms, choice: Offer | None, which: str) -> Iterator[str]:
    """Yield what a tighter and a wider deadline, or budget, would change."""
    bound = terms.hours if which == "hours" else terms.usd
    if bound is None:
        return
    spans = {one.words: _span(one, which) for one in offers}
    tops = sorted({top for span in spans.values() if span is not None and (top := span.high or span.value) > 0})
    word = "deadline" if which == "hours" else "budget"
    own = None if choice is None else _span(choice, which)
    if choice is not None and own is not None and own.high is not None:
        then = _choice(offers, terms, which, own.high * JUST_BELOW)
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
    """Yield what would be cheaper if only it were known to fit."""
    cost = _cost(choice, lambda span: span.value)
    unsure = [one for one in offers if one.room is Room.unsure and standing(one) == 1]
    cheaper = [one for one in unsure if Fit.perhaps not in (one.in_time, one.in_budget)]
    names = dict.fromkeys(one.words for one in cheaper if _cost(one, lambda span: span.value) < cost)
    if names:
        yield f"If the batch turned out to fit on {_either(names)}, it would be cheaper than {choice.words}."


def _either(names: Iterable[str]) -> str:
    return " or ".join(list(names)[:NEAREST])


def _of_ends(offers: Sequence[Offer], choice: Offer) -> Iterator[str]:
    """Yield which end of which interval would make another kind of device the cheapest: one kind errs as a whole."""
    own, rivals = usd_of(choice), _rivals(offers, choice)
    if own is None or own.high is None:
        return
    dearer = next((one for one in rivals if _cost(one, lambda span: span.value) < own.high), None)
    if dearer is not None:
        yield f"If {choice.words} came out at the slow end of its interval, {dearer.words} would be cheaper."
    fast = _either(one.words for one in rivals if _cost(one, lambda span: span.low) < own.value)
    if fast:
        yield f"If {fast} came out at the fast end of its interval, it would be cheaper than {choice.words}."


def _of_prices(offers: Sequence[Offer], choice: Offer) -> Iterator[str]:
    """Yield the price at which the next cheapest kind of device would be the choice."""
    own = usd_of(choice)
    for rival in _rivals(offers, choice)[:1]:
        usd = usd_of(rival)
        if own is not None and usd is not None and rival.usd_per_hour and own.value < usd.value:
            each = rival.usd_per_hour / rival.count * own.value / usd.value
            yield f"Under about {shortened(each)} USD/h a device, {rival.words} would be cheaper."


def _rivals(offers: Sequence[Offer], choice: Offer) -> list[Offer]:
    """Return the next cheapest other kinds of device that may keep to the bounds and fit, each once."""
    able = [one for one in offers if standing(one) < 2 and one.room is not Room.unsure and usd_of(one) is not None]
    kinds: dict[str, Offer] = {}
    for one in sorted(able, key=lambda one: _cost(one, lambda span: span.value)):
        kinds.setdefault(one.name, one)
    kinds.pop(choice.name, None)
    return list(kinds.values())[:NEAREST]


def _cost(offer: Offer, end: Callable[[Ends], float | None]) -> float:
    span = usd_of(offer)
    value = None if span is None else end(span)
    return float("inf") if value is None else value


def _name(offer: Offer | None) -> str:
    if offer is None:
        return "nothing that has a price is sure to keep to it"
    return named(offer)


def _amount(value: float, which: str) -> str:
    """Return a deadline or a budget in words: `16 h`, `39 s`, `74 USD`."""
    scale, unit = time_unit(value) if which == "hours" else (1.0, "USD")
    return f"{shortened(value * scale)} {unit}"
