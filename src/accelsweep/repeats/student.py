"""Student's t: the half width of an interval, and the degrees of freedom that its cell may borrow from others."""

from __future__ import annotations


def critical_t(degrees_of_freedom: float, confidence: float, family: int = 1) -> float:
    """Return the half-width of a two-sided t-interval in standard errors, widened for `family` intervals.

    Each interval has confidence 1 - (1 - confidence) / family, so that all hold together with at least `confidence`
    (Bonferroni's inequality; Dunn, "Multiple Comparisons among Means", JASA 1961).
    """
    from scipy import special  # a quarter of a second, which commands that ask for no interval need not wait

    return float(special.stdtrit(degrees_of_freedom, 1.0 - (1.0 - confidence) / (2.0 * max(family, 1))))


def prior_degrees(cells: int) -> float:
    """Return the most degrees of freedom that the usual variance among `cells` cells may be worth to one of them.

    The comparisons share the baseline, which makes their variances look more alike than they are. Half of the cells,
    and never more than 8, kept the coverage in the simulations of benchmarks/coverage.py.
    """
    return min(8.0, cells / 2.0)
