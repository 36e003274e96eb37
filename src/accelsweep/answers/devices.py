"""The devices that all settings of a sweep share, told once in a heading and not in each label."""

from __future__ import annotations

from accelsweep.core.cells.cell import shared_devices
from accelsweep.core.planned.plans import Manifest
from accelsweep.state.blocks import readable_blocks
from accelsweep.state.folders import SweepFolder


def devices_of(folder: SweepFolder, manifest: Manifest) -> str:
    """Return what `shared_devices` says of the sweep, by its first block that can be read; nothing without one."""
    first = next(readable_blocks(folder, manifest), None)
    return "" if first is None else shared_devices(manifest.axes, first.configs.values())
