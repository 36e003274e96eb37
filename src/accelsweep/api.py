"""The Python API for notebooks and scripts: plan, run and open sweeps, and get data frames, findings and charts."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import altair as alt
import pandas as pd
from markupsafe import escape

from accelsweep import registry
from accelsweep.analysis.analyse_sweep import analyse
from accelsweep.analysis.collect import read_runs, utf8_safe
from accelsweep.analysis.merge_sweeps import Part, analyse_together
from accelsweep.analysis.run_results import RunRow
from accelsweep.config.setting import label
from accelsweep.driver.plan_preview import plan_to_show, preview_table, summary_lines
from accelsweep.driver.request import Request
from accelsweep.driver.run_sweep import run_sweep
from accelsweep.errors import EXIT_INTERRUPTED, InputError, nearest
from accelsweep.planning.cost_estimate import PlanTable
from accelsweep.records.estimates import Estimate
from accelsweep.records.findings import Findings, SettingFinding
from accelsweep.records.layout import SweepFolder, existing_sweep, known_sweeps
from accelsweep.records.plan import Manifest, MergedName, joined_name
from accelsweep.records.run_files import read_steps
from accelsweep.report.content import Content, build_content
from accelsweep.report.html_page import TEMPLATES, render_static

# Runs and settings as pandas data frames. Column names include the metric's unit, as in `step_seconds`.

_TIMES = ("started_at", "finished_at")

_COUNTS = ("repeat", "position", "attempt", "seed")


def runs_frame(rows: Iterable[RunRow], axes: Iterable[str]) -> pd.DataFrame:
    """Return one row per run, in block order, then one per unsupported setting, with an empty `run`.

    `axis.KEY` contains the value on that axis. Each metric's column is named as in the metrics reference; a missing
    value is NaN, never 0. Times are UTC, and `wall_seconds` is the duration of the run, including start-up and
    shutdown.
    """
    runs, axis_names = list(rows), list(axes)
    metrics = dict.fromkeys(name for run in runs for name in run.metrics)
    frame = _frame([_run(run, axis_names, list(metrics)) for run in runs])
    for column in _TIMES:
        frame[column] = pd.to_datetime(frame[column], utc=True, format="ISO8601")
    return frame.astype(dict.fromkeys(_COUNTS, "Int64"))


def _run(row: RunRow, axes: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    return {
        "sweep": row.sweep,
        "run": row.run,
        "setting": row.setting,
        "label": label(row.axes),
        "block": row.block,
        "repeat": row.repeat,
        "position": row.position,
        "attempt": row.attempt,
        "seed": row.seed,
        "outcome": str(row.outcome),
        "reason": row.reason,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
        "wall_seconds": row.wall_seconds,
        "doubts": ", ".join(doubt.code for doubt in row.doubts),
        **{f"axis.{axis}": row.axes.get(axis) for axis in axes},
        **{metric: _number(row.value(metric)) for metric in metrics},
    }


def _frame(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the rows as a data frame of valid UTF-8, which pandas requires.

    An axis value may contain a lone surrogate.
    """
    return pd.DataFrame(
        {utf8_safe(name): utf8_safe(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def settings_frame(findings: Findings) -> pd.DataFrame:
    """Return one row per setting and hardware kind, in grid order, with the numbers from the report.

    The rate column is named after its metric, such as `samples_per_second`. `speedup_ratio` is the ratio to the
    baseline, if any. `NAME_low` and `NAME_high` are the ends of an interval; `NAME_median` is a metric's median over
    the repeats. Each cost has a column of the same name.
    """
    return _frame([_setting(findings, setting) for setting in findings.settings])


def _setting(findings: Findings, setting: SettingFinding) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": setting.setting, "label": setting.label}
    row |= {f"axis.{axis}": setting.axes.get(axis) for axis in findings.axes}
    row |= {"hardware": setting.hardware, "planned_runs": setting.planned, "measured_runs": setting.measured}
    row |= _interval(findings.rate_metric, setting.rate)
    row |= _interval("speedup_ratio", setting.ratio)
    row |= {"verdict": setting.verdict.value, "verdict_reason": setting.verdict_reason}
    row |= _interval("quality", setting.quality) | _interval("quality_difference", setting.quality_difference)
    row |= {"quality_verdict": setting.quality_verdict}
    row |= _interval("time_to_target_seconds", setting.time_to_target)
    for name in sorted({name for other in findings.settings for name in other.costs}):
        row |= _interval(name, setting.costs.get(name))
    for name in sorted({name for other in findings.settings for name in other.metrics}):
        summary = setting.metrics.get(name)
        row[f"{name}_median"] = _number(summary.median if summary else None)
    row["bottleneck"] = setting.bottleneck.verdict if setting.bottleneck else None
    row["doubts"] = ", ".join(dict.fromkeys(doubt.code for doubt in setting.doubts))
    return row | {"reasons": "; ".join(setting.reasons)}


def _interval(name: str, estimate: Estimate | None) -> dict[str, float]:
    ends = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return {column: _number(end) for column, end in zip((name, f"{name}_low", f"{name}_high"), ends, strict=True)}


@dataclass(frozen=True)
class _RunFiles:
    """The run files of one or several sweep folders. If there are several, runs are named SWEEP/RUN."""

    folders: Sequence[SweepFolder]

    def name(self, sweep: str, run: str) -> str:
        return str(MergedName("" if len(self.folders) == 1 else sweep, run))

    def steps(self, run: str) -> Path:
        return self._folder(run).steps(MergedName.of(run).name)

    def series(self, run: str) -> Path:
        return self._folder(run).series(MergedName.of(run).name)

    def record(self, run: str) -> Path:
        return self._folder(run).record(MergedName.of(run).name)

    def _folder(self, run: str) -> SweepFolder:
        sweep = MergedName.of(run).sweep
        return next(folder for folder in self.folders if not sweep or folder.name == sweep)


class OpenedSweep:
    """One sweep, or several merged sweeps, with the records as they were when it was opened. Read-only.

    `name` is the sweep's name, or `A+B` for merged sweeps, in which runs are named SWEEP/RUN. As the last expression of
    a notebook cell, the object displays the report's first screen.
    """

    def __init__(self, folders: Sequence[SweepFolder]) -> None:
        """`folders` are the sweeps' folders; the first provides the baseline. Call `accelsweep.open` instead."""
        self.name = joined_name([folder.name for folder in folders])
        self._files = _RunFiles(folders)
        self._parts = [_part(folder) for folder in folders]

    @cached_property
    def findings(self) -> Findings:
        """All numbers in the report, computed from the records, including intervals, verdicts and doubts."""
        if len(self._parts) > 1:
            return analyse_together(self.name, self._parts)
        (part,), (folder,) = self._parts, self._files.folders
        return analyse(part.runs, part.manifest, folder)

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per planned run: outcome, reason, axes (`axis.KEY`) and metrics, whose names include the unit."""
        rows = (
            replace(row, sweep=part.name, run=None if row.run is None else self._files.name(part.name, row.run))
            for part in self._parts
            for row in part.runs
        )
        return runs_frame(rows, dict.fromkeys(axis for part in self._parts for axis in part.manifest.axes))

    @cached_property
    def settings(self) -> pd.DataFrame:
        """One row per setting: rate and speed-up with intervals, verdict, quality, costs and medians of all metrics."""
        return settings_frame(self.findings)

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the sweep's figures, in report order."""
        return tuple(figure.name for figure in self._content.figures)

    def figure(self, name: str) -> alt.LayerChart:
        """Return a report figure, such as `speedup`, as a self-contained Altair chart.

        Raises InputError if the figure is unknown, or, with the reason, if it cannot be drawn for this sweep.
        """
        figures = {figure.name: figure for figure in self._content.figures}
        if name in figures:
            return alt.LayerChart.from_dict(figures[name].static_specification())
        reason = next((skipped.reason for skipped in self._content.skipped if skipped.name == name), None)
        if reason is not None:
            raise InputError(f"the figure {name!r} cannot be drawn for {self.name}: {reason}")
        raise InputError(f"no figure {name!r}{nearest(name, figures)}; {self.name} has: {', '.join(figures)}")

    def steps(self, run: str) -> pd.DataFrame:
        """Return a run's raw steps, one row per step and rank.

        The columns are `rank`, `step`, `phase` (`warmup` or `window`), `step_seconds`, `samples` and `train_loss`.
        Raises InputError if the run is not planned or recorded no steps, and DamagedFile if its steps are damaged.
        """
        outcomes = {row.run: row for row in self.runs.itertuples() if isinstance(row.run, str)}
        if run not in outcomes:
            raise InputError(f"no run {run!r} in {self.name}{nearest(run, outcomes)}; .runs.run lists them")
        path, record = self._files.steps(run), self._files.record(run)
        if not (path.is_file() and record.is_file()):
            raise InputError(f"the run {run!r} has no steps: {outcomes[run].outcome}: {outcomes[run].reason}")
        frame: pd.DataFrame = read_steps(path, record, MergedName.of(run).name).to_pandas()
        return frame

    @cached_property
    def _content(self) -> Content:
        return build_content(self.findings, self._files)

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in self.findings.outcomes.items())
        return f"<OpenedSweep {self.name}: {len(self.findings.settings)} settings; runs: {outcomes}>"

    def _repr_html_(self) -> str:
        content = self._content
        advice = content.findings.recommendation
        return render_static(
            TEMPLATES / "first_screen.html.j2", content=content, findings=content.findings, advice=advice
        )


def _part(folder: SweepFolder) -> Part:
    manifest = Manifest.read(folder.manifest)
    return Part(folder.name, read_runs(folder, manifest), manifest)


# `accelsweep.plan` and `accelsweep.run`: the commands of the same name, as functions.

_MLFLOW_TELEMETRY = "MLFLOW_DISABLE_TELEMETRY"


class SweepPlan:
    """The preview of a sweep. `table` contains the entire preview; a notebook displays the settings and the summary."""

    def __init__(self, table: PlanTable) -> None:
        """`table` contains what `accelsweep plan` prints."""
        self.table = table

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self.table.sweep

    @property
    def settings(self) -> pd.DataFrame:
        """One row per runnable setting, with the numbers of wanted, settled and remaining runs."""
        rows = [
            (row.setting, row.label, row.baseline, row.wanted, row.settled, row.wanted - row.settled)
            for row in self.table.settings
        ]
        columns = ("setting", "label", "baseline", "wanted_runs", "settled_runs", "runs_left")
        return pd.DataFrame(rows, columns=list(columns))

    @property
    def refused(self) -> pd.DataFrame:
        """One row per combination that will not run, `unsupported` or `excluded`, with the reason."""
        rows = [("unsupported", row.label, row.reason) for row in self.table.unsupported]
        rows += [("excluded", row.label, row.reason) for row in self.table.excluded]
        return pd.DataFrame(rows, columns=["outcome", "label", "reason"])

    @property
    def summary(self) -> tuple[str, ...]:
        """The summary below the settings: blocks, runs, time, cost and the smallest detectable difference."""
        return tuple(line.strip() for line in summary_lines(self.table))

    def __repr__(self) -> str:
        return f"<SweepPlan {self.name}: {len(self.table.settings)} settings, {self.table.wanted} runs>"

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.summary)
        parts = [self.settings.drop(columns="setting").to_html(index=False, border=0)]
        if len(self.refused):
            parts.append(self.refused.to_html(index=False, border=0))
        return f"<div><p><strong>{escape(self.name)}</strong></p>{''.join(parts)}<ul>{lines}</ul></div>"


def plan(
    overrides: Sequence[str] = (),
    *,
    entry: str | None = None,
    minutes: float | None = None,
    name: str | None = None,
    add_repeats: int = 0,
    profile: str | None = None,
    home: Path | str | None = None,
) -> SweepPlan:
    """Preview a sweep, given the Hydra overrides one would pass on the command line. Writes nothing.

    `home` is the working directory and defaults to the current one. Raises InputError for invalid input, as
    `accelsweep plan` does.
    """
    request = Request(
        _listed(overrides),
        entry=entry,
        minutes=minutes,
        name=name,
        profile=profile or "local",
        add_repeats=add_repeats,
    )
    return SweepPlan(preview_table(_home(home), plan_to_show(_home(home), request, keep_profile=profile is None)))


def run(
    overrides: Sequence[str] = (),
    *,
    entry: str | None = None,
    minutes: float | None = None,
    name: str | None = None,
    profile: str = "local",
    jobs: int | None = None,
    add_repeats: int = 0,
    time_budget: str | None = None,
    tracking_uri: str | None = None,
    cancel_old: bool = False,
    keep_going: bool = False,
    features: Mapping[str, Any] | None = None,
    home: Path | str | None = None,
) -> OpenedSweep:
    """Plan a sweep, measure its missing runs, write its report, and return the opened sweep. Prints progress.

    `features` maps options that features add to `accelsweep run`, such as notification targets, to their values.

    Repeating the call resumes the sweep. A failed run does not raise: it appears in `.runs` with its reason.
    Interrupting the notebook works like Ctrl-C: finished runs are kept, and KeyboardInterrupt is raised. Raises
    InputError for invalid input before anything is written, and AccelsweepError if another command is running the
    sweep.
    """
    known = {option.name for option in registry.run_options()}
    if unknown := sorted((features or {}).keys() - known):
        raise InputError(f"features: no option {unknown[0]!r}{nearest(unknown[0], known)}")
    request = Request(
        overrides=_listed(overrides),
        entry=entry,
        minutes=minutes,
        name=name,
        profile=profile,
        jobs=jobs,
        add_repeats=add_repeats,
        time_budget=time_budget,
        tracking_uri=tracking_uri,
        cancel_old=cancel_old,
        keep_going=keep_going,
        features=dict(features or {}),
    )
    with _mlflow_telemetry_disabled():
        ended = run_sweep(_home(home), request)
    if ended.code == EXIT_INTERRUPTED:
        raise KeyboardInterrupt
    return OpenedSweep([SweepFolder(_home(home), ended.sweep)])


@contextmanager
def _mlflow_telemetry_disabled() -> Iterator[None]:
    """Disable MLflow's telemetry in processes started within the `with` block, unless the user has set its variable."""
    is_set = _MLFLOW_TELEMETRY in os.environ
    os.environ.setdefault(_MLFLOW_TELEMETRY, "true")
    try:
        yield
    finally:
        if not is_set:
            del os.environ[_MLFLOW_TELEMETRY]


def _home(home: Path | str | None) -> Path:
    return Path.cwd() if home is None else Path(home).absolute()


def _listed(overrides: Sequence[str]) -> tuple[str, ...]:
    if isinstance(overrides, str):
        raise InputError(f"overrides must be a list of strings: write [{overrides!r}]")
    return tuple(overrides)


# `accelsweep.open`: opens one or several sweeps, each given by folder, name or exported file.

Source: TypeAlias = str | os.PathLike[str]
"""A sweep folder `sweeps/NAME`, the name of a sweep in the working directory, or an exported file."""


def open_sweep(source: Source | Sequence[Source]) -> OpenedSweep:
    """Read a sweep from its records, given its folder `sweeps/NAME`, its name, or an exported file.

    Several sweeps are merged by hardware, as `accelsweep report A B` does: the first provides the baseline and the
    analysis options. Writes nothing, runs none of the sweep's code, and does not import torch. Raises InputError if
    there is no such sweep, a file is unusable, or two sweeps share a name; DamagedFile if a plan is damaged.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise InputError('nothing to open: give a folder, an exported file or a list, as in open("sweeps/NAME")')
    with contextlib.ExitStack() as temporary_folders:
        folders = [_folder(Path(source), temporary_folders) for source in sources]
        names = [folder.name for folder in folders]
        if duplicates := [name for name in names if names.count(name) > 1]:
            raise InputError(f"two of these sweeps are called {duplicates[0]!r}: import one under another name first")
        opened = OpenedSweep(folders)
        weakref.finalize(opened, temporary_folders.pop_all().close)
    return opened


def _folder(path: Path, temporary_folders: contextlib.ExitStack) -> SweepFolder:
    """Return a sweep's folder. A file is unpacked into a temporary folder, which is removed by `temporary_folders`."""
    known = known_sweeps(Path.cwd())
    if str(path) in known:
        return existing_sweep(Path.cwd(), str(path))
    if path.is_dir():
        folder = SweepFolder.of(path)
        return existing_sweep(folder.home, folder.name)
    if path.exists():
        for feature in registry.features():
            if feature.open_file is not None:
                opened: SweepFolder = temporary_folders.enter_context(registry.load(feature.open_file)(path))
                return opened
    listing = f"; the sweeps here are: {', '.join(known)}" if known else ""
    raise InputError(f"there is no sweep and no exported file at {path.absolute()}{listing}")
