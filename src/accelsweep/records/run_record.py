"""The record of a run. Frozen, versioned, written once, atomically, validated on read."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, SerializerFunctionWrapHandler, WrapSerializer, model_validator

from accelsweep.config.schema import Config
from accelsweep.devices.memory_limits import MemoryLimit
from accelsweep.errors import DamagedFile
from accelsweep.files import sha256_file
from accelsweep.json_documents import Document, Frozen
from accelsweep.metrics import Metric
from accelsweep.results import Breakdown, Doubt, Effective, Fingerprint, Outcome, Traits
from accelsweep.run_environment import Checkout, RunEnvironment

SEARCH_CONFIDENCE = 0.95
"""Of the intervals of a search, each by itself."""


class Try(Frozen):
    """One batch size that was tried. `peak_bytes` is that of the fullest rank; None where too large, or not known."""

    batch_size: int
    fits: bool
    seconds: float
    peak_bytes: int | None = None
    reason: str | None = None


class Coefficient(Frozen):
    """A coefficient of the line through the peaks, in bytes; without a value, or an interval, it has a reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


class Frontier(Frozen):
    """The result of a search. `largest` fits, `too_large` does not; it is None where `measure.max_batch` fits too.

    `headroom` is the share of the free memory that was kept free. It left `limit_bytes` to each rank, by the tightest
    `limit`. `rows` are those of the training set on all ranks, None where it has no length.
    """

    largest: int
    too_large: int | None
    limit: MemoryLimit
    limit_bytes: int | None
    headroom: float
    tries: tuple[Try, ...]
    bytes_per_sample: Coefficient
    fixed_bytes: Coefficient
    rows: int | None = None


class NetworkFamily(StrEnum):
    """A kind of network, named by the modules that do most of its work."""

    convolution = "convolutions"
    depthwise = "depthwise convolutions"
    hybrid = "convolutions and attention"
    attention = "attention"
    dense = "dense layers"
    recurrent = "recurrent"


def now() -> str:
    """Return the present time in UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _without_empty_links(fingerprint: Fingerprint, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    written: dict[str, Any] = handler(fingerprint)
    if not written["links"]:
        del written["links"]
    return written


RecordedFingerprint = Annotated[Fingerprint, WrapSerializer(_without_empty_links)]


class Record(Document):
    """All data of one run.

    `metrics` maps names that carry unit and scope (`samples_per_second`, `host_pss_bytes`) to their values or reasons.
    `environment` holds the state of the machine `before` and `after`. Times are UTC in ISO 8601. `breakdown` is None
    where no probe pass ran; `steps_sha256` is that of `steps.parquet`, None without one and in old records. `traits`
    are the counts of a forward pass, or the reason why there are none; None in old records. `frontier` is what a search
    for the largest batch found, None in any other run.
    """

    kind: ClassVar[str] = "record"

    sweep: str
    block: str
    run: str
    setting: str
    repeat: int
    seed: int
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
    fingerprint: RecordedFingerprint
    environment: dict[str, dict[str, Any]]
    git: dict[str, Any]
    doubts: tuple[Doubt, ...]
    breakdown: Breakdown | None = None
    steps_sha256: str | None = None
    traits: Traits | str | None = Field(default=None, exclude_if=lambda traits: traits is None)
    frontier: Frontier | None = Field(default=None, exclude_if=lambda frontier: frontier is None)

    @model_validator(mode="after")
    def _reason_for_every_failure(self) -> Record:
        if self.outcome is Outcome.not_run:
            raise ValueError("not_run is derived by collect, never recorded")
        if (self.outcome is Outcome.measured) != (self.reason is None):
            raise ValueError("every outcome but `measured` has a reason, and `measured` has none")
        return self

    @property
    def surroundings(self) -> RunEnvironment:
        """The `environment`, read by attribute."""
        return RunEnvironment(self.environment)

    @property
    def checkout(self) -> Checkout:
        """The `git`, read by attribute."""
        return Checkout.of(self.git)


def steps_damage(record: Record, steps: Path) -> DamagedFile | None:
    """Return the damage of the file of raw steps that `record` seals, or None if the file is unchanged."""
    if record.steps_sha256 is None:
        return None
    try:
        whole = sha256_file(steps) == record.steps_sha256
    except FileNotFoundError:
        return DamagedFile(steps, "it is missing")
    except DamagedFile as error:
        return error
    return None if whole else DamagedFile(steps, "its contents do not match the checksum in its record")


WORDS = {
    "bad_teardown": "a run did not end well",
    "baseline_drift": "the baseline drifted",
    "build_differs": "builds differ",
    "busy_cpu": "other work kept the processor busy",
    "clock_gap": "the machine slept while timing, or its clock was set",
    "cpu_governor": "the processor's clock follows the load",
    "epoch_boundary": "the data began again while timing",
    "few_repeats": "few repeats",
    "fewer_repeats": "some repeats are missing",
    "foreign_process": "other processes used the device",
    "load_refused": "some repeats kept the latency at no load",
    "memory_grows": "memory grew while timing",
    "mixed_hosts": "several machines",
    "no_steps": "the single steps were not kept",
    "noisy_baseline": "the baseline is noisier than the rest",
    "optimizer_batch": "optimiser steps held another batch than was asked for",
    "outlier": "one repeat lies far from the others",
    "page_faults": "data came from disk while timing",
    "power_capped": "the device was at its power limit",
    "processes_stopped": "all processes stood still while timing",
    "shared_timing": "two runs were timed at once",
    "short_window": "the timed window was short",
    "sources_changed": "sources changed during a run",
    "sources_differ": "sources differ",
    "stall": "a step took far longer than the others",
    "swap": "the machine swapped while timing",
    "target_missed": "some repeats missed the target",
    "temperature_drift": "the device warmed up while timing",
    "threads_differ": "repeats had different numbers of threads",
    "throttled": "the device was slowed down",
    "two_levels": "the rate has two levels",
    "uneven_noise": "it is noisier than the rest",
    "unpaired": "compared without common blocks",
    "unlike_nodes": "compared across unlike nodes",
    "unsteady_window": "speed changed while timing",
}
"""Code -> words, for each doubt that accelsweep raises."""


def doubt_in_words(doubt: Doubt) -> str:
    """Return a doubt in a few words; one that this version does not know is its code with blanks."""
    return WORDS.get(doubt.code, doubt.code.replace("_", " "))
