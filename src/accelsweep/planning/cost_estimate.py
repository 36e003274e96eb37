"""Estimates a plan's minutes, GPU-hours, dollars and smallest detectable effect, and builds the plan's table."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice, pairwise
from statistics import fmean, median
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from accelsweep.config.prices import usd_per_hour_on
from accelsweep.config.setting import Setting, label
from accelsweep.devices.cpu import emulated_formats, number_format
from accelsweep.json_documents import Frozen
from accelsweep.planning.plan import Plan
from accelsweep.planning.resources import allocated_gpus, is_emulated, site_for, with_observed_limit
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest, PlannedBlock
from accelsweep.records.run_files import readable_records
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.run_config import Run, SettingConfig
from accelsweep.schedulers.protocol import Resources
from accelsweep.significant_digits import count_of

# Assumed times in seconds, used until runs have been measured. They are rounded from the records in `reports/examples`
# (small models on a CPU); a test compares them with those records.

ASSUMED_OVERHEAD_SECONDS = 2.0
"""The time that a single-process run spends outside its measurement window."""

ASSUMED_PROCESS_SECONDS = 2.5
"""The extra time for each additional process of a run, which must import its modules and join the other processes."""

ASSUMED_COMPILING_SECONDS = 13.0
"""The extra time for a run with `compile` and empty caches."""

ASSUMED_EMULATION_FACTOR = 10.0
"""How many times longer the steps of a precision take that the processor emulates.

Measured with torch 2.13 and `ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2` on a processor with AVX-512: with bf16
instead of float32, a convolution's training step takes 9 to 11 times as long, and that of a linear layer 3 times.
"""

ASSUMED_BETWEEN_SECONDS = 4.0
"""The time between two blocks, in which a new executor is started."""

ASSUMED_AROUND_SECONDS = 15.0
"""The time that a command spends before its first block and after its last: Snakemake's start-up, analysis and
report."""

ASSUMED_NOISE = 0.01
"""The assumed standard deviation of a run's log rate; estimates based on it are labelled accordingly."""

POWER = 0.8

SUBMISSIONS = 2
"""The maximum number of times that Snakemake submits a job: the shipped cluster profiles set `retries: 1`."""

_MAX_BREAK_SECONDS = 60.0
"""If the pause between two blocks is longer than this, they belong to different commands."""

_RunKind = tuple[str, str, bool]
"""Accelerator, task, and whether the processor emulates the precision."""


class RunTime(NamedTuple):
    """A run's times in seconds: `overhead` is the time outside its window, or None if it had no window.

    Earlier attempts and waits for a quiet machine are part of `wall`.

    Kept in memory instead of the records, which are a hundred times larger: a sweep may contain thousands of them.
    """

    setting: str
    block: tuple[str, str]
    kind: _RunKind
    wall: float
    overhead: float | None
    start: float
    end: float

    @classmethod
    def of(cls, record: Record) -> RunTime | None:
        """Return a run's times; None if it was unsupported."""
        if record.outcome is Outcome.unsupported:
            return None
        state = record.surroundings.before
        emulated = emulated_formats(state.cpu_flags, state.variables)
        kind = _kind(record.config, is_emulated=number_format(record.config.precision) in emulated)
        overhead = max(0.0, record.total_seconds - _window_seconds(record.config, kind))
        return cls(
            record.setting,
            (record.sweep, record.block),
            kind,
            record.total_seconds,
            overhead if record.outcome is Outcome.measured else None,
            datetime.fromisoformat(record.started_at).timestamp(),
            datetime.fromisoformat(record.finished_at).timestamp(),
        )


def _kind(config: SettingConfig, *, is_emulated: bool) -> _RunKind:
    return config.accelerator, config.task, is_emulated and config.accelerator == "cpu"


def _window_seconds(config: SettingConfig, kind: _RunKind) -> float:
    """Return the expected length of a run's window: slow steps extend it beyond `min_seconds`."""
    _, _, is_emulated = kind
    factor = ASSUMED_EMULATION_FACTOR if is_emulated else 1.0
    return min(factor * config.measure.min_seconds, config.measure.longest_seconds)


