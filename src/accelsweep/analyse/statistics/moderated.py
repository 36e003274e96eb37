"""Variances of paired differences, each shrunk towards those of its family, and interval half widths made of them.

Three blocks show little of a row's noise, and the other rows show the usual noise. The rows share their baseline, so
their variances look more alike than they are: the prior's degrees of freedom are capped. No half width is below that of
the row's own plain interval. Arrays have any leading axes (simulated sweeps) and the pairs of one pool on the last.

Source: G. Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments", Statistical Applications in Genetics and Molecular Biology 3 (2004). The cap and the floor are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from accelsweep.repeats.student import prior_degrees

Array = npt.NDArray[np.float64]

_EXACT = 1e-10
"""The relative step below which Newton's iteration has converged."""


@dataclass(frozen=True)
class Moderated:
    """The noise of a pool of pairs; shapes (..., pairs), but (...) for the two values of the prior.

    `variance` (of one paired difference, in squared units of the differences) has `degrees` degrees of freedom. `prior`
    is the usual variance in the pool, and it is worth `prior_degrees` degrees of freedom.
    """

    variance: Array
    degrees: Array
    prior: Array
    prior_degrees: Array


def moderate(variances: Array, degrees: Array, cells: int) -> Moderated:
    """Return sample variances, (..., pairs) with pairs >= 2 and each above 0, shrunk towards their common prior.

    `degrees` are those of the variances, (pairs,) or the same shape; `cells` the cells in the pool, baseline included.
    Smyth 2004, section 6.2: the part due to chance alone is taken away from the logarithms of the variances. The rest
    has a mean (the prior variance) and a spread (the prior's degrees of freedom, here at most
    `repeats.student.prior_degrees`).
    """
    half = np.broadcast_to(np.asarray(degrees, dtype=np.float64) / 2.0, variances.shape)
    logs = np.log(variances) - special.psi(half) + np.log(half)
    prior = np.exp(logs.mean(axis=-1))
    spread = logs.var(axis=-1, ddof=1) - trigamma(half).mean(axis=-1)
    cap = prior_degrees(cells)
    least = float(trigamma(np.asarray(cap / 2.0)))
    worth = np.where(spread <= least, cap, 2.0 * inverse_trigamma(np.maximum(spread, least)))
    weight, own = worth[..., np.newaxis], 2.0 * half
    shrunk = (weight * prior[..., np.newaxis] + own * variances) / (weight + own)
    return Moderated(shrunk, np.minimum(weight + own, own.sum(axis=-1, keepdims=True)), prior, worth)


def half_widths(variances: Array, counts: Array, cells: int, each: float, plain: float) -> Array:
    """Return the half widths, (..., pairs), of the mean differences of one pool; in units of the differences.

    `variances` and `cells` as in `moderate`, `counts` are the differences behind each (3 or more). `each` is the
    confidence of an interval in its family, `plain` that of the row's own interval, which is the floor.
    """
    numbers = np.broadcast_to(np.asarray(counts, dtype=np.float64), variances.shape)
    found = moderate(variances, numbers - 1.0, cells)
    shared = critical(found.degrees, each) * np.sqrt(found.variance / numbers)
    own = critical(numbers - 1.0, plain) * np.sqrt(variances / numbers)
    return np.maximum(shared, own)


def critical(degrees: Array, confidence: float) -> Array:
    """Return the half width of two-sided t-intervals in standard errors."""
    return np.asarray(special.stdtrit(degrees, 1.0 - (1.0 - confidence) / 2.0), dtype=np.float64)


def trigamma(x: Array) -> Array:
    """Return the second derivative of the logarithm of the gamma function at x > 0: Hurwitz' zeta(2, x)."""
    return np.asarray(special.zeta(2.0, x), dtype=np.float64)


def inverse_trigamma(y: Array) -> Array:
    """Return the x > 0 with trigamma(x) = y, for y > 0.

    Newton's iteration on 1 / trigamma, which is nearly linear, so that it converges from 1/2 + 1/y without
    overshooting (Smyth 2004, appendix). Beyond 1e7 and below 1e-6 the limits 1/sqrt(y) and 1/y are exact enough.
    """
    inner = np.clip(y, 1e-6, 1e7)
    x = 0.5 + 1.0 / inner
    for _ in range(50):
        value = trigamma(x)
        step = value * (1.0 - value / inner) / (-2.0 * special.zeta(3.0, x))
        x = x + step
        if np.all(np.abs(step) <= _EXACT * x):
            break
    return np.where(y > 1e7, 1.0 / np.sqrt(y), np.where(y < 1e-6, 1.0 / y, x))
