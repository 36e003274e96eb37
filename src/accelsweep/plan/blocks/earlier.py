"""The files of an earlier plan of the same sweep: its manifest and all blocks. Records are never read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accelsweep.base.errors import DamagedFile
from accelsweep.core.planned.plans import Block, Manifest
from accelsweep.state.folders import SweepFolder


@dataclass(frozen=True)
class Past:
    """The earlier plan: `blocks` in the order in which they were planned, those of still earlier plans after them.

    `revision` is the number of the last revision, 0 if there was none. `damaged` files were not read.
    """

    manifest: Manifest | None
    revision: int
    blocks: tuple[Block, ...]
    damaged: tuple[Path, ...]
    notes: tuple[str, ...]


def read(folder: SweepFolder) -> Past:
    """Return the earlier plan in the sweep's folder; it is empty before the first plan."""
    damaged: list[DamagedFile] = []
    manifest = None
    try:
        manifest = Manifest.read(folder.manifest)
    except FileNotFoundError:
        pass
    except DamagedFile as error:
        damaged.append(error)
    blocks = {}
    for path in folder.blocks():
        try:
            blocks[path.stem] = Block.read(path)
        except DamagedFile as error:
            damaged.append(error)
    planned = [block.name for block in manifest.blocks if block.name in blocks] if manifest else []
    return Past(
        manifest=manifest,
        revision=max([manifest.revision if manifest else 0, *folder.revisions()]),
        blocks=tuple(blocks[name] for name in dict.fromkeys([*planned, *blocks])),
        damaged=tuple(error.path for error in damaged),
        notes=tuple(f"{error}; it is set aside and planned again" for error in damaged),
    )
