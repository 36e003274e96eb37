"""The record of a run. Frozen, versioned, written once, atomically, validated on read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from accelsweep.base.documents import Document, Frozen, sha256_file
from accelsweep.base.errors import DamagedFile
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.recorded.breakdown import Breakdown
from accelsweep.core.recorded.frontier import Frontier
from accelsweep.core.recorded.hardware import HardwareKind
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.surroundings import Checkout, Surroundings
from accelsweep.core.recorded.traits import Traits


def now() -> str:
    """Return the present time in UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Metric(Frozen):
    """One measured number with its unit, or the reason why there is none. Never 0 for "unknown".

    `scope` names the part that the number covers (`GPU board`, `CPU package`, `process group`), `provenance` its source
    (`counter`, `integrated`, `modelled`, `clock`, `device events`).
    """

    value: float | None
    unit: str
    reason: str | None = None
    scope: str | None = None
    provenance: str | None = None

    @model_validator(mode="after")
    def _value_or_reason(self) -> Metric:
        if (self.value is None) == (self.reason is None):
            raise ValueError("a metric has either a value or the reason why it has none")
        return self


DISTURBING = frozenset({"busy_cpu", "clock_gap", "foreign_process", "processes_stopped", "swap", "throttled"})
"""Doubts of a disturbed window: others used the machine too, the device was held back, or the run was halted."""


class Doubt(Frozen):
    """A machine-found reason to distrust a number. It travels with the number everywhere.

    `code` is stable and short (`throttled`, `short_window`); `remedy` says how to avoid it.
    """

    code: str
    message: str
    remedy: str

    @property
    def disturbing(self) -> bool:
        """Whether others, or the device's limits, took part in the measurement."""
        return self.code in DISTURBING


class Effective(Frozen):
    """The settings that were really in force, read back from Lightning and torch rather than from the config.

    `global_batch_size` is how many samples an optimiser step of the window held, on all ranks. It is None where the
    steps differ in more than their short batches, or where there was none: the doubt `optimizer_batch` says which.
    """

    accelerator: str
    device_names: tuple[str, ...]
    world_size: int
    num_nodes: int
    precision: str
    strategy: str
    loop: str
    launcher: str
    threads_per_rank: int
    batch_size: int
    global_batch_size: int | None
    warmup_steps: int
    window_steps: int
    optimizer: str
    deterministic: bool = False
    matmul_precision: str = "highest"


class Fingerprint(Frozen):
    """The hardware, software and sources that must be equal for an old record to stand for a new run.

    `hardware` is device model, driver and host model. `software` holds the public versions of torch and lightning;
    their build tags are in `builds`. `sources` are the digests of the user's own packages. `links` says where the
    symbolic links in the config's paths led, by key: what lies behind the same path may be another disk. It is empty
    where no path goes through a link.
    """

    hardware: dict[str, str]
    software: dict[str, str]
    builds: dict[str, str]
    sources: dict[str, str]
    links: dict[str, str] = Field(default_factory=dict, exclude_if=lambda links: not links)

    @property
    def hardware_kind(self) -> HardwareKind:
        """The `hardware` as one kind, to compare and to name."""
        return HardwareKind.of(self.hardware)

    def matches(self, other: Fingerprint) -> bool:
        """Return whether two fingerprints are equal in everything but the build tags."""
        mine, theirs = self.model_dump(exclude={"builds"}), other.model_dump(exclude={"builds"})
        return bool(mine == theirs)


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
    cell: str
    repeat: int
    seed: int
    position: int
    attempt: int
    axes: dict[str, Any]
    config: CellConfig
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
    def surroundings(self) -> Surroundings:
        """The `environment`, read by attribute."""
        return Surroundings(self.environment)

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
