"""Unpack a checked archive: what findings and report are made from, and neither of them."""

from __future__ import annotations

from pathlib import Path

from accelsweep.records.layout import SweepFolder
from accelsweep.state.archive.check import CheckedArchive
from accelsweep.state.archive.contents import written_in_order

_REMADE = ("sweep/findings.json", "report/")
"""Places of what is made again from the records."""


def unpacked(archive: CheckedArchive, home: Path, name: str) -> SweepFolder:
    """Write a checked archive's sweep below `home`, without what is made from its records; return its folder."""
    folder = SweepFolder(home, name)
    kept = [place for place in archive.contents.files if not place.startswith(_REMADE)]
    archive.unpack(written_in_order(kept), folder.root)
    return folder
