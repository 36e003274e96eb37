"""The largest batch that fits, by doubling and bisecting. The caller says what a batch is, and tries it.

A larger batch is taken to need no less memory than a smaller one. Where that is not so, the result is one batch that
fits beside a larger one that does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Bracket(NamedTuple):
    """`fits` fits, and is 0 where not even one sample does. `too_large` does not, and is None where no batch was so."""

    fits: int
    too_large: int | None


def largest(fits: Callable[[int], bool], first: int, most: int, resolution: float) -> Bracket:
    """Return the bracket of the largest batch from 1 to `most`; each batch is tried once at most.

    The first try is `first`. Batches are doubled while they fit, or else halved until one does. Then the bracket is
    halved until it is no wider than one sample, or than `resolution` of what fits.
    """
    low, high = 0, None
    batch = min(first, most)
    while high is None and low < most:
        if fits(batch):
            low, batch = batch, min(2 * batch, most)
        else:
            high = batch
    while high is not None and low == 0 and high > 1:
        batch = high // 2
        low, high = (batch, high) if fits(batch) else (0, batch)
    while high is not None and high - low > max(1, int(resolution * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Bracket(low, high)
