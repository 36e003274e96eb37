"""Live progress of a sweep, read only from its files: runs done, the current run, the latest rate, the time left."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from accelsweep.config.hydra import Composer
from accelsweep.config.schema import checked_measure
from accelsweep.config.setting import label, repeat_label
from accelsweep.config.site import Site
from accelsweep.devices.clock import Clock, monotonic
from accelsweep.driver.console import WIDE, Terminal
from accelsweep.driver.snakemake_hooks import FileStamp, file_stamp
from accelsweep.errors import DamagedFile, InputError
from accelsweep.executor.result_reuse import reusable_runs
from accelsweep.measure.breakdown import SETTLING_STEPS, probe_steps
from accelsweep.measure.timed_window import WindowRules
from accelsweep.planning.cost_estimate import ObservedTimes, RunTime
from accelsweep.planning.resources import is_emulated
from accelsweep.records.early_decisions import decided_runs
from accelsweep.records.file_lock import read_lock
from accelsweep.records.layout import SweepFolder, known_sweeps
from accelsweep.records.plan import LockOwner, Manifest
from accelsweep.records.run_files import RunFolder, read_rank_result, readable_configs, readable_records, record_or_none
from accelsweep.records.run_record import Record
from accelsweep.records.sweep_progress import progress_signature, steps_done
from accelsweep.report.formatting import number
from accelsweep.results import Outcome
from accelsweep.run_config import Measure, Run, SettingConfig
from accelsweep.schedulers.select import scheduler_of
from accelsweep.significant_digits import approximate_duration, count_of, escaped, format_duration
from accelsweep.tasks import compared_rate
from accelsweep.worker.error_classification import ErrorOrigin

MIN_PACE_STEPS = 3

MIN_PACE_SECONDS = 5.0
"""The minimum number of steps and seconds after the first observed step before a pace is estimated.

