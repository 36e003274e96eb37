"""A sweep in a notebook: frames of its runs and settings, its findings, raw steps and charts, and its first screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import altair as alt
import pandas as pd

from accelsweep.analyse.analyse import analyse
from accelsweep.analyse.beside.others import other_sweeps
from accelsweep.analyse.collected.collect import look_up
from accelsweep.analyse.merge import Part, analyse_together
from accelsweep.base.errors import InputError, nearest
from accelsweep.core.findings.findings import Findings
from accelsweep.core.planned.names import MergedName, name_together
from accelsweep.core.planned.plans import Manifest
from accelsweep.notebook.frames import runs_frame, settings_frame
from accelsweep.report.content import Content, build_content
from accelsweep.report.page import render_static
from accelsweep.state.folders import SweepFolder
from accelsweep.state.records import read_steps


@dataclass(frozen=True)
class _RunFiles:
    """The files of runs in folders that lie anywhere. In one folder runs have their own names, in several SWEEP/RUN."""

    folders: Sequence[SweepFolder]

    def name(self, sweep: str, run: str) -> str:
        return str(MergedName("" if len(self.folders) == 1 else sweep, run))

    def steps(self, run: str) -> Path:
        return self._folder(run).steps(MergedName.of(run).name)

    def record(self, run: str) -> Path:
        return self._folder(run).record(MergedName.of(run).name)

    def _folder(self, run: str) -> SweepFolder:
        sweep = MergedName.of(run).sweep
        return next(folder for folder in self.folders if not sweep or folder.name == sweep)


class OpenedSweep:
    """One sweep, or several merged ones, as their records were when they were opened. Nothing is ever written.

    `name` is the sweep's name, `A+B` of several, whose runs are named SWEEP/RUN. As the last line of a notebook's cell
    it shows the report's first screen.
    """

    def __init__(self, folders: Sequence[SweepFolder]) -> None:
        """`folders` are the sweeps' folders; the first gives the baseline. `accelsweep.open` makes one for you."""
        self.name = name_together([folder.name for folder in folders])
        self._files = _RunFiles(folders)
        self._parts = [_part(folder) for folder in folders]

    @cached_property
    def findings(self) -> Findings:
        """All numbers of the report, made from the records: with intervals, verdicts and doubts."""
        if len(self._parts) > 1:
            return analyse_together(self.name, self._parts)
        (part,), (folder,) = self._parts, self._files.folders
        return analyse(part.runs, part.manifest, others=other_sweeps(folder, part.manifest))

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each planned run: outcome and reason, axes (`axis.KEY`), metrics with their units in the names."""
        rows = ((part.name, row) for part in self._parts for row in part.runs)
        named = (
            replace(row, sweep=sweep, run=None if row.run is None else self._files.name(sweep, row.run))
            for sweep, row in rows
        )
        return runs_frame(named, dict.fromkeys(axis for part in self._parts for axis in part.manifest.axes))

    @cached_property
    def settings(self) -> pd.DataFrame:
        """A row for each setting: rate, speed-up and verdict with intervals, quality, costs, medians of all metrics."""
        return settings_frame(self.findings)

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the figures that can be drawn of this sweep, in the order of the report."""
        return tuple(figure.name for figure in self._content.figures)

    def figure(self, name: str) -> alt.LayerChart:
        """Return a figure of the report, such as `speedup`, as an Altair chart with its data in it.

        Raises InputError for a figure that there is not, or that cannot be drawn of this sweep, with the reason.
        """
        drawn = {figure.name: figure for figure in self._content.figures}
        if name in drawn:
            return alt.LayerChart.from_dict(drawn[name].static_specification())
        reason = next((skipped.reason for skipped in self._content.skipped if skipped.name == name), None)
        if reason is not None:
            raise InputError(f"the figure {name!r} cannot be drawn of {self.name}: {reason}")
        raise InputError(f"no figure {name!r}{nearest(name, drawn)}; of {self.name} there are: {', '.join(drawn)}")

    def steps(self, run: str) -> pd.DataFrame:
        """Return a run's raw steps, one row for each step of each rank; `phase` is `warmup` or `window`.

        The other columns are `rank`, `step`, `step_seconds`, `samples` and `train_loss`.
        Raises InputError for a run that the plan does not have or that left no steps; DamagedFile if they are damaged.
        """
        outcomes = {row.run: row for row in self.runs.itertuples() if isinstance(row.run, str)}
        if run not in outcomes:
            raise InputError(
                f"no run {run!r} in {self.name}{nearest(run, outcomes)}; its column .runs.run has them all"
            )
        path, record = self._files.steps(run), self._files.record(run)
        if not (path.is_file() and record.is_file()):
            raise InputError(f"the run {run!r} left no steps: {outcomes[run].outcome}: {outcomes[run].reason}")
        frame: pd.DataFrame = read_steps(path, record, MergedName.of(run).name).to_pandas()
        return frame

    @cached_property
    def _content(self) -> Content:
        return build_content(self.findings, self._files)

    def __repr__(self) -> str:
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in self.findings.outcomes.items())
        return f"<OpenedSweep {self.name}: {len(self.findings.cells)} settings; runs: {outcomes}>"

    def _repr_html_(self) -> str:
        content = self._content
        advice = content.findings.recommendation
        return render_static("first_screen.html.j2", content=content, findings=content.findings, advice=advice)


def _part(folder: SweepFolder) -> Part:
    manifest = Manifest.read(folder.manifest)
    return Part(folder.name, look_up(folder, manifest), manifest)
