"""The two ways to read the blocks of a plan: leniently, and strictly where one setting's block is wanted.

Both pass over a block that is lost or damaged. The strict way names it where the setting stands in no other block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from accelsweep.base.errors import DamagedFile, InputError
from accelsweep.core.cells.config import CellConfig
from accelsweep.core.planned.plans import Block, Manifest
from accelsweep.state.folders import SweepFolder


def block_of(folder: SweepFolder, manifest: Manifest, cell: str) -> Block:
    """Return the first block that holds `cell`, with its frozen config and the values on its axes.

    Raises InputError where no block holds it. Raises DamagedFile where none does that can be read.
    """
    damage = None
    for planned in manifest.blocks:
        try:
            block = _read(folder, planned.name)
        except DamagedFile as error:
            damage = damage or error
            continue
        if cell in block.configs:
            return block
    if damage is None:
        raise InputError(f"no block of sweep {folder.name!r} holds setting {cell!r}")
    why = f"{damage.why}; no other block holds setting {cell!r}. The same `accelsweep run` writes it anew"
    raise DamagedFile(damage.path, why)


def block_or_none(folder: SweepFolder, name: str) -> Block | None:
    """Return the block of this name, or None where there is none that can be used."""
    with suppress(DamagedFile):
        return _read(folder, name)
    return None


def readable_blocks(folder: SweepFolder, manifest: Manifest) -> Iterator[Block]:
    """Yield the usable blocks of the plan, in its order."""
    return (block for planned in manifest.blocks if (block := block_or_none(folder, planned.name)) is not None)


def readable_configs(folder: SweepFolder, manifest: Manifest) -> dict[str, CellConfig]:
    """Return the config of each setting by name, from the blocks; what a damaged block alone holds is left out."""
    found: dict[str, CellConfig] = {}
    runnable = {cell.name for cell in manifest.cells if cell.unsupported is None}
    for block in readable_blocks(folder, manifest):
        found |= block.configs
        if found.keys() >= runnable:
            break
    return found


def _read(folder: SweepFolder, name: str) -> Block:
    path = folder.block(name)
    try:
        return Block.read(path)
    except FileNotFoundError:
        raise DamagedFile(path, "it is missing") from None