This leaves out the slow first step and the steps right after it, which are slow while libraries load and caches fill.
"""

LONG_RUN_SECONDS = 60.0
"""If a run is expected to take longer than this, the user is told in advance."""

FASTER_SHARE = 0.5
"""A `measure=` option is suggested if a run with it takes at most this fraction of the time."""


class Pace:
    """Estimates the seconds per step of the current run from its step counts."""

    def __init__(self, clock: Clock = monotonic) -> None:
        """`clock` returns the current time in seconds."""
        self._clock = clock
        self._first: tuple[str, float, int] | None = None

    def observe(self, run: str, steps: int | None) -> float | None:
        """Return the seconds per step of `run` once it has completed `steps` steps; None if it is too early to tell."""
        if not steps:
            return None
        if self._first is None or self._first[0] != run:
            self._first = (run, self._clock(), steps)
        _, start, first = self._first
        seconds, done = self._clock() - start, steps - first
        return seconds / done if done >= MIN_PACE_STEPS and seconds >= MIN_PACE_SECONDS else None


@dataclass(frozen=True)
class Forecast:
    """The predicted number of steps in each phase of a run, at a known pace. Excludes start-up and validations."""

    step_seconds: float
    steps: Mapping[str, int]

    @classmethod
    def of(cls, config: SettingConfig, measure: Measure, step_seconds: float) -> Forecast:
        """Forecast a run of `config` measured according to `measure`."""
        rules = WindowRules.from_config(measure)
        steps = {"warm-up": rules.warmup([step_seconds]), "window": rules.window_steps([step_seconds])}
        if config.task in ("train_throughput", "time_to_accuracy") and measure.probe_steps:
            passes = 2 if config.world_size > 1 else 1
            probed = probe_steps(measure.probe_steps, measure.min_seconds, step_seconds, 1)
            steps["probe pass"] = passes * (SETTLING_STEPS + probed)
        if config.task == "train_throughput" and measure.quality_samples:
            steps["quality"] = math.ceil(measure.quality_samples / config.samples_per_step)
        return cls(step_seconds, steps)

    @property
    def seconds(self) -> float:
        """The minimum duration of the run."""
        return self.step_seconds * sum(self.steps.values())


def slow_run_notice(config: SettingConfig, forecast: Forecast, runs: int, options: Mapping[str, Measure]) -> str:
    """Describe how long one run and all remaining `runs` take, and which of the `options` is much faster, if any."""
    phases = ", ".join(f"{phase} {count}" for phase, count in forecast.steps.items())
    duration = format_duration(forecast.seconds)
    notice = f"a step takes {forecast.step_seconds:.2g} s, so a run takes {duration} or more (steps: {phases})"
    if runs > 1:
        notice += f". At that pace the remaining {runs} runs take {format_duration(runs * forecast.seconds)}"
    seconds = {
        name: Forecast.of(config, measure, forecast.step_seconds).seconds
        for name, measure in options.items()
        if measure.quality_metric == config.measure.quality_metric
    }
    name, least = min(seconds.items(), key=lambda item: item[1], default=("", math.inf))
    if least > FASTER_SHARE * forecast.seconds:
        return notice
    return (
        f"{notice}. With measure={name} it would take {format_duration(least)}: press Ctrl-C and repeat the command "
        "with that option"
    )


def measure_options(home: Path, overrides: Sequence[str]) -> dict[str, Measure]:
    """Return the `measure` configs selectable as `measure=NAME` in a sweep with these overrides, keyed by name.

    Returns an empty dict if any of these configs cannot be composed, or if the sweep varies keys of `measure` and thus
    has no single `measure` config.
    """
    composer = Composer.of(home, overrides)
    parsed = [(line, composer.parse(line)) for line in overrides]
    if any(item.is_sweep_override() and item.key_or_group.split(".")[0] == "measure" for _, item in parsed):
        return {}
    kept = [
        line for line, override in parsed if not override.is_sweep_override() and override.key_or_group != "measure"
    ]
    try:
        return {
            name: checked_measure(
                OmegaConf.to_container(composer.compose([*kept, f"measure={name}"])["measure"], resolve=True)
            )
            for name in composer.loader.get_group_options("measure")
        }
    except (InputError, ValueError):
        return {}


_MAX_SWEEPS = 3

_MAX_RECORDS = 50
"""The maximum number of earlier sweeps, and of records from each, that an estimate uses."""


def observed_times(folder: SweepFolder, times: Iterable[RunTime | None]) -> ObservedTimes:
    """Return run durations from this sweep's `times` or, if there are none, from the folder's latest other sweeps."""
    return (
        ObservedTimes.from_runs(times, "by earlier runs of this sweep")
        or ObservedTimes.from_runs(_times_elsewhere(folder), "by earlier sweeps in this folder")
        or ObservedTimes()
    )


def _times_elsewhere(folder: SweepFolder) -> Iterator[RunTime | None]:
    others = [SweepFolder(folder.home, name) for name in known_sweeps(folder.home) if name != folder.name]
    for other in sorted(others, key=lambda other: other.manifest.stat().st_mtime, reverse=True)[:_MAX_SWEEPS]:
        runs = [path.parent.name for path in other.latest_records()[:_MAX_RECORDS]]
        with contextlib.suppress(InputError):  # a sweep written by a newer version must not affect this one
            yield from map(RunTime.of, readable_records(other, runs))


class RemainingTime:
    """Estimates how long the remaining runs take. `configs` contains the sweep's readable setting configs."""

    def __init__(self, folder: SweepFolder, configs: Mapping[str, SettingConfig], site: Site) -> None:
        """Start with no finished runs."""
        self._folder, self.configs, self._site = folder, configs, site
        self._times: dict[str, RunTime | None] = {}
        self._observed: ObservedTimes | None = None

    def add(self, records: Iterable[Record]) -> None:
        """Add finished runs; for a retried run, only the last attempt counts."""
        self._times |= {record.run: RunTime.of(record) for record in records}
        self._observed = None

    @property
    def timed(self) -> bool:
        """Whether the estimate is based on runs of this sweep, rather than on other sweeps or assumptions."""
        return any(self._times.values())

    def seconds(self, runs: Iterable[str], blocks: int) -> float:
        """Return the seconds that these runs take in sequence, including the pause before each of `blocks` blocks."""
        if self._observed is None:
            self._observed = observed_times(self._folder, self._times.values())
        settings = [Run.parse(run).setting for run in runs]
        known = [(name, self.configs[name]) for name in settings if name in self.configs]
        total = sum(
            self._observed.seconds(name, config, is_emulated=is_emulated(config, self._site)) for name, config in known
        )
        return total + blocks * self._observed.between_blocks


