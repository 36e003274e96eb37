"""The loss of quality that a faster setting costs. It stands in the sentence of the gain, so no headline flatters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accelsweep.analyse.advice.situation import Situation
from accelsweep.analyse.advice.words import against_baseline, more_blocks, setting
from accelsweep.analyse.findings.quality import FASTER_BUT_WORSE
from accelsweep.base.digits import interval_digits, significant
from accelsweep.core.findings import CellFinding, Recommendation

BEYOND_REPEATS = (
    "More repeats would hardly settle it: train longer before validation, or accept a wider analysis.quality_margin."
)


def traded(situation: Situation, faster: Sequence[CellFinding]) -> Recommendation:
    """Return the advice where every faster setting loses quality, or may: no choice, and what the fastest trades.

    `faster` holds one setting at least, the fastest first.
    """
    fastest = faster[0]
    none = "the only faster one is not" if len(faster) == 1 else f"none of the {len(faster)} faster ones is"
    sentence = f"No setting is recommended: {none} shown to keep its {_name(situation)}. {price_of(situation, fastest)}"
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
    name = _name(situation)
    base = situation.baseline
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


def _name(situation: Situation) -> str:
    return (situation.quality.metric or "quality").removeprefix("val_")


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
