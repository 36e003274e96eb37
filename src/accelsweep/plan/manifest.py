"""The blocks of a checked grid, and the manifest that holds both."""

from __future__ import annotations

from collections.abc import Sequence

from accelsweep.base.secrets import without_secrets
from accelsweep.core.cells.versions import VERSION, Version
from accelsweep.core.planned.plans import Block, FoundBatch, Manifest, PlannedCell
from accelsweep.core.planned.settings import BlockSettings, Fleet, Settings
from accelsweep.plan.blocks.cut import Cutting, Design, design
from accelsweep.plan.blocks.earlier import Past
from accelsweep.plan.blocks.fleet import fleet_design
from accelsweep.plan.blocks.paired import paired_design
from accelsweep.plan.cells import CheckedGrid
from accelsweep.plan.code.sources import versions
from accelsweep.plan.versioned import units
from accelsweep.state.folders import SweepFolder


def manifest_of(
    sweep: str,
    overrides: Sequence[str],
    grid: CheckedGrid,
    settings: Settings,
    baseline: str | None,
    blocks: Design,
    sources: dict[str, str],
    past: Past,
    *,
    compared: tuple[Version, ...] = (),
    profile: str | None = None,
    found_batches: tuple[FoundBatch, ...] = (),
    searches_for: str | None = None,
    fleet: Fleet | None = None,
) -> Manifest:
    """Return the manifest of a grid and its blocks: the next revision, or that of the `past` where nothing changed."""
    cells = grid.cells.values()
    manifest = Manifest(
        sweep=sweep,
        revision=past.revision + 1,
        experiment=grid.experiment,
        overrides=tuple(overrides),
        axes=grid.axes,
        cells=tuple(PlannedCell(name=cell.name, axes=cell.axes, unsupported=cell.unsupported) for cell in cells),
        excluded=grid.excluded,
        baseline=baseline,
        blocks=blocks.planned,
        settings=settings,
        site=grid.site,
        sources=sources,
        versions=versions(),
        compared=compared,
        profile=profile,
        found_batches=found_batches,
        searches_for=searches_for,
        fleet=fleet,
    )
    # Everyone may read a manifest, and it is copied to MLflow. The blocks hold the unmasked values for the runs.
    manifest = Manifest.model_validate(without_secrets(manifest.model_dump(mode="json")))
    if past.manifest and manifest.model_copy(update={"revision": past.manifest.revision}) == past.manifest:
        return past.manifest
    return manifest


def once_each(block: BlockSettings) -> BlockSettings:
    """Return the rules of blocks in which every setting runs once, those that others are compared with too."""
    return block.model_copy(update={"baseline_runs": 1})


def planned_blocks(
    folder: SweepFolder,
    grid: CheckedGrid,
    settings: Settings,
    baseline: str | None,
    existing: Sequence[Block],
    fleet: Fleet | None,
) -> Design:
    """Return the blocks of a grid; those of a fleet go to its nodes, and what a node has measured is kept."""
    if fleet is None or baseline is None:
        return blocks_of(folder.name, grid, settings, baseline, existing)
    measured = frozenset(block.name for block in existing if folder.done(block.name).is_file())
    return fleet_design(_cutting(folder.name, grid, settings, baseline), fleet, existing, measured)


def blocks_of(
    sweep: str, grid: CheckedGrid, settings: Settings, baseline: str | None, existing: Sequence[Block]
) -> Design:
    """Return the blocks of a grid: the `existing` ones that it still wants some runs of, and new ones."""
    if baseline is None:
        return Design((), ())
    task = _cutting(sweep, grid, settings, baseline)
    if VERSION in grid.axes:
        return paired_design(task, units(task.cells.values()), existing)
    return design(task, existing)


def _cutting(sweep: str, grid: CheckedGrid, settings: Settings, baseline: str) -> Cutting:
    supported = {cell.name: cell for cell in grid.cells.values() if cell.unsupported is None}
    return Cutting(sweep, supported, baseline, settings, grid.site)
