"""The frozen config of one setting, as its block has it, for a run that is none of the sweep's: watched or profiled."""

from __future__ import annotations

from pathlib import Path

from accelsweep.base.errors import InputError
from accelsweep.core.cells.cell import placed
from accelsweep.core.planned.plans import Manifest, Run
from accelsweep.plan.blocks.resources import threads_per_rank
from accelsweep.plan.nodes import models_for
from accelsweep.rank.spec import RunSpec
from accelsweep.state.blocks import block_of
from accelsweep.state.folders import SweepFolder


def frozen_spec(
    folder: SweepFolder, cell: str, attempt: Path, command: str, profile_steps: int | None = None
) -> RunSpec:
    """Return the spec of the first repeat of `cell`, with its files in the folder `attempt`.

    Raises InputError, which names the `command`, if no block of the sweep holds the cell, or if it takes several nodes.
    Raises DamagedFile as `block_of` does.
    """
    manifest = Manifest.read(folder.manifest)
    block = block_of(folder, manifest, cell)
    config = block.configs[cell]
    if config.num_nodes > 1:
        raise InputError(f"setting {cell!r} takes {config.num_nodes} nodes; {command} has this one alone")
    return RunSpec(
        sweep=folder.name,
        block=block.name,
        run=Run.of(cell, 0, config.seed),
        position=0,
        attempt=1,
        config=placed(config, folder.home),
        axes=block.axes[cell],
        world_size=config.world_size,
        attempt_folder=str(attempt),
        threads=threads_per_rank(config, manifest.site),
        device_models=models_for(config, manifest.site),
        profile_steps=profile_steps,
    )
