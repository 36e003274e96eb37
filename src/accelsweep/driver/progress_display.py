"""Live progress of a sweep, read from its files alone: runs done, what goes on, the last rate, the time left."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from omegaconf import OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column

from accelsweep.config.hydra import Composer
from accelsweep.config.schema import checked_measure
from accelsweep.config.setting import label, repeat_label
from accelsweep.config.site import Site
from accelsweep.devices.clock import Clock, monotonic
from accelsweep.driver.console import WIDE, Terminal
from accelsweep.errors import DamagedFile, InputError
from accelsweep.executor.result_reuse import reusable_runs
from accelsweep.measure.breakdown import SETTLING_STEPS, probe_steps
from accelsweep.measure.window import WindowRules
from accelsweep.planning.cost_estimate import RunTime, Took
from accelsweep.records.file_lock import read_hold
from accelsweep.records.layout import SweepFolder, known_sweeps
from accelsweep.records.plan import Hold, Manifest, PlannedSetting
from accelsweep.records.run_files import RunFolder, read_rank_result, readable_configs, readable_records, record_or_none
from accelsweep.records.run_record import Record
from accelsweep.records.sweep_progress import signs_of, steps_done
from accelsweep.report.units import number
from accelsweep.results import Outcome, RankResult
from accelsweep.run_config import Measure, Run, SettingConfig
from accelsweep.schedulers.select import engine_of
from accelsweep.significant_digits import approximate_duration, escaped, format_duration
from accelsweep.tasks import compared_rate
from accelsweep.worker.errors import ErrorOrigin

# The time that a run will take, foretold from its first steps, and the `measure=` that suits such a pace.

FEWEST_STEPS = 3

FEWEST_SECONDS = 5.0
"""Steps and seconds after the first look that tell the pace. The slow first step was done before that look.

Quick steps can be slow too until libraries are loaded and caches are filled. The seconds make that little of the whole.
"""

LONG_SECONDS = 60.0
"""A run that takes longer is announced."""

WORTH = 0.5
"""Another way to measure is named if it takes at most this share of the time."""


class Pace:
    """Finds the seconds of a step by looking at a run's number of steps now and then."""

    def __init__(self, clock: Clock = monotonic) -> None:
        """`clock` tells when a look was taken."""
        self._clock = clock
        self._first: tuple[str, float, int] | None = None

    def look(self, run: str, steps: int | None) -> float | None:
        """Return the seconds of a step of `run` that has done so many steps by now; None if it is too early to tell."""
        if not steps:
            return None
        if self._first is None or self._first[0] != run:
            self._first = (run, self._clock(), steps)
        _, begun, before = self._first
        took, done = self._clock() - begun, steps - before
        return took / done if done >= FEWEST_STEPS and took >= FEWEST_SECONDS else None


@dataclass(frozen=True)
class Forecast:
    """The steps of a run by phase at a known pace. The validations and the start of a run are not in it."""

    step_seconds: float
    steps: Mapping[str, int]

    @classmethod
    def of(cls, config: SettingConfig, measure: Measure, step_seconds: float) -> Forecast:
        """Foretell a run of `config` that is measured by the rules of `measure`."""
        rules = WindowRules.from_config(measure)
        steps = {"warm-up": rules.warmup, "window": rules.window_steps([step_seconds])}
        if config.task in ("train_throughput", "time_to_accuracy") and measure.probe_steps:
            passes = 2 if config.world_size > 1 else 1
            looked = probe_steps(measure.probe_steps, measure.min_seconds, step_seconds, 1)
            steps["probe pass"] = passes * (SETTLING_STEPS + looked)
        if config.task == "train_throughput" and measure.quality_samples:
            steps["quality"] = math.ceil(measure.quality_samples / config.samples_per_step)
        return cls(step_seconds, steps)

    @property
    def seconds(self) -> float:
        """The seconds of the run, at least."""
        return self.step_seconds * sum(self.steps.values())


