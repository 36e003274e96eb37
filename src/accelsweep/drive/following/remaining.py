"""The seconds that are left of a sweep: by the time of its runs, before that by earlier sweeps of the folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

from accelsweep.base.errors import InputError
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.plans import Run
from accelsweep.core.recorded.record import Record
from accelsweep.plan.estimates.took import RunTime, Took
from accelsweep.state.folders import SweepFolder, known_sweeps
from accelsweep.state.records import readable_records

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

    def __init__(self, folder: SweepFolder, configs: Mapping[str, CellConfig]) -> None:
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
        cells = (Run.parse(run).cell for run in runs)
        each = (self._took.seconds(cell, self.configs[cell]) for cell in cells if cell in self.configs)
        return sum(each) + blocks * self._took.between_blocks
