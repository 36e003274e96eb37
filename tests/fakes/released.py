"""The sweeps that released versions wrote (tests/released), packed and unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path

from accelsweep.records.layout import SweepFolder

PACKED = sorted((Path(__file__).parents[1] / "released").glob("*.tar.gz"))


def unpacked(packed: Path, home: Path) -> SweepFolder:
    """Unpack a released version's sweep below `home`."""
    with tarfile.open(packed) as archive:
        archive.extractall(home, filter="data")
    return SweepFolder(home, "old")
