"""The looks of verdicts: a colour and a symbol beside the word, for terminals that have them."""

from __future__ import annotations

from enum import Enum

from accelsweep.core.claims.verdicts import ClaimVerdict
from accelsweep.core.findings.numbers import Verdict


class Look(Enum):
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
    Verdict.faster: Look.good,
    Verdict.slower: Look.bad,
    Verdict.larger: Look.good,
    Verdict.smaller: Look.bad,
    Verdict.same: Look.level,
    Verdict.baseline: Look.plain,
    Verdict.not_measured: Look.plain,
}
_OF_CLAIMS = {
    ClaimVerdict.agrees: Look.good,
    ClaimVerdict.more: Look.bad,
    ClaimVerdict.less: Look.bad,
    ClaimVerdict.undecided: Look.doubtful,
    ClaimVerdict.disturbed: Look.doubtful,
}


def look_of(verdict: Verdict) -> Look:
    """Return the look of a verdict on a rate. One that is open looks doubtful."""
    return _OF_VERDICTS.get(verdict, Look.doubtful)


def look_of_claim(verdict: ClaimVerdict) -> Look:
    """Return the look of a verdict on a claim. One that was not tested has none."""
    return _OF_CLAIMS.get(verdict, Look.plain)