class TimeLimits:
    """Time limits of a sweep's jobs.

    A block's planned limit applies until the sweep has measured all of the block's settings.

    Records are read lazily.
    """

    def __init__(self, folder: SweepFolder, manifest: Manifest) -> None:
        self._folder = folder
        self._runs: dict[str, list[str]] = defaultdict(list)
        for run in manifest.wanted_runs():
            self._runs[Run.parse(run).setting].append(run)
        self._longest: dict[str, float | None] = {}

    def of(self, block: PlannedBlock) -> Resources:
        """Return the resources that a block's job requests, with a time limit based on earlier runs of its settings."""
        seconds = [self._longest_run(Run.parse(run).setting) for run in block.runs]
        known = [each for each in seconds if each is not None]
        return with_observed_limit(block.resources, known) if len(known) == len(seconds) else block.resources

    def _longest_run(self, setting: str) -> float | None:
        if setting not in self._longest:
            seconds = [record.total_seconds for record in readable_records(self._folder, self._runs[setting])]
            self._longest[setting] = max(seconds, default=None)
        return self._longest[setting]


@dataclass(frozen=True)
class ObservedTimes:
    """Times of earlier runs in seconds: wall time by setting, overhead by kind of run, and pauses between blocks.

    `basis` describes the origin of those runs.
    """

    basis: str = "assumed, until a first run has ended"
    runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    overhead: Mapping[_RunKind, Sequence[float]] = field(default_factory=dict)
    breaks: Sequence[float] = ()

    @classmethod
    def from_runs(cls, times: Iterable[RunTime | None], basis: str) -> ObservedTimes | None:
        """Collect the observed times of these runs; None if there are no runs."""
        runs: dict[str, list[float]] = defaultdict(list)
        overhead: dict[_RunKind, list[float]] = defaultdict(list)
        blocks: dict[tuple[str, str], list[float]] = defaultdict(list)
        for time in times:
            if time is None:
                continue
            runs[time.setting].append(time.wall)
            blocks[time.block] += [time.start, time.end]
            if time.overhead is not None:
                overhead[time.kind].append(time.overhead)
        spans = sorted((min(ends), max(ends)) for ends in blocks.values())
        breaks = [later[0] - earlier[1] for earlier, later in pairwise(spans)]
        breaks = [seconds for seconds in breaks if 0.0 <= seconds <= _MAX_BREAK_SECONDS]
        return cls(basis, runs, overhead, breaks) if runs else None

    def seconds(self, setting: str, config: SettingConfig, *, is_emulated: bool = False) -> float:
        """Return the expected duration of another run of `setting`, in seconds.

        If `is_emulated` is set, the processor emulates its precision.
        """
        if walls := self.runs.get(setting):
            return fmean(walls)
        kind = _kind(config, is_emulated=is_emulated)
        window = _window_seconds(config, kind)
        if observed := self.overhead.get(kind):
            return window + median(observed)
        slower = (ASSUMED_EMULATION_FACTOR - 1) * ASSUMED_OVERHEAD_SECONDS if is_emulated else 0.0
        if observed := self.overhead.get(_kind(config, is_emulated=False)):
            return window + median(observed) + slower
        assumed = ASSUMED_OVERHEAD_SECONDS + ASSUMED_PROCESS_SECONDS * (config.world_size - 1)
        return window + assumed + slower + ASSUMED_COMPILING_SECONDS * (config.compile is not None)

    @property
    def between_blocks(self) -> float:
        """The time in seconds before the first run of each block."""
        return median(self.breaks) if self.breaks else ASSUMED_BETWEEN_SECONDS


@dataclass(frozen=True)
class Span:
    """An estimated amount."""

    least: Annotated[float, Field(description="the amount for the measurement windows alone")]
    expected: Annotated[float, Field(description="the expected amount")]
    most: Annotated[float, Field(description="the maximum that time limits and retries allow")]

    def __iter__(self) -> Iterator[float]:
        """Yield the three amounts."""
        return iter((self.least, self.expected, self.most))


