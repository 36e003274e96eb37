"""A price that a cost was computed with, as it travels with that cost from the plan to the report."""

from __future__ import annotations

from accelsweep.core.documents import Frozen


class PriceUsed(Frozen):
    """A price that costs were computed with: of what, how much, and when and where it was seen, as the user gave it."""

    name: str
    value: float
    unit: str
    date: str | None
    source: str | None
