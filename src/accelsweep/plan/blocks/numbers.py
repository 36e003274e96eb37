"""The numbers of a cell's repeats, and the seeds of its runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from accelsweep.core.cells.cell import Cell
from accelsweep.core.planned.plans import Block, Run


class Numbers:
    """Numbers the repeats of each cell, and deals out its seeds: each time the smallest that no block has used."""

    def __init__(self, known: Iterable[Block]) -> None:
        self._repeats: dict[str, set[int]] = {}
        self._seeds: dict[str, set[int]] = {}
        for run in (run for block in known for run in block.runs):
            self._repeats.setdefault(run.cell, set()).add(run.repeat)
            self._seeds.setdefault(run.cell, set()).add(run.seed)

    def next_runs(self, cells: Sequence[Cell]) -> list[Run]:
        """Return the runs of a new block. A cell that is there twice has two numbers and one seed.

        So all cells of a block have one seed, unless the plan has grown. Then values that depend on the seed pair by
        block too.
        """
        each = {cell.name: cell for cell in cells}
        seeds = {name: _unused(self._seeds.setdefault(name, set()), cell.config.seed) for name, cell in each.items()}
        return [self._next_run(cell, seeds[cell.name]) for cell in cells]

    def _next_run(self, cell: Cell, seed: int) -> Run:
        number = _unused(self._repeats.setdefault(cell.name, set()), 0)
        return Run.of(cell.name, number, seed - number)


def _unused(used: set[int], first: int) -> int:
    """Return the smallest number from `first` on that is not in `used`, and put it there."""
    found = next(number for number in itertools.count(first) if number not in used)
    used.add(found)
    return found
