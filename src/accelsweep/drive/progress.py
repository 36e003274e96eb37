"""Live progress of a sweep, read from its files alone: runs done, the current cell, the last rate, the time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from accelsweep.base.terminal import escaped
from accelsweep.core.cell import label
from accelsweep.core.outcome import Outcome
from accelsweep.core.plans import Block, Hold, Manifest, Run
from accelsweep.core.settings import Site
from accelsweep.core.tasks import compared_rate
from accelsweep.drive.console import duration
from accelsweep.drive.forecast import LONG_SECONDS, Forecast, Pace, announcement
from accelsweep.plan.grid.measures import measure_options
from accelsweep.report.format import number
from accelsweep.state.folders import SweepFolder
from accelsweep.state.living import read_hold
from accelsweep.state.progress import signs_of, steps_done
from accelsweep.state.records import readable_records, record_or_none
from accelsweep.supervise.skips import standing


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
    finished: dict[str, tuple[str, ...]]
    total: int
    done: int
    wanted_rate: str | None = None
    pending: dict[str, list[str]] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)
    standing: set[str] = field(default_factory=set)
    fresh_seconds: list[float] = field(default_factory=list)
    overrides: tuple[str, ...] = ()
    pace: Pace = field(default_factory=Pace)
    forecast: Forecast | None = None
    last: str = ""
    failure: str | None = None
    console: Console = field(default_factory=Console)
    bar: Bar | None = None

    @classmethod
    def begin(cls, folder: SweepFolder) -> SweepProgress:
        """Note the present record of each run; runs that need no further attempt count as done."""
        manifest = Manifest.read(folder.manifest)
        runs = manifest.wanted_runs()
        cells = {cell.name: label(cell.axes) for cell in manifest.cells}
        names = {run: Run.parse(run) for run in runs}
        progress = cls(
            folder=folder,
            site=manifest.site,
            labels={run: f"{cells[name.cell]}, repeat {name.repeat}" for run, name in names.items()},
            finished={block.name: block.runs for block in manifest.blocks},
            total=len(runs),
            done=len(runs),
            wanted_rate=manifest.settings.analysis.rate,
            overrides=manifest.overrides,
        )
        progress._look_for_open_blocks()
        return progress

    def _look_for_open_blocks(self) -> None:
        opened = [block for block in self.finished if not self.folder.done(block).exists()]
        for block in opened:
            self.pending[block] = list(self.finished.pop(block))
        runs = [run for block in opened for run in self.pending[block]]
        stood = standing(readable_records(self.folder, runs), self.folder.home, self.site) if runs else set()
        self.before |= {run: _stamp(self.folder, run) for run in runs}
        self.standing |= stood
        self.done -= len(runs) - len(stood)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show a bar on a terminal for the length of the block; elsewhere plain lines are printed as runs end."""
        if not self.console.is_terminal or not self.pending:
            yield
            return
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
        )
        with Bar(*columns, console=self.console, transient=True) as self.bar:
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
        if self.forecast is None and not self.fresh_seconds:
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
        self.fresh_seconds.append(record.wall_seconds)
        rate = record.metrics.get(compared_rate(self.wanted_rate, [record.config.task]))
        if record.outcome is Outcome.measured and rate is not None and rate.value is not None:
            self.last = number(rate.value, rate.unit)
        else:
            self.last = str(record.outcome)
        reason = "" if record.outcome is Outcome.measured else f": {record.reason}".splitlines()[0]
        again = f" (attempt {record.attempt})" if record.attempt > 1 else ""
        text = f"{self.labels[run]}{again}  {self.last}{reason}"
        if not record.outcome.settled and self.failure is None:
            self.failure = text
        self.console.print(escaped(f"[{self.done}/{self.total}] {text}"), markup=False, highlight=False, soft_wrap=True)

    def _foretell(self) -> None:
        """Tell what the first run takes as soon as its steps show it, where that is long."""
        for block in self.pending:
            hold = read_hold(self.folder.hold(block))
            if hold is None or hold.run is None:
                continue
            if (seconds := self.pace.look(hold.run, steps_done(self.folder, hold.run))) is None:
                return
            config = Block.read(self.folder.block(block)).configs[Run.parse(hold.run).cell]
            self.forecast = Forecast.of(config, config.measure, seconds)
            if self.forecast.seconds > LONG_SECONDS:
                options = measure_options(self.folder.home, self.overrides)
                text = announcement(config, self.forecast, self.total - self.done, options)
                self.console.print(escaped(text), markup=False, highlight=False, soft_wrap=True)
            return

    def _line(self) -> str:
        now = [self.labels.get(hold.run, "") for hold in self._holds() if hold.run]
        parts = [now[0] if now else "preparing", f"last {self.last}" if self.last else "", self._eta()]
        return " | ".join(part for part in parts if part)

    def _holds(self) -> Iterator[Hold]:
        holds = (read_hold(self.folder.hold(block)) for block in self.pending)
        return (hold for hold in holds if hold is not None)

    def _eta(self) -> str:
        runs = self.total - self.done
        if self.fresh_seconds:
            return f"about {duration(runs * sum(self.fresh_seconds) / len(self.fresh_seconds))} left"
        return "" if self.forecast is None else f"at least {duration(runs * self.forecast.seconds)} left"


def _stamp(folder: SweepFolder, run: str) -> int:
    try:
        return folder.record(run).stat().st_mtime_ns
    except FileNotFoundError:
        return 0
