"""The answer of `accelsweep status`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from accelsweep.answers.forms.answer import Answer, AnswerPart
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt


class HeadAtWork(AnswerPart):
    """A process that works on a sweep."""

    host: str = Field(description="the machine's name")
    pid: int = Field(description="the process' number there")
    since: str = Field(description="when it began")


class DetachedHeadState(AnswerPart):
    """The head that was handed over last."""

    place: str = Field(description="`slurm`, `systemd` or `tmux`")
    name: str = Field(description="its job, unit or session there")
    host: str = Field(description="the machine that handed it over")
    since: str = Field(description="when it was handed over")
    state: str | None = Field(description="what holds it, or why nobody knows; null where it is gone")
    code: int | None = Field(description="its exit code, null until it ends")


class BlockAtWork(AnswerPart):
    """A block with a supervisor, or with one that ended without giving it back."""

    block: str = Field(description="the block's name")
    alive: bool = Field(description="whether the supervisor lives")
    host: str = Field(description="the machine's name")
    pid: int = Field(description="the supervisor's process there")
    job: str | None = Field(description="its job on the cluster")
    since: str = Field(description="when it began")
    run: str | None = Field(description="the run that it measures")
    label: str | None = Field(description="that run's setting in words")
    run_since: str | None = Field(description="when that run began")
    step: int | None = Field(description="the steps that the run has done")


class JobInQueue(AnswerPart):
    """A job of the sweep in a cluster's queue."""

    number: str = Field(description="the job's number")
    block: str = Field(description="the block that it measures")
    state: str = Field(description="the engine's word for its state")
    reason: str = Field(description="why it waits")
    nodes: str = Field(description="where it runs, empty until it does")
    elapsed: str = Field(description="for how long it has run")


class RunDoubt(AnswerPart):
    """A doubt of one run."""

    run: str = Field(description="the run's name")
    label: str = Field(description="its setting in words")
    repeat: int = Field(description="its number among the runs of its setting, from 0")
    doubt: Doubt = Field(description="the doubt")


class SweepState(AnswerPart):
    """A sweep at one moment."""

    sweep: str = Field(description="the sweep's name")
    revision: int = Field(description="the number of its plan")
    planned: int = Field(description="the runs that the plan wants")
    settled: int = Field(description="those of them that have an answer")
    remaining: int = Field(description="the others")
    outcomes: dict[Outcome, int] = Field(description="how many runs ended how")
    seconds_left: float | None = Field(description="about how long the remaining runs take")
    head: HeadAtWork | None = Field(description="the `accelsweep run` that drives it now")
    detached: DetachedHeadState | None = Field(description="the head that was handed over, if one was")
    running: tuple[BlockAtWork, ...] = Field(description="the blocks that are being measured")
    jobs: tuple[JobInQueue, ...] | None = Field(description="its jobs on a cluster, null where no queue was asked")
    jobs_reason: str | None = Field(description="why the queue was not asked")
    kept: dict[str, int] = Field(description="why runs have no record, and how many")
    doubts: tuple[RunDoubt, ...] = Field(description="the last few doubts")
    damaged: tuple[str, ...] = Field(description="records that cannot be read, and why")
    recommendation: str | None = Field(description="the headline of its report")
    report: str | None = Field(description="the path of its report")
    report_outdated: bool = Field(description="whether runs or plan have changed since the report")


class UnplannedHead(AnswerPart):
    """A head that was handed over and has no plan under its name: that of claims, or of a sweep that searches first."""

    sweep: str = Field(description="the name under which it can be followed")
    detached: DetachedHeadState = Field(description="the head")


class UnreadableSweep(AnswerPart):
    """A sweep whose plan cannot be read."""

    sweep: str = Field(description="the sweep's name")
    why: str = Field(description="the fault, and where there is one, its remedy")


class StatusAnswer(Answer):
    """`accelsweep status --json`: the state of one sweep, or of all sweeps of the folder."""

    kind: ClassVar[str] = "status"

    sweeps: tuple[SweepState, ...] = Field(description="the sweeps, in alphabetical order")
    unreadable: tuple[UnreadableSweep, ...] = Field(description="sweeps that cannot be read; then the exit code is 1")
    unplanned: tuple[UnplannedHead, ...] = Field(description="heads that were handed over and have no plan")
