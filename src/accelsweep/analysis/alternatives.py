"""The cheapest, the greenest and the smallest setting beside the recommended one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from accelsweep.analysis.costs import cost_of, memory_of_all, money_of, one_energy_scope, value_of
from accelsweep.analysis.headline import (
    MOST_WORDS,
    Situation,
    advice,
    against_baseline,
    command,
    memory,
    more_blocks,
    name_of,
    short_name,
    whole,
)
from accelsweep.analysis.quality import FASTER_BUT_WORSE
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.findings import CellFinding, Certainty, Choice, Recommendation
from accelsweep.significant_digits import count_of, interval_digits, significant


def alternatives_to(situation: Situation, best: CellFinding) -> tuple[Choice, ...]:
    """Return the cheapest, the greenest and the smallest cell of the Pareto front, unless it is the choice itself.

    None is called the greenest or the smallest where readings of different kinds would have to be compared.
    """
    sound = [cell for cell in situation.cells if cell.quality_verdict != FASTER_BUT_WORSE]
    on_front = [cell for cell in sound if cell.cell in situation.front]
    memories = memory_of_all(on_front)
    energies_compare = one_energy_scope(on_front)
    wishes: list[tuple[str, Callable[[CellFinding], float | None]]] = [
        ("Cheapest", lambda cell: cost_of(cell, money_of(situation.cells))),
        ("Greenest", lambda cell: cost_of(cell, "joules_per_sample") if energies_compare else None),
        ("Smallest memory", lambda cell: value_of(cell, memories) if memories else None),
    ]
    found = []
    for title, wish in wishes:
        rated = [(value, cell.cell, cell) for cell in on_front if (value := wish(cell)) is not None]
        if rated and (chosen := min(rated, key=lambda item: item[:2])[2]) is not best:
            found.append(_alternative(situation, title, chosen))
    return tuple(found)


def _alternative(situation: Situation, title: str, cell: CellFinding) -> Choice:
    compared = _comparison(situation, cell) if cell.ratio else "the baseline"
    sentence = f"{title}: {name_of(cell)}: {compared}."
    return Choice(cell=cell.cell, title=title, sentence=sentence, hardware=cell.hardware)


def _comparison(situation: Situation, cell: CellFinding) -> str:
    assert cell.ratio is not None
    parts = [against_baseline(cell.ratio, situation.baseline_name, situation.wording)]
    base = situation.baseline
    money = money_of(situation.cells)
    own, other = cost_of(cell, money), base and cost_of(base, money)
    if own is not None and other:
        parts[0] += f" at {own / other:.2g}x its cost"
    parts += [text for text in (memory(cell),) if text]
    parts.append(cell.quality_verdict.replace("quality: ", "quality "))
    parts += [f"doubts: {', '.join(doubt.code for doubt in cell.doubts)}"] if cell.doubts else []
    return "; ".join(parts)


# Advice across kinds of hardware. Ratios to unlike baselines do not compare, but money for the same result does.

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


# Advice where nothing can be compared: why, and the command that goes on.


def nothing_to_compare(situation: Situation) -> Recommendation:
    """Return that only the baseline was measured, or that every comparison was refused, and why."""
    refused = situation.having(Verdict.refused)
    why, more = "only the baseline was measured", "There is nothing to compare it with."
    if refused:
        why, more = "every comparison was refused", whole(refused[0].verdict_reason)
    return advice(f"Nothing can be recommended: {why}", Certainty.not_yet, more)


def nothing_without_baseline(situation: Situation) -> Recommendation:
    """Return why the baseline has no rate, or that there is no baseline."""
    measured = [cell for cell in situation.cells if cell.measured]
    wanted = next((cell for cell in situation.cells if cell.cell == situation.manifest.baseline), None)
    if not measured:
        why, more = "no run was measured", f"{_why_nothing(situation, wanted)}."
    elif wanted is None:
        why, more = "the plan names no baseline", "Set baseline={key: value} and run again."
    else:
        why, more = "the baseline was not measured", f"It is {wanted.verdict_reason}."
    settle = command(situation.manifest) if wanted is not None else None
    return advice(f"Nothing can be recommended: {why}", Certainty.not_yet, more, settle=settle)


def _why_nothing(situation: Situation, baseline: CellFinding | None) -> str:
    if baseline is not None:
        return f"The baseline: {baseline.verdict_reason}"
    if not situation.cells:
        return "The plan has no setting"
    return f"No setting can run here; the first is {situation.cells[0].verdict_reason}"


# The loss of quality that a faster setting costs. It stands in the sentence of the gain, so no headline flatters.

LONGER_TRAINING = (
    "More repeats would hardly settle it: train longer before validation, or accept a wider analysis.quality_margin."
)


def traded(situation: Situation, faster: Sequence[CellFinding]) -> Recommendation:
    """Return the advice where every faster setting loses quality, or may: no choice, and what a fast one trades.

    `faster` holds one setting at least, the fastest first.
    """
    named = _least_loss(situation, faster)
    added = _repeats_to_settle(situation, named)
    more = added if added <= situation.room else 0
    return advice(
        f"No setting is recommended: none faster is shown to keep its {quality_name(situation)}",
        Certainty.not_yet,
        price_of(situation, named),
        LONGER_TRAINING if added > situation.room else "",
        settle=more_blocks(situation.manifest, more),
        settle_blocks=more,
    )


def _least_loss(situation: Situation, faster: Sequence[CellFinding]) -> CellFinding:
    """Return the fastest setting, or one as fast for all that is known whose loss is not shown."""
    level = {cell.cell for cell in situation.rivals(faster[0])} | {faster[0].cell}
    kept = [cell for cell in faster if cell.cell in level and not _is_worse(situation, cell)]
    return kept[0] if kept else faster[0]


def price_of(situation: Situation, cell: CellFinding) -> str:
    """Return gain and loss of a faster cell in one sentence: `2.9x ..., and accuracy falls from 0.97 to 0.92`."""
    assert cell.ratio is not None
    base, name = situation.baseline, quality_name(situation)
    gain = f"Faster is {name_of(cell)}: {against_baseline(cell.ratio, situation.baseline_name)}"
    if cell.quality is None or base is None or base.quality is None:
        return f"{gain}, and its {name} could not be compared."
    before, after = significant(base.quality.value), significant(cell.quality.value)
    moves = f"{name} {'rises' if situation.quality.better == 'min' else 'falls'} from {before} to {after}"
    if cell.quality_verdict == FASTER_BUT_WORSE:
        return f"{gain}, and {moves} ({_difference(cell)})."
    if _is_worse(situation, cell):
        margin = significant(situation.quality.margin)
        return f"{gain}; {moves}, perhaps by more than the margin of {margin} ({_difference(cell)})."
    return f"{gain}; {name} not settled ({after}, was {before}; {_difference(cell)})."


def quality_name(situation: Situation) -> str:
    """Return the metric of quality as a word: `accuracy`."""
    return (situation.quality.metric or "quality").removeprefix("val_")


def kept_quality(situation: Situation, cell: CellFinding) -> str:
    """Return what became of a sound cell's quality, such as `Accuracy the same (0.988, was 0.990).`."""
    name, base = quality_name(situation), situation.baseline
    name = name[0].upper() + name[1:]
    if cell.quality is None:
        return f"{name} was not measured."
    verdict, bracket, why = cell.quality_verdict.removeprefix("quality: ").partition(" (")
    words = "the same" if verdict == "same" else verdict
    if bracket:
        return f"{name} {words} ({why}."
    was = f", was {significant(base.quality.value)}" if base is not None and base.quality is not None else ""
    return f"{name} {words} ({significant(cell.quality.value)}{was})."


