"""Numbers as words: the one place where a value gets its unit, so that page, Markdown and charts never disagree."""

from __future__ import annotations

import unicodedata
from typing import Any

from accelsweep.config.tasks import SIZES, TITLES
from accelsweep.records.estimates import Estimate, Summary
from accelsweep.records.findings import Findings, Recommendation
from accelsweep.records.run_record import Outcome
from accelsweep.significant_digits import UNKNOWN, format_ratio, interval_digits, is_uninformative, significant

ABSENT = "not measured"

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))

_SMALL = ((1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))

_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

_UNIT_WORDS = {"1/s": "samples/s", "bytes": "B", "joules": "J", "seconds": "s", "ratio": "x", "1": "", "usd": "USD"}

_COUNTED = ("samples/s", "queries/s", "row rounds/s")

_RATES = (*_COUNTED, "FLOP/s", "B/s")

_SCALE = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def number(value: float | None, unit: str = "", reason: str | None = None) -> str:
    """Return `value` with its unit to three significant digits: `12.3k samples/s`, `1.5 GiB`, `4.2 ms`, `0.93 acc`.

    None becomes `not measured`, with the `reason` behind it where there is one.
    """
    if value is None:
        return absent(reason)
    scale, word = _scale(value, unit)
    return _join(significant(value / scale), word)


def absent(reason: str | None) -> str:
    """Return the words that stand where a number is missing; they always hold the reason if one is known."""
    return f"{ABSENT}: {reason}" if reason else ABSENT


def estimate_text(value: Estimate | None, reason: str | None = None) -> str:
    """Return `2.1x [2.0, 2.2]`, `12.3k samples/s [12.0k, 12.7k]`, or the value and why it has no interval.

    An interval over a factor of 20 or more becomes `not known yet`; the files keep both ends.
    """
    if value is None:
        return absent(reason)
    if value.low is None or value.high is None:
        return f"{number(value.value, value.unit)} (no interval: {value.reason or 'not given'})"
    return UNKNOWN if is_uninformative(value.low, value.high) else _with_ends(value, value.low, value.high)


def counted_text(value: Estimate | None, reason: str | None = None) -> str:
    """Return the share of counted runs, `0 of the runs [0.0, 0.7]`: a count is known however far its ends are apart."""
    if value is None or value.low is None or value.high is None:
        return estimate_text(value, reason)
    return _with_ends(value, value.low, value.high)


def _with_ends(value: Estimate, low: float, high: float) -> str:
    scale, word = _scale(value.value, value.unit)
    middle, left, right = interval_digits(value.value / scale, low / scale, high / scale)
    prefix = word[0] if word[:1] in _SCALE else ""
    return f"{_join(middle, word)} [{left}{prefix}, {right}{prefix}]"


def bare_text(value: Estimate) -> str:
    """Return an estimate without its unit, for a column whose heading names that: `12,345 [12,001, 12,690]`.

    Very large numbers of operations and bytes keep their prefix: `50.8G [50.1G, 51.5G]`.
    """
    scale, word = _scale(value.value, value.unit)
    prefix = word.removesuffix(unit_word(value.unit))
    if prefix not in _SCALE:  # `k samples/s` has a word in it: such a unit needs all digits
        scale, prefix = 1.0, ""
    if value.low is None or value.high is None:
        return significant(value.value / scale) + prefix
    if is_uninformative(value.low, value.high):
        return UNKNOWN
    ends = interval_digits(value.value / scale, value.low / scale, value.high / scale)
    middle, low, high = (f"{digits}{prefix}" for digits in ends)
    return f"{middle} [{low}, {high}]"


def ratio_text(ratio: Estimate | None, reason: str | None = None) -> str:
    """Return a ratio of two rates as `2.1x [2.0, 2.2]`, whatever its unit is called."""
    return absent(reason) if ratio is None else format_ratio(ratio.value, ratio.low, ratio.high)


def rate_title(metric: str) -> str:
    """Return what headings call the metric that settings are compared by: `rate`, or `largest batch`."""
    return TITLES.get(metric, "rate")


