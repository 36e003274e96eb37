"""The devices that all settings of a sweep share, told once in a heading and not in each label."""

from __future__ import annotations

from accelsweep.base.errors import DamagedFile
from accelsweep.core.cells.cell import shared_devices
from accelsweep.core.planned.plans import Block, Manifest
from accelsweep.state.folders import SweepFolder


def devices_of(folder: SweepFolder, manifest: Manifest) -> str:
    """Return what `shared_devices` says of the sweep, by its first block that can be read; nothing without one."""
    for block in manifest.blocks:
        try:
            return shared_devices(manifest.axes, Block.read(folder.block(block.name)).configs.values())
        except (FileNotFoundError, DamagedFile):
            continue
    return ""
