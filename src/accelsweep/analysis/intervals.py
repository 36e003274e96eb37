"""Confidence intervals and the verdicts they support.

The run is the statistical unit, and rates are compared on the log scale. Nothing in this module reads records. Sums use
`math.fsum`, which rounds only once, so the order of the values cannot affect any digit of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import scipy  # its parts are imported when they are first used

from accelsweep.config.sweep_options import CONFIDENCE
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.tasks import SIZE_METRICS

Key = TypeVar("Key")

MIN_PAIRS = 3
"""The number of blocks that two settings must share for a paired interval; with fewer, Welch's interval is used."""

_NO_SPREAD = 1e-12
"""A relative spread below this is treated as rounding error, not noise."""

_MAX_EXPONENT = 600.0
"""For larger values, exp() may overflow when the result is scaled."""


@dataclass(frozen=True)
class Family:
    """A family of `size` intervals that hold simultaneously with at least `confidence`, by Bonferroni's inequality."""

    size: int = 1
    confidence: float = CONFIDENCE

    @property
    def each(self) -> float:
        """The confidence of each individual interval."""
        return 1.0 - (1.0 - self.confidence) / max(self.size, 1)


@dataclass(frozen=True)
class Interval:
    """A mean over `count` units (blocks) with its interval, or the reason why there is no interval."""

    center: float
    half_width: float | None
    count: int
    reason: str | None = None

    @property
    def low(self) -> float | None:
        """The lower end."""
        return None if self.half_width is None else self.center - self.half_width

    @property
    def high(self) -> float | None:
        """The upper end."""
        return None if self.half_width is None else self.center + self.half_width


@lru_cache
def critical_t(degrees_of_freedom: float, confidence: float, family: int = 1) -> float:
    """Return the half-width of a two-sided t-interval in standard errors, widened for `family` intervals.

    Each interval has confidence 1 - (1 - confidence) / family, so that all hold simultaneously with at least
    `confidence` (Bonferroni's inequality; Dunn, "Multiple Comparisons among Means", JASA 1961).
    """
    return float(scipy.special.stdtrit(degrees_of_freedom, 1.0 - (1.0 - confidence) / (2.0 * max(family, 1))))


def prior_degrees(settings: int) -> float:
    """Return the maximum degrees of freedom that the prior variance of `settings` settings contributes to each of them.

    The comparisons share the baseline, which makes their variances look more alike than they are. A cap of half the
    number of settings, at most 8, preserves the coverage in the simulations of benchmarks/coverage.py.
    """
    return min(8.0, settings / 2.0)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, which does not depend on the order of the values.

    Raises ZeroDivisionError if there are no values.
    """
    return math.fsum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Return the unbiased sample variance of at least two values."""
    center = mean(values)
    return math.fsum((value - center) ** 2 for value in values) / (len(values) - 1)


def t_interval(values: Sequence[float], family: Family) -> Interval:
    """Return the mean of independent values with Student's t-interval ("The Probable Error of a Mean", 1908).

    No interval is computed for values that are identical to the last digit, because the clock or the quantity is then
    too coarse to reveal noise.
    """
    center, count = mean(values), len(values)
    if count < 2:
        return Interval(center, None, count, "a single repeat has no spread; an interval requires at least 2")
    spread = math.sqrt(variance(values))
    if spread <= _NO_SPREAD * max(1.0, abs(center)):
        return Interval(center, None, count, f"all {count} values are identical, so their spread is unknown")
    return Interval(center, critical_t(count - 1, family.confidence, family.size) * spread / math.sqrt(count), count)


def paired_interval(a: Mapping[Key, float], b: Mapping[Key, float], family: Family) -> Interval:
    """Return the mean of a - b over the common keys with the paired t-interval (Student 1908; Fisher 1935)."""
    return t_interval([a[key] - b[key] for key in a if key in b], family)


