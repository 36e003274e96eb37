"""The answer of `accelsweep compare`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from accelsweep.cli.json_output import Answer, AnswerPart
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.run_record import Doubt


class ComparedSetting(AnswerPart):
    """A setting that both sweeps have."""

    cell: str = Field(description="the setting's name in files")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    before: Estimate | None = Field(description="the rate in the earlier sweep")
    after: Estimate | None = Field(description="the rate in the later sweep")
    ratio: Estimate | None = Field(description="the later rate divided by the earlier one")
    verdict: Verdict = Field(description="what the whole interval of the ratio supports")
    reason: str = Field(description="why that is the verdict")
    doubts: tuple[Doubt, ...] = Field(description="reasons to distrust either rate")


class CompareAnswer(Answer):
    """`accelsweep compare BEFORE AFTER --json`: two sweeps, setting by setting."""

    kind: ClassVar[str] = "compare"

    before: str = Field(description="the name of the earlier sweep")
    after: str = Field(description="the name of the later sweep")
    family: int = Field(description="the number of ratios whose intervals hold together")
    confidence: float = Field(description="the confidence with which they do")
    threshold: float = Field(description="the relative difference below which a change does not matter")
    rate_unit: str = Field(description="the unit of the rates")
    rows: tuple[ComparedSetting, ...] = Field(description="the settings that both sweeps have")
    only_before: tuple[str, ...] = Field(description="the labels of settings that the later sweep lacks")
    only_after: tuple[str, ...] = Field(description="the labels of settings that the earlier sweep lacks")
    fail_if: str | None = Field(description="the gate that was asked for")
    failing: tuple[str, ...] = Field(description="settings that the gate fails by name; then the exit code is 3")
