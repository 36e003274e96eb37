"""The rate of settings over commits or dates: lines of points on one machine each, and where a line changes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Verdict


class Order(StrEnum):
    """The order of the points of all lines."""

    commit_date = "commit date"
    measurement_date = "date of measurement"


class LinePoint(Frozen):
    """A setting's rate in one sweep, at one commit.

    `source` is the sweep, or the archive that holds it; `version` the name that was typed for `ab`. `commit` is None
    where none was recorded, `local_changes` says whether files differed from it. Times are UTC in ISO 8601; `committed`
    is None where the commit is not in this repository. `disturbed` says why the point does not count for changes.
    """

    source: str
    version: str | None
    commit: str | None
    local_changes: bool | None
    committed: str | None
    measured: str
    rate: Estimate
    disturbed: str | None
    software: dict[str, str]

    @property
    def name(self) -> str:
        """The commit in short, with a plus for local changes; else the minute of the measurement."""
        if self.commit is None:
            return self.measured[:16].replace("T", " ")
        return self.commit[:7] + ("+" if self.local_changes else "")

    @property
    def day(self) -> str:
        """The day of the commit where it is known, else that of the measurement."""
        return (self.committed or self.measured)[:10]


class RateChange(Frozen):
    """A change of a line's level. `at` is the number, from 0, of the first point after it.

    `ratio` is the level after to that before, `software` says which packages changed at the same place.
    """

    at: int
    ratio: Estimate
    verdict: Verdict
    software: tuple[str, ...]


class HistoryLine(Frozen):
    """One setting on one machine. `reason` says why no change was looked for; empty where it was."""

    cell: str
    label: str
    axes: dict[str, Any]
    hardware: str
    machine: str | None
    rate_unit: str
    points: tuple[LinePoint, ...]
    changes: tuple[RateChange, ...]
    reason: str

    @property
    def software_changes(self) -> dict[int, tuple[str, ...]]:
        """The packages that changed, in words, by the number of the first point with the new version."""
        found = {at: software_between(self.points[at - 1], self.points[at]) for at in range(1, len(self.points))}
        return {at: words for at, words in found.items() if words}


class History(Frozen):
    """The lines of several sweeps. `order_reason` says why the points have this order.

    `family` is the number of places at which a change could stand; the intervals of all hold with `confidence`.
    `alone` are the labels of settings that have one point only.
    """

    sources: tuple[str, ...]
    order: Order
    order_reason: str
    confidence: float
    family: int
    lines: tuple[HistoryLine, ...]
    alone: tuple[str, ...]


def software_between(before: LinePoint, after: LinePoint) -> tuple[str, ...]:
    """Return a phrase for each package whose version differs: `torch 2.9.0 to 2.13.0`."""
    names = sorted(before.software.keys() | after.software.keys())
    pairs = ((name, before.software.get(name, "none"), after.software.get(name, "none")) for name in names)
    return tuple(f"{name} {old} to {new}" for name, old, new in pairs if old != new)
