"""Formats numbers. Units are added only here, so that the page, the Markdown report and the charts agree."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from accelsweep.records.estimates import Estimate, Summary
from accelsweep.records.findings import Findings, Recommendation
from accelsweep.results import Outcome
from accelsweep.significant_digits import UNKNOWN, format_ratio, interval_digits, is_uninformative, significant
from accelsweep.tasks import METRIC_TITLES, SIZE_METRICS

ABSENT = "not measured"

_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k"))

_SMALL = ((1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))

_BINARY = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

_UNIT_NAMES = {"1/s": "samples/s", "bytes": "B", "joules": "J", "seconds": "s", "ratio": "x", "1": "", "usd": "USD"}

_RATES = ("FLOP/s", "B/s")

_SCALE = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def number(value: float | None, unit: str = "", reason: str | None = None) -> str:
    """Return `value` with its unit to three significant digits: `12.3k samples/s`, `1.5 GiB`, `4.2 ms`, `0.93 acc`.

    None becomes `not measured`, with the `reason`, if any.
    """
    if value is None:
        return absent(reason)
    scale, name = _scaled_unit(value, unit)
    return _join(significant(value / scale), name)


def absent(reason: str | None) -> str:
    """Return the text for a missing number, with the reason if known."""
    return f"{ABSENT}: {reason}" if reason else ABSENT


def estimate_text(value: Estimate | None, reason: str | None = None) -> str:
    """Return `2.1x [2.0, 2.2]`, `12.3k samples/s [12.0k, 12.7k]`, or the value and why it has no interval.

    An interval that spans a factor of 20 or more becomes `not known yet`; the files contain both ends.
    """
    if value is None:
        return absent(reason)
    if value.low is None or value.high is None:
        return f"{number(value.value, value.unit)} (no interval: {value.reason or 'not given'})"
    return UNKNOWN if is_uninformative(value.low, value.high) else _with_interval(value, value.low, value.high)


def counted_text(value: Estimate | None, reason: str | None = None) -> str:
    """Return a share of counted runs, such as `0 of the runs [0.0, 0.7]`, regardless of the interval's width."""
    if value is None or value.low is None or value.high is None:
        return estimate_text(value, reason)
    return _with_interval(value, value.low, value.high)


def _with_interval(value: Estimate, low: float, high: float) -> str:
    scale, name = _scaled_unit(value.value, value.unit)
    middle, left, right = interval_digits(value.value / scale, low / scale, high / scale)
    prefix = name[0] if name[:1] in _SCALE else ""
    return f"{_join(middle, name)} [{left}{prefix}, {right}{prefix}]"


def bare_text(value: Estimate) -> str:
    """Return an estimate without its unit, which the column heading shows: `12,345 [12,001, 12,690]`.

    Very large operation and byte counts keep their prefix: `50.8G [50.1G, 51.5G]`.
    """
    scale, name = _scaled_unit(value.value, value.unit)
    prefix = name.removesuffix(unit_word(value.unit))
    if prefix not in _SCALE:  # counts, such as `k samples/s`, are written out in full
        scale, prefix = 1.0, ""
    if value.low is None or value.high is None:
        return significant(value.value / scale) + prefix
    if is_uninformative(value.low, value.high):
        return UNKNOWN
    middle, low, high = interval_digits(value.value / scale, value.low / scale, value.high / scale)
    return f"{middle}{prefix} [{low}{prefix}, {high}{prefix}]"


def ratio_text(ratio: Estimate | None, reason: str | None = None) -> str:
    """Return a ratio of two rates as `2.1x [2.0, 2.2]`, whatever its unit."""
    return absent(reason) if ratio is None else format_ratio(ratio.value, ratio.low, ratio.high)


def column_unit(values: Sequence[float], unit: str) -> tuple[float, str]:
    """Return the divisor and the unit that a column's heading shows for all its values: (1.0, "samples/s")."""
    scale, name = _scaled_unit(max(map(abs, values), default=0.0), unit)
    return (1.0, unit_word(unit)) if name.startswith("k ") else (scale, name)  # counts up to a million are in full


def rate_title(metric: str) -> str:
    """Return the compared metric's heading, such as `rate` or `largest batch`."""
    return METRIC_TITLES.get(metric, "rate")


def ratio_title(metric: str) -> str:
    """Return the heading for the compared metric's ratio to the baseline: `speed-up`, or `ratio` for a size."""
    return "ratio" if metric in SIZE_METRICS else "speed-up"