@dataclass(frozen=True)
class PlanEstimate:
    """Time and cost of the remaining runs if executed sequentially; the expected minutes include pauses.

    GPU-hours and dollars cover what is allocated: on one machine, a run's devices; on a cluster, everything that a job
    makes unavailable to other users. The upper bound assumes that, on a machine, each run is retried as often as
    `limits.retries` allows and uses its full time limit each time, and that a job is submitted twice and uses its full
    time limit each time. Jobs that the cluster itself requeues are not counted twice.

    `basis` is the source of the expected figures. If `usd` is None, `usd_reason` explains why.
    """

    runs_left: Annotated[int, Field(description="the number of runs without a final outcome")]
    minutes: Annotated[Span, Field(description="their total time if executed sequentially")]
    gpu_hours: Annotated[Span, Field(description="that time multiplied by the number of allocated GPUs")]
    usd: Annotated[Span | None, Field(description="their cost; null if a price is missing")]
    usd_reason: Annotated[str | None, Field(description="why the cost is unknown")]
    basis: Annotated[str, Field(description="what the expected amounts are based on")]


@dataclass(frozen=True)
class VisibleEffect:
    """The smallest difference that the plan's repeats can detect."""

    effect: Annotated[float | None, Field(description="the smallest true gain in rate detectable with 80 % power")]
    assumption: Annotated[str, Field(description="the assumed noise")]
    reason: Annotated[str | None, Field(description="why there is no such effect")] = None


class _Allocation(NamedTuple):
    """Devices paid for over a period of time, either for a run on one machine or for a job on a cluster."""

    seconds: Span
    accelerator: str
    gpus: int
    usd_per_hour: float | None


def estimate(plan: Plan, settled: Collection[str] = (), observed: ObservedTimes | None = None) -> PlanEstimate:
    """Estimate the wanted runs that are not `settled`, based on the `observed` times of earlier runs."""
    settings, observed = {setting.name: setting for setting in plan.settings}, observed or ObservedTimes()
    blocks = {
        block: [settings[Run.parse(run).setting] for run in block.runs if run not in settled]
        for block in plan.manifest.blocks
    }
    blocks = {block: runs for block, runs in blocks.items() if runs}
    runs_left = sum(map(len, blocks.values()))
    breaks = len(blocks) * observed.between_blocks + ASSUMED_AROUND_SECONDS * bool(blocks)
    left = {setting.name: setting for runs in blocks.values() for setting in runs}
    alone = {name: _allocation(plan, setting, observed) for name, setting in left.items()}
    allocations = [each for block, runs in blocks.items() for each in _allocations(plan, block, runs, alone)]
    seconds = [each.seconds for each in allocations]
    unpriced = sorted({each.accelerator for each in allocations if each.usd_per_hour is None})
    usd_reason = None if allocations else "no runs are left"
    if unpriced and not plan.manifest.options.prices.hourly:
        usd_reason = "no prices are given"
    elif unpriced:
        usd_reason = f"no price is given for {' and '.join(unpriced)}"
    return PlanEstimate(
        runs_left=runs_left,
        minutes=Span(*(each / 60 for each in _sum([Span(0.0, breaks, 0.0), *seconds]))),
        gpu_hours=_weighted_hours(seconds, [each.gpus for each in allocations]),
        usd=None if usd_reason else _weighted_hours(seconds, [each.usd_per_hour or 0.0 for each in allocations]),
        usd_reason=usd_reason,
        basis=observed.basis,
    )


def _allocation(plan: Plan, setting: Setting, observed: ObservedTimes) -> _Allocation:
    """Return the allocation for one run of the setting on one machine."""
    limits, config = plan.manifest.options.limits, setting.config
    expected = observed.seconds(setting.name, config, is_emulated=is_emulated(config, plan.manifest.site))
    # If runs of this setting took less time than the window, the next run is expected to take as little.
    least = min(expected, config.measure.min_seconds)
    most = max(expected, (1 + limits.retries) * (limits.run_seconds + limits.stop_grace_seconds))
    gpus = config.world_size * config.on_gpu
    return _Allocation(Span(least, expected, most), config.accelerator, gpus, _usd_per_hour(plan, config))