def announcement(config: SettingConfig, found: Forecast, runs: int, options: Mapping[str, Measure]) -> str:
    """Say what a run and all `runs` that are left will take, and which of the `options` takes much less.

    `options` are the ways to measure by name, as `measure_options` tells them.
    """
    phases = ", ".join(f"{phase} {count}" for phase, count in found.steps.items())
    run = format_duration(found.seconds)
    said = f"a step takes {found.step_seconds:.2g} s, so a run takes {run} or more (steps: {phases})"
    said += f". At that pace all {runs} that are left take {format_duration(runs * found.seconds)}" if runs > 1 else ""
    alike = {name: one for name, one in options.items() if one.quality_metric == config.measure.quality_metric}
    takes = {name: Forecast.of(config, measure, found.step_seconds).seconds for name, measure in alike.items()}
    name, least = min(takes.items(), key=lambda one: one[1], default=("", math.inf))
    if least > WORTH * found.seconds:
        return said
    return (
        f"{said}. With measure={name} it would take {format_duration(least)}: Ctrl-C, then the same command with that"
    )


# The seconds that are left of a sweep: by the time of its runs, before that by earlier sweeps of the folder.

_MOST_SWEEPS = 3

_MOST_RECORDS = 50
"""Of each of so many earlier sweeps: enough to know how long runs take, and quickly read."""


def time_taken(folder: SweepFolder, times: Iterable[RunTime | None]) -> Took:
    """Return what runs took: by these `times` of the sweep, else by those of the sweeps that were written last."""
    here = Took.by(times, "by earlier runs of this sweep")
    return here or Took.by(_elsewhere(folder), "by earlier sweeps in this folder") or Took()


def _elsewhere(folder: SweepFolder) -> Iterator[RunTime | None]:
    others = [SweepFolder(folder.home, name) for name in known_sweeps(folder.home) if name != folder.name]
    for other in sorted(others, key=lambda other: other.manifest.stat().st_mtime, reverse=True)[:_MOST_SWEEPS]:
        runs = [path.parent.name for path in other.records_on_top()[:_MOST_RECORDS]]
        with contextlib.suppress(InputError):  # a later version's: none of this sweep's business
            yield from map(RunTime.of, readable_records(other, runs))


class Remaining:
    """Foretells how long the runs that are left take. `add` tells it of each run that has ended."""

    def __init__(self, folder: SweepFolder, configs: Mapping[str, SettingConfig]) -> None:
        """`configs` are those of the sweep's settings by name; one that is not there is left out of the estimate."""
        self._folder, self.configs = folder, configs
        self._times: dict[str, RunTime | None] = {}
        self._took: Took | None = None

    def add(self, records: Iterable[Record]) -> None:
        """Take note of runs that have ended; a run that was tried again counts with its last attempt."""
        self._times |= {record.run: RunTime.of(record) for record in records}
        self._took = None

    @property
    def timed(self) -> bool:
        """Whether runs of this sweep tell the time, and not only assumptions or other sweeps."""
        return any(self._times.values())

    def seconds(self, runs: Iterable[str], blocks: int) -> float:
        """Return the seconds that these runs take one after another, with the breaks before `blocks` blocks."""
        if self._took is None:
            self._took = time_taken(self._folder, self._times.values())
        settings = (Run.parse(run).setting for run in runs)
        each = (self._took.seconds(setting, self.configs[setting]) for setting in settings if setting in self.configs)
        return sum(each) + blocks * self._took.between_blocks


# The ways to measure that a user may choose from by `measure=NAME`, each as it would be in their sweep.

MEASURE_GROUP = "measure"


