"""The checked grid of a sweep's overrides, with the batches that searches have found for `batch_size: auto`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from accelsweep.base.digits import count_of
from accelsweep.base.errors import InputError
from accelsweep.core.planned.plans import FoundBatch
from accelsweep.plan import automatic
from accelsweep.plan.cells import CheckedGrid, checked_grid
from accelsweep.plan.code.import_path import ImportPath
from accelsweep.plan.code.sources import source_digests, targets
from accelsweep.plan.grid.compose import Composer
from accelsweep.plan.refusals import classes


class Unsearched(InputError):
    """The batches of some settings have to be searched first, for `batch_size: auto`. Nothing is planned until then.

    `sweep` is the sweep that was asked for, with its `overrides`, `grid` and `sources`. `searches` are all that it
    rests on, and `left` the names of those without an answer.
    """

    def __init__(self, sweep: str, overrides: tuple[str, ...], grid: CheckedGrid, sources: dict[str, str]) -> None:
        self.sweep, self.overrides, self.grid, self.sources = sweep, overrides, grid, sources
        cells = list(grid.cells.values())
        self.searches = automatic.searches_of(grid.points, cells)
        waiting = [cell for cell in cells if cell.unsupported == automatic.UNSEARCHED]
        self.left = frozenset(automatic.searches_of(grid.points, waiting))
        super().__init__(
            f"batch_size=auto: the largest batch of {count_of(len(waiting), 'setting')} of {sweep!r} is not known yet. "
            "`accelsweep run` searches for it first: give that command, or batch_size a number"
        )


def with_batches(
    home: Path, overrides: Sequence[str], sweep: str, kept: Mapping[str, FoundBatch], batches: automatic.Batches
) -> tuple[CheckedGrid, dict[str, str], dict[str, FoundBatch]]:
    """Return the grid with automatic batches, its sources, and the batches to keep. Those of earlier plans stay.

    Raises Unsearched where some are not known.
    """
    known = {**batches, **kept}
    grid, sources = grid_of(home, overrides, known)
    if any(cell.unsupported == automatic.UNSEARCHED for cell in grid.cells.values()):
        raise Unsearched(sweep, tuple(overrides), grid, sources)
    names = automatic.searches_of(grid.points, grid.cells.values())
    found = {name: one for name in names if isinstance(one := known.get(name), FoundBatch)}
    return grid, sources, {**kept, **found}


def grid_of(home: Path, overrides: Sequence[str], batches: automatic.Batches) -> tuple[CheckedGrid, dict[str, str]]:
    """Return the grid of the working directory, and the digests of the sources that it measures."""
    classes.refuse_shadows(home)
    grid = checked_grid(Composer.of(home, overrides), overrides, home, batches)
    path = ImportPath.of_home(home)
    configs = [cell.config for cell in grid.cells.values()]
    classes.refuse_missing(configs, path)
    # A rung of a ladder whose keys nothing takes is a row that says so.
    measured = [cell.config for cell in grid.cells.values() if cell.unsupported is None]
    classes.refuse_wrong_arguments(measured, path)
    return grid, source_digests(sorted({pair for config in configs for pair in targets(config)}), path)
