"""The loss of quality that a faster setting costs. It stands in the sentence of the gain, so no headline flatters."""

from __future__ import annotations

import math

from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.advice.words import against_baseline, more_blocks, setting
from accelsweep.analyse.findings.quality import FASTER_BUT_WORSE
from accelsweep.core.digits import interval_digits, significant
from accelsweep.core.findings import CellFinding, Recommendation

BEYOND_REPEATS = (
    "More repeats would hardly settle it: train longer before validation, or accept a wider analysis.quality_margin."
)


def traded(situation: Situation, fastest: CellFinding) -> Recommendation:
    """Return the advice where every faster setting loses quality, or may: no choice, and what the fastest trades."""
    sentence = f"Nothing is recommended without a price. {price_of(situation, fastest)}"
    added = _repeats_to_settle(situation, fastest)
    if added > situation.room:
        sentence += f" {BEYOND_REPEATS}"
    more = added if added <= situation.room else 0
    settle = more_blocks(situation.manifest, more)
    return Recommendation(choice=None, sentence=sentence, alternatives=(), settle=settle, settle_blocks=more)


def price_of(situation: Situation, cell: CellFinding) -> str:
    """Return gain and loss of a faster cell in one sentence: `2.9x ..., and accuracy falls from 0.97 to 0.92`."""
    assert cell.speedup is not None
    gain = f"Training {setting(cell)}: {against_baseline(cell.speedup.ratio)}"
    name = (situation.quality.metric or "quality").removeprefix("val_")
    base = situation.baseline
    if cell.quality is None or base is None or base.quality is None:
        return f"{gain}, and its {name} could not be compared."
    before, after = significant(base.quality.value), significant(cell.quality.value)
    if cell.quality_verdict == FASTER_BUT_WORSE:
        moves = "rises" if situation.quality.better == "min" else "falls"
        return f"{gain}, and {name} {moves} from {before} to {after} ({_difference(cell)})."
    return f"{gain}; {name} not settled ({after}, was {before}; {_difference(cell)})."


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
