"""A small finished sweep with every file that a real one has, packed. `small_sweep.sh` measures and packs it anew."""

from __future__ import annotations

import tarfile
from pathlib import Path

from accelsweep.records.layout import SweepFolder

PACKED = Path(__file__).with_name("small_sweep.tar.gz")


def unpack_small_sweep(home: Path) -> SweepFolder:
    """Unpack the sweep below `home`."""
    with tarfile.open(PACKED) as archive:
        archive.extractall(home, filter="data")
    return SweepFolder(home, "old")
