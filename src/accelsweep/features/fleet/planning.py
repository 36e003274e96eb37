"""Blocks of a sweep that compares nodes: in each round every node measures all settings, in one block of its own.

The node is a property of the block, not of the setting. So a setting has one name on all nodes, and settings are
compared within a block as in any sweep. A block of an earlier plan counts for its node if it holds all settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from accelsweep.errors import InputError
from accelsweep.json_documents import AtLeast1, Positive
from accelsweep.planning.randomized_blocks import (
    BlockDesign,
    DesignInput,
    RepeatNumbering,
    max_runs_per_block,
    new_block,
    planned_block,
)
from accelsweep.planning.resources import resource_class
from accelsweep.records.plan import Block, PlanPart

# The settings of a sweep: they steer it, and nothing in them changes a measurement.


FLEET_TOLERANCE = 0.015
"""By how much slower than the others a node may be by default.

Healthy machines of one model differ: Lambda's rates of ResNet-50 from 39 machines with H100 SXM have a standard
deviation of 0.63 %. One healthy machine in a hundred is slower than their mean by 1.5 %. A fault of 2 % still shows.
"""


class Fleet(PlanPart):
    """The nodes that a sweep compares: each measures all settings in `each` blocks.

    `asked` is what the user typed for `nodes`. A node is sick if its rate is lower than the others' by more than the
    share `tolerance`.
    """

    command: ClassVar[str] = "fleet"

    nodes: tuple[str, ...]
    each: AtLeast1 = 3
    tolerance: Positive = FLEET_TOLERANCE
    asked: str = "all"

    @property
    def words(self) -> list[str]:
        """The options of the command that asks for this fleet."""
        tolerance = [] if self.tolerance == FLEET_TOLERANCE else ["--tolerance", f"{self.tolerance:g}"]
        return ["--nodes", self.asked, "--each", str(self.each), *tolerance]

    @property
    def repeats(self) -> int:
        """The blocks of all nodes together."""
        return len(self.nodes) * self.each


def plan_blocks(task: DesignInput, fleet: Fleet, existing: Sequence[Block], measured: frozenset[str]) -> BlockDesign:
    """Return blocks of which `fleet.each` go to each node; those that a node has measured before count.

    `measured` names finished blocks. They stay in the plan where their node is no longer asked for, such as one that
    broke since. Raises InputError where the settings cannot share one block of a node.
    """
    settings = _of_one_block(task)
    known = {block.name: block for block in existing}
    numbers, on_disk = RepeatNumbering(known.values()), {block.name for block in existing}
    have: Counter[str] = Counter()
    wanted = {}
    for block in known.values():
        node = block.resources.node
        if node is None or have[node] >= fleet.each or not set(settings) <= {run.setting for run in block.runs}:
            continue
        if node in fleet.nodes or block.name in measured:
            have[node] += 1
            wanted[block.name] = tuple(run for run in block.runs if run.setting in task.settings)
    for number in range(fleet.each):
        for node in fleet.nodes:
            if have[node] <= number:
                block = _of_node(new_block(numbers.next_runs([task.settings[name] for name in settings]), task), node)
                known[block.name], wanted[block.name] = block, block.runs
    return BlockDesign(
        planned=tuple(planned_block(known[name], runs, task) for name, runs in wanted.items()),
        new=tuple(known[name] for name in wanted if name not in on_disk),
    )


def _of_node(block: Block, node: str) -> Block:
    return block.model_copy(update={"resources": block.resources.model_copy(update={"node": node})})


def _of_one_block(task: DesignInput) -> list[str]:
    """Return the settings of a block, the baseline as often as in any other. Raises InputError for too many."""
    others = [name for name in task.settings if name != task.baseline]
    settings = [task.baseline] * max(1, min(task.options.block.baseline_runs, len(others))) + others
    if any(needs.nodes > 1 for needs in task.needs.values()):
        raise InputError("a fleet compares single nodes, and some settings take several: leave out num_nodes")
    if len({resource_class(setting.config, task.site) for setting in task.settings.values()}) > 1:
        raise InputError(
            "a fleet measures all settings in one job of a node, and these need jobs of different kinds. "
            "Give accelerator, and devices where nodes are shared, one value each"
        )
    most = max_runs_per_block(task, task.baseline)
    if len(settings) > most:
        raise InputError(
            f"a fleet measures all settings in one job of a node, which has {len(settings)} runs, and a block may hold "
            f"{most:g}. Sweep fewer settings, or raise a bound of blocks (block.size, block.minutes, "
            "site.slurm.max_minutes)"
        )
    return settings
