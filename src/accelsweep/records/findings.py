"""Findings: every number that a reader sees, rounded once, with its interval, its verdict and its doubts.

The report and MLflow's aggregates only format these numbers. `None` always comes with a reason beside it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from pydantic import Field, SerializeAsAny, field_serializer, field_validator
from pydantic_core import to_jsonable_python

from accelsweep import registry
from accelsweep.config.prices import PriceUsed
from accelsweep.devices.kinds import kind_or_unknown
from accelsweep.json_documents import Document, Frozen
from accelsweep.records.estimates import Estimate, Speedup, Summary, Verdict
from accelsweep.records.plan import Excluded, Manifest
from accelsweep.results import Doubt, Effective, Outcome
from accelsweep.significant_digits import percent_of

# The knowledge of one setting on one kind of machine: its runs, its rate, its costs, and why to doubt them.


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
    """The time of a setting's steps by part: `shares` by `results.PARTS`, means over `count` runs."""

    verdict: str
    evidence: str
    shares: dict[str, float]
    count: int


class SettingFinding(Frozen):
    """All that is known of one setting on one kind of machine; `hardware` names that kind, None where nothing ran.

    A setting that was measured on machines of two kinds has two findings. `rate` is the compared metric, with its unit.
    `quality_difference` is its quality minus the baseline's, paired by seed. `memory_share` is its memory over that of
    the machine or the device, None where the inventory does not state that. `again` is the command that measures this
    setting alone, `trainer` the call of Lightning's Trainer; None where there is none. `costs` maps `usd_per_hour`,
    `usd_per_million_samples`, `usd_per_epoch`, `usd_per_result`, `joules_per_sample`, `co2_grams_per_million_samples`
    to their values; a cost without a price or a reading is absent, never 0. `measured` counts runs, also those without
    a rate because they missed their target; `time_to_target` is that of the runs that reached it.
    """

    setting: str
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
        return {} if effective is None else to_jsonable_python(effective)

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
        return percent_of(self.memory_share, "device" if kind_or_unknown(self.accelerator).own_memory else "machine")


class Hardware(Frozen):
    """One group of equal machines."""

    name: str
    details: dict[str, str]


# The advice: which setting to choose, how sure that is, and what would settle it.


class Choice(Frozen):
    """A setting worth choosing, why, and how it compares, in words whose numbers stand in the setting's finding.

    `hardware` tells apart the findings of a setting that was measured on several kinds of it.
    """

    setting: str
    title: str
    sentence: str
    hardware: str | None = None

    def chooses(self, finding: SettingFinding) -> bool:
        """Return whether this is the chosen setting, on the chosen hardware."""
        return finding.setting == self.setting and self.hardware in (None, finding.hardware)


class Certainty(StrEnum):
    """The trust that a headline deserves: one word beside it."""

    sure = "sure"
    not_told_apart = "not told apart"
    not_yet = "not yet"
    disturbed = "disturbed"


class Recommendation(Frozen):
    """The advice. `settle` is the command that would settle open questions, or None where there are none.

    `headline` is the answer in at most twelve words, and `detail` what belongs beside it; `sentence` is both.
    `settle_blocks` is the number of blocks that the command adds, 0 where it adds none. `settle_minutes` is their
    estimated time by the wall times of the runs so far, or None.
    """

    choice: Choice | None
    sentence: str
    alternatives: tuple[Choice, ...]
    settle: str | None
    settle_blocks: int = 0
    settle_minutes: float | None = None
    headline: str = ""
    detail: str = ""
    certainty: Certainty = Certainty.not_yet

    @property
    def alternatives_title(self) -> str:
        """The heading of the alternatives: on several kinds of hardware, they are the advice on each."""
        each = self.choice is None or any(one.title == f"On {one.hardware}" for one in self.alternatives)
        return "On each kind of hardware" if each else "Alternatives"


# Settings in an order: over devices and over batch sizes.


class ScalingPoint(Frozen):
    """A setting against the same setting on the fewest devices: `efficiency` is the speed-up over the device ratio.

    It is None where no device was added: ranks on one processor share its cores, one machine is cut into more parts.
    """

    series: str
    kind: str
    setting: str
    devices: int
    speedup: Estimate
    efficiency: Estimate | None


class LawForm(StrEnum):
    """The conclusion from a scaling law's intervals: which of its two numbers are told apart from 0, or why none is."""

    ideal = "not told apart from ideal scaling"
    amdahl = "Amdahl's law"
    universal = "universal law"
    beyond = "better than ideal scaling"
    undecided = "undecided"
    disturbed = "disturbed"


class DeviceCount(Frozen):
    """A whole number of devices by a law, with its interval; None where the law has no such end."""

    value: int | None
    low: int | None
    high: int | None


