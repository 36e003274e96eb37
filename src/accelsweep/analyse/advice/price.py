"""The loss of quality that a faster setting costs. It stands in the sentence of the gain, so no headline flatters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accelsweep.analyse.advice.headline import advice, name_of
from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.advice.words import against_baseline, more_blocks
from accelsweep.analyse.findings.quality import FASTER_BUT_WORSE
from accelsweep.base.digits import interval_digits, significant
from accelsweep.core.findings.choices import Certainty, Recommendation
from accelsweep.core.findings.measured import CellFinding

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
