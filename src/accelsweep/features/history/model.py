"""A history: each setting's rate on each machine over commits or dates, and where its level shifted."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from accelsweep.json_documents import Frozen
from accelsweep.records.estimates import Estimate, Verdict


class Order(StrEnum):
    """The order of the points in every series."""

    commit_date = "commit date"
    measurement_date = "date of measurement"


class LinePoint(Frozen):
    """A setting's rate in one sweep, at one commit. Times are UTC in ISO 8601."""

    name: str = Field(description="the short commit hash, or the minute of the measurement")
    source: str = Field(description="the sweep, or the archive that contains it")
    version: str | None = Field(description="the name of the version, as typed for `ab`")
    commit: str | None = Field(description="the commit hash, if recorded")
    local_changes: bool | None = Field(description="whether there were uncommitted changes")
    committed: str | None = Field(description="the commit date, if the commit is in this repository")
    measured: str = Field(description="start time of its first run")
    rate: Estimate = Field(description="the rate")
    disturbed: str | None = Field(description="why the point is excluded from all levels")
    software: dict[str, str] = Field(description="the versions of the packages that affect rates")

    @property
    def day(self) -> str:
        """The day of the commit if known, else of the measurement."""
        return (self.committed or self.measured)[:10]


class RateChange(Frozen):
    """A significant level shift in a series."""

    at: int = Field(description="zero-based index of the first point after the change")
    ratio: Estimate = Field(description="the level after the change divided by the level before it")
    verdict: Verdict = Field(description="`faster` or `slower`")
    software: tuple[str, ...] = Field(description="packages that changed at the same point")


class HistoryLine(Frozen):
    """One setting on one machine."""

    setting: str = Field(description="the setting's ID without its version")
    label: str = Field(description="the setting's label")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    hardware: str = Field(description="the hardware kind")
    machine: str | None = Field(description="the machine's ID, if recorded")
    rate_unit: str = Field(description="the unit of the rates")
    points: tuple[LinePoint, ...] = Field(description="the points in order")
    changes: tuple[RateChange, ...] = Field(description="where the level changed")
    reason: str = Field(description="why changes were not searched for; empty if they were")

    @property
    def software_changes(self) -> dict[int, tuple[str, ...]]:
        """The changed packages, keyed by the index of the first point with the new version."""
        changes = {at: software_between(self.points[at - 1], self.points[at]) for at in range(1, len(self.points))}
        return {at: packages for at, packages in changes.items() if packages}


class History(Frozen):
    """The series of several sweeps."""

    sources: tuple[str, ...] = Field(description="the sweeps or archives")
    order: Order = Field(description="the order of the points: `commit date` or `date of measurement`")
    order_reason: str = Field(description="why the points are in this order")
    confidence: float = Field(description="the simultaneous confidence level of the intervals of all changes")
    family: int = Field(description="the number of points at which a change was possible")
    lines: tuple[HistoryLine, ...] = Field(description="one series per setting and machine")
    alone: tuple[str, ...] = Field(description="settings with a single point")


def software_between(before: LinePoint, after: LinePoint) -> tuple[str, ...]:
    """Return a phrase for each package whose version differs: `torch 2.9.0 to 2.13.0`."""
    names = sorted(before.software.keys() | after.software.keys())
    pairs = ((name, before.software.get(name, "none"), after.software.get(name, "none")) for name in names)
    return tuple(f"{name} {old} to {new}" for name, old, new in pairs if old != new)
