"""Blocks of a sweep that compares versions: a setting's versions always stand side by side in one block.

Each setting has a baseline of its own, so none is measured in every block. A block of an earlier plan counts for a
setting if it holds all of its versions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from accelsweep.errors import InputError
from accelsweep.json_documents import sha256_text
from accelsweep.planning.randomized_blocks import Cutting, Design, Numbers, most_runs_in_a_block, new_block, planned
from accelsweep.planning.resources import resource_class
from accelsweep.records.plan import Block, Run

Unit = tuple[str, ...]
"""The names of the cells of one setting, one for each version."""


def paired_design(task: Cutting, units: Sequence[Unit], existing: Sequence[Block]) -> Design:
    """Return blocks of which `settings.repeats` hold all versions of each setting; existing blocks count.

    Raises InputError if a block cannot hold all versions of one setting.
    """
    known = {block.name: block for block in existing}
    have: Counter[Unit] = Counter()
    repeats = {unit: max(map(task.settings.repeats_of, unit[1:] or unit)) for unit in units}
    wanted = {name: _wanted(block, repeats, have) for name, block in known.items()}
    numbers, on_disk = Numbers(known.values()), {block.name for block in existing}
    missing = {unit: count - have[unit] for unit, count in repeats.items()}
    for block in _layers(task, missing, sum(map(bool, wanted.values())), numbers):
        known[block.name], wanted[block.name] = block, block.runs
    blocks = [block for block in known.values() if wanted[block.name]]
    return Design(
        planned=tuple(planned(block, wanted[block.name], task) for block in blocks),
        new=tuple(block for block in blocks if block.name not in on_disk),
    )


def _wanted(block: Block, repeats: Mapping[Unit, int], have: Counter[Unit]) -> tuple[Run, ...]:
    """Return the runs of a block whose settings still lack repeats, and count them in `have`."""
    runs = {run.cell: run for run in sorted(block.runs, key=lambda run: -run.repeat)}
    found = [unit for unit, count in repeats.items() if have[unit] < count and all(cell in runs for cell in unit)]
    have.update(found)
    return tuple(runs[cell] for unit in found for cell in unit)


def _layers(task: Cutting, missing: Mapping[Unit, int], first: int, numbers: Numbers) -> Iterator[Block]:
    """Yield new blocks until every setting has its repeats; `first` numbers the layer, which shuffles the settings."""
    for layer in range(max(missing.values(), default=0)):
        units = [unit for unit, count in missing.items() if count > layer]
        for chunk in _chunks(task, units, first + layer):
            yield new_block(numbers.next_runs([task.cells[cell] for unit in chunk for cell in unit]), task)


def _chunks(task: Cutting, units: Sequence[Unit], layer: int) -> Iterator[list[Unit]]:
    """Yield the settings of one block after the other, by resource class and within the bounds of a block."""
    classes: dict[tuple[object, ...], list[Unit]] = {}
    for unit in units:
        classes.setdefault(resource_class(task.cells[unit[0]].config, task.site), []).append(unit)
    for members in classes.values():
        most = most_runs_in_a_block(task, members[0][0])
        room = min(most / max(map(len, members)), len(members))
        if room < 1:
            raise InputError(
                f"a block may hold {most:g} runs, but a setting has {max(map(len, members))} versions, which must "
                "stand in one block to be compared. Raise block.size, or the time that bounds it"
            )
        shuffled = sorted(members, key=lambda unit: sha256_text(f"{task.sweep}/{layer}/{unit[0]}"))
        count = math.ceil(len(members) / int(room))
        yield from (shuffled[index::count] for index in range(count))
