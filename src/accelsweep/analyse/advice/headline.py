"""The answer in at most twelve words, what belongs beside it, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable

from accelsweep.analyse.advice.wording import FASTER, Wording
from accelsweep.base.digits import UNKNOWN, ratio_digits, says_nothing
from accelsweep.core.cells.cell import in_words, words_of
from accelsweep.core.findings.choices import Certainty, Choice, Recommendation
from accelsweep.core.findings.measured import CellFinding
from accelsweep.core.findings.numbers import Estimate
from accelsweep.core.recorded.doubt_words import in_words as doubt_in_words

MOST_WORDS = 12


def advice(
    headline: str,
    certainty: Certainty,
    *detail: str,
    chosen: CellFinding | None = None,
    alternatives: tuple[Choice, ...] = (),
    settle: str | None = None,
    settle_blocks: int = 0,
) -> Recommendation:
    """Return the advice: its sentence is the headline, the sentences of `detail`, and the doubts of what is chosen."""
    beside = " ".join(part for part in detail if part)
    sentence = " ".join(part for part in (f"{headline}.", beside, _doubts(chosen)) if part)
    choice = None
    if chosen is not None:
        choice = Choice(cell=chosen.cell, title="Recommended", sentence=sentence, hardware=chosen.hardware)
    return Recommendation(
        choice=choice,
        sentence=sentence,
        alternatives=alternatives,
        settle=settle,
        settle_blocks=settle_blocks,
        headline=headline,
        detail=beside,
        certainty=certainty,
    )


def _doubts(chosen: CellFinding | None) -> str:
    words = [f"{doubt_in_words(doubt)} ({doubt.code})" for doubt in chosen.doubts] if chosen is not None else []
    return f"Doubts: {'; '.join(words)}." if words else ""


def faster(cell: CellFinding, baseline: CellFinding | None, wording: Wording = FASTER) -> str:
    """Return `32-bit, 1 process, batch 128 is 1.8x faster`; no number where the interval says nothing."""
    assert cell.ratio is not None
    claim = wording.gain.format(_middle(cell.ratio)) if _told(cell.ratio) else wording.unknown_gain
    return f"{short_name(cell, baseline, MOST_WORDS - len(claim.split()))} {claim}"


def between(ratio: Estimate, baseline: CellFinding | None, wording: Wording = FASTER) -> str:
    """Return `Between 1.4x and 2.4x, against 32-bit, 1 process, batch 32.`, wide intervals too."""
    against = f"against {name_of(baseline)}" if baseline is not None else "against the baseline"
    if ratio.low is None or ratio.high is None:
        return f"Without an interval, {against}."
    if says_nothing(ratio.low, ratio.high):
        return f"How much {wording.more} is {UNKNOWN}, {against}."
    _, low, high = ratio_digits(ratio.value, ratio.low, ratio.high)
    return f"Between {low}x and {high}x, {against}."


def whole(text: str) -> str:
    """Return a text with one full stop at its end."""
    return text.rstrip(".") + "."


def name_of(cell: CellFinding) -> str:
    """Return a setting's name as prose."""
    return in_words(cell.axes)


def short_name(cell: CellFinding, other: CellFinding | None, most: int) -> str:
    """Return a setting's name in at most `most` words: whole, or what differs from `other`, or the first parts."""
    parts = words_of(cell.axes)
    if _count(parts) > most and other is not None:
        parts = tuple(part for part in parts if part not in words_of(other.axes)) or parts
    kept = list(parts)
    while len(kept) > 1 and _count(kept) > (most if len(kept) == len(parts) else most - 3):
        kept.pop()
    beyond = len(parts) - len(kept)
    return (", ".join(kept) + (f" and {beyond} more" if beyond else "")) or "the only setting"


def _count(parts: Iterable[str]) -> int:
    return sum(len(part.split()) for part in parts)


def _told(ratio: Estimate) -> bool:
    return ratio.low is None or ratio.high is None or not says_nothing(ratio.low, ratio.high)


def _middle(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.3g}x"
    return f"{ratio_digits(ratio.value, ratio.low, ratio.high)[0]}x"
