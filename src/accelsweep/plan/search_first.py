"""The first phase of a sweep with `batch_size: auto`: a sweep NAME-frontier, with a search for each of its settings.

It is planned from the sweep's own grid, so that each search has all that the batch depends on, whatever else is swept.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accelsweep.core.claims.claims import ReportSettings
from accelsweep.core.planned.settings import Settings
from accelsweep.plan.blocks import earlier
from accelsweep.plan.make import Plan
from accelsweep.plan.manifest import blocks_of, manifest_of, once_each
from accelsweep.plan.searched import Unsearched
from accelsweep.state.folders import SweepFolder


def search_folder(home: Path, sweep: str) -> SweepFolder:
    """Return the folder of the sweep that searches for the batches of `sweep`."""
    return SweepFolder(home, f"{sweep}-frontier")


def search_plan(home: Path, wanted: Unsearched) -> Plan:
    """Return the plan of the first phase: the searches that are left, beside those that were planned before."""
    folder = search_folder(home, wanted.sweep)
    past = earlier.read(folder)
    before = {cell.name for cell in past.manifest.cells} if past.manifest else set()
    cells = {name: cell for name, cell in wanted.searches.items() if name in wanted.left or name in before}
    axes = tuple(next(iter(cells.values())).axes)
    settings = _settings(wanted.grid.settings)
    grid = replace(wanted.grid, axes=axes, points={}, cells=cells, excluded=(), settings=settings)
    baseline = next(iter(cells))
    blocks = blocks_of(folder.name, grid, settings, baseline, past.blocks)
    manifest = manifest_of(
        folder.name,
        wanted.overrides,
        grid,
        settings,
        baseline,
        blocks,
        wanted.sources,
        past,
        searches_for=wanted.sweep,
    )
    return Plan(manifest, blocks.new, tuple(cells.values()), past.notes, past.manifest, past.damaged)


def _settings(given: Settings) -> Settings:
    """Return the settings of the sweep with one search of each setting, and without what is said of its rates."""
    return given.model_copy(
        update={
            "repeats": 1,
            "added_repeats": 0,
            "auto_repeats": False,
            "until_decided": False,
            "decided_at": {},
            "baseline": {},
            "block": once_each(given.block),
            "report": ReportSettings(),
            "analysis": given.analysis.model_copy(update={"rate": None}),
        }
    )