_MAX_EARLIER_RUNS = 200
"""The maximum number of runs in finished blocks whose durations are read for the estimate."""


@dataclass
class FirstFailures:
    """The exceptions raised by a command's first two settings, kept until a run has been measured.

    `common_error` is the exception and its location if both settings raised the same one, in which case the remaining
    runs would fail too. In a sweep with a single setting, its first two runs are compared instead.
    """

    folder: SweepFolder
    measured: bool = False
    common_error: str | None = None
    _errors: dict[str, ErrorOrigin] = field(default_factory=dict)

    def add(self, record: Record, *, by_run: bool = False) -> None:
        """Add a finished run; if `by_run` is set, runs are compared instead of settings."""
        self.measured |= record.outcome is Outcome.measured
        if self.measured or record.outcome is not Outcome.crashed or len(self._errors) >= 2:
            return
        attempt = RunFolder(self.folder.run(record.run), record.run).attempt(record.attempt)
        for path in sorted(attempt.glob("rank-*.json")):
            try:
                result = read_rank_result(path)
            except (FileNotFoundError, DamagedFile):
                continue
            error = ErrorOrigin.of(result.traceback or "", self.folder.home)
            if result.error_kind == "user_exception" and error is not None:
                self._errors.setdefault(record.run if by_run else record.setting, error)
                if len(self._errors) == 2 and len(set(self._errors.values())) == 1:
                    file = Path(error.file)
                    place = file.relative_to(self.folder.home) if file.is_relative_to(self.folder.home) else file
                    self.common_error = f"{result.reason} ({place}, line {error.line}, in {error.function})"
                return