def _is_worse(situation: Situation, cell: CellFinding) -> bool:
    """Say whether the quality's whole interval lies on the side of a loss, however small."""
    difference = cell.quality_difference
    if difference is None or difference.low is None or difference.high is None:
        return False
    return difference.low > 0.0 if situation.quality.better == "min" else difference.high < 0.0


def _difference(cell: CellFinding) -> str:
    difference = cell.quality_difference
    if difference is None or difference.low is None or difference.high is None:
        return "difference without an interval"
    middle, low, high = interval_digits(difference.value, difference.low, difference.high)
    return f"difference {middle} [{low}, {high}]"


def _repeats_to_settle(situation: Situation, cell: CellFinding) -> int:
    """Return how many more blocks narrow the quality's interval to above the margin, if its centre is right.

    0 where the quality is settled, or where it cannot be compared.
    """
    difference, sign = cell.quality_difference, -1.0 if situation.quality.better == "min" else 1.0
    if cell.quality_verdict == FASTER_BUT_WORSE or difference is None:
        return 0
    room = sign * difference.value + situation.quality.margin
    if difference.low is None or difference.high is None or room <= 0.0:
        return 2
    half_width = (difference.high - difference.low) / 2
    return max(2, math.ceil(difference.count * (half_width / room) ** 2) - difference.count)
