"""The answer of `accelsweep ab`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from accelsweep.cli.json_output import Answer, AnswerPart
from accelsweep.records.estimates import Estimate, Verdict
from accelsweep.records.run_record import Doubt


class ComparedVersion(AnswerPart):
    """A version, the one that the others are compared with first."""

    name: str = Field(description="the name as it was typed")
    kind: str = Field(description="what the digest is of: `commit`, `files` or `environment`")
    digest: str = Field(description="the commit's hash, or the digest of the files or of the environment's packages")


class VersionedSetting(AnswerPart):
    """A setting in a later version, beside the same setting in the first one."""

    cell: str = Field(description="the setting's name in files")
    against: str = Field(description="the name of the setting that it is compared with")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    rate: Estimate | None = Field(description="its rate")
    ratio: Estimate | None = Field(description="its rate divided by that of the first version")
    verdict: Verdict = Field(description="what the whole interval of the ratio supports")
    reason: str = Field(description="why that is the verdict")
    blocks: int = Field(description="the number of blocks that the ratio rests on")
    gate: str | None = Field(
        description="how it stands to `fail_if`: `regression`, `not measured`, `none found` or `shown absent`"
    )
    doubts: tuple[Doubt, ...] = Field(description="reasons to distrust the rate")


class AbAnswer(Answer):
    """`accelsweep ab VERSION VERSION --json`: the versions, setting by setting."""

    kind: ClassVar[str] = "ab"

    sweep: str = Field(description="the sweep's name")
    headline: str = Field(description="the report's headline")
    versions: tuple[ComparedVersion, ...] = Field(description="what was compared")
    family: int = Field(description="the number of ratios whose intervals hold together")
    confidence: float = Field(description="the confidence with which they do")
    threshold: float = Field(description="the relative difference below which a change does not matter")
    rate_unit: str = Field(description="the unit of the rates")
    rows: tuple[VersionedSetting, ...] = Field(description="the settings of all versions but the first")
    fail_if: str | None = Field(description="the gate that was asked for")
    gate: str | None = Field(description="the worst state of a row, which decides the exit code")
    failing: tuple[str, ...] = Field(description="settings that the gate fails by name; then the exit code is 3")
