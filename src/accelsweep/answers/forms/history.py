"""The answer of `accelsweep history`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from accelsweep.cli.json_output import Answer, AnswerPart
from accelsweep.records.estimates import Estimate, Verdict


class PointOfLine(AnswerPart):
    """A setting's rate in one sweep, at one commit."""

    name: str = Field(description="the commit in short, or the minute of the measurement")
    source: str = Field(description="the sweep, or the archive that holds it")
    version: str | None = Field(description="the name of the version, as it was typed for `ab`")
    commit: str | None = Field(description="the commit's hash, where one was recorded")
    local_changes: bool | None = Field(description="whether files differed from the commit")
    committed: str | None = Field(description="the date of the commit, where this repository has it")
    measured: str = Field(description="when its first run began")
    rate: Estimate = Field(description="the rate")
    disturbed: str | None = Field(description="why the point counts for no level")
    software: dict[str, str] = Field(description="the versions of the packages that decide rates")


class ChangeOfLine(AnswerPart):
    """A supported change of a line's level."""

    at: int = Field(description="the number, from 0, of the first point after the change")
    ratio: Estimate = Field(description="the level after the change divided by the one before")
    verdict: Verdict = Field(description="`faster` or `slower`")
    software: tuple[str, ...] = Field(description="packages that changed at the same place")


class LineOfHistory(AnswerPart):
    """One setting on one machine."""

    cell: str = Field(description="the setting's name in files, its version apart")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    hardware: str = Field(description="the kind of machine")
    machine: str | None = Field(description="the identity of the machine, where records have one")
    rate_unit: str = Field(description="the unit of the rates")
    points: tuple[PointOfLine, ...] = Field(description="the points in order")
    changes: tuple[ChangeOfLine, ...] = Field(description="where the level changed")
    reason: str = Field(description="why no change was looked for; empty where it was")


class HistoryAnswer(Answer):
    """`accelsweep history NAME... --json`: the rate of each setting over commits or dates."""

    kind: ClassVar[str] = "history"

    sources: tuple[str, ...] = Field(description="the sweeps or archives")
    order: str = Field(description="what points are ordered by: `commit date` or `date of measurement`")
    order_reason: str = Field(description="why that is the order")
    confidence: float = Field(description="the confidence with which the intervals of all changes hold")
    family: int = Field(description="the number of places at which a change could stand")
    lines: tuple[LineOfHistory, ...] = Field(description="a line for each setting on each machine")
    alone: tuple[str, ...] = Field(description="settings with one point only")
    report: str = Field(description="the path of the page")
