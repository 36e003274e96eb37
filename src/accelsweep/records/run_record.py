"""The record of a run: immutable, versioned, written once, validated on read."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from accelsweep.config.schema import Config
from accelsweep.devices.memory_limits import MemoryLimit
from accelsweep.errors import DamagedFile
from accelsweep.files import sha256_file
from accelsweep.json_documents import Document, Frozen
from accelsweep.metrics import Metric
from accelsweep.results import (
    KNOWN_WITHOUT_RATE,
    Breakdown,
    Doubt,
    Effective,
    Fingerprint,
    LearningCurve,
    Outcome,
    Traits,
)
from accelsweep.run_environment import Checkout, RunEnvironment

SEARCH_CONFIDENCE = 0.95
"""The confidence level of each interval in a batch-size search."""


class Trial(Frozen):
    """One batch size that was tried.

    `peak_bytes` is the highest peak memory of any rank; None if the batch did not fit or the peak is unknown.
    """

    batch_size: int
    fits: bool
    seconds: float
    peak_bytes: int | None = None
    reason: str | None = None


class Coefficient(Frozen):
    """A coefficient, in bytes, of the line fitted to peak memory; `reason` explains a missing value or interval."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class LargestBatch(Frozen):
    """The result of a batch-size search.

    `largest` fits and `too_large` does not; `too_large` is None if even `measure.max_batch` fits. `headroom` is the
    fraction of the free memory that was held in reserve, leaving each rank `limit_bytes` under the tightest `limit`.
    `rows` is the number of training-set rows across all ranks; None if the training set has no length.
    """

    largest: int
    too_large: int | None
    limit: MemoryLimit
    limit_bytes: int | None
    headroom: float
    trials: tuple[Trial, ...]
    bytes_per_sample: Coefficient
    fixed_bytes: Coefficient
    rows: int | None = None


class EarlierAttempt(Frozen):
    """An attempt at a run that its record does not describe, and why it was not the last one.

    `position` and `wall_seconds` are as in `Record`; None if the attempt left no record.
    """

    attempt: int
    reason: str
    position: int | None = None
    started_at: str | None = None
    wall_seconds: float | None = None


class NetworkFamily(StrEnum):
    """A network family, named after the modules that do most of the work."""

    convolution = "convolutions"
    depthwise = "depthwise convolutions"
    hybrid = "convolutions and attention"
    attention = "attention"
    dense = "dense layers"
    recurrent = "recurrent"


def now() -> str:
    """Return the current time in UTC (ISO 8601), to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Record(Document):
    """All data about one run.

    `metrics` maps names that include unit and scope (`samples_per_second`, `host_pss_bytes`) to their values or the
    reasons why these are missing. `environment` contains the state of the machine `before` and `after` the run. Times
    are in UTC, in ISO 8601 format. `breakdown` is None if there was no probe pass; `steps_sha256` is the checksum of
    `steps.parquet`; None if there is no such file. `traits` contains the counts taken during a forward pass, or the
    reason why there are none. `largest_batch` is the result of a batch-size search; None for other runs. `files` maps
    the files that the user's own script had read, relative to the working directory, to what identifies their contents.
    `learning` is the curve of the quality phase, or of the training to a target; None if there was neither.

    `planned_position` is the run's index in its block's order. `position` counts the attempts that the block had made
    before, so it is larger if a run was measured again. `earlier_attempts` are listed in order, and `waited_seconds` is
    how long the last attempt waited for others to stop using the machine.
    """

    kind: ClassVar[str] = "record"

    sweep: str
    block: str
    run: str
    setting: str
    repeat: int
    seed: int
    planned_position: int
    position: int
    attempt: int
    axes: dict[str, Any]
    config: Config
    outcome: Outcome
    reason: str | None
    started_at: str
    finished_at: str
    wall_seconds: float
    effective: Effective | None
    metrics: dict[str, Metric]
    fingerprint: Fingerprint
    environment: dict[str, dict[str, Any]]
    git: dict[str, Any]
    doubts: tuple[Doubt, ...]
    breakdown: Breakdown | None = None
    steps_sha256: str | None = None
    traits: Traits | str | None = None
    largest_batch: LargestBatch | None = None
    files: dict[str, str] = Field(default_factory=dict)
    learning: LearningCurve | None = None
    earlier_attempts: tuple[EarlierAttempt, ...] = ()
    waited_seconds: float = 0.0

    @model_validator(mode="after")
    def _reason_for_every_failure(self) -> Record:
        if self.outcome in (Outcome.decided, Outcome.not_run):
            raise ValueError(f"{self.outcome} is derived by collect, never recorded")
        if (self.outcome is Outcome.measured) != (self.reason is None):
            raise ValueError("every outcome except `measured` must have a reason, and `measured` must not")
        return self

    def value(self, metric: str) -> float | None:
        """The metric's value; None if the run was not measured or the metric has no value."""
        if self.outcome is not Outcome.measured or metric not in self.metrics:
            return None
        return self.metrics[metric].value

    @property
    def disturbance(self) -> str | None:
        """What disturbed the window, if that is known without the rate; None if nothing did."""
        messages = (doubt.message for doubt in self.doubts if doubt.code in KNOWN_WITHOUT_RATE)
        return next(messages, None) if self.outcome is Outcome.measured else None

    @property
    def total_seconds(self) -> float:
        """The seconds that the run took, including earlier attempts and waits."""
        earlier = math.fsum(attempt.wall_seconds or 0.0 for attempt in self.earlier_attempts)
        return earlier + self.waited_seconds + self.wall_seconds

    def as_earlier_attempt(self, *, reopened: bool = False) -> EarlierAttempt:
        """Return this attempt as listed by a later one; `reopened` means that a user asked for that."""
        disturbance = self.disturbance
        if reopened:
            reason = "measured again at the user's request"
        elif disturbance is not None:
            reason = f"disturbed: {disturbance}"
        elif self.outcome.settled:
            reason = "software, devices or code changed"
        else:
            reason = f"{self.outcome}: {self.reason}"
        return EarlierAttempt(
            attempt=self.attempt,
            reason=reason,
            position=self.position,
            started_at=self.started_at,
            wall_seconds=self.wall_seconds,
        )

    @property
    def surroundings(self) -> RunEnvironment:
        """`environment` with typed attributes."""
        return RunEnvironment(self.environment)

    @property
    def checkout(self) -> Checkout:
        """`git` with typed attributes."""
        return Checkout.of(self.git)


