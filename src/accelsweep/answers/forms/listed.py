"""The answer of `accelsweep runs`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from accelsweep.answers.forms.answer import Answer, AnswerPart
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt


class ListedRun(AnswerPart):
    """A run, or a setting that the plan marks as unsupported. A field that a row does not have is null."""

    run: str | None = Field(None, description="the run's name")
    cell: str = Field(description="its setting's name in files")
    label: str = Field(description="its setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    repeat: int | None = Field(None, description="its number among the runs of its setting, from 0")
    block: str | None = Field(None, description="its block")
    attempt: int | None = Field(None, description="the number of the attempt that left the record, from 1")
    outcome: Outcome = Field(description="how it ended")
    reason: str | None = Field(None, description="why it ended so; null for a measured run")
    rate: float | None = Field(None, description="the rate, in the answer's `rate_unit`")
    doubts: tuple[Doubt, ...] = Field((), description="reasons to distrust its numbers")
    disturbed: str | None = Field(None, description="how others used the machine meanwhile")
    started_at: str | None = Field(None, description="when it began")
    wall_seconds: float | None = Field(None, description="how long it took, start and end included")
    folder: str | None = Field(None, description="the path of its folder")


class RunsAnswer(Answer):
    """`accelsweep runs NAME --json`: every run of a sweep."""

    kind: ClassVar[str] = "runs"

    sweep: str = Field(description="the sweep's name")
    rate_metric: str | None = Field(description="the metric that settings are compared by, null before the first run")
    rate_unit: str | None = Field(description="its unit")
    runs: tuple[ListedRun, ...] = Field(description="the runs, in the order that was asked for")
