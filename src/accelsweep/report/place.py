"""The place of a report's inputs and outputs: for one sweep, whose folder has them all, or for several merged ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from accelsweep.core.planned.names import MergedName, name_together
from accelsweep.state.file_names import FINDINGS_FILE, REPORTS_FOLDER
from accelsweep.state.folders import SweepFolder


class RunsPlace(Protocol):
    """The place of the files of a report's runs; a `SweepFolder` is one."""

    def steps(self, run: str) -> Path:
        """Return the raw step times of the run with this name in the findings."""

    def record(self, run: str) -> Path:
        """Return the record of the run with this name in the findings."""


class ReportPlace(RunsPlace, Protocol):
    """The inputs and the output of a report; a `SweepFolder` is one."""

    @property
    def findings(self) -> Path:
        """All numbers of the report."""

    @property
    def report(self) -> Path:
        """The folder of the report."""


@dataclass(frozen=True)
class MergedPlace:
    """The report of several sweeps in `reports/A+B`; its findings lie beside the page, its runs are named SWEEP/RUN."""

    home: Path
    sweeps: tuple[str, ...]

    @property
    def name(self) -> str:
        """The sweeps' names in their order, joined by `+`."""
        return name_together(self.sweeps)

    @property
    def report(self) -> Path:
        """`reports/A+B`."""
        return self.home / REPORTS_FOLDER / self.name

    @property
    def findings(self) -> Path:
        """`reports/A+B/findings.json`."""
        return self.report / FINDINGS_FILE

    def steps(self, run: str) -> Path:
        """Return the raw step times of a run named SWEEP/RUN."""
        sweep, name = MergedName.of(run)
        return SweepFolder(self.home, sweep).steps(name)

    def record(self, run: str) -> Path:
        """Return the record of a run named SWEEP/RUN."""
        sweep, name = MergedName.of(run)
        return SweepFolder(self.home, sweep).record(name)