def summary(value: Summary | None) -> str:
    """Return the median of a metric over the repeats, or why there is none."""
    return absent(None) if value is None else number(value.median, value.unit, value.reason)


def share(value: float | None, reason: str | None = None) -> str:
    """Return a share as a percentage of at most three digits: 0.02 is `2 %`, 0.615 is `61.5 %`."""
    if value is None:
        return absent(reason)
    digits = significant(value * 100)
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits} %"


def count(value: int, noun: str) -> str:
    """Return `1 run`, `24 runs`, `1,000 runs`."""
    return f"{value:,} {noun if value == 1 else noun + 's'}"


def next_step(advice: Recommendation) -> str:
    """Return what the advised command is for, and its length: `To settle it, 12 more repeats, about 18 minutes`."""
    minutes, repeats, time = advice.settle_minutes, "", ""
    if advice.settle_blocks:
        repeats = f", {count(advice.settle_blocks, 'more repeat')}"
    if minutes is not None:
        size, noun = (minutes, "minute") if minutes < 90 else (minutes / 60, "hour")
        time = f", about {count(max(1, round(size)), noun)}"
    return f"{advice.settle_purpose}{repeats}{time}"


def outcome_words(outcome: Outcome) -> str:
    """Return an outcome as prose: `out of memory`."""
    return outcome.value.replace("_", " ")


def capitalized(text: str) -> str:
    """Return `text` with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """Return `text` as a sentence with a capital letter and a full stop; a command is left unchanged."""
    text = text.strip()
    if not text or text.startswith("accelsweep "):
        return text
    return capitalized(text).rstrip(".") + "."


def unit_word(unit: str) -> str:
    """Return the unit to show in headings and on axes: `samples/s` for `1/s`."""
    return _UNIT_NAMES.get(unit.lower(), unit)


def _scaled_unit(value: float, unit: str) -> tuple[float, str]:
    """Return a value's divisor and prefixed unit: (1e3, "k samples/s") for 12300 in 1/s."""
    name = unit_word(unit)
    size = abs(value)
    if name == "B":
        return next(((float(bound), prefixed) for bound, prefixed in _BINARY if size >= bound), (1.0, "B"))
    counted = name.endswith("s/s")  # a plural noun, such as `queries/s`
    if not counted and name not in ("s", "J", "J/sample", "W", *_RATES):
        return 1.0, name
    space = " " if counted else ""
    for bound, prefix in _LARGE:
        if size >= bound and name != "s":
            return _SCALE[prefix], f"{prefix}{space}{name}"
    if counted or name in _RATES or size >= 1 or size == 0:
        return 1.0, name
    return next(((bound, f"{prefix}{name}") for bound, prefix in _SMALL if size >= bound), (1e-9, f"n{name}"))


def _join(digits: str, name: str) -> str:
    """Join a number and its unit, without a space before `x` or before the prefix of a count (`12k samples/s`)."""
    return f"{digits}{name}" if not name or name == "x" or name[1:2] == " " else f"{digits} {name}"


# External text (names, values, reasons, log lines) is made printable once, before anything is formatted.

_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def printable(text: str) -> str:
    """Return `text` with control characters, surrogates, noncharacters and directional controls replaced by U+FFFD."""
    if text.isprintable() and _BIDI_CONTROLS.isdisjoint(text):
        return text
    return "".join("\ufffd" if _is_unprintable(character) else character for character in text)


def _is_unprintable(character: str) -> bool:
    return character not in "\n\t" and (
        character in _BIDI_CONTROLS
        or unicodedata.category(character) in ("Cc", "Cs")
        or ord(character) in (0xFFFE, 0xFFFF)
    )


_ESCAPED_CONTROLS = re.compile(r"\\[bfru]")
"""Escapes in JSON of control characters other than line breaks and tabs."""


def printable_findings(findings: Findings) -> Findings:
    """Return the findings with all text made printable, usually themselves."""
    with contextlib.suppress(ValueError):  # lone surrogates cannot be serialised
        text = findings.model_dump_json()  # searched at once, because a large sweep has a million texts
        if text.isprintable() and not _ESCAPED_CONTROLS.search(text):
            return findings
    return Findings.model_validate(clean_text(findings.model_dump()))


def clean_text(value: Any) -> Any:
    """Return plain data with all text made printable."""
    if isinstance(value, str):
        # Outcomes and verdicts are strings too, but must keep their type.
        return printable(value) if type(value) is str else value
    if isinstance(value, dict):
        return {clean_text(key): clean_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_text(item) for item in value]
    return value
