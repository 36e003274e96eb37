"""Findings: every number shown to a reader, rounded once, with its interval, verdict and doubts.

The report and MLflow's aggregates only format these numbers. Every `None` is accompanied by a reason.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from pydantic import Field, SerializeAsAny, field_validator

from accelsweep import registry
from accelsweep.config.prices import PriceUsed
from accelsweep.config.setting import shared_label
from accelsweep.devices.kinds import kind_or_unknown
from accelsweep.json_documents import Document, Frozen
from accelsweep.metrics import quality_name
from accelsweep.records.estimates import Estimate, Speedup, Summary, Verdict
from accelsweep.records.plan import Excluded, Manifest, parse_parts
from accelsweep.records.run_record import EarlierAttempt, doubt_description
from accelsweep.results import Doubt, Effective, Outcome
from accelsweep.significant_digits import percent_of

# One setting on one kind of machine: its runs, rate, costs and doubts.


class RunPoint(Frozen):
    """One planned run as shown in figures. `rate` (in `Findings.rate_unit`) is None unless the run was measured.

    `ratio` is the rate divided by the baseline's in the same block, or by the baseline's mean rate if the baseline
    has no rate in that block; it may be None.
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
    earlier_attempts: tuple[EarlierAttempt, ...] = ()


class StepBottleneck(Frozen):
    """A breakdown of a setting's step time: `shares` maps `results.PARTS` to shares, averaged over `count` runs."""

    verdict: str
    evidence: str
    shares: dict[str, float]
    count: int


