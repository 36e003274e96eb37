"""Intervals that may be looked at several times: the error of all looks together stays within one family's.

The error is spent by the function of O'Brien-Fleming type of Lan and DeMets ("Discrete Sequential Boundaries for
Clinical Trials", Biometrika 1983), half of it on either side. Bounds follow from it by the recursive integration of
Armitage, McPherson and Rowe (1969). The noise is unknown, so each bound's significance level is applied to Student's t
(Jennison and Turnbull, "Group Sequential Methods", 2000, ch. 4). The intervals are repeated confidence intervals
(Jennison and Turnbull, JRSS B 1989): they hold at every look, whether or not one stops there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from scipy import optimize, special

from accelsweep.analyse.statistics.intervals import (
    Family,
    Interval,
    Key,
    mean,
    paired_interval,
    pairs_up,
    variance,
    welch_interval,
)
from accelsweep.core.planned.settings import LOOKS

_POINTS = 801
"""Points of the grid on which the density between two bounds is integrated."""


def spent(alpha: float, fraction: float) -> float:
    """Return how much of the two-sided error `alpha` may be spent when this fraction of the blocks is measured."""
    return 4.0 * float(special.ndtr(special.ndtri(alpha / 4.0) / math.sqrt(min(1.0, fraction))))


@lru_cache(maxsize=256)
def nominal_levels(alpha: float, looks: Sequence[int] = LOOKS) -> tuple[float, ...]:
    """Return the two-sided significance level of each look, after so many blocks; the last look has them all."""
    levels: list[float] = []
    grid = density = np.zeros(0)
    for number, blocks in enumerate(looks):
        now = blocks / looks[-1]
        before = looks[number - 1] / looks[-1] if number else 0.0
        due, step = spent(alpha, now) - (spent(alpha, before) if number else 0.0), math.sqrt(now - before)
        bound = _bound(due, grid, density, step) if number else -float(special.ndtri(due / 2.0)) * step
        levels.append(2.0 * float(special.ndtr(-bound / math.sqrt(now))))
        inside = np.linspace(-bound, bound, _POINTS)
        density = _moved(inside, grid, density, step) if number else np.exp(-((inside / step) ** 2) / 2) / _unit(step)
        grid = inside
    return tuple(levels)


def _bound(due: float, grid: np.ndarray, density: np.ndarray, step: float) -> float:
    """Return the bound beyond which the error that is `due` now lies."""
    return float(optimize.brentq(lambda at: _beyond(at, grid, density, step) - due, 0.0, 12.0))


def _beyond(bound: float, grid: np.ndarray, density: np.ndarray, step: float) -> float:
    """Return the probability to be within all bounds so far and beyond this one now."""
    leaves = special.ndtr((grid - bound) / step) + special.ndtr((-bound - grid) / step)
    return float(np.trapezoid(density * leaves, grid))


def _moved(inside: np.ndarray, grid: np.ndarray, density: np.ndarray, step: float) -> np.ndarray:
    kernel = np.exp(-(((inside[:, None] - grid[None, :]) / step) ** 2) / 2) / _unit(step)
    return np.asarray(np.trapezoid(kernel * density[None, :], grid, axis=1))


def _unit(step: float) -> float:
    return step * math.sqrt(2.0 * math.pi)


def level_after(blocks: int, alpha: float, looks: Sequence[int] = LOOKS) -> float:
    """Return the significance level after so many blocks; between two looks it is that of the earlier one.

    Before the first look there is none: 0.
    """
    levels = nominal_levels(alpha, tuple(looks))
    passed = [level for at, level in zip(looks, levels, strict=True) if at <= blocks]
    return passed[-1] if passed else 0.0


def repeated_interval(
    a: Mapping[Key, float], b: Mapping[Key, float], family: Family, looks: Sequence[int] = LOOKS
) -> Interval:
    """Return the repeated confidence interval of the mean of a - b over the keys that both have.

    Sides that do not pair up have Welch's interval, on which no verdict rests.
    """
    if not pairs_up(a, b):
        return welch_interval(list(a.values()), list(b.values()), family)
    plain = paired_interval(a, b, family)
    differences = [a[key] - b[key] for key in a if key in b]
    if plain.half_width is None:
        return plain
    level = level_after(len(differences), 1.0 - family.each, looks)
    critical = float(special.stdtrit(len(differences) - 1, 1.0 - level / 2.0))
    error = math.sqrt(variance(differences) / len(differences))
    return Interval(mean(differences), critical * error, len(differences))
