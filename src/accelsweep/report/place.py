"""The place of a report's inputs and outputs: for one sweep, whose folder has them all, or for several merged ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from accelsweep.base.documents import sha256_text
from accelsweep.state.folders import SweepFolder

LONGEST = 120
"""A folder of more characters than this would not fit every file system."""


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
        """The sweeps' names in their order, joined by `+`, which no sweep's own name can hold."""
        return merged_name(self.sweeps)

    @property
    def report(self) -> Path:
        """`reports/A+B`."""
        return self.home / "reports" / self.name

    @property
    def findings(self) -> Path:
        """`reports/A+B/findings.json`."""
        return self.report / "findings.json"

    def steps(self, run: str) -> Path:
        """Return the raw step times of a run named SWEEP/RUN."""
        return self._sweep_of(run).steps(own_name(run))

    def record(self, run: str) -> Path:
        """Return the record of a run named SWEEP/RUN."""
        return self._sweep_of(run).record(own_name(run))

    def _sweep_of(self, run: str) -> SweepFolder:
        return SweepFolder(self.home, run.partition("/")[0])


def own_name(run: str) -> str:
    """Return a run's name in its own sweep, given its name in the findings of one sweep or of several."""
    return run.rpartition("/")[2]


def merged_name(sweeps: Sequence[str]) -> str:
    """Return `A+B`; of a longer name than `LONGEST` the first sweep, how many more there are, and a digest of all."""
    name = "+".join(sweeps)
    if len(name) <= LONGEST:
        return name
    return f"{sweeps[0]}+{len(sweeps) - 1}-more-{sha256_text(name)[:8]}"
