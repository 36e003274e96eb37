"""The answer of `accelsweep plan`."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from accelsweep.cli.json_output import Answer, AnswerPart
from accelsweep.schedulers.protocol import Resources


class PlannedSetting(AnswerPart):
    """A setting that can run."""

    cell: str = Field(description="the setting's name in files")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    baseline: bool = Field(description="whether speed-ups are relative to it")
    wanted: int = Field(description="the runs that the plan wants of it")
    settled: int = Field(description="those of them that have an answer already")


class NotPlanned(AnswerPart):
    """A setting that is not going to run."""

    cell: str | None = Field(description="the setting's name in files, null for one that a rule dropped")
    label: str = Field(description="the setting in words")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    reason: str = Field(description="why it does not run")


class BlockInPlan(AnswerPart):
    """A block of runs that share one allocation."""

    block: str = Field(description="the block's name")
    new: bool = Field(description="whether this plan adds it")
    runs: int = Field(description="its runs that the plan wants")
    settled: int = Field(description="those of them that have an answer already")
    resources: Resources = Field(description="what it needs of a machine or cluster")


class PlannedRange(AnswerPart):
    """An amount that nobody knows before the runs have ended."""

    least: float = Field(description="that of the measuring windows alone")
    expected: float = Field(description="the amount to reckon with")
    most: float = Field(description="what time limits and second tries allow")


class PlannedTime(AnswerPart):
    """The time and the cost of the runs that are left."""

    runs_left: int = Field(description="the runs without an answer")
    minutes: PlannedRange = Field(description="their time, one after another")
    gpu_hours: PlannedRange = Field(description="that time, times the GPUs that are kept from others")
    usd: PlannedRange | None = Field(description="their cost, null where a price is missing")
    usd_reason: str | None = Field(description="why there is no cost")
    basis: str = Field(description="what the expected amounts rest on")


class PlannedEffect(AnswerPart):
    """The smallest difference that the plan's repeats can show."""

    effect: float | None = Field(description="the smallest true gain in rate that is found four times out of five")
    assumption: str = Field(description="the noise that this supposes")
    reason: str | None = Field(description="why there is none")


class PlanAnswer(Answer):
    """`accelsweep plan --json`: what `accelsweep run` with the same arguments would measure."""

    kind: ClassVar[str] = "plan"

    sweep: str = Field(description="the sweep's name")
    revision: int = Field(description="the number that this plan has, or would get")
    cells: tuple[PlannedSetting, ...] = Field(description="the settings that can run, in grid order")
    unsupported: tuple[NotPlanned, ...] = Field(description="settings that cannot run here")
    excluded: tuple[NotPlanned, ...] = Field(description="settings that a rule of the experiment drops")
    blocks: tuple[BlockInPlan, ...] = Field(description="the blocks, in the order in which they were planned")
    wanted: int = Field(description="the runs that the plan wants")
    settled: int = Field(description="those of them that have an answer already")
    estimate: PlannedTime = Field(description="what the rest will take")
    visible_effect: PlannedEffect = Field(description="what the repeats can show")
    notes: tuple[str, ...] = Field(description="what the user should know of this plan")
    warnings: tuple[str, ...] = Field(description="others that would disturb the runs now")
