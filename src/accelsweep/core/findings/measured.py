"""The knowledge of one setting on one kind of machine: its runs, its rate, its costs, and why to doubt them."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_serializer, field_validator

from accelsweep.base.digits import part_of
from accelsweep.base.documents import Frozen
from accelsweep.core.cells.accelerators import words_for
from accelsweep.core.findings.numbers import Estimate, Speedup, Summary, Verdict
from accelsweep.core.recorded.outcome import Outcome
from accelsweep.core.recorded.record import Doubt, Effective


class RunPoint(Frozen):
    """One planned run as figures show it. `rate` (in `Findings.rate_unit`) is None unless the run was measured.

    `ratio` is that rate over the baseline's in the same block, or over its mean where they share none, or None.
    """

    run: str
    repeat: int
    block: str
    position: int | None
    outcome: Outcome
    reason: str | None
    rate: float | None
    quality: float | None
    started_at: str | None
    doubts: tuple[Doubt, ...] = ()
    ratio: float | None = None


class StepBottleneck(Frozen):
    """The time of a cell's steps by part: `shares` by `core.recorded.breakdown.PARTS`, means over `count` runs."""

    verdict: str
    evidence: str
    shares: dict[str, float]
    count: int


class CellFinding(Frozen):
    """All that is known of one cell on one kind of machine; `hardware` names that kind, None where nothing ran.

    A cell that was measured on machines of two kinds has two findings. `rate` is the compared metric, with its unit.
    `quality_difference` is its quality minus the baseline's, paired by seed. `memory_share` is its memory over that of
    the machine or the device, None where the inventory does not state that. `again` is the command that measures this
    setting alone, `trainer` the call of Lightning's Trainer; None where there is none. `costs` maps `usd_per_hour`,
    `usd_per_million_samples`, `usd_per_epoch`, `usd_per_result`, `joules_per_sample`, `co2_grams_per_million_samples`
    to their values; a cost without a price or a reading is absent, never 0. `measured` counts runs, also those without
    a rate because they missed their target; `time_to_target` is that of the runs that reached it.
    """

    cell: str
    label: str
    axes: dict[str, Any]
    hardware: str | None
    planned: int
    measured: int
    outcomes: dict[Outcome, int]
    reasons: tuple[str, ...]
    rate: Estimate | None
    speedup: Speedup | None
    verdict: Verdict
    verdict_reason: str
    quality: Estimate | None
    quality_verdict: str
    metrics: dict[str, Summary]
    effective: Effective | None
    doubts: tuple[Doubt, ...]
    runs: tuple[RunPoint, ...]
    quality_difference: Estimate | None = None
    costs: dict[str, Estimate] = Field(default_factory=dict)
    bottleneck: StepBottleneck | None = None
    time_to_target: Estimate | None = None
    memory_share: float | None = None
    again: str | None = None
    trainer: str | None = None

    @field_validator("effective", mode="before")
    @classmethod
    def _none_measured(cls, written: Any) -> Any:
        return None if written == {} else written

    @field_serializer("effective")
    def _as_written(self, effective: Effective | None) -> dict[str, Any]:
        """Return the settings as files hold them: nothing measured is no key at all, as the first version wrote it."""
        return {} if effective is None else effective.model_dump(mode="json")

    @property
    def ratio(self) -> Estimate | None:
        """The ratio to the baseline; None for the baseline itself, and where there is no comparison."""
        return None if self.speedup is None else self.speedup.ratio

    @property
    def accelerator(self) -> str | None:
        """The kind of device that was really used; None where nothing was measured."""
        return None if self.effective is None else self.effective.accelerator

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names of the devices that were really used."""
        return () if self.effective is None else self.effective.device_names

    @property
    def world_size(self) -> int:
        """The ranks that were really there."""
        return 1 if self.effective is None else self.effective.world_size

    @property
    def num_nodes(self) -> int:
        """The nodes that these ranks were on."""
        return 1 if self.effective is None else self.effective.num_nodes

    @property
    def memory_words(self) -> str:
        """The share of memory as prose: `1 % of the machine`, `15 % of the device`. Empty where it is not known."""
        if self.memory_share is None:
            return ""
        return part_of(self.memory_share, "device" if words_for(self.accelerator).own_memory else "machine")


class Hardware(Frozen):
    """One group of equal machines."""

    name: str
    details: dict[str, str]