def _allocations(
    plan: Plan, block: PlannedBlock, runs: Sequence[Setting], alone: Mapping[str, _Allocation]
) -> list[_Allocation]:
    """Return the allocations for a block's remaining `runs`; a job's upper bound is based on its time limit."""
    site, each_alone = plan.manifest.site, [alone[setting.name] for setting in runs]
    if site.scheduler == "local":
        return each_alone
    total = _sum([each.seconds for each in each_alone])
    limit = 60.0 * block.resources.minutes if block.resources.minutes else total.most
    widest = max((setting.config for setting in runs), key=lambda config: (config.on_gpu, config.world_size))
    gpus, usd = allocated_gpus(block.resources, site), _usd_per_hour(plan, widest)
    if usd is not None and widest.on_gpu:
        usd *= gpus / widest.world_size
    span = replace(total, most=max(total.expected, SUBMISSIONS * limit))
    return [_Allocation(span, widest.accelerator, gpus, usd)]


def _usd_per_hour(plan: Plan, config: SettingConfig) -> float | None:
    inventory = site_for(config, plan.manifest.site).inventory
    models = [device.model for device in inventory if device.accelerator == config.accelerator]
    return usd_per_hour_on(plan.manifest.options.prices, config, models)


def _sum(spans: Sequence[Span]) -> Span:
    return Span(*map(sum, zip(*spans, strict=True))) if spans else Span(0.0, 0.0, 0.0)


def _weighted_hours(spans: Sequence[Span], weights: Sequence[float]) -> Span:
    pairs = zip(spans, weights, strict=True)
    return Span(
        *(total / 3600 for total in _sum([Span(*(seconds * weight for seconds in span)) for span, weight in pairs]))
    )


def visible_effect(plan: Plan, noise: float | None = None) -> VisibleEffect:
    """Return the smallest effect that this plan's repeats can detect.

    `noise` is the standard deviation of a run's log rate, pooled over the pairs of earlier runs. If it is None,
    `ASSUMED_NOISE` is used, and the mean of several baseline runs in a block is assumed to be less noisy than a single
    run.
    """
    options, baselines = plan.manifest.options, plan.manifest.baselines
    family = sum(setting.unsupported is None and setting.name not in baselines for setting in plan.settings)
    per_run = ASSUMED_NOISE if noise is None else noise
    paired = noise if noise is not None else per_run * math.sqrt((1.0 + 1.0 / _baseline_runs(plan)) / 2.0)
    source = "assumed" if noise is None else "seen in earlier runs"
    assumption = f"{per_run:.1%} noise between runs ({source}), {count_of(family, 'comparison')}, {POWER:.0%} chance"
    if family < 1:
        return VisibleEffect(None, assumption, "there is no other setting to compare the baseline with")
    from accelsweep.analysis.statistical_power import smallest_visible_effect  # imports scipy

    effect = smallest_visible_effect(
        options.repeats,
        paired,
        family=family,
        confidence=options.analysis.confidence,
        threshold=options.analysis.threshold,
        power=POWER,
    )
    return VisibleEffect(effect, assumption, None if effect is not None else "one repeat gives no interval")


def _baseline_runs(plan: Plan) -> int:
    """Return the smallest number of baseline runs in any block that contains other settings; at least 1."""
    blocks = [[Run.parse(run).setting for run in block.runs] for block in plan.manifest.blocks]
    counts = [(block.count(plan.manifest.baseline or ""), len(block)) for block in blocks]
    return min((count for count, size in counts if 0 < count < size), default=1)


@dataclass(frozen=True)
class SettingRow:
    """A table row for a setting that can run."""

    setting: Annotated[str, Field(description="the setting's name in files")]
    label: Annotated[str, Field(description="the setting in words")]
    axes: Annotated[dict[str, Any], Field(description="the swept keys with this setting's values")]
    baseline: Annotated[bool, Field(description="whether speed-ups are relative to it")]
    wanted: Annotated[int, Field(description="the number of its runs that the plan requires")]
    settled: Annotated[int, Field(description="the number of these that already have a final outcome")]