def measure_options(home: Path, overrides: Sequence[str]) -> dict[str, Measure]:
    """Return what `measure=NAME` would make of a sweep's `measure`, by name; nothing where one cannot be composed.

    The sweep's other overrides stay, so a key that one of them sets has its value in every option. A sweep over keys of
    `measure` has no single answer, so nothing is returned.
    """
    composer = Composer.of(home, overrides)
    parsed = [composer.parse(line) for line in overrides]
    if any(one.is_sweep_override() and one.key_or_group.split(".")[0] == MEASURE_GROUP for one in parsed):
        return {}
    kept = [
        line
        for line, one in zip(overrides, parsed, strict=True)
        if not one.is_sweep_override() and one.key_or_group != MEASURE_GROUP
    ]
    try:
        return {
            name: checked_measure(
                OmegaConf.to_container(
                    composer.compose([*kept, f"{MEASURE_GROUP}={name}"])[MEASURE_GROUP], resolve=True
                )
            )
            for name in composer.loader.get_group_options(MEASURE_GROUP)
        }
    except (InputError, ValueError):
        return {}


_FIRST = 2

_MOST_EARLIER = 200
"""Runs of finished blocks whose time is looked at: enough for an estimate, and quickly read."""


@dataclass
class FirstFailures:
    """The exceptions with which the first settings of a command ended, for as long as nothing is measured.

    `alike` is the exception and its place once the first two have ended with the same one: the rest would, too. Where a
    sweep has one setting only, its first two runs count.
    """

    folder: SweepFolder
    measured: bool = False
    alike: str | None = None
    _ended: dict[str, ErrorOrigin] = field(default_factory=dict)

    def look(self, record: Record, *, by_run: bool = False) -> None:
        """Note how a run ended. A run that raised nothing tells nothing, but that it was measured tells all."""
        self.measured |= record.outcome is Outcome.measured
        if self.measured or record.outcome is not Outcome.crashed or len(self._ended) >= _FIRST:
            return
        for result in self._results(record):
            origin = ErrorOrigin.of(result.traceback or "", self.folder.home)
            if result.error_kind == "user_exception" and origin is not None:
                self._ended.setdefault(record.run if by_run else record.setting, origin)
                if len(self._ended) == _FIRST and len(set(self._ended.values())) == 1:
                    file = Path(origin.file)
                    named = file.relative_to(self.folder.home) if file.is_relative_to(self.folder.home) else file
                    self.alike = f"{result.reason} ({named}, line {origin.line}, in {origin.function})"
                return

    def _results(self, record: Record) -> Iterator[RankResult]:
        attempt = RunFolder(self.folder.run(record.run), record.run).attempt(record.attempt)
        for path in sorted(attempt.glob("rank-*.json")):
            with suppress(FileNotFoundError, DamagedFile):
                yield read_rank_result(path)


