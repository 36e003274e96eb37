"""The estimates of a plan: minutes, GPU-hours, dollars, and the smallest visible effect."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median
from typing import Any, NamedTuple

from accelsweep.analysis.power import smallest_visible_effect
from accelsweep.config.prices import Prices, usd_per_hour_on
from accelsweep.config.setting import Setting, label
from accelsweep.config.site import Site
from accelsweep.config.sweep_options import Limits, Options
from accelsweep.planning.plan import Plan
from accelsweep.planning.resources import allocated_gpus, site_for, with_observed_limit
from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest, PlannedBlock
from accelsweep.records.run_files import readable_records
from accelsweep.records.run_record import Record
from accelsweep.results import Outcome
from accelsweep.run_config import Run, SettingConfig
from accelsweep.schedulers.protocol import Resources

# The time that earlier runs took, and what a further one will take by that.

ASSUMED_BESIDE_SECONDS = 2.0
"""The time of a run of one process beside its window, assumed until runs show it.

This and the next three are what the records of `reports/examples` took, rounded; a test compares them. Those are small
models on a processor.
"""

ASSUMED_PROCESS_SECONDS = 2.5
"""The further time of each further process of a run, which imports and joins the others, assumed until runs show it."""

ASSUMED_COMPILING_SECONDS = 13.0
"""The further time of a run with `model.compile=true`, whose caches begin empty, assumed until runs show it."""

ASSUMED_BETWEEN_SECONDS = 4.0
"""The time between two blocks, for a new supervisor, assumed until blocks show it."""

ASSUMED_AROUND_SECONDS = 15.0
"""The time of a command before its first block and after its last: Snakemake's start, the analysis and the report."""

_LONGEST_BREAK_SECONDS = 60.0
"""Blocks that lie further apart were measured by different commands."""

_Kind = tuple[str, str]
"""An accelerator and a task."""


class RunTime(NamedTuple):
    """A run's account of time: its setting and block, wall seconds, those beside its window, its start and end (s).

    A record holds a hundred times as much, and a sweep may have thousands. `beside` is None for a run without a window.
    """

    setting: str
    block: tuple[str, str]
    kind: _Kind
    wall: float
    beside: float | None
    start: float
    end: float

    @classmethod
    def of(cls, record: Record) -> RunTime | None:
        """Return the time of a run; None if it took none."""
        if record.outcome is Outcome.unsupported:
            return None
        over = max(0.0, record.wall_seconds - record.config.measure.min_seconds)
        beside = over if record.outcome is Outcome.measured else None
        start, end = _time(record.started_at), _time(record.finished_at)
        block = record.sweep, record.block
        return cls(record.setting, block, _kind(record.config), record.wall_seconds, beside, start, end)


class TimeLimits:
    """The time limits of a sweep's jobs: the planned ones, until each setting of a block was measured in this sweep."""

    def __init__(self, folder: SweepFolder, manifest: Manifest) -> None:
        """Reads a record when it is first asked for."""
        self._folder = folder
        self._runs: dict[str, list[str]] = defaultdict(list)
        for run in manifest.wanted_runs():
            self._runs[Run.parse(run).setting].append(run)
        self._longest: dict[str, float | None] = {}

    def of(self, block: PlannedBlock) -> Resources:
        """Return what a block's job asks for, its time limit by what runs of its settings took."""
        took = [self._longest_of(Run.parse(run).setting) for run in block.runs]
        known = [seconds for seconds in took if seconds is not None]
        return with_observed_limit(block.resources, known) if len(known) == len(took) else block.resources

    def _longest_of(self, setting: str) -> float | None:
        """Return the wall seconds of a setting's longest run so far."""
        if setting not in self._longest:
            walls = [record.wall_seconds for record in readable_records(self._folder, self._runs[setting])]
            self._longest[setting] = max(walls, default=None)
        return self._longest[setting]