def welch_interval(a: Sequence[float], b: Sequence[float], family: Family) -> Interval:
    """Return mean(a) - mean(b) with Welch's interval for unequal variances.

    The degrees of freedom follow Welch ("The generalization of `Student's' problem", Biometrika 1947) and Satterthwaite
    (1946).
    """
    center, count = mean(a) - mean(b), min(len(a), len(b))
    if count < 2:
        return Interval(center, None, count, "a single repeat has no spread; an interval requires at least 2 per side")
    parts = [(variance(side) / len(side), len(side) - 1) for side in (a, b)]
    squared_error = math.fsum(part for part, _ in parts)
    if math.sqrt(squared_error) <= _NO_SPREAD * max(1.0, abs(center)):
        return Interval(center, None, count, "all values of a side are identical, so their spread is unknown")
    degrees = squared_error**2 / math.fsum(part**2 / free for part, free in parts)
    return Interval(center, critical_t(degrees, family.confidence, family.size) * math.sqrt(squared_error), count)


def is_paired(a: Mapping[Key, float], b: Mapping[Key, float]) -> bool:
    """Return whether the two sides share enough blocks (or seeds) for a paired interval."""
    return len(a.keys() & b.keys()) >= MIN_PAIRS


def log_ratio(a: Mapping[str, float], b: Mapping[str, float], family: Family) -> Interval:
    """Return the interval for log(rate a / rate b) from per-block log rates: paired if possible, otherwise Welch's."""
    if is_paired(a, b):
        return paired_interval(a, b, family)
    return welch_interval(list(a.values()), list(b.values()), family)


def round_significant(value: float, digits: int = 6) -> float:
    """Round `value` to the given number of significant digits. Every number in the findings is rounded here."""
    return float(f"{value:.{digits}g}")


def linear_estimate(interval: Interval, unit: str, family: Family) -> Estimate:
    """Convert an interval on a linear scale to an estimate for the findings."""
    return _estimate(interval.center, interval.low, interval.high, interval, unit, family)


def exponential_estimate(interval: Interval, unit: str, family: Family, scale: float = 1.0) -> Estimate:
    """Convert an interval on the log scale (mean or ratio) to an estimate on a linear scale, multiplied by `scale`."""
    low, high = (
        None if end is None else scale * math.exp(min(end, _MAX_EXPONENT)) for end in (interval.low, interval.high)
    )
    return _estimate(scale * math.exp(interval.center), low, high, interval, unit, family)


def _estimate(
    value: float, low: float | None, high: float | None, interval: Interval, unit: str, family: Family
) -> Estimate:
    return Estimate(
        value=round_significant(value),
        low=None if low is None else round_significant(low),
        high=None if high is None else round_significant(high),
        unit=unit,
        confidence=round_significant(family.each),
        count=interval.count,
        reason=interval.reason,
    )


def verdict(ratio: Estimate, threshold: float, metric: str = "samples_per_second") -> tuple[Verdict, str]:
    """Return the verdict that the interval for a ratio of `metric` supports, and the reason as a sentence.

    `threshold` is the smallest difference that matters in practice. The rule applies the two one-sided tests of
    equivalence testing (Schuirmann 1987) to a single interval: beyond the threshold, within it, or undecided.
    """
    upper, lower = 1.0 + threshold, 1.0 / (1.0 + threshold)
    if ratio.low is None or ratio.high is None:
        return Verdict.undecided, f"no interval: {ratio.reason}"
    text = f"the interval [{ratio.low:.4g}, {ratio.high:.4g}]"
    if ratio.low > upper:
        return Verdict.larger if metric in SIZE_METRICS else Verdict.faster, f"{text} lies above {upper:.4g}"
    if ratio.high < lower:
        return Verdict.smaller if metric in SIZE_METRICS else Verdict.slower, f"{text} lies below {lower:.4g}"
    if lower <= ratio.low and ratio.high <= upper:
        return Verdict.same, f"{text} lies within {lower:.4g} to {upper:.4g}"
    return Verdict.undecided, f"{text} extends to both sides of {lower if ratio.low < lower else upper:.4g}"


def pooled_noise(pairs: Iterable[tuple[Mapping[str, float], Mapping[str, float]]]) -> float | None:
    """Return the standard deviation of one run's log rate within a block, pooled over pairs of settings, if available.

    The variance of the difference between two runs is twice that of a single run. If a side is the mean of several runs
    in a block, the result is the noise of a single run that would be equally precise.
    """
    squares, degrees = [], 0
    for a, b in pairs:
        differences = [a[key] - b[key] for key in a if key in b]
        if len(differences) >= 2:
            squares.append(variance(differences) * (len(differences) - 1))
            degrees += len(differences) - 1
    return math.sqrt(math.fsum(squares) / degrees / 2.0) if degrees else None