@dataclass(frozen=True)
class ReasonRow:
    """A table row for a setting that will not run."""

    setting: Annotated[str | None, Field(description="the setting's name in files; null if a rule dropped the setting")]
    label: Annotated[str, Field(description="the setting in words")]
    axes: Annotated[dict[str, Any], Field(description="the swept keys with this setting's values")]
    reason: Annotated[str, Field(description="why it does not run")]


@dataclass(frozen=True)
class BlockRow:
    """A table row for a block of runs that share one allocation."""

    block: Annotated[str, Field(description="the block's name")]
    new: Annotated[bool, Field(description="whether this plan adds it")]
    runs: Annotated[int, Field(description="the number of its runs that the plan requires")]
    settled: Annotated[int, Field(description="the number of these that already have a final outcome")]
    resources: Annotated[Resources, Field(description="the resources it requires on a machine or cluster")]


class PlanTable(Frozen):
    """Everything that `accelsweep plan` shows about a plan."""

    sweep: str = Field(description="the sweep's name")
    revision: int = Field(description="the plan's revision number, or the number it would get")
    settings: tuple[SettingRow, ...] = Field(description="the settings that can run, in grid order")
    unsupported: tuple[ReasonRow, ...] = Field(description="settings that cannot run here")
    excluded: tuple[ReasonRow, ...] = Field(description="settings that one of the experiment's rules drops")
    blocks: tuple[BlockRow, ...] = Field(description="the blocks, in the order in which they were planned")
    wanted: int = Field(description="the number of runs that the plan requires")
    settled: int = Field(description="the number of these that already have a final outcome")
    outdated: dict[str, int] = Field(description="the number of settled runs to measure again, by what has changed")
    estimate: PlanEstimate = Field(description="the estimated time and cost of the remaining runs")
    visible_effect: VisibleEffect = Field(description="the smallest effect that the repeats can detect")
    notes: tuple[str, ...] = Field(description="notes for the user about this plan")


def plan_table(
    plan: Plan,
    settled: Collection[str] = (),
    observed: ObservedTimes | None = None,
    noise: float | None = None,
    outdated: Mapping[str, int] | None = None,
    *,
    rows: int | None = None,
) -> PlanTable:
    """Build a plan's table, with at most this number of `rows` of settings that can run, and of those that cannot.

    The names of `settled` runs, the `observed` times, the `noise` and the number of `outdated` results, by what has
    changed, come from earlier runs.
    """
    manifest, settled, new = plan.manifest, set(settled), {block.name for block in plan.new_blocks}
    runs = manifest.wanted_runs()
    return PlanTable(
        sweep=manifest.sweep,
        revision=manifest.revision,
        settings=tuple(islice(_setting_rows(manifest, settled), rows)),
        unsupported=tuple(islice(_unsupported_rows(manifest), rows)),
        excluded=tuple(
            ReasonRow(None, label(excluded.axes), excluded.axes, excluded.because)
            for excluded in manifest.excluded[:rows]
        ),
        blocks=tuple(
            BlockRow(block.name, block.name in new, len(block.runs), len(settled & set(block.runs)), block.resources)
            for block in manifest.blocks
        ),
        wanted=len(runs),
        settled=sum(run in settled for run in runs),
        outdated=dict(outdated or {}),
        estimate=estimate(plan, settled, observed),
        visible_effect=visible_effect(plan, noise),
        notes=plan.notes,
    )


def _setting_rows(manifest: Manifest, settled: Collection[str]) -> Iterator[SettingRow]:
    runs = manifest.wanted_runs()
    wanted = Counter(Run.parse(run).setting for run in runs)
    done = Counter(Run.parse(run).setting for run in runs if run in settled)
    baselines = manifest.baselines
    for setting in manifest.settings:
        if setting.unsupported is None:
            name = setting.name
            yield SettingRow(name, label(setting.axes), setting.axes, name in baselines, wanted[name], done[name])


def _unsupported_rows(manifest: Manifest) -> Iterator[ReasonRow]:
    for setting in manifest.settings:
        if setting.unsupported:
            yield ReasonRow(setting.name, label(setting.axes), setting.axes, setting.unsupported)