@dataclass
class SweepProgress:
    """Tracks which wanted runs have received a new record since `begin`, and shows the progress to the user.

    A block is `finished` while its done file exists, and `pending` otherwise. Snakemake's audit runs after `begin` and
    deletes done files that are no longer valid. `settled` contains the runs of pending blocks that need no further
    attempt. `failure` describes the first run that failed.
    """

    folder: SweepFolder
    site: Site
    labels: dict[str, str]
    remaining: RemainingTime
    finished: dict[str, tuple[str, ...]]
    total: int
    done: int
    first_failures: FirstFailures
    rate_metric: str | None = None
    pending: dict[str, list[str]] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    new_records: int = 0
    overrides: tuple[str, ...] = ()
    pace: Pace = field(default_factory=Pace)
    forecast: Forecast | None = None
    last_result: str = ""
    failure: str | None = None
    console: Console = field(default_factory=Terminal)
    bar: Progress | None = None
    _stamps: dict[str, FileStamp] = field(default_factory=dict)
    _decisions_stamp: FileStamp | None = None

    @classmethod
    def begin(cls, folder: SweepFolder, first_failures: FirstFailures | None = None) -> SweepProgress:
        """Start from the current record of each run; runs that need no further attempt count as done.

        `first_failures` carries over the failures from earlier in the same command.
        """
        manifest = Manifest.read(folder.manifest)
        runs = manifest.wanted_runs()
        configs = readable_configs(folder, manifest)
        settings = {setting.name: label(setting.axes) for setting in manifest.settings}
        names = {run: Run.parse(run) for run in runs}
        progress = cls(
            folder=folder,
            site=manifest.site,
            labels={run: repeat_label(settings[name.setting], name.repeat) for run, name in names.items()},
            remaining=RemainingTime(folder, configs, manifest.site),
            finished={block.name: block.runs for block in manifest.blocks},
            total=len(runs),
            done=len(runs),
            first_failures=first_failures or FirstFailures(folder),
            rate_metric=manifest.options.analysis.rate,
            overrides=manifest.overrides,
        )
        progress._find_pending_blocks()
        earlier = [run for block in progress.finished.values() for run in block]
        records = list(readable_records(folder, earlier[-_MAX_EARLIER_RUNS:]))
        progress.remaining.add(records)
        progress.first_failures.measured |= any(record.outcome is Outcome.measured for record in records)
        return progress

    def _find_pending_blocks(self) -> None:
        blocks = [block for block in self.finished if not self.folder.done(block).exists()]
        for block in blocks:
            self.pending[block] = list(self.finished.pop(block))
        runs = [run for block in blocks for run in self.pending[block]]
        records = list(readable_records(self.folder, runs))
        settled = reusable_runs(records, self.folder, self.site) if runs else set()
        self.remaining.add(records)
        self.first_failures.measured |= any(
            record.run in settled and record.outcome is Outcome.measured for record in records
        )
        self._stamps |= {run: file_stamp(self.folder.record(run)) for run in runs}
        self.settled |= settled
        self.done -= len(runs) - len(settled)
        if runs:
            self._decisions_stamp = None  # the decisions apply to these blocks, too

    @contextlib.contextmanager
    def display(self) -> Iterator[None]:
        """Show a progress bar inside the with-block on a terminal; otherwise print a plain line as each run ends."""
        if not self.console.is_terminal or not self.pending:
            yield
            return
        with Progress(*_columns(self.console), console=self.console, transient=True) as self.bar:
            self.bar.add_task("starting", total=self.total, completed=self.done)
            yield
        self.bar = None

    def _drop_decided_runs(self) -> None:
        """Leave out the runs of settings that have been decided early, and print what that saves."""
        stamp = file_stamp(self.folder.early_decisions)
        if stamp == self._decisions_stamp:
            return
        self._decisions_stamp = stamp
        decided = decided_runs(self.folder, Manifest.read(self.folder.manifest))
        dropped: dict[str, list[str]] = {}
        for block, runs in self.pending.items():
            for run in runs:
                if run in decided and run not in self.settled and self._stamps[run] is None:
                    dropped.setdefault(Run.parse(run).setting, []).append(run)
            self.pending[block] = [run for run in runs if run not in dropped.get(Run.parse(run).setting, ())]
        for runs in dropped.values():
            self.total -= len(runs)
            saved = approximate_duration(len(runs) * decided[runs[0]].run_seconds)
            setting, _, _ = self.labels[runs[0]].rpartition(", repeat ")
            left_out = f"{count_of(len(runs), 'repeat')} left out, which saves about {saved}"
            self._print(f"{setting}: {decided[runs[0]].reason}; {left_out}")

    def update(self) -> None:
        """Print the outcome of each new record, and refresh the line about the current run."""
        self._find_pending_blocks()
        self._drop_decided_runs()
        for block in list(self.pending):
            stamps = {run: file_stamp(self.folder.record(run)) for run in self.pending[block]}
            ended = [run for run, stamp in stamps.items() if stamp not in (None, self._stamps[run])]
            for run in ended:
                self._stamps[run] = stamps[run]
                self._report(run)
            if self.folder.done(block).exists() and not ended:
                del self.pending[block]  # from now on, none of its runs can be retried
                if self.bar is None and self.new_records and (left := self._time_left()):
                    self._print(left)
        if self.forecast is None and not self.remaining.timed:
            self._announce_slow_run()
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done, description=escaped(self._line()))

    def activity(self) -> object:
        """Return a value that changes whenever a run makes progress or ends."""
        running = [lock.run for lock in self._locks() if lock.run]
        return self.done, dict(self._stamps), {run: progress_signature(self.folder, run) for run in running}

    def _print(self, text: str) -> None:
        self.console.print(escaped(text), markup=False, highlight=False, soft_wrap=True)

    def _report(self, run: str) -> None:
        self.done += run not in self.settled
        self.settled.add(run)  # a retried run is reported again, but not counted twice
        record = record_or_none(self.folder, run)
        if record is None:
            return
        self.new_records += 1
        self.remaining.add([record])
        self.first_failures.add(record, by_run=len({Run.parse(name).setting for name in self.labels}) == 1)
        measured = record.outcome is Outcome.measured
        rate = record.metrics.get(compared_rate(self.rate_metric, [record.config.task_name]))
        if measured and rate is not None and rate.value is not None:
            self.last_result = number(rate.value, rate.unit)
        else:
            self.last_result = str(record.outcome)
        reason = "" if measured else f": {record.reason}".splitlines()[0]
        attempt = f" (attempt {record.attempt})" if record.attempt > 1 else ""
        doubts = ", ".join(doubt.code for doubt in record.doubts)
        unstalled = record.metrics.get("samples_per_second_without_stalls")
        stall = f" ({number(unstalled.value, '1/s')} without its stall)" if unstalled and unstalled.value else ""
        text = (
            f"{self.labels[run]}{attempt}  {self.last_result}{stall}{reason}{f'  doubts: {doubts}' if doubts else ''}"
        )
        if not record.outcome.settled and self.failure is None:
            self.failure = text
        self._print(f"[{self.done}/{self.total}] {text}")

    def _announce_slow_run(self) -> None:
        """If the sweep's first run will take long, announce its expected duration once its pace is known."""
        run = next((lock.run for lock in self._locks() if lock.run), None)
        if run is None or (seconds := self.pace.observe(run, steps_done(self.folder, run))) is None:
            return
        if (config := self.remaining.configs.get(Run.parse(run).setting)) is None:
            return
        self.forecast = Forecast.of(config, config.measure, seconds)
        if self.forecast.seconds > LONG_RUN_SECONDS:
            options = measure_options(self.folder.home, self.overrides)
            self._print(slow_run_notice(config, self.forecast, self.total - self.done, options))

    def _line(self) -> str:
        parts = [self._current(), f"last {self.last_result}" if self.last_result else "", self._time_left()]
        return " | ".join(filter(None, parts))

    def _current(self) -> str:
        """Return the run that is being measured, or what the sweep is waiting for."""
        locks = list(self._locks())
        runs = [lock.run for lock in locks if lock.run]
        if runs:
            name = self.labels.get(runs[0], runs[0])
            return name if steps_done(self.folder, runs[0]) else f"starting {name}"
        if not self.pending:
            return "writing the report"
        if waiting := next((lock.waiting_for for lock in locks if lock.waiting_for), None):
            return f"waiting for a quiet machine: {waiting}"
        block = f"block {len(self.finished) + 1} of {len(self.finished) + len(self.pending)}"
        if locks:
            return f"preparing {block}: libraries and data"
        if scheduler := scheduler_of(self.site):
            return f"waiting for {scheduler.name} to start {block}"
        return f"preparing {block}: Snakemake is starting its executor"

    def _locks(self) -> Iterator[LockOwner]:
        return filter(None, (read_lock(self.folder.lock(block)) for block in self.pending))

    def _time_left(self) -> str:
        return f"about {approximate_duration(seconds)} left" if (seconds := self.seconds_left()) else ""

    def seconds_left(self) -> float:
        """Return the seconds until the last run ends, from observed durations or the forecast, whichever is longer."""
        left = {block: [run for run in runs if run not in self.settled] for block, runs in self.pending.items()}
        runs = [run for block in left.values() for run in block]
        locks = [lock for lock in self._locks() if lock.run in runs]
        waiting = max(0, sum(map(bool, left.values())) - len(locks))
        seconds = self.remaining.seconds(runs, waiting) - sum(map(self._elapsed, locks))
        if self.forecast is not None and not self.remaining.timed:
            seconds = max(seconds, len(runs) * self.forecast.seconds)
        return seconds / max(1, len(locks))  # jobs on a cluster run in parallel

    def _elapsed(self, lock: LockOwner) -> float:
        """Return the seconds since the start of the current run, capped at its expected duration."""
        if lock.run is None or lock.run_since is None:
            return 0.0
        elapsed = time.time() - datetime.fromisoformat(lock.run_since).timestamp()
        return min(max(0.0, elapsed), self.remaining.seconds([lock.run], 0))


def _columns(console: Console) -> tuple[ProgressColumn, ...]:
    """Return the columns of the progress bar. On a narrow terminal the text wraps and there is no bar."""
    text = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold", ratio=1))
    columns = (MofNCompleteColumn(), TimeElapsedColumn(), text)
    return (BarColumn(), *columns) if console.width >= WIDE else columns
