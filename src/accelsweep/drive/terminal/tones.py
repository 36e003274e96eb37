"""The looks of verdicts: a colour and a symbol beside the word, for terminals that have them."""

from __future__ import annotations

from enum import Enum

from accelsweep.core.claims.verdicts import ClaimVerdict
from accelsweep.core.findings.numbers import Verdict


class Tone(Enum):
    """A colour, by rich's name, and a symbol."""

    plain = ("", "")
    good = ("green", "▲")
    bad = ("red", "▼")
    level = ("cyan", "=")
    doubtful = ("yellow", "?")

    @property
    def colour(self) -> str:
        """The name that rich has for the colour; empty for plain words."""
        return self.value[0]

    @property
    def symbol(self) -> str:
        """The symbol; empty for plain words."""
        return self.value[1]


_OF_VERDICTS = {
    Verdict.faster: Tone.good,
    Verdict.slower: Tone.bad,
    Verdict.larger: Tone.good,
    Verdict.smaller: Tone.bad,
    Verdict.same: Tone.level,
    Verdict.baseline: Tone.plain,
    Verdict.not_measured: Tone.plain,
}
_OF_CLAIMS = {
    ClaimVerdict.agrees: Tone.good,
    ClaimVerdict.more: Tone.bad,
    ClaimVerdict.less: Tone.bad,
    ClaimVerdict.undecided: Tone.doubtful,
    ClaimVerdict.disturbed: Tone.doubtful,
}


def tone_of(verdict: Verdict) -> Tone:
    """Return the tone of a verdict on a rate. One that is open looks doubtful."""
    return _OF_VERDICTS.get(verdict, Tone.doubtful)


def tone_of_claim(verdict: ClaimVerdict) -> Tone:
    """Return the tone of a verdict on a claim. One that was not tested has none."""
    return _OF_CLAIMS.get(verdict, Tone.plain)
