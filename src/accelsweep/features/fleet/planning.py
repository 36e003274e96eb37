"""The plan of `accelsweep fleet`: in each round, every node measures all settings in a separate block.

The node is a property of the block, not of the setting, so a setting keeps the same ID on all nodes, and settings are
compared within a block as in any other sweep. Blocks from an earlier plan are reused if they contain all settings.
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

FLEET_TOLERANCE = 0.015
"""The default share by which a node may be slower than the others.

Healthy machines of the same model differ: Lambda's ResNet-50 rates on 39 H100 SXM machines have a standard deviation of
0.63 %, so about one in a hundred is 1.5 % below the mean. A fault that reduces the rate by 2 % is still detected.
"""


class Fleet(PlanPart):
    """The nodes to compare: each measures all settings in `each` blocks.

    `asked` is the argument of `--nodes`. A node is sick if its rate is lower than that of the others by more than the
    share `tolerance`.
    """

    command: ClassVar[str] = "fleet"

    nodes: tuple[str, ...]
    each: AtLeast1 = 3
    tolerance: Positive = FLEET_TOLERANCE
    asked: str = "all"

    @property
    def words(self) -> list[str]:
        """The command-line options of this fleet."""
        tolerance = [] if self.tolerance == FLEET_TOLERANCE else ["--tolerance", f"{self.tolerance:g}"]
        return ["--nodes", self.asked, "--each", str(self.each), *tolerance]

    @property
    def repeats(self) -> int:
        """The total number of blocks on all nodes."""
        return len(self.nodes) * self.each


def plan_blocks(task: DesignInput, fleet: Fleet, existing: Sequence[Block], measured: frozenset[str]) -> BlockDesign:
    """Return `fleet.each` blocks per node, including existing ones.

    `measured` lists the finished blocks. These stay in the plan even if their node is no longer selected, for example
    because it has since failed. Raises InputError if the settings do not fit into one block.
    """
    settings = _settings_of_block(task)
    blocks = {block.name: block for block in existing}
    numbers = RepeatNumbering(blocks.values())
    rounds: Counter[str] = Counter()
    wanted = {}
    for block in existing:
        node = block.resources.node
        if node is None or rounds[node] >= fleet.each or not set(settings) <= {run.setting for run in block.runs}:
            continue
        if node in fleet.nodes or block.name in measured:
            rounds[node] += 1
            wanted[block.name] = tuple(run for run in block.runs if run.setting in task.settings)
    new = []
    for number in range(fleet.each):
        for node in fleet.nodes:
            if rounds[node] <= number:
                block = new_block(numbers.next_runs([task.settings[name] for name in settings]), task)
                resources = block.resources.model_copy(update={"node": node})
                block = block.model_copy(update={"resources": resources})
                blocks[block.name], wanted[block.name] = block, block.runs
                new.append(block)
    planned = tuple(planned_block(blocks[name], runs, task) for name, runs in wanted.items())
    return BlockDesign(planned=planned, new=tuple(new))


def _settings_of_block(task: DesignInput) -> list[str]:
    """Return a block's settings, including baseline repeats. Raises InputError if they do not fit into one block."""
    others = [name for name in task.settings if name != task.baseline]
    settings = [task.baseline] * max(1, min(task.options.block.baseline_runs, len(others))) + others
    if any(needs.nodes > 1 for needs in task.needs.values()):
        raise InputError("a fleet compares single nodes, but some settings need several: leave out num_nodes")
    if len({resource_class(setting.config, task.site) for setting in task.settings.values()}) > 1:
        raise InputError(
            "a fleet measures all settings in one job per node, but these need different kinds of jobs: set "
            "accelerator to a single value, and devices too if nodes are shared"
        )
    most = max_runs_per_block(task, task.baseline)
    if len(settings) > most:
        raise InputError(
            f"a fleet measures all settings in one job per node, which takes {len(settings)} runs, but a block is "
            f"limited to {most:g}: sweep fewer settings, or raise block.size, block.minutes or site.slurm.max_minutes"
        )
    return settings