@dataclass(frozen=True)
class ObservedTimes:
    """The wall seconds of earlier runs by setting, and the seconds beside their windows by kind of run.

    `between` are the seconds from the end of one block to the beginning of the next. `basis` says whose runs they are.
    """

    basis: str = "assumed, until a first run has ended"
    runs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    beside: Mapping[_Kind, Sequence[float]] = field(default_factory=dict)
    between: Sequence[float] = ()

    @classmethod
    def by(cls, times: Iterable[RunTime | None], basis: str) -> ObservedTimes | None:
        """Return what the times of these runs show; None if none of them took time."""
        runs: dict[str, list[float]] = defaultdict(list)
        beside: dict[_Kind, list[float]] = defaultdict(list)
        timed = [time for time in times if time is not None]
        for one in timed:
            runs[one.setting].append(one.wall)
            if one.beside is not None:
                beside[one.kind].append(one.beside)
        return cls(basis, runs, beside, _between(timed)) if timed else None

    def seconds(self, setting: str, config: SettingConfig) -> float:
        """Return the seconds that a further run of the setting `setting` will take."""
        if found := self.runs.get(setting):
            return fmean(found)
        beside = self.beside.get(_kind(config))
        return config.measure.min_seconds + (median(beside) if beside else _assumed_beside(config))

    @property
    def between_blocks(self) -> float:
        """The seconds before the first run of each block."""
        return median(self.between) if self.between else ASSUMED_BETWEEN_SECONDS


def _assumed_beside(config: SettingConfig) -> float:
    compiling = ASSUMED_COMPILING_SECONDS * config.compiles
    return ASSUMED_BESIDE_SECONDS + ASSUMED_PROCESS_SECONDS * (config.world_size - 1) + compiling


def _kind(config: SettingConfig) -> _Kind:
    return config.accelerator, config.task


def _between(timed: Sequence[RunTime]) -> list[float]:
    blocks: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in timed:
        blocks[one.block] += [one.start, one.end]
    spans = sorted((min(times), max(times)) for times in blocks.values())
    breaks = [later[0] - earlier[1] for earlier, later in pairwise(spans)]
    return [seconds for seconds in breaks if 0.0 <= seconds <= _LONGEST_BREAK_SECONDS]


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


ASSUMED_NOISE = 0.01
"""Standard deviation of a run's log rate, assumed until runs show it; it is printed beside each such estimate."""

POWER = 0.8

SUBMISSIONS = 2
"""The most submissions of a job by Snakemake: the shipped profiles of clusters say `retries: 1`."""


class Span(NamedTuple):
    """An amount: that of the windows alone, the one to reckon with, and what time limits and second tries allow."""

    least: float
    expected: float
    most: float


@dataclass(frozen=True)
class PlanEstimate:
    """The time of the runs that are left, one after another. Expected minutes hold the breaks, too.

    GPU-hours and dollars are of what is held: a run's devices on one machine, on a cluster all that a job keeps from
    others. At most each run of a machine is tried as often as `limits.retries` allows, and takes its whole time limit
    each time. At most a job is submitted twice, and lasts as long as its time limit. A job that a cluster itself
    queues again, because a node was lost or others came first, is not counted twice.

    `basis` states the source of the expected figures. `usd` is None with `usd_reason`.
    """

    runs_left: int
    minutes: Span
    gpu_hours: Span
    usd: Span | None
    usd_reason: str | None
    basis: str


@dataclass(frozen=True)
class VisibleEffect:
    """The smallest true gain in rate that is found with a chance of 80 %, None with a `reason`, and its assumption."""

    effect: float | None
    assumption: str
    reason: str | None = None


def estimate(plan: Plan, settled: Collection[str] = (), took: ObservedTimes | None = None) -> PlanEstimate:
    """Return the estimate for the wanted runs that are not among the `settled` ones.

    `took` is the time that earlier runs took, start and end included.
    """
    settings, took = {setting.name: setting for setting in plan.settings}, took or ObservedTimes()
    blocks = {
        block: tuple(settings[Run.parse(run).setting] for run in block.runs if run not in settled)
        for block in plan.manifest.blocks
    }
    left = [setting for runs in blocks.values() for setting in runs]
    begun = sum(map(bool, blocks.values()))
    breaks = Span(0.0, begun * took.between_blocks + ASSUMED_AROUND_SECONDS * bool(left), 0.0)
    held = [one for block, runs in blocks.items() if runs for one in _holdings(plan, block, runs, took)]
    priced = [one for one in held if one.usd_per_hour is not None]
    return PlanEstimate(
        runs_left=len(left),
        minutes=Span(*(seconds / 60 for seconds in _sum([breaks, *(one.seconds for one in held)]))),
        gpu_hours=_hours([one.seconds for one in held], [one.gpus for one in held]),
        usd=_hours([one.seconds for one in held], [one.usd_per_hour or 0.0 for one in held])
        if held and len(priced) == len(held)
        else None,
        usd_reason=_why_no_cost(plan, held),
        basis=took.basis,
    )


