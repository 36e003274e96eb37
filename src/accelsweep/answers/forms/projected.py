"""The answer of `accelsweep project`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from accelsweep.cli.json_output import Answer
from accelsweep.core.findings.projections import Projected, Unseen


class ProjectAnswer(Answer):
    """`accelsweep project NAME --json`: one setting on devices that were not measured. None of it is a measurement."""

    kind: ClassVar[str] = "project"

    sweep: str = Field(description="the sweep's name")
    reason: str | None = Field(description="why nothing is projected")
    cell: str | None = Field(description="the setting's name in files")
    label: str = Field(description="the setting in words")
    here: str = Field(description="the device that it was measured on")
    batch: int = Field(description="the batch of one device")
    rate_here: float | None = Field(description="the measured rate, in samples per second")
    disturbed: bool = Field(description="whether others used the machine meanwhile; then there are no ratios to it")
    devices: tuple[Projected, ...] = Field(description="the projections, all intervals are of 90 %")
    unseen: tuple[Unseen, ...] = Field(description="how wrong projections were on devices that the fit had not seen")
    sources: tuple[str, ...] = Field(description="where the published rates come from")