class SettingFinding(Frozen):
    """One setting on one kind of machine; `hardware` is the name of that kind, or None if nothing ran.

    A setting measured on two kinds of machine produces two findings. `rate` is the compared metric, with its unit.
    `quality_difference` is the setting's quality minus the baseline's, paired by seed. `memory_share` is the fraction
    of the machine's or the device's memory that was used; None if the inventory does not specify its size. `again` is
    the command that measures only this setting again; `trainer` is the call to Lightning's Trainer or the command of
    the user's own script that trains like this setting, or None. `costs` maps `usd_per_hour`,
    `usd_per_million_samples`, `usd_per_million_tokens`, `usd_per_epoch`, `usd_per_result`, `joules_per_sample`,
    `joules_per_token`, `co2_grams_per_million_samples`
    to their values; a cost for which a price or a measurement is missing is omitted, not set to 0. `measured` includes
    runs that have no rate because they missed their target; `time_to_target` covers the runs that reached their target.
    `effective` contains the options in effect; None if nothing was measured.
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

    @property
    def ratio(self) -> Estimate | None:
        """The ratio to the baseline; None for the baseline itself, or if there is no comparison."""
        return None if self.speedup is None else self.speedup.ratio

    @property
    def accelerator(self) -> str | None:
        """The device kind that was used; None if nothing was measured."""
        return None if self.effective is None else self.effective.accelerator

    @property
    def device_names(self) -> tuple[str, ...]:
        """The names of the devices that were used."""
        return () if self.effective is None else self.effective.device_names

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return 1 if self.effective is None else self.effective.world_size

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return 1 if self.effective is None else self.effective.num_nodes

    @property
    def memory_description(self) -> str:
        """The memory share in words: `1 % of the machine`, `15 % of the device`; empty if unknown."""
        if self.memory_share is None:
            return ""
        return percent_of(self.memory_share, "device" if kind_or_unknown(self.accelerator).own_memory else "machine")


class Hardware(Frozen):
    """A group of identical machines."""

    name: str
    details: dict[str, str]


# The recommendation: which setting to choose, how certain the choice is, and what would settle it.


class Choice(Frozen):
    """A setting worth choosing, and why; the numbers in `sentence` come from its finding.

    `hardware` is set if the setting was measured on several kinds of hardware.
    """

    setting: str
    title: str
    sentence: str
    hardware: str | None = None

    def chooses(self, finding: SettingFinding) -> bool:
        """Return whether `finding` is for the chosen setting, on the chosen hardware."""
        return finding.setting == self.setting and self.hardware in (None, finding.hardware)


class Certainty(StrEnum):
    """How far to trust a headline."""

    sure = "sure"
    among_the_best = "among the best"
    quality_open = "quality open"
    none_recommended = "none recommended"
    undecided = "undecided"
    disturbed = "disturbed"
    no_answer = "no answer"


class Recommendation(Frozen):
    """The recommendation. `settle` is the command that would settle open questions or show why there are any, or None.

    `headline` is the answer and what is open about it, `detail` has the numbers behind it, and `sentence` combines
    both. `fastest` is the setting that they are about if none is recommended. `settle_purpose` states what the command
    is for; `settle_blocks` is the number of blocks that it adds; `settle_minutes` is its duration, estimated from the
    runs so far, or None.
    """

    choice: Choice | None
    fastest: Choice | None = None
    sentence: str
    alternatives: tuple[Choice, ...]
    settle: str | None
    settle_blocks: int = 0
    settle_minutes: float | None = None
    settle_purpose: str = "To settle it"
    headline: str = ""
    detail: str = ""
    certainty: Certainty = Certainty.undecided

    @property
    def alternatives_title(self) -> str:
        """The heading above the alternatives, which may consist of one choice per kind of hardware."""
        by_hardware = any(choice.title == f"On {choice.hardware}" for choice in self.alternatives)
        return "On each kind of hardware" if self.choice is None or by_hardware else "Alternatives"


def advice(
    headline: str,
    certainty: Certainty,
    *detail: str,
    chosen: SettingFinding | None = None,
    fastest: SettingFinding | None = None,
    alternatives: tuple[Choice, ...] = (),
    settle: str | None = None,
    settle_blocks: int = 0,
    settle_minutes: float | None = None,
    purpose: str = "To settle it",
) -> Recommendation:
    """Build a recommendation from the headline, the sentences in `detail`, and the doubts about the named setting.

    The headline names the `chosen` setting or, if none is recommended, the `fastest`.
    """
    named = chosen or fastest
    details = " ".join(part for part in detail if part)
    doubts = [f"{doubt_description(doubt)} ({doubt.code})" for doubt in named.doubts] if named is not None else []
    parts = (f"{headline}.", details, f"Doubts: {'; '.join(doubts)}." if doubts else "")
    sentence = " ".join(part for part in parts if part)

    def choice(setting: SettingFinding | None, title: str) -> Choice | None:
        if setting is None:
            return None
        return Choice(setting=setting.setting, title=title, sentence=sentence, hardware=setting.hardware)

    return Recommendation(
        choice=choice(chosen, "Recommended"),
        fastest=choice(fastest, "Fastest"),
        sentence=sentence,
        alternatives=alternatives,
        settle=settle,
        settle_blocks=settle_blocks,
        settle_minutes=settle_minutes,
        settle_purpose=purpose,
        headline=headline,
        detail=details,
        certainty=certainty,
    )


# Scaling over devices and over batch sizes.


class ScalingPoint(Frozen):
    """A setting on a scaling curve; `efficiency` is the speed-up divided by the ratio of device counts.

    `efficiency` is None if adding ranks did not add devices, since ranks on the same processor share its cores.
    """

    series: str
    kind: str
    setting: str
    devices: int
    speedup: Estimate
    efficiency: Estimate | None


class LawForm(StrEnum):
    """What a scaling law's intervals support: which of its two coefficients differ from 0, or why that is unknown."""

    ideal = "indistinguishable from ideal scaling"
    amdahl = "Amdahl's law"
    universal = "universal law"
    beyond = "better than ideal scaling"
    undecided = "undecided"
    disturbed = "disturbed"


class DeviceCount(Frozen):
    """A device count predicted by a scaling law, with its interval; fields are None if there is no finite limit."""

    value: int | None
    low: int | None
    high: int | None