class _Holding(NamedTuple):
    """A time for which devices are paid: a run's on one machine, a job's on a cluster."""

    seconds: Span
    accelerator: str
    gpus: int
    usd_per_hour: float | None


def _holdings(plan: Plan, block: PlannedBlock, runs: Sequence[Setting], took: ObservedTimes) -> list[_Holding]:
    """Return what the `runs` that are left of a block hold. A job may last as long as its time limit says."""
    manifest = plan.manifest
    limits, prices, site = manifest.options.limits, manifest.options.prices, manifest.site
    each = [_seconds(setting, took, limits) for setting in runs]
    if site.scheduler == "local":
        return [
            _Holding(
                seconds,
                setting.config.accelerator,
                setting.config.world_size * setting.config.on_gpu,
                _usd_per_hour(prices, setting.config, site),
            )
            for seconds, setting in zip(each, runs, strict=True)
        ]
    whole = _sum(each)
    limit = 60.0 * block.resources.minutes if block.resources.minutes else whole.most
    most = max(whole.expected, SUBMISSIONS * limit)
    wide = max(runs, key=lambda setting: (setting.config.on_gpu, setting.config.world_size))
    gpus, usd = allocated_gpus(block.resources, site), _usd_per_hour(prices, wide.config, site)
    if usd is not None and wide.config.on_gpu:
        usd *= gpus / wide.config.world_size
    return [_Holding(whole._replace(most=most), wide.config.accelerator, gpus, usd)]


def _sum(spans: Sequence[Span]) -> Span:
    return Span(*map(sum, zip(*spans, strict=True))) if spans else Span(0.0, 0.0, 0.0)


def _seconds(setting: Setting, took: ObservedTimes, limits: Limits) -> Span:
    """Return the seconds of one run. One that was seen to take less than its window takes no more at least."""
    expected = took.seconds(setting.name, setting.config)
    most = max(expected, (1 + limits.retries) * (limits.run_seconds + limits.stop_grace_seconds))
    return Span(min(expected, setting.config.measure.min_seconds), expected, most)


def _hours(seconds: Sequence[Span], weights: Sequence[float]) -> Span:
    weighted = [[part * weight for part in each] for each, weight in zip(seconds, weights, strict=True)]
    return Span(*(sum(column) / 3600 for column in zip(*weighted, strict=True))) if weighted else Span(0.0, 0.0, 0.0)


def _why_no_cost(plan: Plan, held: Sequence[_Holding]) -> str | None:
    unpriced = sorted({one.accelerator for one in held if one.usd_per_hour is None})
    if not unpriced:
        return None if held else "no run is left"
    if not plan.manifest.options.prices.raw:
        return "no prices are given"
    return f"no price is given for {' and '.join(unpriced)}"


def visible_effect(plan: Plan, noise: float | None = None) -> VisibleEffect:
    """Return the smallest effect that this plan's number of repeats can show.

    `noise` is the standard deviation of a run's log rate as earlier runs showed it, pooled over pairs. None assumes
    `ASSUMED_NOISE`. Then the mean of several runs of the baseline in a block is quieter than one run.
    """
    options: Options = plan.manifest.options
    baselines = plan.manifest.baselines
    family = sum(setting.unsupported is None and setting.name not in baselines for setting in plan.settings)
    spread = ASSUMED_NOISE if noise is None else noise
    paired = spread if noise is not None else spread * math.sqrt((1.0 + 1.0 / _baseline_runs(plan)) / 2.0)
    source = "assumed" if noise is None else "seen in earlier runs"
    compared = "1 comparison" if family == 1 else f"{max(family, 0)} comparisons"
    assumption = f"{spread:.1%} noise between runs ({source}), {compared}, {POWER:.0%} chance"
    if family < 1:
        return VisibleEffect(None, assumption, "there is no other setting to compare the baseline with")
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
    """Return how often the baseline runs in the blocks where it runs least often beside other settings; at least 1."""
    settings = [[Run.parse(run).setting for run in block.runs] for block in plan.manifest.blocks]
    return min(
        (found for block in settings if 0 < (found := block.count(plan.manifest.baseline or "")) < len(block)),
        default=1,
    )