def ratio_title(metric: str) -> str:
    """Return what headings call its ratio to the baseline's: `speed-up`, or plainly `ratio` for a size."""
    return "ratio" if metric in SIZES else "speed-up"


def summary(value: Summary | None) -> str:
    """Return the median of a metric over the repeats, or why there is none."""
    return absent(None) if value is None else number(value.median, value.unit, value.reason)


def share(value: float | None, reason: str | None = None) -> str:
    """Return a share as a percentage of at most three digits: 0.02 is `2 %`, 0.615 is `61.5 %`."""
    return absent(reason) if value is None else f"{_trimmed(significant(value * 100))} %"


def count(value: int, noun: str, plural: str | None = None) -> str:
    """Return `1 run`, `24 runs`, `1,000 runs`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def in_about(advice: Recommendation) -> str:
    """Return `, in about 4 minutes`, the time of the advised command. Empty if no run gives the time."""
    minutes = advice.settle_minutes
    if minutes is None:
        return ""
    return (
        f", in about {count(max(1, round(minutes)), 'minute') if minutes < 90 else count(round(minutes / 60), 'hour')}"
    )


def outcome_words(outcome: Outcome) -> str:
    """Return an outcome as prose: `out of memory`."""
    return outcome.value.replace("_", " ")


def sentence(text: str) -> str:
    """Return `text` with a capital first and one full stop last; a command stays as it is."""
    text = text.strip()
    if not text or text.startswith("accelsweep "):  # a command is no sentence
        return text
    return text[0].upper() + text[1:].rstrip(".") + "."


def _trimmed(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def unit_word(unit: str) -> str:
    """Return a unit as headings and axes show it: `samples/s` for `1/s`."""
    return _UNIT_WORDS.get(unit.lower(), unit)


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Return the divisor and the unit's word for a value: (1e3, "k samples/s") for 12300 in 1/s."""
    word = unit_word(unit)
    size = abs(value)
    if word == "B":
        return next(((float(bound), name) for bound, name in _BINARY if size >= bound), (1.0, "B"))
    if word not in ("s", "J", "J/sample", "W", *_RATES):
        return 1.0, word
    space = " " if word in _COUNTED else ""
    for bound, prefix in _PREFIXES:
        if size >= bound and word != "s":
            return _SCALE[prefix], f"{prefix}{space}{word}"
    if word in _RATES or size >= 1 or size == 0:
        return 1.0, word
    return next(((bound, f"{prefix}{word}") for bound, prefix in _SMALL if size >= bound), (1e-9, f"n{word}"))


def _join(digits: str, word: str) -> str:
    """Join a number and its unit; a factor and a prefix stand close to the digits, other units apart."""
    glued = word == "x" or word[1:2] == " "
    return f"{digits}{word}" if glued or not word else f"{digits} {word}"


# Text from outside (names, values, reasons, log lines) made printable, once, before anything is formatted.

_KEPT = frozenset("\n\t")

_REVERSING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

_UNPRINTABLE = frozenset({"Cc", "Cs"})


def printable(text: str) -> str:
    """Return `text` with every character that cannot or must not be printed replaced by U+FFFD."""
    if text.isprintable() and _REVERSING.isdisjoint(text):
        return text
    return "".join("\ufffd" if _refused(character) else character for character in text)


def printable_findings(findings: Findings) -> Findings:
    """Return the same findings with every text printable; numbers are untouched."""
    return Findings.model_validate(clean_text(findings.model_dump()))


def _refused(character: str) -> bool:
    if character in _KEPT:
        return False
    return (
        character in _REVERSING or unicodedata.category(character) in _UNPRINTABLE or ord(character) in (0xFFFE, 0xFFFF)
    )


def clean_text(value: Any) -> Any:
    """Return plain data with every text in it printable."""
    if isinstance(value, str):
        # An outcome or a verdict is a string too; it is known to be printable and must keep its type.
        return printable(value) if type(value) is str else value
    if isinstance(value, dict):
        return {clean_text(key): clean_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_text(item) for item in value]
    return value