def steps_damage(record: Record, steps: Path) -> DamagedFile | None:
    """Check the raw steps at `steps` against the checksum in `record`; return the damage, or None."""
    if record.steps_sha256 is None:
        return None
    try:
        intact = sha256_file(steps) == record.steps_sha256
    except FileNotFoundError:
        return DamagedFile(steps, "it is missing")
    except DamagedFile as error:
        return error
    return None if intact else DamagedFile(steps, "its contents do not match the checksum in its record")


DOUBT_DESCRIPTIONS = {
    "bad_teardown": "a run did not end cleanly",
    "baseline_drift": "the baseline drifted",
    "build_differs": "builds differ",
    "busy_cpu": "other work kept the processor busy",
    "clock_gap": "the machine slept while timing, or its clock was set",
    "cpu_governor": "the processor's clock depends on the load",
    "epoch_boundary": "the training data restarted while timing",
    "few_repeats": "few repeats",
    "fixed_seed": "all repeats trained with the script's own seed",
    "float32_baseline": "the float32 baseline does not use TF32",
    "foreign_process": "other processes used the device",
    "input_bound": "the training waits for data",
    "load_refused": "some repeats missed the latency bound at every load level",
    "memory_grows": "memory grew while timing",
    "missing_repeats": "some repeats are missing",
    "mixed_hosts": "several machines",
    "no_steps": "individual steps were not stored",
    "noisy_baseline": "the baseline is noisier than the rest",
    "optimizer_batch": "optimiser steps used a different batch size than requested",
    "other_matmul_precision": "matrix products had another precision than requested",
    "other_precision": "the script computed in another precision than the setting asks for",
    "other_threads": "the script computed with another number of threads than the run was given",
    "outlier": "one repeat is an outlier",
    "page_faults": "data was read from disk while timing",
    "pauses": "the script paused for much of the time",
    "power_capped": "the device was at its power limit",
    "processes_stopped": "all processes were idle while timing",
    "recompiled": "graphs were compiled while timing",
    "separate_ranks": "the ranks of a script may train separate models, because no wrapper exchanges gradients",
    "shared_timing": "two runs were timed at once",
    "short_window": "the timed window was short",
    "sources_changed": "sources changed during a run",
    "sources_differ": "sources differ",
    "stall": "a step took far longer than the others",
    "swap": "the machine swapped while timing",
    "target_missed": "some repeats missed the target",
    "temperature_drift": "the device warmed up while timing",
    "threads_differ": "repeats had different numbers of threads",
    "throttled": "the device was throttled",
    "two_levels": "the rate has two levels",
    "uneven_noise": "the setting is noisier than the rest",
    "unlike_nodes": "compared across different nodes",
    "unpaired": "compared without common blocks",
    "unsteady_window": "speed changed while timing",
}
"""The description of each doubt that accelsweep may add, keyed by code."""


def doubt_description(doubt: Doubt) -> str:
    """Describe a doubt in a few words; for an unknown code, return the code itself with spaces."""
    return DOUBT_DESCRIPTIONS.get(doubt.code, doubt.code.replace("_", " "))