def _usd_per_hour(prices: Prices, config: SettingConfig, site: Site) -> float | None:
    """Return the hourly price of a setting with this config at `site` in USD, or None if no price is given."""
    models = [device.model for device in site_for(config, site).inventory if device.accelerator == config.accelerator]
    return usd_per_hour_on(prices, config, models)


# A plan as rows of plain data for printing: settings, those that cannot run and why, blocks, estimate, notes.


@dataclass(frozen=True)
class SettingRow:
    """A setting that can run: how many runs are wanted of it, and how many of those are settled already."""

    setting: str
    label: str
    axes: dict[str, Any]
    baseline: bool
    wanted: int
    settled: int


@dataclass(frozen=True)
class ReasonRow:
    """A setting that will not run, with the reason; `setting` is None for one that an `exclude:` rule dropped."""

    setting: str | None
    label: str
    axes: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class BlockRow:
    """A block: its wanted runs, how many are settled, whether this plan adds it, and its resources."""

    block: str
    new: bool
    runs: int
    settled: int
    resources: Resources


@dataclass(frozen=True)
class PlanTable:
    """Everything that `accelsweep plan` shows."""

    sweep: str
    revision: int
    settings: tuple[SettingRow, ...]
    unsupported: tuple[ReasonRow, ...]
    excluded: tuple[ReasonRow, ...]
    blocks: tuple[BlockRow, ...]
    wanted: int
    settled: int
    estimate: PlanEstimate
    visible_effect: VisibleEffect
    notes: tuple[str, ...]


def plan_table(
    plan: Plan, settled: Collection[str] = (), took: ObservedTimes | None = None, noise: float | None = None
) -> PlanTable:
    """Return the rows of a plan.

    The caller brings the results of earlier runs: names of `settled` runs, what they `took`, and `noise`, the standard
    deviation of a run's log rate.
    """
    manifest, done = plan.manifest, set(settled)
    runs = manifest.wanted_runs()
    return PlanTable(
        sweep=manifest.sweep,
        revision=manifest.revision,
        settings=tuple(_setting_rows(plan, done)),
        unsupported=tuple(
            ReasonRow(setting.name, label(setting.axes), setting.axes, setting.unsupported)
            for setting in manifest.settings
            if setting.unsupported
        ),
        excluded=tuple(
            ReasonRow(None, label(dropped.axes), dropped.axes, dropped.because) for dropped in manifest.excluded
        ),
        blocks=tuple(_block_rows(plan, done)),
        wanted=len(runs),
        settled=sum(run in done for run in runs),
        estimate=estimate(plan, done, took),
        visible_effect=visible_effect(plan, noise),
        notes=plan.notes,
    )


def _setting_rows(plan: Plan, done: Collection[str]) -> Iterator[SettingRow]:
    runs = plan.manifest.wanted_runs()
    wanted = Counter(Run.parse(run).setting for run in runs)
    settled = Counter(Run.parse(run).setting for run in runs if run in done)
    baselines = plan.manifest.baselines
    for setting in plan.manifest.settings:
        if setting.unsupported is None:
            baseline = setting.name in baselines
            yield SettingRow(
                setting.name, label(setting.axes), setting.axes, baseline, wanted[setting.name], settled[setting.name]
            )


def _block_rows(plan: Plan, done: Collection[str]) -> Iterator[BlockRow]:
    new = {block.name for block in plan.new_blocks}
    for block in plan.manifest.blocks:
        settled = sum(run in done for run in block.runs)
        yield BlockRow(block.name, block.name in new, len(block.runs), settled, block.resources)