@dataclass
class SweepProgress:
    """The wanted runs that have a new record since `begin`, and the progress shown to the user.

    A block is `finished` while its done file exists, and `pending` while it has none. Snakemake's audit comes later
    than `begin` and removes done files that are no longer true. `standing` names the runs of pending blocks that need
    no further attempt. `failure` tells of the first run that ended badly.
    """

    folder: SweepFolder
    site: Site
    labels: dict[str, str]
    remaining: Remaining
    finished: dict[str, tuple[str, ...]]
    total: int
    done: int
    first: FirstFailures
    wanted_rate: str | None = None
    pending: dict[str, list[str]] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    standing: set[str] = field(default_factory=set)
    fresh: int = 0
    overrides: tuple[str, ...] = ()
    pace: Pace = field(default_factory=Pace)
    forecast: Forecast | None = None
    last: str = ""
    failure: str | None = None
    console: Console = field(default_factory=Terminal)
    bar: Bar | None = None

    @classmethod
    def begin(cls, folder: SweepFolder, first: FirstFailures | None = None) -> SweepProgress:
        """Note the present record of each run; runs that need no further attempt count as done.

        `first` are the failures that the same command has seen before.
        """
        manifest = Manifest.read(folder.manifest)
        runs = manifest.wanted_runs()
        configs = readable_configs(folder, manifest)
        settings = {setting.name: _label(setting, configs.get(setting.name)) for setting in manifest.settings}
        names = {run: Run.parse(run) for run in runs}
        progress = cls(
            folder=folder,
            site=manifest.site,
            labels={run: repeat_label(settings[name.setting], name.repeat) for run, name in names.items()},
            remaining=Remaining(folder, configs),
            finished={block.name: block.runs for block in manifest.blocks},
            total=len(runs),
            done=len(runs),
            first=first or FirstFailures(folder),
            wanted_rate=manifest.options.analysis.rate,
            overrides=manifest.overrides,
        )
        progress._look_for_open_blocks()
        earlier = [run for block in progress.finished.values() for run in block]
        stood = list(readable_records(folder, earlier[-_MOST_EARLIER:]))
        progress.remaining.add(stood)
        progress.first.measured |= any(record.outcome is Outcome.measured for record in stood)
        return progress

    def _look_for_open_blocks(self) -> None:
        opened = [block for block in self.finished if not self.folder.done(block).exists()]
        for block in opened:
            self.pending[block] = list(self.finished.pop(block))
        runs = [run for block in opened for run in self.pending[block]]
        records = list(readable_records(self.folder, runs))
        stood = reusable_runs(records, self.folder, self.site) if runs else set()
        self.remaining.add(records)
        self.first.measured |= any(record.run in stood and record.outcome is Outcome.measured for record in records)
        self.before |= {run: _stamp(self.folder, run) for run in runs}
        self.standing |= stood
        self.done -= len(runs) - len(stood)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show a bar on a terminal for the length of the block; elsewhere plain lines are printed as runs end."""
        if not self.console.is_terminal or not self.pending:
            yield
            return
        with Bar(*_columns(self.console), console=self.console, transient=True) as self.bar:
            self.bar.add_task("starting", total=self.total, completed=self.done)
            yield
        self.bar = None

    def update(self) -> None:
        """Look for new records, print each one's outcome, and refresh the line about the current run."""
        self._look_for_open_blocks()
        for block in list(self.pending):
            stamps = {run: _stamp(self.folder, run) for run in self.pending[block]}
            ended = [run for run, stamp in stamps.items() if stamp not in (0, self.before[run])]
            for run in ended:
                self.before[run] = stamps[run]
                self._tell(run)
            if self.folder.done(block).exists() and not ended:
                del self.pending[block]  # until then a run may be tried again; the rest was measured before
                self._tell_of_the_rest()
        if self.forecast is None and not self.remaining.timed:
            self._foretell()
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done, description=escaped(self._line()))

    def signs(self) -> object:
        """Return what differs from the last time whenever a run has moved or ended."""
        running = [hold.run for hold in self._holds() if hold.run]
        return self.done, dict(self.before), {run: signs_of(self.folder, run) for run in running}

    def _tell(self, run: str) -> None:
        self.done += run not in self.standing
        self.standing.add(run)  # tried again it is told again, and not counted twice
        record = record_or_none(self.folder, run)
        if record is None:
            return
        self.fresh += 1
        self.remaining.add([record])
        self.first.look(record, by_run=len({Run.parse(name).setting for name in self.labels}) == 1)
        rate = record.metrics.get(compared_rate(self.wanted_rate, [record.config.work]))
        if record.outcome is Outcome.measured and rate is not None and rate.value is not None:
            self.last = number(rate.value, rate.unit)
        else:
            self.last = str(record.outcome)
        reason = "" if record.outcome is Outcome.measured else f": {record.reason}".splitlines()[0]
        again = f" (attempt {record.attempt})" if record.attempt > 1 else ""
        doubts = ", ".join(doubt.code for doubt in record.doubts)
        without = record.metrics.get("samples_per_second_without_stalls")
        beside = f" ({number(without.value, '1/s')} without its stall)" if without and without.value else ""
        text = f"{self.labels[run]}{again}  {self.last}{beside}{reason}{f'  doubts: {doubts}' if doubts else ''}"
        if not record.outcome.settled and self.failure is None:
            self.failure = text
        self.console.print(escaped(f"[{self.done}/{self.total}] {text}"), markup=False, highlight=False, soft_wrap=True)

    def _foretell(self) -> None:
        """Tell what the sweep's first run takes as soon as its steps show it, where that is long."""
        for block in self.pending:
            hold = read_hold(self.folder.hold(block))
            if hold is None or hold.run is None:
                continue
            if (seconds := self.pace.look(hold.run, steps_done(self.folder, hold.run))) is None:
                return
            if (config := self.remaining.configs.get(Run.parse(hold.run).setting)) is None:
                return
            self.forecast = Forecast.of(config, config.measure, seconds)
            if self.forecast.seconds > LONG_SECONDS:
                options = measure_options(self.folder.home, self.overrides)
                text = announcement(config, self.forecast, self.total - self.done, options)
                self.console.print(escaped(text), markup=False, highlight=False, soft_wrap=True)
            return

    def _tell_of_the_rest(self) -> None:
        """Say after a block what is left, where no bar says so all the time."""
        if self.bar is None and self.fresh and (left := self._eta()):
            self.console.print(escaped(left), markup=False, highlight=False, soft_wrap=True)

    def _line(self) -> str:
        parts = [self._now(), f"last {self.last}" if self.last else "", self._eta()]
        return " | ".join(part for part in parts if part)

    def _now(self) -> str:
        """Return what goes on: the run that is measured, or what is being prepared for it."""
        holds = list(self._holds())
        runs = [hold.run for hold in holds if hold.run]
        if runs:
            name = self.labels.get(runs[0], runs[0])
            return name if steps_done(self.folder, runs[0]) else f"starting {name}"
        if not self.pending:
            return "writing the report"
        number = len(self.finished) + 1
        block = f"block {number} of {len(self.finished) + len(self.pending)}"
        if holds:
            return f"preparing {block}: libraries and data"
        if engine := engine_of(self.site):
            return f"waiting for {engine.name} to begin {block}"
        return f"preparing {block}: Snakemake starts its executor"

    def _holds(self) -> Iterator[Hold]:
        holds = (read_hold(self.folder.hold(block)) for block in self.pending)
        return (hold for hold in holds if hold is not None)

    def _eta(self) -> str:
        return f"about {approximate_duration(seconds)} left" if (seconds := self.seconds_left()) else ""

    def seconds_left(self) -> float:
        """Return the seconds until the last run ends, by what runs took, or by the first steps where that is more."""
        left = {block: [run for run in runs if run not in self.standing] for block, runs in self.pending.items()}
        runs = [run for block in left.values() for run in block]
        holds = [hold for hold in self._holds() if hold.run in runs]
        waiting = max(0, sum(map(bool, left.values())) - len(holds))
        seconds = self.remaining.seconds(runs, waiting) - sum(map(self._spent, holds))
        if self.forecast is not None and not self.remaining.timed:
            seconds = max(seconds, len(runs) * self.forecast.seconds)
        return seconds / max(1, len(holds))  # jobs on a cluster run side by side

    def _spent(self, hold: Hold) -> float:
        """Return the seconds that the holder's run has taken, at most those that it is expected to take."""
        if hold.run is None or hold.run_since is None:
            return 0.0
        since = time.time() - datetime.fromisoformat(hold.run_since).timestamp()
        return min(max(0.0, since), self.remaining.seconds([hold.run], 0))


def _label(setting: PlannedSetting, config: SettingConfig | None) -> str:
    """Return a setting's label with its kind and number of devices, swept or not."""
    devices = {} if config is None else {"accelerator": config.accelerator, "devices": config.devices}
    return label({**devices, **setting.axes})


def _columns(shown: Console) -> tuple[ProgressColumn, ...]:
    """Return the columns of the bar. The words take a second line where there is no room, and the bar gives way."""
    words = TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold", ratio=1))
    counts = (MofNCompleteColumn(), TimeElapsedColumn(), words)
    return (BarColumn(), *counts) if shown.width >= WIDE else counts


def _stamp(folder: SweepFolder, run: str) -> int:
    try:
        return folder.record(run).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
