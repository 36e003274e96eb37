"""The answer of `accelsweep profile`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from accelsweep.cli.json_output import Answer, AnswerPart
from accelsweep.core.recorded.profiles import ModuleTime, OperatorTime, PartDifference


class ProfiledSetting(AnswerPart):
    """A setting under torch's profiler. Times are seconds of a mean step; none of them is a measured run's."""

    cell: str = Field(description="the setting's name in files")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    task: str = Field(description="the task whose steps these are")
    started_at: str = Field(description="when the run of the profile began")
    ranks: int = Field(description="the number of ranks, of which rank 0 was looked at")
    device: str = Field(description="the kind of device")
    device_name: str = Field(description="the device")
    warmup_steps: int = Field(description="the steps before the profile")
    steps: int = Field(description="the profiled steps")
    profiled_step_seconds: float = Field(description="a step by the clock, under the profiler")
    measured_step_seconds: float | None = Field(description="the median over the setting's measured runs")
    cost: float | None = Field(description="the profiled step over the measured one")
    changed: str | None = Field(description="what is not as it was when the setting was measured")
    operators: tuple[OperatorTime, ...] = Field(description="the operators that take longest, each by itself")
    modules: tuple[ModuleTime, ...] = Field(description="the modules that take longest, each by itself")
    folder: str = Field(description="the folder of trace.json.gz and profile.json, which has all rows")
    against: str | None = Field(description="the setting that the differences are to")
    operator_differences: tuple[PartDifference, ...] = Field(description="operators whose times differ")
    module_differences: tuple[PartDifference, ...] = Field(description="modules whose times differ")


class ProfileAnswer(Answer):
    """`accelsweep profile NAME SETTING --json`: where the time of a step goes, in one setting or in two."""

    kind: ClassVar[str] = "profile"

    sweep: str = Field(description="the sweep's name")
    settings: tuple[ProfiledSetting, ...] = Field(description="the settings, in the order that was asked for")
    report: str = Field(description="the page of the report, which shows the profiles too")
