"""A plan as rows of plain data for printing: cells, those that cannot run and why, blocks, estimate, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from accelsweep.core.cells.cell import label
from accelsweep.core.planned.plans import Resources, Run
from accelsweep.plan.estimates.estimate import PlanEstimate, VisibleEffect, estimate, visible_effect
from accelsweep.plan.estimates.took import Took
from accelsweep.plan.make import Plan


@dataclass(frozen=True)
class CellRow:
    """A cell that can run: how many runs are wanted of it, and how many of those are settled already."""

    cell: str
    label: str
    axes: dict[str, Any]
    baseline: bool
    wanted: int
    settled: int


@dataclass(frozen=True)
class ReasonRow:
    """A cell that is not going to run, with the reason; `cell` is None for one that an `exclude:` rule dropped."""

    cell: str | None
    label: str
    axes: dict[str, Any]
    reason: str


@dataclass(frozen=True)
class BlockRow:
    """A block: its wanted runs, how many are settled, whether this plan adds it, and its resources."""

    block: str
    new: bool
    runs: int
    settled: int
    resources: Resources


@dataclass(frozen=True)
class PlanTable:
    """Everything that `accelsweep plan` shows."""

    sweep: str
    revision: int
    cells: tuple[CellRow, ...]
    unsupported: tuple[ReasonRow, ...]
    excluded: tuple[ReasonRow, ...]
    blocks: tuple[BlockRow, ...]
    wanted: int
    settled: int
    estimate: PlanEstimate
    visible_effect: VisibleEffect
    notes: tuple[str, ...]


def plan_table(
    plan: Plan, settled: Collection[str] = (), took: Took | None = None, noise: float | None = None
) -> PlanTable:
    """Return the rows of a plan.

    The caller brings the results of earlier runs: names of `settled` runs, what they `took`, and `noise`, the standard
    deviation of a run's log rate.
    """
    manifest, done = plan.manifest, set(settled)
    runs = manifest.wanted_runs()
    return PlanTable(
        sweep=manifest.sweep,
        revision=manifest.revision,
        cells=tuple(_cell_rows(plan, done)),
        unsupported=tuple(
            ReasonRow(cell.name, label(cell.axes), cell.axes, cell.unsupported)
            for cell in manifest.cells
            if cell.unsupported
        ),
        excluded=tuple(
            ReasonRow(None, label(dropped.axes), dropped.axes, dropped.because) for dropped in manifest.excluded
        ),
        blocks=tuple(_block_rows(plan, done)),
        wanted=len(runs),
        settled=sum(run in done for run in runs),
        estimate=estimate(plan, done, took),
        visible_effect=visible_effect(plan, noise),
        notes=plan.notes,
    )


def _cell_rows(plan: Plan, done: Collection[str]) -> Iterator[CellRow]:
    runs = plan.manifest.wanted_runs()
    wanted = Counter(Run.parse(run).cell for run in runs)
    settled = Counter(Run.parse(run).cell for run in runs if run in done)
    baselines = plan.manifest.baselines
    for cell in plan.manifest.cells:
        if cell.unsupported is None:
            baseline = cell.name in baselines
            yield CellRow(cell.name, label(cell.axes), cell.axes, baseline, wanted[cell.name], settled[cell.name])


def _block_rows(plan: Plan, done: Collection[str]) -> Iterator[BlockRow]:
    new = {block.name for block in plan.new_blocks}
    for block in plan.manifest.blocks:
        settled = sum(run in done for run in block.runs)
        yield BlockRow(block.name, block.name in new, len(block.runs), settled, block.resources)