class ScalingLaw(Frozen):
    """Gunther's universal scalability law of a scaling series: rate = n / (1 + s (n - 1) + k n (n - 1)), times one's.

    `contention` is s, `coherency` is k, `devices` are the numbers of devices that were measured. `pays` is the last
    device that adds at least half of what one alone does. `peak` is the number beyond which the rate falls. Both are
    None, with the `reason`, where `form` forbids to conclude. `misfit` is the largest relative distance of a mean rate
    from the law, and `speedups` are the law's own, over the fewest of the `devices`.
    """

    series: str
    kind: str
    devices: tuple[int, ...]
    form: LawForm
    contention: Estimate
    coherency: Estimate
    misfit: float
    speedups: tuple[float, ...]
    pays: DeviceCount | None = None
    peak: DeviceCount | None = None
    reason: str = ""


class BatchCurve(Frozen):
    """Settings that differ in batch size only, smallest first: where the rate stops to grow, and where memory ends.

    `knee` is the setting with the smallest batch that reaches 95 % of the series' best rate; `largest_measured` and
    `smallest_out_of_memory` are batch sizes per device. All three are None where the series does not show them.
    """

    series: str
    hardware: str | None
    settings: tuple[str, ...]
    knee: str | None
    largest_measured: int | None
    smallest_out_of_memory: int | None


class Origin(Frozen):
    """The origin of the numbers, for one glance; several values of one fact stand side by side.

    `model` and `data` are names of classes, `commits` short ones of the user's repository (empty without one).
    `changed` says whether it had local changes, None where that is not known. `threads` are usable ones of a machine,
    `memory_bytes` is its memory. `dates` are the first and the last day of a measurement, in UTC.
    """

    model: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    commits: tuple[str, ...] = ()
    changed: bool | None = None
    dates: tuple[str, ...] = ()


class Section(Frozen):
    """The part of the findings that a feature brings (`registry.Section`)."""

    compares_nodes: ClassVar[bool] = False
    """Whether the sweep compares nodes, so that several of them are no reason to doubt it."""

    def recommendation(self, manifest: Manifest) -> Recommendation | None:  # noqa: ARG002 - the usual one
        """Return the recommendation in place of the usual one, or None."""
        return None


_Section = TypeVar("_Section", bound=Section)


class Findings(Document):
    """All numbers of one sweep's report.

    `rate_metric` names the metric that settings are compared by, `rate_unit` its unit. `family` is the number of ratios
    whose intervals hold together. `pareto` names the settings that no other beats in all of `pareto_objectives`.
    `costs_note` says why there are no costs, None where there are some. `prices` are those that the costs were computed
    with, `cost_gaps` says which costs no record of this sweep can give. `merged` names the sweeps that these findings
    were made of, where there are several; runs are then named SWEEP/RUN. `looks` are the numbers of blocks after which
    verdicts decided about more of them, empty where the number was fixed. `sections` are those of features, by the
    feature's name. `laws` are those of the scaling series with enough numbers of devices.
    """

    kind: ClassVar[str] = "findings"

    sweep: str
    revision: int
    experiment: str | None
    overrides: tuple[str, ...]
    command: str
    axes: tuple[str, ...]
    baseline: str | None
    threshold: float
    confidence: float
    family: int
    quality_metric: str | None
    quality_better: str | None
    repeats: int
    planned_runs: int
    outcomes: dict[Outcome, int]
    smallest_visible_effect: float | None
    hardware: tuple[Hardware, ...]
    settings: tuple[SettingFinding, ...]
    excluded: tuple[Excluded, ...]
    refusals: tuple[str, ...]
    doubts: tuple[Doubt, ...]
    scaling: tuple[ScalingPoint, ...]
    recommendation: Recommendation
    environment: dict[str, str]
    records_sha256: str
    pareto: tuple[str, ...] = ()
    pareto_objectives: tuple[str, ...] = ()
    batch_curves: tuple[BatchCurve, ...] = ()
    costs_note: str | None = None
    cost_gaps: tuple[str, ...] = ()
    prices: tuple[PriceUsed, ...] = ()
    merged: tuple[str, ...] = ()
    rate_metric: str = "samples_per_second"
    rate_unit: str = "1/s"
    origin: Origin = Field(default_factory=Origin)
    looks: tuple[int, ...] = ()
    sections: dict[str, SerializeAsAny[Section]] = Field(default_factory=dict)
    laws: tuple[ScalingLaw, ...] = ()

    @field_validator("sections", mode="before")
    @classmethod
    def _read_by_their_features(cls, written: Any) -> Any:
        """Read each section with the model of its feature. Those of features that are not here are left out."""
        models = {feature.name: feature.section.model for feature in registry.features() if feature.section}
        return {
            name: part if isinstance(part, Section) else registry.load(models[name]).model_validate(part)
            for name, part in written.items()
            if name in models or isinstance(part, Section)
        }

    def section(self, model: type[_Section]) -> _Section | None:
        """Return the section of this type, None where the sweep has none."""
        return next((part for part in self.sections.values() if isinstance(part, model)), None)