class ScalingLaw(Frozen):
    """Gunther's universal scalability law, fitted to a series: rate(n) = rate(1) n / (1 + s (n - 1) + k n (n - 1)).

    `contention` is s and `coherency` is k; `devices` lists the measured device counts. `pays` is the largest device
    count at which the last device still adds at least half of a single device's rate; beyond `peak` devices, the rate
    falls. `pays` and `peak` are None, with a `reason`, if `form` supports no conclusion. `misfit` is the largest
    relative deviation of a mean rate from the law; `speedups` are the speed-ups that the law predicts for `devices`,
    relative to the smallest device count.
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
    """Settings that differ only in batch size, smallest first.

    The curve shows where the rate stops growing and where memory runs out.

    `knee` is the setting with the smallest batch that reaches 95 % of the series' best rate; `largest_measured` and
    `smallest_out_of_memory` are batch sizes per device. Each of the three is None if it cannot be determined from the
    series.
    """

    series: str
    hardware: str | None
    settings: tuple[str, ...]
    knee: str | None
    largest_measured: int | None
    smallest_out_of_memory: int | None


class Origin(Frozen):
    """Where the numbers come from, at a glance; each field may contain several values.

    `model` and `data` are class names; `commits` contains abbreviated commit hashes from the user's repository (empty
    if there is no repository). `changed` indicates whether the repository had local changes; None if unknown. `threads`
    and `memory_bytes` are per machine. `dates` are the first and the last day of the measurements, in UTC.
    """

    model: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    commits: tuple[str, ...] = ()
    changed: bool | None = None
    dates: tuple[str, ...] = ()


class Section(Frozen):
    """A feature's part of the findings (`registry.Section`)."""

    compares_nodes: ClassVar[bool] = False
    """Whether the sweep compares nodes, in which case the use of several nodes is not flagged."""

    def recommendation(self, manifest: Manifest, usual: Recommendation) -> Recommendation:  # noqa: ARG002
        """Return the recommendation that replaces the `usual` one."""
        return usual


_Section = TypeVar("_Section", bound=Section)


class Findings(Document):
    """All numbers in a sweep's report.

    `rate_metric` is the metric by which settings are compared, and `rate_unit` is its unit. `family` is the number of
    ratios whose intervals hold simultaneously. `pareto` lists the settings that no other setting beats on every one of
    the `pareto_objectives`. `costs_note` explains why there are no costs, or is None. `prices` contains the prices used
    for the costs, and `cost_gaps` lists the costs that cannot be computed from this sweep's records. `merged` lists the
    sweeps that were merged, if any; runs are then named SWEEP/RUN. `looks` contains the block counts at the interim
    analyses that determined whether to add more blocks; it is empty if the number of blocks was fixed. `sections` maps
    features to their sections. `laws` contains the law fitted to each scaling series with enough distinct device
    counts.
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
    def _parse_sections(cls, value: Any) -> Any:
        models = {feature.name: feature.section.model for feature in registry.features() if feature.section}
        return parse_parts(value, Section, models)

    @property
    def shared(self) -> str:
        """What all measured settings have in common besides their names, such as `32-bit, 1 process`, for headings."""
        keys = {"devices": "world_size"} | {name: name for name in ("accelerator", "precision", "batch_size")}
        used = [setting.effective for setting in self.settings if setting.effective is not None]
        if self.rate_metric != "samples_per_second":  # other tasks do not necessarily use them
            return ""
        return shared_label(self.axes, [{key: getattr(one, name) for key, name in keys.items()} for one in used])

    @property
    def certainty(self) -> str:
        """How far to trust the headline, in words: `sure`, `accuracy open`."""
        return self.recommendation.certainty.replace("quality", quality_name(self.quality_metric))

    def section(self, model: type[_Section]) -> _Section | None:
        """Return the section of the given type, or None."""
        return next((part for part in self.sections.values() if isinstance(part, model)), None)


# Two sweeps, compared setting by setting.


class ComparedSetting(Frozen):
    """A setting that both sweeps contain."""

    setting: str = Field(description="the setting's name in files")
    label: str = Field(description="a readable description of the setting")
    axes: dict[str, Any] = Field(description="the swept keys with this setting's values")
    before: Estimate | None = Field(description="the rate in the earlier sweep")
    after: Estimate | None = Field(description="the rate in the later sweep")
    ratio: Estimate | None = Field(description="the later rate divided by the earlier one; null if refused")
    verdict: Verdict = Field(description="the verdict that the entire interval of the ratio supports")
    reason: str = Field(description="the reason for the verdict")
    doubts: tuple[Doubt, ...] = Field((), description="reasons to distrust either rate")


class SweepComparison(Frozen):
    """A comparison of two sweeps."""

    before: str = Field(description="the name of the earlier sweep")
    after: str = Field(description="the name of the later sweep")
    family: int = Field(description="the number of ratios whose intervals hold simultaneously")
    confidence: float = Field(description="the joint confidence level of these intervals")
    threshold: float = Field(description="the relative difference below which a change does not matter")
    rate_unit: str = Field(description="the unit of the rates")
    rows: tuple[ComparedSetting, ...] = Field(description="the settings common to both sweeps")
    only_before: tuple[str, ...] = Field(description="the labels of settings that are missing in the later sweep")
    only_after: tuple[str, ...] = Field(description="the labels of settings that are missing in the earlier sweep")
