"""Advice across kinds of hardware. Ratios to unlike baselines do not compare, but money for the same result does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from accelsweep.analyse.advice.headline import MOST_WORDS, advice, name_of, short_name
from accelsweep.analyse.advice.situation import Situation
from accelsweep.base.digits import count_of, significant
from accelsweep.core.findings.choices import Certainty, Choice, Recommendation
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate

COST_OF_RESULT = "usd_per_result"


class Own(NamedTuple):
    """The basis of one kind's advice, and that advice."""

    situation: Situation
    given: Recommendation


class _Offer(NamedTuple):
    hardware: str
    cell: CellFinding
    cost: Estimate


def side_by_side(each: Mapping[str, Own]) -> Recommendation:
    """Return the advice on several kinds of hardware: the one whose result costs least, and each kind's own advice.

    Weighed is what each kind's advice chose, else its baseline, by `usd_per_result`. No kind is preferred unless each
    has that cost. One is sure where its whole interval lies below all others.
    """
    offers = _offers(each)
    if offers is None:
        return _none_preferred(each)
    cheapest, *others = sorted(offers, key=lambda one: (one.cost.value, one.hardware))
    apart = all(_below(cheapest.cost, one.cost) for one in others)
    words = "the cheapest result" if apart else "perhaps the cheapest result"
    headline = f"{short_name(cheapest.cell, None, MOST_WORDS - len(words.split()) - 1)}: {words}"
    dearest = others[-1]
    together = advice(
        headline,
        Certainty.sure if apart else Certainty.not_told_apart,
        f"On {cheapest.hardware} a result costs {_usd(cheapest.cost)}.",
        f"On {dearest.hardware} ({name_of(dearest.cell)}) it costs {_usd(dearest.cost)}: "
        f"{dearest.cost.value / cheapest.cost.value:.2g}x as much.",
        "" if apart else "The intervals of the costs overlap.",
        "A speed-up holds on its own hardware.",
        chosen=cheapest.cell,
        alternatives=_of_each_kind(each),
    )
    return _with_repeats(together, each)


def _offers(each: Mapping[str, Own]) -> list[_Offer] | None:
    """Return what each kind of hardware has to offer; None unless all have an undisturbed cost per result."""
    found = []
    for hardware, own in each.items():
        choice, situation = own.given.choice, own.situation
        cell = next((one for one in situation.cells if choice and choice.chooses(one)), situation.baseline)
        if cell is None or COST_OF_RESULT not in cell.costs or own.given.certainty is Certainty.disturbed:
            return None
        found.append(_Offer(hardware, cell, cell.costs[COST_OF_RESULT]))
    return found


def _below(own: Estimate, other: Estimate) -> bool:
    return own.high is not None and other.low is not None and own.high < other.low


def _usd(cost: Estimate) -> str:
    if cost.low is None or cost.high is None:
        return f"{significant(cost.value)} USD (without an interval)"
    return f"{significant(cost.value)} USD [{significant(cost.low)}, {significant(cost.high)}]"


def _none_preferred(each: Mapping[str, Own]) -> Recommendation:
    together = advice(
        f"Each of {len(each)} kinds of hardware has its own recommendation",
        max((own.given.certainty for own in each.values()), key=list(Certainty).index),
        f"Measured side by side on {count_of(len(each), 'kind')} of hardware.",
        "A speed-up holds on its own hardware.",
        "Runs that train to a target, with prices, would tell which result is the cheapest.",
        alternatives=_of_each_kind(each),
    )
    return _with_repeats(together, each)


def _of_each_kind(each: Mapping[str, Own]) -> tuple[Choice, ...]:
    return tuple(
        Choice(
            cell=own.given.choice.cell if own.given.choice else "",
            title=f"On {hardware}",
            sentence=own.given.sentence,
            hardware=hardware,
        )
        for hardware, own in each.items()
    )


def _with_repeats(together: Recommendation, each: Mapping[str, Own]) -> Recommendation:
    """Return the advice with the repeats that settle the most open of the kinds."""
    open_ones = (own.given for own in each.values() if own.given.settle)
    longest = max(open_ones, key=lambda one: one.settle_blocks, default=None)
    if longest is None:
        return together
    settle = {name: getattr(longest, name) for name in ("settle", "settle_blocks", "settle_minutes")}
    return together.model_copy(update=settle)
