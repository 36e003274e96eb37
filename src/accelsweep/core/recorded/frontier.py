"""The memory frontier of one run: the tries, the batch at which memory ended, and what a sample costs."""

from __future__ import annotations

from typing import Literal

from accelsweep.base.documents import Frozen

Limit = Literal[
    "device memory", "machine memory", "control group", "RLIMIT_AS", "RLIMIT_DATA", "measure.rank_memory_bytes"
]
"""The kinds of limit that may end a search. All but the last are found; the last is the config's own."""

SEARCH_CONFIDENCE = 0.95
"""Of the intervals of a search, each by itself."""


class Try(Frozen):
    """One batch size that was tried. `peak_bytes` is that of the fullest rank; None where too large, or not known."""

    batch_size: int
    fits: bool
    seconds: float
    peak_bytes: int | None = None
    reason: str | None = None


class Coefficient(Frozen):
    """A coefficient of the line through the peaks, in bytes; without a value, or an interval, it has a reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class Frontier(Frozen):
    """The result of a search. `largest` fits, `too_large` does not; it is None where `measure.max_batch` fits too.

    `headroom` is the share of the free memory that was kept free. It left `limit_bytes` to each rank, by the tightest
    `limit`. `rows` are those of the training set on all ranks, None where it has no length.
    """

    largest: int
    too_large: int | None
    limit: Limit
    limit_bytes: int | None
    headroom: float
    tries: tuple[Try, ...]
    bytes_per_sample: Coefficient
    fixed_bytes: Coefficient
    rows: int | None = None
